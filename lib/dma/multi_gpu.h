/* SPDX-License-Identifier: MIT */
/* GPUs that use a mapped buffer beside the one it was allocated for. With the memory's lock held. */
#ifndef GNV_DMA_MULTI_GPU_H
#define GNV_DMA_MULTI_GPU_H

#include "dma/mapping.h"

struct gnv_guest {
	struct gnv_guest *next;
	struct gpunvme_gpu *gpu; /* the memory's sight of it holds the reference */
	uint64_t base;
	bool placed; /* gnv_place_take() was called for it */
};

/*
 * gnv_guest_base() - the address of the memory for the lanes of a GPU, which becomes a guest where it is none
 * Return: 0; -EXDEV it is memory of another GPU, or of that one queues and data lie elsewhere; what showing it answers; -ENOMEM.
 */
int gnv_guest_base(struct gnv_mapping *map, struct gpunvme_gpu *gpu, uint64_t *base);

/* All go. @hide: they see the memory no more; else it is leaked, and stays as it is. */
void gnv_guests_drop(struct gnv_mapping *map, bool hide);

#endif
