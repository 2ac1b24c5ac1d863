/* SPDX-License-Identifier: MIT */
/*
 * Pages that a command reads while no lane waits: their queue, the words of their frames, their end, and the clock.
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
#ifndef GPUNVME_DEVICE_COMING_H
#define GPUNVME_DEVICE_COMING_H

#include <gpunvme/device/elements.h>

#define GNVD_UNASKED 1ull /* in the place of a frame's command: that is over, and nobody has asked for the page (of counters) */

/* ---- The queue of a page ---- */

GNVD_FN uint32_t gnvd_ahead_magic(struct gnvd_source from)
{
	if (from.of == GNVD_OF_NAMESPACE)
		return GPUNVME_DPAGES_AHEAD_MAGIC;
	return from.of == GNVD_OF_VOLUME ? GPUNVME_DPAGES_VOLUME_AHEAD_MAGIC : GPUNVME_DPAGES_FILE_AHEAD_MAGIC;
}

/* May this header work on the cache, and has it the page? */
GNVD_FN int gnvd_check_ahead(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     uint64_t page)
{
	if (cache->magic != gnvd_ahead_magic(from) || cache->major != GPUNVME_DQ_MAJOR || gnvd_check_dq(dq))
		return -GPUNVME_EPROTONOSUPPORT;
	return page <= (cache->lba_count - 1) >> (cache->page_shift - cache->lba_shift) ? 0 : -GPUNVME_ERANGE;
}

/* Queues of another device may have the tags of these, and their commands are somebody else's. */
GNVD_FN int gnvd_check_settle(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from)
{
	int ret = gnvd_check_ahead(dq, cache, from, 0);
	uint32_t m;

	if (!ret && gnvd_check_fetch(dq, cache, from, 0) == -GPUNVME_EXDEV)
		ret = -GPUNVME_EXDEV;
	for (m = 0; from.of == GNVD_OF_VOLUME && !ret && m < cache->members; m++) {
		dq = gnvd_member_dq(from.volume, m, 0);
		ret = dq->device && dq->device != gnvd_members_of(cache)[m].device ? -GPUNVME_EXDEV : 0;
	}
	return ret;
}

/* On which controller of a volume a page begins. */
GNVD_FN uint32_t gnvd_page_member(const struct gpunvme_dpages *cache, const struct gpunvme_dvol *v, uint64_t page)
{
	uint64_t block = cache->lba_first + (page << (cache->page_shift - cache->lba_shift));

	return (uint32_t)((block >> v->stripe_shift) % v->members);
}

/*
 * By which queue a page comes. Of a volume that follows from its number, whoever asks: a controller's queues have tags of their
 * own, and those of two controllers may be the same.
 */
GNVD_FN const struct gpunvme_dq *gnvd_page_dq(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache,
					      struct gnvd_source from, uint64_t page)
{
	if (from.of != GNVD_OF_VOLUME)
		return dq;
	return gnvd_member_dq(from.volume, gnvd_page_member(cache, from.volume, page), (uint32_t)page * 0x9e3779b1u >> 16);
}

/* What has completed on any queue that may have a page coming. Of a volume all lanes of the wave name the same. */
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
 * Of a frame whose page the lane has seen COMING, by gnvd_ld_after64(): a hint, for the page may have gone and come again since.
 * Of a frame that is the lane's own now it is the truth.
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

/* Is it a command of this queue, and over? */
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
 * The page of this frame is COMING no more, by this lane: whether its command is one of the queue. If not that has ended, or is
 * another, and the frame is lost.
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

/* COMING -> READING, and whose command that is. *word: what READING began with. Answers 0 where it is not COMING as it was. */
GNVD_FN int gnvd_claim_coming(const struct gpunvme_dpages *cache, uint64_t at, uint32_t frame, uint64_t *word,
			      struct gpunvme_req *req)
{
	uint64_t now = (*word & (GPUNVME_PAGE_REFS | GPUNVME_PAGE_CHANGES)) | GPUNVME_PAGE_READING;

	if (gnvd_cas64(at, *word, now) != *word)
		return 0;
	(void)gnvd_ld_after64(at); /* 256 changes are as none: the frame's words may be others than those that the lane has seen */
	gnvd_load_coming(cache, frame, req);
	*word = now;
	return 1;
}

/*
 * All lanes of the wave come; those with `mine` set have claimed a page, and end READING when its command is over. mark: 0, or
 * GNVD_UNASKED where counters are kept: nobody has asked. Answers how the read has ended.
 */
GNVD_FN int gnvd_end_coming(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			    struct gnvd_source from, int mine, uint64_t page, uint64_t word, uint32_t frame,
			    struct gpunvme_req *req, uint64_t mark)
{
	int ret = gnvd_wait(dq, w, mine, req, 0);

	if (mine && ret == -GPUNVME_ESTALE)
		ret = -GPUNVME_ETIMEDOUT; /* what nobody but this lane may take is gone: the words are not to be believed */
	else if (mine && ret < 0)
		gnvd_detach(dq, req);
	if (mine)
		gnvd_add64(GNVD_STATE(dq, ahead), ~0ull);
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

/* As gnvd_take_frame(), of a page that is COMING by this queue and for which nobody waits: when it has come, or never will. */
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
	gnvd_add64(GNVD_STATE(dq, ahead), ~0ull);
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
 * A frame for each lane with `want` set; cache->frames: there is none. Pages may have come without anybody's notice, so
 * completions are taken in once then, and it is looked for again.
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
 * The page of this frame, if it is COMING by this queue and nobody has gone on with it: then this lane does. over: only if its
 * command is, so that the lane waits for nothing.
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
