/* SPDX-License-Identifier: MIT */
/* The device header's own queue: each kernel uses one of its fronts. */
#ifndef GPUNVME_BENCH_FRONTS_H
#define GPUNVME_BENCH_FRONTS_H

#include "work.h"

#define PLACE(of, blocks) ((uint64_t)(blocks) << (of)->lba_shift) /* in bytes */

/* Each thread reads; those of a wave that are together share a place in the queue. */
GNVD_FN void read_together(const struct work *w)
{
	uint32_t i, wrong = 0;
	OWN_DQ(dq, w, queue_of(w));

	for (i = 0; i < w->rounds; i++)
		wrong += is_wrong(w, gpunvme_read(dq, &w->buf, 0, PLACE(dq, stamp_of(i)), PLACE(dq, BLOCKS)), stamp_of(i));
	count_errors(w, wrong);
}

/* Threads of a wave take turns: each call is made by one thread alone. */
GNVD_FN void read_alone(const struct work *w)
{
	uint32_t i, turn, wrong = 0, lane = gpunvme_thread_id() % gnvd_wave_lanes();
	OWN_DQ(dq, w, queue_of(w));

	for (i = 0; i < w->rounds; i++) {
		for (turn = 0; turn < gnvd_wave_lanes(); turn++) {
			if (lane == turn)
				wrong += is_wrong(w, gpunvme_read(dq, &w->buf, 0, PLACE(dq, stamp_of(i)), PLACE(dq, BLOCKS)), stamp_of(i));
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
		wrong += is_wrong(w, gpunvme_wave_read(dq, &w->buf, 0, PLACE(dq, stamp_of(i)), PLACE(dq, BLOCKS)), stamp_of(i));
	count_errors(w, wrong);
}

/* One command for each wave, with which all its threads help. */
GNVD_FN void read_wave_one(const struct work *w)
{
	uint32_t i, wrong = 0;
	OWN_DQ(dq, w, queue_of(w));

	for (i = 0; i < w->rounds; i++)
		wrong += is_wrong(w, gpunvme_wave_read_one(dq, &w->buf, 0, PLACE(dq, wave_stamp_of(i)), PLACE(dq, BLOCKS)), wave_stamp_of(i));
	count_errors(w, wrong);
}

/* One thread of each wave, blocking. */
GNVD_FN void read_one_lane(const struct work *w)
{
	uint32_t i, wrong = 0;
	OWN_DQ(dq, w, queue_of(w));

	if (gpunvme_thread_id() % gnvd_wave_lanes())
		return;
	for (i = 0; i < w->rounds; i++)
		wrong += is_wrong(w, gpunvme_read(dq, &w->buf, 0, PLACE(dq, wave_stamp_of(i)), PLACE(dq, BLOCKS)), wave_stamp_of(i));
	count_errors(w, wrong);
}

#define HANDLES 16u

/* One thread of each wave keeps HANDLES commands in flight; each round ends one. */
GNVD_FN void read_with_handles(const struct work *w)
{
	uint32_t i, index = 0, wrong = 0;
	struct gpunvme_req req[HANDLES];
	OWN_DQ(dq, w, queue_of(w));

	if (gpunvme_thread_id() % gnvd_wave_lanes())
		return;
	for (i = 0; i < HANDLES; i++) {
		req[i].tag = 0;
		while (gpunvme_submit_read(dq, &w->buf, 0, PLACE(dq, stamp_of(i)), PLACE(dq, BLOCKS), &req[i]) == -GPUNVME_EAGAIN)
			;
	}
	for (; i < w->rounds + HANDLES; i++) {
		wrong += gpunvme_wait_any(dq, req, HANDLES, 0, &index) != 0 || index >= HANDLES;
		if (wrong)
			break;
		while (i < w->rounds &&
		       gpunvme_submit_read(dq, &w->buf, 0, PLACE(dq, stamp_of(i)), PLACE(dq, BLOCKS), &req[index]) == -GPUNVME_EAGAIN)
			;
		index = (index + 1) % HANDLES;
	}
	count_errors(w, wrong);
}

/* A block of threads reads one range, BLOCKS for each of its threads. */
GNVD_FN void read_as_block(const struct work *w)
{
	uint32_t i, wrong = 0, lanes = gnvd_block_lanes();

	for (i = 0; i < w->rounds; i++)
		wrong += gpunvme_block_read(&w->vol, &w->vbuf, 0, 0, PLACE(&w->vol, BLOCKS * (uint64_t)lanes)) != 0;
	count_errors(w, wrong);
}

KERNEL(lanes_512, 512, read_together(w);)
KERNEL(lanes_768, 768, read_together(w);)
KERNEL(lanes_1024, 1024, read_together(w);)
KERNEL(alone_512, 512, read_alone(w);)
KERNEL(wave_512, 512, read_as_wave(w);)
KERNEL(wave_one_512, 512, read_wave_one(w);)
KERNEL(wave_one_times, 32, OWN_DQ(dq, w, 0);
       TIME_ROUNDS(w, gpunvme_wave_read_one(dq, &w->buf, 0, PLACE(dq, wave_stamp_of(i_)), PLACE(dq, BLOCKS)));)
KERNEL(one_lane_512, 512, read_one_lane(w);)
KERNEL(handles_32, 32, read_with_handles(w);)
KERNEL(block_256, 256, read_as_block(w);)
/* Each thread reads once from a controller that says nothing. */
GNVD_FN void read_in_vain(const struct work *w)
{
	int ret;
	OWN_DQ(dq, w, queue_of(w));

	ret = gpunvme_read(dq, &w->buf, 0, PLACE(dq, stamp_of(0)), PLACE(dq, BLOCKS));
	count_errors(w, ret != -GPUNVME_ETIMEDOUT && ret != -GPUNVME_ESHUTDOWN && ret != -GPUNVME_ECANCELED);
}

/* What calls may return. */
#define ANSWER_OK 0x01ull
#define ANSWER_STATUS 0x02ull
#define ANSWER_TIME 0x04ull
#define ANSWER_CANCELED 0x08ull
#define ANSWER_SHUTDOWN 0x10ull
#define ANSWER_PROTO 0x20ull
#define ANSWER_NODEV 0x40ull
#define ANSWER_OTHER 0x80ull

GNVD_FN uint64_t answer_of(int ret)
{
	if (ret >= 0)
		return ret ? ANSWER_STATUS : ANSWER_OK;
	if (ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ECANCELED)
		return ret == -GPUNVME_ETIMEDOUT ? ANSWER_TIME : ANSWER_CANCELED;
	if (ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_EPROTO)
		return ret == -GPUNVME_EPROTO ? ANSWER_PROTO : ANSWER_SHUTDOWN;
	return ret == -GPUNVME_ENODEV ? ANSWER_NODEV : ANSWER_OTHER;
}

#define CALLS_AFTER_THE_END 3u

/* Each thread reads until it was refused a few times. Results, the longest call and statuses of other commands are kept. */
GNVD_FN void read_hostile(const struct work *w, uint32_t lanes_of_wave)
{
	uint64_t answers = 0, longest = 0, began;
	uint32_t i, refused = 0, wrong = 0;
	OWN_DQ(dq, w, queue_of(w));

	if (gpunvme_thread_id() % gnvd_wave_lanes() >= lanes_of_wave)
		return;
	for (i = 0; i < w->rounds && refused < CALLS_AFTER_THE_END; i++) {
		int ret;

		began = gnvd_clock();
		ret = gpunvme_read(dq, &w->buf, 0, PLACE(dq, stamp_of(i)), PLACE(dq, BLOCKS));
		began = gnvd_clock() - began;
		longest = began > longest ? began : longest;
		answers |= answer_of(ret);
		refused += ret < 0;
		wrong += ret >= 0 && is_wrong(w, ret, stamp_of(i));
	}
	gnvd_max64(w->span, longest);
	gnvd_or64(w->span + 8, answers);
	count_errors(w, wrong);
}

KERNEL(hostile_256, 256, read_hostile(w, gnvd_wave_lanes());)
KERNEL(hostile_lone_256, 256, read_hostile(w, 1);)
KERNEL(vain_512, 512, read_in_vain(w);)
KERNEL(times_32, 32, OWN_DQ(dq, w, 0); TIME_ROUNDS(w, gpunvme_read(dq, &w->buf, 0, PLACE(dq, stamp_of(i_)), PLACE(dq, BLOCKS)));)

#endif
