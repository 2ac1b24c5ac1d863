/* SPDX-License-Identifier: MIT */
/*
 * Pages of a page cache that kernels have changed, when none of them runs: the host writes them, by the queue that each device
 * keeps for the library, from copies of the threads' memory.
 */
#include <errno.h>
#include <gpunvme/run.h>
#include <gpunvme/mem.h>
#include <stdlib.h>
#include <string.h>

#include "cache/changed.h"
#include "queue/internal.h"
#include "util/bits.h"

struct flush {
	struct gpunvme_dev *const *dev;
	struct gnv_internal_ns *ns; /* of each device */
	uint32_t devs;		    /* that were asked */
	char *page;
	int given_up; /* the error of a write that the device may still have, with the buffer. 0: none */
	struct gnv_message cause; /* of the first failure */
};

/* A page, from where the threads of kernels have it. Beyond the end of a file are zeroes. */
static int fetch_page(const struct gnv_changed *c, void *to)
{
	struct gpunvme_cache *cache = c->cache;
	const uint64_t at = (uint64_t)c->frame << cache->view.page_shift;
	const size_t len = (size_t)1 << cache->view.page_shift;
	const uint64_t left = cache->source.bytes - (cache->view.lba_first << cache->view.lba_shift) - (c->page << cache->view.page_shift);
	const char *cpu = gpunvme_mem_ptr(cache->mem);
	struct gpunvme_dbuf buf;
	int ret = 0;

	if (cache->view.local) {
		ret = gnv_changed_peek(c, cache->view.local + at, to, len);
	} else if (cpu) {
		memcpy(to, cpu + at, len);
	} else {
		ret = gnv_source_dbuf(&cache->source, cache->mem, &buf);
		if (!ret)
			ret = gnv_changed_peek(c, buf.base + at, to, len);
	}
	if (!ret && left < len)
		memset((char *)to + left, 0, len - (size_t)left);
	return ret;
}

/* One transfer of device @i: the first @len bytes of @from, if there are any. */
static int run(struct flush *flush, uint32_t i, struct gpunvme_copy *copy, const char *from, size_t len)
{
	struct gnv_internal q;
	int ret = gnv_internal_begin(flush->dev[i], &flush->ns[i], true, &q);

	if (ret)
		return ret;
	if (len)
		memcpy(q.buf, from, len);
	ret = gpunvme_run_copy(q.gpu, &q.dq, 1, &q.dbuf, copy);
	gnv_internal_end(flush->dev[i]);
	return ret;
}

static int write_part(struct flush *flush, const struct gnv_source_part *part, const char *from, uint32_t shift)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;

	copy.flags = GPUNVME_COPY_WRITE;
	copy.threads = 1;
	copy.lba = part->lba;
	copy.nblocks = part->nblocks;
	return run(flush, part->dev, &copy, from, (size_t)(part->nblocks << shift));
}

/* From its first to its last changed block, as far as there are blocks on the drive. */
static int write_blocks(struct flush *flush, const struct gnv_changed *c)
{
	const struct gpunvme_dpages *view = &c->cache->view;
	const uint32_t all = view->page_shift - view->lba_shift, shift = (uint32_t)gnv_max(all, 6) - 6;
	const uint64_t begin = c->page << all;
	const uint64_t end = gnv_min((uint64_t)(64 - __builtin_clzll(c->parts)) << shift, view->lba_count - begin);
	uint64_t at = (uint64_t)__builtin_ctzll(c->parts) << shift;
	struct gnv_source_part part;
	int ret = 0;

	for (; at < end && !ret; at += part.nblocks) {
		gnv_source_part(&c->cache->source, view->lba_first + begin + at, end - at, &part);
		if (!part.hole)
			ret = write_part(flush, &part, flush->page + (at << view->lba_shift), view->lba_shift);
	}
	return ret;
}

/* Return: @ret. Its message is kept if it is the first failure: others follow. */
static int keep_cause(struct flush *flush, int ret)
{
	if (ret && !flush->cause.text[0])
		flush->cause = gnv_message();
	return ret;
}

/* Return: @ret, of a write. One that was given up may come later than the next, so it has to be over first. */
static int keep_page(struct flush *flush, const struct gnv_changed *c, int ret)
{
	int err;

	if (ret != -ETIMEDOUT && ret != -ECANCELED && ret != -EPROTO && ret != -ENODEV) /* gnvd_given_up() */
		return ret;
	flush->given_up = ret;
	err = gnv_changed_poke(c, gnv_changed_kept_at(c->cache, c->frame), GPUNVME_FRAME_LOST);
	err = err ? err : gnv_changed_lose(c);
	return err ? err : ret;
}

/* Only its changes have the page. */
static int write_page(struct flush *flush, const struct gnv_changed *c)
{
	uint64_t word = 0;
	int ret = gnv_changed_word(c, &word);

	if (ret)
		return ret;
	if (c->kept)
		return gnv_fail(-EBUSY, "the device may still have a write of page %llu that was given up: recover the queue by "
				"gpunvme_queue_recover(), then flush again", (unsigned long long)c->page);
	if ((word & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_WRITING)
		return gnv_fail(-EBUSY, "a kernel writes page %llu: end it, then flush again. After a killed kernel only "
				"gpunvme_cache_discard() releases it", (unsigned long long)c->page);
	if (flush->given_up) /* the old write may bring new bytes in the buffer to the blocks of its own page */
		return gnv_fail(flush->given_up, "page %llu of the cache was not tried", (unsigned long long)c->page);
	ret = fetch_page(c, flush->page);
	if (ret)
		return ret;
	ret = keep_page(flush, c, write_blocks(flush, c));
	if (ret)
		return gnv_fail(ret, "page %llu of the cache cannot be written: %s", (unsigned long long)c->page, gpunvme_strerror(ret));
	return gnv_changed_forget(c, word - GPUNVME_PAGE_REF);
}

static int flush_page(void *ctx, const struct gnv_changed *c)
{
	return keep_cause(ctx, write_page(ctx, c));
}

/* Make all durable on each device, also the writes of kernels. */
static int flush_devices(struct flush *flush)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	int ret = 0, err;
	uint32_t i;

	copy.flags = GPUNVME_COPY_FLUSH;
	for (i = 0; i < flush->devs; i++) {
		err = keep_cause(flush, run(flush, i, &copy, NULL, 0));
		ret = ret ? ret : err;
	}
	return ret;
}

static int ask_device(struct gpunvme_cache *cache, struct flush *flush, uint32_t i)
{
	int ret;

	ret = gnv_internal_ask(flush->dev[i], cache->source.nsid, &flush->ns[i]);
	if (ret)
		return ret;
	flush->devs++;
	if (flush->ns[i].info.lba_size != 1u << cache->view.lba_shift)
		return gnv_fail(-EXDEV, "%s has other blocks than when the cache was made, so changed pages cannot be written. "
					"gpunvme_cache_discard() drops them", cache->source.name);
	return 0;
}

static int flush_all(struct gpunvme_cache *cache, struct flush *flush)
{
	int ret = 0, err;
	uint32_t i;

	for (i = 0; i < cache->source.devs && !ret; i++)
		ret = keep_cause(flush, ask_device(cache, flush, i));
	if (ret)
		return ret;
	ret = keep_cause(flush, gnv_changed_each(cache, false, flush_page, flush));
	err = flush_devices(flush);
	return ret ? ret : err;
}

/* One at a time. Other calls of the cache wait for no device. */
static int flush_cache(struct gpunvme_cache *cache)
{
	struct flush flush = { .dev = cache->source.dev, .cause.text = "" };
	int ret = -ENOMEM;

	flush.ns = calloc(cache->source.devs, sizeof(*flush.ns));
	flush.page = malloc((size_t)1 << cache->view.page_shift);
	if (flush.ns && flush.page)
		ret = flush_all(cache, &flush);
	else
		keep_cause(&flush, gnv_fail(ret, "out of memory"));
	free(flush.page);
	free(flush.ns);
	return ret ? gnv_fail_again(ret, &flush.cause) : 0;
}

static int check_source(const struct gpunvme_cache *cache)
{
	if (gnv_source_closed(&cache->source, cache->mem) < cache->source.devs)
		return gnv_fail(-ENODEV, "a device of the cache was closed, so changed pages cannot be written. Drop them by "
				"gpunvme_cache_discard()");
	return gnv_source_writable(&cache->source);
}

GPUNVME_API int gpunvme_cache_flush(struct gpunvme_cache *cache)
{
	int ret = gnv_changed_check(cache, "gpunvme_cache_flush");

	if (ret)
		return ret;
	pthread_mutex_lock(&cache->changing); /* before the source is looked at: it may take long until it is this one's turn */
	ret = check_source(cache);
	if (!ret) {
		pthread_mutex_lock(&cache->lock);
		gnv_cache_give_back(cache);
		pthread_mutex_unlock(&cache->lock);
		ret = flush_cache(cache);
	}
	pthread_mutex_unlock(&cache->changing);
	return ret;
}
