/* SPDX-License-Identifier: MIT */
/* Invariant: another GPU sees the memory, and holds its place on the device, as long as it is in the list. */
#include "dma/multi_gpu.h"

#include <errno.h>
#include <stdlib.h>

#include "dma/placement.h"

void gnv_multi_gpu_remove_all(struct gnv_mapping *map, bool hide)
{
	struct gnv_other_gpu *other;

	while ((other = map->others)) {
		map->others = other->next;
		if (other->placed)
			gnv_placement_release(map->dev, other->gpu, false);
		if (hide)
			gnv_mapping_hide(map, other->gpu);
		free(other);
	}
}

static int other_open(struct gnv_mapping *map, struct gpunvme_gpu *gpu, struct gnv_other_gpu *other)
{
	struct gpunvme_mem *mem = map->mem;
	int ret = 0;

	if (mem->local)
		return gnv_fail(-EXDEV,
				"the buffer is in memory of another GPU, where data may arrive after its completion. Use memory "
				"of the host: gpunvme_mem_alloc() with GPUNVME_MEM_HOST or without a queue");
	if (mem->dmabuf < 0)
		ret = gnv_placement_claim(map->dev, gpu, false);
	if (ret)
		return ret;
	other->placed = mem->dmabuf < 0;
	other->gpu = gpu;
	ret = gnv_mem_show(mem, gpu, 0, mem->len, &other->base);
	if (ret && other->placed)
		gnv_placement_release(map->dev, gpu, false);
	return ret;
}

int gnv_multi_gpu_address(struct gnv_mapping *map, struct gpunvme_gpu *gpu, uint64_t *base)
{
	struct gnv_other_gpu *other;
	int ret;

	*base = map->dbuf.base;
	if (gpu == map->mem->gpu)
		return 0;
	for (other = map->others; other && other->gpu != gpu; other = other->next)
		;
	if (!other) {
		other = calloc(1, sizeof(*other));
		ret = other ? other_open(map, gpu, other) : gnv_fail(-ENOMEM, "out of memory");
		if (ret) {
			free(other);
			return ret;
		}
		other->next = map->others;
		map->others = other;
	}
	*base = other->base;
	return 0;
}
