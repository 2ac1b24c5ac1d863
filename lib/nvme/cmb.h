/* SPDX-License-Identifier: MIT */
/*
* Controller Memory Buffer: memory in the drive, in a BAR. The drive fetches from a submission queue or a PRP list there without a
* read over the bus. Stores of the CPU and of threads cost as much as a doorbell, and reach the drive in order, as doorbells do.
 */
#ifndef GNV_NVME_CMB_H
#define GNV_NVME_CMB_H

#include "nvme/nvme.h"

/*
 * gnv_cmb_open() - set nvme->cmb.arena, of which is given out on request, before the controller is enabled
 * Where there is none, or it cannot be used, that stays NULL and the log says why. The log also names a Persistent Memory Region:
 * it has data of others and is left alone.
 */
void gnv_cmb_open(struct gnv_nvme *nvme);

/* May this lie there? Return: 0, -EOPNOTSUPP. gnv_fail() has the error message. */
int gnv_cmb_check(const struct gnv_nvme *nvme, enum gpunvme_cmb_holds what);

/* Nothing lies there any more. */
void gnv_cmb_close(struct gnv_nvme *nvme);

#endif
