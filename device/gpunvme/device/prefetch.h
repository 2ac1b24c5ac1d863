/* SPDX-License-Identifier: MIT */
/*
 * Prefetch, and pages and elements of caches with prefetch, over a namespace, a file or a volume: the calls of cache.h. On a CPU
 * some functions are not inlined, and are the same for all three sources, so that less is compiled.
 */
#ifndef GPUNVME_DEVICE_PREFETCH_H
#define GPUNVME_DEVICE_PREFETCH_H

#include <gpunvme/device/wanted.h>

#define GNVD_READ_AHEAD 4u /* pages that a range has under way beyond the one that it copies */

/* ---- Prefetch ---- */

/* Reserve one of the identifiers that prefetches may hold. */
GNVD_FN int gnvd_book(const struct gpunvme_dq *dq)
{
	if (gnvd_fetch_add64(GNVD_STATE(dq, prefetched), 1) < dq->cids / 2)
		return 1;
	gnvd_add64(GNVD_STATE(dq, prefetched), ~0ull);
	return 0;
}

/* Reserve one for each thread with `want` set. If there is none, pages that have come return theirs. Return success. */
GNVD_FN int gnvd_book_all(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			  struct gnvd_source from, int want)
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
		mine = gnvd_claim_frame(dq, cache, from, frame, 1, &page, &word, &req);
	}
	if (gnvd_ballot(w, mine))
		(void)gnvd_end_coming(dq, w, cache, from, mine, page, word, frame, &req, mark);
	return booked || (want && gnvd_book(dq));
}

/* Set the only part of a page to read. left->nblocks is 0 if the page is a hole. */
GNVD_FN int gnvd_set_only_part(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			       uint64_t page, uint32_t frame, struct gnvd_left *left)
{
	struct gnvd_parts p;

	gnvd_begin_parts(dq, cache, from, page, frame, &p);
	gnvd_next_part(cache, from, &p);
	left->nblocks = p.left ? p.nblocks : 0;
	if (!p.left)
		return 0;
	left->offset = p.offset;
	left->lba = p.lba;
	gnvd_pass_part(cache, &p);
	gnvd_next_part(cache, from, &p);
	return p.left ? -GPUNVME_EMSGSIZE : 0;
}

GNVD_FN int gnvd_set_whole(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *buf, const struct gnvd_left *left,
			   struct gnvd_cmd *c)
{
	if (gnvd_part_blocks(dq, buf, left, GPUNVME_IO_READ) < left->nblocks)
		return -GPUNVME_EMSGSIZE;
	gnvd_set_part(dq, buf, left, left->nblocks, GPUNVME_IO_READ, c);
	return 0;
}

/* Set one command that reads a page into a frame. *blocks: how many it reads, which is 0 for a hole of a file. */
GNVD_FN int gnvd_set_prefetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      uint64_t page, uint32_t frame, struct gnvd_cmd *c, uint32_t *blocks)
{
	struct gnvd_left left = { 0, 0, 0, 0 };

	gnvd_set_fetch(dq, cache, from, page, frame, &left);
	if (from.of != GNVD_OF_NAMESPACE && !left.ret)
		left.ret = gnvd_set_only_part(dq, cache, from, page, frame, &left);
	*blocks = left.nblocks;
	if (left.ret || (from.of != GNVD_OF_NAMESPACE && !left.nblocks))
		return left.ret;
	if (from.of != GNVD_OF_VOLUME)
		return gnvd_set_whole(dq, &cache->buf, &left, c);
	return gnvd_set_whole(dq, &gnvd_members_of(cache)[gnvd_page_member(cache, from.volume, page)].buf, &left, c);
}

/*
 * End READING, by the thread that prefetches, with one addition. `word` is the page's word before READING. While the page is
 * READING, only the references in its word change.
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

/* All threads of the wave call. Those with ret 0 want a page. While a thread has a page READING, it waits for no device. */
GNVD_FN int gnvd_prefetch_pages(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				struct gnvd_source from, int ret, uint64_t page)
{
	uint64_t at = gnvd_page_at(cache, page), word = ret ? 0 : gnvd_ld_after64(at);
	int want = !ret && gnvd_page_state(word) == GPUNVME_PAGE_EMPTY, booked;
	struct gpunvme_req req = { 0, 0, 0, 0 };
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	uint32_t frame, blocks = 0;

	if (want)
		ret = dq->cids < 2 ? -GPUNVME_EOPNOTSUPP : gnvd_check_fetch(dq, cache, from, page);
	if (want && !ret)
		ret = gnvd_set_prefetch(dq, cache, from, page, 0, &c, &blocks);
	want = want && !ret && (from.of == GNVD_OF_NAMESPACE || blocks);
	want = want && gnvd_cas64(at, word, word + GPUNVME_PAGE_READING) == word; /* else another thread has it, or will read it */
	if (!gnvd_ballot(w, want))
		return ret;
	booked = gnvd_book_all(dq, w, cache, from, want);
	frame = gnvd_find_frames(dq, w, cache, from, booked);
	if (want)
		ret = booked ? gnvd_set_prefetch(dq, cache, from, page, frame, &c, &blocks) : gnvd_full(dq);
	ret |= gnvd_submit(dq, w, want && !ret, &c, &req);
	if (want)
		gnvd_end_prefetch(cache, page, frame, word, &req, ret);
	if (booked && ret)
		gnvd_add64(GNVD_STATE(dq, prefetched), ~0ull);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, prefetches), gnvd_ballot(w, want && !ret));
	return ret;
}

GNVD_FN int gnvd_prefetch_by(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			     struct gnvd_source from, int ret, uint64_t page)
{
	const struct gpunvme_dq *own = dq;
	int want = !ret, mine, err;
	uint64_t todo;

	if (from.of != GNVD_OF_VOLUME)
		return gnvd_prefetch_pages(dq, w, cache, from, ret, page);
	own = gnvd_page_dq(dq, cache, from, page);
	for (todo = gnvd_ballot(w, want); todo; todo &= ~gnvd_ballot(w, mine)) {
		mine = gnvd_next_dq(w, todo, own, &dq) && want;
		err = gnvd_prefetch_pages(dq, w, cache, from, mine ? 0 : GNVD_IDLE, page);
		ret = mine ? err : ret;
	}
	return ret;
}

/* Prefetch a thread's page, for any call. */
GPUNVME_FN int gnvd_prefetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     uint64_t page)
{
	int ret = gnvd_check_prefetch(dq, cache, from, page), err = ret;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_PREFETCH));
		GNVD_TOGETHER(w, err = gnvd_prefetch_by(dq, &w, cache, from, ret, page));
		gnvd_leave(&w);
	}
	if (err == -GPUNVME_EAGAIN)
		gnvd_polled_in_vain();
	return err;
}

GNVD_FN int gnvd_finish_coming(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			       struct gnvd_source from, int ret)
{
	uint64_t mark = cache->flags & GPUNVME_DPAGES_STATS ? GNVD_UNASKED : 0, page = 0, word = 0;
	struct gpunvme_req req = { 0, 0, 0, 0 };
	uint32_t frame = ret ? cache->frames : w->rank;
	int mine, err;

	for (; gnvd_ballot(w, frame < cache->frames); frame = frame < cache->frames ? frame + w->count : frame) {
		mine = frame < cache->frames && gnvd_claim_frame(dq, cache, from, frame, 0, &page, &word, &req);
		if (!gnvd_ballot(w, mine))
			continue;
		if (ret == -GPUNVME_ETIMEDOUT && gnvd_ld32(GNVD_STATE(dq, poison)))
			req.deadline = 1; /* a time-out ended the queue, and this thread has waited for it once */
		err = gnvd_end_coming(dq, w, cache, from, mine, page, word, frame, &req, mark);
		ret = err < 0 && !ret ? err : ret;
	}
	return ret;
}

/* For a volume: one queue after the other, also when one of them fails. */
GNVD_FN int gnvd_finish_by(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			   struct gnvd_source from, int refused)
{
	int ret = refused, err;
	uint32_t i;

	if (from.of != GNVD_OF_VOLUME)
		return gnvd_finish_coming(dq, w, cache, from, refused);
	for (i = 0; i < from.volume->members * from.volume->queues; i++) {
		err = gnvd_finish_coming((const struct gpunvme_dq *)gnvd_lane_memory(from.volume->dq) + i, w, cache, from, refused);
		ret = ret ? ret : err;
	}
	return ret;
}

GPUNVME_FN int gnvd_finish_all(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from)
{
	int ret = gnvd_check_finish(dq, cache, from), err = ret;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_FINISH));
		GNVD_TOGETHER(w, err = gnvd_finish_by(dq, &w, cache, from, ret));
		gnvd_leave(&w);
	}
	return err;
}

/* ---- Pages ---- */

GPUNVME_FN int gnvd_have_prefetched(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				    uint64_t page, struct gpunvme_page *p)
{
	int ret = gnvd_check_prefetch(dq, cache, from, page), err = 0;
	uint64_t base = 0;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_PREFETCH_PAGE));
		GNVD_TOGETHER(w, err = gnvd_get_prefetched_by(dq, &w, cache, from, !ret, page, &base));
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

/* As gnvd_get_elements(), for one page at a time. */
GNVD_FN int gnvd_prefetch_elements(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				   struct gnvd_source from, int ret, struct gnvd_elements *e)
{
	uint64_t until = 0, base = 0, size = 1ull << cache->page_shift, page, n, now;
	int open = !ret && e->left, err;
	uint32_t turn = 0;

	for (; gnvd_ballot(w, open); gnvd_pause(turn++)) {
		page = e->pos >> cache->page_shift;
		err = gnvd_get_prefetched_by(dq, w, cache, from, open, page, &base);
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

/* Are the elements within the window? Sets e->pos and e->left. */
GNVD_FN int gnvd_check_prefetch_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				      uint64_t index, uint64_t count, struct gnvd_elements *e)
{
	uint32_t shift = e->bytes == 16 ? 4 : e->bytes == 8 ? 3 : 2;
	uint64_t all = cache->lba_count << cache->lba_shift >> shift;
	int ret = gnvd_check_prefetch(dq, cache, from, 0);

	e->pos = index << shift;
	e->left = count << shift;
	if (!ret && (e->bytes != 1u << shift || e->to & 3))
		ret = -GPUNVME_EINVAL;
	if (!ret && from.of != GNVD_OF_NAMESPACE)
		all = gnvd_window_bytes(cache, from) >> shift;
	if (!ret && !GNVD_WITHIN(index, count, all))
		ret = -GPUNVME_ERANGE;
	return ret;
}

GNVD_FN int gnvd_run_prefetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from, int ret,
			      struct gnvd_elements *e)
{
	struct gnvd_wave w;
	int err = ret;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_PREFETCH_ARRAY));
		GNVD_TOGETHER(w, err = gnvd_prefetch_elements(dq, &w, cache, from, ret, e));
		gnvd_leave(&w);
	}
	return err;
}

GNVD_FN int gnvd_prefetch_element(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				  uint64_t index, uint32_t bytes, void *value)
{
	uint32_t words[4] = { 0, 0, 0, 0 };
	struct gnvd_elements e = { 0, 0, 0, words, bytes };
	int ret = gnvd_check_prefetch_range(dq, cache, from, index, 1, &e);

	ret = gnvd_run_prefetch(dq, cache, from, ret, &e);
	if (!ret)
		__builtin_memcpy(value, words, bytes);
	return ret;
}

/*
 * Is there room to read ahead for a range? Not if half of the identifiers for prefetches are taken, or if a quarter of the frames
 * have pages that are coming. Then many threads read, and each would take what the others are about to use.
 */
GNVD_FN int gnvd_may_read_ahead(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache)
{
	return gnvd_ld64(GNVD_STATE(dq, prefetched)) < dq->cids / 4 && gnvd_ld64(GNVD_PAGES_STATE(cache, coming)) < cache->frames / 4;
}

/*
 * Prefetch from *next to the last page of the range, but not further than GNVD_READ_AHEAD pages after this one. A failure is
 * returned when a thread gets the page. A page that takes several commands is skipped, because others may take one.
 */
GNVD_FN void gnvd_read_ahead(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     uint64_t page, uint64_t last, uint64_t *next)
{
	int ret = 0;

	*next = *next > page ? *next : page + 1;
	while (!ret && *next <= last && *next - page <= GNVD_READ_AHEAD) {
		if (!gnvd_may_read_ahead(gnvd_page_dq(dq, cache, from, *next), cache))
			return;
		ret = gnvd_prefetch(dq, cache, from, *next);
		ret = ret == -GPUNVME_EMSGSIZE ? 0 : ret;
		*next += !ret;
	}
	if (ret && ret != -GPUNVME_EAGAIN)
		*next = last + 1; /* the others fail, too: the queue has ended, or does not have the blocks */
}

/* Read a range, page by page. A range of one page has nothing to prefetch. */
GNVD_FN int gnvd_prefetch_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				uint64_t index, uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_elements e = { 0, 0, (uint64_t)(uintptr_t)to, NULL, bytes };
	int ret = gnvd_check_prefetch_range(dq, cache, from, index, count, &e);
	uint64_t size = 1ull << cache->page_shift, end = e.pos + e.left, next = 0, page, n;

	while (!ret && e.pos < end) {
		page = e.pos >> cache->page_shift;
		n = size - (e.pos & (size - 1));
		e.left = n < end - e.pos ? n : end - e.pos;
		gnvd_read_ahead(dq, cache, from, page, (end - 1) >> cache->page_shift, &next);
		ret = gnvd_run_prefetch(dq, cache, from, ret, &e);
	}
	return ret;
}

#endif
