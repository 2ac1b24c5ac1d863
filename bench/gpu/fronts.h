/* SPDX-License-Identifier: MIT */
/* The device header's own queue: each kernel uses one of its fronts. */
#ifndef GPUNVME_BENCH_FRONTS_H
#define GPUNVME_BENCH_FRONTS_H

#include "work.h"

/* Each lane reads; those of a wave that are together share a place in the queue. */
GNVD_FN void read_together(const struct work *w)
{
	uint32_t i, wrong = 0;
	OWN_DQ(dq, w, queue_of(w));

	for (i = 0; i < w->rounds; i++)
		wrong += is_wrong(w, gpunvme_read(dq, &w->buf, 0, stamp_of(i), BLOCKS), stamp_of(i));
	count_errors(w, wrong);
}

/* Lanes of a wave take turns: each call is made by one lane alone. */
GNVD_FN void read_alone(const struct work *w)
{
	uint32_t i, turn, wrong = 0, lane = gpunvme_lane() % gnvd_wave_lanes();
	OWN_DQ(dq, w, queue_of(w));

	for (i = 0; i < w->rounds; i++) {
		for (turn = 0; turn < gnvd_wave_lanes(); turn++) {
			if (lane == turn)
				wrong += is_wrong(w, gpunvme_read(dq, &w->buf, 0, stamp_of(i), BLOCKS), stamp_of(i));
#if defined(GNVD_CUDA)
			__syncwarp();
#endif
		}
	}
	count_errors(w, wrong);
}

GNVD_FN void read_as_wave(const struct work *w)
{
	uint32_t i, wrong = 0;
	OWN_DQ(dq, w, queue_of(w));

	for (i = 0; i < w->rounds; i++)
		wrong += is_wrong(w, gpunvme_wave_read(dq, &w->buf, 0, stamp_of(i), BLOCKS), stamp_of(i));
	count_errors(w, wrong);
}

/* One lane of each wave, blocking. */
GNVD_FN void read_one_lane(const struct work *w)
{
	uint32_t i, wrong = 0;
	OWN_DQ(dq, w, queue_of(w));

	if (gpunvme_lane() % gnvd_wave_lanes())
		return;
	for (i = 0; i < w->rounds; i++)
		wrong += gpunvme_read(dq, &w->buf, 0, stamp_of(i), BLOCKS) != 0;
	count_errors(w, wrong);
}

#define HANDLES 16u

/* One lane of each wave keeps HANDLES commands in flight; each round ends one. */
GNVD_FN void read_with_handles(const struct work *w)
{
	uint32_t i, index = 0, wrong = 0;
	struct gpunvme_req req[HANDLES];
	OWN_DQ(dq, w, queue_of(w));

	if (gpunvme_lane() % gnvd_wave_lanes())
		return;
	for (i = 0; i < HANDLES; i++) {
		req[i].tag = 0;
		while (gpunvme_submit_read(dq, &w->buf, 0, stamp_of(i), BLOCKS, &req[i]) == -GPUNVME_EAGAIN)
			;
	}
	for (; i < w->rounds + HANDLES; i++) {
		wrong += gpunvme_wait_any(dq, req, HANDLES, 0, &index) != 0 || index >= HANDLES;
		if (wrong)
			break;
		while (i < w->rounds && gpunvme_submit_read(dq, &w->buf, 0, stamp_of(i), BLOCKS, &req[index]) == -GPUNVME_EAGAIN)
			;
		index = (index + 1) % HANDLES;
	}
	count_errors(w, wrong);
}

/* A block of lanes reads one range, BLOCKS for each of its lanes. */
GNVD_FN void read_as_block(const struct work *w)
{
	uint32_t i, wrong = 0, lanes = gnvd_block_lanes();

	for (i = 0; i < w->rounds; i++)
		wrong += gpunvme_block_read(&w->vol, &w->vbuf, 0, 0, (uint64_t)BLOCKS * lanes) != 0;
	count_errors(w, wrong);
}

KERNEL(lanes_512, 512, read_together(w);)
KERNEL(lanes_768, 768, read_together(w);)
KERNEL(lanes_1024, 1024, read_together(w);)
KERNEL(alone_512, 512, read_alone(w);)
KERNEL(wave_512, 512, read_as_wave(w);)
KERNEL(one_lane_32, 32, read_one_lane(w);)
KERNEL(handles_32, 32, read_with_handles(w);)
KERNEL(block_256, 256, read_as_block(w);)
KERNEL(times_32, 32, OWN_DQ(dq, w, 0); TIME_ROUNDS(w, gpunvme_read(dq, &w->buf, 0, stamp_of(i_), BLOCKS));)

#endif
