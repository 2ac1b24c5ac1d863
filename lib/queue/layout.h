/* SPDX-License-Identifier: MIT */
/* The layout of a queue by its depth: identifiers, and places of its words. For bench/gpu/rig.h, too, which is C++. */
#ifndef GNV_QUEUE_LAYOUT_H
#define GNV_QUEUE_LAYOUT_H

#include <gpunvme/dq.h>
#include <stdbool.h>

#include "util/bits.h"

#define GNV_QP_LINE 128u

/* In the state of a queue. Every array begins on a line of its own. */
struct gnv_qp_layout {
	size_t ready;
	size_t result;
	size_t buckets; /* of GPUNVME_QUEUE_LATENCY. 0: none */
	size_t cid_map;
	size_t size;
};

/* Command identifiers of a queue: so few that neither completions in flight nor those not rung yet can overrun the CQ. */
static inline uint32_t gnv_qp_cids(uint32_t cq_depth)
{
	uint32_t cids = cq_depth - 1 - cq_depth / 4;

	if (cids < 1)
		return 1;
	if (cids > 65535)
		cids = 65535;
	return cids >= 128 ? cids & ~63u : cids;
}

/* The bits of a CID on the wire that are left for generations. */
static inline uint32_t gnv_qp_cid_gens(uint32_t cids)
{
	uint32_t gens = GPUNVME_CID_GENS;

	while (gens && (gens & -gens) < cids)
		gens &= gens - 1;
	return gens;
}

/* May the controller still work on the command of a result word? So it may after a completion of another generation. */
static inline bool gnv_qp_is_open(uint32_t gens, uint64_t word)
{
	uint32_t gen = GPUNVME_CID_GEN(gens, word >> GPUNVME_RES_GEN_SHIFT), state = (uint32_t)(word & GPUNVME_RES_STATE);
	bool other = ((uint32_t)word & GPUNVME_RES_NAMED) != GPUNVME_RES_NAMES(gens, gen);

	return state == GPUNVME_RES_SUBMITTED || (state == GPUNVME_RES_DONE && other);
}

static inline void gnv_qp_layout(uint32_t depth, uint32_t cids, bool latency, struct gnv_qp_layout *layout)
{
	layout->ready = sizeof(struct gpunvme_dq_state);
	layout->result = gnv_align_up(layout->ready + (size_t)depth * 8, GNV_QP_LINE);
	layout->buckets = latency ? layout->result + 2 * (size_t)cids * 8 : 0;
	layout->cid_map = latency ? layout->buckets + GPUNVME_LATENCY_BUCKETS * 8 : layout->result + (size_t)cids * 8;
	layout->cid_map = gnv_align_up(layout->cid_map, GNV_QP_LINE);
	layout->size = gnv_align_up(layout->cid_map + ((size_t)cids + 63) / 64 * 8, GNV_QP_LINE);
}

/* Where in the state a descriptor finds them. */
static inline void gnv_qp_point(uint64_t state, const struct gnv_qp_layout *layout, struct gpunvme_dq *dq)
{
	dq->state = state;
	dq->ready = state + layout->ready;
	dq->result = state + layout->result;
	dq->cid_map = state + layout->cid_map;
}

#endif
