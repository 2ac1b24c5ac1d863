/* SPDX-License-Identifier: MIT */
/*
 * A mapping consists of a place on the device, an IOVA, visibility for threads, and PRP lists.
 * Invariant: a mapping is in the list of its memory and in that of its device, or in neither.
 */
#include "dma/mapping.h"

#include <errno.h>
#include <stdlib.h>

#include "nvme/prp.h"
#include "dma/multi_gpu.h"
#include "dma/deferred_free.h"
#include "dma/placement.h"
#include "util/bits.h"
#include "util/mmio.h"

/*
 * Its data lies where the queues of its GPU do. For memory of another driver, its user knows that. A controller in software ends
 * its writes to any memory before it completes.
 */
static int take_place(struct gnv_mapping *map)
{
	struct gpunvme_mem *mem = map->mem;
	int ret;

	if (!map->dev->nvme.port->remote || !mem->gpu || mem->exempt)
		return 0;
	if (mem->dmabuf >= 0 && !mem->local)
		return mem->moves ? gnv_placement_probe(map->dev, mem->gpu) : 0;
	ret = gnv_placement_claim(map->dev, mem->gpu, mem->local);
	map->placed = !ret;
	return ret;
}

static void give_place(struct gnv_mapping *map)
{
	if (map->placed)
		gnv_placement_release(map->dev, map->mem->gpu, map->mem->local);
}

/* Let threads see it, after the device does. Memory of another driver may be the controller's alone: then base is 0. */
static int show(struct gnv_mapping *map)
{
	struct gpunvme_mem *mem = map->mem;
	int ret = mem->gpu ? gnv_mem_show(mem, mem->gpu, 0, mem->len, &map->dbuf.base) : -EOPNOTSUPP;

	map->shown = !ret;
	return ret == -EOPNOTSUPP && !(mem->gpu && mem->cpu) ? 0 : ret;
}

/* A GPU or a device does not release it, as the error message says. */
static void leak(struct gnv_mapping *map)
{
	gnv_log(&map->dev->nvme.log, GPUNVME_LOG_ERROR, "%zu bytes are leaked: %s", map->mem->len, gpunvme_errmsg());
	map->mem->leaked = true;
}

void gnv_mapping_hide(struct gnv_mapping *map, struct gpunvme_gpu *gpu)
{
	if (gnv_mem_hide(map->mem, gpu))
		leak(map);
}

static void hide(struct gnv_mapping *map)
{
	gnv_multi_gpu_remove_all(map, true);
	if (map->shown)
		gnv_mapping_hide(map, map->mem->gpu);
}

/* Another live mapping of the memory in this space: the kernel's is the same one. */
static const struct gnv_mapping *find_in(const struct gpunvme_mem *mem, const struct gnv_space *space)
{
	const struct gnv_mapping *map;

	for (map = mem->maps; map && (map->dead || map->dev->nvme.port->space != space); map = map->next_of_mem)
		;
	return map;
}

/* Does another mapping share the same one of the kernel? */
static bool is_shared(const struct gnv_mapping *map)
{
	const struct gnv_mapping *other;

	for (other = map->mem->maps; other; other = other->next_of_mem)
		if (other != map && other->dev->nvme.port->space == map->dev->nvme.port->space && other->dbuf.iova == map->dbuf.iova)
			return true;
	return false;
}

bool gnv_mapping_lists_inside(const struct gnv_mapping *map)
{
	return map->table_of && map->table_of == map->dev->nvme.cmb.arena;
}

/* If its lists lie in the drive, the load makes sure that they have arrived there before any doorbell does. */
static void fill_table(struct gnv_mapping *map)
{
	const struct gpunvme_dev *dev = map->dev;
	const struct gnv_prp_table table = { map->table.cpu, map->table.iova, map->dbuf.iova, map->mem->len, dev->nvme.ctrl.page_size,
					     dev->nvme.lists.form };

	gnv_prp_table_fill(&table, &map->dbuf.prp_a, &map->dbuf.prp_b);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	gnv_word_read32(map->table.cpu);
}

/* Give the mapped memory its PRP tables. */
static int add_table(struct gnv_mapping *map)
{
	struct gpunvme_dev *dev = map->dev;
	size_t page = dev->nvme.ctrl.page_size, size = gnv_prp_table_size(map->mem->len, page, dev->nvme.lists.form);
	int ret;

	if (map->dbuf.iova & (page - 1))
		return gnv_fail(-EOPNOTSUPP, "the controller needs pages of %zu bytes, but its address space aligns to less", page);
	if (!size)
		return 0;
	gnv_deferred_free_unused(dev);
	map->table_of = map->mem->lists_inside ? dev->nvme.cmb.arena : dev->nvme.arena;
	ret = gnv_arena_alloc(map->table_of, size, NULL, &map->table);
	if (ret)
		return gnv_deferred_free_explain(dev, ret);
	fill_table(map);
	return 0;
}

void gnv_mapping_refill(struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;

	pthread_mutex_lock(&dev->lock);
	for (map = dev->dma.maps; map; map = map->next_of_dev)
		if (gnv_mapping_lists_inside(map))
			fill_table(map);
	pthread_mutex_unlock(&dev->lock);
}

/* An address of it in the space of the device. Memory in a drive has one of that drive's. */
static int give_address(struct gnv_mapping *map, const struct gnv_mapping *same)
{
	const struct gpunvme_mem *mem = map->mem;
	struct gnv_space *space = map->dev->nvme.port->space;

	map->dbuf.len = mem->len;
	map->dbuf.iova = mem->home ? mem->home_iova : same ? same->dbuf.iova : 0;
	if (mem->home && mem->home != map->dev)
		return gnv_fail(-EXDEV, "the memory lies in another drive, at %s, and can be mapped to that only", mem->home->nvme.info.address);
	return mem->home || same ? 0 : gnv_mem_map(map->mem, space, &map->dev->nvme.log, &map->dbuf.iova);
}

static int take_address(struct gnv_mapping *map)
{
	struct gnv_space *space = map->dev->nvme.port->space;
	int ret = map->mem->home || is_shared(map) ? 0 : space->ops->unmap(space, map->dbuf.iova, map->mem->len);

	if (ret != -EOWNERDEAD)
		return ret;
	leak(map);
	return 0;
}

/* The mapping fails after all: @ret, with its error message. Memory that the device does not release stays. */
static int drop_address(struct gnv_mapping *map, int ret)
{
	const struct gnv_message cause = gnv_message();

	if (take_address(map))
		leak(map);
	return gnv_fail_again(ret, &cause);
}

/* Any command may have been for this memory, so every queue ends. */
static void mapping_lost(struct gnv_mem_watch *watch)
{
	struct gnv_mapping *map = gnv_container_of(watch, struct gnv_mapping, watch);
	struct gnv_space *space = map->dev->nvme.port->space;

	map->dead = true;
	gnv_queues_end(map->dev, GPUNVME_ENODEV);
	gnv_events_add(&map->dev->events, GPUNVME_EVENT_MEM_REVOKED, NULL, map->mem);
	space->ops->cut(space, map->dbuf.iova, map->mem->len);
}

int gnv_mapping_add(struct gpunvme_mem *mem, struct gpunvme_dev *dev)
{
	const struct gnv_mapping *same = find_in(mem, dev->nvme.port->space);
	struct gnv_mapping *map;
	int ret = 0;

	if (mem->gone)
		return gnv_fail(-ENODEV, "the device in whose BAR the memory lies was given back to the kernel. Free the memory");
	ret = mem->home ? 0 : gnv_mem_check_space(mem, dev->nvme.port->space); /* before a place is tried out for it */
	if (ret)
		return ret;
	map = calloc(1, sizeof(*map));
	if (!map)
		return gnv_fail(-ENOMEM, "out of memory");
	map->mem = mem;
	map->dev = dev;
	ret = take_place(map);
	if (ret)
		goto free_map;
	ret = give_address(map, same);
	if (ret)
		goto give_place;
	ret = show(map);
	if (ret)
		goto unmap;
	ret = add_table(map);
	if (ret)
		goto hide;
	map->next_of_mem = mem->maps;
	mem->maps = map;
	map->watch.lost = mapping_lost;
	gnv_mem_watch(mem, &map->watch);
	pthread_mutex_lock(&dev->lock);
	map->next_of_dev = dev->dma.maps;
	dev->dma.maps = map;
	if (gnv_mapping_lists_inside(map)) /* a reset may have come between */
		fill_table(map);
	pthread_mutex_unlock(&dev->lock);
	return 0;

hide:
	hide(map);
unmap:
	ret = drop_address(map, ret);
give_place:
	give_place(map);
free_map:
	free(map);
	return ret;
}

/* Take it out of both lists, with the memory's lock held. The device gets its lists, and may go once it has no mapping. */
static void unlink_map(struct gnv_mapping *map)
{
	struct gpunvme_dev *dev = map->dev;
	const bool lists = map->table_of;
	struct gnv_mapping **link;

	for (link = &map->mem->maps; *link != map; link = &(*link)->next_of_mem)
		;
	*link = map->next_of_mem;
	gnv_mem_unwatch(map->mem, &map->watch);
	pthread_mutex_lock(&dev->lock);
	for (link = &dev->dma.maps; *link != map; link = &(*link)->next_of_dev)
		;
	*link = map->next_of_dev;
	if (lists)
		gnv_deferred_free(dev, map);
	pthread_mutex_unlock(&dev->lock);
	if (!lists)
		free(map);
}

int gnv_mapping_remove(struct gnv_mapping *map)
{
	int ret = take_address(map);

	if (ret == -EAGAIN)
		return -EBUSY; /* with its error message */
	if (ret)
		return gnv_fail(ret, "the device is using the memory. Wait for its commands, or destroy the queue first");
	hide(map);
	give_place(map);
	unlink_map(map);
	return 0;
}
