/* SPDX-License-Identifier: MIT */
/* Identify: what the controller says about itself and its namespaces, checked and cleaned. */
#ifndef GNV_NVME_IDENTIFY_H
#define GNV_NVME_IDENTIFY_H

#include "nvme/dev.h"

/* Fill dev->info from Identify Controller, and the shutdown deadline. Return: 0; -EOPNOTSUPP; what gnv_admin_run() answers. */
int gnv_identify_ctrl(struct gpunvme_dev *dev);

/* Copy a padded, perhaps hostile string of `len` bytes; `to` has len + 1. */
void gnv_identify_string(const char *from, size_t len, char *to);

#endif
