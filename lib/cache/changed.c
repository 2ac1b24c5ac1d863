/* SPDX-License-Identifier: MIT */
/* Pages of a page cache that kernels have changed, by its words. These are read and written by copies of the threads' memory. */
#include "cache/changed.h"

#include <errno.h>
#include <stddef.h>

#include "util/bits.h"
#include "util/process.h"

/* As gnvd_kept_at() and gnvd_parts_at(). */
uint64_t gnv_changed_kept_at(const struct gpunvme_cache *cache, uint32_t frame)
{
	return cache->view.frame + 8ull * cache->view.frames + 8ull * frame;
}

static uint64_t parts_at(const struct gpunvme_cache *cache, uint32_t frame)
{
	return gnv_changed_kept_at(cache, frame) + 8ull * cache->view.frames;
}

/* No part lies beyond the end of its page, or of the window. A running kernel may have changed the words: they are checked. */
static bool lies_within(const struct gnv_changed *c)
{
	const struct gpunvme_dpages *view = &c->cache->view;
	const uint32_t all = view->page_shift - view->lba_shift, shift = (uint32_t)gnv_max(all, 6) - 6;
	uint64_t blocks, parts;

	if (c->page >= c->cache->pages)
		return false;
	blocks = gnv_min(1ull << all, view->lba_count - (c->page << all));
	parts = (blocks + (1ull << shift) - 1) >> shift;
	return parts >= 64 || !(c->parts >> parts);
}

/* Frames from `first` on. Where none has changes there is no more to be read, unless clean ones are asked for. */
static int each_of_some(struct gpunvme_cache *cache, uint32_t first, uint32_t n, bool clean, gnv_changed_fn *fn, void *ctx)
{
	uint64_t owner[GNV_CACHE_WORDS], kept[GNV_CACHE_WORDS], parts[GNV_CACHE_WORDS], any = 0;
	const size_t len = n * sizeof(*parts);
	int ret = cache->gpu->ops->peek(cache->gpu, parts, parts_at(cache, first), len), err;
	uint32_t i;

	for (i = 0; i < n && !ret; i++)
		any |= parts[i];
	if (!ret && !any && !clean)
		return 0;
	if (!ret)
		ret = cache->gpu->ops->peek(cache->gpu, kept, gnv_changed_kept_at(cache, first), len);
	if (!ret)
		ret = cache->gpu->ops->peek(cache->gpu, owner, cache->view.frame + 8ull * first, len);
	if (ret)
		return gnv_fail(ret, "the threads' memory, which has the words of the cache, cannot be read");
	for (i = 0; i < n; i++) {
		const struct gnv_changed c = { cache, first + i, owner[i] - 1, parts[i], kept[i] != 0 };

		err = c.parts || clean ? fn(ctx, &c) : 0;
		ret = ret ? ret : err;
	}
	return ret;
}

int gnv_changed_each(struct gpunvme_cache *cache, bool clean, gnv_changed_fn *fn, void *ctx)
{
	uint64_t i;
	int ret = 0, err;

	for (i = 0; i < cache->view.frames; i += GNV_CACHE_WORDS) {
		err = each_of_some(cache, (uint32_t)i, (uint32_t)gnv_min(cache->view.frames - i, GNV_CACHE_WORDS), clean, fn, ctx);
		ret = ret ? ret : err;
	}
	return ret;
}

static int count_page(void *ctx, const struct gnv_changed *c)
{
	uint64_t *count = ctx;

	*count += lies_within(c);
	return 0;
}

int gnv_cache_changed(struct gpunvme_cache *cache, uint64_t *changed)
{
	*changed = 0;
	return gnv_cache_writable(cache) ? gnv_changed_each(cache, false, count_page, changed) : 0;
}

int gnv_changed_check(const struct gpunvme_cache *cache, const char *who)
{
	if (!cache)
		return gnv_fail(-EINVAL, "%s: cache must not be NULL", who);
	if (gnv_foreign(cache->process))
		return -ECHILD;
	if (!gnv_cache_writable(cache))
		return gnv_fail(-EINVAL, "%s: kernels cannot change this cache. Create it with GPUNVME_CACHE_WRITE_BACK", who);
	return 0;
}

int gnv_changed_peek(const struct gnv_changed *c, uint64_t at, void *to, size_t len)
{
	int ret = c->cache->gpu->ops->peek(c->cache->gpu, to, at, len);

	return ret ? gnv_fail(ret, "page %llu, or its words, cannot be read from the threads' memory",
			      (unsigned long long)c->page) : 0;
}

int gnv_changed_poke(const struct gnv_changed *c, uint64_t at, uint64_t word)
{
	int ret = c->cache->gpu->ops->poke(c->cache->gpu, at, &word, sizeof(word));

	return ret ? gnv_fail(ret, "the words of page %llu cannot be written to the threads' memory",
			      (unsigned long long)c->page) : 0;
}

int gnv_changed_word(const struct gnv_changed *c, uint64_t *word)
{
	uint64_t w = 0;
	int ret = lies_within(c) ? gnv_changed_peek(c, c->cache->view.table + 8 * c->page, &w, sizeof(w)) : 0;

	if (ret)
		return ret;
	if ((w & GPUNVME_PAGE_STATE) < GPUNVME_PAGE_VALID || !(w & GPUNVME_PAGE_REFS) || w >> GPUNVME_PAGE_FRAME_SHIFT != c->frame)
		return gnv_fail(-EIO, "a kernel has written over the words of the cache");
	*word = w;
	return 0;
}

/* Add to a counter of the state: 1 or -1. */
static int count_on(const struct gnv_changed *c, size_t field, uint64_t add)
{
	uint64_t n;
	int ret = gnv_changed_peek(c, c->cache->view.state + field, &n, sizeof(n));

	if (ret)
		return ret;
	return gnv_changed_poke(c, c->cache->view.state + field, n + add);
}

int gnv_changed_lose(const struct gnv_changed *c)
{
	return count_on(c, offsetof(struct gpunvme_cache_state, lost), 1);
}

int gnv_changed_forget(const struct gnv_changed *c, uint64_t word)
{
	int ret = gnv_changed_poke(c, parts_at(c->cache, c->frame), 0);

	if (!ret)
		ret = gnv_changed_poke(c, c->cache->view.table + 8 * c->page, word);
	if (ret)
		return ret;
	return count_on(c, offsetof(struct gpunvme_cache_state, changed), ~0ull);
}
