/* SPDX-License-Identifier: MIT */
/* Features and other admin commands that go through as the caller words them. */
#ifndef GNV_NVME_FEATURES_H
#define GNV_NVME_FEATURES_H

#include "nvme/dev.h"

/*
 * gnv_features_queues() - agree on the number of I/O queue pairs; once, before the first queue
 * @want:    how many to ask for
 * @granted: how many there are, at most @want and at least 1
 * Return: 0, or what gnv_admin_run() answers.
 */
int gnv_features_queues(struct gpunvme_dev *dev, uint32_t want, uint32_t *granted);

/*
 * gnv_features_arbitration() - as many commands of a queue at a time as the drive recommends, where it takes fewer (5.27.1.1)
 * @recommended: the power of two of Identify (RAB)
 * What the drive refuses stays as it is. Return: 0; negative: what gnv_admin_run() answers.
 */
int gnv_features_arbitration(struct gpunvme_dev *dev, uint32_t recommended);

#endif
