/* SPDX-License-Identifier: MIT */
/*
 * Memory in the BAR of another PCI device that is held through VFIO: what stands in for the memory of a GPU, and how a controller
 * memory buffer of a second drive is reached.
 */
#ifndef GNV_MEM_MEM_BAR_H
#define GNV_MEM_MEM_BAR_H

#include "mem/mem.h"

/* A device held for its BARs. Counted: every memory holds a reference. */
struct gnv_bar_dev;

/* @type1: through its group instead of IOMMUFD. Return: as gpunvme_dev_open(). */
int gnv_bar_dev_open(const char *bdf, bool type1, struct gnv_bar_dev **dev);
void gnv_bar_dev_put(struct gnv_bar_dev *dev);

/* Function reset: exports of its BARs are revoked, mappings of them are dead until made again. Return: 0, -EIO. */
int gnv_bar_dev_reset(struct gnv_bar_dev *dev);

/*
 * gnv_mem_bar() - part of a BAR as memory
 * @gpu: may be NULL
 * Has a DMA-BUF where the kernel can export one, which IOMMUFD needs; type 1 maps the CPU's mapping.
 * Return: 0, -EOPNOTSUPP, -ENOMEM; gnv_fail() has the sentence.
 */
int gnv_mem_bar(struct gnv_bar_dev *dev, struct gpunvme_gpu *gpu, unsigned bar, uint64_t offset, size_t len,
		struct gpunvme_mem **mem);

#endif
