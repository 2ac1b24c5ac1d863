/* SPDX-License-Identifier: MIT */
/*
 * A cache of pages: kernels read a namespace, a file or a volume, or a window of it, as an array that is larger than memory.
 *
 *   gpunvme_cache_create    memory for a number of pages, mapped to the devices
 *   gpunvme_cache_view      what a kernel receives, with the view of a queue
 *   gpunvme_cache_flush     write what kernels have changed
 *   gpunvme_cache_discard   or discard it
 *   gpunvme_cache_destroy
 *
 * The kernel's side is <gpunvme/device.h>: device/cache.h has the calls. If others write to the same blocks, threads see that only
 * when a page is read again, or never. For memory of the caller that is mapped once and found again see mem.h.
 */
#ifndef GPUNVME_CACHE_H
#define GPUNVME_CACHE_H

#include <gpunvme/dev.h>
#include <gpunvme/dq.h>
#include <gpunvme/file.h>
#include <gpunvme/gpu.h>
#include <gpunvme/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_cache;

enum gpunvme_cache_flags {
	GPUNVME_CACHE_STATS = 1u << 0, /* count hits, misses, waits, evictions and failures */
	/*
	 * If the frames lie in the host's memory and the threads have their own memory, each frame has two places. The wave that
	 * read a page copies it to the threads' memory, and all other threads read it there. _LANDING requests this in any
	 * memory, _IN_PLACE excludes it.
	 */
	GPUNVME_CACHE_LANDING = 1u << 1,
	GPUNVME_CACHE_IN_PLACE = 1u << 2,
	/*
	 * Threads may prefetch, and ranges of elements are prefetched, through struct gpunvme_prefetch_queue, _file or _volume. One
	 * queue reads the pages of a namespace or a file. The queues of a volume read its pages. A queue needs two identifiers.
	 * Prefetches hold half of them at most.
	 */
	GPUNVME_CACHE_PREFETCH = 1u << 3,
	/*
	 * Kernels may change pages, through struct gpunvme_writable_queue, _file or _volume. Changed pages are written when they make
	 * room for others, by gpunvme_write_back() in a kernel, or by gpunvme_cache_flush().
	 * Each frame takes 16 more bytes of the threads' memory. When the cache is made, kernels must be able to write a file in place:
	 * it is opened with GPUNVME_FILE_WRITE, or leased by gpunvme_file_lease(). Call gpunvme_cache_flush() before
	 * gpunvme_file_unlease(). Parts of the file without blocks are read as zeroes, and cannot be changed.
	 */
	GPUNVME_CACHE_WRITE_BACK = 1u << 4,
	/*
	 * Pages of the volume that the queue is, for kernels with a struct gpunvme_dvol. A queue of several devices is always one.
	 */
	GPUNVME_CACHE_VOLUME = 1u << 5,
};

struct gpunvme_cache_opts {
	size_t size;        /* sizeof(struct gpunvme_cache_opts) */
	uint32_t flags;     /* enum gpunvme_cache_flags. An unknown bit is an error */
	uint32_t nsid;      /* 0: the device's default namespace */
	uint32_t page_size; /* bytes, a power of two from 512 to 65536, no less than a block. 0: 4096, or a larger block */
	uint32_t frames;    /* pages that it holds at a time, at most those of the window. 0: 4096 */
	uint64_t lba;       /* first block of the window, of the namespace, file or volume */
	uint64_t nblocks;   /* blocks of the window. 0: up to the end */
	struct gpunvme_file *file;     /* pages of this file, which must outlive the cache. Else NULL */
};
#define GPUNVME_CACHE_OPTS_INIT { sizeof(struct gpunvme_cache_opts), 0, 0, 0, 0, 0, 0, NULL }

/**
 * gpunvme_cache_create() - create a cache of pages in memory of a GPU's threads
 * @queue: a queue of the device, or a volume. Threads of its GPU will use the cache, by this queue or by others of the same
 *         devices. It may be destroyed before the cache
 * @opts:  NULL for the defaults. Not kept
 * @cache: set on success. The caller owns it, and destroys it before its devices are closed, unless that returns -EBUSY
 *
 * Takes frames * page_size bytes as gpunvme_mem_alloc() does for @queue. In the threads' own memory it takes 8 bytes for each page
 * of the window and for each frame (24 with GPUNVME_CACHE_PREFETCH or _WRITE_BACK). If pages are copied there (enum
 * gpunvme_cache_flags), it takes frames * page_size bytes more. Kernels use the type of their cache's source. Calls of another
 * type are refused. A namespace has struct gpunvme_cached_queue, a file _file, a volume _volume. gpunvme_writable_* are for
 * GPUNVME_CACHE_WRITE_BACK. A cache with GPUNVME_CACHE_PREFETCH is for gpunvme_prefetch_* alone. Any thread may call it.
 * Return:
 * - 0: the cache is empty.
 * - -EINVAL: a page size that is no power of two, out of range, or less than a block. An unknown flag, or flags that exclude each
 *   other (_PREFETCH and _WRITE_BACK, _LANDING and _IN_PLACE). A volume with a namespace or a file. A set with several files, or a
 *   file with another nsid.
 * - -EROFS: with GPUNVME_CACHE_WRITE_BACK a namespace that cannot be written, also one of a volume. Or a device that was
 *   opened read-only, or a file that kernels may not write.
 * - -ERANGE: the window is not within the namespace, file or volume, or its last page would end after 2^64 bytes.
 * - -ENODATA: the file is empty.
 * - -EXDEV: the file was opened by another device; -ESHUTDOWN: a device of the queue was closed.
 * - -ENOMEM; otherwise as gpunvme_ns_get_info(), gpunvme_file_view(), gpunvme_mem_alloc() and gpunvme_mem_map().
 */
GPUNVME_API int gpunvme_cache_create(struct gpunvme_queue *queue, const struct gpunvme_cache_opts *opts,
				     struct gpunvme_cache **cache);

/**
 * gpunvme_cache_destroy() - destroy a page cache and free its memory
 * @cache: NULL does nothing
 *
 * Before the call, end all kernels that use a view of the cache, and all calls of other threads with it. Reads that were stopped
 * or that timed out may still be in flight.
 * Return:
 * - 0: @cache is gone.
 * - -EBUSY: kernels have changed pages that are not on the drive. Call gpunvme_cache_flush() or gpunvme_cache_discard()
 *   first, before the device is closed.
 * - -EBUSY: a device may still write to a page, as gpunvme_mem_free() says. Nothing was freed. Destroy or recover the queue that
 *   the error message names, or close the device, then call again.
 * - -EBUSY: prefetched pages have identifiers of a queue that stays. Run gpunvme_prefetch_finish() in a kernel, or destroy the
 *   queue first.
 * - -EIO: the threads' memory cannot be read; -ECHILD.
 */
GPUNVME_API int gpunvme_cache_destroy(struct gpunvme_cache *cache);

/**
 * gpunvme_cache_flush() - write what kernels have changed, and make it durable
 * @cache: a cache with GPUNVME_CACHE_WRITE_BACK
 *
 * No kernel may use a view of the cache meanwhile. The host reads the pages from the threads' memory. It writes them by the queue
 * that each device keeps for the library, and then sends a Flush there (Base Specification 7.1). It tries each page,
 * also when others fail, but none after a write that is given up. It gives lost and kept frames back, as gpunvme_cache_view()
 * does. Pages stay in the cache. Other threads may call gpunvme_cache_get_info() meanwhile. A second flush, or a discard,
 * waits for the first. Any thread may call it.
 * Return: (after any failure, pages that are not on the drive remain changed)
 * - 0: all is on the drive.
 * - -EINVAL: kernels cannot change this cache.
 * - -EBUSY: the device may still have a write of a page that was given up (a time-out, a stop, a queue that ended). That page was
 *   not written: recover the queue, then call again. Or a kernel was killed while it wrote a page.
 * - -EROFS: the file is not leased any more.
 * - -ESTALE: its lease was broken, or it has changed, as gpunvme_file_check() says. Nothing was written, because its blocks may be
 *   another file's.
 * - -ENODEV: the device, or one of the volume's, was closed, or is gone.
 * - -EXDEV: the namespace has blocks of another size now.
 * - -EIO: the threads' memory cannot be read, or a kernel has overwritten the words of the cache.
 * - The first failure of a write or of the Flush, as gpunvme_run_copy().
 * - -ECHILD; otherwise as gpunvme_queue_create() and gpunvme_mem_alloc().
 */
GPUNVME_API int gpunvme_cache_flush(struct gpunvme_cache *cache);

/**
 * gpunvme_cache_discard() - discard changes of kernels that were not written
 * @cache: a cache with GPUNVME_CACHE_WRITE_BACK
 *
 * No kernel may use a view of the cache meanwhile. Changed pages leave the cache: a thread that requests one again reads the
 * drive. If the write of a page was given up, the drive may have its old or its new bytes. A page that a thread has not given back
 * stays as that thread sees it, until it is given back and makes room for another. A page without changes that a killed kernel had
 * taken for writing can be used again. Any thread may call it, also after the device was closed.
 * Return:
 * - 0: no page is changed.
 * - -EINVAL: kernels cannot change this cache.
 * - -EBUSY: the device may still have a write of a page, after a time-out, a stop, the end of a queue or a kernel that was killed.
 *   It could overwrite later writes, so that page remains changed. Recover the queue, or close the device, then call again.
 * - -EIO: the threads' memory cannot be read or written, or a kernel has overwritten the words of the cache.
 * - -ECHILD; -ENOMEM.
 */
GPUNVME_API int gpunvme_cache_discard(struct gpunvme_cache *cache);

/* As gpunvme_cache_view(), for a caller with a dq.h of the given version. Use the wrapper below. */
GPUNVME_API int gpunvme_cache_view_v(struct gpunvme_cache *cache, struct gpunvme_dpages *pages, uint32_t version,
				     uint32_t size);

/**
 * gpunvme_cache_view() - get the view of a cache for kernels
 * @cache: the cache
 * @pages: filled. Plain data, valid until gpunvme_cache_destroy()
 *
 * The view outlives the queues: after a recovery take new views of the queues only. A frame whose read was given up (a time-out, a
 * stop, a queue that ended) is lost, because the device may still write there. info.lost counts it. This call gives such frames
 * back, also to running kernels, if no queue of its devices has a command in flight (gpunvme_queue_info.in_flight). To get there,
 * recover a queue that ended, or have a thread take the completions of a queue that was stopped (queue.h). When all frames are
 * lost, gpunvme_page_get() returns -GPUNVME_EAGAIN until then, or -GPUNVME_ESHUTDOWN by a queue that has ended. Any thread may
 * call it.
 * Return: 0; -EINVAL; -EPROTONOSUPPORT: the caller was compiled with another version of dq.h; otherwise as gpunvme_mem_dbuf().
 */
static inline int gpunvme_cache_view(struct gpunvme_cache *cache, struct gpunvme_dpages *pages)
{
	return gpunvme_cache_view_v(cache, pages, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR, (uint32_t)sizeof(*pages));
}

struct gpunvme_cache_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_cache_info) */
	uint32_t page_size;
	uint32_t frames;
	uint64_t pages; /* of the window */
	uint64_t lost;  /* frames out of use after reads that were given up, or kept for writes that were given up */
	uint64_t hits;  /* this and all below only with GPUNVME_CACHE_STATS: threads that found their page in the cache */
	uint64_t misses;    /* reads of a page */
	uint64_t waits;     /* threads that waited for another's read. With hits and misses: all but those that got -GPUNVME_EAGAIN */
	uint64_t evictions; /* pages that made room for others */
	uint64_t failures;  /* reads that failed */
	uint64_t prefetches; /* with GPUNVME_CACHE_PREFETCH: reads that a thread began without waiting. Not among the misses */
	uint64_t used;       /* of those: a thread has requested the page */
	uint64_t wasted;     /* of those: evicted or lost before a thread requested the page. No thread has requested the rest yet */
	uint64_t coming;     /* pages that were prefetched and have an identifier of the queue. Always counted */
	uint64_t writes;    /* writes of changed pages by kernels */
	uint64_t write_failures; /* of these: the page remains changed */
	uint64_t changed; /* pages with changes that are not on the drive. Always counted */
	uint64_t copied; /* bytes that threads copied, page by page, between the memory that the device reaches and their own */
};

/**
 * gpunvme_cache_get_info() - get state and counters of a cache
 * @cache: the cache
 * @info:  filled. Set info->size before
 *
 * A snapshot, also while kernels run. Any thread may call it.
 * Return: 0; -EINVAL: info->size is too small; -EIO: the memory of the threads cannot be read.
 */
GPUNVME_API int gpunvme_cache_get_info(struct gpunvme_cache *cache, struct gpunvme_cache_info *info);

#ifdef __cplusplus
}
#endif
#endif
