/* SPDX-License-Identifier: MIT */
/*
 * The queue algorithm: many lanes share one submission and one completion ring. Only device.h includes this.
 *
 * Two resources, freed by what really frees them. An SQ position is free when the controller has fetched it (the SQ head in a
 * completion says so). A CID is free when its owner has consumed the result. So a slow command holds one CID, not the ring.
 *
 *   reserve   the leader takes k CIDs and k positions for the lanes that want to submit, or nothing
 *   write     each lane writes its SQE and marks its result word SUBMITTED
 *   publish   whoever finds the gate open rings for all, the others leave a READY word for him
 *   drain     whoever waits tries the drain lock; the holder turns completions into result words
 *   take      each lane sees its own result word, acquires, frees its CID
 *
 * Between reserving positions and READY a lane never waits for the device, so a holder waits only for other running holders.
 * Every lane of the wave runs every collective: loops are left by ballot, and `if (w->rank == 0)` blocks contain none.
 */
#ifndef GPUNVME_DEVICE_QUEUE_H
#define GPUNVME_DEVICE_QUEUE_H

#include <gpunvme/device_platform.h>

#define GNVD_STATE(dq, field) ((dq)->state + offsetof(struct gpunvme_dq_state, field))
#define GNVD_GEN_ONE (1ull << GPUNVME_RES_GEN_SHIFT)

/* A command as its lane built it, without CID. */
struct gnvd_cmd {
	uint32_t dw0; /* opcode and flags */
	uint32_t cdw12;
	uint64_t prp1;
	uint64_t prp2;
	uint64_t slba;
};

/* What the leader got for its wave. Made anew for each attempt: else compilers keep the last one. */
struct gnvd_grant {
	uint64_t pos;  /* first position */
	uint64_t cids; /* set bits of one CID map word */
	uint32_t base; /* CID of bit 0 of that word */
	uint32_t count;
	uint32_t mine; /* of these, the one for this lane */
};

GNVD_FN uint64_t gnvd_result_at(const struct gpunvme_dq *dq, uint32_t cid)
{
	return dq->result + 8u * cid;
}

GNVD_FN uint64_t gnvd_ready_at(const struct gpunvme_dq *dq, uint64_t pos)
{
	return dq->ready + 8u * ((uint32_t)pos & ((1u << dq->sq_shift) - 1));
}

/* The k lowest set bits of v, or all when there are fewer. */
GNVD_FN uint64_t gnvd_lowest_bits(uint64_t v, uint32_t k)
{
	uint32_t at = 0, step;

#if defined(GNVD_CPU)
	if (k == 1)
		return v & (~v + 1);
#endif
	if (gnvd_popc(v) <= k)
		return v;
	if (gnvd_popc((uint32_t)v) == k)
		return (uint32_t)v;
	for (step = 32; step; step >>= 1)
		if (gnvd_popc(v & ((1ull << (at + step)) - 1)) <= k)
			at += step;
	return v & ((1ull << at) - 1);
}

/* Position of the set bit that has n set bits below it; n < popcount. */
GNVD_FN uint32_t gnvd_nth_bit(uint64_t v, uint32_t n)
{
	uint32_t at = 0, step;

#if defined(GNVD_CPU)
	if (!n)
		return gnvd_lowest(v);
#endif
	if (!((v >> gnvd_lowest(v)) & ((v >> gnvd_lowest(v)) + 1))) /* no gap */
		return gnvd_lowest(v) + n;
	for (step = 32; step; step >>= 1)
		if (gnvd_popc(v & ((1ull << (at + step)) - 1)) <= n)
			at += step;
	return at;
}

/* Give the CIDs back: their owners' last accesses to the result words come before. */
GNVD_FN void gnvd_free_cids(const struct gpunvme_dq *dq, uint32_t base, uint64_t bits)
{
	gnvd_or64(dq->cid_map + base / 8, bits);
}

/* End the queue. The first cause stays. */
GNVD_FN void gnvd_poison(const struct gpunvme_dq *dq, uint32_t cause)
{
	gnvd_cas32(GNVD_STATE(dq, poison), 0, cause);
}

/* What the host asks for: 0 to go on, 1 to stop, else the GPUNVME_E* with which the queue ends, for all its lanes. */
GNVD_FN uint32_t gnvd_control(const struct gpunvme_dq *dq)
{
	uint32_t word = gnvd_load_ring32(dq->stop);

	if (word > 1)
		gnvd_poison(dq, word);
	return word;
}

/* ---- Counters ---- */

/* Kept for queues that ask for them. 0 compiles them out; all kernels that use a queue must be compiled alike. */
#if !defined(GPUNVME_COUNTERS)
#define GPUNVME_COUNTERS 1
#endif
#define GNVD_KEEPS(dq, what) (GPUNVME_COUNTERS && (dq)->flags & (what))

GNVD_FN uint64_t gnvd_written_at(const struct gpunvme_dq *dq, uint32_t cid)
{
	return gnvd_result_at(dq, dq->cids + cid);
}

/* The number of the bucket of a time. */
GNVD_FN uint32_t gnvd_bucket(uint64_t ticks)
{
	uint32_t shift = gnvd_highest(ticks | GPUNVME_LATENCY_STEPS) - 3;

	return GPUNVME_LATENCY_STEPS * shift + (uint32_t)(ticks >> shift);
}

/* ---- Drain ---- */

/* A command nobody waits for is over. */
GNVD_FN void gnvd_finish_detached(const struct gpunvme_dq *dq, uint32_t cid, uint64_t gen, uint32_t status)
{
	if (status & GPUNVME_ST_CODE)
		gnvd_add64(GNVD_STATE(dq, detached_errors), 1);
	gnvd_st64(gnvd_result_at(dq, cid), gen);
	gnvd_free_cids(dq, cid & ~63u, 1ull << (cid & 63));
}

GNVD_FN void gnvd_poison_protocol(const struct gpunvme_dq *dq, uint64_t cqe)
{
	uint32_t i;

	for (i = 0; i < 4; i++) /* one address at a time */
		gnvd_st32(GNVD_STATE(dq, poison_cqe) + 4 * i, gnvd_load_ring32(cqe + gnvd_opaque32(4 * i)));
	gnvd_poison(dq, GPUNVME_EPROTO);
}

/*
 * Completions each lane looks at in one go, so that their loads overlap: more of them for few fast queues, fewer for few registers.
 * One for each lane of a wave is more than a drive completes in a round trip.
 */
#if defined(GPUNVME_CQ_BATCH)
#define GNVD_BATCH GPUNVME_CQ_BATCH
#elif defined(GNVD_CUDA)
#define GNVD_BATCH 8u
#else
#define GNVD_BATCH 1u
#endif
/* Of a narrow wave each load is a request of its own; more of them do more harm to other queues than good. */
#define GNVD_NARROW 8u
#define GNVD_NARROW_BATCH (GNVD_BATCH < 4u ? GNVD_BATCH : 4u)

/* What the holder of the drain lock knows. Of positions that are only compared with near ones the lower half is enough. */
struct gnvd_drain {
	uint64_t pos;     /* completions consumed */
	uint64_t fetched; /* as in the state */
	uint32_t pub;     /* at least what it was when the completions were seen */
	uint32_t rung;    /* pos at the last CQ doorbell */
};

/*
 * New completions as one lane sees them: entry i is `count` positions behind entry i - 1. Always begun with zeroes: of what is not
 * set on every path a compiler keeps what it was in the turn before.
 */
struct gnvd_batch {
	uint32_t dw2[GNVD_BATCH], dw3[GNVD_BATCH];
	uint32_t looked; /* entries of each lane that are looked at, the same for all lanes */
	uint32_t mine;  /* bit i: entry i is new */
	uint32_t wrong; /* bit i: and the device broke the protocol with it */
	uint32_t delta; /* how far the last one of this lane moves fetched */
	uint32_t total; /* of the wave, from pos on without a gap */
};

GNVD_FN uint64_t gnvd_cqe_at(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, uint32_t i)
{
	return dq->cq + 16u * (((uint32_t)pos + w->rank + i * w->count) & ((1u << dq->cq_shift) - 1));
}

/*
 * The doorbell that a completion answers was rung behind the store of pub, but d->pub was loaded before the completion was, or
 * beside it. Look again; after 10 ms believe that the device is wrong. Returns how far fetched may move.
 */
GNVD_FN uint32_t gnvd_wait_pub(const struct gpunvme_dq *dq, const struct gnvd_drain *d, uint32_t delta)
{
	uint64_t began = gnvd_clock();
	uint32_t rung;

	do {
		gnvd_order_agent();
		rung = (uint32_t)gnvd_ld64(GNVD_STATE(dq, pub)) - (uint32_t)d->fetched;
	} while (delta > rung && gnvd_clock() - began < 10ull * dq->ticks_per_ms);
	return rung;
}

/* Start to load the entries behind d->pos: where they may be read whole dwords 2 and 3, else dword 3. */
GNVD_FN void gnvd_load_cqes(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gnvd_drain *d,
			    struct gnvd_batch *b, uint32_t most)
{
	uint64_t at[GNVD_BATCH];
	uint32_t i, whole[4];

	if (dq->flags & GPUNVME_DQ_CQE16) {
		for (i = 0; i < most; i++) {
			if (i >= b->looked)
				continue;
			gnvd_load_ring128(gnvd_cqe_at(dq, w, d->pos, i), whole);
			b->dw2[i] = whole[2];
			b->dw3[i] = whole[3];
		}
	} else {
		for (i = 0; i < most; i++)
			at[i] = gnvd_cqe_at(dq, w, d->pos, i < b->looked ? i : 0) + 12;
		gnvd_load_ring32s(at, b->dw3, most);
	}
}

/* Does dword 3 of the entry at pos hold the phase of this round? */
GNVD_FN uint32_t gnvd_is_new(const struct gpunvme_dq *dq, uint32_t pos, uint32_t dw3)
{
	return (dw3 >> 16 & 1) == (~(pos >> dq->cq_shift) & 1);
}

/* Which of them are new: dword 3 holds the phase, and once it is new the rest of the entry is. */
GNVD_FN void gnvd_find_new(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gnvd_drain *d,
			   struct gnvd_batch *b, uint32_t most)
{
	uint32_t mask = (1u << dq->cq_shift) - 1, i, n, next, ahead, is_new;
	uint64_t at[GNVD_BATCH];

	b->mine = b->total = 0;
	for (i = 0; i < most; i++) {
		ahead = w->rank + i * w->count;
		is_new = ahead <= mask && gnvd_is_new(dq, (uint32_t)d->pos + ahead, b->dw3[i]);
		n = i < b->looked && b->total == i * w->count ? gnvd_leading(w, (int)is_new, &next) : 0;
		b->mine |= (uint32_t)(w->rank < n) << i;
		b->total += n;
	}
	if (b->mine && !(dq->flags & GPUNVME_DQ_CQE16)) {
		for (i = 0; i < most; i++) { /* entries that are not new are not touched */
			at[i] = gnvd_cqe_at(dq, w, d->pos, b->mine >> i & 1 ? i : 0) + 8;
			gnvd_acquire_ring32(at[i] + 4); /* pairs with the controller's write of the entry */
		}
		gnvd_load_ring32s(at, b->dw2, most);
	}
}

/*
 * A device is not trusted: a completion of another queue, of no command, or with an SQ head outside [fetched, pub] is wrong.
 * gnvd_settle() finds those of no command in flight.
 */
GNVD_FN void gnvd_check_cqes(const struct gpunvme_dq *dq, const struct gnvd_drain *d, struct gnvd_batch *b, uint32_t most)
{
	int32_t rung = (int32_t)(d->pub - (uint32_t)d->fetched); /* below 0 when fetched has moved past what pub was */
	uint32_t i, sqhd;

	b->wrong = b->delta = 0;
	for (i = 0; i < most; i++) {
		if (!(b->mine >> i & 1))
			continue;
		sqhd = b->dw2[i] & GPUNVME_CQE_DW2_SQHD;
		b->delta = (sqhd - (uint32_t)d->fetched) & ((1u << dq->sq_shift) - 1);
		if ((int32_t)b->delta > rung)
			rung = (int32_t)gnvd_wait_pub(dq, d, b->delta);
		if (b->dw2[i] >> 16 != dq->qid || sqhd >> dq->sq_shift || (int32_t)b->delta > rung ||
		    (b->dw3[i] & GPUNVME_CQE_DW3_CID) >= dq->cids)
			b->wrong |= 1u << i;
	}
}

/* Count new completions, before their identifiers can be used again. */
GNVD_FN void gnvd_count(const struct gpunvme_dq *dq, const struct gnvd_batch *b, uint32_t most)
{
	uint64_t written[GNVD_BATCH], now;
	uint32_t i, good = b->mine & ~b->wrong, errors = 0;

	if (GNVD_KEEPS(dq, GPUNVME_DQ_STATS)) {
		for (i = 0; i < most; i++)
			errors += good >> i & 1 && b->dw3[i] >> 17 & GPUNVME_ST_CODE;
		if (errors)
			gnvd_add64(GNVD_STATE(dq, errors), errors);
	}
	if (!GNVD_KEEPS(dq, GPUNVME_DQ_LATENCY) || !good)
		return;
	for (i = 0; i < most; i++) /* taken: a second completion of the same command counts nothing */
		written[i] = good >> i & 1 ? gnvd_and64(gnvd_written_at(dq, b->dw3[i] & GPUNVME_CQE_DW3_CID), 0) : 0;
	now = gnvd_clock();
	for (i = 0; i < most; i++)
		if (written[i])
			gnvd_add64(gnvd_result_at(dq, 2 * dq->cids + gnvd_bucket(now > written[i] ? now - written[i] : 0)), 1);
}

/* Store completions where their owners look, behind a gnvd_order_agent. old: what was there. */
GNVD_FN void gnvd_deliver(const struct gpunvme_dq *dq, const struct gnvd_batch *b, uint64_t *old, uint32_t most)
{
	uint32_t i;

	for (i = 0; i < most; i++) {
		old[i] = GPUNVME_RES_SUBMITTED;
		if ((b->mine & ~b->wrong) >> i & 1) /* one atomic makes the word DONE and tells what it was */
			old[i] = gnvd_or_after64(gnvd_result_at(dq, b->dw3[i] & GPUNVME_CQE_DW3_CID), GPUNVME_RES_DONE_BIT |
						 (uint64_t)(b->dw3[i] >> 17) << GPUNVME_RES_STATUS_SHIFT);
	}
}

/* Look at what the words were. Returns the bits of wrong entries: a second completion of a command finds it DONE. */
GNVD_FN uint32_t gnvd_settle(const struct gpunvme_dq *dq, const struct gnvd_batch *b, const uint64_t *old, uint32_t most)
{
	uint32_t i, wrong = b->wrong;

	for (i = 0; i < most; i++) {
		if ((old[i] & GPUNVME_RES_STATE) != GPUNVME_RES_SUBMITTED)
			wrong |= 1u << i;
		else if (old[i] & GPUNVME_RES_DETACHED)
			gnvd_finish_detached(dq, b->dw3[i] & GPUNVME_CQE_DW3_CID, old[i] & ~(GNVD_GEN_ONE - 1), b->dw3[i] >> 17);
	}
	return wrong;
}

/* Take the drain lock: d->pos is known then. Returns 0 when another wave has it, else how many commands may be over, at least 1. */
GNVD_FN uint32_t gnvd_begin_drain(const struct gpunvme_dq *dq, const struct gnvd_wave *w, struct gnvd_drain *d)
{
	uint64_t word = 1, pub = 0;

	if (w->rank == 0) {
		word = gnvd_ld64(GNVD_STATE(dq, drain));
		if (GNVD_BATCH > 1)
			pub = gnvd_ld64(GNVD_STATE(dq, pub));
#if defined(GNVD_CPU) /* here a look at the ring costs less than the lock */
		word |= !gnvd_is_new(dq, (uint32_t)(word >> 1), gnvd_load_ring32(gnvd_cqe_at(dq, w, word >> 1, 0) + 12));
#endif
		if (!(word & 1))
			word = gnvd_or_after64(GNVD_STATE(dq, drain), 1);
	}
	word = gnvd_bcast64(w, word);
	if (word & 1)
		return 0;
	d->pos = word >> 1;
	return GNVD_BATCH > 1 ? gnvd_bcast32(w, (int64_t)(pub - d->pos) > 0 ? (uint32_t)(pub - d->pos) : 1) : 1;
}

/*
 * Behind the lock: look for completions, where `in_flight` commands may be over. At places for half of them: what is read in vain
 * takes the place of commands on a full link.
 */
GNVD_FN void gnvd_first_look(const struct gpunvme_dq *dq, const struct gnvd_wave *w, struct gnvd_drain *d, struct gnvd_batch *b,
			     uint32_t in_flight, uint32_t most)
{
	uint32_t pub, rung, poison, i;
	uint64_t fetched;

	b->looked = 1;
	for (i = 1; i < most; i++)
		b->looked += 2 * i * w->count < in_flight && (w->count >= GNVD_NARROW || i < GNVD_NARROW_BATCH);
	fetched = gnvd_ld64(GNVD_STATE(dq, fetched));
	pub = (uint32_t)gnvd_ld64(GNVD_STATE(dq, pub));
	rung = (uint32_t)gnvd_ld64(GNVD_STATE(dq, cq_rung));
	poison = gnvd_ld32(GNVD_STATE(dq, poison));
	gnvd_load_cqes(dq, w, d, b, most);
	d->fetched = gnvd_same64(fetched); /* behind the loads, which overlap */
	d->pub = gnvd_same32(pub);
	d->rung = gnvd_same32(rung);
	gnvd_find_new(dq, w, d, b, most);
	gnvd_check_cqes(dq, d, b, most);
	gnvd_join();
	if (gnvd_bcast32(w, poison) == GPUNVME_EPROTO)
		b->total = 0;
}

/* Deliver what was read, and read behind it meanwhile. Returns the lanes that saw the device break the protocol. */
GNVD_FN uint64_t gnvd_drain_turn(const struct gpunvme_dq *dq, const struct gnvd_wave *w, struct gnvd_drain *d, struct gnvd_batch *b,
				 int more, uint32_t most)
{
	uint64_t old[GNVD_BATCH], lanes = gnvd_ballot(w, b->wrong != 0), pos = d->pos;
	struct gnvd_batch next = { { 0 }, { 0 }, most, 0, 0, 0, 0 };
	uint32_t n = b->total, last, wrong;

	if (GNVD_KEEPS(dq, GPUNVME_DQ_STATS | GPUNVME_DQ_LATENCY))
		gnvd_count(dq, b, most);
	gnvd_order_agent(); /* one for all: the results are released behind what was read */
	more = more && !lanes && n == most * w->count;
	d->pos += n;
	if (more)
		gnvd_load_cqes(dq, w, d, &next, most);
	gnvd_deliver(dq, b, old, most);
	if (!lanes) {
		last = most == 1 ? n - 1 : (n - 1) % w->count;
		d->fetched += gnvd_shfl32(w, b->delta, gnvd_lane_of_rank(w, w->rank == last));
		if (w->rank == 0)
			gnvd_max64(GNVD_STATE(dq, fetched), d->fetched);
		if (w->rank == 0 && GNVD_KEEPS(dq, GPUNVME_DQ_STATS))
			gnvd_add64(GNVD_STATE(dq, completions), n);
		gnvd_join();
	}
	wrong = gnvd_settle(dq, b, old, most);
	lanes = gnvd_ballot(w, wrong != 0);
	if (wrong && !gnvd_below(w, lanes))
		gnvd_poison_protocol(dq, gnvd_cqe_at(dq, w, pos, gnvd_popc((wrong & (0 - wrong)) - 1)));
	b->total = 0;
	if (more) {
		*b = next;
		gnvd_find_new(dq, w, d, b, most);
		gnvd_check_cqes(dq, d, b, most);
		gnvd_join();
	}
	return lanes;
}

#define GNVD_DRAIN_TURNS 16u /* then others may drain: the holder has results of its own to look at */

/*
 * Behind the lock: turn completions into results, at most `most` entries of each lane at a time, and let go. On CUDA, where a
 * release is a fence, who has not rung needs none: `fetched` only grows, and completions say what the next holder has not seen.
 */
GNVD_FN void gnvd_drain_on(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, uint32_t in_flight, uint32_t turns,
			   uint32_t most)
{
	uint32_t turn = 0, rung = 0;
	uint64_t bad = 0;
	struct gnvd_drain d = { pos, 0, 0, 0 };
	struct gnvd_batch b = { { 0 }, { 0 }, 0, 0, 0, 0, 0 };

	gnvd_first_look(dq, w, &d, &b, in_flight, most);
	while (b.total && !bad) {
		bad = gnvd_drain_turn(dq, w, &d, &b, ++turn < turns, most);
		if ((uint32_t)d.pos - d.rung <= 1u << dq->cq_shift >> 2)
			continue;
		d.rung = (uint32_t)d.pos;
		rung = 1;
		if (w->rank == 0) {
			gnvd_doorbell(dq->cq_db, (uint32_t)d.pos & ((1u << dq->cq_shift) - 1));
			gnvd_st64(GNVD_STATE(dq, cq_rung), d.pos);
		}
		gnvd_join();
	}
	if (w->rank == 0) {
		if (GNVD_KEEPS(dq, GPUNVME_DQ_STATS))
			gnvd_add64(GNVD_STATE(dq, drains), 1);
#if defined(GNVD_CUDA)
		if (!rung && !bad) {
			gnvd_st64(GNVD_STATE(dq, drain), d.pos << 1);
			return;
		}
#endif
		(void)rung; /* doorbells of successive holders come in order, and they know of the poison */
		gnvd_st_release64(GNVD_STATE(dq, drain), d.pos << 1);
	}
}

/* Turn completions into results, unless another wave is at it. Where few are to come, one look that needs few registers. */
GNVD_FN void gnvd_drain(const struct gpunvme_dq *dq, const struct gnvd_wave *w)
{
	struct gnvd_drain d = { 0, 0, 0, 0 };
	uint32_t n = gnvd_begin_drain(dq, w, &d);

	if (GNVD_BATCH > 1 && n && n <= w->count)
		gnvd_drain_on(dq, w, d.pos, n, 1, 1);
	else if (n)
		gnvd_drain_on(dq, w, d.pos, n, GNVD_DRAIN_TURNS, GNVD_BATCH);
}

/* ---- Publish ---- */

/*
 * The end of the run of READY commands that starts at `pos`. Lanes look at runs of `stride` commands side by side, the usual case
 * being that all waves submit alike. The caller's own run, at `own`, is known to be READY.
 */
GNVD_FN uint64_t gnvd_scan_ready(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, uint64_t own,
				 uint32_t stride)
{
	uint32_t ahead = w->rank * stride, n, k, next;
	uint64_t word;

	for (;;) {
		word = ahead < 1u << dq->sq_shift ? gnvd_ld_after64(gnvd_ready_at(dq, pos + ahead)) : 0;
		k = word >> GPUNVME_READY_POS_SHIFT == pos + ahead ? (uint32_t)(word & GPUNVME_READY_COUNT) : 0;
		k = pos + ahead == own ? stride : k;
		n = gnvd_leading(w, k == stride, &next);
		pos += (uint64_t)n * stride;
		if (n == w->count)
			continue;
		k = gnvd_shfl32(w, k, next);
		if (!k)
			return pos;
		pos += k;
	}
}

/* Tell the controller of the commands up to `end`. Releases to the system all that the commands of this and other waves stored. */
GNVD_FN void gnvd_ring(const struct gpunvme_dq *dq, uint64_t end)
{
	uint32_t mask = (1u << dq->sq_shift) - 1;

	gnvd_st64(GNVD_STATE(dq, pub), end); /* before the doorbell: a completion is checked against it */
	gnvd_order_system();
	if (dq->flags & GPUNVME_DQ_READBACK_SQE)
		(void)gnvd_load_ring32(dq->sq + 64ull * ((uint32_t)(end - 1) & mask) + 60);
	gnvd_doorbell(dq->sq_db, (uint32_t)end & mask);
	if (GNVD_KEEPS(dq, GPUNVME_DQ_STATS))
		gnvd_add64(GNVD_STATE(dq, doorbells), 1);
}

/* The count in the gate before this wave came, *pub the position up to which is announced. */
GNVD_FN uint32_t gnvd_come(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t own, uint64_t *pub)
{
	uint64_t gate = gnvd_bcast64(w, w->rank == 0 ? gnvd_fetch_add64(GNVD_STATE(dq, pub_gate), 1) : 0);

	*pub = own + (uint64_t)((int64_t)(gate - (own << GPUNVME_GATE_SHIFT)) >> GPUNVME_GATE_SHIFT);
	return (uint32_t)(gate & GPUNVME_GATE_CAME);
}

/*
 * Announce the wave's `count` commands at `own`, and what else is READY, unless another wave is at it: that one is told by the
 * count in the gate, and looks again. A wave that finds the gate open, and nobody before it, needs no READY word; any other stores
 * it, and comes again, so that who looks again sees it.
 */
GNVD_FN void gnvd_publish(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t own, uint32_t count)
{
	uint32_t closed, again;
	uint64_t gate, pub, end, ready;

	gnvd_meet(w); /* the commands of all lanes come before what the leader does */
	own = gnvd_same64(own); /* known to be: what follows is scalar then */
	count = gnvd_same32(count);
	gnvd_soon(dq->sq_db);
	closed = gnvd_come(dq, w, own, &pub);
	if (closed || pub != own) {
		gnvd_release_to64(w, gnvd_ready_at(dq, own), own << GPUNVME_READY_POS_SHIFT | count);
		if (closed) {
			gnvd_order_agent();
			closed = gnvd_come(dq, w, own, &pub);
		}
	}
	while (!closed) {
		end = gnvd_scan_ready(dq, w, pub, own, count);
		again = 0;
		if (w->rank == 0) {
			if (end != pub)
				gnvd_ring(dq, end);
			gate = gnvd_xchg64(GNVD_STATE(dq, pub_gate), end << GPUNVME_GATE_SHIFT);
			if ((gate & GPUNVME_GATE_CAME) > 1) {
				ready = gnvd_ld64(gnvd_ready_at(dq, end));
				again = ready && ready >> GPUNVME_READY_POS_SHIFT == end;
			}
		}
		if (!gnvd_bcast32(w, again))
			return;
		closed = gnvd_come(dq, w, own, &pub);
	}
}

/* ---- Reserve and submit ---- */

/* Claim up to k CIDs of one word; the first to try is number `at`, with the bits `word`. Returns their bits, 0: none is free. */
GNVD_FN uint64_t gnvd_claim_cids(const struct gpunvme_dq *dq, uint32_t at, uint64_t word, uint32_t k, uint32_t *base)
{
	uint32_t words = (dq->cids + 63) / 64, i;
	uint64_t bits, got;

	for (i = 0; i < words; i++) {
		bits = gnvd_lowest_bits(word, k);
		got = bits ? gnvd_same64(gnvd_and64(dq->cid_map + 8u * at, ~bits)) & bits : 0;
		*base = 64 * at;
		if (got)
			return got;
		at = at + 1 == words ? 0 : at + 1;
		word = gnvd_same64(gnvd_ld64(dq->cid_map + 8u * at));
	}
	return 0;
}

/* The leader takes up to k CIDs and as many positions, or nothing: then no bit of cids is set. */
GNVD_FN void gnvd_reserve(const struct gpunvme_dq *dq, uint32_t hint, uint32_t k, struct gnvd_grant *grant)
{
	uint64_t room = (1ull << dq->sq_shift) - 1, seen;
	uint64_t resv = gnvd_ld64(GNVD_STATE(dq, resv)), fetched = gnvd_ld_after64(GNVD_STATE(dq, fetched));
	uint32_t poison = gnvd_ld32(GNVD_STATE(dq, poison)), at;
	uint64_t word, cids;

	at = (uint32_t)((uint64_t)(hint * 0x9e3779b1u) * ((dq->cids + 63) / 64) >> 32); /* spread, without a division */
	word = gnvd_ld64(dq->cid_map + 8u * at); /* with the others: four loads, one round trip */
	resv = gnvd_same64(resv);
	fetched = gnvd_same64(fetched);
	poison = gnvd_same32(poison);
	word = gnvd_same64(word);
	if (poison || resv + k - fetched > room)
		return;
	cids = gnvd_claim_cids(dq, at, word, k, &grant->base);
	k = gnvd_popc(cids);
	while (cids && resv + k - fetched <= room) {
		seen = gnvd_same64(gnvd_cas64(GNVD_STATE(dq, resv), resv, resv + k));
		if (seen == resv) {
			grant->pos = resv;
			grant->cids = cids;
			return;
		}
		resv = seen;
		fetched = gnvd_same64(gnvd_ld_after64(GNVD_STATE(dq, fetched)));
	}
	if (cids)
		gnvd_free_cids(dq, grant->base, cids);
}

/* The widest reservation of one wave: half a ring, and the CIDs of one word. */
GNVD_FN uint32_t gnvd_widest(const struct gpunvme_dq *dq)
{
	return dq->sq_shift > 6 ? 64 : dq->sq_shift ? 1u << (dq->sq_shift - 1) : 1;
}

/* Why a command that finds no room and will not wait is not submitted. */
GNVD_FN int gnvd_full(const struct gpunvme_dq *dq)
{
	uint32_t control = gnvd_control(dq);

	return control > 1 ? -GPUNVME_ESHUTDOWN : control ? -GPUNVME_ECANCELED : -GPUNVME_EAGAIN;
}

/*
 * Places for the lanes with `want` set, at most `most` of them and as far as there is room; the other lanes of the wave only help.
 * *grant comes empty. Returns each lane's own result, -GPUNVME_EAGAIN for those without room. Lanes store their commands next, and
 * the wave publishes as many as *grant then counts.
 */
GNVD_FN int gnvd_find_places(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int want, uint32_t most,
			     struct gnvd_grant *grant)
{
	uint64_t pending = gnvd_ballot(w, want);
	uint32_t k = gnvd_popc(pending);

	if (w->rank == 0)
		gnvd_reserve(dq, w->hint, k < most ? k : most, grant);
	grant->cids = gnvd_bcast64(w, grant->cids);
	grant->count = gnvd_popc(grant->cids);
	if (!grant->count)
		return gnvd_same32(gnvd_ld32(GNVD_STATE(dq, poison))) ? -GPUNVME_ESHUTDOWN : -GPUNVME_EAGAIN;
	grant->pos = gnvd_bcast64(w, grant->pos);
	grant->base = gnvd_bcast32(w, grant->base);
	grant->mine = gnvd_below(w, pending);
	return want && grant->mine >= grant->count ? -GPUNVME_EAGAIN : 0;
}

/* This lane's CID; its result word says SUBMITTED from now on. req NULL: nobody will ask. */
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
 * Fill this lane's slot. Becomes visible with the doorbell. Last of all, and made here: where a command is stored most registers
 * are in use, and each that is kept for it counts.
 */
GNVD_FN void gnvd_write_command(const struct gpunvme_dq *dq, const struct gnvd_grant *grant, const struct gnvd_cmd *c,
				uint32_t cid)
{
	uint32_t slot = ((uint32_t)grant->pos + grant->mine) & ((1u << dq->sq_shift) - 1);
	uint32_t sqe[16] = { c->dw0, dq->nsid, 0, 0, 0, 0,
			     (uint32_t)c->prp1, (uint32_t)(c->prp1 >> 32), (uint32_t)c->prp2, (uint32_t)(c->prp2 >> 32),
			     (uint32_t)c->slba, (uint32_t)(c->slba >> 32), c->cdw12, 0, 0, 0 };

	gnvd_store_sqe(dq->sq + 64u * slot, sqe, cid);
}

/* Submit one command for each lane with `want` set that finds a place. Results as gnvd_find_places(). */
GNVD_FN int gnvd_try_submit(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int want, const struct gnvd_cmd *c,
			    uint32_t most, struct gpunvme_req *req)
{
	struct gnvd_grant grant = { 0, 0, 0, 0, 0 };
	int err = gnvd_find_places(dq, w, want, most, &grant);

	if (want && !err)
		gnvd_write_command(dq, &grant, c, gnvd_begin_command(dq, &grant, req));
	if (grant.count)
		gnvd_publish(dq, w, grant.pos, grant.count);
	return err;
}

/* As gnvd_try_submit(), with completions taken in once where there is no room. */
GNVD_FN int gnvd_submit(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int want, const struct gnvd_cmd *c,
			struct gpunvme_req *req)
{
	uint64_t pending = gnvd_ballot(w, want), left;
	uint32_t turn = 0;
	int err, ret = 0;

	while (pending) {
		err = gnvd_try_submit(dq, w, want, c, gnvd_widest(dq), req);
		if (want && err != -GPUNVME_EAGAIN) {
			ret = err;
			want = 0;
		}
		left = gnvd_ballot(w, want);
		if (left == pending && turn++)
			break;
		if (left == pending)
			gnvd_drain(dq, w);
		pending = left;
	}
	return want ? gnvd_full(dq) : ret;
}

/* The slow part of waiting for room, for all lanes of the wave; `waits`: those that do. Returns 0 to go on, or why not. */
GNVD_FN int gnvd_no_room(const struct gpunvme_dq *dq, int waits, uint64_t *deadline, uint32_t *fetched)
{
	uint32_t seen = gnvd_same32((uint32_t)gnvd_ld64(GNVD_STATE(dq, fetched))), control = gnvd_same32(gnvd_control(dq));
	uint64_t now = gnvd_clock();

	if (waits && (!*deadline || seen != *fetched))
		*deadline = now + dq->cmd_timeout;
	*fetched = seen;
	if (control == 1)
		return -GPUNVME_ECANCELED;
	return now > *deadline ? -(int)gnvd_opaque32(GPUNVME_ETIMEDOUT) : 0;
}

/* ---- Take and wait ---- */

/* Is this handle one of ours? 0, or the error. */
GNVD_FN int gnvd_check_req(const struct gpunvme_dq *dq, const struct gpunvme_req *req)
{
	if (req->tag != dq->tag)
		return req->tag && (req->tag & 0xffffu) != (dq->tag & 0xffffu) ? -GPUNVME_EXDEV : -GPUNVME_ESTALE;
	return req->cid < dq->cids ? 0 : -GPUNVME_EINVAL;
}

/* As gnvd_take() for a command that is this lane's for certain; word: its result word. */
GNVD_FN int gnvd_take_done(const struct gpunvme_dq *dq, uint32_t cid, uint64_t word, int *ret)
{
	uint32_t status;

	if ((word & GPUNVME_RES_STATE) != GPUNVME_RES_DONE)
		return 0;
	/* acquires: pairs with the drainer's release, and so with the controller's data */
	word = gnvd_take64(gnvd_result_at(dq, cid), word & ~(GNVD_GEN_ONE - 1));
	status = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_RES_STATUS, word);
	*ret = status & GPUNVME_ST_CODE ? (int)status : 0;
	gnvd_or_after64(dq->cid_map + cid / 64 * 8, 1ull << (cid & 63));
	return 1;
}

/* If the command is over: set *ret, free the CID and return 1. Each lane acquires for itself. */
GNVD_FN int gnvd_take(const struct gpunvme_dq *dq, struct gpunvme_req *req, int *ret)
{
	uint64_t word = gnvd_ld64(gnvd_result_at(dq, req->cid));

	if ((word ^ req->gen) >> GPUNVME_RES_GEN_SHIFT || (word & GPUNVME_RES_STATE) == GPUNVME_RES_FREE) {
		*ret = -GPUNVME_ESTALE;
		return 1;
	}
	if (!gnvd_take_done(dq, req->cid, word, ret))
		return 0;
	req->tag = 0;
	return 1;
}

/* Nobody will ask for this command any more; its CID is freed when it completes. */
GNVD_FN void gnvd_detach(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	uint64_t old = gnvd_or64(gnvd_result_at(dq, req->cid), GPUNVME_RES_DETACHED);

	/* Drainer and owner both set a bit; whoever comes second frees. */
	if ((old & GPUNVME_RES_STATE) == GPUNVME_RES_DONE)
		gnvd_finish_detached(dq, req->cid, old & ~(GNVD_GEN_ONE - 1), (uint32_t)GPUNVME_FIELD_GET(GPUNVME_RES_STATUS, old));
	req->tag = 0;
}

/* The slow part of waiting: stop word, poison, deadlines. Returns 0 to go on waiting, or why not. */
GNVD_FN int gnvd_look_up(const struct gpunvme_dq *dq, uint64_t *deadline, uint64_t ticks, uint64_t *until)
{
	uint64_t now = gnvd_clock();
	uint32_t control = gnvd_control(dq), poison = control > 1 ? control : gnvd_ld32(GNVD_STATE(dq, poison));

	if (!*deadline)
		*deadline = now + dq->cmd_timeout;
	if (ticks && !*until)
		*until = ticks < ~0ull - now ? now + ticks : ~0ull;
	if (poison == GPUNVME_EPROTO || poison == GPUNVME_ENODEV || control == GPUNVME_ESHUTDOWN)
		return -(int)poison;
	if (now >= *deadline)
		return -(int)gnvd_opaque32(GPUNVME_ETIMEDOUT);
	if (control == 1)
		return -(int)gnvd_opaque32(GPUNVME_ECANCELED);
	return ticks && now >= *until ? -GPUNVME_ETIMEDOUT : 0;
}

/* A lane stops to wait for a command. */
GNVD_FN void gnvd_give_up(const struct gpunvme_dq *dq, struct gpunvme_req *req, int why, uint64_t deadline)
{
	if (why == -GPUNVME_ETIMEDOUT && gnvd_clock() >= deadline)
		gnvd_poison(dq, GPUNVME_ETIMEDOUT);
	gnvd_detach(dq, req);
}

/* A lane that waits drains, unless a service does; now and then all the same, so that nothing hangs on the service. */
GNVD_FN void gnvd_help(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint32_t turn)
{
	if (!(dq->flags & GPUNVME_DQ_SERVED) || (turn & 255) == 255)
		gnvd_drain(dq, w);
}

/*
 * Wait for the commands of the lanes with `open` set. ticks 0: until the queue's own time-out. A lane that gives up drains once
 * more and looks again before it believes it. Returns each lane's own result; *req stays valid where the command is not over.
 */
GNVD_FN int gnvd_wait(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int open, struct gpunvme_req *req, uint64_t ticks)
{
	uint64_t until = 0;
	uint32_t turn = 0;
	int ret = 0, why = 0;

	for (;;) {
		if (open && gnvd_take(dq, req, &ret)) {
			open = 0;
		} else if (open && why) {
			if (why == -GPUNVME_ETIMEDOUT && gnvd_clock() >= req->deadline)
				gnvd_poison(dq, GPUNVME_ETIMEDOUT);
			ret = why;
			open = 0;
		}
		if (!gnvd_ballot(w, open))
			return ret;
		if (open && (turn & 15) == 15)
			why = gnvd_look_up(dq, &req->deadline, ticks, &until);
		gnvd_help(dq, w, turn);
		gnvd_pause(turn++);
	}
}

#endif
