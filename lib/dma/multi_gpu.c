/* SPDX-License-Identifier: MIT */
/* Invariant: a guest sees the memory, and holds its place on the device, as long as it is in the list. */
#include "dma/multi_gpu.h"

#include <errno.h>
#include <stdlib.h>

#include "dma/placement.h"

void gnv_guests_drop(struct gnv_mapping *map, bool hide)
{
	struct gnv_guest *guest;

	while ((guest = map->guests)) {
		map->guests = guest->next;
		if (guest->placed)
			gnv_place_give(map->dev, guest->gpu, false);
		if (hide)
			gnv_mapping_hide(map, guest->gpu);
		free(guest);
	}
}

static int guest_open(struct gnv_mapping *map, struct gpunvme_gpu *gpu, struct gnv_guest *guest)
{
	struct gpunvme_mem *mem = map->mem;
	int ret = 0;

	if (mem->local)
		return gnv_fail(-EXDEV,
				"the buffer lies in memory of another GPU, of which a completion here would not say that the "
				"data has landed; share memory of the host (GPUNVME_MEM_HOST)");
	if (mem->dmabuf < 0)
		ret = gnv_place_take(map->dev, gpu, false);
	if (ret)
		return ret;
	guest->placed = mem->dmabuf < 0;
	guest->gpu = gpu;
	ret = gnv_mem_show(mem, gpu, 0, mem->len, &guest->base);
	if (ret && guest->placed)
		gnv_place_give(map->dev, gpu, false);
	return ret;
}

int gnv_guest_base(struct gnv_mapping *map, struct gpunvme_gpu *gpu, uint64_t *base)
{
	struct gnv_guest *guest;
	int ret;

	*base = map->dbuf.base;
	if (gpu == map->mem->gpu)
		return 0;
	for (guest = map->guests; guest && guest->gpu != gpu; guest = guest->next)
		;
	if (!guest) {
		guest = calloc(1, sizeof(*guest));
		ret = guest ? guest_open(map, gpu, guest) : gnv_fail(-ENOMEM, "out of memory");
		if (ret) {
			free(guest);
			return ret;
		}
		guest->next = map->guests;
		map->guests = guest;
	}
	*base = guest->base;
	return 0;
}
