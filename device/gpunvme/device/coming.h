/* SPDX-License-Identifier: MIT */
/*
 * Pages that a command reads while no lane waits: who goes on with one, its end, and the clock. Why that is right is said in
 * device_ahead.h.
 */
#ifndef GPUNVME_DEVICE_COMING_H
#define GPUNVME_DEVICE_COMING_H

#include <gpunvme/device_array.h>

#define GNVD_UNASKED 1ull /* in the place of a frame's command: that is over, and nobody has asked for the page (of counters) */

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
GNVD_FN int gnvd_end_coming(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int mine,
			    uint64_t page, uint64_t word, uint32_t frame, struct gpunvme_req *req, uint64_t mark)
{
	int ret = gnvd_wait(dq, w, mine, req, 0);

	if (mine && ret == -GPUNVME_ESTALE)
		ret = -GPUNVME_ETIMEDOUT; /* what nobody but this lane may take is gone: the words are not to be believed */
	else if (mine && ret < 0)
		gnvd_detach(dq, req);
	if (mine)
		gnvd_add64(GNVD_STATE(dq, ahead), ~0ull);
	gnvd_copy_frames(w, cache, mine && !ret, frame);
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

/* As gnvd_take_frame(), of a page that is COMING and for which nobody waits: when it has come, or never will. */
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

GNVD_FN int gnvd_take_frame_of(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint32_t frame, int any,
			       uint32_t *evicted)
{
	uint64_t owner = gnvd_ld64(gnvd_frame_at(cache, frame)), at, word;

	if (owner && owner < GPUNVME_FRAME_LOST) {
		at = gnvd_page_at(cache, owner - 1);
		word = gnvd_ld_after64(at);
		if (gnvd_page_state(word) == GPUNVME_PAGE_COMING)
			return word & GPUNVME_PAGE_REFS || word >> GPUNVME_PAGE_FRAME_SHIFT != frame
				       ? 0 : gnvd_take_coming(dq, cache, frame, at, word, any, evicted);
	}
	return gnvd_take_frame(cache, frame, any, evicted);
}

/* As gnvd_find_frame(). */
GNVD_FN uint32_t gnvd_find_any(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint32_t *evicted)
{
	uint32_t near = cache->frames < GNVD_NEAR / 2 ? 2 * cache->frames : GNVD_NEAR, frame = 0, i;

	for (i = 0; i < near + cache->frames; i++) {
		frame = frame + 1 < cache->frames ? frame + 1 : 0;
		if (i < near)
			frame = (uint32_t)gnvd_fetch_add64(GNVD_PAGES_STATE(cache, hand), 1) % cache->frames;
		if (gnvd_take_frame_of(dq, cache, frame, i >= near, evicted))
			break;
	}
	return i < near + cache->frames ? frame : cache->frames;
}

/*
 * A frame for each lane with `want` set; cache->frames: there is none. Pages may have come without anybody's notice, so
 * completions are taken in once then, and it is looked for again.
 */
GNVD_FN uint32_t gnvd_find_frames(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				  int want)
{
	uint32_t frame = cache->frames, evicted = 0, turn;

	for (turn = 0; turn < 2 && gnvd_ballot(w, want && frame >= cache->frames); turn++) {
		if (turn)
			gnvd_drain(dq, w);
		if (want && frame >= cache->frames)
			frame = gnvd_find_any(dq, cache, &evicted);
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
GNVD_FN int gnvd_claim_frame(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint32_t frame, int over,
			     uint64_t *page, uint64_t *word, struct gpunvme_req *req)
{
	uint64_t owner = gnvd_ld64(gnvd_frame_at(cache, frame));

	if (!owner || owner >= GPUNVME_FRAME_LOST)
		return 0;
	*page = owner - 1;
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

/* ---- Pages ---- */

/* A page to read. All lanes of the wave come; those with `mine` set end READING. Answers who had a frame. */
GNVD_FN uint64_t gnvd_fetch_ahead(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				  int mine, uint64_t page, uint64_t word)
{
	struct gnvd_left left = { 0, 0, 0, GNVD_IDLE };
	uint32_t frame = gnvd_find_frames(dq, w, cache, mine);
	uint64_t misses = gnvd_ballot(w, mine && frame < cache->frames);

	if (mine)
		gnvd_set_fetch(dq, cache, NULL, page, frame, &left);
	gnvd_run_wave(dq, w, &cache->buf, &left, GPUNVME_IO_READ);
	gnvd_copy_frames(w, cache, mine && !left.ret, frame);
	if (mine)
		gnvd_end_reading(cache, page, frame, word, left.ret);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, misses), misses);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, failures), gnvd_ballot(w, mine && frame < cache->frames && left.ret));
	return misses;
}

/* What a lane that has a reference sees of its page, and what it is to do about it. */
struct gnvd_sight {
	uint64_t word;  /* of a page that this lane is to read, or for whose command it is to wait: as READING began */
	struct gpunvme_req req; /* the command */
	uint32_t frame;
	int comes;
	int reads;
	int ret;
};

/* COMING: who asks by the queue that reads it, or by one made later, goes on. Answers whether there is more to look for. */
GNVD_FN int gnvd_look_at_coming(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t at, struct gnvd_sight *s)
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
 * As gnvd_look_at_page(). Where a lane goes on with what was prefetched behind a failure, the word does not tell that any more: who
 * missed it waits for this read instead. Answers whether there is more to look for.
 */
GNVD_FN int gnvd_look_ahead(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t at, uint64_t first,
			    struct gnvd_sight *s)
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

/* As gnvd_miss(): what was coming is ended, then what is to be read is read, before any lane looks again. */
GNVD_FN int gnvd_miss_ahead(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int open,
			    uint64_t page, uint64_t *word)
{
	struct gnvd_sight s = { *word, { 0, 0, 0, 0 }, 0, 0, 0, 0 };
	uint64_t deadline = 0, first = *word, waits = gnvd_ballot(w, open), come, read;
	uint32_t turn = 0;

	while (gnvd_ballot(w, open)) {
		s.comes = s.reads = 0;
		open = open && gnvd_look_ahead(dq, cache, gnvd_page_at(cache, page), first, &s);
		come = gnvd_ballot(w, s.comes);
		read = gnvd_ballot(w, s.reads);
		if (come)
			(void)gnvd_end_coming(dq, w, cache, s.comes, page, s.word, s.frame, &s.req, 0);
		if (read)
			waits &= ~gnvd_fetch_ahead(dq, w, cache, s.reads, page, s.word);
		turn = come | read ? 0 : turn;
		deadline = come | read ? 0 : deadline;
		if ((turn & 15) == 15 && gnvd_page_late(dq, cache, NULL, &deadline) && open) {
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

/* Somebody asks for a page that has come without that. */
GNVD_FN void gnvd_note_used(const struct gpunvme_dpages *cache, uint64_t word)
{
	uint64_t at = gnvd_coming_at(cache, (uint32_t)(word >> GPUNVME_PAGE_FRAME_SHIFT));

	if (GPUNVME_COUNTERS && cache->flags & GPUNVME_DPAGES_STATS && gnvd_ld64(at) == GNVD_UNASKED &&
	    gnvd_cas64(at, GNVD_UNASKED, 0) == GNVD_UNASKED)
		gnvd_add64(GNVD_PAGES_STATE(cache, used), 1);
}

/* As gnvd_get_pages(). */
GNVD_FN int gnvd_get_ahead(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int want,
			   uint64_t page, uint64_t *base)
{
	uint64_t at = gnvd_page_at(cache, page), word = gnvd_refer(w, want, at, GPUNVME_PAGE_REF, 1), hits;
	int ret = want && (word & GPUNVME_PAGE_REFS) > GPUNVME_PAGE_REFS / 2 ? -GPUNVME_EAGAIN : 0;
	int open = want && !ret && gnvd_page_state(word) != GPUNVME_PAGE_VALID, hit = want && !ret && !open;

	hits = gnvd_ballot(w, hit);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, hits), hits);
	if (hit && !(word & GPUNVME_PAGE_USED))
		gnvd_or_after64(at, GPUNVME_PAGE_USED);
	if (open)
		ret = gnvd_check_fetch(dq, cache, NULL, page);
	open = open && !ret;
	if (gnvd_ballot(w, open))
		ret |= gnvd_miss_ahead(dq, w, cache, open, page, &word);
	if (gnvd_ballot(w, want && !hit))
		gnvd_order_agent();
	if (gnvd_ballot(w, ret != 0))
		gnvd_unrefer(w, ret != 0, at);
	gnvd_meet_acquire(w); /* the word before the bytes */
	if (want && !ret) /* also who has waited for a lane that had not asked */
		gnvd_note_used(cache, word);
	*base = (cache->local ? cache->local : cache->buf.base) + ((word >> GPUNVME_PAGE_FRAME_SHIFT) << cache->page_shift);
	return ret;
}

#endif
