/* SPDX-License-Identifier: MIT */
/* Drain: the holder of the lock checks completions and stores them in the result words of their owners. */
#ifndef GPUNVME_DEVICE_DRAIN_H
#define GPUNVME_DEVICE_DRAIN_H

#include <gpunvme/device/deliver.h>

GNVD_FN void gnvd_poison_protocol(const struct gpunvme_dq *dq, uint64_t cqe)
{
	uint32_t i;

	for (i = 0; i < 4; i++) /* one address at a time */
		gnvd_st32(GNVD_STATE(dq, poison_cqe) + 4 * i, gnvd_load_ring32(cqe + gnvd_opaque32(4 * i)));
	gnvd_poison(dq, GPUNVME_EPROTO);
}

/* What the holder of the drain lock knows. The lower half of a position is enough where it is compared with near ones only. */
struct gnvd_drain {
	uint64_t pos;     /* completions consumed */
	uint64_t fetched; /* as in the state */
	uint32_t pub;     /* at least its value when the completions were seen */
	uint32_t rung;    /* pos at the last CQ doorbell */
};

/* Entry i of this lane in a look that began at pos. */
GNVD_FN uint64_t gnvd_cqe_at(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, uint32_t i)
{
	return dq->cq + 16u * (((uint32_t)pos + w->rank + i * w->count) & ((1u << dq->cq_shift) - 1));
}

/*
 * The doorbell of a completed command follows the store of pub, but d->pub was loaded before the completion or at the same time. So
 * load pub again. After 10 ms count the device as wrong. Return how far fetched may move. As int32_t, a negative number means: not
 * at all.
 */
GNVD_FN uint32_t gnvd_wait_pub(const struct gpunvme_dq *dq, const struct gnvd_drain *d, uint32_t delta)
{
	uint64_t began = gnvd_clock();
	uint32_t rung;

	do {
		gnvd_order_agent();
		rung = (uint32_t)gnvd_ld64(GNVD_STATE(dq, pub)) - (uint32_t)d->fetched;
	} while ((int32_t)(delta - rung) > 0 && gnvd_clock() - began < 10ull * dq->ticks_per_ms);
	return rung;
}

/* A lane on its own loads the second entry of a sector only after it found the first one new, so most sectors are loaded once. */
GNVD_FN int gnvd_by_sectors(const struct gpunvme_dq *dq, const struct gnvd_wave *w)
{
	return GNVD_SECTOR && w->count == 1 && dq->flags & GPUNVME_DQ_CQE16;
}

/* Entry i of such a lane is the second one of a sector, and the look includes the first one. */
#define GNVD_IS_SECOND(d, i) ((i) && ((uint32_t)(d)->pos + (i)) & GNVD_SECTOR)

GNVD_FN void gnvd_load_cqe(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t from, struct gnvd_batch *b, uint32_t i)
{
	uint32_t whole[4];

	gnvd_load_ring128(gnvd_cqe_at(dq, w, from, i), whole);
	b->dw2[i] = whole[2]; /* quiet -Wanalyzer-use-of-uninitialized-value: four words are loaded */
	b->dw3[i] = whole[3];
}

/* Start to load the entries from d->pos on: dwords 2 and 3 where a 16-byte load is whole, else dword 3. */
GNVD_FN void gnvd_load_cqes(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gnvd_drain *d,
			    struct gnvd_batch *b, uint32_t most)
{
	uint64_t at[GNVD_BATCH], from;
	uint32_t i;

	b->skip = w->count > 1 ? (uint32_t)d->pos & GNVD_SECTOR : 0;
	from = d->pos - b->skip;
	if (dq->flags & GPUNVME_DQ_CQE16) {
		for (i = 0; i < most; i++) {
			if (i < b->looked && !(gnvd_by_sectors(dq, w) && GNVD_IS_SECOND(d, i)))
				gnvd_load_cqe(dq, w, from, b, i);
		}
	} else {
		for (i = 0; i < most; i++)
			at[i] = gnvd_cqe_at(dq, w, from, i < b->looked ? i : 0) + 12;
		gnvd_load_ring32s(at, b->dw3, most);
	}
}

/* Does dword 3 of the entry at pos have the phase of this round? */
GNVD_FN uint32_t gnvd_is_new(const struct gpunvme_dq *dq, uint32_t pos, uint32_t dw3)
{
	return (dw3 >> 16 & 1) == (~(pos >> dq->cq_shift) & 1);
}

/* Load the entries that gnvd_load_cqes() left. The second one of a sector is not loaded while the first one is not new. */
GNVD_FN void gnvd_load_seconds(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gnvd_drain *d,
			       struct gnvd_batch *b, uint32_t most)
{
	uint32_t i;

	for (i = 1; i < most; i++)
		if (i < b->looked && GNVD_IS_SECOND(d, i) && gnvd_is_new(dq, (uint32_t)d->pos + i - 1, b->dw3[i - 1]))
			gnvd_load_cqe(dq, w, d->pos, b, i);
}

/* Find the new entries. The phase is in dword 3. When dword 3 is new, the rest of the entry is, too. */
GNVD_FN void gnvd_find_new(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gnvd_drain *d,
			   struct gnvd_batch *b, uint32_t most)
{
	uint32_t mask = (1u << dq->cq_shift) - 1, i, n, next, ahead, is_new, passed;
	uint64_t at[GNVD_BATCH];

	if (gnvd_by_sectors(dq, w))
		gnvd_load_seconds(dq, w, d, b, most);
	b->mine = b->total = 0;
	for (i = 0; i < most; i++) {
		ahead = w->rank + i * w->count - b->skip;
		passed = GNVD_SECTOR && (int32_t)ahead < 0;
		is_new = passed || (ahead <= mask && gnvd_is_new(dq, (uint32_t)d->pos + ahead, b->dw3[i]));
		n = i < b->looked && b->total == i * w->count ? gnvd_leading(w, (int)is_new, &next) : 0;
		b->mine |= (uint32_t)(w->rank < n && !passed) << i;
		b->total += n;
	}
	b->total -= b->total ? b->skip : 0;
	if (b->mine && !(dq->flags & GPUNVME_DQ_CQE16)) {
		for (i = 0; i < most; i++) { /* skip entries that are not new */
			at[i] = gnvd_cqe_at(dq, w, d->pos - b->skip, b->mine >> i & 1 ? i : 0) + 8;
			gnvd_acquire_ring32(at[i] + 4); /* pairs with the controller's write of the entry */
		}
		gnvd_load_ring32s(at, b->dw2, most);
	}
}

/*
 * Do not trust the device: a completion of another queue, of no command, or with an SQ head outside [fetched, pub] is wrong.
 * gnvd_check_old() finds completions of commands that are not in flight.
 */
GNVD_FN void gnvd_check_cqes(const struct gpunvme_dq *dq, const struct gnvd_drain *d, struct gnvd_batch *b, uint32_t most)
{
	int32_t rung = (int32_t)(d->pub - (uint32_t)d->fetched); /* negative when fetched has passed the old value of pub */
	uint32_t i, sqhd;

	b->wrong = b->delta = 0;
	for (i = 0; i < most; i++) {
		if (!(b->mine >> i & 1))
			continue;
		sqhd = b->dw2[i] & GPUNVME_CQE_DW2_SQHD;
		b->delta = (sqhd - (uint32_t)d->fetched) & ((1u << dq->sq_shift) - 1);
		if ((int32_t)b->delta > rung && !b->wrong) /* wait once for a wrong device */
			rung = (int32_t)gnvd_wait_pub(dq, d, b->delta);
		if (b->dw2[i] >> 16 != dq->qid || sqhd >> dq->sq_shift || (int32_t)b->delta > rung ||
		    gnvd_cid_of(dq, b->dw3[i]) >= dq->cids)
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
	for (i = 0; i < most; i++) /* take the time: a second completion of the command counts nothing */
		written[i] = good >> i & 1 ? gnvd_and64(gnvd_written_at(dq, gnvd_cid_of(dq, b->dw3[i])), 0) : 0;
	now = gnvd_clock();
	for (i = 0; i < most; i++)
		if (written[i])
			gnvd_add64(gnvd_result_at(dq, 2 * dq->cids + gnvd_bucket(now > written[i] ? now - written[i] : 0)), 1);
}

/* Take the drain lock, and set d->pos. Return 0 if another wave has it, else how many commands may have completed, at least 1. */
GNVD_FN uint32_t gnvd_begin_drain(const struct gpunvme_dq *dq, const struct gnvd_wave *w, struct gnvd_drain *d)
{
	uint64_t word = 1, pub = 0;

	if (w->rank == 0) {
		word = gnvd_ld64(GNVD_STATE(dq, drain));
		if (GNVD_BATCH > 1)
			pub = gnvd_ld64(GNVD_STATE(dq, pub));
		if (GNVD_LOOK_FIRST)
			word |= !gnvd_is_new(dq, (uint32_t)(word >> 1), gnvd_load_ring32(gnvd_cqe_at(dq, w, word >> 1, 0) + 12));
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
 * Look for completions, with the lock held. `in_flight` commands may have completed. Look at places for half of them: on a full
 * link, loads in vain take the place of commands.
 */
GNVD_FN void gnvd_first_look(const struct gpunvme_dq *dq, const struct gnvd_wave *w, struct gnvd_drain *d, struct gnvd_batch *b,
			     uint32_t in_flight, uint32_t most)
{
	uint32_t pub, rung, poison, i;
	uint64_t fetched;

	b->looked = 1;
	for (i = 1; i < most; i++)
		b->looked += gnvd_by_sectors(dq, w) ? i < in_flight : 2 * i * w->count < in_flight && i < GNVD_MOST_OF(w);
	fetched = gnvd_ld64(GNVD_STATE(dq, fetched));
	pub = (uint32_t)gnvd_ld64(GNVD_STATE(dq, pub));
	rung = (uint32_t)gnvd_ld64(GNVD_STATE(dq, cq_rung));
	poison = gnvd_ld32(GNVD_STATE(dq, poison));
	gnvd_load_cqes(dq, w, d, b, most);
	d->fetched = gnvd_same64(fetched); /* after the loads, which overlap */
	d->pub = gnvd_same32(pub);
	d->rung = gnvd_same32(rung);
	gnvd_find_new(dq, w, d, b, most);
	if (gnvd_bcast32(w, poison) == GPUNVME_EPROTO)
		b->mine = b->total = 0; /* no thread waits for these any more */
	gnvd_check_cqes(dq, d, b, most);
	gnvd_join();
}

/* Deliver the entries that were read, and load the next ones meanwhile. Return the lanes that saw the device break the protocol. */
GNVD_FN uint64_t gnvd_drain_turn(const struct gpunvme_dq *dq, const struct gnvd_wave *w, struct gnvd_drain *d, struct gnvd_batch *b,
				 int more, uint32_t most, struct gnvd_own *own)
{
	uint64_t old[GNVD_BATCH], lanes = gnvd_ballot(w, b->wrong != 0), pos = d->pos;
	struct gnvd_batch next = { { 0 }, { 0 }, most, 0, 0, 0, 0, 0 };
	uint32_t n = b->total, skip = b->skip, last, wrong, owner = GNVD_NOBODY, shift = 0;

	if (GNVD_KEEPS(dq, GPUNVME_DQ_STATS | GPUNVME_DQ_LATENCY))
		gnvd_count(dq, b, most);
	if (own)
		owner = gnvd_find_owner(dq, w, b, own, &shift);
	if (!own || gnvd_ballot(w, b->mine & ~b->wrong && owner == GNVD_NOBODY))
		gnvd_order_agent(); /* one fence for all: it releases the results after the loads of the entries */
	more = more && !lanes && n + skip == most * w->count;
	d->pos += n;
	if (more)
		gnvd_load_cqes(dq, w, d, &next, most);
	gnvd_deliver(dq, b, old, most, own, owner);
	if (!lanes) {
		last = most == 1 ? n + skip - 1 : (n + skip - 1) % w->count;
		d->fetched += gnvd_shfl32(w, b->delta, gnvd_lane_of_rank(w, w->rank == last));
		if (w->rank == 0)
			gnvd_max64(GNVD_STATE(dq, fetched), d->fetched);
		if (w->rank == 0 && GNVD_KEEPS(dq, GPUNVME_DQ_STATS))
			gnvd_add64(GNVD_STATE(dq, completions), n);
		gnvd_join();
	}
	wrong = gnvd_check_old(dq, b, old, most);
	if (own)
		gnvd_hand_over(w, b, owner != GNVD_NOBODY && !wrong, shift, own);
	lanes = gnvd_ballot(w, wrong != 0);
	if (wrong && !gnvd_below(w, lanes))
		gnvd_poison_protocol(dq, gnvd_cqe_at(dq, w, pos - skip, gnvd_popc((wrong & (0 - wrong)) - 1)));
	b->total = 0;
	if (more) {
		*b = next;
		gnvd_find_new(dq, w, d, b, most);
		gnvd_check_cqes(dq, d, b, most);
		gnvd_join();
	}
	return lanes;
}

#define GNVD_DRAIN_TURNS 16u /* then another wave may drain: the holder has results of its own to look at */

/*
 * Turn completions into results, with the lock held, at most `most` entries of each lane at a time, then release the lock. On CUDA
 * a release is a fence. A holder that rang no doorbell needs none: `fetched` only grows, and the next holder learns the rest from
 * completions.
 */
GNVD_FN void gnvd_drain_on(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, uint32_t in_flight, uint32_t turns,
			   uint32_t most, struct gnvd_own *own)
{
	uint32_t turn = 0, rung = 0;
	uint64_t bad = 0;
	struct gnvd_drain d = { pos, 0, 0, 0 };
	struct gnvd_batch b = { { 0 }, { 0 }, 0, 0, 0, 0, 0, 0 };

	gnvd_first_look(dq, w, &d, &b, in_flight, most);
	while (b.total && !bad) {
		bad = gnvd_drain_turn(dq, w, &d, &b, ++turn < turns, most, own);
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
		if (GNVD_PLAIN_UNLOCK && !rung && !bad) {
			gnvd_st64(GNVD_STATE(dq, drain), d.pos << 1);
			return;
		}
		/* Doorbells of successive holders arrive in order, and the next holder sees the poison. */
		gnvd_st_release64(GNVD_STATE(dq, drain), d.pos << 1);
	}
}

/*
 * Turn completions into results, unless another wave does so. If few completions are expected, one look with few registers is
 * enough, and the wave takes its own completions at once. `own` may be NULL.
 */
GNVD_FN void gnvd_drain_for(const struct gpunvme_dq *dq, const struct gnvd_wave *w, struct gnvd_own *own)
{
	struct gnvd_drain d = { 0, 0, 0, 0 };
	uint32_t n = gnvd_begin_drain(dq, w, &d);

	if (GNVD_BATCH > 1 && n && n <= w->count)
		gnvd_drain_on(dq, w, d.pos, n, 1, 1, own);
	else if (n)
		gnvd_drain_on(dq, w, d.pos, n, GNVD_DRAIN_TURNS, GNVD_BATCH, GNVD_BATCH == 1 ? own : NULL);
}

GNVD_FN void gnvd_drain(const struct gpunvme_dq *dq, const struct gnvd_wave *w)
{
	gnvd_drain_for(dq, w, NULL);
}

#endif
