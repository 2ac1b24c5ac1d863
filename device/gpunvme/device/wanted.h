/* SPDX-License-Identifier: MIT */
/*
 * Pages that a thread wants from a cache with prefetch. The thread continues with a page that is coming, or reads the page.
 * coming.h explains why this is right.
 */
#ifndef GPUNVME_DEVICE_WANTED_H
#define GPUNVME_DEVICE_WANTED_H

#include <gpunvme/device/coming.h>

/* Read pages. All threads of the wave call. Those with `mine` set end READING. Return those with a frame. */
GNVD_FN uint64_t gnvd_read_missing(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				   struct gnvd_source from, int mine, uint64_t page, uint64_t word)
{
	struct gnvd_left left = { 0, 0, 0, GNVD_IDLE };
	uint32_t frame = gnvd_find_frames(dq, w, cache, from, mine);
	uint64_t misses = gnvd_ballot(w, mine && frame < cache->frames);

	if (mine)
		gnvd_set_fetch(dq, cache, from, page, frame, &left);
	if (from.of != GNVD_OF_NAMESPACE)
		gnvd_read_parts(dq, w, cache, from, page, frame, &left);
	else
		gnvd_run_wave(dq, w, &cache->buf, &left, GPUNVME_IO_READ);
	gnvd_copy_frames(w, cache, mine && !left.ret && (from.of == GNVD_OF_NAMESPACE || left.nblocks), frame);
	if (from.of == GNVD_OF_FILE && mine && !left.ret)
		gnvd_zero_holes(dq, cache, from, page, frame);
	if (mine)
		gnvd_end_reading(cache, page, frame, word, left.ret);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, misses), misses);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, failures), gnvd_ballot(w, mine && frame < cache->frames && left.ret));
	return misses;
}

/* What a thread that has a reference sees of its page, and what it has to do. */
struct gnvd_seen_page {
	uint64_t word;  /* of a page that this thread has to read, or whose command it has to wait for: as READING began */
	struct gpunvme_req req; /* the command */
	uint32_t frame;
	int comes;
	int reads;
	int ret;
};

/* COMING: a thread with the queue that reads the page, or with a later one, continues. Return whether it has to look again. */
GNVD_FN int gnvd_look_at_coming(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t at,
				struct gnvd_seen_page *s)
{
	s->frame = (uint32_t)(s->word >> GPUNVME_PAGE_FRAME_SHIFT);
	gnvd_load_coming(cache, s->frame, &s->req);
	if (gnvd_tag_later(s->req.tag, dq->tag) && gnvd_ld64(at) == s->word) {
		s->ret = -GPUNVME_EXDEV;
		if (gnvd_ld32(GNVD_STATE(dq, poison)) || gnvd_full(dq) == -GPUNVME_ESHUTDOWN)
			s->ret = -GPUNVME_ESHUTDOWN;
		return 0;
	}
	if (!gnvd_claim_coming(cache, at, s->frame, &s->word, &s->req))
		return 1;
	s->comes = gnvd_begin_end(dq, cache, s->frame, &s->req);
	s->reads = !s->comes;
	if (s->comes)
		gnvd_count_one(cache, GNVD_PAGES_STATE(cache, used));
	return 1;
}

/*
 * As gnvd_look_at_page(). When a thread continues with a page that was prefetched after a failure, the word does not show the
 * failure any more: a thread that missed the failure waits for this read instead. Return whether the thread has to look again.
 */
GNVD_FN int gnvd_look_up_prefetched(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t at, uint64_t first,
				    struct gnvd_seen_page *s)
{
	uint64_t word = gnvd_ld_after64(at);

	s->word = word;
	if (gnvd_page_state(word) == GPUNVME_PAGE_VALID)
		return 0;
	if (gnvd_page_state(word) == GPUNVME_PAGE_COMING)
		return gnvd_look_at_coming(dq, cache, at, s);
	if ((word ^ first) & GPUNVME_PAGE_CHANGES && word >> GPUNVME_PAGE_FRAME_SHIFT) {
		s->ret = (int)(uint32_t)(word >> GPUNVME_PAGE_FRAME_SHIFT);
		return 0;
	}
	s->reads = gnvd_page_state(word) == GPUNVME_PAGE_EMPTY && gnvd_cas64(at, word, word + GPUNVME_PAGE_READING) == word;
	s->word += s->reads ? GPUNVME_PAGE_READING : 0;
	return 1;
}

/* As gnvd_miss(): before any thread looks again, the wave ends pages that were coming, and then reads the pages to read. */
GNVD_FN int gnvd_miss_prefetched(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				 struct gnvd_source from, int open, uint64_t page, uint64_t *word)
{
	struct gnvd_seen_page s = { *word, { 0, 0, 0, 0 }, 0, 0, 0, 0 };
	uint64_t deadline = 0, first = *word, waits = gnvd_ballot(w, open), come, read;
	uint32_t turn = 0;

	while (gnvd_ballot(w, open)) {
		s.comes = s.reads = 0;
		open = open && gnvd_look_up_prefetched(dq, cache, gnvd_page_at(cache, page), first, &s);
		come = gnvd_ballot(w, s.comes);
		read = gnvd_ballot(w, s.reads);
		if (come)
			(void)gnvd_end_coming(dq, w, cache, from, s.comes, page, s.word, s.frame, &s.req, 0);
		if (read)
			waits &= ~gnvd_read_missing(dq, w, cache, from, s.reads, page, s.word);
		turn = come | read ? 0 : turn;
		deadline = come | read ? 0 : deadline;
		if ((turn & 15) == 15 && gnvd_page_late(dq, cache, from, &deadline) && open) {
			s.ret = -GPUNVME_ETIMEDOUT;
			open = 0;
		}
		if (!(come | read))
			gnvd_pause(turn++);
	}
	*word = s.word;
	waits &= gnvd_ballot(w, s.ret != -GPUNVME_EAGAIN);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, waits), waits);
	return s.ret;
}

/* Count a page that was prefetched, and for which a thread now asks for the first time. */
GNVD_FN void gnvd_note_used(const struct gpunvme_dpages *cache, uint64_t word)
{
	uint64_t at = gnvd_coming_at(cache, (uint32_t)(word >> GPUNVME_PAGE_FRAME_SHIFT));

	if (GPUNVME_COUNTERS && cache->flags & GPUNVME_DPAGES_STATS && gnvd_ld64(at) == GNVD_UNASKED &&
	    gnvd_cas64(at, GNVD_UNASKED, 0) == GNVD_UNASKED)
		gnvd_add64(GNVD_PAGES_STATE(cache, used), 1);
}

/* As gnvd_get_pages(), for pages that this queue prefetches. */
GNVD_FN int gnvd_get_prefetched(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				struct gnvd_source from, int want, uint64_t page, uint64_t *base)
{
	uint64_t at = gnvd_page_at(cache, page), word = gnvd_refer(w, want, at, GPUNVME_PAGE_REF, 1), hits;
	int ret = want && (word & GPUNVME_PAGE_REFS) > GPUNVME_PAGE_REFS / 2 ? -GPUNVME_EAGAIN : 0;
	int open = want && !ret && gnvd_page_state(word) != GPUNVME_PAGE_VALID, hit = want && !ret && !open;

	hits = gnvd_ballot(w, hit);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, hits), hits);
	if (hit && !(word & GPUNVME_PAGE_USED))
		gnvd_or_after64(at, GPUNVME_PAGE_USED);
	if (open)
		ret = gnvd_check_fetch(dq, cache, from, page);
	open = open && !ret;
	if (gnvd_ballot(w, open))
		ret |= gnvd_miss_prefetched(dq, w, cache, from, open, page, &word);
	if (gnvd_ballot(w, want && !hit))
		gnvd_order_agent();
	if (gnvd_ballot(w, ret != 0))
		gnvd_unrefer(w, ret != 0, at);
	gnvd_meet_acquire(w); /* the word before the bytes */
	if (want && !ret) /* also after a wait for a thread that had not asked */
		gnvd_note_used(cache, word);
	*base = (cache->local ? cache->local : cache->buf.base) + ((word >> GPUNVME_PAGE_FRAME_SHIFT) << cache->page_shift);
	return ret;
}

/*
 * Find the next queue of the threads in `todo`, which go one queue after the other: *dq is that queue. Return whether it is this
 * thread's queue. While it is not, the thread has no page READING and waits for no frame, so no thread waits for it.
 */
GNVD_FN int gnvd_next_dq(const struct gnvd_wave *w, uint64_t todo, const struct gpunvme_dq *own, const struct gpunvme_dq **dq)
{
	uint64_t by = gnvd_same64(gnvd_shfl64(w, (uint64_t)(uintptr_t)own, gnvd_lowest(todo)));

	*dq = (const struct gpunvme_dq *)gnvd_lane_memory(by);
	return (uint64_t)(uintptr_t)own == by;
}

/* As gnvd_get_prefetched(), for threads with different queues. */
GNVD_FN int gnvd_get_prefetched_by(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				   struct gnvd_source from, int want, uint64_t page, uint64_t *base)
{
	const struct gpunvme_dq *own = dq;
	uint64_t todo, at = 0;
	int ret = 0, mine, err;

	if (from.of != GNVD_OF_VOLUME)
		return gnvd_get_prefetched(dq, w, cache, from, want, page, base);
	own = gnvd_page_dq(dq, cache, from, page);
	for (todo = gnvd_ballot(w, want); todo; todo &= ~gnvd_ballot(w, mine)) {
		mine = gnvd_next_dq(w, todo, own, &dq) && want;
		err = gnvd_get_prefetched(dq, w, cache, from, mine, page, &at);
		if (mine) {
			*base = at;
			ret = err;
		}
	}
	return ret;
}

#endif
