/* SPDX-License-Identifier: MIT */
/*
 * Pages and elements that threads change, of a namespace, a file or a volume: the calls of cache.h. On a CPU some functions are
 * not inlined, and are the same for all three sources, so that less is compiled.
 *
 * How it works. A changed page has one more reference, the reference of its changes. So no thread evicts it, and page.h has no
 * code for changes. A frame has two more words, and a page has one more state:
 *
 *   parts  bits: the parts of the frame's page that are not on the drive. The thread that sets the first bit leaves its reference.
 *   kept   not 0 while the device may have a write of the frame that was given up
 *
 *   VALID -> WRITING   compare-and-swap of a word with one reference, by a thread that wants it written. The only reference is that
 *                      of the changes, so no thread holds the page. A thread that asks for the page waits, as for a reader.
 *   WRITING -> VALID   by that thread, with one addition. After success it drops parts and their reference, else both stay.
 *
 * - A thread that has changed a page sets the parts before it gives its reference back. So a thread that has made the page WRITING
 *   and then finds parts finds all of them, and no thread adds one. What it saw before the claim may have been another page's.
 * - The bytes do not change while the drive reads them. No thread reads the page from the drive while it has changes.
 * - A write that fails leaves the page and its parts. Failures are counted (gpunvme_cache_info). A flush returns them, and so
 *   does a call that needs room and finds none: it tries four pages at most.
 * - A write that was given up (a time-out, a stop, a device that is gone or broke the protocol) may still be in flight on the
 *   device. So no queue writes the page again until the host finds that the device has no command (gpunvme_cache_view, after a
 *   recovery): else the old write could end last and overwrite the new one. The page is not evicted either, so that the old write
 *   can write nothing but its own page. Threads may hold the page meanwhile.
 * - Where frames have two places, the writer's wave first copies the page back to the place that the device reads.
 * - A thread that changes a page when three quarters of the frames have changes writes another page, so that threads find frames.
 * - A writer waits for the device alone, for a time that the queue limits. A flush waits for writers, and never for a thread that
 *   holds a page.
 */
#ifndef GPUNVME_DEVICE_CHANGES_H
#define GPUNVME_DEVICE_CHANGES_H

#include <gpunvme/device/writeback.h>

/* Return the flags of what the kernel received: the queue's view, and the file or volume. */
GNVD_FN uint32_t gnvd_source_flags(const struct gpunvme_dq *dq, struct gnvd_source from)
{
	if (from.of == GNVD_OF_NAMESPACE)
		return dq->flags;
	return from.of == GNVD_OF_VOLUME ? from.volume->flags : dq->flags & from.file->flags;
}

/* May this queue change pages of the cache and write them? */
GNVD_FN int gnvd_check_writable(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from)
{
	int ret = gnvd_check_page(dq, cache, from, 0);

	if (ret)
		return ret;
	if (!(cache->flags & GPUNVME_DPAGES_WRITABLE) || !(gnvd_source_flags(dq, from) & GPUNVME_DQ_WRITE))
		return -GPUNVME_EROFS;
	if (from.of == GNVD_OF_VOLUME)
		return from.volume->lba_shift == cache->lba_shift && from.volume->members == cache->members ? 0 : -GPUNVME_EXDEV;
	if (cache->nsid != dq->nsid || cache->lba_shift != dq->lba_shift || (cache->device && dq->device && cache->device != dq->device))
		return -GPUNVME_EXDEV;
	return 0;
}

/* ---- Pages ---- */

/* Write a page to make room. Return 0: there may be room now. Else as gnvd_write_one(). */
GNVD_FN int gnvd_make_room(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from)
{
	struct gnvd_wave w;
	int ret = 0;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_ROOM));
		GNVD_TOGETHER(w, ret = gnvd_write_one(dq, &w, cache, from, 1));
		gnvd_leave(&w);
	}
	return ret;
}

GPUNVME_FN int gnvd_have_writable(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				  uint64_t page, struct gpunvme_page *p)
{
	int ret = gnvd_check_writable(dq, cache, from);
	uint32_t turn;

	for (turn = 0; !ret && turn < GNVD_WRITES; turn++) {
		ret = gnvd_have_page(dq, cache, from, page, p);
		if (ret != -GPUNVME_EAGAIN)
			return ret;
		ret = gnvd_make_room(dq, cache, from);
	}
	return ret ? ret : -GPUNVME_EAGAIN;
}

/* May this queue change these bytes of the thread's page? */
GNVD_FN int gnvd_check_change(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      const struct gpunvme_page *p, uint32_t offset, uint32_t bytes)
{
	int ret = gnvd_check_writable(dq, cache, from);
	uint64_t page, all, left;

	if (ret)
		return ret;
	if (!p->word)
		return -GPUNVME_ESTALE;
	page = (p->word - cache->table) / 8;
	all = (uint64_t)gnvd_page_blocks(cache, page) << cache->lba_shift;
	if (from.of != GNVD_OF_NAMESPACE) {
		left = gnvd_window_bytes(cache, from) - (page << cache->page_shift);
		all = left < all ? left : all;
	}
	if (!GNVD_WITHIN(offset, bytes, all))
		return -GPUNVME_ERANGE;
	return gnvd_check_blocks(dq, cache, from, (page << cache->page_shift) + offset, bytes);
}

/* All threads of the wave call. Those with `has` set give back a page, of which these parts were changed, or none. */
GNVD_FN void gnvd_put_changed(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			      struct gnvd_source from, int has, const struct gpunvme_page *p, uint64_t parts)
{
	uint64_t first = cache->local ? cache->local : cache->buf.base, most = cache->frames - cache->frames / 4;
	int stays = has && parts && gnvd_mark(cache, (uint32_t)((p->base - first) >> cache->page_shift), parts);
	int many = stays && gnvd_fetch_add64(GNVD_PAGES_STATE(cache, changed), 1) >= most;

	gnvd_unrefer(w, has && !stays, p->word);
	if (gnvd_ballot(w, many))
		gnvd_write_one(dq, w, cache, from, many);
}

GPUNVME_FN int gnvd_give_back(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      struct gpunvme_page *p, uint32_t offset, uint32_t bytes)
{
	int ret = gnvd_check_change(dq, cache, from, p, offset, bytes);
	uint64_t parts = !ret && bytes ? gnvd_parts_of(cache, offset, bytes) : 0;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_CHANGED));
		GNVD_TOGETHER(w, gnvd_put_changed(dq, &w, cache, from, !ret, p, parts));
		gnvd_leave(&w);
	}
	p->word = ret ? p->word : 0;
	return ret;
}

/* ---- Elements ---- */

/* Move the rest of a thread's transfer, page by page. A thread that finds no frame tries again until the time-out of a command. */
GNVD_FN int gnvd_move_elements(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			       struct gnvd_elements *e, int change)
{
	uint64_t size = 1ull << cache->page_shift, until = 0, offset, n, now;
	struct gpunvme_page p = { 0, 0 };
	uint32_t turn = 0;
	int ret = change ? gnvd_check_blocks(dq, cache, from, e->pos, e->left) : 0;

	while (e->left && !ret) {
		ret = gnvd_have_writable(dq, cache, from, e->pos >> cache->page_shift, &p);
		offset = e->pos & (size - 1);
		n = size - offset < e->left ? size - offset : e->left;
		if (!ret && change)
			gnvd_store_elements(e, p.base + offset, n);
		else if (!ret)
			gnvd_load_elements(e, p.base + offset, n);
		if (!ret) {
			ret = gnvd_give_back(dq, cache, from, &p, (uint32_t)offset, change ? (uint32_t)n : 0);
			e->pos += n;
			e->to += n;
			e->left -= n;
			until = turn = 0;
			continue;
		}
		now = gnvd_clock();
		until = until ? until : now + dq->cmd_timeout;
		if (ret == -GPUNVME_EAGAIN && now <= until)
			ret = 0;
		gnvd_pause(turn++);
	}
	return ret;
}

/* Move one element from or to `words`. */
GNVD_FN int gnvd_move_element(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      uint64_t index, uint32_t bytes, uint32_t *words, int change)
{
	struct gnvd_elements e = { 0, 0, 0, words, bytes };
	int ret = gnvd_check_writable(dq, cache, from);

	ret = ret ? ret : gnvd_check_elements(dq, cache, from, index, 1, bytes, &e);
	return ret ? ret : gnvd_move_elements(dq, cache, from, &e, change);
}

GNVD_FN int gnvd_load_element(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      uint64_t index, uint32_t bytes, void *value)
{
	uint32_t words[4] = { 0, 0, 0, 0 };
	int ret = gnvd_move_element(dq, cache, from, index, bytes, words, 0);

	if (!ret)
		__builtin_memcpy(value, words, bytes);
	return ret;
}

GNVD_FN int gnvd_store_element(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			       uint64_t index, uint32_t bytes, const void *value)
{
	uint32_t words[4] = { 0, 0, 0, 0 };

	if (bytes > sizeof(words))
		return -GPUNVME_EINVAL;
	__builtin_memcpy(words, value, bytes);
	return gnvd_move_element(dq, cache, from, index, bytes, words, 1);
}

/* Move elements that lie side by side, from or to memory of the threads. */
GNVD_FN int gnvd_move_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			    uint64_t index, uint64_t count, uint32_t bytes, uint64_t memory, int change)
{
	struct gnvd_elements e = { 0, 0, 0, NULL, 0 };
	int ret = gnvd_check_writable(dq, cache, from);

	ret = ret ? ret : gnvd_check_elements(dq, cache, from, index, count, bytes, &e);
	if (ret)
		return ret;
	if (memory & 3)
		return -GPUNVME_EINVAL;
	e.to = memory;
	return gnvd_move_elements(dq, cache, from, &e, change);
}

GNVD_FN int gnvd_load_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			    uint64_t index, uint64_t count, uint32_t bytes, void *to)
{
	return gnvd_move_range(dq, cache, from, index, count, bytes, (uint64_t)(uintptr_t)to, 0);
}

GNVD_FN int gnvd_store_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     uint64_t index, uint64_t count, uint32_t bytes, const void *memory)
{
	return gnvd_move_range(dq, cache, from, index, count, bytes, (uint64_t)(uintptr_t)memory, 1);
}

/* ---- Flush ---- */

GPUNVME_FN int gnvd_flush_share(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
				uint32_t part, uint32_t parts)
{
	int ret = part < parts ? gnvd_check_writable(dq, cache, from) : -GPUNVME_EINVAL, err = ret;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, gnvd_site_of(from, GNVD_SITE_WRITE_BACK));
		GNVD_TOGETHER(w, err = gnvd_flush_frames(dq, &w, cache, from, ret, part, parts));
		gnvd_leave(&w);
	}
	return err;
}

#endif
