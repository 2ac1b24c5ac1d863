/* SPDX-License-Identifier: MIT */
/* Checks of the machine: what drives and GPUs need. They run for each argument of doctor. */
#ifndef GPUNVME_DOCTOR_MACHINE_H
#define GPUNVME_DOCTOR_MACHINE_H

#include <gpunvme/gpunvme.h>

#define MACHINE_CHECKS 7u

/* Fill @checks. None of them fails: a missing feature is a limit, as the emulator runs without it. */
void check_machine(struct gpunvme_check checks[MACHINE_CHECKS]);

#endif
