/* SPDX-License-Identifier: MIT */
/* How entries of a cache of mapped memory end: when their memory is freed, at the limit, when something overlaps. */
#ifndef GNV_DMA_MEM_CACHE_END_H
#define GNV_DMA_MEM_CACHE_END_H

#include "dma/mem_cache_table.h"

/* Release the cache's lock. The last holder destroys the cache. */
void gnv_mem_cache_unlock(struct gnv_mem_cache *cache);

/* End an entry that the caller has taken out of the list or used last. Return: 0; -EBUSY a device may still write there. */
int gnv_mem_cache_retire(struct gnv_mem_cache *cache, struct gnv_cached *entry);

/*
 * The `freed` callback of an entry: its memory is about to be another's, so no device is to reach it. A device that
 * closes ends the mapping itself.
 */
void gnv_mem_cache_freed(struct gnv_alloc *alloc);

/* End entries whose memory is gone and that could not be ended before. The caller holds the cache's lock. */
void gnv_mem_cache_end_gone(struct gnv_mem_cache *cache);

/* Unlist every entry that overlaps, and end it unless it is in use. @gpu: NULL means every GPU. */
void gnv_mem_cache_end_overlap(struct gnv_mem_cache *cache, const struct gpunvme_gpu *gpu, uintptr_t from, uintptr_t to);

/* Evict idle entries until the cache is within its limit. */
void gnv_mem_cache_evict(struct gnv_mem_cache *cache);

/* The same, after which the caller no longer holds the cache. */
void gnv_mem_cache_evict_last(struct gnv_mem_cache *cache);

#endif
