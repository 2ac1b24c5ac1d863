/* SPDX-License-Identifier: MIT */
/* Write: each lane that got a place fills its slot of the ring and marks its result word SUBMITTED. */
#ifndef GPUNVME_DEVICE_WRITE_H
#define GPUNVME_DEVICE_WRITE_H

#include <gpunvme/device/queue.h>

/* Position of the set bit that has n set bits below it. There are more than n set bits. */
GNVD_FN uint32_t gnvd_nth_bit(uint64_t v, uint32_t n)
{
	uint32_t at = 0, step;

	if (GNVD_SHORT_NTH && !n)
		return gnvd_lowest(v);
	if (!((v >> gnvd_lowest(v)) & ((v >> gnvd_lowest(v)) + 1))) /* no gap */
		return gnvd_lowest(v) + n;
	for (step = 32; step; step >>= 1)
		if (gnvd_popc(v & ((1ull << (at + step)) - 1)) <= n)
			at += step;
	return at;
}

/* Return this lane's CID, whose result word is now SUBMITTED. req NULL: the command is detached. */
GNVD_FN uint32_t gnvd_begin_command(const struct gpunvme_dq *dq, const struct gnvd_grant *grant, struct gpunvme_req *req)
{
	uint64_t gen = (grant->pos + grant->mine) << GPUNVME_RES_GEN_SHIFT;
	uint32_t cid = grant->base + gnvd_nth_bit(grant->cids, grant->mine);

	gnvd_st64(gnvd_result_at(dq, cid), gen | GPUNVME_RES_SUBMITTED | (req ? 0 : GPUNVME_RES_DETACHED));
	if (GNVD_KEEPS(dq, GPUNVME_DQ_LATENCY))
		gnvd_st64(gnvd_written_at(dq, cid), gnvd_clock());
	if (req) {
		req->gen = gen;
		req->deadline = 0;
		req->tag = dq->tag;
		req->cid = cid;
	}
	return cid;
}

/*
 * Fill this lane's slot. The doorbell makes it visible. The fields are computed here, last of all: most registers are in use where
 * a command is stored, and each value that is kept for it costs one.
 */
GNVD_FN void gnvd_write_command(const struct gpunvme_dq *dq, const struct gnvd_grant *grant, const struct gnvd_cmd *c,
				uint32_t cid)
{
	uint32_t pos = (uint32_t)grant->pos + grant->mine, slot = pos & ((1u << dq->sq_shift) - 1);
	uint32_t sqe[16] = { c->dw0, dq->nsid, 0, 0, 0, 0,
			     (uint32_t)c->prp1, (uint32_t)(c->prp1 >> 32), (uint32_t)c->prp2, (uint32_t)(c->prp2 >> 32),
			     (uint32_t)c->slba, (uint32_t)(c->slba >> 32), c->cdw12, 0, 0, 0 };

	gnvd_store_sqe(dq->sq + 64u * slot, sqe, cid | GPUNVME_CID_GEN(dq->cid_gens, pos));
}

#endif
