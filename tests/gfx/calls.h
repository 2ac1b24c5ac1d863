/* SPDX-License-Identifier: MIT */
/* One call of a lane function, from gfx_lanes.c to the kernel in calls.hip. */
#ifndef TESTS_GFX_CALLS_H
#define TESTS_GFX_CALLS_H

#include <gpunvme/dq.h>

enum call_what {
	CALL_READ, CALL_WRITE, CALL_WRITE_FUA, CALL_SUBMIT_READ, CALL_SUBMIT_WRITE, CALL_SUBMIT_WRITE_FUA, CALL_WAVE_READ,
	CALL_WAVE_WRITE, CALL_WAVE_WRITE_FUA, CALL_WAVE_READ_ONE, CALL_WAVE_WRITE_ONE, CALL_FLUSH, CALL_WRITE_ZEROES,
	CALL_SUBMIT_FLUSH, CALL_SUBMIT_WRITE_ZEROES, CALL_POLL, CALL_WAIT, CALL_WAIT_ANY, CALL_ABANDON, CALL_SERVE, CALL_SET_DATA,
	CALL_BLOCKS, CALL_DEALLOCATE, CALL_SUBMIT_DEALLOCATE
};

struct call {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	struct gpunvme_req *req;
	uint64_t offset, lba, ticks, prp1, prp2; /* lba: also bytes and addresses */
	uint32_t what, nblocks, index; /* nblocks: also queues and handles */
	int ret;
};

#endif
