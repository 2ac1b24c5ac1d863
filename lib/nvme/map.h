/* SPDX-License-Identifier: MIT */
/* Mappings of memory to a device: an IOVA and the PRP tables. */
#ifndef GNV_NVME_MAP_H
#define GNV_NVME_MAP_H

#include "nvme/dev.h"

struct gnv_guest; /* nvme/guest.h */

struct gnv_mapping {
	struct gnv_mapping *next_of_mem; /* under the memory's lock */
	struct gnv_mapping *next_of_dev; /* under the device's lock */
	struct gpunvme_mem *mem;
	struct gpunvme_dev *dev;
	bool placed; /* gnv_place_take() was called for it */
	bool shown; /* to the lanes of the memory's GPU */
	struct gnv_guest *guests; /* under the memory's lock */
	struct gnv_block table; /* PRP lists; empty for small buffers */
	struct gpunvme_dbuf dbuf;
	bool dead; /* the memory was taken away; to be mapped again */
	struct gnv_mem_watch watch;
};

/* The lanes of a GPU see the memory no more; what the GPU keeps is leaked. */
void gnv_map_hide(struct gnv_mapping *map, struct gpunvme_gpu *gpu);

/* Closing a device whose DMA has been stopped: undo every mapping to it, and release memory that was freed meanwhile. */
void gnv_map_drop_all(struct gpunvme_dev *dev);

/* Closing one that may still make DMA: part memory and device, and never give the bytes back. */
void gnv_map_leak_all(struct gpunvme_dev *dev);

#endif
