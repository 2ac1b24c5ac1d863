/* SPDX-License-Identifier: MIT */
/* A page cache, for the files of this room. */
#ifndef GNV_CACHE_CACHE_H
#define GNV_CACHE_CACHE_H

#include <gpunvme/cache.h>
#include <pthread.h>

#include "gpu/gpu.h"
#include "cache/source.h"

#define GNV_CACHE_WORDS 512u /* copied at once: of a GPU's memory that takes as long as one */

struct gpunvme_cache {
	uint64_t process;
	struct gpunvme_gpu *gpu; /* a counted reference */
	struct gnv_source source;
	struct gpunvme_mem *mem; /* the frames */
	struct gnv_gpu_range local; /* where threads read them, if not there */
	size_t frames_len;
	struct gnv_gpu_range words; /* state, words of the pages, words of the frames */
	size_t words_len;
	uint64_t pages;
	struct gpunvme_dpages view; /* without buf */
	pthread_mutex_t changing; /* held before the other for as long as a flush or a discard takes: one at a time */
	pthread_mutex_t lock; /* protects all below, and never for as long as a device takes */
	uint64_t given_back;  /* frames that were lost */
};

/* May kernels change its pages? */
static inline bool gnv_cache_writable(const struct gpunvme_cache *cache)
{
	return cache->view.flags & GPUNVME_DPAGES_WRITABLE;
}

/*
 * Pages that kernels have changed and that are not on the drive. 0 for a cache that they cannot change. Without a lock: a change
 * meanwhile may be counted or not. Return: 0; as peek.
 */
int gnv_cache_changed(struct gpunvme_cache *cache, uint64_t *changed);

/* Frames that were lost are free again, if no device has a command. With the lock held. */
void gnv_cache_give_back(struct gpunvme_cache *cache);

#endif
