/* SPDX-License-Identifier: MIT */
/*
 * Where the words of a queue lie in its state: any depth of both rings (powers of two from 2 to 65536), with and without latencies.
 * Identifiers and their generations: the same depths. Buckets of latencies: any 64 bits of ticks.
 */
#include "proofs.h"

#include <gpunvme/dq.h>

/* Whatever a position makes of its generation: multiplications cost a solver much. */
uint32_t __CPROVER_uninterpreted_gen(uint32_t pos);
#undef GPUNVME_CID_GEN
#define GPUNVME_CID_GEN(gens, pos) (__CPROVER_uninterpreted_gen((uint32_t)(pos)) & (gens))

#include <gpunvme/device/write.h>

#include "queue/layout.h"

/* A queue of any depth, in lane memory at `state`. */
static struct gpunvme_dq any_queue(struct gnv_qp_layout *layout)
{
	struct gpunvme_dq dq;

	TAKE(dq.sq_shift >= 1 && dq.sq_shift <= 16 && dq.cq_shift >= dq.sq_shift && dq.cq_shift <= 16);
	TAKE(dq.state < 1ull << 56 && !(dq.state & (GNV_QP_LINE - 1)));
	dq.cids = gnv_qp_cids(1u << (nondet_bit() ? dq.sq_shift : dq.cq_shift)); /* quirk few-cids */
	dq.cid_gens = gnv_qp_cid_gens(dq.cids);
	gnv_qp_layout(1u << dq.sq_shift, dq.cids, dq.flags & GPUNVME_DQ_LATENCY, layout);
	gnv_qp_point(dq.state, layout, &dq);
	return dq;
}

/* No word of one kind is a word of another, and all are in the state. */
void prove_words(void)
{
	struct gnv_qp_layout layout;
	const struct gpunvme_dq dq = any_queue(&layout);
	uint32_t cid = nondet_32(), last;
	uint64_t ready, result, at;

	TAKE(cid < dq.cids);
	ready = gnvd_ready_at(&dq, nondet_64());
	PROVE(ready >= dq.state + sizeof(struct gpunvme_dq_state) && ready + 8 <= dq.result);
	result = gnvd_result_at(&dq, cid);
	PROVE(result >= dq.result && result + 8 <= (dq.flags & GPUNVME_DQ_LATENCY ? gnvd_written_at(&dq, 0) : dq.cid_map));
	if (dq.flags & GPUNVME_DQ_LATENCY) {
		at = gnvd_written_at(&dq, cid);
		PROVE(at + 8 <= gnvd_result_at(&dq, 2 * dq.cids));
		last = gnvd_bucket(nondet_64());
		at = gnvd_result_at(&dq, 2 * dq.cids + last);
		PROVE(at >= dq.state + layout.buckets && at + 8 <= dq.cid_map);
	}
	at = dq.cid_map + cid / 64 * 8;
	PROVE(at >= dq.result + 8ull * dq.cids && at + 8 <= dq.state + layout.size);
	PROVE(!((dq.ready | dq.result | dq.cid_map) & 7) && !(layout.size % GNV_QP_LINE));
}

/* So few identifiers that the completion ring never runs over; none is 0xffff; generations stand above the largest. */
void prove_identifiers(void)
{
	uint32_t shift = nondet_32(), cids, gens, pos = nondet_32();

	TAKE(shift >= 1 && shift <= 16);
	cids = gnv_qp_cids(1u << shift);
	gens = gnv_qp_cid_gens(cids);
	PROVE(cids && cids < 1u << shift && cids <= 65535);
	PROVE(shift == 1 || cids + (1u << shift) / 4 < 1u << shift);
	PROVE(!(gens & (cids - 1)) && !(gens & ~GPUNVME_CID_GENS));
	PROVE((cids - 1 | gens) <= 0xffff && !(GPUNVME_CID_GEN(gens, pos) & ~gens));
}

/* Bucket i begins where dq.h says that it does. */
void prove_bucket(void)
{
	uint64_t ticks = nondet_64();
	uint32_t i = gnvd_bucket(ticks), steps = GPUNVME_LATENCY_STEPS, shift = i / steps - 1;

	PROVE(i < GPUNVME_LATENCY_BUCKETS);
	if (i < steps)
		PROVE(ticks == i);
	else
		PROVE(ticks >> shift == steps + i % steps);
}

/* What the host and lanes read out of a result word is what was stored: the state, the generation, the status. */
void prove_result_word(void)
{
	struct gnv_qp_layout layout;
	const struct gpunvme_dq dq = any_queue(&layout);
	uint64_t pos = nondet_64(), word = pos << GPUNVME_RES_GEN_SHIFT | GPUNVME_RES_SUBMITTED, done;
	uint32_t cid = nondet_32(), dw3 = nondet_32();
	int right = gnvd_gen_of(&dq, word) == (dw3 & dq.cid_gens);

	TAKE(cid < dq.cids);
	PROVE(gnvd_cid_of(&dq, (cid | GPUNVME_CID_GEN(dq.cid_gens, pos)) | dw3 & 0xffff0000) == cid);
	PROVE(!gnvd_is_over(&dq, word) && gnv_qp_is_open(dq.cid_gens, word));
	done = word | gnvd_outcome(&dq, dw3);
	PROVE(gnvd_is_over(&dq, done) == right && gnv_qp_is_open(dq.cid_gens, done) == !right);
	PROVE((done & GPUNVME_RES_STATUS) >> GPUNVME_RES_STATUS_SHIFT == dw3 >> 17 && done >> 32 == (uint32_t)pos);
	PROVE(!((word | done) & GPUNVME_RES_DETACHED));
}

/* Two wrong completions of one command never make a right one, whatever they name. */
void prove_two_wrong(void)
{
	struct gnv_qp_layout layout;
	const struct gpunvme_dq dq = any_queue(&layout);
	uint64_t word = nondet_64() << GPUNVME_RES_GEN_SHIFT | GPUNVME_RES_SUBMITTED;
	uint32_t a = nondet_32(), b = nondet_32(), gen = gnvd_gen_of(&dq, word);

	TAKE((a & dq.cid_gens) != gen && (b & dq.cid_gens) != gen);
	PROVE(!gnvd_is_over(&dq, word | gnvd_outcome(&dq, a) | gnvd_outcome(&dq, b)));
}
