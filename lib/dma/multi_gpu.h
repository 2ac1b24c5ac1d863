/* SPDX-License-Identifier: MIT */
/* GPUs that use a mapped buffer in addition to the one it was allocated for. With the memory's lock held. */
#ifndef GNV_DMA_MULTI_GPU_H
#define GNV_DMA_MULTI_GPU_H

#include "dma/mapping.h"

struct gnv_other_gpu {
	struct gnv_other_gpu *next;
	struct gpunvme_gpu *gpu; /* the memory's struct gnv_visibility holds the reference */
	uint64_t base;
	bool placed; /* gnv_placement_claim() was called for it */
};

/*
 * gnv_multi_gpu_address() - get the address of the memory for a GPU, which is added to the list if it is not in it
 * Return: 0; -EXDEV it is memory of another GPU, or that GPU's queues and data lie elsewhere; errors of gnv_mem_show(); -ENOMEM.
 */
int gnv_multi_gpu_address(struct gnv_mapping *map, struct gpunvme_gpu *gpu, uint64_t *base);

/* Empty the list. @hide: detach the memory from these GPUs. Otherwise it is leaked and stays attached. */
void gnv_multi_gpu_remove_all(struct gnv_mapping *map, bool hide);

#endif
