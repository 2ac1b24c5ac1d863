/* SPDX-License-Identifier: MIT */
/*
 * Mapping memory to devices, and the public functions for it.
 * Invariant: a mapping is in the list of its memory and in that of its device, or in neither. Bytes are given back only when no
 * mapping is left.
 */
#include "nvme/map.h"

#include <errno.h>
#include <stdlib.h>

#include "nvme/guest.h"
#include "nvme/place.h"
#include "nvme/prp.h"
#include "nvme/qp.h"
#include "util/bits.h"

static struct gnv_mapping *find(const struct gpunvme_mem *mem, const struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;

	for (map = mem->maps; map && map->dev != dev; map = map->next_of_mem)
		;
	return map;
}

/*
 * Its data lies where the queues of its GPU do; where memory of another driver is, its user knows. A controller in software ends
 * what it writes anywhere before it completes.
 */
static int take_place(struct gnv_mapping *map)
{
	struct gpunvme_mem *mem = map->mem;
	int ret;

	if (!map->dev->port->remote || !mem->gpu || mem->exempt || (mem->dmabuf >= 0 && !mem->local))
		return 0;
	ret = gnv_place_take(map->dev, mem->gpu, mem->local);
	map->placed = !ret;
	return ret;
}

static void give_place(struct gnv_mapping *map)
{
	if (map->placed)
		gnv_place_give(map->dev, map->mem->gpu, map->mem->local);
}

/* Let the lanes see it, after the device does. Memory of another driver may be the controller's alone: then base is 0. */
static int show(struct gnv_mapping *map)
{
	struct gpunvme_mem *mem = map->mem;
	int ret = mem->gpu ? gnv_mem_show(mem, mem->gpu, 0, mem->len, &map->dbuf.base) : -EOPNOTSUPP;

	map->shown = !ret;
	return ret == -EOPNOTSUPP && !(mem->gpu && mem->cpu) ? 0 : ret;
}

void gnv_map_hide(struct gnv_mapping *map, struct gpunvme_gpu *gpu)
{
	if (gnv_mem_hide(map->mem, gpu)) {
		gnv_log(&map->dev->log, GPUNVME_LOG_ERROR, "%zu bytes are leaked: %s", map->mem->len, gpunvme_errmsg());
		map->mem->leaked = true;
	}
}

static void hide(struct gnv_mapping *map)
{
	gnv_guests_drop(map, true);
	if (map->shown)
		gnv_map_hide(map, map->mem->gpu);
}

/* Another live mapping of the memory in this space: the kernel's is the same one. */
static const struct gnv_mapping *find_in(const struct gpunvme_mem *mem, const struct gnv_space *space)
{
	const struct gnv_mapping *map;

	for (map = mem->maps; map && (map->dead || map->dev->port->space != space); map = map->next_of_mem)
		;
	return map;
}

/* Does another mapping stand on the same one of the kernel's? */
static bool has_twin(const struct gnv_mapping *map)
{
	const struct gnv_mapping *other;

	for (other = map->mem->maps; other; other = other->next_of_mem)
		if (other != map && other->dev->port->space == map->dev->port->space && other->dbuf.iova == map->dbuf.iova)
			return true;
	return false;
}

/* Give the mapped memory its PRP tables. */
static int add_table(struct gnv_mapping *map, uint64_t iova)
{
	struct gpunvme_dev *dev = map->dev;
	size_t page = dev->ctrl.page_size, size = gnv_prp_table_size(map->mem->len, page);
	int ret;

	map->dbuf.len = map->mem->len;
	map->dbuf.iova = iova;
	if (iova & (page - 1))
		return gnv_fail(-EOPNOTSUPP, "the controller wants pages of %zu bytes; its address space aligns to less", page);
	if (!size)
		return 0;
	ret = gnv_arena_alloc(dev->arena, size, NULL, &map->table);
	if (ret)
		return ret;
	gnv_prp_table_fill(map->table.cpu, map->table.iova, iova, map->mem->len, page, &map->dbuf.prp_a, &map->dbuf.prp_b);
	return 0;
}

/* Any command may have been for this memory, so every queue ends. */
static void mapping_lost(struct gnv_mem_watch *watch)
{
	struct gnv_mapping *map = gnv_container_of(watch, struct gnv_mapping, watch);
	struct gnv_space *space = map->dev->port->space;

	map->dead = true;
	gnv_qp_end_all(map->dev, GPUNVME_ENODEV);
	space->ops->cut(space, map->dbuf.iova, map->mem->len);
}

/* With the memory's lock held. */
static int map_add(struct gpunvme_mem *mem, struct gpunvme_dev *dev)
{
	struct gnv_space *space = dev->port->space;
	struct gnv_mapping *map;
	const struct gnv_mapping *same = find_in(mem, space);
	uint64_t iova = same ? same->dbuf.iova : 0;
	int ret = 0;

	if (mem->gone)
		return gnv_fail(-ENODEV, "the device in whose BAR the memory lies was given back to the kernel; free the memory");
	map = calloc(1, sizeof(*map));
	if (!map)
		return gnv_fail(-ENOMEM, "out of memory");
	map->mem = mem;
	map->dev = dev;
	ret = take_place(map);
	if (ret)
		goto free_map;
	if (!same)
		ret = space->ops->map(space, mem, &iova);
	if (ret)
		goto give_place;
	ret = show(map);
	if (ret)
		goto unmap;
	ret = add_table(map, iova);
	if (ret)
		goto hide;
	map->next_of_mem = mem->maps;
	mem->maps = map;
	map->watch.lost = mapping_lost;
	gnv_mem_watch(mem, &map->watch);
	pthread_mutex_lock(&dev->lock);
	map->next_of_dev = dev->maps;
	dev->maps = map;
	pthread_mutex_unlock(&dev->lock);
	return 0;

hide:
	hide(map);
unmap:
	if (!same)
		space->ops->unmap(space, iova, mem->len);
give_place:
	give_place(map);
free_map:
	free(map);
	return ret;
}

/* Take it out of both lists; the memory's lock is held. */
static void unlink_map(struct gnv_mapping *map)
{
	struct gnv_mapping **link;

	for (link = &map->mem->maps; *link != map; link = &(*link)->next_of_mem)
		;
	*link = map->next_of_mem;
	gnv_mem_unwatch(map->mem, &map->watch);
	pthread_mutex_lock(&map->dev->lock);
	for (link = &map->dev->maps; *link != map; link = &(*link)->next_of_dev)
		;
	*link = map->next_of_dev;
	pthread_mutex_unlock(&map->dev->lock);
}

/* With the memory's lock held. On failure the mapping stands as it was. */
static int map_remove(struct gnv_mapping *map)
{
	struct gnv_space *space = map->dev->port->space;
	int ret = 0;

	/* Where a leaked device may still write the addresses must never mean anything else. */
	if (!has_twin(map) && !map->mem->leaked)
		ret = space->ops->unmap(space, map->dbuf.iova, map->mem->len);
	if (ret)
		return gnv_fail(ret, "the device is using the memory; wait for its commands, or destroy the queue first");
	unlink_map(map);
	hide(map);
	give_place(map);
	gnv_arena_free(map->dev->arena, &map->table);
	free(map);
	return 0;
}

/* A command that timed out may still move data: into any buffer, the host does not know which. */
static int check_quiet(struct gpunvme_dev *dev)
{
	uint32_t qid = gnv_qp_first_busy(dev);

	if (!qid)
		return 0;
	return gnv_fail(-EBUSY, "queue %u is poisoned and the controller still has commands of it; destroy the queue first", qid);
}

GPUNVME_API int gpunvme_mem_map(struct gpunvme_mem *mem, struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;
	int ret = 0;

	if (!mem || !dev)
		return gnv_fail(-EINVAL, "gpunvme_mem_map: mem and dev must not be NULL");
	if (gnv_ctrl_dead(&dev->ctrl))
		return gnv_fail(-ENODEV, "the controller is dead since an earlier failure; close it and open it again");
	pthread_mutex_lock(&mem->lock);
	map = find(mem, dev);
	if (map && map->dead) {
		ret = check_quiet(dev);
		if (!ret)
			ret = map_remove(map);
		map = NULL;
	}
	if (!ret && !map)
		ret = map_add(mem, dev);
	pthread_mutex_unlock(&mem->lock);
	return ret;
}

GPUNVME_API int gpunvme_mem_unmap(struct gpunvme_mem *mem, struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;
	int ret = 0;

	if (!mem || !dev)
		return gnv_fail(-EINVAL, "gpunvme_mem_unmap: mem and dev must not be NULL");
	pthread_mutex_lock(&mem->lock);
	map = find(mem, dev);
	if (map)
		ret = check_quiet(dev);
	if (map && !ret)
		ret = map_remove(map);
	pthread_mutex_unlock(&mem->lock);
	return ret;
}

/* @gpu: NULL: the memory's. */
static int describe(struct gpunvme_mem *mem, const struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_dbuf *dbuf)
{
	struct gnv_mapping *map;
	uint64_t base = 0;
	int ret = 0;

	pthread_mutex_lock(&mem->lock);
	map = find(mem, dev);
	if (!map)
		ret = gnv_fail(-EINVAL, "the memory is not mapped to this device; call gpunvme_mem_map() first");
	else if (map->dead)
		ret = gnv_fail(-ENODEV, "the memory was taken away by the device it lies in; call gpunvme_mem_map() again");
	else
		ret = gnv_guest_base(map, gpu ? gpu : mem->gpu, &base);
	if (!ret) {
		*dbuf = map->dbuf;
		dbuf->base = base;
	}
	pthread_mutex_unlock(&mem->lock);
	return ret;
}

GPUNVME_API int gpunvme_mem_dbuf(const struct gpunvme_mem *mem, const struct gpunvme_dev *dev, struct gpunvme_dbuf *dbuf)
{
	if (!mem || !dev || !dbuf)
		return gnv_fail(-EINVAL, "gpunvme_mem_dbuf: mem, dev and dbuf must not be NULL");
	return describe((struct gpunvme_mem *)(uintptr_t)mem, dev, NULL, dbuf);
}

GPUNVME_API int gpunvme_mem_dbuf_for(struct gpunvme_mem *mem, struct gpunvme_dev *dev, struct gpunvme_gpu *gpu,
				     struct gpunvme_dbuf *dbuf)
{
	if (!mem || !dev || !gpu || !dbuf)
		return gnv_fail(-EINVAL, "gpunvme_mem_dbuf_for: mem, dev, gpu and dbuf must not be NULL");
	return describe(mem, dev, gpu, dbuf);
}

/* Undo what can be undone; true when a device may still write. With the memory's lock held. */
static bool unmap_from_all(struct gpunvme_mem *mem)
{
	struct gnv_mapping *map, *next;

	for (map = mem->maps; map; map = next) {
		struct gpunvme_dev *dev = map->dev;

		next = map->next_of_mem;
		if (check_quiet(dev) || map_remove(map))
			gnv_log(&dev->log, GPUNVME_LOG_ERROR, "%zu bytes that were freed are kept: %s", mem->len, gpunvme_errmsg());
	}
	return mem->maps;
}

GPUNVME_API void gpunvme_mem_free(struct gpunvme_mem *mem)
{
	bool kept;

	if (!mem)
		return;
	pthread_mutex_lock(&mem->lock);
	kept = unmap_from_all(mem) || mem->leaked;
	mem->orphan = true;
	pthread_mutex_unlock(&mem->lock);
	if (!kept)
		gnv_mem_release(mem);
}

static struct gnv_mapping *first_map(struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;

	pthread_mutex_lock(&dev->lock);
	map = dev->maps;
	pthread_mutex_unlock(&dev->lock);
	return map;
}

void gnv_map_drop_all(struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;
	bool release;

	while ((map = first_map(dev))) {
		struct gpunvme_mem *mem = map->mem;

		pthread_mutex_lock(&mem->lock);
		if (map_remove(map)) {
			gnv_log(&dev->log, GPUNVME_LOG_ERROR, "%zu bytes are leaked: %s", mem->len, gpunvme_errmsg());
			mem->leaked = true;
			unlink_map(map);
			gnv_guests_drop(map, false);
			give_place(map);
			free(map);
		}
		release = mem->orphan && !mem->leaked && !mem->maps;
		pthread_mutex_unlock(&mem->lock);
		if (release)
			gnv_mem_release(mem);
	}
}

void gnv_map_leak_all(struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;

	while ((map = first_map(dev))) {
		struct gpunvme_mem *mem = map->mem;

		pthread_mutex_lock(&mem->lock);
		mem->leaked = true;
		unlink_map(map);
		gnv_guests_drop(map, false);
		pthread_mutex_unlock(&mem->lock);
		free(map); /* its table is the arena's, which is leaked whole */
	}
}
