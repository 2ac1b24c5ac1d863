/* SPDX-License-Identifier: MIT */
/* What figures must say of a drive that software emulates: that it is one, its link, and whether it kept its times. */
#ifndef GPUNVME_EMULATED_H
#define GPUNVME_EMULATED_H

#include "common/session.h"

/* As text, until the next call. */
const char *emulated(const struct gpunvme_dev_info *d);
void put_emulated(struct json_object *json, const struct gpunvme_dev_info *d);

#endif
