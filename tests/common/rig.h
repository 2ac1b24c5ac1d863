/* SPDX-License-Identifier: MIT */
/* A queue in plain memory, as a controller without I/O and the threads of one process share it: for tests and benchmarks. */
#ifndef TESTS_COMMON_RIG_H
#define TESTS_COMMON_RIG_H

#include <gpunvme/device.h>
#include <stdlib.h>
#include <string.h>

#include "common/mini.h"

#define RIG_QID 7u
#define RIG_BUFFER (1u << 20)
#define RIG_IOVA 0x5a00000000100000ull
#ifndef RIG_TIME_OUT
#define RIG_TIME_OUT 60000000000ull /* nanoseconds that a command may take, if a test says nothing else */
#endif

struct rig {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct mini ctrl;
	struct gpunvme_dq_state *state;
	uint64_t *ready, *result, *cid_map;
	uint64_t *buckets; /* with GPUNVME_DQ_LATENCY, after the results */
	uint32_t stop, doorbell[2];
};

static inline void *rig_zeroed(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (!p)
		abort();
	return memset(p, 0, bytes);
}

/* As the host library sizes them: CQ twice the SQ, CIDs three quarters of that. */
static inline uint32_t rig_cids(uint32_t cq_depth)
{
	uint32_t n = cq_depth - 1 - cq_depth / 4;

	return n >= 128 ? n & ~63u : n;
}

/* The bits above those of the CIDs, at most seven. */
static inline uint32_t rig_cid_gens(uint32_t cids)
{
	uint32_t bits = cids > 1 ? 32 - (uint32_t)__builtin_clz(cids - 1) : 0;

	return 0xffffu & ~0u << (bits > 9 ? bits : 9);
}

/* A queue of 2^sq_shift entries on which `start` commands have already passed. ctrl.opts may be set before rig_start(). */
static inline struct rig *rig_new(unsigned sq_shift, uint64_t start)
{
	struct rig *r = rig_zeroed(sizeof(*r));
	uint32_t depth = 1u << sq_shift, cq_depth = 2 * depth, cids = rig_cids(cq_depth), i;

	r->state = rig_zeroed(sizeof(*r->state));
	r->ready = rig_zeroed(8 * depth);
	r->result = rig_zeroed(8 * (2 * cids + GPUNVME_LATENCY_BUCKETS));
	r->buckets = r->result + 2 * cids;
	r->cid_map = rig_zeroed(8 * ((cids + 63) / 64));
	for (i = 0; i < cids; i++)
		r->cid_map[i / 64] |= 1ull << (i & 63);
	r->state->resv = r->state->fetched = r->state->pub = start;
	r->state->pub_gate = start << GPUNVME_GATE_SHIFT;
	r->state->drain = start << 1;
	r->state->cq_rung = start;
	r->doorbell[0] = (uint32_t)(start % depth);
	r->doorbell[1] = (uint32_t)(start % cq_depth);
	r->ctrl.q = (struct mini_queue){ rig_zeroed(64 * depth), rig_zeroed(16 * cq_depth), &r->doorbell[0], &r->doorbell[1],
					 depth, cq_depth, RIG_QID, start };
	/* Entries of the lap before carry the other phase: zero is right for even laps, for odd ones set it. */
	for (i = 0; i < cq_depth; i++) {
		bool passed = i < start % cq_depth;
		uint32_t lap = (uint32_t)(start / cq_depth) & 1;

		r->ctrl.q.cq[4 * i + 3] = (passed ? !lap : lap) ? GPUNVME_CQE_DW3_PHASE : 0;
	}
	r->dq = (struct gpunvme_dq){
		.head = GPUNVME_HEAD(GPUNVME_KIND_QUEUE, r->dq),
		.flags = GPUNVME_DQ_WRITE | GPUNVME_DQ_WRITE_ZEROES | GPUNVME_DQ_STATS, .tag = 1u << 16 | RIG_QID, .qid = RIG_QID, .nsid = 1,
		.lba_shift = 9, .page_shift = 12, .sq_shift = (uint8_t)sq_shift, .cq_shift = (uint8_t)(sq_shift + 1),
		.sq = (uintptr_t)r->ctrl.q.sq, .cq = (uintptr_t)r->ctrl.q.cq,
		.sq_db = (uintptr_t)&r->doorbell[0], .cq_db = (uintptr_t)&r->doorbell[1],
		.state = (uintptr_t)r->state, .ready = (uintptr_t)r->ready,
		.result = (uintptr_t)r->result, .cid_map = (uintptr_t)r->cid_map, .stop = (uintptr_t)&r->stop,
		.cmd_timeout = RIG_TIME_OUT, .lba_count = 1ull << 62, .cids = cids, .max_blocks = 2048, .ticks_per_ms = 1000000,
		.cid_gens = rig_cid_gens(cids),
	};
	r->dbuf = (struct gpunvme_dbuf){ .base = 0, .len = RIG_BUFFER, .iova = RIG_IOVA, .prp_a = 0x5a00000020000000ull,
					 .prp_b = 0x5a00000030000800ull };
	return r;
}

static inline void rig_free(struct rig *r)
{
	free(r->ctrl.q.sq);
	free(r->ctrl.q.cq);
	free(r->cid_map);
	free(r->result);
	free(r->ready);
	free(r->state);
	free(r);
}

static inline uint32_t rig_free_cids(const struct rig *r)
{
	uint32_t n = 0, i;

	for (i = 0; i < (r->dq.cids + 63) / 64; i++)
		n += gnvd_popc(__atomic_load_n(&r->cid_map[i], __ATOMIC_ACQUIRE));
	return n;
}

#endif
