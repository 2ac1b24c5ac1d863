/* SPDX-License-Identifier: MIT */
/* Invariant: of one GPU and one device, only one of the two counts of users is not zero. */
#include "dma/placement.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * A refusal drives the whole block that the runtime has from the driver out of the GPU's memory. Memory of less than 2 MiB shares
 * such a block with other memory, also with HIP's (ROCr 6.4, MemoryRegion's fragment allocator).
 */
#define SCRATCH (2u << 20)

struct gnv_placement {
	struct gnv_placement *next;
	struct gpunvme_gpu *gpu; /* a counted reference */
	struct gnv_arena *arena; /* of its memory. NULL until it was tried */
	bool tried;
	int status; /* of the try */
	char why[256];
	unsigned users[2]; /* in memory of the host, and of the GPU */
};

/* IOMMUFD got no addresses: it asks nobody, or the GPU's driver offers none. */
static int no_addresses(struct gnv_port *port)
{
	const struct gnv_message cause = gnv_message(); /* of the memory, not of the page that is asked with */
	int ret = gnv_port_takes_foreign(port);

	if (ret == -ENOENT)
		return gnv_fail_again(-EOPNOTSUPP, &cause);
	return ret ? ret
		   : gnv_fail(-EOPNOTSUPP, "IOMMUFD of this kernel takes a GPU's memory, but the GPU's driver offers none of this "
					   "(docs/kernel.md lists its refusals)");
}

/* Does the address space take memory of the GPU? */
static int try_scratch(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	struct gnv_space *space = dev->nvme.port->space;
	struct gpunvme_mem *mem;
	uint64_t iova;
	int ret = gnv_mem_gpu_alloc(gpu, 0, SCRATCH, &mem);

	if (ret)
		return ret;
	if (!mem->cpu && !dev->nvme.port->remote && !dev->nvme.port->far_rings)
		ret = gnv_fail(-EOPNOTSUPP, "the software controller cannot have rings in memory that has no CPU address");
	if (!ret)
		ret = gnv_mem_map(mem, space, &dev->nvme.log, &iova);
	if (ret == -EOPNOTSUPP && mem->dmabuf >= 0 && space->by_dmabuf && !space->bare)
		ret = no_addresses(dev->nvme.port);
	if (!ret)
		ret = space->ops->unmap(space, iova, mem->len);
	gnv_mem_release(mem);
	return ret;
}

int gnv_placement_status(const struct gpunvme_dev *dev, bool local, int ret)
{
	return ret && local && ret != -ENOMEM && !gnv_ctrl_dead(&dev->nvme.ctrl) ? -EOPNOTSUPP : ret;
}

static void try_local(struct gpunvme_dev *dev, struct gnv_placement *place)
{
	int ret = try_scratch(dev, place->gpu);

	if (!ret)
		ret = gnv_arena_create(dev->nvme.port->space, dev->nvme.ctrl.page_size, place->gpu, &dev->nvme.log, &place->arena);
	place->tried = ret != -ENOMEM; /* which may pass */
	place->status = gnv_placement_status(dev, true, ret);
	snprintf(place->why, sizeof(place->why), "%s", ret ? gpunvme_errmsg() : "");
}

static struct gnv_placement *find(const struct gpunvme_dev *dev, const struct gpunvme_gpu *gpu)
{
	struct gnv_placement *place;

	for (place = dev->dma.places; place && place->gpu != gpu; place = place->next)
		;
	return place;
}

static struct gnv_placement *find_or_add(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	struct gnv_placement *place = find(dev, gpu);

	if (place)
		return place;
	place = calloc(1, sizeof(*place));
	if (!place)
		return NULL;
	place->gpu = gnv_gpu_get(gpu);
	place->next = dev->dma.places;
	dev->dma.places = place;
	return place;
}

static int take(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, bool local)
{
	struct gnv_placement *place = find_or_add(dev, gpu);

	if (!place)
		return gnv_fail(-ENOMEM, "out of memory");
	if (place->users[!local] && dev->nvme.port->remote)
		return gnv_fail(-EXDEV,
				"queues and buffers of this GPU lie in memory of the %s on %s, and must lie together: a completion would "
				"not say that the data has landed. Pass the queue to gpunvme_mem_alloc(), use GPUNVME_MEM_%s, or create "
				"the queues with GPUNVME_QUEUE_HOST", local ? "host" : "GPU", dev->nvme.port->address,
				local ? "HOST" : "VRAM");
	if (local && !place->tried)
		try_local(dev, place);
	if (local && place->status)
		return gnv_fail(place->status, "%s cannot use memory of the GPU: %s", dev->nvme.port->address, place->why);
	place->users[local]++;
	return 0;
}

int gnv_placement_claim(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, bool local)
{
	int ret;

	pthread_mutex_lock(&dev->dma.place_lock);
	ret = take(dev, gpu, local);
	pthread_mutex_unlock(&dev->dma.place_lock);
	return ret;
}

static int try_foreign(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	struct gnv_placement *place = find_or_add(dev, gpu);

	if (!place)
		return gnv_fail(-ENOMEM, "out of memory");
	if (!place->tried)
		try_local(dev, place);
	if (!place->status)
		return 0;
	return gnv_fail(place->status,
			"%s did not take a scratch buffer of the GPU, and the DMA-BUF, which a refusal may move, was not tried: "
			"%s. Import it with the GPU that it is of",
			dev->nvme.port->address, place->why);
}

int gnv_placement_probe(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	int ret;

	if (!dev->nvme.port->space->by_dmabuf)
		return 0;
	pthread_mutex_lock(&dev->dma.place_lock);
	ret = try_foreign(dev, gpu);
	pthread_mutex_unlock(&dev->dma.place_lock);
	return ret;
}

/* A GPU that was not tried need not be remembered, so that it can go before the device does. */
void gnv_placement_release(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, bool local)
{
	struct gnv_placement **link, *place;

	pthread_mutex_lock(&dev->dma.place_lock);
	for (link = &dev->dma.places; (*link)->gpu != gpu; link = &(*link)->next)
		;
	place = *link;
	if (!--place->users[local] && !place->tried) {
		*link = place->next;
		gnv_gpu_put(gpu);
		free(place);
	}
	pthread_mutex_unlock(&dev->dma.place_lock);
}

struct gnv_arena *gnv_placement_arena(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	struct gnv_arena *arena;

	pthread_mutex_lock(&dev->dma.place_lock);
	arena = find(dev, gpu)->arena;
	pthread_mutex_unlock(&dev->dma.place_lock);
	return arena;
}

void gnv_placement_free_all(struct gpunvme_dev *dev)
{
	struct gnv_placement *place;

	while ((place = dev->dma.places)) {
		dev->dma.places = place->next;
		if (place->arena)
			gnv_arena_destroy(place->arena);
		gnv_gpu_put(place->gpu);
		free(place);
	}
}
