/* SPDX-License-Identifier: MIT */
/*
 * A ticket queue, for comparison: our own program of an algorithm as its authors describe it (Z. Qureshi et al., "GPU-Initiated
 * On-Demand High-Throughput Storage Access in the BaM System Architecture", ASPLOS 2023, the section on I/O queues).
 *
 * Every thread by itself. It claims a command identifier, takes a ticket, which names an entry and its turn, waits until it is that
 * turn, writes its entry and sets the entry's mark. Until its mark was taken it tries the tail lock. The thread that has the lock
 * walks the marks from the tail on, rings once for all of them and moves the tail. A thread looks for its identifier in the
 * completion queue from the head on, marks what it found, and until the head has passed that tries the head lock. The thread that
 * has it walks the marks, lets the entries that the controller has fetched have their next turn, rings, and moves the head.
 *
 * In its favour: positions have 64 bits and never run out. A thread looks at a lock before it tries it, and sleeps a little longer
 * each time it waits. Four wide stores write the entry. Statuses are kept.
 */
#ifndef GPUNVME_BENCH_TICKET_H
#define GPUNVME_BENCH_TICKET_H

#include "work.h"

/* In memory of the threads; words that many want stand on lines of their own. */
struct ticket_queue {
	uint64_t ticket, pad0[15];
	uint64_t cid_ticket, pad1[15];
	uint64_t tail, pad2[15];
	uint64_t tail_lock, pad3[15];
	uint64_t head, pad4[15]; /* completions consumed */
	uint64_t head_lock, pad5[15];
	uint64_t fetched, pad6[15]; /* under the head lock */
	uint64_t turn; /* thread address; of each entry: the ticket that may use it */
	uint64_t mark; /* of each entry: the ticket that has written it, and 1 */
	uint64_t seen; /* of each completion entry: the position whose owner has found it, and 1 */
	uint64_t busy; /* of each command identifier */
};

#define TICKET(q, field) ((uint64_t)(uintptr_t)(q) + offsetof(struct ticket_queue, field))

/* 8, 16 .. 256 ns. */
GNVD_FN void ticket_pause(uint32_t turn)
{
#if defined(GNVD_CUDA)
	__nanosleep(8u << (turn < 5 ? turn : 5));
#else
	gnvd_pause(turn);
#endif
}

GNVD_FN int ticket_lock(uint64_t lock)
{
	return !gnvd_ld64(lock) && !gnvd_xchg64(lock, 1);
}

GNVD_FN uint32_t ticket_claim_cid(const struct gpunvme_dq *dq, const struct ticket_queue *q)
{
	uint32_t cid = (uint32_t)(gnvd_fetch_add64(TICKET(q, cid_ticket), 1) % dq->cids), turn = 0;

	while (gnvd_xchg64(q->busy + 8ull * cid, 1))
		ticket_pause(turn++);
	return cid;
}

/* Where the run of marks that starts at `pos` ends: mark number p is p + 1. */
GNVD_FN uint64_t ticket_walk(uint64_t marks, uint32_t mask, uint64_t pos)
{
	while (gnvd_ld_after64(marks + 8 * (pos & mask)) == pos + 1)
		pos++;
	return pos;
}

GNVD_FN void ticket_submit(const struct gpunvme_dq *dq, const struct ticket_queue *q, const struct gpunvme_dbuf *buf, uint32_t cid,
			   uint64_t slba)
{
	uint32_t mask = (1u << dq->sq_shift) - 1, turn = 0;
	uint64_t own = gnvd_fetch_add64(TICKET(q, ticket), 1), tail, end;
	uint32_t sqe[16] = { GPUNVME_IO_READ, dq->nsid, 0, 0, 0, 0, (uint32_t)buf->iova, (uint32_t)(buf->iova >> 32), 0, 0,
			     (uint32_t)slba, (uint32_t)(slba >> 32), BLOCKS - 1, 0, 0, 0 };

	while (gnvd_ld_after64(q->turn + 8 * (own & mask)) != own)
		ticket_pause(turn++);
	gnvd_store_sqe(dq->sq + 64 * (own & mask), sqe, cid);
	gnvd_st_release64(q->mark + 8 * (own & mask), own + 1);
	for (turn = 0; gnvd_ld64(TICKET(q, tail)) <= own; ticket_pause(turn++)) {
		if (!ticket_lock(TICKET(q, tail_lock)))
			continue;
		tail = gnvd_ld64(TICKET(q, tail));
		end = ticket_walk(q->mark, mask, tail);
		if (end != tail) {
			gnvd_order_system();
			gnvd_doorbell(dq->sq_db, (uint32_t)(end & mask));
			gnvd_st64(TICKET(q, tail), end);
		}
		gnvd_st_release64(TICKET(q, tail_lock), 0);
	}
}

/* Look for the completion of `cid`. Returns its dword 3, and its position. */
GNVD_FN uint32_t ticket_find(const struct gpunvme_dq *dq, const struct ticket_queue *q, uint32_t cid, uint64_t *found)
{
	uint32_t mask = (1u << dq->cq_shift) - 1, turn = 0, dw3;
	uint64_t pos;

	for (;; ticket_pause(turn++)) {
		for (pos = gnvd_ld64(TICKET(q, head));; pos++) {
			dw3 = gnvd_load_ring32(dq->cq + 16 * (pos & mask) + 12);
			if ((dw3 >> 16 & 1) == (pos >> dq->cq_shift & 1))
				break; /* of the lap before */
			if ((dw3 & 0xffff) != cid)
				continue;
			gnvd_acquire_ring32(dq->cq + 16 * (pos & mask) + 12);
			if (gnvd_ld64(TICKET(q, head)) > pos) /* the position is two laps old: this entry cannot have been passed */
				break;
			*found = pos;
			return dw3;
		}
	}
}

/* Give the entries that were fetched their next turn: one is always left free, else a full ring would look empty. */
GNVD_FN void ticket_fetched(const struct gpunvme_dq *dq, const struct ticket_queue *q, uint32_t sqhd)
{
	uint32_t mask = (1u << dq->sq_shift) - 1;
	uint64_t old = gnvd_ld64(TICKET(q, fetched)), fetched = old + ((sqhd - (uint32_t)old) & mask), pos;

	for (pos = old + mask; pos < fetched + mask; pos++)
		gnvd_st64(q->turn + 8 * (pos & mask), pos);
	gnvd_st64(TICKET(q, fetched), fetched);
}

GNVD_FN int ticket_complete(const struct gpunvme_dq *dq, const struct ticket_queue *q, uint32_t cid)
{
	uint32_t mask = (1u << dq->cq_shift) - 1, turn;
	uint64_t own = 0, head, end, last;
	uint32_t dw3 = ticket_find(dq, q, cid, &own);

	gnvd_st_release64(q->seen + 8 * (own & mask), own + 1);
	for (turn = 0; gnvd_ld64(TICKET(q, head)) <= own; ticket_pause(turn++)) {
		if (!ticket_lock(TICKET(q, head_lock)))
			continue;
		head = gnvd_ld64(TICKET(q, head));
		end = ticket_walk(q->seen, mask, head);
		if (end != head) {
			gnvd_order_agent();
			last = dq->cq + 16 * ((end - 1) & mask);
			gnvd_acquire_ring32(last + 12);
			ticket_fetched(dq, q, gnvd_load_ring32(last + 8) & GPUNVME_CQE_DW2_SQHD);
			gnvd_doorbell(dq->cq_db, (uint32_t)(end & mask));
			gnvd_st64(TICKET(q, head), end);
		}
		gnvd_st_release64(TICKET(q, head_lock), 0);
	}
	gnvd_st_release64(q->busy + 8ull * cid, 0);
	return (int)(dw3 >> 17);
}

GNVD_FN int ticket_read(const struct work *w, const struct gpunvme_dq *dq, const struct ticket_queue *q, uint64_t slba)
{
	uint32_t cid = ticket_claim_cid(dq, q);

	ticket_submit(dq, q, &w->buf, cid, slba);
	return ticket_complete(dq, q, cid);
}

GNVD_FN const struct ticket_queue *ticket_of(const struct work *w, uint32_t queue)
{
	return (const struct ticket_queue *)gnvd_lane_memory(w->peer) + queue;
}

GNVD_FN void read_ticket(const struct work *w)
{
	const struct ticket_queue *q = ticket_of(w, queue_of(w));
	uint32_t i, wrong = 0;
	OWN_DQ(dq, w, queue_of(w));

	for (i = 0; i < w->rounds; i++)
		wrong += is_wrong(w, ticket_read(w, dq, q, stamp_of(i)), stamp_of(i));
	count_errors(w, wrong);
}

KERNEL(ticket_512, 512, read_ticket(w);)
KERNEL(ticket_times, 512, OWN_DQ(dq, w, 0); TIME_ROUNDS(w, ticket_read(w, dq, ticket_of(w, 0), stamp_of(i_)));)

#endif
