/* SPDX-License-Identifier: MIT */
/* What the machine has of that which drives and GPUs need, whichever of them is asked for. */
#ifndef GPUNVME_DOCTOR_MACHINE_H
#define GPUNVME_DOCTOR_MACHINE_H

#include <gpunvme/gpunvme.h>

#define MACHINE_CHECKS 7u

/* Fill @checks. None of them fails: what is missing is a limit, as the emulator runs without it. */
void check_machine(struct gpunvme_check checks[MACHINE_CHECKS]);

#endif
