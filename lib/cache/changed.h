/* SPDX-License-Identifier: MIT */
/* Pages that kernels have changed, to be written or forgotten: words as device/changes.h has them. */
#ifndef GNV_CACHE_CHANGED_H
#define GNV_CACHE_CHANGED_H

#include "cache/cache.h"

/* The words of a frame. */
struct gnv_changed {
	struct gpunvme_cache *cache;
	uint32_t frame;
	uint64_t page;
	uint64_t parts;
	bool kept; /* the device may have a write of it that was given up */
};

typedef int gnv_changed_fn(void *ctx, const struct gnv_changed *c);

/*
 * gnv_changed_each() - call a function for each page that was changed, also when some fail
 * @clean: also for frames whose page has no changes, or that have none
 * Return: the first failure; as peek.
 */
int gnv_changed_each(struct gpunvme_cache *cache, bool clean, gnv_changed_fn *fn, void *ctx);

/* Is it a cache whose pages kernels change, and this process's? Return: 0, -EINVAL, -ECHILD. */
int gnv_changed_check(const struct gpunvme_cache *cache, const char *who);

/* Copies from and to the threads' memory. Return: 0; the error, with its message. */
int gnv_changed_peek(const struct gnv_changed *c, uint64_t at, void *to, size_t len);
int gnv_changed_poke(const struct gnv_changed *c, uint64_t at, uint64_t word);

/* Of a page as the threads' calls leave it: it has the frame, and a reference for its changes. Return: 0, -EIO. */
int gnv_changed_word(const struct gnv_changed *c, uint64_t *word);

/* Where a frame has GPUNVME_FRAME_LOST while it is kept. */
uint64_t gnv_changed_kept_at(const struct gpunvme_cache *cache, uint32_t frame);

/* One more frame that is lost, or kept. Return: as peek and poke. */
int gnv_changed_lose(const struct gnv_changed *c);

/* The page has no changes any more, and this word. Return: as peek and poke. */
int gnv_changed_forget(const struct gnv_changed *c, uint64_t word);

#endif
