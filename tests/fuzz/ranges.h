/* SPDX-License-Identifier: MIT */
/*
 * Public calls that take a range, for fuzz_ranges: one table of the device header's calls, one of the library's. Each call has a
 * rule that says what its position, length and limit are. The target knows from the rule what the call must return.
 */
#ifndef FUZZ_RANGES_H
#define FUZZ_RANGES_H

#include "lane.h"

#include <gpunvme/dpages.h>

#define BLOCK 512u
#define BLOCKS_MAX ((1ull << 55) - 1) /* a namespace has fewer than 2^64 bytes */

enum rule {
	QUEUE,	      /* bytes of a view, and of the buffer */
	VOLUME,	      /* the same of a volume */
	QUEUE_RANGE,  /* bytes of a view; the buffer has 16 bytes for the range */
	VOLUME_RANGE,
	QUEUE_ONLY,   /* without a buffer */
	VOLUME_ONLY,
	FILE_READ,    /* bytes of the buffer; a file is read up to its end */
	FILE_WRITE,   /* bytes of a file, and of the buffer */
	PAGE,	      /* number of a page */
	ELEMENT,      /* number of an element */
	ELEMENTS,     /* elements that lie side by side */
	PART,	      /* bytes of a page */
	WINDOW,	      /* blocks of a namespace or volume of any size; 0 blocks: up to its end */
	PAGES,	      /* the same, in whole pages that end before 2^64 bytes */
	COPY,	      /* blocks of a view, the first ones of the buffer */
	LOAD,	      /* the same, from block 0 on */
	BATCH,	      /* blocks of a view, and bytes of the buffer */
	BATCH_RANGE,
	BATCH_ONLY,
	ADDRESS,      /* bytes of this process; only those that wrap are asked */
	DMABUF,	      /* pages of a DMA-BUF */
};

enum special {
	NOTHING,
	ONE,	   /* it may be too long for one command */
	WAVE,	   /* one length says that there is no transfer */
	WORKGROUP, /* it may have 2^32 blocks and more */
};


struct range_call {
	int (*run)(void);
	enum rule rule;
	uint8_t write; /* the commands that it sends: write, not read */
	uint8_t of;    /* of pages and elements: enum gnvd_of */
	uint8_t special; /* enum special */
};

extern const struct range_call device_calls[], host_calls[];
extern const unsigned device_calls_count, host_calls_count;

/* What a call is asked. */
struct ask {
	uint64_t pos, len, offset, limit;
	uint32_t unit; /* bytes of an element */
	void *memory;  /* for elements that lie side by side, and no longer than these; or one of 16 bytes */
};
extern struct ask ask;

/* What calls are about; made for each input. The queue of files, and queue and volume of caches, have the whole namespace. */
struct ranges {
	struct gpunvme_dq whole;
	struct gpunvme_dvol vol, whole_vol;
	struct gpunvme_dvbuf vbuf;
	struct gpunvme_dfile file;
	struct gpunvme_dpages pages[3], ahead[3], writable[3]; /* by enum gnvd_of */
};
extern struct ranges r;

/* Objects of the library, for the calls of the host; once. */
void host_init(void);

#endif
