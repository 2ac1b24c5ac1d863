/* SPDX-License-Identifier: MIT */
/* Landing memory (queue/landing.c), as lists on streams know it. */
#ifndef GNV_RUN_LANDING_H
#define GNV_RUN_LANDING_H

#include <gpunvme/queue.h>
#include <gpunvme/run.h>

#include "gpu/gpu.h"

#define GNV_LANDING_SLOT (264u << 10) /* bytes: 256 KiB that begin at any byte of a block of 4 KiB */

struct gpunvme_landing {
	uint64_t process; /* that made it (util/process.h) */
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev[GPUNVME_QUEUE_DEVICES];
	uint32_t devs;	  /* how many. Queues of one pair and direct targets are the first one's */
	uint32_t device;  /* number of the first */
	uint64_t devices; /* gnv_dev_numbers() */
	uint32_t slots;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gnv_gpu_range turns; /* struct gnv_stream_target has its layout. A dbuf for each device follows */
	struct gpunvme_dvbuf dvbuf;
	bool always;
	uint32_t direct, landing; /* targets in use. Atomic */
};

#endif
