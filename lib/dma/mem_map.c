/* SPDX-License-Identifier: MIT */
/*
 * The public functions for mapping memory to devices, and when they may undo it.
 * Invariant: bytes are given back only when no mapping is left.
 */
#include "dma/mem_map.h"

#include <errno.h>
#include <string.h>

#include "dma/multi_gpu.h"
#include "dma/mapping.h"
#include "util/clock.h"
#include "util/entry.h"
#include "util/process.h"

static struct gnv_mapping *find(const struct gpunvme_mem *mem, const struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;

	for (map = mem->maps; map && map->dev != dev; map = map->next_of_mem)
		;
	return map;
}

bool gnv_map_has(struct gpunvme_mem *mem, const struct gpunvme_dev *dev)
{
	bool has;

	pthread_mutex_lock(&mem->lock);
	has = find(mem, dev);
	pthread_mutex_unlock(&mem->lock);
	return has;
}

bool gnv_map_knows(struct gpunvme_dev *dev, const struct gpunvme_dbuf *dbuf)
{
	const struct gnv_mapping *map;
	struct gpunvme_dbuf same;

	pthread_mutex_lock(&dev->lock);
	for (map = dev->dma.maps; map; map = map->next_of_dev) {
		same = map->dbuf;
		same.base = dbuf->base;
		if (!memcmp(&same, dbuf, sizeof(same)))
			break;
	}
	pthread_mutex_unlock(&dev->lock);
	return map;
}

/* Can the controller access memory after its unmap? No IOMMU stands before memory of its own. */
static bool lies_open(const struct gnv_mapping *map)
{
	return map->dev->nvme.port->space->bare || map->mem->home || gnv_mapping_lists_inside(map);
}

/*
 * A command that timed out may still move data into any buffer. The host does not know which. Mapped memory is not safe from
 * commands of an intact queue either, but users made those, and users never had the memory that is @ours.
 */
static int check_quiet(const struct gnv_mapping *map, bool ours)
{
	struct gpunvme_dev *dev = map->dev;
	bool over = false;
	uint32_t qid;

	if (__atomic_load_n(&dev->unstoppable, __ATOMIC_RELAXED))
		return gnv_fail(-EBUSY,
				"the controller at %s could not be stopped and may still write to the memory. Close it again "
				"when it was reset or has lost its power",
				dev->nvme.info.address);
	qid = gnv_queues_busy(dev, !ours && lies_open(map), &over);
	if (!qid)
		return 0;
	if (!over)
		return gnv_fail(-EBUSY,
				"queue %u has commands in flight, which may be for this memory, and no IOMMU would keep them from "
				"it. Wait for them, or recover or destroy the queue",
				qid);
	return gnv_fail(-EBUSY,
			"queue %u has ended and the controller still has commands of it, which may be for this memory. "
			"Recover or destroy the queue, or close the device, then try again",
			qid);
}

int gnv_map_add(struct gpunvme_mem *mem, struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;
	int ret = gnv_ctrl_check(&dev->nvme.ctrl);

	if (ret)
		return ret;
	pthread_mutex_lock(&mem->lock);
	map = find(mem, dev);
	if (map && map->dead) {
		ret = check_quiet(map, false);
		if (!ret)
			ret = gnv_mapping_remove(map);
		map = NULL;
	}
	if (!ret && !map)
		ret = gnv_mapping_add(mem, dev);
	pthread_mutex_unlock(&mem->lock);
	return ret;
}

GPUNVME_API int gpunvme_mem_map(struct gpunvme_mem *mem, struct gpunvme_dev *dev)
{
	int ret = 0;

	if (!mem || !dev)
		return gnv_null("mem and dev");
	if (gnv_foreign(mem->process) || gnv_foreign(dev->process))
		return -ECHILD;
	if (mem->lists_inside && !gnv_ctrl_check(&dev->nvme.ctrl))
		ret = dev->hooks->prove_lists(dev);
	if (ret)
		return ret;
	return gnv_map_add(mem, dev);
}

GPUNVME_API int gpunvme_mem_unmap(struct gpunvme_mem *mem, struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;
	int ret = 0;

	if (!mem || !dev)
		return gnv_null("mem and dev");
	if (gnv_foreign(mem->process) || gnv_foreign(dev->process))
		return -ECHILD;
	pthread_mutex_lock(&mem->lock);
	map = find(mem, dev);
	if (map)
		ret = check_quiet(map, false);
	if (map && !ret)
		ret = gnv_mapping_remove(map);
	pthread_mutex_unlock(&mem->lock);
	return ret;
}

/* A controller may miss stores of threads there. So all views must be fenced, or there is no descriptor. */
static int give_cached(struct gnv_mapping *map)
{
	struct gpunvme_dev *dev = map->dev;
	bool unfenced;

	if (!map->mem->cached_stores)
		return 0;
	pthread_mutex_lock(&dev->lock);
	unfenced = gnv_queues_unfenced(dev, map->mem->gpu);
	map->given |= !unfenced;
	pthread_mutex_unlock(&dev->lock);
	if (!unfenced)
		return 0;
	return gnv_fail(-EOPNOTSUPP,
			"the memory may be cached by %s, and a view permits writes, so the drive could get old bytes. Use memory "
			"of gpunvme_mem_alloc(), or give views GPUNVME_VIEW_FENCED and call gpunvme_gpu_fence() between kernels "
			"that store data and kernels that write it",
			map->mem->gpu->info.name);
}

bool gnv_mapping_cached(const struct gpunvme_dev *dev, const struct gpunvme_gpu *gpu)
{
	const struct gnv_mapping *map;

	for (map = dev->dma.maps; map && !(map->given && gnv_gpu_same(map->mem->gpu, gpu)); map = map->next_of_dev)
		;
	return map;
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
		ret = gnv_fail(-EINVAL, "the memory is not mapped to this device. Call gpunvme_mem_map() first");
	else if (map->dead)
		ret = gnv_fail(-ESTALE, "the memory was taken away by the device it lies in. Call gpunvme_mem_map() again");
	else
		ret = gnv_multi_gpu_address(map, gpu ? gpu : mem->gpu, &base);
	if (!ret)
		ret = gnv_mem_renew(mem);
	if (!ret)
		ret = give_cached(map);
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
		return gnv_null("mem, dev and dbuf");
	if (gnv_foreign(mem->process) || gnv_foreign(dev->process))
		return -ECHILD;
	return describe((struct gpunvme_mem *)(uintptr_t)mem, dev, NULL, dbuf);
}

GPUNVME_API int gpunvme_mem_dbuf_for(struct gpunvme_mem *mem, struct gpunvme_dev *dev, struct gpunvme_gpu *gpu,
				     struct gpunvme_dbuf *dbuf)
{
	if (!mem || !dev || !gpu || !dbuf)
		return gnv_null("mem, dev, gpu and dbuf");
	if (gnv_foreign(mem->process) || gnv_foreign(dev->process))
		return -ECHILD;
	return describe(mem, dev, gpu, dbuf);
}

/* With the memory's lock held. Return: 0 no device has it any more; -EBUSY one may still write. */
static int unmap_from_all(struct gpunvme_mem *mem, bool ours)
{
	struct gnv_mapping *map, *next;
	int ret = 0, kept;

	for (map = mem->maps; map; map = next) {
		next = map->next_of_mem;
		kept = check_quiet(map, ours);
		if (!kept)
			kept = gnv_mapping_remove(map);
		if (!ret)
			ret = kept;
	}
	if (!ret && mem->leaked)
		return gnv_fail(-EBUSY, "a GPU did not let go of %zu bytes. The GPU keeps them until the process ends", mem->len);
	return ret ? -EBUSY : 0;
}

static int free_memory(struct gpunvme_mem *mem, bool ours)
{
	int ret;

	pthread_mutex_lock(&mem->lock);
	ret = unmap_from_all(mem, ours);
	mem->orphan = ours;
	pthread_mutex_unlock(&mem->lock);
	if (!ret)
		gnv_mem_release(mem);
	return ret;
}

GPUNVME_API int gpunvme_mem_free(struct gpunvme_mem *mem)
{
	if (!mem)
		return 0;
	if (mem->cached)
		return gnv_fail(-EINVAL, "the memory is of gpunvme_mem_get(). Give it back by gpunvme_mem_put()");
	return gnv_foreign(mem->process) ? -ECHILD : free_memory(mem, mem->ours);
}

void gnv_map_free(struct gpunvme_mem *mem)
{
	if (mem)
		free_memory(mem, true);
}

/* Take the memory's lock, too. The order is reversed: a thread that frees it meanwhile has that lock and waits for the device's. */
static struct gnv_mapping *lock_first(struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;
	bool locked;

	for (;;) {
		pthread_mutex_lock(&dev->lock);
		map = dev->dma.maps;
		locked = !map || !pthread_mutex_trylock(&map->mem->lock);
		pthread_mutex_unlock(&dev->lock);
		if (locked)
			return map;
		gnv_sleep_ms(1);
	}
}

int gnv_map_drop_all(struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;
	bool release;
	int ret = 0;

	while (!ret && (map = lock_first(dev))) {
		struct gpunvme_mem *mem = map->mem;

		ret = gnv_mapping_remove(map);
		release = mem->orphan && !mem->maps;
		pthread_mutex_unlock(&mem->lock);
		if (release)
			gnv_mem_release(mem);
	}
	return ret ? -EBUSY : 0;
}
