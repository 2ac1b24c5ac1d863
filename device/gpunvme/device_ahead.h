/* SPDX-License-Identifier: MIT */
/*
 * A cache of pages with prefetch, from a kernel: a lane asks for a page that will be wanted, and goes on. Caches of a namespace
 * that were made with GPUNVME_PAGECACHE_AHEAD have these calls for those of device_pagecache.h and device_array.h, whose rules
 * hold here, too; gpunvme_page_put() gives pages back. And:
 *
 * - All lanes name views of one queue; after its recovery, or its end, of another, made later. A page that is coming by the queue
 *   of before is read anew then, and its frame is lost, as of any read that was given up.
 * - Nobody need ask for a page that was prefetched, and no lane that began a prefetch need stay. But its identifier is the queue's
 *   again only when somebody asks for the page, its frame is needed, or gpunvme_ahead_settle() is called.
 *
 * How it works. A page has one state more, COMING: a command reads it, which the words of its frame name.
 *
 *   EMPTY -> READING    by the lane that prefetches, which finds identifier and frame, submits, and does not wait for the device
 *   READING -> COMING   by that lane
 *   READING -> EMPTY    by that lane, where it found none or no room, without a failure: who has asked meanwhile reads
 *   COMING -> READING   compare-and-swap, by a lane that wants the page: it goes on as the reader that has submitted
 *   COMING -> EMPTY     compare-and-swap of a word without references, by a lane that needs the frame, when the command is over
 *
 * So who waits for a page that is coming waits for a reader, as for any page, and the reader takes completions for itself, copies
 * where pages are copied, and ends READING. The command's identifier belongs to the page while it is COMING, then to that lane;
 * its result waits there. Its time-out counts from when a lane begins to wait, as that of a handle. What nobody asks for is in
 * nobody's way: prefetches hold half of a queue's identifiers at most, the clock takes pages that have come as it takes others,
 * and who finds that half gone ends a page that has come, which is VALID then. A wave ends what was coming before it waits for
 * room, so that it does not sit on identifiers meanwhile.
 */
#ifndef GPUNVME_DEVICE_AHEAD_H
#define GPUNVME_DEVICE_AHEAD_H

#include <gpunvme/device/coming.h>

/* ---- Prefetch ---- */

/* One of the identifiers that prefetches may hold. */
GNVD_FN int gnvd_book(const struct gpunvme_dq *dq)
{
	if (gnvd_fetch_add64(GNVD_STATE(dq, ahead), 1) < dq->cids / 2)
		return 1;
	gnvd_add64(GNVD_STATE(dq, ahead), ~0ull);
	return 0;
}

/* One for each lane with `want` set. Where there is none, pages that have come give theirs back. Answers who has one. */
GNVD_FN int gnvd_book_all(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int want)
{
	uint64_t mark = cache->flags & GPUNVME_DPAGES_STATS ? GNVD_UNASKED : 0, page = 0, word = 0;
	int booked = want && gnvd_book(dq), mine = 0;
	struct gpunvme_req req = { 0, 0, 0, 0 };
	uint32_t frame = 0, i;

	if (!gnvd_ballot(w, want && !booked))
		return booked;
	gnvd_drain(dq, w);
	for (i = 0; want && !booked && !mine && i < GNVD_NEAR && i < cache->frames; i++) {
		frame = (uint32_t)gnvd_fetch_add64(GNVD_PAGES_STATE(cache, sweep), 1) % cache->frames;
		mine = gnvd_claim_frame(dq, cache, frame, 1, &page, &word, &req);
	}
	if (gnvd_ballot(w, mine))
		(void)gnvd_end_coming(dq, w, cache, mine, page, word, frame, &req, mark);
	return booked || (want && gnvd_book(dq));
}

/* May this header work on the cache, has it the page, and can that be read by this queue? */
GNVD_FN int gnvd_check_ahead(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page)
{
	if (cache->magic != GPUNVME_DPAGES_AHEAD_MAGIC || cache->major != GPUNVME_DQ_MAJOR || gnvd_check_dq(dq))
		return -GPUNVME_EPROTONOSUPPORT;
	return page <= (cache->lba_count - 1) >> (cache->page_shift - cache->lba_shift) ? 0 : -GPUNVME_ERANGE;
}

/* Where and what to read of a page into a frame, as one command? */
GNVD_FN int gnvd_set_prefetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page, uint32_t frame,
			      struct gnvd_cmd *c)
{
	struct gnvd_left left = { 0, 0, 0, 0 };

	gnvd_set_fetch(dq, cache, NULL, page, frame, &left);
	if (left.ret)
		return left.ret;
	if (gnvd_part_blocks(dq, &cache->buf, &left, GPUNVME_IO_READ) < left.nblocks)
		return -GPUNVME_EMSGSIZE;
	gnvd_set_part(dq, &cache->buf, &left, left.nblocks, GPUNVME_IO_READ, c);
	return 0;
}

/*
 * The end of READING by a lane that prefetches, as one addition to what the word was then. While it is READING it changes by
 * references only.
 */
GNVD_FN void gnvd_end_prefetch(const struct gpunvme_dpages *cache, uint64_t page, uint32_t frame, uint64_t word,
			       const struct gpunvme_req *req, int ret)
{
	uint64_t add = 0ull - GPUNVME_PAGE_READING;

	if (!ret) {
		gnvd_st64(gnvd_coming_at(cache, frame), (uint64_t)req->tag << 32 | req->cid);
		gnvd_st64(gnvd_coming_at(cache, frame) + 8, req->gen);
		gnvd_st64(gnvd_frame_at(cache, frame), page + 1);
		gnvd_add64(GNVD_PAGES_STATE(cache, coming), 1);
		add += (uint64_t)(frame - (uint32_t)(word >> GPUNVME_PAGE_FRAME_SHIFT)) << GPUNVME_PAGE_FRAME_SHIFT;
		add += GPUNVME_PAGE_COMING + GPUNVME_PAGE_USED - (word & GPUNVME_PAGE_USED);
	} else if (frame < cache->frames) {
		gnvd_drop_frame(cache, frame, 0);
	}
	gnvd_order_agent(); /* pairs with gnvd_load_coming() */
	gnvd_fetch_add64(gnvd_page_at(cache, page), add);
}

/* All lanes of the wave come; those with ret 0 want a page. While a lane has a page READING it waits for no device. */
GNVD_FN int gnvd_prefetch_pages(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int ret,
				uint64_t page)
{
	uint64_t at = gnvd_page_at(cache, page), word = ret ? 0 : gnvd_ld_after64(at);
	int want = !ret && gnvd_page_state(word) == GPUNVME_PAGE_EMPTY, booked;
	struct gpunvme_req req = { 0, 0, 0, 0 };
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	uint32_t frame;

	if (want)
		ret = gnvd_check_fetch(dq, cache, NULL, page);
	if (want && !ret)
		ret = gnvd_set_prefetch(dq, cache, page, 0, &c);
	want = want && !ret && gnvd_cas64(at, word, word + GPUNVME_PAGE_READING) == word; /* else somebody has it, or will read it */
	if (!gnvd_ballot(w, want))
		return ret;
	booked = gnvd_book_all(dq, w, cache, want);
	frame = gnvd_find_frames(dq, w, cache, booked);
	if (want)
		ret = booked ? gnvd_set_prefetch(dq, cache, page, frame, &c) : gnvd_full(dq);
	ret |= gnvd_submit(dq, w, want && !ret, &c, &req);
	if (want)
		gnvd_end_prefetch(cache, page, frame, word, &req, ret);
	if (booked && ret)
		gnvd_add64(GNVD_STATE(dq, ahead), ~0ull);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, prefetches), gnvd_ballot(w, want && !ret));
	return ret;
}

/**
 * gpunvme_ahead_prefetch() - begin to read a page, if it is not there
 * @dq:    the queue
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD
 * @page:  its number, counted from the first of the window
 *
 * Does not wait for the device. Who asks for the page later finds it, or waits for what is left of the read; a failure is told to
 * those. A page that nobody asks for goes as others do. It is read by one command, so the drive must take it as one.
 * Return: 0 the page is there, or comes, or somebody reads it; -GPUNVME_EAGAIN lanes have, or wait for, all pages that the cache
 * can hold, or the queue has no room, or half of its identifiers belong to pages that are coming: nothing was begun;
 * -GPUNVME_EMSGSIZE a page is more than one command can carry (MDTS), or lies across a boundary of the drive (NOIOB);
 * -GPUNVME_ERANGE there is no such page, or the queue's view has not its blocks; -GPUNVME_EXDEV the queue is another namespace's,
 * or another device's; -GPUNVME_ESHUTDOWN, -GPUNVME_ECANCELED and -GPUNVME_EPROTONOSUPPORT as at the head of device.h, the last
 * also of a cache of another kind.
 */
GPUNVME_FN int gpunvme_ahead_prefetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page)
{
	int ret = gnvd_check_ahead(dq, cache, page), err = ret;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_PREFETCH);
		GNVD_TOGETHER(w, err = gnvd_prefetch_pages(dq, &w, cache, ret, page));
		gnvd_leave(&w);
	}
	if (err == -GPUNVME_EAGAIN)
		gnvd_polled_in_vain();
	return err;
}

GNVD_FN int gnvd_settle_coming(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int ret)
{
	uint64_t mark = cache->flags & GPUNVME_DPAGES_STATS ? GNVD_UNASKED : 0, page = 0, word = 0;
	struct gpunvme_req req = { 0, 0, 0, 0 };
	uint32_t frame = ret ? cache->frames : w->rank;
	int mine, err;

	for (; gnvd_ballot(w, frame < cache->frames); frame = frame < cache->frames ? frame + w->count : frame) {
		mine = frame < cache->frames && gnvd_claim_frame(dq, cache, frame, 0, &page, &word, &req);
		if (!gnvd_ballot(w, mine))
			continue;
		if (ret == -GPUNVME_ETIMEDOUT && gnvd_ld32(GNVD_STATE(dq, poison)))
			req.deadline = 1; /* the queue has ended by time, which this lane has waited for once */
		err = gnvd_end_coming(dq, w, cache, mine, page, word, frame, &req, mark);
		ret = err < 0 && !ret ? err : ret;
	}
	return ret;
}

/**
 * gpunvme_ahead_settle() - wait for all pages that are coming
 * @dq:    the queue by which they come
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD, the same for all lanes of a wave, which share the work
 *
 * They are there then, or could not be read; the queue has their identifiers again. For the end of a kernel that has prefetched,
 * or one of its own: before gpunvme_pagecache_destroy(), where the queue stays. One wave is enough. What lanes prefetch or ask for
 * meanwhile, or pass by for a frame, may be left: for an end of all call it when no lane does. Of a device that is silent a lane
 * waits for one time-out, however many pages come.
 * Return: 0; -GPUNVME_ETIMEDOUT, -GPUNVME_ECANCELED and others below 0 as at the head of device.h: this lane has given up a read.
 */
GPUNVME_FN int gpunvme_ahead_settle(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache)
{
	int ret = gnvd_check_ahead(dq, cache, 0), err = ret;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_SETTLE);
		GNVD_TOGETHER(w, err = gnvd_settle_coming(dq, &w, cache, ret));
		gnvd_leave(&w);
	}
	return err;
}

/* ---- Pages ---- */

/**
 * gpunvme_ahead_page_get() - have a page of a cache with prefetch, and keep it
 * @dq:    the queue
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD
 * @page:  its number, counted from the first of the window
 * @p:     set on success, as by gpunvme_page_get(); give it back with gpunvme_page_put()
 *
 * Return: as gpunvme_page_get(). Besides, -GPUNVME_EXDEV or -GPUNVME_ESHUTDOWN the page is coming by a queue that was made later,
 * which is the one to name; -GPUNVME_EPROTONOSUPPORT the cache is one without prefetch.
 */
GPUNVME_FN int gpunvme_ahead_page_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page,
				      struct gpunvme_page *p)
{
	int ret = gnvd_check_ahead(dq, cache, page), err = 0;
	uint64_t base = 0;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_AHEAD_PAGE);
		GNVD_TOGETHER(w, err = gnvd_get_ahead(dq, &w, cache, !ret, page, &base));
		gnvd_leave(&w);
	}
	ret = ret ? ret : err;
	if (ret == -GPUNVME_EAGAIN)
		gnvd_polled_in_vain();
	if (!ret) {
		p->base = base;
		p->word = gnvd_page_at(cache, page);
	}
	return ret;
}

/* ---- Elements ---- */

/* As gnvd_get_elements(), of one page at a time. */
GNVD_FN int gnvd_ahead_elements(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int ret,
				struct gnvd_elements *e)
{
	uint64_t until = 0, base = 0, size = 1ull << cache->page_shift, page, n, now;
	int open = !ret && e->left, err;
	uint32_t turn = 0;

	for (; gnvd_ballot(w, open); gnvd_pause(turn++)) {
		page = e->pos >> cache->page_shift;
		err = gnvd_get_ahead(dq, w, cache, open, page, &base);
		n = size - (e->pos & (size - 1)) < e->left ? size - (e->pos & (size - 1)) : e->left;
		n = open && !err ? n : 0;
		if (n)
			gnvd_copy_elements(e, base + (e->pos & (size - 1)), n);
		gnvd_unrefer(w, n != 0, gnvd_page_at(cache, page));
		e->pos += n;
		e->to += n;
		e->left -= n;
		now = gnvd_clock();
		until = n || !until ? now + dq->cmd_timeout : until;
		if (open && err && (err != -GPUNVME_EAGAIN || now > until))
			ret = err;
		open = open && !ret && e->left;
	}
	return ret;
}

GNVD_FN int gnvd_run_ahead(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count,
			   struct gnvd_elements *e)
{
	uint32_t shift = e->bytes == 16 ? 4 : e->bytes == 8 ? 3 : 2;
	uint64_t all = cache->lba_count << cache->lba_shift >> shift;
	int ret = gnvd_check_ahead(dq, cache, 0), err;
	struct gnvd_wave w;

	e->pos = index << shift;
	e->left = count << shift;
	if (!ret && (e->bytes != 1u << shift || e->to & 3))
		ret = -GPUNVME_EINVAL;
	if (!ret && (index > all || count > all - index))
		ret = -GPUNVME_ERANGE;
	err = ret;
	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_AHEAD_ARRAY);
		GNVD_TOGETHER(w, err = gnvd_ahead_elements(dq, &w, cache, ret, e));
		gnvd_leave(&w);
	}
	return err;
}

/**
 * gpunvme_ahead_array_get() - one element of a cache with prefetch
 * @dq:    the queue
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD
 * @index: number of the element; its page is index * bytes >> cache->page_shift, for gpunvme_ahead_prefetch()
 * @bytes: of an element: 4, 8 or 16; a constant
 * @value: the element, on success; a variable of the lane's
 *
 * Return: as gpunvme_array_get() and gpunvme_ahead_page_get().
 */
GPUNVME_FN int gpunvme_ahead_array_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
				       uint32_t bytes, void *value)
{
	uint32_t words[4] = { 0, 0, 0, 0 };
	struct gnvd_elements e = { 0, 0, 0, words, bytes };
	int ret = gnvd_run_ahead(dq, cache, index, 1, &e);

	if (!ret)
		__builtin_memcpy(value, words, bytes);
	return ret;
}

/**
 * gpunvme_ahead_array_get_range() - elements of a cache with prefetch that lie side by side
 * @dq:    the queue
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD
 * @index: number of the first element
 * @count: how many; 0 does nothing
 * @bytes: of an element: 4, 8 or 16
 * @to:    where they go: memory of the lanes, a multiple of 4
 *
 * Return: as gpunvme_array_get_range() and gpunvme_ahead_page_get().
 */
GPUNVME_FN int gpunvme_ahead_array_get_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
					     uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_elements e = { 0, 0, (uint64_t)(uintptr_t)to, NULL, bytes };

	return gnvd_run_ahead(dq, cache, index, count, &e);
}

#if defined(__cplusplus)
namespace gpunvme {

/* What an array has its elements from: a cache with prefetch. */
struct from_ahead {
	typedef struct gpunvme_dq queue;

	static GNVD_MEMBER int get(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_ahead_array_get(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_ahead_array_get_range(q, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		return gnvd_window_bytes(cache, NULL);
	}
};

/* As gpunvme::array. */
template <typename T> using ahead_array = array<T, from_ahead>;

}
#endif

#endif
