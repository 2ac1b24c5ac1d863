/* SPDX-License-Identifier: MIT */
/* A reset of the controller under its queues: they end, it is made anew (nvme/reset.h), and they go on. */
#ifndef GNV_DEV_RESET_H
#define GNV_DEV_RESET_H

#include "dev/dev.h"

/*
 * gnv_dev_reset() - with queues_lock held
 * @asked: the queue whose failure to come back is returned. NULL: the first failure of any
 * Return: as gpunvme_dev_reset().
 */
int gnv_dev_reset(struct gpunvme_dev *dev, const struct gnv_dev_queue *asked);

#endif
