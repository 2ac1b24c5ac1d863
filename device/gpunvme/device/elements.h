/* SPDX-License-Identifier: MIT */
/*
 * An array larger than memory, from a kernel: elements of 4, 8 or 16 bytes, side by side from the first byte of a cache's window
 * on, and ranges of them. What page.h says holds here too; a lane has a page for no longer than its call.
 */
#ifndef GPUNVME_DEVICE_ELEMENTS_H
#define GPUNVME_DEVICE_ELEMENTS_H

#include <gpunvme/device/page.h>

/* What is left of a lane's transfer, in bytes of the window. `value`: one element of `bytes`; else to memory at `to`. */
struct gnvd_elements {
	uint64_t pos;
	uint64_t left;
	uint64_t to;
	uint32_t *value;
	uint32_t bytes;
};

/* From a page. Elements are 4, 8 or 16 bytes and lie at multiples of that, so that one load has each. */
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
 * An element without a reference: the word, the bytes, and the word again. Is it as before but for references, then the page was
 * there all the time, because each eviction and each failure counts in the word, and 256 of them, which look like none, take longer
 * than a glance may. Who overwrites the bytes has taken the page away before, in order, so who sees new bytes finds another word.
 * Only of frames that lanes write, in whole words.
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
	if (gnvd_clock() - start > dq->ticks_per_ms / GNVD_GLANCES) /* behind what depends on the last load */
		return 0;
	if (!(now & GPUNVME_PAGE_USED))
		gnvd_cas64(at, now, now | GPUNVME_PAGE_USED); /* in vain is no harm */
	low >>= e->bytes == 4 ? (from & 4) * 8 : 0;
	__builtin_memcpy(e->value, &low, e->bytes == 4 ? 4 : 8);
	if (e->bytes == 16)
		__builtin_memcpy(e->value + 2, &high, 8);
	return 1;
}

/* All lanes of the wave come, those that want a range, too. Answers who found an element so. */
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
 * All lanes of the wave, page by page: each lane copies and gives back what it got before it looks for more, so that two frames
 * serve any number of lanes. One that finds no frame tries again for as long as a command may take. Answers each lane's result.
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
		if (!gnvd_ballot(w, open && err))
			continue;
		now = gnvd_clock();
		until = until ? until : now + dq->cmd_timeout;
		if (open && err && (err != -GPUNVME_EAGAIN || now > until)) {
			ret = err;
			open = 0;
		}
		gnvd_pause(turn++);
	}
	return ret;
}

/* `count` elements of `bytes` bytes from number `index` on: within the window? Fills e but for where they go. */
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
