/* SPDX-License-Identifier: MIT */
/* Changes of kernels in a page cache that were not written: the host forgets them, when no kernel runs. */
#include <errno.h>

#include "cache/changed.h"
#include "util/bits.h"

/* The page leaves. Its frame is free, or lost if the device may have it, and waits for gnv_cache_give_back(). */
static int drop_page(const struct gnv_changed *c, uint64_t word, bool lost)
{
	const uint64_t changes = (word + (1ull << GPUNVME_PAGE_CHANGES_SHIFT)) & GPUNVME_PAGE_CHANGES;
	int ret = gnv_changed_poke(c, c->cache->view.frame + 8ull * c->frame, lost ? GPUNVME_FRAME_LOST : 0);

	if (!ret && c->kept)
		ret = gnv_changed_poke(c, gnv_changed_kept_at(c->cache, c->frame), 0);
	else if (!ret && lost)
		ret = gnv_changed_lose(c);
	if (!ret)
		ret = gnv_changed_forget(c, changes | ((word & GPUNVME_PAGE_REFS) - GPUNVME_PAGE_REF));
	return ret;
}

struct discard {
	bool over;         /* no device has a command */
	uint64_t begin;    /* page of the first of these words */
	uint64_t known;    /* how many there are */
	uint64_t word[GNV_CACHE_WORDS];
};

/* The word of a page. Neighbours are often asked for next. */
static int look_at(struct discard *d, const struct gnv_changed *c, uint64_t *word)
{
	int ret = 0;

	if (c->page < d->begin || c->page - d->begin >= d->known) {
		d->begin = c->page / GNV_CACHE_WORDS * GNV_CACHE_WORDS;
		d->known = gnv_min(c->cache->pages - d->begin, GNV_CACHE_WORDS);
		ret = gnv_changed_peek(c, c->cache->view.table + 8 * d->begin, d->word, d->known * sizeof(*d->word));
		d->known = ret ? 0 : d->known;
	}
	if (!ret)
		*word = d->word[c->page - d->begin];
	return ret;
}

/*
 * A kernel that was killed may have left a page WRITING that has no changes: it was about to look for them, or had written them.
 * Nobody writes it now, so it is there again, with the references that it has: which of these nobody will give back is not known.
 */
static int release_page(struct discard *d, const struct gnv_changed *c)
{
	uint64_t word = 0;
	int ret = c->page < c->cache->pages ? look_at(d, c, &word) : 0;

	if (ret || (word & GPUNVME_PAGE_STATE) != GPUNVME_PAGE_WRITING || word >> GPUNVME_PAGE_FRAME_SHIFT != c->frame)
		return ret;
	return gnv_changed_poke(c, c->cache->view.table + 8 * c->page, word - (GPUNVME_PAGE_WRITING - GPUNVME_PAGE_VALID));
}

/*
 * A page that a thread has stays as the thread sees it. WRITING was left by a kernel that ended in the middle: no thread has the
 * page. An old write that the device may still have would overwrite later data once the page is forgotten, so it has to end first.
 */
static int discard_page(void *ctx, const struct gnv_changed *c)
{
	struct discard *d = ctx;
	uint64_t word = 0;
	bool writing;
	int ret;

	if (!c->parts)
		return release_page(d, c);
	ret = gnv_changed_word(c, &word);
	if (ret)
		return ret;
	writing = (word & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_WRITING;
	if ((c->kept || writing) && !d->over)
		return gnv_fail(-EBUSY, "the device may still have a write of page %llu: recover the queue by gpunvme_queue_recover(), or close "
				"the device, then discard again", (unsigned long long)c->page);
	if (writing || (word & GPUNVME_PAGE_REFS) == GPUNVME_PAGE_REF)
		return drop_page(c, word, writing || c->kept);
	return gnv_changed_forget(c, word - GPUNVME_PAGE_REF);
}

GPUNVME_API int gpunvme_cache_discard(struct gpunvme_cache *cache)
{
	int ret = gnv_changed_check(cache, "gpunvme_cache_discard");
	struct discard d = { .known = 0 };

	if (ret)
		return ret;
	pthread_mutex_lock(&cache->changing);
	pthread_mutex_lock(&cache->lock);
	gnv_cache_give_back(cache);
	d.over = gnv_source_quiet(&cache->source, cache->mem);
	ret = gnv_changed_each(cache, true, discard_page, &d);
	pthread_mutex_unlock(&cache->lock);
	pthread_mutex_unlock(&cache->changing);
	return ret;
}
