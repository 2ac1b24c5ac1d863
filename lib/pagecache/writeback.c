/* SPDX-License-Identifier: MIT */
/*
 * What kernels have changed in a page cache, when none of them runs: the host writes it, or forgets it. Words are those of
 * device_writable.h; the lanes' memory is read and written by copies, and a queue of this thread's own writes.
 */
#include <errno.h>
#include <gpunvme/copy.h>
#include <gpunvme/mem.h>
#include <gpunvme/qp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "file/reader.h"
#include "pagecache/pagecache.h"
#include "queue/map.h"
#include "util/bits.h"
#include "util/process.h"

struct changed {
	struct gpunvme_pagecache *cache;
	uint32_t frame;
	uint64_t page;
	uint64_t parts;
	bool kept; /* the device may have a write of it that was given up */
};

/* As gnvd_kept_at() and gnvd_parts_at(). */
static uint64_t kept_at(const struct gpunvme_pagecache *cache, uint32_t frame)
{
	return cache->view.frame + 8ull * cache->view.frames + 8ull * frame;
}

static uint64_t parts_at(const struct gpunvme_pagecache *cache, uint32_t frame)
{
	return kept_at(cache, frame) + 8ull * cache->view.frames;
}

/* No part lies behind the end of its page, or of the window. What a kernel that runs has changed meanwhile may look otherwise. */
static bool lies_within(const struct changed *c)
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

/* Frames from `first` on. */
static int each_of_some(struct gpunvme_pagecache *cache, uint32_t first, uint32_t n, int (*fn)(void *ctx, const struct changed *c),
			void *ctx)
{
	uint64_t owner[GNV_PAGECACHE_WORDS], kept[GNV_PAGECACHE_WORDS], parts[GNV_PAGECACHE_WORDS];
	const size_t len = n * sizeof(*parts);
	int ret = cache->gpu->ops->peek(cache->gpu, parts, parts_at(cache, first), len), err;
	uint32_t i;

	ret = ret ? ret : cache->gpu->ops->peek(cache->gpu, kept, kept_at(cache, first), len);
	ret = ret ? ret : cache->gpu->ops->peek(cache->gpu, owner, cache->view.frame + 8ull * first, len);
	if (ret)
		return gnv_fail(ret, "the lanes' memory, which has the words of the cache, cannot be read");
	for (i = 0; i < n; i++) {
		const struct changed c = { cache, first + i, owner[i] - 1, parts[i], kept[i] != 0 };

		err = c.parts ? fn(ctx, &c) : 0;
		ret = ret ? ret : err;
	}
	return ret;
}

/* Each page that was changed, also when some fail. Return: the first failure. */
static int each_changed(struct gpunvme_pagecache *cache, int (*fn)(void *ctx, const struct changed *c), void *ctx)
{
	uint64_t i;
	int ret = 0, err;

	for (i = 0; i < cache->view.frames; i += GNV_PAGECACHE_WORDS) {
		err = each_of_some(cache, (uint32_t)i, (uint32_t)gnv_min(cache->view.frames - i, GNV_PAGECACHE_WORDS), fn, ctx);
		ret = ret ? ret : err;
	}
	return ret;
}

static int count_page(void *ctx, const struct changed *c)
{
	uint64_t *count = ctx;

	*count += lies_within(c);
	return 0;
}

int gnv_pagecache_changed(struct gpunvme_pagecache *cache, uint64_t *changed)
{
	*changed = 0;
	return gnv_pagecache_writable(cache) ? each_changed(cache, count_page, changed) : 0;
}

static int check_cache(const struct gpunvme_pagecache *cache, const char *who)
{
	if (!cache)
		return gnv_fail(-EINVAL, "%s: cache must not be NULL", who);
	if (gnv_foreign(cache->process))
		return -ECHILD;
	if (!gnv_pagecache_writable(cache))
		return gnv_fail(-EINVAL, "%s: kernels cannot change this cache; GPUNVME_PAGECACHE_WRITE_BACK makes one that they can", who);
	return 0;
}

static int peek(const struct changed *c, uint64_t at, void *to, size_t len)
{
	int ret = c->cache->gpu->ops->peek(c->cache->gpu, to, at, len);

	return ret ? gnv_fail(ret, "page %llu, or its words, cannot be read from the lanes' memory", (unsigned long long)c->page) : 0;
}

static int poke(const struct changed *c, uint64_t at, uint64_t word)
{
	int ret = c->cache->gpu->ops->poke(c->cache->gpu, at, &word, sizeof(word));

	return ret ? gnv_fail(ret, "the words of page %llu cannot be written to the lanes' memory", (unsigned long long)c->page) : 0;
}

/* Of a page as the lanes' calls leave it: it has the frame, and a reference for its changes. */
static int get_word(const struct changed *c, uint64_t *word)
{
	uint64_t w = 0;
	int ret = lies_within(c) ? peek(c, c->cache->view.table + 8 * c->page, &w, sizeof(w)) : 0;

	if (ret)
		return ret;
	if ((w & GPUNVME_PAGE_STATE) < GPUNVME_PAGE_VALID || !(w & GPUNVME_PAGE_REFS) || w >> GPUNVME_PAGE_FRAME_SHIFT != c->frame)
		return gnv_fail(-EIO, "a kernel has written over the words of the cache");
	*word = w;
	return 0;
}

/* One more, or one less, of what the state counts. */
static int count_on(const struct changed *c, size_t field, uint64_t add)
{
	uint64_t n;
	int ret = peek(c, c->cache->view.state + field, &n, sizeof(n));

	return ret ? ret : poke(c, c->cache->view.state + field, n + add);
}

/* The page has no changes any more, and this word. */
static int forget(const struct changed *c, uint64_t word)
{
	int ret = poke(c, parts_at(c->cache, c->frame), 0);

	ret = ret ? ret : poke(c, c->cache->view.table + 8 * c->page, word);
	return ret ? ret : count_on(c, offsetof(struct gpunvme_pagecache_state, changed), ~0ull);
}

/* ---- Writing ---- */

struct flush {
	struct gnv_reader by; /* the queue, its lanes and a buffer */
	struct gpunvme_dq dq;
	int given_up; /* how a write ended that the device may still have, with the buffer; 0: none */
	char cause[512]; /* of the first failure */
};

/* A page, from where lanes have it. */
static int fetch_page(const struct changed *c, void *to)
{
	struct gpunvme_pagecache *cache = c->cache;
	const uint64_t at = (uint64_t)c->frame << cache->view.page_shift;
	const size_t len = (size_t)1 << cache->view.page_shift;
	const char *cpu = gpunvme_mem_ptr(cache->mem);
	struct gpunvme_dbuf buf;
	int ret;

	if (cache->view.local)
		return peek(c, cache->view.local + at, to, len);
	if (cpu) {
		memcpy(to, cpu + at, len);
		return 0;
	}
	ret = gnv_source_dbuf(&cache->source, cache->mem, &buf);
	return ret ? ret : peek(c, buf.base + at, to, len);
}

/* From its first to its last changed block: what lies in the buffer, whose first block is the page's. */
static int write_blocks(struct flush *flush, const struct changed *c)
{
	const struct gpunvme_dpages *view = &c->cache->view;
	const uint32_t all = view->page_shift - view->lba_shift, shift = (uint32_t)gnv_max(all, 6) - 6;
	const uint64_t begin = c->page << all, first = (uint64_t)__builtin_ctzll(c->parts) << shift;
	const uint64_t end = gnv_min((uint64_t)(64 - __builtin_clzll(c->parts)) << shift, view->lba_count - begin);
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;

	copy.flags = GPUNVME_COPY_WRITE;
	copy.lanes = 1;
	copy.lba = view->lba_first + begin + first;
	copy.nblocks = end - first;
	memmove(gpunvme_mem_ptr(flush->by.mem), (char *)gpunvme_mem_ptr(flush->by.mem) + (first << view->lba_shift),
		(size_t)(copy.nblocks << view->lba_shift));
	return gpunvme_copy_run(flush->by.gpu, &flush->dq, 1, &flush->by.dbuf, &copy);
}

/* Return: @ret, whose sentence is kept if it is the first failure: others follow. */
static int keep_cause(struct flush *flush, int ret)
{
	if (ret && !flush->cause[0])
		snprintf(flush->cause, sizeof(flush->cause), "%s", gpunvme_errmsg());
	return ret;
}

/* Return: @ret, of a write. One that was given up may come later than the next, so it has to be over first. */
static int keep_page(struct flush *flush, const struct changed *c, int ret)
{
	int err;

	if (ret != -ETIMEDOUT && ret != -ECANCELED && ret != -EPROTO && ret != -ENODEV) /* gnvd_given_up() */
		return ret;
	flush->given_up = ret;
	err = poke(c, kept_at(c->cache, c->frame), GPUNVME_FRAME_LOST);
	err = err ? err : count_on(c, offsetof(struct gpunvme_pagecache_state, lost), 1);
	return err ? err : ret;
}

/* Nobody has the page but its changes. */
static int write_page(struct flush *flush, const struct changed *c)
{
	uint64_t word = 0;
	int ret = get_word(c, &word);

	if (ret)
		return ret;
	if (c->kept)
		return gnv_fail(-EBUSY, "the device may still have a write of page %llu that was given up: recover the queue by "
				"gpunvme_qp_recover(), then flush again", (unsigned long long)c->page);
	if ((word & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_WRITING)
		return gnv_fail(-EBUSY, "a kernel writes page %llu: end it, then flush again; what one that was killed leaves so only "
				"gpunvme_pagecache_discard() ends", (unsigned long long)c->page);
	if (flush->given_up) /* what comes into the buffer now, the old write may bring to the blocks of its own page */
		return gnv_fail(flush->given_up, "page %llu of the cache was not tried", (unsigned long long)c->page);
	ret = fetch_page(c, gpunvme_mem_ptr(flush->by.mem));
	if (ret)
		return ret;
	ret = keep_page(flush, c, write_blocks(flush, c));
	if (ret)
		return gnv_fail(ret, "page %llu of the cache cannot be written: %s", (unsigned long long)c->page, gpunvme_strerror(ret));
	return forget(c, word - GPUNVME_PAGE_REF);
}

static int flush_page(void *ctx, const struct changed *c)
{
	return keep_cause(ctx, write_page(ctx, c));
}

static int flush_all(struct gpunvme_pagecache *cache, struct flush *flush)
{
	const struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, cache->source.nsid, 0, 0 };
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	int ret = gpunvme_qp_view(flush->by.qp, &view, &flush->dq), err;

	if (!ret && flush->dq.lba_shift != cache->view.lba_shift)
		ret = gnv_fail(-EXDEV, "%s has other blocks than when the cache was made: what kernels have changed has no place there any "
			       "more; gpunvme_pagecache_discard() forgets it", cache->source.name);
	if (ret)
		return keep_cause(flush, ret);
	ret = keep_cause(flush, each_changed(cache, flush_page, flush));
	copy.flags = GPUNVME_COPY_FLUSH;
	err = keep_cause(flush, gpunvme_copy_run(flush->by.gpu, &flush->dq, 1, &flush->by.dbuf, &copy));
	return ret ? ret : err;
}

GPUNVME_API int gpunvme_pagecache_flush(struct gpunvme_pagecache *cache)
{
	struct flush flush = { .cause = "" };
	int ret = check_cache(cache, "gpunvme_pagecache_flush");

	if (ret)
		return ret;
	if (!gnv_map_has(cache->mem, cache->source.dev[0]))
		return gnv_fail(-ENODEV, "the device of the cache was closed: what kernels have changed can only be forgotten, by "
				"gpunvme_pagecache_discard()");
	pthread_mutex_lock(&cache->lock);
	gnv_pagecache_give_back(cache);
	ret = gnv_reader_open(cache->source.dev[0], cache->source.nsid, &flush.by);
	if (!ret) {
		ret = flush_all(cache, &flush);
		gnv_reader_close(&flush.by);
		if (ret)
			gnv_fail(ret, "%s", flush.cause);
	}
	pthread_mutex_unlock(&cache->lock);
	return ret;
}

/* ---- Forgetting ---- */

/* The page leaves; its frame is free, or lost if the device may have it, and waits for gnv_pagecache_give_back(). */
static int drop_page(const struct changed *c, uint64_t word, bool lost)
{
	const uint64_t changes = (word + (1ull << GPUNVME_PAGE_CHANGES_SHIFT)) & GPUNVME_PAGE_CHANGES;
	int ret = poke(c, c->cache->view.frame + 8ull * c->frame, lost ? GPUNVME_FRAME_LOST : 0);

	if (!ret && c->kept)
		ret = poke(c, kept_at(c->cache, c->frame), 0);
	else if (!ret && lost)
		ret = count_on(c, offsetof(struct gpunvme_pagecache_state, lost), 1);
	return ret ? ret : forget(c, changes | ((word & GPUNVME_PAGE_REFS) - GPUNVME_PAGE_REF));
}

/*
 * A page that a lane has stays as that sees it. WRITING is what was left by a kernel that ended in the middle: nobody has it.
 * An old write that the device may still have would come over what is written once the page is forgotten, so it is to end first.
 */
static int discard_page(void *ctx, const struct changed *c)
{
	const bool *over = ctx;
	uint64_t word = 0;
	bool writing;
	int ret = get_word(c, &word);

	if (ret)
		return ret;
	writing = (word & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_WRITING;
	if ((c->kept || writing) && !*over)
		return gnv_fail(-EBUSY, "the device may still have a write of page %llu: recover the queue by gpunvme_qp_recover(), or close "
				"the device, then discard again", (unsigned long long)c->page);
	if (writing || (word & GPUNVME_PAGE_REFS) == GPUNVME_PAGE_REF)
		return drop_page(c, word, writing || c->kept);
	return forget(c, word - GPUNVME_PAGE_REF);
}

GPUNVME_API int gpunvme_pagecache_discard(struct gpunvme_pagecache *cache)
{
	int ret = check_cache(cache, "gpunvme_pagecache_discard");
	bool over = true; /* of a device that was closed all is */

	if (ret)
		return ret;
	pthread_mutex_lock(&cache->lock);
	if (gnv_map_has(cache->mem, cache->source.dev[0])) {
		gnv_pagecache_give_back(cache);
		over = gnv_source_quiet(&cache->source);
	}
	ret = each_changed(cache, discard_page, &over);
	pthread_mutex_unlock(&cache->lock);
	return ret;
}
