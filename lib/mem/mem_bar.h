/* SPDX-License-Identifier: MIT */
/*
 * Memory in the BAR of another PCI device that is held through VFIO (gpunvme/mem.h). It stands for the memory of a GPU, or is the
 * controller memory buffer of a second drive.
 */
#ifndef GNV_MEM_MEM_BAR_H
#define GNV_MEM_MEM_BAR_H

#include <gpunvme/mem.h>

#include "mem/mem.h"
#include "os/vfio/vfio.h"

/*
 * gnv_bar_dev_open() - take a device and watch it
 * @take: how, as for gnv_vfio_open()
 * Counted: every memory in it holds a reference. gpunvme_bar_close() drops the first one. Return: as gpunvme_bar_open().
 */
int gnv_bar_dev_open(gnv_vfio_take *take, const struct gnv_pci *pci, const struct gnv_log *log, struct gpunvme_bar **dev);

/* gnv_mem_bar() - gpunvme_mem_bar() for the library's own use: @gpu may be NULL. */
int gnv_mem_bar(struct gpunvme_bar *dev, struct gpunvme_gpu *gpu, unsigned index, uint64_t offset, size_t len,
		struct gpunvme_mem **mem);

#endif
