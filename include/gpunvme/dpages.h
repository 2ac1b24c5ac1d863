/* SPDX-License-Identifier: MIT */
/* A page cache as kernels see it: a part of dq.h, which includes this header. It has the version of dq.h. */
#ifndef GPUNVME_DPAGES_H
#define GPUNVME_DPAGES_H

#include <gpunvme/dq.h>

/*
 * A cache of pages: parts of a window of a namespace, a file or a volume, in memory that threads read. See cache.h (host) and
 * device/page.h (kernels), which has the rules for changes of these words. Each page of the window has one 64-bit word:
 *   bits 1:0   EMPTY, READING or VALID
 *   bit  2     used since the clock's hand last passed
 *   bits 23:3  references: threads that hold the page, or wait for it
 *   bits 31:24 changes: number of failed reads and evictions of the page, modulo 256
 *   bits 63:32 frame of a VALID page. Else the result of the last read that failed, or 0
 * Each frame, a place for one page, has a word as well: 0 (free), GPUNVME_FRAME_TAKEN, GPUNVME_FRAME_LOST, or its page's number
 * plus 1.
 *
 * With prefetch (device/coming.h) a page may be COMING: a command reads it, no thread waits, and its word names the frame. Then
 * each frame has two more words, after the words of all frames, which are valid while its page is COMING: the queue's tag << 32 |
 * the command's identifier, and the command's generation.
 *
 * With GPUNVME_DPAGES_WRITABLE (device/changes.h) a page may be WRITING, and each frame has two more words. The first is after the
 * words of all frames: GPUNVME_FRAME_LOST while the device may have a write of the frame that was given up, else 0. The second is
 * after those: one bit for each part of its page that was changed and is not on the drive. A page has at most 64 parts of at least
 * a block each. A changed page has one more reference.
 */
#define GPUNVME_PAGE_STATE 0x0000000000000003ull
#define GPUNVME_PAGE_EMPTY 0u
#define GPUNVME_PAGE_READING 1u
#define GPUNVME_PAGE_VALID 2u
#define GPUNVME_PAGE_COMING 3u
#define GPUNVME_PAGE_WRITING 3u /* in the same frame. No thread gets the page until the thread that writes it is done */
#define GPUNVME_PAGE_USED 0x0000000000000004ull
#define GPUNVME_PAGE_REF 0x0000000000000008ull /* one reference */
#define GPUNVME_PAGE_REFS 0x0000000000fffff8ull
#define GPUNVME_PAGE_CHANGES 0x00000000ff000000ull
#define GPUNVME_PAGE_CHANGES_SHIFT 24
#define GPUNVME_PAGE_FRAME_SHIFT 32
#define GPUNVME_FRAME_TAKEN (~0ull)     /* a thread fills it, and has not yet stored its page's number */
#define GPUNVME_FRAME_LOST (~0ull - 1u) /* a read into it never ended: the device may still write there */

/* State that all threads of a cache share, in memory that is local to them. The words of the pages and of the frames follow it. */
struct gpunvme_cache_state {
	uint64_t hand; /* of the clock: number of frames that it has passed */
	uint8_t pad0[120];
	uint64_t hits; /* counters, kept with GPUNVME_CACHE_STATS */
	uint64_t misses;
	uint64_t waits;
	uint64_t evictions;
	uint64_t failures;
	uint64_t lost; /* frames. Always counted */
	uint64_t prefetches; /* reads that a thread began without waiting */
	uint64_t used;   /* of those: a thread has requested the page */
	uint64_t wasted; /* of those: the page is gone, and no thread has requested it */
	uint64_t coming; /* pages. Always counted */
	uint64_t sweep;  /* a second hand, for threads that find too many pages coming */
	uint64_t writes; /* of pages that threads have changed */
	uint64_t write_failures;
	uint64_t changed; /* pages that are not on the drive, always counted */
	uint64_t write_hand; /* as `hand`, for threads that look for pages to write */
	uint64_t copied; /* pages, between the two places of their frames, where frames have two */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_cache_state) == 256, "cache state layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_cache_state, hits) == 128, "cache state layout");

enum gpunvme_dpages_flags {
	GPUNVME_DPAGES_STATS = 1u << 0, /* keep the counters of struct gpunvme_cache_state */
	GPUNVME_DPAGES_WRITABLE = 1u << 1, /* threads may change its pages */
};

/* A controller of the volume of a cache. */
struct gpunvme_dmember {
	struct gpunvme_dbuf buf; /* the frames, as this device writes them */
	uint32_t device;         /* as in struct gpunvme_dq */
	uint32_t stripe_shift;   /* of the volume */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dmember) == 48, "dmember layout");

/* The cache as a kernel sees it. */
struct gpunvme_dpages {
	struct gpunvme_head head; /* GPUNVME_KIND_PAGES or another kind of pages, perhaps with GPUNVME_KIND_PREFETCH */
	uint32_t flags; /* enum gpunvme_dpages_flags */
	uint32_t nsid;
	uint32_t device; /* as in struct gpunvme_dq */
	uint32_t frames; /* pages that it holds at a time */
	uint8_t lba_shift;  /* bytes of one block as a power of two */
	uint8_t page_shift; /* bytes of one page as a power of two, 9 to 16 and no less than lba_shift */
	uint16_t members;   /* of the volume */
	uint64_t state; /* thread address of struct gpunvme_cache_state */
	uint64_t table; /* thread address of the words of the pages */
	uint64_t frame; /* thread address of the words of the frames */
	uint64_t lba_first; /* first block of the window in the namespace, file or volume */
	uint64_t lba_count; /* blocks of the window. The last page may have fewer than the others */
	struct gpunvme_dbuf buf; /* the frames, one after the other, as the device writes them. For a volume its first device */
	uint64_t local; /* thread address of the frames in the threads' own memory, where threads read pages. 0: they read buf */
	uint64_t source; /* thread address of struct gpunvme_dfile, or of `members` struct gpunvme_dmember. 0 for a namespace */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dpages) == 128, "dpages layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dpages, state) == 32, "dpages layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dpages, buf) == 72, "dpages layout");

/* A page that a thread holds, until gpunvme_page_put(). */
struct gpunvme_page {
	uint64_t base; /* thread address of its first byte */
	uint64_t word; /* thread address of its word. 0: given back */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_page) == 16, "page layout");

/*
 * Sources of the calls of device.h for pages and elements. Each thread makes its own. The type names the source of the cache's
 * pages and the calls that the cache supports: device/cache.h.
 */

/* A queue's namespace, through a cache that is over it. */
struct gpunvme_cached_queue {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
};

/* A file, through a cache that is over it. The queue is of the namespace that has the file. */
struct gpunvme_cached_file {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
};

/* A volume, through a cache that is over it. */
struct gpunvme_cached_volume {
	const struct gpunvme_dvol *volume;
	const struct gpunvme_dpages *cache;
};

/* The same through a cache with prefetch (GPUNVME_CACHE_PREFETCH). */
struct gpunvme_prefetch_queue {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
};

struct gpunvme_prefetch_file {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
};

struct gpunvme_prefetch_volume {
	const struct gpunvme_dvol *volume;
	const struct gpunvme_dpages *cache;
};

/* The same through a cache whose pages threads may change (GPUNVME_CACHE_WRITE_BACK). */
struct gpunvme_writable_queue {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
};

struct gpunvme_writable_file {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
};

struct gpunvme_writable_volume {
	const struct gpunvme_dvol *volume;
	const struct gpunvme_dpages *cache;
};

#endif
