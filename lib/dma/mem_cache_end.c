/* SPDX-License-Identifier: MIT */
/*
 * Locks, in the order they are taken: making, that of the runtime that reports freed memory, the cache's, a memory's. So an entry
 * begins and ends to be watched without the cache's lock.
 */
#include "dma/mem_cache_end.h"

#include <stdlib.h>

#include "util/bits.h"

/* End an entry whose memory is gone without a report. With the lock held. Return: 0; -EBUSY a device may still write there. */
static int end(struct gnv_mem_cache *cache, struct gnv_cached *entry)
{
	int ret;

	entry->mem->cached = NULL;
	ret = gpunvme_mem_free(entry->mem);
	if (ret) {
		entry->mem->cached = entry;
		entry->ending = false;
		return ret;
	}
	gnv_mem_cache_drop(cache, entry);
	free(entry);
	return 0;
}

void gnv_mem_cache_unlock(struct gnv_mem_cache *cache)
{
	const bool last = !cache->holders;

	pthread_mutex_unlock(&cache->lock);
	if (last)
		gnv_mem_cache_destroy(cache);
}

int gnv_mem_cache_retire(struct gnv_mem_cache *cache, struct gnv_cached *entry)
{
	int ret;

	entry->gpu->ops->mem_unwatch(entry->gpu, &entry->alloc);
	pthread_mutex_lock(&cache->lock);
	ret = end(cache, entry);
	gnv_mem_cache_unlock(cache);
	return ret;
}

/* With the lock held. Return: it is the caller's to end. */
static bool take(struct gnv_mem_cache *cache, struct gnv_cached *entry)
{
	gnv_mem_cache_unlist(cache, entry);
	entry->ending = !entry->users;
	return entry->ending;
}

void gnv_mem_cache_freed(struct gnv_alloc *alloc)
{
	struct gnv_cached *entry = gnv_container_of(alloc, struct gnv_cached, alloc);
	struct gnv_mem_cache *cache = entry->cache;

	pthread_mutex_lock(&cache->lock);
	entry->freed = true;
	if (entry->listed) { /* else somebody ends it, or its last user will */
		cache->info.stale++;
		if (take(cache, entry))
			entry->ending = false;
		if (!entry->users && !cache->closing)
			end(cache, entry);
	}
	pthread_mutex_unlock(&cache->lock);
}

void gnv_mem_cache_end_gone(struct gnv_mem_cache *cache)
{
	struct gnv_cached *entry, *next;

	for (entry = cache->gone.oldest; entry; entry = next) {
		next = entry->newer;
		if (!entry->users && !entry->ending)
			end(cache, entry);
	}
}

void gnv_mem_cache_end_overlap(struct gnv_mem_cache *cache, const struct gpunvme_gpu *gpu, uintptr_t from, uintptr_t to)
{
	struct gnv_cached *entry;
	bool ours;

	do {
		pthread_mutex_lock(&cache->lock);
		entry = gnv_mem_cache_overlap(cache, gpu, from, to);
		ours = entry && take(cache, entry);
		pthread_mutex_unlock(&cache->lock);
		if (ours)
			gnv_mem_cache_retire(cache, entry);
	} while (entry);
}

void gnv_mem_cache_evict(struct gnv_mem_cache *cache)
{
	struct gnv_cached *entry;

	do {
		pthread_mutex_lock(&cache->lock);
		entry = gnv_mem_cache_victim(cache);
		if (entry) {
			take(cache, entry);
			cache->info.evictions++;
		}
		pthread_mutex_unlock(&cache->lock);
		if (entry)
			gnv_mem_cache_retire(cache, entry); /* or later */
	} while (entry);
}

void gnv_mem_cache_evict_last(struct gnv_mem_cache *cache)
{
	gnv_mem_cache_evict(cache);
	pthread_mutex_lock(&cache->lock);
	cache->holders--;
	gnv_mem_cache_unlock(cache);
}
