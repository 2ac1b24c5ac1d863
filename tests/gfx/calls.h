/* SPDX-License-Identifier: MIT */
/* One call of a lane function, from gfx_lanes.c to the kernel in calls.hip. */
#ifndef TESTS_GFX_CALLS_H
#define TESTS_GFX_CALLS_H

#include <gpunvme/dq.h>

enum call_what {
	CALL_READ, CALL_WRITE, CALL_SUBMIT_READ, CALL_SUBMIT_WRITE, CALL_WAVE_READ, CALL_WAVE_WRITE, CALL_WAVE_READ_ONE,
	CALL_WAVE_WRITE_ONE, CALL_FLUSH, CALL_ZERO, CALL_SUBMIT_FLUSH, CALL_SUBMIT_ZERO, CALL_POLL, CALL_WAIT, CALL_WAIT_ANY,
	CALL_DETACH, CALL_POLL_QUEUE, CALL_SET_DATA, CALL_BLOCKS, CALL_DISCARD, CALL_SUBMIT_DISCARD
};

struct call {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	struct gpunvme_req *req;
	uint64_t offset, pos, len, ticks, prp1, prp2; /* pos: also an address */
	uint32_t what, flags, count, index; /* count: of queues, handles or blocks */
	int ret;
	uint32_t reserved;
};

#endif
