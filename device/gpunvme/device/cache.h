/* SPDX-License-Identifier: MIT */
/*
 * Pages and elements of a queue's namespace, of a volume or of a file, through a page cache (cache.h). Only device.h includes
 * this. Its rules hold here too.
 *
 * A kernel receives a struct gpunvme_dpages (from gpunvme_cache_view) with the view of the queue or of the volume. Each thread
 * makes a source from the two: a struct gpunvme_cached_queue, _file or _volume, or one of gpunvme_prefetch_* or gpunvme_writable_*
 * (dpages.h). Its type names the source of the pages and the calls that it has:
 *
 *                                                                     gpunvme_cached_*   gpunvme_prefetch_*   gpunvme_writable_*
 *   gpunvme_page_get, _page_put, gpunvme_array_load, _load_range      yes                yes                  yes
 *   gpunvme_prefetch, _prefetch_finish                                no                 yes                  no
 *   gpunvme_array_store, _array_store_range, gpunvme_write_back       no                 no                   yes
 *
 * C++ has gpunvme::array<T, Source> over each of the nine types (array.h).
 *
 * - The queue's view must contain the cache's blocks, and belong to its device and namespace. A thread may name any such queue.
 * - Threads of a wave that call together for the same page pay for it once: one atomic, one read.
 * - A thread may hold many pages. When threads hold all of them, the next one gets -GPUNVME_EAGAIN at once: no call waits for a
 *   thread that holds a page.
 * - The cache must have the source of the type, and be made for its calls: GPUNVME_CACHE_PREFETCH for gpunvme_prefetch_*, no such
 *   flag for the others. Else -GPUNVME_EINVAL. gpunvme_writable_* needs GPUNVME_CACHE_WRITE_BACK. Else -GPUNVME_EROFS.
 *
 * Files. Element 0 is at the first byte of the file, or of the cache's window. Holes, blocks that were allocated and never
 * written, and the rest of a page after the end of the file are zeroes. A call for an element that does not end within the file
 * returns -GPUNVME_ERANGE. Threads do not see what others do to the file after it was opened (file.h).
 *
 * Volumes. A page may lie on several controllers. Its thread reads one part after the other, and the first failure is the page's.
 * Threads of a wave read together what lies on one controller. -GPUNVME_EXDEV: the volume does not have the controllers and
 * stripes of the cache's volume.
 *
 * Prefetch:
 * - All threads name views of one queue. After its recovery, or its end, they name a queue that was made later. A page that the
 *   earlier queue was prefetching is read again then, and its frame is lost. In a volume the page's number selects the queue that
 *   prefetches it. Threads of a wave that call together name the same volume, and all threads name views of the same queues.
 * - No thread need request a page that was prefetched. But the queue gets its command identifier back only when a thread requests
 *   the page, when its frame is needed, or by gpunvme_prefetch_finish().
 * - Ranges are prefetched: while a thread copies from one page, up to four pages that follow are in flight. This happens while it
 *   uses fewer than a quarter of the frames and of the identifiers.
 * - A page that takes several commands, because it lies in several extents or on several controllers, is not prefetched.
 *
 * Changes:
 * - The queue's view must be able to write, and contain all blocks of the cache's window. With another view a call returns
 *   -GPUNVME_EROFS, or finds pages that it cannot write.
 * - A change is on the drive when the page was written to make room, after gpunvme_write_back(), or, from the host, after
 *   gpunvme_cache_flush(). It is durable after a gpunvme_flush() that follows. A change that was not written when the process
 *   ends is lost.
 * - A page is read before it is changed, also when all of it will be changed.
 * - Words of 4 bytes, and single elements of 8, are read and written whole. An element of 16 bytes is two of 8, and ranges are
 *   words of 4 bytes. If several threads change the same word at the same time, one of them is last. A thread that holds a page
 *   may store to it freely. The kernel must order its stores with the reads of other threads.
 * - Whole blocks are written: from the first to the last part of the page that was changed. A part is a block. In pages with more
 *   than 64 blocks it is a 64th of the page. Changes of these blocks by other writers are not seen, and are overwritten.
 * - gpunvme_cached_* works on such a cache too, and sees the changes. It writes nothing to make room: it returns -GPUNVME_EAGAIN
 *   when pages with changes have all frames.
 * - A file is changed in place where it has blocks. Its size, extents and times stay. A change of a hole, or of a block that was
 *   allocated and never written, returns -GPUNVME_EOPNOTSUPP. The rest of the file's last block after its end is written as
 *   zeroes. The file must have been opened with GPUNVME_FILE_WRITE, or leased (gpunvme_file_lease() in file.h), when the cache was
 *   made. Write back before you return the lease.
 * - A page of several parts is written one part after the other. The first failure is returned, and the whole page remains
 *   changed.
 */
#ifndef GPUNVME_DEVICE_CACHE_H
#define GPUNVME_DEVICE_CACHE_H

#include <gpunvme/device/changes.h>
#include <gpunvme/device/prefetch.h>

/* In C these have names from which select.h selects. */
#if defined(__cplusplus)
#define GNVD_CACHE(source, call) gpunvme_##call
#else
#define GNVD_CACHE(source, call) gnvd_##source##_##call
#endif

/* ---- Pages ---- */

/**
 * gpunvme_page_get() - get a page, and hold it
 * @src:  the queue, file or volume, through its cache
 * @page: its number, counted from the first page of the cache's window
 * @p:    set on success: the page's bytes are at p->base, for this thread to read, until gpunvme_page_put(). With
 *        gpunvme_writable_* it may store to them, too. Bytes after the window's last block in its last page are not defined, and
 *        not written
 *
 * Reads the page by the queue if the cache lacks it. After a failure the next call tries again.
 * Return:
 * - 0: this thread holds the page.
 * - -GPUNVME_EAGAIN: threads hold, read or write all pages that the cache can have, or this page has a million references: put
 *   some back.
 * - -GPUNVME_ERANGE: there is no such page, it lies after the end of the file, or the queue's view lacks its blocks.
 * - -GPUNVME_EXDEV: the queue is of another namespace or device.
 * - With gpunvme_prefetch_* -GPUNVME_EXDEV or -GPUNVME_ESHUTDOWN: a queue that was made later prefetches the page: name that
 *   queue.
 * - With gpunvme_writable_* also the failure of a write that was to make room.
 * - The failure of the read, for all threads that waited for it, as the heads of device/cache.h and device.h say.
 */
GPUNVME_FN int GNVD_CACHE(cached_queue, page_get)(const struct gpunvme_cached_queue *src, uint64_t page, struct gpunvme_page *p)
{
	return gnvd_have_page(src->dq, src->cache, gnvd_no_source(), page, p);
}

/**
 * gpunvme_page_put() - give a page back that was not changed
 * @src: as for gpunvme_page_get(), with any queue of the device
 * @p:   the page. Consumed: this thread must not read it any more
 *
 * Any thread may call it for the thread that got the page, after a barrier or fence of the kernel. gpunvme_writable_* has a call
 * of the same name with the bytes that were changed instead.
 * Return: 0; -GPUNVME_ESTALE: it was given back before; of a volume also -GPUNVME_EPROTONOSUPPORT and -GPUNVME_EINVAL.
 */
GPUNVME_FN int GNVD_CACHE(cached_queue, page_put)(const struct gpunvme_cached_queue *src, struct gpunvme_page *p)
{
	return gnvd_put_page(src->dq, p);
}

/**
 * gpunvme_page_put() - give a page back, changed or not
 * @src:    as for gpunvme_page_get()
 * @p:      the page. Consumed on success: this thread must neither read nor change it any more
 * @offset: first byte that was changed, from the start of the page
 * @bytes:  number of bytes up to the last one that was changed. 0: none was
 *
 * Any thread may call it after a barrier or fence of the kernel, for the thread that got the page and those that changed it.
 * Changes outside these bytes may be lost. When most pages have changes, the call writes another page and does not return the
 * failure of that write.
 * Return:
 * - 0: the page was given back.
 * - -GPUNVME_ESTALE: it was given back before. After all other errors this thread still holds it.
 * - -GPUNVME_ERANGE: the page lacks these bytes, or the window or the file ends before them.
 * - -GPUNVME_EOPNOTSUPP: the file has no blocks for some of these bytes, or they were never written. Put it with @bytes 0, or with
 *   bytes that have blocks. Other stores are lost with the page.
 * - -GPUNVME_EROFS; -GPUNVME_EXDEV; -GPUNVME_EPROTONOSUPPORT; -GPUNVME_EINVAL: another kind of descriptor.
 */
GPUNVME_FN int GNVD_CACHE(writable_queue, page_put)(const struct gpunvme_writable_queue *src, struct gpunvme_page *p,
						    uint32_t offset, uint32_t bytes)
{
	return gnvd_give_back(src->dq, src->cache, gnvd_no_source(), p, offset, bytes);
}

/* ---- Elements ---- */

/**
 * gpunvme_array_load() - load one element
 * @src:   the queue, file or volume, through its cache. Element 0 is at the first byte of the cache's window
 * @index: number of the element. Its page is index * bytes >> cache->page_shift
 * @bytes: of an element: 4, 8 or 16. A constant
 * @value: set on success. A variable of the thread
 * Return:
 * - 0: @value is set.
 * - -GPUNVME_EINVAL: no such size.
 * - -GPUNVME_ERANGE: the element does not end within the window, or the file.
 * - -GPUNVME_EAGAIN: threads held all pages that the cache can have, for the time-out of a command.
 * - Otherwise as gpunvme_page_get().
 */
GPUNVME_FN int GNVD_CACHE(cached_queue, array_load)(const struct gpunvme_cached_queue *src, uint64_t index, uint32_t bytes,
						    void *value)
{
	return gnvd_array_get(src->dq, src->cache, gnvd_no_source(), index, bytes, value);
}

/**
 * gpunvme_array_load_range() - load adjacent elements
 * @src:   as for gpunvme_array_load()
 * @index: number of the first element
 * @count: number of elements. 0 does nothing
 * @bytes: of an element: 4, 8 or 16
 * @to:    destination, a multiple of 4: global memory of the threads, no variable of a thread
 *
 * Each thread has its own range. If a wave reads one row together, gpunvme_page_get() and a loop over its words are faster. With
 * gpunvme_prefetch_* the pages of the range that follow are prefetched meanwhile. A failure of a prefetch is not returned.
 * Return: as gpunvme_array_load(). With a failure some of the elements may have been stored.
 */
GPUNVME_FN int GNVD_CACHE(cached_queue, array_load_range)(const struct gpunvme_cached_queue *src, uint64_t index, uint64_t count,
							  uint32_t bytes, void *to)
{
	return gnvd_array_get_range(src->dq, src->cache, gnvd_no_source(), index, count, bytes, to);
}

/**
 * gpunvme_array_store() - change one element
 * @src:   the queue, file or volume, through a cache whose pages may be changed
 * @index: number of the element
 * @bytes: of an element: 4, 8 or 16. A constant
 * @value: the element. A variable of the thread
 *
 * The element is in the cache when the call returns 0, and on the drive after gpunvme_write_back().
 * Return: as gpunvme_array_load(); -GPUNVME_EOPNOTSUPP: the file has no blocks there, or they were never written, and only its
 * file system can fill them. With a failure nothing was changed.
 */
GPUNVME_FN int GNVD_CACHE(writable_queue, array_store)(const struct gpunvme_writable_queue *src, uint64_t index, uint32_t bytes,
						       const void *value)
{
	return gnvd_store_element(src->dq, src->cache, gnvd_no_source(), index, bytes, value);
}

/**
 * gpunvme_array_store_range() - change adjacent elements
 * @src:    as for gpunvme_array_store()
 * @index:  number of the first element
 * @count:  number of elements. 0 does nothing
 * @bytes:  of an element: 4, 8 or 16
 * @memory: source, a multiple of 4: global memory of the threads, no variable of a thread
 *
 * Each thread has its own range. If a wave changes one row together, gpunvme_page_get() and a loop over its words are faster.
 * Return: as gpunvme_array_store(). With -GPUNVME_ERANGE and -GPUNVME_EOPNOTSUPP, for any element, nothing was changed. With
 * another failure some elements may have been changed.
 */
GPUNVME_FN int GNVD_CACHE(writable_queue, array_store_range)(const struct gpunvme_writable_queue *src, uint64_t index,
							     uint64_t count, uint32_t bytes, const void *memory)
{
	return gnvd_store_range(src->dq, src->cache, gnvd_no_source(), index, count, bytes, memory);
}

/* ---- Writing back ---- */

/**
 * gpunvme_write_back() - write the changed pages of a share of the cache, and wait
 * @src:   the queue, file or volume, through a cache whose pages may be changed
 * @part:  number of the share, from 0 on
 * @parts: number of shares. Threads of a grid pass gpunvme_thread_id() and gpunvme_thread_count(), a single thread 0 and 1
 *
 * After all shares have returned 0, the drive has all changes that threads gave back before the calls began. A gpunvme_flush() of
 * the queue or volume after that makes them durable: one call for the grid. The call skips a page that a thread holds, perhaps the
 * caller, and a page whose last write was given up. It waits for no thread that holds a page.
 * Return: (after a failure the rest of the share was tried all the same)
 * - 0: the share is written.
 * - The first failure of a write.
 * - -GPUNVME_EBUSY: the device may still have a write of a page. gpunvme_cache_view() ends that.
 * - -GPUNVME_ETIMEDOUT: also if another thread's write does not end.
 * - -GPUNVME_EAGAIN, if there is no other failure: threads hold a page that was changed. Call again when it was given back.
 * - -GPUNVME_EINVAL: no such share, or another kind of descriptor.
 * - -GPUNVME_EXDEV: the queue is of another namespace or device.
 * - -GPUNVME_EROFS; -GPUNVME_EPROTONOSUPPORT.
 */
GPUNVME_FN int GNVD_CACHE(writable_queue, write_back)(const struct gpunvme_writable_queue *src, uint32_t part, uint32_t parts)
{
	return gnvd_flush_share(src->dq, src->cache, gnvd_no_source(), part, parts);
}

/* ---- Prefetch ---- */

/**
 * gpunvme_prefetch() - start reading a page that the cache lacks
 * @src:  the queue, file or volume, through a cache with prefetch
 * @page: its number, counted from the first page of the cache's window
 *
 * Does not wait for the device. A thread that requests the page later finds it, or waits for the end of the read, and gets its
 * failure. A page that no thread requests is evicted like others. One command reads the page, so the drive must accept it as one.
 * Return:
 * - 0: the page is in the cache, or is coming, or a thread reads it, or the file has a hole there.
 * - -GPUNVME_EAGAIN: nothing was begun. Threads hold, or wait for, all pages that the cache can have. Or the queue is full, or
 *   half of its identifiers belong to pages that are coming.
 * - -GPUNVME_EOPNOTSUPP: the queue has one identifier, and prefetches may hold half: make it with a depth of 4 or more.
 * - -GPUNVME_EMSGSIZE: one command cannot read the page. It is larger than a command (MDTS), or lies across a boundary of the
 *   drive (NOIOB), in several extents or on several controllers.
 * - -GPUNVME_ERANGE: there is no such page, or the queue's view lacks its blocks.
 * - -GPUNVME_EXDEV: the queue is of another namespace or device.
 * - -GPUNVME_ESHUTDOWN, -GPUNVME_ECANCELED, -GPUNVME_EINVAL, -GPUNVME_EPROTONOSUPPORT: as the heads of device.h and device/cache.h
 *   say.
 */
GPUNVME_FN int GNVD_CACHE(prefetch_queue, prefetch)(const struct gpunvme_prefetch_queue *src, uint64_t page)
{
	return gnvd_prefetch(src->dq, src->cache, gnvd_no_source(), page);
}

/**
 * gpunvme_prefetch_finish() - wait for all pages that are coming
 * @src: the queue, file or volume, through a cache with prefetch, the same for all threads of a wave, which share the work
 *
 * The pages are then in the cache, or could not be read, and the queue has their identifiers again. Call it at the end of a kernel
 * that has prefetched, or in its own kernel before gpunvme_cache_destroy(), if the queue stays. One wave is enough. It may
 * miss pages that threads prefetch or request meanwhile, or look at for a frame. To end all of them, call it when no thread does
 * so. If a device is silent, a thread waits for one time-out, however many pages are coming. For a volume the call finishes one
 * queue after the other, also when one fails. So there it waits for one time-out of each queue of the silent controller.
 * Return:
 * - 0: no page is coming.
 * - -GPUNVME_EXDEV: the queue is of another namespace or device, or the volume lacks the controllers and stripes of the cache's.
 * - -GPUNVME_ETIMEDOUT, -GPUNVME_ECANCELED and others below 0 as the head of device.h says: this thread has given up a read.
 */
GPUNVME_FN int GNVD_CACHE(prefetch_queue, prefetch_finish)(const struct gpunvme_prefetch_queue *src)
{
	return gnvd_finish_all(src->dq, src->cache, gnvd_no_source());
}

#include <gpunvme/device/cache_sources.h>

#if defined(__cplusplus)
#include <gpunvme/device/array.h>
#endif

#endif
