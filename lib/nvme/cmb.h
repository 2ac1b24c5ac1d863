/* SPDX-License-Identifier: MIT */
/*
* Controller Memory Buffer: memory in the drive, in a BAR. A submission queue or a PRP list there costs the drive no read over
 * the bus; what the CPU and lanes store there is as far as a doorbell, and like that goes to the drive in order.
 */
#ifndef GNV_NVME_CMB_H
#define GNV_NVME_CMB_H

#include "nvme/nvme.h"

/*
 * gnv_cmb_open() - set nvme->cmb.arena, of which is given out on request, before the controller is enabled
 * Where there is none, or it cannot be used, that stays NULL and the log says why. The log also names a Persistent Memory Region:
 * it has somebody's data and is left alone.
 */
void gnv_cmb_open(struct gnv_nvme *nvme);

/* May this lie there? Return: 0; -EOPNOTSUPP; gnv_fail() has the sentence. */
int gnv_cmb_check(const struct gnv_nvme *nvme, enum gpunvme_cmb_holds what);

/* Nothing lies there any more. */
void gnv_cmb_close(struct gnv_nvme *nvme);

#endif
