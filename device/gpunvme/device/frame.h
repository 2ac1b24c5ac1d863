/* SPDX-License-Identifier: MIT */
/*
 * The words of a page cache, and its frames: how a thread gets a frame, fills it for all threads and gives it up. page.h explains
 * why this is right.
 */
#ifndef GPUNVME_DEVICE_FRAME_H
#define GPUNVME_DEVICE_FRAME_H

#include <gpunvme/device/queue.h>

#define GNVD_PAGES_STATE(cache, field) ((cache)->state + offsetof(struct gpunvme_cache_state, field))
#define GNVD_NEAR 128u /* frames that the clock's hand passes for one thread, before it takes any frame without references */

GNVD_FN uint64_t gnvd_page_at(const struct gpunvme_dpages *cache, uint64_t page)
{
	return cache->table + 8 * page;
}

GNVD_FN uint64_t gnvd_frame_at(const struct gpunvme_dpages *cache, uint32_t frame)
{
	return cache->frame + 8ull * frame;
}

GNVD_FN uint32_t gnvd_page_state(uint64_t word)
{
	return (uint32_t)(word & GPUNVME_PAGE_STATE);
}

/* When threads of a wave use several caches at once, all of them count for one of the caches. */
GNVD_FN void gnvd_count_pages(const struct gpunvme_dpages *cache, const struct gnvd_wave *w, uint64_t at, uint64_t lanes)
{
	if (GPUNVME_COUNTERS && cache->flags & GPUNVME_DPAGES_STATS && lanes && w->rank == 0)
		gnvd_add64(at, gnvd_popc(lanes));
}

/* Take the frame if it is free, or if its page has no reference and was not used lately. With `any` also if it was used. */
GNVD_FN int gnvd_take_frame(const struct gpunvme_dpages *cache, uint32_t frame, int any, uint32_t *evicted)
{
	uint64_t owner = gnvd_ld64(gnvd_frame_at(cache, frame)), at, word;

	if (!owner) {
		if (gnvd_cas64(gnvd_frame_at(cache, frame), 0, GPUNVME_FRAME_TAKEN) != 0)
			return 0;
		(void)gnvd_ld_after64(gnvd_frame_at(cache, frame)); /* bytes of a failed read land before those of this thread */
		return 1;
	}
	if (owner >= GPUNVME_FRAME_LOST)
		return 0;
	at = gnvd_page_at(cache, owner - 1);
	word = gnvd_ld64(at);
	if ((word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS)) != GPUNVME_PAGE_VALID || word >> GPUNVME_PAGE_FRAME_SHIFT != frame)
		return 0;
	if (word & GPUNVME_PAGE_USED && !any) {
		gnvd_cas64(at, word, word & ~GPUNVME_PAGE_USED);
		return 0;
	}
	if (gnvd_cas64(at, word, (word + (1ull << GPUNVME_PAGE_CHANGES_SHIFT)) & GPUNVME_PAGE_CHANGES) != word)
		return 0;
	(void)gnvd_ld_after64(at); /* the threads that gave it back have ended their reads */
	*evicted = 1;
	return 1;
}

/* Find a frame for this thread alone. cache->frames: there is none. */
GNVD_FN uint32_t gnvd_find_frame(const struct gpunvme_dpages *cache, uint32_t *evicted)
{
	uint32_t frames = cache->frames, near = frames < GNVD_NEAR / 2 ? 2 * frames : GNVD_NEAR, frame = 0, i;

	for (i = 0; i < near + frames; i++) {
		if (i < near)
			frame = (uint32_t)gnvd_fetch_add64(GNVD_PAGES_STATE(cache, hand), 1) % frames;
		else
			frame = frame + 1 < frames ? frame + 1 : 0;
		if (gnvd_take_frame(cache, frame, i >= near, evicted)) {
			gnvd_order_agent();
			return frame;
		}
	}
	return frames;
}

/* Give up the frame of a read that failed. */
GNVD_FN void gnvd_drop_frame(const struct gpunvme_dpages *cache, uint32_t frame, int why)
{
	int lost = why == -GPUNVME_ETIMEDOUT || why == -GPUNVME_ECANCELED || why == -GPUNVME_EPROTO || why == -GPUNVME_ENODEV;

	gnvd_st_release64(gnvd_frame_at(cache, frame), lost ? GPUNVME_FRAME_LOST : 0);
	if (lost)
		gnvd_add64(GNVD_PAGES_STATE(cache, lost), 1);
}

/*
 * Copy pages from where the device writes them to where threads read them, for the threads with `mine` set. All threads of the
 * wave copy one page after the other together. They load enough words at once to hide the latency of the host's memory. Threads of
 * a wave may use several caches. All copy for all.
 */
GNVD_FN void gnvd_copy_frames(const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int mine, uint32_t frame)
{
	uint64_t todo = gnvd_ballot(w, mine && cache->local), at = (uint64_t)frame << cache->page_shift, to, a, b, c, d;
	uint32_t words, first, n = w->count, i;
	const uint64_t *from;

	if (!todo)
		return;
	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, copied), todo);
	gnvd_meet(w); /* what one thread has acquired with its completion, all have acquired */
#if defined(GNVD_GLANCES)
	gnvd_order_agent(); /* the eviction of the frame's old page before these bytes: gnvd_glance() */
#endif
	for (; todo; todo &= todo - 1) {
		first = gnvd_lowest(todo);
		from = (const uint64_t *)gnvd_lane_memory(gnvd_shfl64(w, cache->buf.base + at, first));
		to = gnvd_shfl64(w, cache->local + at, first);
		words = gnvd_shfl32(w, 1u << (cache->page_shift - 3), first);
		for (i = w->rank; i + 3 * n < words; i += 4 * n) {
			a = from[i];
			b = from[i + n];
			c = from[i + 2 * n];
			d = from[i + 3 * n];
			gnvd_st64(to + 8ull * i, a);
			gnvd_st64(to + 8ull * (i + n), b);
			gnvd_st64(to + 8ull * (i + 2 * n), c);
			gnvd_st64(to + 8ull * (i + 3 * n), d);
		}
		for (; i < words; i += n)
			gnvd_st64(to + 8ull * i, from[i]);
	}
	gnvd_meet(w); /* before any of them makes its page VALID */
}

#endif
