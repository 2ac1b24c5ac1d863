/* SPDX-License-Identifier: MIT */
/*
 * PRP lists that a controller reads as it should, proven when it is opened: no form of a data pointer is trusted without proof. The
 * specification lets a list begin at any multiple of 8 bytes. Hosts hardly ever do it, and drives err.
 */
#ifndef GNV_NVME_LISTS_H
#define GNV_NVME_LISTS_H

#include "nvme/nvme.h"

/*
 * gnv_lists_prove() - determine nvme->lists.form, before the first mapping
 * Reads the same blocks a page at a time and through lists of several sizes and places. Media is not written. A controller that
 * does not return the same is given stricter lists. If there is nothing to read, the lists stay unproven. The log says both.
 * Return: 0; -EIO it does not even read two pages as it should; -ENOMEM; -ENODEV; errors of a reset that it needed.
 */
int gnv_lists_prove(struct gnv_nvme *nvme);

/* As gpunvme_dev_info.lists. */
const char *gnv_lists_name(enum gnv_lists lists);

#endif
