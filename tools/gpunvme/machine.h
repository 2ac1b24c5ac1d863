/* SPDX-License-Identifier: MIT */
/* Versions and settings of this machine, as fields of an object. */
#ifndef GPUNVME_MACHINE_H
#define GPUNVME_MACHINE_H

#include "common/output.h"

void put_machine(struct json_object *json);

#endif
