/* SPDX-License-Identifier: MIT */
/* Identify: what the controller says about itself and its namespaces, checked and cleaned. */
#ifndef GNV_NVME_IDENTIFY_H
#define GNV_NVME_IDENTIFY_H

#include "nvme/dev.h"

/* Fill dev->info from Identify Controller, and the shutdown deadline. Return: 0; -EOPNOTSUPP; what gnv_admin_run() answers. */
int gnv_identify_ctrl(struct gpunvme_dev *dev);

/* Whether the drive may be asked that: some err with most of Identify (port/quirks.h). */
bool gnv_identify_knows(const struct gpunvme_dev *dev, enum gpunvme_cns cns);

/* Identify Namespace, unchecked. Return: what gnv_admin_run() answers. */
int gnv_identify_ns(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_id_ns *id);

/* Its UUID, from the list of descriptors; untouched where it has none. Return: what gnv_admin_run() answers. */
int gnv_identify_uuid(struct gpunvme_dev *dev, uint32_t nsid, uint8_t uuid[16]);

/* Copy a padded, perhaps hostile string of `len` bytes; `to` has len + 1. */
void gnv_identify_string(const char *from, size_t len, char *to);

#endif
