/* SPDX-License-Identifier: MIT */
/* Data and PRP lists in the memory of a drive (nvme/cmb.h): the kind of memory, and the proof that a drive reads its own lists. */
#ifndef GNV_QUEUE_CMB_MEM_H
#define GNV_QUEUE_CMB_MEM_H

#include "dev/dev.h"

/*
 * gnv_cmb_mem_test_lists() - test once, by reads, whether lists of mappings to this device may lie in its memory
 * Return: 0; -EOPNOTSUPP it takes none; -EIO it errs with them; -ENOSPC no queue pair, or no room there; what creating a queue
* returns; or a positive NVMe status.
 */
int gnv_cmb_mem_test_lists(struct gpunvme_dev *dev);

#endif
