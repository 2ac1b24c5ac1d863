/* SPDX-License-Identifier: MIT */
/*
 * Write pages that threads have changed to the drive. changes.h explains why this is right.
 */
#ifndef GPUNVME_DEVICE_WRITEBACK_H
#define GPUNVME_DEVICE_WRITEBACK_H

#include <gpunvme/device/elements.h>

#define GNVD_WRITES 4u /* pages that one thread tries to write before it returns the failure */
#define GNVD_FLUSH_LOOKS 64u /* looks of a flush at a page that threads hold, before it skips it: element calls hold it for less */

/* ---- What was changed ---- */

/* After the words of all frames: GPUNVME_FRAME_LOST while the device may have a write of the frame that was given up, else 0. */
GNVD_FN uint64_t gnvd_kept_at(const struct gpunvme_dpages *cache, uint32_t frame)
{
	return gnvd_frame_at(cache, frame) + 8ull * cache->frames;
}

/* After those: a bit for each part of the frame's page that is not on the drive. */
GNVD_FN uint64_t gnvd_parts_at(const struct gpunvme_dpages *cache, uint32_t frame)
{
	return gnvd_frame_at(cache, frame) + 16ull * cache->frames;
}

/* Bytes of a part, as a power of two. */
GNVD_FN uint32_t gnvd_part_shift(const struct gpunvme_dpages *cache)
{
	return cache->page_shift - 6u > cache->lba_shift ? cache->page_shift - 6u : cache->lba_shift;
}

/* Return the parts of a page that contain these bytes, of which there is at least one. */
GNVD_FN uint64_t gnvd_parts_of(const struct gpunvme_dpages *cache, uint64_t offset, uint64_t bytes)
{
	uint32_t shift = gnvd_part_shift(cache), first = (uint32_t)(offset >> shift), last = (uint32_t)((offset + bytes - 1) >> shift);

	return ~0ull >> (63 - (last - first)) << first;
}

/*
 * Mark parts as changed, by a thread that has a reference, before it gives the reference back. Return whether the page was clean:
 * then the thread's reference becomes that of the changes. Bits that are set stay set while any thread holds the page.
 */
GNVD_FN int gnvd_mark(const struct gpunvme_dpages *cache, uint32_t frame, uint64_t parts)
{
	uint64_t at = gnvd_parts_at(cache, frame);

	gnvd_order_agent();
	if (!(parts & ~gnvd_ld64(at)))
		return 0;
	return gnvd_or_after64(at, parts) == 0;
}

/* ---- Claims ---- */

/* A page that is WRITING by this thread, which alone has it. */
struct gnvd_claim {
	uint32_t frame;
	uint64_t page;
	uint64_t parts;
};

/* State of a page for a writer: unchanged, its own, written by another thread, held by threads, or not to be written. */
enum gnvd_dirt { GNVD_DIRT_NONE, GNVD_DIRT_MINE, GNVD_DIRT_WRITTEN, GNVD_DIRT_HAD, GNVD_DIRT_KEPT };

GNVD_FN void gnvd_unclaim(const struct gpunvme_dpages *cache, uint64_t page, uint64_t refs)
{
	gnvd_order_agent();
	gnvd_fetch_add64(gnvd_page_at(cache, page), 0ull - (GPUNVME_PAGE_WRITING - GPUNVME_PAGE_VALID) - refs);
}

/*
 * Claim the page that lies in a frame, if it was changed. The thread looks at everything once more after the claim. Before, the
 * word of parts may have been that of another page, and the reference a thread's. After the claim it counts that the page had one
 * reference, and has parts.
 */
GNVD_FN enum gnvd_dirt gnvd_claim(const struct gpunvme_dpages *cache, uint32_t frame, struct gnvd_claim *c)
{
	uint64_t owner, at, word;

	if (!gnvd_ld_after64(gnvd_parts_at(cache, frame)))
		return GNVD_DIRT_NONE;
	gnvd_order_agent();
	if (gnvd_ld64(gnvd_kept_at(cache, frame)))
		return GNVD_DIRT_KEPT;
	owner = gnvd_ld64(gnvd_frame_at(cache, frame));
	if (!owner || owner >= GPUNVME_FRAME_LOST)
		return GNVD_DIRT_NONE;
	at = gnvd_page_at(cache, owner - 1);
	word = gnvd_ld64(at);
	if (word >> GPUNVME_PAGE_FRAME_SHIFT != frame || gnvd_page_state(word) < GPUNVME_PAGE_VALID)
		return GNVD_DIRT_NONE;
	if (gnvd_page_state(word) == GPUNVME_PAGE_WRITING)
		return GNVD_DIRT_WRITTEN;
	if ((word & GPUNVME_PAGE_REFS) != GPUNVME_PAGE_REF ||
	    gnvd_cas64(at, word, word + (GPUNVME_PAGE_WRITING - GPUNVME_PAGE_VALID)) != word)
		return GNVD_DIRT_HAD;
	(void)gnvd_ld_after64(at); /* the threads that gave it back have ended their changes */
	gnvd_order_agent();
	c->frame = frame;
	c->page = owner - 1;
	c->parts = gnvd_ld_after64(gnvd_parts_at(cache, frame));
	gnvd_order_agent();
	if (c->parts && !gnvd_ld64(gnvd_kept_at(cache, frame)))
		return GNVD_DIRT_MINE;
	gnvd_unclaim(cache, c->page, 0);
	return GNVD_DIRT_HAD;
}

/* May the device still have a command with this status? As in gnvd_drop_frame(). */
GNVD_FN int gnvd_given_up(int why)
{
	return why == -GPUNVME_ETIMEDOUT || why == -GPUNVME_ECANCELED || why == -GPUNVME_EPROTO || why == -GPUNVME_ENODEV;
}

/* End WRITING with the status of the write. Only after success drop the reference of the changes. */
GNVD_FN void gnvd_end_writing(const struct gpunvme_dpages *cache, const struct gnvd_claim *c, int ret)
{
	if (!ret) {
		gnvd_st64(gnvd_parts_at(cache, c->frame), 0);
		gnvd_add64(GNVD_PAGES_STATE(cache, changed), ~0ull);
	} else if (gnvd_given_up(ret)) {
		gnvd_st64(gnvd_kept_at(cache, c->frame), GPUNVME_FRAME_LOST);
		gnvd_add64(GNVD_PAGES_STATE(cache, lost), 1);
	}
	gnvd_unclaim(cache, c->page, ret ? 0 : GPUNVME_PAGE_REF);
}

/* ---- Writing ---- */

/* For a file or a volume: the same blocks, in parts. Check all of them before any is written. Holes are not written. */
GNVD_FN int gnvd_begin_write(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     const struct gnvd_claim *c, struct gnvd_parts *p)
{
	uint32_t shift = gnvd_part_shift(cache) - cache->lba_shift, first = gnvd_lowest(c->parts) << shift;
	uint32_t end = (gnvd_highest(c->parts) + 1) << shift;

	gnvd_begin_parts(dq, cache, from, c->page, c->frame, p);
	p->block += first;
	p->offset += (uint64_t)first << cache->lba_shift;
	p->left = (end < p->left ? end : p->left) - first;
	return gnvd_check_left(dq, cache, from, *p, 1);
}

/* Set the blocks from the first to the last part that was changed. */
GNVD_FN void gnvd_set_write(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, const struct gnvd_claim *c,
			    struct gnvd_left *left)
{
	uint32_t shift = gnvd_part_shift(cache) - cache->lba_shift, first = gnvd_lowest(c->parts) << shift;
	uint32_t end = (gnvd_highest(c->parts) + 1) << shift, blocks = gnvd_page_blocks(cache, c->page);

	left->offset = ((uint64_t)c->frame << cache->page_shift) + ((uint64_t)first << cache->lba_shift);
	left->lba = cache->lba_first + (c->page << (cache->page_shift - cache->lba_shift)) + first - dq->lba_first;
	left->nblocks = (end < blocks ? end : blocks) - first;
	left->ret = gnvd_check_window(dq, left->lba, left->nblocks, 1);
}

/* Copy pages from where threads hold them to where the device reads them: the reverse of the copy after a read. */
GNVD_FN void gnvd_copy_back(const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int mine, uint32_t frame)
{
	struct gpunvme_dpages back;

	back.page_shift = cache->page_shift; /* copying uses no other fields */
	back.state = cache->state;
	back.flags = cache->flags;
	back.buf.base = cache->local;
	back.local = cache->local ? cache->buf.base : 0;
	gnvd_copy_frames(w, &back, mine, frame);
}

/*
 * Write the parts of a page. First zero what threads have stored where the file has no blocks or after its end: the rest of its
 * last block is written as zeroes.
 */
GNVD_FN void gnvd_write_parts(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			      struct gnvd_source from, int mine, const struct gnvd_claim *c, struct gnvd_left *left)
{
	struct gnvd_parts p;

	gnvd_begin_parts(dq, cache, from, c->page, c->frame, &p);
	if (mine)
		left->ret = gnvd_begin_write(dq, cache, from, c, &p);
	if (mine && !left->ret && from.of == GNVD_OF_FILE)
		gnvd_zero_holes(dq, cache, from, c->page, c->frame);
	gnvd_copy_back(w, cache, mine && !left->ret, c->frame);
	gnvd_transfer_parts(dq, w, cache, from, &p, left, GPUNVME_IO_WRITE);
}

/* All threads of the wave call. Those with `mine` set write the page that they claimed and end WRITING. Return each result. */
GNVD_FN int gnvd_write_back(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			    struct gnvd_source from, int mine, const struct gnvd_claim *c)
{
	struct gnvd_left left = { 0, 0, 0, GNVD_IDLE };
	uint64_t writes = gnvd_ballot(w, mine);

	if (!writes)
		return 0;
	if (from.of != GNVD_OF_NAMESPACE) {
		gnvd_write_parts(dq, w, cache, from, mine, c, &left);
	} else {
		if (mine)
			gnvd_set_write(dq, cache, c, &left);
		gnvd_copy_back(w, cache, mine && !left.ret, c->frame);
		gnvd_run_wave(dq, w, &cache->buf, &left, GPUNVME_IO_WRITE);
	}
	if (mine)
		gnvd_end_writing(cache, c, left.ret);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, writes), writes);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, write_failures), gnvd_ballot(w, mine && left.ret));
	return mine ? left.ret : 0;
}

/* ---- Room ---- */

/* The progress of a thread that looks for a page to write. */
struct gnvd_sweep {
	uint32_t turn;
	uint32_t frame;
	uint32_t failed; /* writes */
	int busy;        /* some frame may become free without a write */
};

/* Go to the next page that can be written, once around. The hand is not that of the clock, which looks for pages to evict. */
GNVD_FN int gnvd_sweep_on(const struct gpunvme_dpages *cache, struct gnvd_sweep *s, struct gnvd_claim *c)
{
	uint32_t frames = cache->frames;
	enum gnvd_dirt dirt;

	if (!s->turn)
		s->frame = (uint32_t)gnvd_fetch_add64(GNVD_PAGES_STATE(cache, write_hand), 1) % frames;
	for (; s->turn < frames && s->failed < GNVD_WRITES; s->turn++) {
		dirt = gnvd_claim(cache, s->frame, c);
		s->frame = s->frame + 1 < frames ? s->frame + 1 : 0;
		if (dirt == GNVD_DIRT_MINE)
			return 1;
		s->busy |= dirt != GNVD_DIRT_KEPT;
	}
	return 0;
}

/*
 * All threads of the wave call. Each with `want` set writes one page. Return 0: written. -GPUNVME_EAGAIN: others may have written a
 * page or given one back, or the host has to act. Else why no page can be written.
 */
GNVD_FN int gnvd_write_one(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			   struct gnvd_source from, int want)
{
	struct gnvd_claim claim = { 0, 0, 0 };
	struct gnvd_sweep sweep = { 0, 0, 0, 0 };
	int mine, err, why = -GPUNVME_EAGAIN;

	while (gnvd_ballot(w, want)) {
		mine = want && gnvd_sweep_on(cache, &sweep, &claim);
		err = gnvd_write_back(dq, w, cache, from, mine, &claim);
		want = mine && err;
		if (mine && (!err || !sweep.failed))
			why = err;
		sweep.turn += want;
		sweep.failed += want;
	}
	return why && sweep.busy && sweep.failed < GNVD_WRITES ? -GPUNVME_EAGAIN : why;
}

/* ---- Flush ---- */

/* Return why a flush skips a frame that it has found in this state for the turn-th time. 0: it does not skip the frame. */
GNVD_FN int gnvd_pass_by(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			 enum gnvd_dirt dirt, uint32_t turn, uint64_t *deadline)
{
	uint64_t now;

	if (dirt == GNVD_DIRT_KEPT)
		return -GPUNVME_EBUSY;
	if (dirt == GNVD_DIRT_HAD && turn >= GNVD_FLUSH_LOOKS)
		return -GPUNVME_EAGAIN;
	if (dirt != GNVD_DIRT_WRITTEN || (turn & 15) != 15)
		return 0;
	now = gnvd_clock();
	*deadline = *deadline ? *deadline : now + GNVD_PAGE_WAIT * gnvd_page_parts(cache, from) * dq->cmd_timeout;
	return now > *deadline ? -GPUNVME_ETIMEDOUT : 0;
}

/* All threads of the wave call, each for its frames from `frame` on. Return the first failure, else -EAGAIN for a page in use. */
GNVD_FN int gnvd_flush_frames(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			      struct gnvd_source from, int ret, uint64_t frame, uint32_t parts)
{
	struct gnvd_claim claim = { 0, 0, 0 };
	uint64_t deadline = 0;
	uint32_t turn = 0;
	enum gnvd_dirt dirt;
	int open = !ret, err, over;

	for (;;) {
		open = open && frame < cache->frames;
		if (!gnvd_ballot(w, open))
			return ret;
		dirt = open ? gnvd_claim(cache, (uint32_t)frame, &claim) : GNVD_DIRT_NONE;
		err = gnvd_write_back(dq, w, cache, from, dirt == GNVD_DIRT_MINE, &claim);
		if (dirt != GNVD_DIRT_MINE)
			err = gnvd_pass_by(dq, cache, from, dirt, turn, &deadline);
		if (err && (!ret || ret == -GPUNVME_EAGAIN))
			ret = err;
		over = dirt <= GNVD_DIRT_MINE || err;
		frame += over ? parts : 0;
		turn = over ? 0 : turn + 1;
		deadline = over ? 0 : deadline;
		gnvd_pause(turn);
	}
}

/* ---- Elements ---- */

/* Load from a page that other threads may change meanwhile. Words of 4 bytes, and of 8 for single elements, are read whole. */
GNVD_FN void gnvd_load_elements(const struct gnvd_elements *e, uint64_t from, uint64_t n)
{
	uint64_t i, half;

	if (!e->value) {
		for (i = 0; i < n; i += 4)
			gnvd_st32(e->to + i, gnvd_ld32(from + i));
	} else if (e->bytes == 4) {
		e->value[0] = gnvd_ld32(from);
	} else {
		half = gnvd_ld64(from);
		__builtin_memcpy(e->value, &half, 8);
		half = e->bytes == 16 ? gnvd_ld64(from + 8) : 0;
		if (e->bytes == 16)
			__builtin_memcpy(e->value + 2, &half, 8);
	}
}

/* Store to such a page. */
GNVD_FN void gnvd_store_elements(const struct gnvd_elements *e, uint64_t to, uint64_t n)
{
	const uint32_t *words = (const uint32_t *)gnvd_lane_memory(e->to);
	uint64_t i, half;

	if (!e->value) {
		for (i = 0; i < n; i += 4)
			gnvd_st32(to + i, words[i / 4]);
	} else if (e->bytes == 4) {
		gnvd_st32(to, e->value[0]);
	} else {
		__builtin_memcpy(&half, e->value, 8);
		gnvd_st64(to, half);
		if (e->bytes == 16) {
			__builtin_memcpy(&half, e->value + 2, 8);
			gnvd_st64(to + 8, half);
		}
	}
}

#endif
