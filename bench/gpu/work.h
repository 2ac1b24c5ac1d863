/* SPDX-License-Identifier: MIT */
/* What a kernel of the benchmarks gets, and what all of them do with a command. */
#ifndef GPUNVME_BENCH_WORK_H
#define GPUNVME_BENCH_WORK_H

#include "controller.h"

#define BLOCKS 8u /* of 512 bytes: 4 KiB a command */

struct work {
	uint64_t dqs;  /* thread address of `queues` struct gpunvme_dq */
	uint64_t peer; /* thread address of `queues` struct ticket_queue, for that queue */
	uint64_t errors; /* thread address of a count: results that were not what the controller gave this command */
	uint64_t samples; /* thread address of `rounds` 32-bit times, for latency */
	uint64_t span; /* thread address of four clocks, for latency: gnvd_clock and fine_clock, before and after */
	uint32_t queues;
	uint32_t rounds;
	uint32_t check; /* the controller gives statuses */
	struct gpunvme_dbuf buf;
	struct gpunvme_dvol vol;
	struct gpunvme_dvbuf vbuf;
};

/* Consecutive waves use consecutive queues. */
GNVD_FN uint32_t queue_of(const struct work *w)
{
	return gnvd_wave_number() % w->queues;
}

GNVD_FN const struct gpunvme_dq *dq_of(const struct work *w, uint32_t queue)
{
	return (const struct gpunvme_dq *)gnvd_lane_memory(w->dqs) + queue;
}

/*
 * OWN_DQ(dq, w, queue) declares dq: the descriptor of a queue, copied to memory of the block. A fence empties the cache of a
 * multiprocessor, so that a descriptor in the GPU's memory is fetched again after each.
 */
#if defined(GNVD_CUDA)
#define OWN_DQ(dq, w, queue)                                                                                                       \
	GNVD_SHARED struct gpunvme_dq dq##_of_wave[32];                                                                            \
	const struct gpunvme_dq *dq = &dq##_of_wave[gnvd_block_lane() / 32];                                                       \
                                                                                                                                   \
	if (gnvd_block_lane() % 32 == 0)                                                                                           \
		dq##_of_wave[gnvd_block_lane() / 32] = *dq_of(w, queue);                                                           \
	__syncwarp()
#else
#define OWN_DQ(dq, w, queue) const struct gpunvme_dq *dq = dq_of(w, queue)
#endif

/* The number of this thread's command, of all threads and rounds. */
GNVD_FN uint64_t stamp_of(uint32_t round)
{
	return (uint64_t)round * gpunvme_thread_count() + gpunvme_thread_id();
}

/* The same, where each wave has one. */
GNVD_FN uint64_t wave_stamp_of(uint32_t round)
{
	return ((uint64_t)round * gpunvme_thread_count() + gpunvme_thread_id()) / gnvd_wave_lanes();
}

GNVD_FN uint32_t is_wrong(const struct work *w, int ret, uint64_t stamp)
{
	return ret != (w->check ? (int)status_of(stamp) : 0);
}

GNVD_FN void count_errors(const struct work *w, uint32_t wrong)
{
	if (wrong)
		gnvd_add64(w->errors, wrong);
}

/* The body of a kernel of one block: `call` is one round of it, number i_, and the time it takes the first thread is kept. */
#define TIME_ROUNDS(w, call)                                                                                                       \
	uint32_t i_, wrong_ = 0;                                                                                                   \
	uint64_t began_;                                                                                                           \
                                                                                                                                   \
	if (!gpunvme_thread_id())                                                                                                       \
		stamp_span(w, 0);                                                                                                  \
	for (i_ = 0; i_ < (w)->rounds; i_++) {                                                                                     \
		began_ = fine_clock();                                                                                             \
		wrong_ += is_wrong(w, call, stamp_of(i_));                                                                         \
		if (!gpunvme_thread_id())                                                                                               \
			gnvd_st32((w)->samples + 4ull * i_, (uint32_t)(fine_clock() - began_));                                    \
	}                                                                                                                          \
	if (!gpunvme_thread_id())                                                                                                       \
		stamp_span(w, 16);                                                                                                 \
	count_errors(w, wrong_);

GNVD_FN void stamp_span(const struct work *w, uint32_t at)
{
	gnvd_st64(w->span + at, gnvd_clock());
	gnvd_st64(w->span + at + 8, fine_clock());
}

#endif
