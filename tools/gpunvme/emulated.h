/* SPDX-License-Identifier: MIT */
/* Mark figures of an emulated drive: that it is emulated, its link, and whether it kept its times. */
#ifndef GPUNVME_EMULATED_H
#define GPUNVME_EMULATED_H

#include "common/session.h"

/* As text, until the next call. */
const char *emulated(const struct gpunvme_dev_info *d);
void put_emulated(struct json_object *json, const struct gpunvme_dev_info *d);

#endif
