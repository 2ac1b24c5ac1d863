/* SPDX-License-Identifier: MIT */
/*
 * Pages of a cache: a thread reads a page into a frame, and the page stays there while a thread holds it. cache.h has the calls.
 *
 * How it works. Each page of the window has a word (dpages.h). Each change of a page's state is one atomic on that word:
 *
 *   EMPTY -> READING   compare-and-swap, by a thread that has a reference. No other thread reads the page.
 *   READING -> VALID   by that thread. The word then names the frame into which it has read.
 *   READING -> EMPTY   by that thread. The word then has its failure, and the count of changes is one higher.
 *   VALID -> EMPTY     compare-and-swap of a word without references, by a thread that needs the frame. It adds one to the count.
 *
 * A thread first adds its reference and then looks at the word. A page that is VALID then stays in its frame. If it is not VALID,
 * the thread looks again until it is, and one of the threads that look reads the page. When the count differs from its first
 * value, a read has failed, and its failure is this thread's, too. An element in a frame that threads write needs no reference:
 * elements.h looks at the word twice instead.
 *
 * Invariants:
 *
 * - A frame belongs to the VALID page whose word names it, or to the one thread that took it, or it is free or lost. The word of a
 *   frame names the page whose word to look at, and may be out of date.
 * - Where the device does not reach the threads' own memory, each frame has two places. The device writes the first one. The wave
 *   of the reader copies it to the second one before the page is VALID, and all others read the second one. A late write of the
 *   device hits the first one, which no thread reads then.
 * - Nothing writes a frame while its page has a reference. What a thread without a reference has read there counts only if the
 *   page's word, except for its references, was the same before and after.
 * - A word has the whole state of its page. So a compare-and-swap that finds the expected word is right, whatever happened in
 *   between: equal words mean equal states. Only a thread that looks without a reference needs the count.
 * - While a page is READING, only the references in its word change. So the reader ends READING with one addition.
 * - The reader waits for the device alone, for a time that the queue limits, and never for a frame. A thread that waits for a page
 *   waits for its reader. The threads of a wave go through their waits together, so no thread waits for one that cannot run. The
 *   clock skips pages that have references or are being read, and gives up after two rounds of the cache.
 * - When reads that never ended have taken all frames, and a thread's page needs a queue that has ended, the thread gets
 *   -GPUNVME_ESHUTDOWN at once.
 * - A frame is used again after a read that has ended, with any status. The frame of a read that was given up (time-out, stop, a
 *   device that is gone or broke the protocol) is lost, because the device may still write there. The host gives it back when it
 *   finds that the device has no command.
 */
#ifndef GPUNVME_DEVICE_PAGE_H
#define GPUNVME_DEVICE_PAGE_H

#include <gpunvme/device/source.h>

#define GNVD_PAGE_WAIT 8u /* command time-outs that a thread waits for each part of a page: its reader may wait for room, too */

/* ---- References ---- */

GNVD_FN uint64_t gnvd_add_refs(uint64_t at, uint64_t refs, int ask)
{
	if (ask)
		return gnvd_fetch_add_acquire64(at, refs);
	gnvd_add_release64(at, refs);
	return 0;
}

/*
 * Add `one` to the word at `at`, for each thread with `take` set. With `ask`, a constant, return the word as it was before,
 * perhaps with the references of other threads of the wave. Without `ask` no thread waits for the memory. Where several threads
 * want the same word, their first lane adds for all of them. This is done for two words at most. All other threads add for
 * themselves.
 */
GNVD_FN uint64_t gnvd_refer(const struct gnvd_wave *w, int take, uint64_t at, uint64_t one, int ask)
{
	uint64_t todo = gnvd_ballot(w, take), old = 0, same, theirs;
	uint32_t first, turn;
	int mine;

	for (turn = 0; turn < 2 && todo; turn++) {
		first = gnvd_lowest(todo);
		theirs = gnvd_shfl64(w, at, first);
		mine = take && at == theirs;
		same = gnvd_ballot(w, mine);
		if (gnvd_popc(same) == 1)
			break;
		theirs = 0;
		if (w->lane == first)
			theirs = gnvd_add_refs(at, one * gnvd_popc(same), ask);
		if (ask)
			theirs = gnvd_shfl64(w, theirs, first);
		if (mine) {
			old = theirs;
			take = 0;
		}
		todo &= ~same;
	}
	if (take)
		old = gnvd_add_refs(at, one, ask);
	return old;
}

/* Drop references. The threads' reads of their pages end before other threads may take the frames. */
GNVD_FN void gnvd_unrefer(const struct gnvd_wave *w, int take, uint64_t at)
{
	gnvd_meet_release(w);
	gnvd_refer(w, take, at, 0ull - GPUNVME_PAGE_REF, 0);
}

/* ---- Reading ---- */

/* Can this queue read the page? Called before a thread waits for the reader of the page, or makes room for it. */
GNVD_FN int gnvd_check_fetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     uint64_t page)
{
	uint64_t lba = cache->lba_first + (page << (cache->page_shift - cache->lba_shift)) - dq->lba_first;

	if (from.of != GNVD_OF_NAMESPACE)
		return gnvd_check_parts(dq, cache, from, page);
	if (cache->nsid != dq->nsid || cache->lba_shift != dq->lba_shift || (cache->device && dq->device && cache->device != dq->device))
		return -GPUNVME_EXDEV;
	return gnvd_check_window(dq, lba, gnvd_page_blocks(cache, page), 0);
}

/* Set the blocks to read and their place in the frame. left->ret: why the page cannot be read. */
GNVD_FN void gnvd_set_fetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			    uint64_t page, uint32_t frame, struct gnvd_left *left)
{
	left->offset = (uint64_t)frame << cache->page_shift;
	left->lba = cache->lba_first + (page << (cache->page_shift - cache->lba_shift)) - dq->lba_first;
	left->nblocks = gnvd_page_blocks(cache, page);
	left->ret = 0;
	if (frame >= cache->frames) /* perhaps because the queue has ended, and its reads with it */
		left->ret = gnvd_source_ended(dq, cache, from, page) ? -GPUNVME_ESHUTDOWN : gnvd_full(dq);
}

/*
 * End READING, by the thread that began it, with one addition. `word` is the page's word as READING began. The frame's word is
 * stored first: a thread that finds the page VALID without references finds the frame's owner, too, in the next round at the
 * latest.
 */
GNVD_FN void gnvd_end_reading(const struct gpunvme_dpages *cache, uint64_t page, uint32_t frame, uint64_t word, int ret)
{
	uint32_t result = ret ? (uint32_t)ret : frame;
	uint64_t add = (uint64_t)(result - (uint32_t)(word >> GPUNVME_PAGE_FRAME_SHIFT)) << GPUNVME_PAGE_FRAME_SHIFT;

	if (!ret)
		gnvd_st64(gnvd_frame_at(cache, frame), page + 1);
	else if (frame < cache->frames)
		gnvd_drop_frame(cache, frame, ret);
	if (!ret)
		add += GPUNVME_PAGE_VALID - GPUNVME_PAGE_READING + GPUNVME_PAGE_USED;
	else
		add += ((word + (1ull << GPUNVME_PAGE_CHANGES_SHIFT)) & GPUNVME_PAGE_CHANGES) - (word & GPUNVME_PAGE_CHANGES) -
		       GPUNVME_PAGE_READING;
	gnvd_order_agent();
	gnvd_fetch_add64(gnvd_page_at(cache, page), add);
}

/* All threads of the wave call. Those with `mine` set read and end READING. `word` is from before. Return those with a frame. */
GNVD_FN uint64_t gnvd_fetch_pages(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
				  struct gnvd_source from, int mine, uint64_t page, uint64_t word)
{
	struct gnvd_left left = { 0, 0, 0, GNVD_IDLE };
	uint32_t frame = 0, evicted = 0;
	uint64_t misses;
	int ret;

	if (mine) {
		frame = gnvd_find_frame(cache, &evicted);
		gnvd_set_fetch(dq, cache, from, page, frame, &left);
	}
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, evictions), gnvd_ballot(w, evicted != 0));
	if (from.of != GNVD_OF_NAMESPACE)
		gnvd_read_parts(dq, w, cache, from, page, frame, &left);
	else
		gnvd_run_wave(dq, w, &cache->buf, &left, GPUNVME_IO_READ);
	ret = left.ret;
	gnvd_copy_frames(w, cache, mine && !ret && (from.of == GNVD_OF_NAMESPACE || left.nblocks), frame);
	if (from.of == GNVD_OF_FILE && mine && !ret)
		gnvd_zero_holes(dq, cache, from, page, frame);
	if (mine)
		gnvd_end_reading(cache, page, frame, word + GPUNVME_PAGE_READING, ret);
	mine = mine && frame < cache->frames;
	misses = gnvd_ballot(w, mine);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, misses), misses);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, failures), gnvd_ballot(w, mine && ret));
	return misses;
}

/*
 * Return how many parts a reader may have to read one after the other, each for one command time-out. For a file: the parts of its
 * page. For a volume, whose queues have one time-out: the parts of its wave, which reads for one queue at a time.
 */
GNVD_FN uint32_t gnvd_page_parts(const struct gpunvme_dpages *cache, struct gnvd_source from)
{
	uint32_t blocks = 1u << (cache->page_shift - cache->lba_shift);

	if (from.of == GNVD_OF_NAMESPACE)
		return 1;
	if (from.of == GNVD_OF_VOLUME)
		return from.volume->members * (((blocks - 1) >> from.volume->stripe_shift) + 2);
	return from.file->extents - 1 < blocks ? from.file->extents : blocks;
}

/* Has the wave waited for too long? Readers end within the time-outs of their queues, so this should never be true. */
GNVD_FN int gnvd_page_late(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			   uint64_t *deadline)
{
	uint64_t now = gnvd_clock();

	if (!*deadline)
		*deadline = now + GNVD_PAGE_WAIT * gnvd_page_parts(cache, from) * dq->cmd_timeout;
	return now > *deadline;
}

/* What a thread sees of a page to which it has a reference, and which was not there. */
enum gnvd_look { GNVD_LOOK_AGAIN, GNVD_LOOK_MINE, GNVD_LOOK_OVER };

GNVD_FN enum gnvd_look gnvd_look_at_page(uint64_t at, uint64_t first, uint64_t *word, int *ret)
{
	*word = gnvd_ld_after64(at);
	if (gnvd_page_state(*word) == GPUNVME_PAGE_VALID)
		return GNVD_LOOK_OVER;
	if ((*word ^ first) & GPUNVME_PAGE_CHANGES) {
		*ret = (int)(uint32_t)(*word >> GPUNVME_PAGE_FRAME_SHIFT);
		return GNVD_LOOK_OVER;
	}
	if (gnvd_page_state(*word) == GPUNVME_PAGE_EMPTY && gnvd_cas64(at, *word, *word + GPUNVME_PAGE_READING) == *word)
		return GNVD_LOOK_MINE;
	return GNVD_LOOK_AGAIN;
}

/*
 * Wait for pages that were not there, or read them: those of the threads with `open` set, which have references. All threads of
 * the wave go through the loop together. When one has begun a read, the read ends before any thread looks again, and their time
 * begins anew (once for each thread at most). Return each thread's result. *word: the word of its page.
 */
GNVD_FN int gnvd_miss(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
		      struct gnvd_source from, int open, uint64_t page, uint64_t *word)
{
	uint64_t deadline = 0, first = *word, waits = gnvd_ballot(w, open), mine;
	enum gnvd_look look;
	uint32_t turn = 0;
	int ret = 0;

	while (gnvd_ballot(w, open)) {
		look = GNVD_LOOK_AGAIN;
		if (open)
			look = gnvd_look_at_page(gnvd_page_at(cache, page), first, word, &ret);
		open = open && look != GNVD_LOOK_OVER;
		mine = gnvd_ballot(w, look == GNVD_LOOK_MINE);
		if (mine) {
			waits &= ~gnvd_fetch_pages(dq, w, cache, from, look == GNVD_LOOK_MINE, page, *word);
			deadline = turn = 0;
			continue;
		}
		if ((turn & 15) == 15 && gnvd_page_late(dq, cache, from, &deadline) && open) {
			ret = -GPUNVME_ETIMEDOUT;
			open = 0;
		}
		gnvd_pause(turn++);
	}
	waits &= gnvd_ballot(w, ret != -GPUNVME_EAGAIN);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, waits), waits);
	return ret;
}

/* ---- Pages ---- */

/* Does this header fit the cache, is the cache of this kind, and has it the page? */
GNVD_FN int gnvd_check_cache(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint32_t kind, uint64_t page)
{
	int ret = gnvd_check_head(&cache->head, kind);

	if (ret)
		return ret;
	ret = gnvd_check_dq(dq);
	if (ret)
		return ret;
	return page <= (cache->lba_count - 1) >> (cache->page_shift - cache->lba_shift) ? 0 : -GPUNVME_ERANGE;
}

GNVD_FN int gnvd_check_page(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			    uint64_t page)
{
	return gnvd_check_cache(dq, cache, gnvd_source_kind(from), page);
}

/*
 * Get a page for each thread with `want` set. Return 0: *base is its address, and the thread has a reference. Else why not. The
 * limit of references is half of what the word can count, so that those which threads add before they find it do not overflow.
 */
GNVD_FN int gnvd_get_pages(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			   struct gnvd_source from, int want, uint64_t page, uint64_t *base)
{
	uint64_t at = gnvd_page_at(cache, page), word = gnvd_refer(w, want, at, GPUNVME_PAGE_REF, 1), hits;
	int full = want && (word & GPUNVME_PAGE_REFS) > GPUNVME_PAGE_REFS / 2;
	int open = want && !full && gnvd_page_state(word) != GPUNVME_PAGE_VALID, ret = full ? -GPUNVME_EAGAIN : 0;

	hits = gnvd_ballot(w, want && !full && !open);
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, hits), hits);
	if (want && !full && !open && !(word & GPUNVME_PAGE_USED))
		gnvd_or_after64(at, GPUNVME_PAGE_USED);
	if (open)
		ret = gnvd_check_fetch(dq, cache, from, page);
	open = open && !ret;
	if (gnvd_ballot(w, open)) {
		ret = gnvd_miss(dq, w, cache, from, open, page, &word) | ret;
		gnvd_order_agent();
	}
	if (gnvd_ballot(w, ret != 0))
		gnvd_unrefer(w, ret != 0, at);
	gnvd_meet_acquire(w); /* the word before the bytes */
	*base = (cache->local ? cache->local : cache->buf.base) + ((word >> GPUNVME_PAGE_FRAME_SHIFT) << cache->page_shift);
	return ret;
}

/* Get a thread's page, for any call. Threads that call from different places do not form one wave. */
GNVD_FN int gnvd_have_page(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			   uint64_t page, struct gpunvme_page *p)
{
	int ret = gnvd_check_page(dq, cache, from, page), err = 0;
	uint64_t base = 0;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_PAGE));
		GNVD_TOGETHER(w, err = gnvd_get_pages(dq, &w, cache, from, !ret, page, &base));
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

GNVD_FN int gnvd_put_page(const struct gpunvme_dq *dq, struct gpunvme_page *p)
{
	int has = p->word != 0;
	struct gnvd_wave w;

	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_UNPAGE);
		GNVD_TOGETHER(w, gnvd_unrefer(&w, has, p->word));
		gnvd_leave(&w);
	}
	p->word = 0;
	return has ? 0 : -GPUNVME_ESTALE;
}

#endif
