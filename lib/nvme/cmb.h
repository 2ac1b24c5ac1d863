/* SPDX-License-Identifier: MIT */
/*
 * Controller Memory Buffer: memory in the drive, behind a BAR. A submission queue or a PRP list there costs the drive no read over
 * the bus; what the CPU and lanes store there is as far as a doorbell, and like that goes to the drive in order.
 */
#ifndef GNV_NVME_CMB_H
#define GNV_NVME_CMB_H

#include "nvme/dev.h"

/*
 * gnv_cmb_open() - dev->cmb, of which is given out on request, before the controller is enabled
 * Where there is none, or it cannot be used, dev->cmb stays NULL, and the log says why; so it does of a Persistent Memory Region,
 * which is somebody's data and is left alone.
 */
void gnv_cmb_open(struct gpunvme_dev *dev);

/* May this lie there? Return: 0; -EOPNOTSUPP; gnv_fail() has the sentence. */
int gnv_cmb_check(const struct gpunvme_dev *dev, enum gpunvme_cmb_holds what);

/* Nothing lies there any more. */
void gnv_cmb_close(struct gpunvme_dev *dev);

#endif
