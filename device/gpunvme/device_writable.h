/* SPDX-License-Identifier: MIT */
/*
 * Pages and elements that lanes change: a cache made with GPUNVME_PAGECACHE_WRITE_BACK (pagecache.h), over a namespace; over
 * files and volumes: device_writable_sources.h. What device_pagecache.h and device_array.h say of reading holds here too, and:
 *
 * - The queue's view may write, and has all blocks of the cache's window: with another a call is -GPUNVME_EROFS, or finds pages
 *   that it cannot write. A cache that is only read is -GPUNVME_EROFS, too.
 * - What lanes change is on the drive when the page was written to make room, or after gpunvme_writable_flush() or, from the host,
 *   gpunvme_pagecache_flush(); durable after an NVMe flush behind that. What was not written when the process ends is gone.
 * - A page is read before it is changed, also where all of it will be.
 * - Words of 4 bytes, and single elements of 8, are read and written whole; one of 16 is two of 8, and ranges are words of 4 bytes.
 *   Of lanes that change the same one at the same time one is the last. A lane that has a page may store to it as it likes; what
 *   others read there meanwhile is theirs to order.
 * - Written is what lies between the first and the last part of the page that was changed, in whole blocks. A part is a block, or,
 *   of pages with more than 64 of them, a 64th of the page. Other writers of these blocks are not seen.
 * - gpunvme_page_get() and gpunvme_array_get() serve such a cache, too, and see what was changed. They write nothing to make room:
 *   -GPUNVME_EAGAIN when pages that were changed have all frames.
 *
 * How it works. A page that was changed has one reference more, which is the changes': so it does not go, whoever looks for a
 * frame, and device_pagecache.h knows nothing of all this. A frame has two words more, and a page one more state:
 *
 *   parts  bits: the parts of the frame's page that are not on the drive. Who makes them other than 0 leaves its reference
 *   kept   while the device may have a write of the frame that was given up
 *
 *   VALID -> WRITING   compare-and-swap of a word with one reference, by a lane that wants it written: the changes' is the only
 *                      one, so no lane has the page, and who asks for it waits, as for a reader
 *   WRITING -> VALID   by that lane, as one addition: written, without parts, and without their reference; or not, with both
 *
 * - A lane that has changed a page sets the parts before it gives its reference back. So who has made the page WRITING, and then
 *   finds parts, finds all of them, and nobody adds one: what was seen before the claim may have been another page's.
 * - The bytes do not change while the drive reads them, and nobody reads the page from the drive while it has changes.
 * - A write that fails leaves the page and its parts. Failures are counted (gpunvme_pagecache_info), told by a flush, and by who
 *   needs room and finds none: it tries four pages at most.
 * - A write that was given up (a time-out, a stop, a device that is gone or broke the protocol) may still be the device's. So the
 *   page is not written again, by any queue, until the host finds that the device has no command (gpunvme_pagecache_view, after a
 *   recovery): else the old write, which may come last, would overwrite the new one. Nor does it go, so that the old write can
 *   bring nothing but its own page. Lanes may have it all the while.
 * - Where frames are two, the writer's wave first copies the page back to the one that the device reads.
 * - Who changes a page when three quarters of the frames have changes writes another one, so that who looks for a frame finds one.
 * - Who writes waits for the device alone, which a queue bounds; who flushes waits for writers, and never for a lane that has a
 *   page.
 */
#ifndef GPUNVME_DEVICE_WRITABLE_H
#define GPUNVME_DEVICE_WRITABLE_H

#include <gpunvme/device/changes.h>

/* ---- Pages ---- */

/**
 * gpunvme_writable_page_get() - have a page that may be changed, and keep it
 * @dq:    the queue by which it is read if it is not there, and by which others are written to make room
 * @cache: a cache made with GPUNVME_PAGECACHE_WRITE_BACK
 * @page:  its number, counted from the first of the window
 * @p:     set on success: its bytes are at p->base, for this lane to read and to store to, until gpunvme_writable_page_put(). What
 *         lies behind the window's last block in its last page is not defined, and not written
 *
 * Return: as gpunvme_page_get(), where -GPUNVME_EAGAIN may also mean that all pages are being written; -GPUNVME_EROFS; why no page
 * could be written to make room.
 */
GPUNVME_FN int gpunvme_writable_page_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page,
					 struct gpunvme_page *p)
{
	return gnvd_have_writable(dq, cache, gnvd_no_source(), page, p);
}

/**
 * gpunvme_writable_page_put() - give a page back, changed or not
 * @dq:     as gpunvme_writable_page_get()
 * @cache:  its cache
 * @p:      the page; consumed on success: this lane neither reads nor changes it any more
 * @offset: first byte that was changed
 * @bytes:  up to the last one; 0: none was
 *
 * Any lane may do it for the one that got the page and for those that changed it, behind a barrier or fence of the kernel. What was
 * changed and is not said here may be lost. Where most pages have changes it writes another one, whose failure is not this call's.
 * Return: 0; -GPUNVME_ESTALE it was given back; with the following it was not: -GPUNVME_ERANGE the page has not these bytes, or the
 * window ends before; -GPUNVME_EROFS; -GPUNVME_EXDEV; -GPUNVME_EPROTONOSUPPORT.
 */
GPUNVME_FN int gpunvme_writable_page_put(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gpunvme_page *p,
					 uint32_t offset, uint32_t bytes)
{
	return gnvd_give_back(dq, cache, gnvd_no_source(), p, offset, bytes);
}

/* ---- Elements ---- */

/**
 * gpunvme_writable_array_get() - one element of a cache whose elements may be changed
 * Parameters and results as gpunvme_array_get(), and -GPUNVME_EROFS; why no page could be written to make room.
 */
GPUNVME_FN int gpunvme_writable_array_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
					  uint32_t bytes, void *value)
{
	return gnvd_load_element(dq, cache, gnvd_no_source(), index, bytes, value);
}

/**
 * gpunvme_writable_array_get_range() - elements that lie side by side
 * Parameters and results as gpunvme_array_get_range(), and those of gpunvme_writable_array_get().
 */
GPUNVME_FN int gpunvme_writable_array_get_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
						uint64_t count, uint32_t bytes, void *to)
{
	return gnvd_move_range(dq, cache, gnvd_no_source(), index, count, bytes, (uint64_t)(uintptr_t)to, 0);
}

/**
 * gpunvme_array_put() - change one element
 * @dq:    the queue by which its page is read if it is not there, and by which others are written to make room
 * @cache: a cache made with GPUNVME_PAGECACHE_WRITE_BACK; element 0 is at the first byte of its window
 * @index: number of the element
 * @bytes: of an element: 4, 8 or 16; a constant
 * @value: the element; a variable of the lane's
 *
 * The element is the cache's when the call returns 0, and the drive's after a flush.
 * Return: as gpunvme_writable_array_get(); with a failure nothing was changed.
 */
GPUNVME_FN int gpunvme_array_put(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes,
				 const void *value)
{
	return gnvd_store_element(dq, cache, gnvd_no_source(), index, bytes, value);
}

/**
 * gpunvme_array_put_range() - change elements that lie side by side
 * @dq:    as gpunvme_array_put()
 * @cache: a cache made with GPUNVME_PAGECACHE_WRITE_BACK
 * @index: number of the first element
 * @count: how many; 0 does nothing
 * @bytes: of an element: 4, 8 or 16
 * @from:  where they are: global memory of the lanes, no variable of a lane's; a multiple of 4
 *
 * Each lane has a range of its own. Where a wave changes one row together, gpunvme_writable_page_get() and a loop over its words
 * are faster.
 * Return: as gpunvme_array_put(); with a failure some of the elements may have been changed.
 */
GPUNVME_FN int gpunvme_array_put_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
				       uint64_t count, uint32_t bytes, const void *from)
{
	return gnvd_move_range(dq, cache, gnvd_no_source(), index, count, bytes, (uint64_t)(uintptr_t)from, 1);
}

/* ---- Flush ---- */

/**
 * gpunvme_writable_flush() - write what was changed, of a share of the cache, and wait
 * @dq:    the queue
 * @cache: a cache made with GPUNVME_PAGECACHE_WRITE_BACK
 * @part:  which share, counted from 0
 * @parts: of how many; lanes of a grid have gpunvme_lane() and gpunvme_lanes(), a lane on its own 0 and 1
 *
 * With 0 from all shares the drive has what was given back before the calls began. gpunvme_flush() behind that makes it durable:
 * one call for the grid.
 * A page that a lane has, the caller perhaps, is passed by, and so is one whose last write was given up: nobody waits for a lane.
 * Return: 0; the first failure, behind which the share was gone through all the same: that of a write; -GPUNVME_EBUSY the device
 * may still have a write of a page (gpunvme_pagecache_view ends that); -GPUNVME_ETIMEDOUT also when another lane's write does not
 * end; else -GPUNVME_EAGAIN lanes have a page that was changed: flush again when it was given back; -GPUNVME_EINVAL no such share;
 * -GPUNVME_EXDEV the queue is another namespace's, or another device's; -GPUNVME_EROFS; -GPUNVME_EPROTONOSUPPORT.
 */
GPUNVME_FN int gpunvme_writable_flush(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint32_t part,
				      uint32_t parts)
{
	return gnvd_flush_share(dq, cache, gnvd_no_source(), part, parts);
}

#if defined(__cplusplus)
namespace gpunvme {

/* What a writable array has its elements from. device_writable_sources.h has others. */
struct from_writable {
	typedef struct gpunvme_dq queue;

	static GNVD_MEMBER int get(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_writable_array_get(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_writable_array_get_range(q, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER int put(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, const void *value)
	{
		return gpunvme_array_put(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int put_range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count,
					 uint32_t bytes, const void *from)
	{
		return gpunvme_array_put_range(q, cache, index, count, bytes, from);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		return from_namespace::size(cache);
	}
};

/* As gpunvme::array, and a.put(i, value), a.put_range(i, n, from), whose failures are error()'s, too. */
template <typename T, typename From = from_writable> class writable_array : public array<T, From> {
	GNVD_MEMBER int note(int ret)
	{
		this->failed = this->failed ? this->failed : ret;
		return ret;
	}

public:
	GNVD_MEMBER writable_array(const typename From::queue *dq, const struct gpunvme_dpages *pages) : array<T, From>(dq, pages)
	{
	}

	GNVD_MEMBER int put(uint64_t index, T value)
	{
		return note(From::put(this->queue, this->cache, index, sizeof(T), &value));
	}

	GNVD_MEMBER int put_range(uint64_t index, uint64_t count, const T *from)
	{
		return note(From::put_range(this->queue, this->cache, index, count, sizeof(T), from));
	}
};

}
#endif

#endif
