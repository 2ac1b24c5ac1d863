/* SPDX-License-Identifier: MIT */
/*
 * Pages that a command reads while no thread waits: their queue, the words of their frames, their end, and the clock.
 *
 * How it works. A page has one more state, COMING: a command reads it, and the words of its frame name the command.
 *
 *   EMPTY -> READING    by the thread that prefetches. It finds identifier and frame, submits, and does not wait for the device.
 *   READING -> COMING   by that thread
 *   READING -> EMPTY    by that thread, if it found no identifier, frame or room, without a failure: a waiting thread reads
 *   COMING -> READING   compare-and-swap, by a thread that wants the page. It continues as the reader that has submitted.
 *   COMING -> EMPTY     compare-and-swap of a word without references, by a thread that needs the frame, when the command is over
 *
 * So a thread that waits for a page that is coming waits for a reader, as for any page. The reader takes completions for itself,
 * copies where pages are copied, and ends READING. The command's identifier belongs to the page while it is COMING, then to the
 * reader. The command's result waits with its identifier. Its time-out counts from when a thread begins to wait, like that of a
 * handle. A page that no thread asks for blocks no other: prefetches hold half of a queue's identifiers at most, and the clock
 * evicts pages that have come like others. A thread that finds that half taken ends a page that has come, which is VALID then. A
 * wave ends the pages that were coming before it waits for room, so that it holds no identifiers meanwhile.
 */
#ifndef GPUNVME_DEVICE_COMING_H
#define GPUNVME_DEVICE_COMING_H

#include <gpunvme/device/elements.h>

#define GNVD_UNASKED 1ull /* instead of a frame's command: it is over, and no thread has asked for the page (for counters) */

/* ---- The queue of a page ---- */

/* As gnvd_check_page(), for a cache with prefetch. */
GNVD_FN int gnvd_check_prefetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				uint64_t page)
{
	return gnvd_check_cache(dq, cache, gnvd_source_kind(from) | GPUNVME_KIND_PREFETCH, page);
}

/* Queues of another device may have equal tags, but their commands are not those of this cache's pages. */
GNVD_FN int gnvd_check_finish(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from)
{
	int ret = gnvd_check_prefetch(dq, cache, from, 0);
	uint32_t m;

	if (!ret && gnvd_check_fetch(dq, cache, from, 0) == -GPUNVME_EXDEV)
		ret = -GPUNVME_EXDEV;
	for (m = 0; from.of == GNVD_OF_VOLUME && !ret && m < cache->members; m++) {
		dq = gnvd_member_dq(from.volume, m, 0);
		ret = dq->device && dq->device != gnvd_members_of(cache)[m].device ? -GPUNVME_EXDEV : 0;
	}
	return ret;
}

/* Return the controller of the volume on which the page begins. */
GNVD_FN uint32_t gnvd_page_member(const struct gpunvme_dpages *cache, const struct gpunvme_dvol *v, uint64_t page)
{
	uint64_t block = cache->lba_first + (page << (cache->page_shift - cache->lba_shift));

	return (uint32_t)((block >> v->stripe_shift) % v->members);
}

/*
 * Return the queue that prefetches a page. In a volume it follows from the page's number, for every thread: a controller's queues
 * have tags of their own, and the tags of two controllers may be equal.
 */
GNVD_FN const struct gpunvme_dq *gnvd_page_dq(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache,
					      struct gnvd_source from, uint64_t page)
{
	if (from.of != GNVD_OF_VOLUME)
		return dq;
	return gnvd_member_dq(from.volume, gnvd_page_member(cache, from.volume, page), (uint32_t)page * 0x9e3779b1u >> 16);
}

/* Take completions of each queue that may have a page coming. All threads of the wave name the same volume. */
GNVD_FN void gnvd_drain_all(const struct gpunvme_dq *dq, const struct gnvd_wave *w, struct gnvd_source from)
{
	uint32_t i;

	if (from.of != GNVD_OF_VOLUME)
		gnvd_drain(dq, w);
	else
		for (i = 0; i < from.volume->members * from.volume->queues; i++)
			gnvd_drain((const struct gpunvme_dq *)gnvd_lane_memory(from.volume->dq) + i, w);
}

/* ---- The command of a frame ---- */

GNVD_FN uint64_t gnvd_coming_at(const struct gpunvme_dpages *cache, uint32_t frame)
{
	return cache->frame + 8ull * cache->frames + 16ull * frame;
}

/*
 * Load the command of a frame. If the thread has seen the frame's page COMING, by gnvd_ld_after64(), the result is a hint: the
 * page may have been evicted and prefetched again since. If the frame is the thread's own now, the result is exact.
 */
GNVD_FN void gnvd_load_coming(const struct gpunvme_dpages *cache, uint32_t frame, struct gpunvme_req *req)
{
	uint64_t by;

	gnvd_order_agent(); /* pairs with that of gnvd_end_prefetch() */
	by = gnvd_ld64(gnvd_coming_at(cache, frame));
	req->gen = gnvd_ld64(gnvd_coming_at(cache, frame) + 8);
	req->deadline = 0;
	req->tag = (uint32_t)(by >> 32);
	req->cid = (uint32_t)by;
}

/* Was the queue with this tag made later than the other? A recovery makes a queue anew. */
GNVD_FN int gnvd_tag_later(uint32_t tag, uint32_t than)
{
	uint32_t by = ((tag >> 16) - (than >> 16)) & 0xffffu;

	return by && by < 0x8000u;
}

/* Is it a command of this queue that is over? */
GNVD_FN int gnvd_has_come(const struct gpunvme_dq *dq, const struct gpunvme_req *req)
{
	uint64_t word;

	if (req->tag != dq->tag || req->cid >= dq->cids)
		return 0;
	word = gnvd_ld64(gnvd_result_at(dq, req->cid));
	return !((word ^ req->gen) >> GPUNVME_RES_GEN_SHIFT) && gnvd_is_over(dq, word);
}

GNVD_FN void gnvd_count_one(const struct gpunvme_dpages *cache, uint64_t at)
{
	if (GPUNVME_COUNTERS && cache->flags & GPUNVME_DPAGES_STATS)
		gnvd_add64(at, 1);
}

/*
 * Begin to end the command of a frame whose page this thread has taken out of COMING. Return whether it is a command of this
 * queue. If not, its queue has ended, or is another one, and the frame is lost.
 */
GNVD_FN int gnvd_begin_end(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint32_t frame,
			   const struct gpunvme_req *req)
{
	gnvd_add64(GNVD_PAGES_STATE(cache, coming), ~0ull);
	gnvd_st64(gnvd_coming_at(cache, frame), 0);
	if (req->tag == dq->tag)
		return 1;
	gnvd_drop_frame(cache, frame, -GPUNVME_ENODEV);
	gnvd_count_one(cache, GNVD_PAGES_STATE(cache, failures));
	gnvd_count_one(cache, GNVD_PAGES_STATE(cache, wasted));
	return 0;
}

/* COMING -> READING, and load the command. *word: the word as READING began. Return 0 if the word is not as it was. */
GNVD_FN int gnvd_claim_coming(const struct gpunvme_dpages *cache, uint64_t at, uint32_t frame, uint64_t *word,
			      struct gpunvme_req *req)
{
	uint64_t now = (*word & (GPUNVME_PAGE_REFS | GPUNVME_PAGE_CHANGES)) | GPUNVME_PAGE_READING;

	if (gnvd_cas64(at, *word, now) != *word)
		return 0;
	(void)gnvd_ld_after64(at); /* 256 changes look like none: the frame's words may differ from those that the thread has seen */
	gnvd_load_coming(cache, frame, req);
	*word = now;
	return 1;
}

/*
 * All threads of the wave call. Those with `mine` set have claimed a page, and end READING when its command is over. mark: 0, or
 * GNVD_UNASKED where counters are kept and no thread has asked for the page. Return the status of the read.
 */
GNVD_FN int gnvd_end_coming(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			    struct gnvd_source from, int mine, uint64_t page, uint64_t word, uint32_t frame,
			    struct gpunvme_req *req, uint64_t mark)
{
	int ret = gnvd_wait(dq, w, mine, req, 0);

	if (mine && ret == -GPUNVME_ESTALE)
		ret = -GPUNVME_ETIMEDOUT; /* the result that only this thread may take is gone: the words are not reliable */
	else if (mine && ret < 0)
		gnvd_detach(dq, req);
	if (mine)
		gnvd_add64(GNVD_STATE(dq, prefetched), ~0ull);
	gnvd_copy_frames(w, cache, mine && !ret, frame);
	if (from.of == GNVD_OF_FILE && mine && !ret)
		gnvd_zero_holes(dq, cache, from, page, frame);
	if (mine && !ret && mark)
		gnvd_st64(gnvd_coming_at(cache, frame), mark);
	else if (mine && mark)
		gnvd_add64(GNVD_PAGES_STATE(cache, wasted), 1);
	if (mine)
		gnvd_end_reading(cache, page, frame, word, ret);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, failures), gnvd_ballot(w, mine && ret));
	return ret;
}

/* ---- Frames ---- */

/* As gnvd_take_frame(), for a page that is COMING by this queue and for which no thread waits, if it has come or never will. */
GNVD_FN int gnvd_take_coming(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint32_t frame, uint64_t at,
			     uint64_t word, int any, uint32_t *evicted)
{
	struct gpunvme_req req;
	int ret, over;

	gnvd_load_coming(cache, frame, &req);
	if (!gnvd_has_come(dq, &req) && !gnvd_tag_later(dq->tag, req.tag))
		return 0;
	if (word & GPUNVME_PAGE_USED && !any) {
		gnvd_cas64(at, word, word & ~GPUNVME_PAGE_USED);
		return 0;
	}
	if (gnvd_cas64(at, word, (word + (1ull << GPUNVME_PAGE_CHANGES_SHIFT)) & GPUNVME_PAGE_CHANGES) != word)
		return 0;
	(void)gnvd_ld_after64(at); /* as in gnvd_claim_coming() */
	gnvd_load_coming(cache, frame, &req);
	if (!gnvd_begin_end(dq, cache, frame, &req))
		return 0;
	gnvd_count_one(cache, GNVD_PAGES_STATE(cache, wasted));
	gnvd_add64(GNVD_STATE(dq, prefetched), ~0ull);
	over = gnvd_take(dq, &req, &ret);
	*evicted = over && ret != -GPUNVME_ESTALE;
	if (!over)
		gnvd_detach(dq, &req);
	if (!*evicted)
		gnvd_drop_frame(cache, frame, -GPUNVME_ETIMEDOUT);
	return (int)*evicted;
}

GNVD_FN int gnvd_take_frame_of(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			       uint32_t frame, int any, uint32_t *evicted)
{
	uint64_t owner = gnvd_ld64(gnvd_frame_at(cache, frame)), at, word;

	if (owner && owner < GPUNVME_FRAME_LOST) {
		at = gnvd_page_at(cache, owner - 1);
		word = gnvd_ld_after64(at);
		if (gnvd_page_state(word) == GPUNVME_PAGE_COMING)
			return word & GPUNVME_PAGE_REFS || word >> GPUNVME_PAGE_FRAME_SHIFT != frame
				       ? 0 : gnvd_take_coming(gnvd_page_dq(dq, cache, from, owner - 1), cache, frame, at, word, any,
							      evicted);
	}
	return gnvd_take_frame(cache, frame, any, evicted);
}

/* As gnvd_find_frame(). */
GNVD_FN uint32_t gnvd_find_any(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			       uint32_t *evicted)
{
	uint32_t near = cache->frames < GNVD_NEAR / 2 ? 2 * cache->frames : GNVD_NEAR, frame = 0, i;

	for (i = 0; i < near + cache->frames; i++) {
		frame = frame + 1 < cache->frames ? frame + 1 : 0;
		if (i < near)
			frame = (uint32_t)gnvd_fetch_add64(GNVD_PAGES_STATE(cache, hand), 1) % cache->frames;
		if (gnvd_take_frame_of(dq, cache, from, frame, i >= near, evicted))
			break;
	}
	return i < near + cache->frames ? frame : cache->frames;
}

/*
 * Find a frame for each thread with `want` set. cache->frames: there is none. Then pages may have come that no thread has noticed,
 * so the wave takes completions once and looks again.
 */
GNVD_FN uint32_t gnvd_find_frames(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				  struct gnvd_source from, int want)
{
	uint32_t frame = cache->frames, evicted = 0, turn;

	for (turn = 0; turn < 2 && gnvd_ballot(w, want && frame >= cache->frames); turn++) {
		if (turn)
			gnvd_drain_all(dq, w, from);
		if (want && frame >= cache->frames)
			frame = gnvd_find_any(dq, cache, from, &evicted);
	}
	gnvd_order_agent();
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, evictions), gnvd_ballot(w, evicted != 0));
	if (GPUNVME_COUNTERS && evicted && gnvd_ld64(gnvd_coming_at(cache, frame)) == GNVD_UNASKED) {
		gnvd_st64(gnvd_coming_at(cache, frame), 0);
		gnvd_count_one(cache, GNVD_PAGES_STATE(cache, wasted));
	}
	return frame;
}

/*
 * Claim the page of this frame, if it is COMING by this queue and no thread has claimed it. over: only if its command is over, so
 * that this thread waits for nothing.
 */
GNVD_FN int gnvd_claim_frame(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     uint32_t frame, int over, uint64_t *page, uint64_t *word, struct gpunvme_req *req)
{
	uint64_t owner = gnvd_ld64(gnvd_frame_at(cache, frame));

	if (!owner || owner >= GPUNVME_FRAME_LOST)
		return 0;
	*page = owner - 1;
	if (from.of == GNVD_OF_VOLUME && gnvd_page_dq(dq, cache, from, *page)->state != dq->state)
		return 0;
	*word = gnvd_ld_after64(gnvd_page_at(cache, *page));
	if (gnvd_page_state(*word) != GPUNVME_PAGE_COMING || *word >> GPUNVME_PAGE_FRAME_SHIFT != frame)
		return 0;
	gnvd_load_coming(cache, frame, req);
	if (req->tag != dq->tag || req->cid >= dq->cids || (over && !gnvd_has_come(dq, req)))
		return 0;
	if (!gnvd_claim_coming(cache, gnvd_page_at(cache, *page), frame, word, req))
		return 0;
	if (gnvd_begin_end(dq, cache, frame, req))
		return 1;
	gnvd_end_reading(cache, *page, cache->frames, *word, -GPUNVME_ENODEV);
	return 0;
}

#endif
