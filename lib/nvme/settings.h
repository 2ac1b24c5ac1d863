/* SPDX-License-Identifier: MIT */
/* Features that the program has set. A reset restores the values that the drive has saved, so they are set again after it. */
#ifndef GNV_NVME_SETTINGS_H
#define GNV_NVME_SETTINGS_H

#include "nvme/nvme.h"

/*
 * Around a Set Features: neither another one nor a reset comes between the command and its note. @ret: its result. After 0 it is
 * noted, with @len bytes of data. The log has each feature that is not kept: there was no memory, or its data is not at hand (@data
 * is NULL).
 */
void gnv_settings_begin(struct gnv_nvme *nvme);
void gnv_settings_end(struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd, const void *data, size_t len, int ret);

/*
 * After a reset: as many queues as before, and all that was noted. Features of a namespace that is not active any more are
 * forgotten, and the log says so. Return: 0; -EIO fewer queues; errors of gnv_admin_run().
 */
int gnv_settings_apply(struct gnv_nvme *nvme);

/* Nobody uses the device any more. */
void gnv_settings_drop(struct gnv_nvme *nvme);

#endif
