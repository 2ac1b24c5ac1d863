/* SPDX-License-Identifier: MIT */
/*
 * A cache of pages with prefetch, from a kernel: a lane asks for a page that will be wanted, and goes on. Caches of a namespace
 * that were made with GPUNVME_PAGECACHE_AHEAD have these calls for those of device_pagecache.h and device_array.h, whose rules
 * hold here, too; gpunvme_page_put() gives pages back. Those of files and volumes: device_ahead_sources.h. And:
 *
 * - All lanes name views of one queue; after its recovery, or its end, of another, made later. A page that is coming by the queue
 *   of before is read anew then, and its frame is lost, as of any read that was given up.
 * - Nobody need ask for a page that was prefetched, and no lane that began a prefetch need stay. But its identifier is the queue's
 *   again only when somebody asks for the page, its frame is needed, or gpunvme_ahead_settle() is called.
 * - A range is read ahead: while a lane copies from one page, up to four that follow are under way, where a quarter of the frames
 *   and of the identifiers has room. Where many lanes read that is taken, and each lane reads as without. What else is read in
 *   order, by elements or pages, is prefetched by hand: which page comes next a cache would have to find out in each hit.
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
#ifndef GPUNVME_DEVICE_AHEAD_H
#define GPUNVME_DEVICE_AHEAD_H

#include <gpunvme/device/prefetch.h>

/* ---- Prefetch ---- */

/**
 * gpunvme_ahead_prefetch() - begin to read a page, if it is not there
 * @dq:    the queue
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD
 * @page:  its number, counted from the first of the window
 *
 * Does not wait for the device. Who asks for the page later finds it, or waits for what is left of the read; a failure is told to
 * those. A page that nobody asks for goes as others do. It is read by one command, so the drive must take it as one.
 * Return: 0 the page is there, or comes, or somebody reads it; -GPUNVME_EAGAIN lanes have, or wait for, all pages that the cache
 * can hold, or the queue has no room, or half of its identifiers belong to pages that are coming: nothing was begun;
 * -GPUNVME_EOPNOTSUPP the queue has one identifier, of which prefetches may hold half: make it with a depth of 4 or more;
 * -GPUNVME_EMSGSIZE a page is more than one command can carry (MDTS), or lies across a boundary of the drive (NOIOB);
 * -GPUNVME_ERANGE there is no such page, or the queue's view has not its blocks; -GPUNVME_EXDEV the queue is another namespace's,
 * or another device's; -GPUNVME_ESHUTDOWN, -GPUNVME_ECANCELED and -GPUNVME_EPROTONOSUPPORT as at the head of device.h, the last
 * also of a cache of another kind.
 */
GPUNVME_FN int gpunvme_ahead_prefetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page)
{
	return gnvd_prefetch(dq, cache, gnvd_no_source(), page);
}

/**
 * gpunvme_ahead_settle() - wait for all pages that are coming
 * @dq:    the queue by which they come
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD, the same for all lanes of a wave, which share the work
 *
 * They are there then, or could not be read; the queue has their identifiers again. For the end of a kernel that has prefetched,
 * or one of its own: before gpunvme_pagecache_destroy(), where the queue stays. One wave is enough. What lanes prefetch or ask for
 * meanwhile, or pass by for a frame, may be left: for an end of all call it when no lane does. Of a device that is silent a lane
 * waits for one time-out, however many pages come.
 * Return: 0; -GPUNVME_ETIMEDOUT, -GPUNVME_ECANCELED and others below 0 as at the head of device.h: this lane has given up a read;
 * -GPUNVME_EXDEV the queue is another namespace's, or another device's.
 */
GPUNVME_FN int gpunvme_ahead_settle(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache)
{
	return gnvd_settle_all(dq, cache, gnvd_no_source());
}

/* ---- Pages ---- */

/**
 * gpunvme_ahead_page_get() - have a page of a cache with prefetch, and keep it
 * @dq:    the queue
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD
 * @page:  its number, counted from the first of the window
 * @p:     set on success, as by gpunvme_page_get(); give it back with gpunvme_page_put()
 *
 * Return: as gpunvme_page_get(). Besides, -GPUNVME_EXDEV or -GPUNVME_ESHUTDOWN the page is coming by a queue that was made later,
 * which is the one to name; -GPUNVME_EPROTONOSUPPORT the cache is one without prefetch.
 */
GPUNVME_FN int gpunvme_ahead_page_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page,
				      struct gpunvme_page *p)
{
	return gnvd_have_ahead(dq, cache, gnvd_no_source(), page, p);
}

/* ---- Elements ---- */

/**
 * gpunvme_ahead_array_get() - one element of a cache with prefetch
 * @dq:    the queue
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD
 * @index: number of the element; its page is index * bytes >> cache->page_shift, for gpunvme_ahead_prefetch()
 * @bytes: of an element: 4, 8 or 16; a constant
 * @value: the element, on success; a variable of the lane's
 *
 * Return: as gpunvme_array_get() and gpunvme_ahead_page_get().
 */
GPUNVME_FN int gpunvme_ahead_array_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
				       uint32_t bytes, void *value)
{
	return gnvd_ahead_element(dq, cache, gnvd_no_source(), index, bytes, value);
}

/**
 * gpunvme_ahead_array_get_range() - elements of a cache with prefetch that lie side by side
 * @dq:    the queue
 * @cache: a cache with GPUNVME_PAGECACHE_AHEAD
 * @index: number of the first element
 * @count: how many; 0 does nothing
 * @bytes: of an element: 4, 8 or 16
 * @to:    where they go: global memory of the lanes, no variable of a lane's; a multiple of 4
 *
 * Pages of the range that follow are prefetched meanwhile; of that no failure is told.
 * Return: as gpunvme_array_get_range() and gpunvme_ahead_page_get().
 */
GPUNVME_FN int gpunvme_ahead_array_get_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
					     uint64_t count, uint32_t bytes, void *to)
{
	return gnvd_ahead_range(dq, cache, gnvd_no_source(), index, count, bytes, to);
}

#if defined(__cplusplus)
namespace gpunvme {

/* What an array has its elements from: a cache with prefetch. */
struct from_ahead {
	typedef struct gpunvme_dq queue;

	static GNVD_MEMBER int get(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_ahead_array_get(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_ahead_array_get_range(q, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		return gnvd_window_bytes(cache, gnvd_no_source());
	}
};

/* As gpunvme::array. */
template <typename T> using ahead_array = array<T, from_ahead>;

}
#endif

#endif
