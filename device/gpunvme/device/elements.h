/* SPDX-License-Identifier: MIT */
/*
 * An array larger than memory, from a kernel: elements of 4, 8 or 16 bytes, and ranges of them. Elements are contiguous from the
 * first byte of a cache's window. The rules of page.h hold here, too. A thread holds a page for no longer than its call.
 */
#ifndef GPUNVME_DEVICE_ELEMENTS_H
#define GPUNVME_DEVICE_ELEMENTS_H

#include <gpunvme/device/page.h>

/* The rest of a thread's transfer, in bytes of the window. `value`: one element of `bytes`. NULL: to memory at `to`. */
struct gnvd_elements {
	uint64_t pos;
	uint64_t left;
	uint64_t to;
	uint32_t *value;
	uint32_t bytes;
};

/* Copy from a page. Elements have 4, 8 or 16 bytes and lie at multiples of their size, so one load reads each. */
GNVD_FN void gnvd_copy_elements(const struct gnvd_elements *e, uint64_t from, uint64_t n)
{
	const void *at = gnvd_lane_memory(from);
	const uint32_t *words = (const uint32_t *)at;
	uint64_t i;

	if (!e->value) {
		for (i = 0; i < n; i += 4)
			gnvd_st32(e->to + i, words[i / 4]);
	} else if (e->bytes == 16) {
		__builtin_memcpy(e->value, __builtin_assume_aligned(at, 16), 16);
	} else if (e->bytes == 8) {
		__builtin_memcpy(e->value, __builtin_assume_aligned(at, 8), 8);
	} else {
		e->value[0] = words[0];
	}
}

#if defined(GNVD_GLANCES)
/*
 * Read an element without a reference: first the word, then the bytes, then the word again. If the two words differ by references
 * only, the page was there all the time: each eviction and each failure counts in the word. 256 of them look like none, but take
 * longer than this call may. A thread evicts a page before it overwrites the bytes, in order, so a thread that sees new bytes
 * finds another word. This is only for frames that threads write, in whole words.
 */
GNVD_FN int gnvd_glance(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, const struct gnvd_elements *e)
{
	uint64_t start = gnvd_clock(), at = gnvd_page_at(cache, e->pos >> cache->page_shift), word = gnvd_ld_acquire64(at);
	uint64_t from = cache->local + (word >> GPUNVME_PAGE_FRAME_SHIFT << cache->page_shift), low, high, now;

	if (gnvd_page_state(word) != GPUNVME_PAGE_VALID)
		return 0;
	from += e->pos & ((1ull << cache->page_shift) - 1);
	low = gnvd_ld_acquire64(from & ~7ull);
	high = e->bytes == 16 ? gnvd_ld_acquire64(from + 8) : 0;
	now = gnvd_ld64(at);
	if ((now ^ word) & ~(GPUNVME_PAGE_REFS | GPUNVME_PAGE_USED))
		return 0;
	if (gnvd_clock() - start > dq->ticks_per_ms / GNVD_GLANCES) /* after what depends on the last load */
		return 0;
	if (!(now & GPUNVME_PAGE_USED))
		gnvd_cas64(at, now, now | GPUNVME_PAGE_USED); /* a failure does no harm */
	low >>= e->bytes == 4 ? (from & 4) * 8 : 0;
	__builtin_memcpy(e->value, &low, e->bytes == 4 ? 4 : 8);
	if (e->bytes == 16)
		__builtin_memcpy(e->value + 2, &high, 8);
	return 1;
}

/* All threads of the wave call, also those that want a range. Return whether this thread found its element without a reference. */
GNVD_FN int gnvd_find_elements(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache, int want,
			       const struct gnvd_elements *e)
{
	int found = want && e->value && cache->local && gnvd_glance(dq, cache, e);

	gnvd_count_pages(cache, w, GNVD_PAGES_STATE(cache, hits), gnvd_ballot(w, found));
	return found;
}
#else
#define gnvd_find_elements(dq, w, cache, want, e) 0
#endif

/*
 * Read elements, page by page. All threads of the wave call. Each thread copies from its page and gives it back before it asks for
 * another, so two frames are enough for any number of threads. A thread that finds no frame tries again until the time-out of a
 * command. Return each thread's result.
 */
GNVD_FN int gnvd_get_elements(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			      struct gnvd_source from, int ret, struct gnvd_elements *e)
{
	uint64_t until = 0, base = 0, size = 1ull << cache->page_shift, page, n, now;
	int open = !ret && e->left, found = gnvd_find_elements(dq, w, cache, open, e), err;
	uint32_t turn = 0;

	open = open && !found;
	while (gnvd_ballot(w, open)) {
		page = e->pos >> cache->page_shift;
		err = gnvd_get_pages(dq, w, cache, from, open, page, &base);
		n = size - (e->pos & (size - 1));
		n = n < e->left ? n : e->left;
		if (open && !err)
			gnvd_copy_elements(e, base + (e->pos & (size - 1)), n);
		gnvd_unrefer(w, open && !err, gnvd_page_at(cache, page));
		if (open && !err) {
			e->pos += n;
			e->to += n;
			e->left -= n;
			until = 0;
			open = e->left != 0;
		}
		turn = open && err ? turn + 1 : 0;
		if (!gnvd_ballot(w, open && err))
			continue;
		now = gnvd_clock();
		until = until ? until : now + dq->cmd_timeout;
		if (open && err && (err != -GPUNVME_EAGAIN || now > until)) {
			ret = err;
			open = 0;
		}
		gnvd_pause(turn);
	}
	return ret;
}

/* Are `count` elements of `bytes` bytes from number `index` within the window? Sets e->pos and e->left. */
GNVD_FN int gnvd_check_elements(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				uint64_t index, uint64_t count, uint32_t bytes, struct gnvd_elements *e)
{
	uint32_t shift = bytes == 16 ? 4 : bytes == 8 ? 3 : 2;
	uint64_t all = cache->lba_count << cache->lba_shift >> shift;
	int ret = gnvd_check_page(dq, cache, from, 0);

	e->pos = index << shift;
	e->left = count << shift;
	if (ret)
		return ret;
	if (bytes != 1u << shift)
		return -GPUNVME_EINVAL;
	if (from.of != GNVD_OF_NAMESPACE)
		all = gnvd_window_bytes(cache, from) >> shift;
	return GNVD_WITHIN(index, count, all) ? 0 : -GPUNVME_ERANGE;
}

GNVD_FN int gnvd_run_elements(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      int ret, struct gnvd_elements *e)
{
	struct gnvd_wave w;
	int err = ret;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_ARRAY));
		GNVD_TOGETHER(w, err = gnvd_get_elements(dq, &w, cache, from, ret, e));
		gnvd_leave(&w);
	}
	return err;
}

GNVD_FN int gnvd_array_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			   uint64_t index, uint32_t bytes, void *value)
{
	uint32_t words[4] = { 0, 0, 0, 0 };
	struct gnvd_elements e = { 0, 0, 0, words, bytes };
	int ret = gnvd_check_elements(dq, cache, from, index, 1, bytes, &e);

	ret = gnvd_run_elements(dq, cache, from, ret, &e);
	if (!ret)
		__builtin_memcpy(value, words, bytes);
	return ret;
}

GNVD_FN int gnvd_array_get_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				 uint64_t index, uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_elements e = { 0, 0, 0, NULL, 0 };
	int ret = gnvd_check_elements(dq, cache, from, index, count, bytes, &e);

	e.to = (uint64_t)(uintptr_t)to;
	if (!ret && (e.to & 3))
		ret = -GPUNVME_EINVAL;
	return gnvd_run_elements(dq, cache, from, ret, &e);
}

#endif
