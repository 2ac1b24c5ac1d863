/* SPDX-License-Identifier: MIT */
/*
 * Deliver: store checked completions in the result words of their owners, or give them to the lanes of the draining wave at once.
 */
#ifndef GPUNVME_DEVICE_DELIVER_H
#define GPUNVME_DEVICE_DELIVER_H

#include <gpunvme/device/queue.h>

/*
 * Completions that each lane looks at in one look, so that their loads overlap. Use more of them for few fast queues, fewer for few
 * registers. One for each lane of a wave is more than a drive completes in a round trip.
 */
#if defined(GPUNVME_CQ_BATCH)
#define GNVD_BATCH GPUNVME_CQ_BATCH
#else
#define GNVD_BATCH GNVD_LOOKS
#endif
/* In a narrow wave each load is a request of its own. More of them slow down other queues more than they help this one. */
#define GNVD_NARROW 8u
#define GNVD_NARROW_BATCH (GNVD_BATCH < 4u ? GNVD_BATCH : 4u)
#define GNVD_MOST_OF(w) ((w)->count >= GNVD_NARROW ? GNVD_BATCH : GNVD_NARROW_BATCH)

/*
 * New completions as one lane sees them. Entry i is `count` positions after entry i - 1. It begins with zeroes: a compiler keeps
 * the last turn's value of a field that is not set on every path.
 */
struct gnvd_batch {
	uint32_t dw2[GNVD_BATCH], dw3[GNVD_BATCH];
	uint32_t looked; /* entries of each lane in this look, the same for all lanes */
	uint32_t mine;  /* bit i: entry i is new */
	uint32_t wrong; /* bit i: the device broke the protocol with entry i */
	uint32_t delta; /* how far the last entry of this lane moves fetched */
	uint32_t total; /* new entries of the wave, from pos on without a gap */
	uint32_t skip;  /* entries before pos in this look */
};

/* A detached command has ended. */
GNVD_FN void gnvd_finish_detached(const struct gpunvme_dq *dq, uint32_t cid, uint64_t gen, uint32_t status)
{
	if (status & GPUNVME_ST_CODE)
		gnvd_add64(GNVD_STATE(dq, detached_errors), 1);
	gnvd_st64(gnvd_result_at(dq, cid), gen);
	gnvd_free_cids(dq, cid & ~63u, 1ull << (cid & 63));
}

/*
 * The commands of the wave itself. Their identifiers and positions are contiguous by rank, and the lanes are the ranks. A drain
 * that finds one of these takes it at once: no result word becomes DONE, and no lane looks there. AMD GPUs compile one copy for all
 * waves, which does not use this.
 */
struct gnvd_own {
	uint64_t gen;    /* of the result word of the first one */
	uint64_t lanes;  /* lanes that wait for theirs */
	uint32_t cid;    /* of the first one */
	uint32_t over;   /* the command of this lane has ended, ... */
	uint32_t status; /* ... with this status */
};

/* The wave has places for the commands of the lanes with `mine` set. */
GNVD_FN void gnvd_begin_own(const struct gnvd_wave *w, const struct gnvd_grant *grant, int mine, struct gnvd_own *own)
{
	uint64_t lanes, run;

	if (!GNVD_OWNS(w))
		return;
	lanes = gnvd_ballot(w, mine);
	run = grant->cids >> gnvd_lowest(grant->cids);
	own->gen = grant->pos << GPUNVME_RES_GEN_SHIFT;
	own->cid = grant->base + gnvd_lowest(grant->cids);
	own->lanes = lanes & (lanes + 1) || run & (run + 1) ? 0 : lanes;
}

#define GNVD_NOBODY ~0u

/* The rank whose command dword 3 of a completion names. */
GNVD_FN uint32_t gnvd_owner(const struct gpunvme_dq *dq, const struct gnvd_own *own, uint32_t dw3)
{
	uint32_t rank = gnvd_cid_of(dq, dw3) - own->cid;
	uint64_t pos = (own->gen >> GPUNVME_RES_GEN_SHIFT) + rank;

	if (rank >= 64 || !(own->lanes >> rank & 1) || GPUNVME_CID_GEN(dq->cid_gens, pos) != (dw3 & dq->cid_gens))
		return GNVD_NOBODY;
	return rank;
}

/*
 * The rank that takes this lane's one entry at once. In a wave this needs the same distance, *shift, from lane to owner in all
 * lanes. Then one shuffle moves all entries. Controllers that complete in order make the distance the same.
 */
GNVD_FN uint32_t gnvd_find_owner(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gnvd_batch *b,
				 const struct gnvd_own *own, uint32_t *shift)
{
	uint32_t owner = b->mine & ~b->wrong & 1 ? gnvd_owner(dq, own, b->dw3[0]) : GNVD_NOBODY;
	uint64_t lanes;

	*shift = 0;
	if (w->count == 1)
		return owner;
	lanes = gnvd_ballot(w, owner != GNVD_NOBODY);
	*shift = gnvd_shfl32(w, owner - w->rank, lanes ? gnvd_lowest(lanes) : 0);
	return gnvd_ballot(w, owner != GNVD_NOBODY && owner - w->rank != *shift) ? GNVD_NOBODY : owner;
}

/*
 * Store completions in their result words, after gnvd_order_agent(). Or take the one entry for `owner`, which acquires as
 * gnvd_take() does. old: the previous words.
 */
GNVD_FN void gnvd_deliver(const struct gpunvme_dq *dq, const struct gnvd_batch *b, uint64_t *old, uint32_t most,
			  const struct gnvd_own *own, uint32_t owner)
{
	uint32_t i;

	for (i = 0; i < most; i++) {
		old[i] = 0;
		if (owner != GNVD_NOBODY)
			old[i] = gnvd_take64(gnvd_result_at(dq, own->cid + owner), own->gen + GNVD_GEN_ONE * owner);
		else if ((b->mine & ~b->wrong) >> i & 1) /* one atomic makes the word DONE and returns the old one */
			old[i] = gnvd_or_after64(gnvd_result_at(dq, gnvd_cid_of(dq, b->dw3[i])), gnvd_outcome(dq, b->dw3[i]));
	}
}

/* Check the old words. Return the bits of wrong entries: their command has ended, or is of another generation. */
GNVD_FN uint32_t gnvd_check_old(const struct gpunvme_dq *dq, const struct gnvd_batch *b, const uint64_t *old, uint32_t most)
{
	uint32_t i, wrong = b->wrong;

	for (i = 0; i < most; i++) {
		if (!((b->mine & ~b->wrong) >> i & 1))
			continue;
		if ((old[i] & GPUNVME_RES_STATE) != GPUNVME_RES_SUBMITTED || gnvd_gen_of(dq, old[i]) != (b->dw3[i] & dq->cid_gens))
			wrong |= 1u << i;
		else if (old[i] & GPUNVME_RES_DETACHED)
			gnvd_finish_detached(dq, gnvd_cid_of(dq, b->dw3[i]), old[i] & ~(GNVD_GEN_ONE - 1), b->dw3[i] >> 17);
	}
	return wrong;
}

/* Give each lane the completion that was taken for it, with what it acquired. */
GNVD_FN void gnvd_hand_over(const struct gnvd_wave *w, const struct gnvd_batch *b, int taken, uint32_t shift, struct gnvd_own *own)
{
	uint32_t from = w->rank - shift < w->count ? w->rank - shift : 0, status;
	uint64_t lanes = gnvd_ballot(w, taken);

	gnvd_meet(w);
	status = gnvd_shfl32(w, b->dw3[0] >> 17, from);
	if (from + shift == w->rank && lanes >> from & 1) {
		own->over = 1;
		own->status = status;
	}
}

#endif
