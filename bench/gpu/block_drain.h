/* SPDX-License-Identifier: MIT */
/*
 * A block-drain queue, for comparison: our own program of an algorithm as its authors describe it (the CUDA queue pair of uPCIe and
 * xNVMe in their documentation: one block of threads owns a queue pair, fills a batch, thread 0 rings, all wait, repeat).
 *
 * Each thread's command identifier is its number in the block. It writes its entry as sixteen 4-byte volatile stores at its
 * distance from the tail; barrier; thread 0 makes one fence and rings; each thread polls the completion at its distance from the
 * head; barrier; thread 0 rings the completion doorbell. No atomics. The next batch starts when the slowest command of this one has
 * ended. A thread takes the status of whatever completed in its place. So statuses are its own only if the controller completes in
 * order.
 *
 * In its favour: completions are polled with one load, there is no time-out, and no fence after a completion, because the
 * descriptions have none. A kernel that reads what the controller wrote needs one of its own.
 */
#ifndef GPUNVME_BENCH_BLOCK_DRAIN_H
#define GPUNVME_BENCH_BLOCK_DRAIN_H

#include "work.h"

/* One thread's entry of a batch that starts at position `at`. */
GNVD_FN void drain_fill(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *buf, uint64_t at, uint32_t lane, uint64_t slba)
{
	volatile uint32_t *sqe = (volatile uint32_t *)(uintptr_t)(dq->sq + 64ull * ((at + lane) & ((1u << dq->sq_shift) - 1)));

	sqe[0] = GPUNVME_IO_READ | lane << 16;
	sqe[1] = dq->nsid;
	sqe[2] = 0;
	sqe[3] = 0;
	sqe[4] = 0;
	sqe[5] = 0;
	sqe[6] = (uint32_t)buf->iova;
	sqe[7] = (uint32_t)(buf->iova >> 32);
	sqe[8] = 0;
	sqe[9] = 0;
	sqe[10] = (uint32_t)slba;
	sqe[11] = (uint32_t)(slba >> 32);
	sqe[12] = BLOCKS - 1;
	sqe[13] = 0;
	sqe[14] = 0;
	sqe[15] = 0;
}

/* Wait for the completion at `pos`. Returns its status. */
GNVD_FN int drain_poll(const struct gpunvme_dq *dq, uint64_t pos)
{
	uint64_t at = dq->cq + 16 * (pos & ((1u << dq->cq_shift) - 1)) + 12;
	uint32_t phase = ~(uint32_t)(pos >> dq->cq_shift) & 1, turn = 0, dw3;

	while (((dw3 = gnvd_load_ring32(at)) >> 16 & 1) != phase)
		gnvd_pause(turn++);
	return (int)(dw3 >> 17);
}

/* One batch: one command of each thread of the block. Returns the status that this thread takes for its own. */
GNVD_FN int drain_batch(const struct work *w, const struct gpunvme_dq *dq, uint32_t round)
{
	uint32_t lane = gnvd_block_lane(), lanes = gnvd_block_lanes();
	uint64_t at = (uint64_t)round * lanes;
	int ret;

	drain_fill(dq, &w->buf, at, lane, stamp_of(round));
	gnvd_block_sync(dq);
	if (!lane) {
		gnvd_order_system();
		gnvd_doorbell(dq->sq_db, (uint32_t)(at + lanes) & ((1u << dq->sq_shift) - 1));
	}
	ret = drain_poll(dq, at + lane);
	gnvd_block_sync(dq);
	if (!lane)
		gnvd_doorbell(dq->cq_db, (uint32_t)(at + lanes) & ((1u << dq->cq_shift) - 1));
	return ret;
}

/* Each block has the queue of its number. */
GNVD_FN void read_block_drain(const struct work *w)
{
	uint32_t i, wrong = 0;
	OWN_DQ(dq, w, gnvd_block_number());

	for (i = 0; i < w->rounds; i++)
		wrong += is_wrong(w, drain_batch(w, dq, i), stamp_of(i));
	count_errors(w, wrong);
}

KERNEL(block_drain_1024, 1024, read_block_drain(w);)
KERNEL(block_drain_times, 1024, OWN_DQ(dq, w, 0); TIME_ROUNDS(w, drain_batch(w, dq, i_));)

#endif
