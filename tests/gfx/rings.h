/* SPDX-License-Identifier: MIT */
/* What a queue consists of, as regions of memory. */
#ifndef TESTS_GFX_RINGS_H
#define TESTS_GFX_RINGS_H

#include "gfx/gfx.h"

#include <gpunvme/dq.h>

#define GFX_QUEUE_PARTS 9

/* The words that the controller or the host writes want all bits; the completion ring is only read. Returns GFX_QUEUE_PARTS. */
static inline unsigned gfx_queue_parts(const struct gpunvme_dq *dq, struct gfx_region part[GFX_QUEUE_PARTS])
{
	const uint32_t ring = GFX_GLC | GFX_SLC | GFX_DLC | GFX_DEVICE, whole = dq->flags & GPUNVME_DQ_CQE16 ? GFX_WHOLE : 0;
	const struct gfx_region all[GFX_QUEUE_PARTS] = {
		{ "sq", dq->sq, 64ull << dq->sq_shift, ring },
		{ "cq", dq->cq, 16ull << dq->cq_shift, ring | GFX_READONLY | whole },
		{ "sq doorbell", dq->sq_db, 4, ring | GFX_BELL | GFX_RELEASED },
		{ "cq doorbell", dq->cq_db, 4, ring | GFX_BELL },
		{ "state", dq->state, sizeof(struct gpunvme_dq_state), 0 },
		{ "ready", dq->ready, 8ull << dq->sq_shift, GFX_RELEASED },
		{ "result", dq->result, 8ull * dq->cids, 0 },
		{ "cid_map", dq->cid_map, (dq->cids + 63) / 64 * 8ull, 0 },
		{ "stop", dq->stop, 4, ring },
	};
	unsigned i;

	for (i = 0; i < GFX_QUEUE_PARTS; i++)
		part[i] = all[i];
	return GFX_QUEUE_PARTS;
}

#endif
