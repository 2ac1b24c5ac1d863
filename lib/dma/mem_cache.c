/* SPDX-License-Identifier: MIT */
/* Memory of callers, mapped to a device once and found again. */
#include "dma/mem_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dma/mem_cache_end.h"
#include "dma/mem_map.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define PART 65536u /* of memory that a runtime knows, as much is mapped at once */

static void widen(struct gnv_cached *entry, uintptr_t from, uintptr_t to)
{
	entry->from = gnv_min(entry->from, from);
	entry->to = gnv_max(entry->to, to);
}

static bool same_alloc(const struct gnv_alloc *a, const struct gnv_alloc *b)
{
	return a->base == b->base && a->tag == b->tag;
}

static uintptr_t first_page(const struct gnv_alloc *alloc, size_t page)
{
	return alloc->exact ? gnv_align_up(alloc->base, page) : alloc->base & ~(page - 1);
}

static uintptr_t last_page(const struct gnv_alloc *alloc, size_t page)
{
	const uintptr_t end = alloc->base + alloc->len;

	return alloc->exact ? end & ~(page - 1) : gnv_align_up(end, page);
}

/* Are all bytes up to @to in whole pages of the allocation, if others may have the rest of a page? */
static int check_pages(const struct gnv_cached *entry, uintptr_t to)
{
	const struct gnv_alloc *alloc = &entry->alloc;

	if (!alloc->exact)
		return 0;
	if (to > alloc->base + alloc->len)
		return gnv_fail(-ERANGE, "gpunvme_mem_get: the memory leaves its allocation of %zu bytes", alloc->len);
	if (entry->from >= alloc->base && entry->to <= alloc->base + alloc->len)
		return 0;
	return gnv_fail(-EOPNOTSUPP, "gpunvme_mem_get: other allocations of the GPU may have a part of the first or last page. Allocate "
				     "whole pages of the CPU");
}

/*
 * Which bytes to map: of an allocation whole parts, as far as they belong to it, and of other memory whole pages. Ranges that are
 * listed there already become part of it, so that neighbours do not drive each other out.
 */
static void choose_range(struct gnv_cached *entry, uintptr_t from, uintptr_t to)
{
	const struct gnv_alloc *alloc = &entry->alloc;
	struct gnv_mem_cache *cache = entry->cache;
	struct gnv_cached *other;
	uintptr_t at;

	entry->from = from & ~(cache->page - 1);
	entry->to = gnv_align_up(to, cache->page);
	if (alloc->len)
		widen(entry, gnv_max(from & ~(uintptr_t)(PART - 1), first_page(alloc, cache->page)),
		      gnv_min(gnv_align_up(to, PART), last_page(alloc, cache->page)));
	pthread_mutex_lock(&cache->lock);
	for (at = entry->from; (other = gnv_mem_cache_overlap(cache, entry->gpu, at, entry->to)); at = other->to) {
		if (!same_alloc(&other->alloc, alloc))
			continue; /* of one that is not there any more */
		if (!alloc->base && !(entry->kept && other->kept))
			continue; /* its end is not reported: the neighbour may go while this is in use */
		widen(entry, other->from, other->to);
		entry->kept &= other->kept;
	}
	pthread_mutex_unlock(&cache->lock);
}

/* The runtime does not know the caller's bytes, but another allocation of the GPU has the begin of their page: they were freed. */
static bool is_neighbour(const struct gnv_cached *entry, int ret)
{
	return !entry->alloc.len && (ret ? ret == -ERANGE || ret == -EXDEV : entry->mem->local);
}

static int map(struct gnv_cached *entry, struct gpunvme_dev *dev)
{
	int ret = gpunvme_mem_register(entry->gpu, (void *)entry->from, entry->to - entry->from, &entry->mem);

	if (is_neighbour(entry, ret)) {
		if (!ret)
			gnv_mem_release(entry->mem);
		return gnv_fail(-EFAULT, "gpunvme_mem_get: the memory was freed, and its page begins in another allocation of the GPU");
	}
	if (ret)
		return ret;
	ret = gpunvme_mem_map(entry->mem, dev);
	if (!ret)
		ret = gpunvme_mem_dbuf(entry->mem, dev, &entry->dbuf);
	if (ret)
		gnv_map_free(entry->mem); /* no command has seen it */
	return ret;
}

/* With the lock held. */
static void lend(struct gnv_cached *entry, uintptr_t from, struct gpunvme_mem_use *use)
{
	use->mem = entry->mem;
	use->offset = from - entry->from;
	use->dbuf = entry->dbuf;
}

static bool hit(struct gnv_mem_cache *cache, struct gpunvme_gpu *gpu, uintptr_t from, uintptr_t to, struct gpunvme_mem_use *use)
{
	struct gnv_cached *entry;
	bool good;

	pthread_mutex_lock(&cache->lock);
	entry = gnv_mem_cache_find(cache, gpu, from, to);
	good = entry && (!entry->alloc.tag || gpu->ops->mem_same(gpu, (void *)from, &entry->alloc));
	if (good) {
		gnv_mem_cache_use(cache, entry);
		lend(entry, from, use);
		cache->info.hits++;
	} else if (entry) { /* to be replaced */
		cache->info.stale++;
	}
	pthread_mutex_unlock(&cache->lock);
	return good;
}

/* Return: 0. Negative: the entry is not in the table. */
static int list(struct gnv_cached *entry, uintptr_t from, struct gpunvme_mem_use *use)
{
	struct gnv_mem_cache *cache = entry->cache;
	int ret;

	pthread_mutex_lock(&cache->lock);
	ret = gnv_mem_cache_reserve(cache);
	if (!ret && entry->freed)
		ret = gnv_fail(-EFAULT, "the memory was freed while it was being mapped");
	if (!ret) {
		entry->users = 1;
		gnv_mem_cache_list(cache, entry);
		cache->holders++;
		cache->info.misses++;
		lend(entry, from, use);
	}
	pthread_mutex_unlock(&cache->lock);
	return ret;
}

static int fill(struct gnv_cached *entry, struct gpunvme_dev *dev, uintptr_t from, uintptr_t to, struct gpunvme_mem_use *use)
{
	struct gpunvme_gpu *gpu = entry->gpu;
	int ret = gpu->ops->mem_watch(gpu, (void *)from, &entry->alloc);

	entry->kept |= !ret;
	choose_range(entry, from, to);
	ret = check_pages(entry, to);
	if (!ret)
		ret = map(entry, dev);
	if (ret)
		goto unwatch;
	entry->mem->cached = entry;
	gnv_mem_cache_end_overlap(entry->cache, gpu, entry->from, entry->to);
	ret = list(entry, from, use);
	if (!ret)
		return 0;
	entry->mem->cached = NULL;
	gnv_map_free(entry->mem); /* no command has seen it */
unwatch:
	gpu->ops->mem_unwatch(gpu, &entry->alloc);
	return ret;
}

static int make(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, uintptr_t from, uintptr_t to, bool keep,
		struct gpunvme_mem_use *use)
{
	struct gnv_cached *entry = calloc(1, sizeof(*entry));
	int ret;

	if (!entry)
		return gnv_fail(-ENOMEM, "out of memory");
	*entry = (struct gnv_cached){ .gpu = gpu, .cache = dev->dma.cache, .kept = keep, .alloc.freed = gnv_mem_cache_freed };
	ret = fill(entry, dev, from, to, use);
	if (ret)
		free(entry);
	return ret;
}

/* Kept memory may have become cached meanwhile, if a runtime does that. */
static int renew(struct gpunvme_mem_use *use)
{
	struct gpunvme_mem *mem = use->mem;
	int ret;

	if (mem->local || !mem->gpu->ops->host_renew)
		return 0;
	pthread_mutex_lock(&mem->lock);
	ret = gnv_mem_renew(mem);
	pthread_mutex_unlock(&mem->lock);
	if (ret)
		gpunvme_mem_put(use);
	return ret;
}

static int miss(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, uintptr_t from, uintptr_t to, bool keep,
		struct gpunvme_mem_use *use)
{
	struct gnv_mem_cache *cache = dev->dma.cache;
	bool found;
	int ret;

	pthread_mutex_lock(&cache->making);
	pthread_mutex_lock(&cache->lock);
	gnv_mem_cache_end_gone(cache);
	pthread_mutex_unlock(&cache->lock);
	found = hit(cache, gpu, from, to, use);
	ret = found ? 0 : make(gpu, dev, from, to, keep, use);
	pthread_mutex_unlock(&cache->making);
	if (found)
		ret = renew(use);
	gnv_mem_cache_evict(cache);
	return ret;
}

GPUNVME_API int gpunvme_mem_get(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, void *ptr, size_t len, uint32_t flags,
				struct gpunvme_mem_use *use)
{
	uintptr_t from = (uintptr_t)ptr;
	int ret;

	if (!gpu || !dev || !use)
		return gnv_null("gpu, dev and use");
	if (gnv_forked(dev->process) || gnv_forked(gpu->process))
		return -ECHILD;
	if (!ptr || !len || len > PTRDIFF_MAX || !gnv_within(from, len, UINTPTR_MAX - PART))
		return gnv_fail(-EINVAL, "gpunvme_mem_get: %p and %zu bytes are no memory", ptr, len);
	if (flags & ~(uint32_t)GPUNVME_GET_KEEP)
		return gnv_fail(-EINVAL, "gpunvme_mem_get: unknown flags 0x%x. Valid is GPUNVME_GET_KEEP", flags);
	ret = gnv_ctrl_check(&dev->nvme.ctrl);
	if (ret)
		return ret;
	if (hit(dev->dma.cache, gpu, from, from + len, use))
		return renew(use);
	return miss(gpu, dev, from, from + len, flags & GPUNVME_GET_KEEP, use);
}

/* ---- Giving back ---- */

GPUNVME_API int gpunvme_mem_put(struct gpunvme_mem_use *use)
{
	struct gnv_cached *entry;
	struct gnv_mem_cache *cache;
	bool last, over;
	int ret = 0;

	if (!use || !use->mem)
		return 0;
	if (gnv_forked(use->mem->process))
		return -ECHILD;
	entry = use->mem->cached;
	if (!entry)
		return gnv_fail(-EINVAL, "gpunvme_mem_put: the memory is not of gpunvme_mem_get()");
	cache = entry->cache;
	pthread_mutex_lock(&cache->lock);
	last = entry->users == 1 && !(entry->listed && entry->kept);
	if (last && entry->listed)
		gnv_mem_cache_unlist(cache, entry);
	if (!last)
		gnv_mem_cache_unuse(cache, entry);
	over = !last && gnv_mem_cache_victim(cache);
	cache->holders += over; /* the device may be closed, and take it along */
	pthread_mutex_unlock(&cache->lock);
	if (last)
		ret = gnv_mem_cache_retire(cache, entry);
	else if (over)
		gnv_mem_cache_evict_last(cache);
	if (!ret)
		memset(use, 0, sizeof(*use));
	return ret;
}

static bool any_left(struct gnv_mem_cache *cache, uintptr_t from, uintptr_t to)
{
	const struct gnv_cached *entry;

	pthread_mutex_lock(&cache->lock);
	gnv_mem_cache_end_gone(cache);
	for (entry = cache->gone.oldest; entry && !(entry->from < to && entry->to > from); entry = entry->newer)
		;
	pthread_mutex_unlock(&cache->lock);
	return entry;
}

GPUNVME_API int gpunvme_mem_cache_forget(struct gpunvme_dev *dev, void *ptr, size_t len)
{
	uintptr_t from = (uintptr_t)ptr, to = ptr ? from + len : UINTPTR_MAX;

	if (!dev || (ptr && !gnv_within(from, len, UINTPTR_MAX)))
		return gnv_fail(-EINVAL, "gpunvme_mem_cache_forget: no device, or %p and %zu bytes are no memory", ptr, len);
	if (gnv_foreign(dev->process))
		return -ECHILD;
	gnv_mem_cache_end_overlap(dev->dma.cache, NULL, from, to);
	if (!any_left(dev->dma.cache, from, to))
		return 0;
	return gnv_fail(-EBUSY, "some of the memory is in use, or the controller may still write to it. Call gpunvme_mem_put() "
				"for each gpunvme_mem_get(), then recover or destroy queues that have ended");
}

GPUNVME_API int gpunvme_mem_cache_set_limit(struct gpunvme_dev *dev, uint64_t bytes)
{
	int ret = gnv_enter(dev, dev, "dev");

	if (ret)
		return ret;
	pthread_mutex_lock(&dev->dma.cache->lock);
	dev->dma.cache->info.limit = bytes;
	pthread_mutex_unlock(&dev->dma.cache->lock);
	gnv_mem_cache_evict(dev->dma.cache);
	return 0;
}

GPUNVME_API int gpunvme_mem_cache_get_info(struct gpunvme_dev *dev, struct gpunvme_mem_cache_info *info)
{
	struct gpunvme_mem_cache_info now;
	int ret = gnv_enter(dev, dev, "dev");

	if (ret)
		return ret;
	pthread_mutex_lock(&dev->dma.cache->lock);
	gnv_mem_cache_describe(dev->dma.cache, &now);
	pthread_mutex_unlock(&dev->dma.cache->lock);
	return gnv_info_copy(info, &now, gpunvme_mem_cache_info);
}

/* ---- The end of the device ---- */

void gnv_mem_cache_close(struct gnv_mem_cache *cache)
{
	pthread_mutex_lock(&cache->lock);
	cache->closing = true;
	pthread_mutex_unlock(&cache->lock);
}

void gnv_mem_cache_end(struct gnv_mem_cache *cache)
{
	gnv_mem_cache_end_overlap(cache, NULL, 0, UINTPTR_MAX);
	pthread_mutex_lock(&cache->lock);
	gnv_mem_cache_end_gone(cache);
	cache->holders--;
	gnv_mem_cache_unlock(cache);
}
