/* SPDX-License-Identifier: MIT */
/* One memory mapped to one device: an IOVA, the PRP tables, visibility for threads. */
#ifndef GNV_DMA_MAPPING_H
#define GNV_DMA_MAPPING_H

#include "dev/dev.h"

struct gnv_other_gpu; /* dma/multi_gpu.h */

struct gnv_mapping {
	struct gnv_mapping *next_of_mem; /* under the memory's lock */
	struct gnv_mapping *next_of_dev; /* under the device's lock */
	struct gpunvme_mem *mem;
	struct gpunvme_dev *dev;
	bool placed; /* gnv_placement_claim() was called for it */
	bool shown; /* to the threads of the memory's GPU */
	struct gnv_other_gpu *others; /* under the memory's lock */
	struct gnv_block table; /* PRP lists. Empty for small buffers */
	struct gnv_arena *table_of; /* the arena that it is of */
	struct gpunvme_dbuf dbuf;
	bool given; /* a descriptor of it, if its stores are cached. Under the device's lock */
	bool dead; /* the memory was taken away. To be mapped again */
	struct gnv_mem_watch watch;
};

/* Were descriptors given out of memory of that GPU whose stores it caches? With dev->lock held. */
bool gnv_mapping_cached(const struct gpunvme_dev *dev, const struct gpunvme_gpu *gpu);

/* Make a mapping, with the memory's lock held. Return: 0; the errors of gpunvme_mem_map(), with nothing changed. */
int gnv_mapping_add(struct gpunvme_mem *mem, struct gpunvme_dev *dev);

/* Undo and free a mapping, with the memory's lock held. Return: 0; an error of the address space: the mapping stays as it was. */
int gnv_mapping_remove(struct gnv_mapping *map);

/* Does it have lists in the drive? */
bool gnv_mapping_lists_inside(const struct gnv_mapping *map);

/* The controller was reset, and may have lost the content of its memory: write the lists there again. */
void gnv_mapping_refill(struct gpunvme_dev *dev);

/* Hide the memory from the threads of a GPU. Memory that the GPU keeps is leaked. */
void gnv_mapping_hide(struct gnv_mapping *map, struct gpunvme_gpu *gpu);

#endif
