/* SPDX-License-Identifier: MIT */
/*
 * The queue algorithm: many lanes share one submission and one completion ring. Only device.h includes this.
 *
 * Two resources, freed by what really frees them. An SQ position is free when the controller has fetched it (the SQ head in a
 * completion says so). A CID is free when its owner has consumed the result. So a slow command holds one CID, not the ring.
 *
 *   reserve   the leader takes k CIDs and k positions for the lanes that want to submit, or nothing
 *   write     each lane writes its SQE and marks its result word SUBMITTED
 *   publish   the wave releases to the system and stores one READY word; whoever gets the publish lock rings for all
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

/* What the leader got for its wave. */
struct gnvd_grant {
	uint64_t pos;  /* first position */
	uint64_t cids; /* set bits of one CID map word */
	uint32_t base; /* CID of bit 0 of that word */
	uint32_t count;
};

GNVD_FN uint64_t gnvd_result_at(const struct gpunvme_dq *dq, uint32_t cid)
{
	return dq->result + 8ull * cid;
}

GNVD_FN uint64_t gnvd_ready_at(const struct gpunvme_dq *dq, uint64_t pos)
{
	return dq->ready + 8 * (pos & ((1ull << dq->sq_shift) - 1));
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

GNVD_FN int gnvd_stopped(const struct gpunvme_dq *dq)
{
	return gnvd_load_ring32(dq->stop) != 0;
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

GNVD_FN void gnvd_poison_protocol(const struct gpunvme_dq *dq, uint64_t cqe, uint32_t dw2, uint32_t dw3)
{
	uint64_t at = GNVD_STATE(dq, poison_cqe);

	gnvd_st32(at, gnvd_load_ring32(cqe));
	gnvd_st32(at + 4, gnvd_load_ring32(cqe + 4));
	gnvd_st32(at + 8, dw2);
	gnvd_st32(at + 12, dw3);
	gnvd_poison(dq, GPUNVME_EPROTO);
}

#define GNVD_BATCH 4u /* completions each lane looks at in one go: their loads overlap */

/* Completions as one lane sees them: entry i is `count` positions behind entry i - 1. */
struct gnvd_batch {
	uint64_t at[GNVD_BATCH]; /* addresses */
	uint32_t dw2[GNVD_BATCH], dw3[GNVD_BATCH];
	uint32_t mine; /* bit i: entry i is new */
};

/* Read what is at `pos` and behind. Returns how many completions, from pos on without a gap, are new. */
GNVD_FN uint32_t gnvd_read_cqes(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, struct gnvd_batch *b)
{
	uint64_t mask = (1ull << dq->cq_shift) - 1;
	uint32_t i, n, total = 0, next, ahead, is_new, whole[4];

	for (i = 0; i < GNVD_BATCH; i++)
		b->at[i] = dq->cq + 16 * ((pos + w->rank + i * w->count) & mask);
	if (dq->flags & GPUNVME_DQ_CQE16) {
		for (i = 0; i < GNVD_BATCH; i++) {
			gnvd_load_ring128(b->at[i], whole);
			b->dw2[i] = whole[2];
			b->dw3[i] = whole[3];
		}
	} else {
		/* Dword 3 holds the phase; once it is new the rest of the entry is. */
		uint64_t dw3_at[GNVD_BATCH] = { b->at[0] + 12, b->at[1] + 12, b->at[2] + 12, b->at[3] + 12 };

		gnvd_load_ring32x4(dw3_at, b->dw3);
	}
	b->mine = 0;
	for (i = 0; i < GNVD_BATCH; i++) {
		ahead = w->rank + i * w->count;
		is_new = ahead <= mask && (b->dw3[i] >> 16 & 1) == (~(uint32_t)((pos + ahead) >> dq->cq_shift) & 1);
		n = total == i * w->count ? gnvd_leading(w, (int)is_new, &next) : 0;
		b->mine |= (uint32_t)(w->rank < n) << i;
		total += n;
	}
	if (b->mine && !(dq->flags & GPUNVME_DQ_CQE16)) {
		uint64_t dw2_at[GNVD_BATCH];

		for (i = 0; i < GNVD_BATCH; i++) {
			dw2_at[i] = (b->mine >> i & 1 ? b->at[i] : b->at[0]) + 8; /* entries that are not new are not touched */
			gnvd_acquire_ring32(dw2_at[i] + 4); /* pairs with the controller's write of the entry */
		}
		gnvd_load_ring32x4(dw2_at, b->dw2);
	}
	return total;
}

/*
 * Store completions where their owners look. A device is not trusted: a completion of another queue, of no command in flight, or
 * with an SQ head outside [fetched, pub] is wrong. Returns a bit for each wrong one; *delta is how far the last one moves fetched.
 */
GNVD_FN uint32_t gnvd_deliver(const struct gpunvme_dq *dq, const struct gnvd_batch *b, uint64_t fetched, uint32_t *delta)
{
	uint64_t rung = gnvd_ld64(GNVD_STATE(dq, pub)) - fetched, old[GNVD_BATCH];
	uint32_t i, cid, sqhd, wrong = 0;

	gnvd_order_agent(); /* one for all: the results below are released behind what was read */
	for (i = 0; i < GNVD_BATCH; i++) {
		old[i] = GPUNVME_RES_SUBMITTED;
		if (!(b->mine >> i & 1))
			continue;
		cid = b->dw3[i] & GPUNVME_CQE_DW3_CID;
		sqhd = b->dw2[i] & GPUNVME_CQE_DW2_SQHD;
		*delta = (sqhd - (uint32_t)fetched) & ((1u << dq->sq_shift) - 1);
		if (*delta > rung) { /* pub may have been loaded before the completion was: nothing above orders the two */
			gnvd_order_agent();
			rung = gnvd_ld64(GNVD_STATE(dq, pub)) - fetched;
		}
		if (b->dw2[i] >> 16 != dq->qid || sqhd >> dq->sq_shift || *delta > rung || cid >= dq->cids)
			wrong |= 1u << i;
		else /* one atomic tells what the word was and makes it DONE: a second completion of the CID finds it so */
			old[i] = gnvd_or_after64(gnvd_result_at(dq, cid), GPUNVME_RES_DONE_BIT |
						 (uint64_t)(b->dw3[i] >> 17) << GPUNVME_RES_STATUS_SHIFT);
	}
	for (i = 0; i < GNVD_BATCH; i++) {
		if ((old[i] & GPUNVME_RES_STATE) != GPUNVME_RES_SUBMITTED)
			wrong |= 1u << i;
		else if (old[i] & GPUNVME_RES_DETACHED)
			gnvd_finish_detached(dq, b->dw3[i] & GPUNVME_CQE_DW3_CID, old[i] & ~(GNVD_GEN_ONE - 1), b->dw3[i] >> 17);
	}
	return wrong;
}

/* Consume new completions at `pos`. Returns how many; *fetched moves on; *bad is set when the device broke the protocol. */
GNVD_FN uint32_t gnvd_drain_run(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, uint64_t *fetched, int *bad)
{
	struct gnvd_batch b;
	uint32_t n = gnvd_read_cqes(dq, w, pos, &b), i, delta = 0, wrong, last;
	uint64_t lanes;

	if (!n)
		return 0;
	wrong = gnvd_deliver(dq, &b, *fetched, &delta);
	lanes = gnvd_ballot(w, wrong != 0);
	if (lanes) {
		for (i = 0; i < GNVD_BATCH; i++)
			if (w->lane == gnvd_lowest(lanes) && (wrong & (0u - wrong)) == 1u << i)
				gnvd_poison_protocol(dq, b.at[i], b.dw2[i], b.dw3[i]);
		*bad = 1;
		return n;
	}
	last = (n - 1) % w->count;
	*fetched += gnvd_shfl32(w, delta, gnvd_lane_of_rank(w, w->rank == last));
	return n;
}

#define GNVD_DRAIN_TURNS 16u /* then others may drain: the holder has results of its own to look at */

/* Turn completions into results, unless another wave is at it. */
GNVD_FN void gnvd_drain(const struct gpunvme_dq *dq, const struct gnvd_wave *w)
{
	uint64_t pos, rung, fetched, quarter = (1ull << dq->cq_shift) / 4;
	uint32_t n, turn, got = 0;
	int bad = 0;

	if (w->rank == 0)
		got = gnvd_ld32(GNVD_STATE(dq, drain_lock)) == 0 && gnvd_xchg32(GNVD_STATE(dq, drain_lock), 1) == 0;
	if (!gnvd_bcast32(w, got))
		return;
	pos = gnvd_ld64(GNVD_STATE(dq, cq_pos));
	rung = gnvd_ld64(GNVD_STATE(dq, cq_rung));
	fetched = gnvd_ld64(GNVD_STATE(dq, fetched));
	bad = gnvd_bcast32(w, gnvd_ld32(GNVD_STATE(dq, poison))) == GPUNVME_EPROTO;
	for (turn = 0; turn < GNVD_DRAIN_TURNS && !bad; turn++) {
		n = gnvd_drain_run(dq, w, pos, &fetched, &bad);
		if (!n)
			break;
		pos += n;
		if (w->rank == 0) {
			gnvd_st64(GNVD_STATE(dq, fetched), fetched);
			if (dq->flags & GPUNVME_DQ_STATS)
				gnvd_add64(GNVD_STATE(dq, completions), n);
		}
		if (pos - rung > quarter) {
			rung = pos;
			if (w->rank == 0)
				gnvd_doorbell(dq->cq_db, (uint32_t)(pos & ((1ull << dq->cq_shift) - 1)));
		}
		if (n < GNVD_BATCH * w->count)
			break;
	}
	if (w->rank == 0) {
		gnvd_st64(GNVD_STATE(dq, cq_pos), pos);
		gnvd_st64(GNVD_STATE(dq, cq_rung), rung);
		if (dq->flags & GPUNVME_DQ_STATS)
			gnvd_add64(GNVD_STATE(dq, drains), 1);
		gnvd_st_release32(GNVD_STATE(dq, drain_lock), 0);
	}
}

/* ---- Publish ---- */

/*
 * The end of the run of READY commands that starts at `pos`. Lanes look at runs of `stride` commands side by side, the usual case
 * being that all waves submit alike.
 */
GNVD_FN uint64_t gnvd_scan_ready(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, uint32_t stride)
{
	uint32_t ahead = w->rank * stride, n, k, next;
	uint64_t word;

	for (;;) {
		word = ahead < 1u << dq->sq_shift ? gnvd_ld_after64(gnvd_ready_at(dq, pos + ahead)) : 0;
		k = word >> GPUNVME_READY_POS_SHIFT == pos + ahead ? (uint32_t)(word & GPUNVME_READY_COUNT) : 0;
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

/*
 * Announce what is READY, unless another wave is at it: that one looks again after unlocking. No fence is needed for that. The
 * loser's exchange comes before the winner's unlocking exchange, which therefore acquires the loser's READY.
 */
GNVD_FN void gnvd_publish(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint32_t stride)
{
	uint64_t mask = (1ull << dq->sq_shift) - 1, pub, end, ready;
	uint32_t got, again;

	do {
		got = w->rank == 0 && gnvd_xchg32(GNVD_STATE(dq, pub_lock), 1) == 0;
		if (!gnvd_bcast32(w, got))
			return;
		pub = gnvd_ld64(GNVD_STATE(dq, pub));
		end = gnvd_scan_ready(dq, w, pub, stride);
		again = 0;
		if (w->rank == 0) {
			if (end != pub) {
				gnvd_st64(GNVD_STATE(dq, pub), end); /* before the doorbell: a completion is checked against it */
				gnvd_order_agent(); /* pub is out, and READY was seen, so the SQEs behind it are */
				if (dq->flags & GPUNVME_DQ_READBACK_SQE)
					(void)gnvd_load_ring32(dq->sq + 64 * ((end - 1) & mask) + 60);
				gnvd_doorbell(dq->sq_db, (uint32_t)(end & mask));
				if (dq->flags & GPUNVME_DQ_STATS)
					gnvd_add64(GNVD_STATE(dq, doorbells), 1);
			}
			gnvd_xchg32(GNVD_STATE(dq, pub_lock), 0);
			ready = gnvd_ld64(gnvd_ready_at(dq, end));
			again = ready && ready >> GPUNVME_READY_POS_SHIFT == end;
		}
	} while (gnvd_bcast32(w, again));
}

/* ---- Reserve and submit ---- */

/* Claim up to k CIDs of one word. Returns their bits, 0 when none is free. */
GNVD_FN uint64_t gnvd_claim_cids(const struct gpunvme_dq *dq, uint32_t hint, uint32_t k, uint32_t *base)
{
	uint32_t words = (dq->cids + 63) / 64, at = hint % words, i;
	uint64_t bits, got;

	for (i = 0; i < words; i++) {
		bits = gnvd_lowest_bits(gnvd_ld64(dq->cid_map + 8ull * at), k);
		got = bits ? gnvd_and64(dq->cid_map + 8ull * at, ~bits) & bits : 0;
		*base = 64 * at;
		if (got)
			return got;
		at = at + 1 == words ? 0 : at + 1;
	}
	return 0;
}

/* The leader takes up to k CIDs and as many positions, or nothing: count is 0 then, or -GPUNVME_ESHUTDOWN as an error. */
GNVD_FN int gnvd_reserve(const struct gpunvme_dq *dq, uint32_t hint, uint32_t k, struct gnvd_grant *grant)
{
	uint64_t room = (1ull << dq->sq_shift) - 1, seen;
	uint64_t resv = gnvd_ld64(GNVD_STATE(dq, resv)), fetched = gnvd_ld_after64(GNVD_STATE(dq, fetched));
	uint32_t poison = gnvd_ld32(GNVD_STATE(dq, poison));

	grant->count = 0;
	if (poison)
		return -GPUNVME_ESHUTDOWN;
	if (resv + k - fetched > room)
		return 0;
	grant->cids = gnvd_claim_cids(dq, hint, k, &grant->base);
	if (!grant->cids)
		return 0;
	k = gnvd_popc(grant->cids);
	while (resv + k - fetched <= room) {
		seen = gnvd_cas64(GNVD_STATE(dq, resv), resv, resv + k);
		if (seen == resv) {
			grant->pos = resv;
			grant->count = k;
			return 0;
		}
		resv = seen;
		fetched = gnvd_ld_after64(GNVD_STATE(dq, fetched));
	}
	gnvd_free_cids(dq, grant->base, grant->cids);
	return 0;
}

/* Fill the slot of position `pos` and the result word of `cid`. Becomes visible with READY. */
GNVD_FN void gnvd_write_command(const struct gpunvme_dq *dq, const struct gnvd_cmd *c, uint64_t pos, uint32_t cid,
				struct gpunvme_req *req)
{
	uint64_t mask = (1ull << dq->sq_shift) - 1, at = gnvd_result_at(dq, cid);
	uint64_t gen = (gnvd_ld64(at) & ~(GNVD_GEN_ONE - 1)) + GNVD_GEN_ONE;
	uint32_t sqe[16] = { c->dw0 | cid << 16, dq->nsid, 0, 0, 0, 0,
			     (uint32_t)c->prp1, (uint32_t)(c->prp1 >> 32), (uint32_t)c->prp2, (uint32_t)(c->prp2 >> 32),
			     (uint32_t)c->slba, (uint32_t)(c->slba >> 32), c->cdw12, 0, 0, 0 };

	gnvd_st64(at, gen | GPUNVME_RES_SUBMITTED | (req ? 0 : GPUNVME_RES_DETACHED));
	gnvd_store_sqe(dq->sq + 64 * (pos & mask), sqe);
	if (req) {
		req->gen = gen;
		req->deadline = 0;
		req->tag = dq->tag;
		req->cid = cid;
	}
}

/* A wave that holds nothing waits for room. Returns 0 to try again, or why not. */
GNVD_FN int gnvd_no_room(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint32_t turn, uint64_t *deadline,
			 uint64_t *progress)
{
	uint64_t fetched;
	int ret = 0;

	if ((turn & 15) == 15 && w->rank == 0) {
		fetched = gnvd_ld64(GNVD_STATE(dq, fetched));
		if (!*deadline || fetched != *progress) {
			*deadline = gnvd_clock() + dq->cmd_timeout;
			*progress = fetched;
		} else if (gnvd_clock() > *deadline) {
			ret = -GPUNVME_ETIMEDOUT;
		}
		if (gnvd_stopped(dq))
			ret = -GPUNVME_ECANCELED;
	}
	gnvd_pause(turn);
	return (int)gnvd_bcast32(w, (uint32_t)ret);
}

/*
 * Submit one command for each lane with `want` set; the other lanes of the wave only help. req NULL: nobody will ask. Returns each
 * lane's own result. Without room a lane gets -GPUNVME_EAGAIN; with `block` only if another lane of the wave got through, which
 * then has to be waited for first: a wave that waits for room must not sit on results that hold CIDs.
 */
GNVD_FN int gnvd_submit(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int want, const struct gnvd_cmd *c, int block,
			struct gpunvme_req *req)
{
	uint64_t pending = gnvd_ballot(w, want), deadline = 0, progress = 0;
	uint32_t half = dq->sq_shift ? 1u << (dq->sq_shift - 1) : 1, limit = half < 64 ? half : 64, turn = 0, index, k;
	struct gnvd_grant grant = { 0, 0, 0, 0 };
	int err = 0;

	while (pending) {
		k = gnvd_popc(pending);
		if (w->rank == 0)
			err = gnvd_reserve(dq, w->hint, k < limit ? k : limit, &grant);
		grant.count = gnvd_bcast32(w, grant.count);
		err = (int)gnvd_bcast32(w, (uint32_t)err);
		if (!grant.count) {
			gnvd_drain(dq, w);
			if (!err && !block && turn)
				err = -GPUNVME_EAGAIN;
			if (!err && block)
				err = gnvd_no_room(dq, w, turn, &deadline, &progress);
			if (err)
				return want ? err : 0;
			if (++turn % 64 == 0 && limit > 1)
				limit /= 2; /* narrow submitters must not starve a wide one */
			continue;
		}
		grant.pos = gnvd_bcast64(w, grant.pos);
		grant.cids = gnvd_bcast64(w, grant.cids);
		grant.base = gnvd_bcast32(w, grant.base);
		index = gnvd_popc(pending & ((1ull << w->lane) - 1));
		if (want && index < grant.count) {
			gnvd_write_command(dq, c, grant.pos + index, grant.base + gnvd_nth_bit(grant.cids, index), req);
			want = 0;
		}
		gnvd_release_to64(w, gnvd_ready_at(dq, grant.pos), grant.pos << GPUNVME_READY_POS_SHIFT | grant.count);
		gnvd_publish(dq, w, grant.count);
		pending = gnvd_ballot(w, want);
		block = 0;
		turn = 0;
	}
	return 0;
}

/* ---- Take and wait ---- */

/* Is this handle one of ours? 0, or the error. */
GNVD_FN int gnvd_check_req(const struct gpunvme_dq *dq, const struct gpunvme_req *req)
{
	if (req->tag != dq->tag)
		return req->tag && (req->tag & 0xffffu) != (dq->tag & 0xffffu) ? -GPUNVME_EXDEV : -GPUNVME_ESTALE;
	return req->cid < dq->cids ? 0 : -GPUNVME_EINVAL;
}

/* If the command is over: set *ret, free the CID and return 1. Each lane acquires for itself. */
GNVD_FN int gnvd_take(const struct gpunvme_dq *dq, struct gpunvme_req *req, int *ret)
{
	uint64_t at = gnvd_result_at(dq, req->cid), word = gnvd_ld64(at);
	uint32_t status;

	if ((word ^ req->gen) >> GPUNVME_RES_GEN_SHIFT || (word & GPUNVME_RES_STATE) == GPUNVME_RES_FREE) {
		*ret = -GPUNVME_ESTALE;
		return 1;
	}
	if ((word & GPUNVME_RES_STATE) != GPUNVME_RES_DONE)
		return 0;
	gnvd_acquire64(at); /* pairs with the drainer's release, and so with the controller's data */
	status = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_RES_STATUS, word);
	*ret = status & GPUNVME_ST_CODE ? (int)status : 0;
	gnvd_st64(at, req->gen);
	gnvd_free_cids(dq, req->cid & ~63u, 1ull << (req->cid & 63));
	req->tag = 0;
	return 1;
}

/* Nobody will ask for this command any more; its CID is freed when it completes. */
GNVD_FN void gnvd_detach(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	uint64_t old = gnvd_or64(gnvd_result_at(dq, req->cid), GPUNVME_RES_DETACHED);

	/* Drainer and owner both set a bit; whoever comes second frees. */
	if ((old & GPUNVME_RES_STATE) == GPUNVME_RES_DONE)
		gnvd_finish_detached(dq, req->cid, req->gen, (uint32_t)GPUNVME_FIELD_GET(GPUNVME_RES_STATUS, old));
	req->tag = 0;
}

/* The slow part of waiting: stop word, poison, deadlines. Returns 0 to go on waiting, or why not. */
GNVD_FN int gnvd_look_up(const struct gpunvme_dq *dq, struct gpunvme_req *req, uint64_t ticks, uint64_t *until)
{
	uint64_t now = gnvd_clock();
	uint32_t poison = gnvd_ld32(GNVD_STATE(dq, poison));

	if (!req->deadline)
		req->deadline = now + dq->cmd_timeout;
	if (!*until)
		*until = ticks && ticks < ~0ull - now ? now + ticks : ~0ull;
	if (poison == GPUNVME_EPROTO || poison == GPUNVME_ENODEV)
		return -(int)poison;
	if (now >= req->deadline)
		return -GPUNVME_ETIMEDOUT;
	if (gnvd_stopped(dq))
		return -GPUNVME_ECANCELED;
	return now >= *until ? -GPUNVME_ETIMEDOUT : 0;
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
			why = gnvd_look_up(dq, req, ticks, &until);
		gnvd_drain(dq, w);
		gnvd_pause(turn++);
	}
}

#endif
