/* SPDX-License-Identifier: MIT */
/*
 * The kernel of the ordering tests. One thread fills SQ slots, rings, polls, and compares what arrived with what was sent.
 * Identifier and data page differ from those one lap ago, so an old entry cannot pass for a new one. Only kernels.c includes this.
 */
#ifndef GNV_GPU_ORDERING_H
#define GNV_GPU_ORDERING_H

#define CID_MASK 0x7fffu    /* one lap later a slot holds another identifier: queues are shorter */
#define UNLIKE 0xffffffffu /* no completion has this in dword 2, the head and the identifier of a queue */

/* What one launch has found, in registers. */
struct ordering {
	uint64_t pos; /* of the first command of the batch */
	uint64_t at;   /* of the completion that is looked at */
	uint64_t rung; /* when */
	uint64_t worst, total;
	uint32_t open; /* commands of the batch without completion, one bit each */
	uint32_t fault, torn, late;
	uint32_t cqe[4];
};

/*
 * Which round of comparisons command `pos` belongs to. Round 0 reads the block to as many pages as half the queue has entries.
 * Then the thread stores words there, wrong in odd rounds and right in even ones: what was there before has the other result.
 */
GNVK_FN uint32_t ordering_round(const struct gnv_ordering_args *a, uint64_t pos)
{
	return a->mode & GNV_ORDERING_COMPARE ? (uint32_t)(pos >> (a->dq.sq_shift - 1)) : 0;
}

/* Where command `pos` has its data: the two pages of a slot take turns. Of comparisons each has one. */
GNVK_FN uint64_t ordering_page(const struct gnv_ordering_args *a, uint64_t pos)
{
	uint64_t slot = pos & ((1ull << a->dq.sq_shift) - 1), lap = pos >> a->dq.sq_shift;

	if (a->mode & GNV_ORDERING_COMPARE)
		return (slot & ((1ull << (a->dq.sq_shift - 1)) - 1)) << a->dq.page_shift;
	return (2 * slot + (lap & 1)) << a->dq.page_shift;
}

GNVK_FN uint64_t ordering_cqe_at(const struct gnv_ordering_args *a, uint64_t pos)
{
	return a->dq.cq + 16 * (pos & ((1ull << a->dq.cq_shift) - 1));
}

/* Put a word that the block does not have where its first and last word are, write the command, and touch what is asked. */
GNVK_FN void ordering_prepare(const struct gnv_ordering_args *a, uint64_t pos)
{
	uint64_t page = ordering_page(a, pos), sq_mask = (1ull << a->dq.sq_shift) - 1, cqe = ordering_cqe_at(a, pos);
	uint64_t first = a->dbuf.base + page, last = first + (1ull << a->dq.lba_shift) - 4, lba = a->dq.lba_first + a->lba;
	uint64_t prp = a->dbuf.iova + page;
	uint32_t round = ordering_round(a, pos);
	uint32_t sqe[16] = { round ? GPUNVME_IO_COMPARE : GPUNVME_IO_READ, a->dq.nsid, 0, 0, 0, 0, (uint32_t)prp,
			     (uint32_t)(prp >> 32), 0, 0, (uint32_t)lba, (uint32_t)(lba >> 32), 0, 0, 0, 0 };

	gnvd_st32(first, round && !(round & 1) ? a->first : a->fill);
	gnvd_st32(last, round && !(round & 1) ? a->last : a->fill);
	gnvd_store_sqe(a->dq.sq + 64 * (pos & sq_mask), sqe, (uint32_t)pos & CID_MASK);
	if (a->mode & GNV_ORDERING_CQE16)
		gnvd_st32(cqe + 8, UNLIKE); /* dwords 0 and 1 of a Read are reserved, and controllers leave them as they are */
	if (a->mode & GNV_ORDERING_WARM_DATA) {
		gnvk_touch(first);
		gnvk_touch(last);
	}
	if (a->mode & GNV_ORDERING_WARM_CQ) {
		gnvk_touch(cqe);
		gnvk_touch(cqe + 12);
	}
}

/* Everything written so far to the system, then the doorbell. */
GNVK_FN void ordering_ring(const struct gnv_ordering_args *a, const struct gnvd_wave *w, struct ordering *l, uint32_t n)
{
	uint64_t mask = (1ull << a->dq.sq_shift) - 1, end = l->pos + n;
	uint32_t i = a->mode & GNV_ORDERING_RING_EACH ? 1 : n;

	gnvd_meet(w);
	gnvd_release_to64(w, a->dq.ready, end);
	gnvd_order_system();
	if (a->mode & GNV_ORDERING_READBACK)
		(void)gnvd_load_ring32(a->dq.sq + 64 * ((end - 1) & mask) + 60);
	l->rung = gnvd_clock();
	for (; i <= n; i++)
		gnvd_doorbell(a->dq.sq_db, (uint32_t)((l->pos + i) & mask));
}

/* Poll the entry of position `pos` into l->cqe. Returns 0 when it stays old. */
GNVK_FN int ordering_poll(const struct gnv_ordering_args *a, struct ordering *l, uint64_t pos)
{
	uint32_t phase = ~(uint32_t)(pos >> a->dq.cq_shift) & 1, turn = 0, i;
	uint64_t at = ordering_cqe_at(a, pos), took;

	for (;;) {
		if (a->mode & GNV_ORDERING_CQE16)
			gnvd_load_ring128(at, l->cqe);
		else
			l->cqe[3] = gnvd_load_ring32(at + 12);
		took = gnvd_clock() - l->rung;
		if ((l->cqe[3] >> 16 & 1) == phase)
			break;
		if (took > a->timeout)
			return 0;
		gnvd_pause(turn++);
	}
	gnvd_acquire_ring32(at + 12); /* pairs with the controller's write of the entry, and of the data before it */
	l->worst = took > l->worst ? took : l->worst;
	l->total += took;
	if (!(a->mode & GNV_ORDERING_CQE16))
		for (i = 0; i < 3; i++)
			l->cqe[i] = gnvd_load_ring32(at + 4 * i);
	else if (l->cqe[2] == UNLIKE)
		l->torn++;
	return 1;
}

/* Has the block arrived? A word that still is `fill` gets until the time-out: then the data was late, else it is missing. */
GNVK_FN void ordering_check_data(const struct gnv_ordering_args *a, struct ordering *l, uint64_t pos)
{
	uint64_t first = a->dbuf.base + ordering_page(a, pos), last = first + (1ull << a->dq.lba_shift) - 4, start = gnvd_clock();
	uint32_t turn = 0;

	if (*GNVK_AT(const uint32_t, last) != a->fill && *GNVK_AT(const uint32_t, first) != a->fill)
		return;
	while (gnvd_load_ring32(first) == a->fill || gnvd_load_ring32(last) == a->fill) {
		if (gnvd_clock() - start > a->timeout) {
			l->fault = GNV_ORDERING_MISSING;
			return;
		}
		gnvd_pause(turn++);
	}
	l->late++;
}

/* Command `pos` has the status of l->cqe. */
GNVK_FN void ordering_judge(const struct gnv_ordering_args *a, struct ordering *l, uint64_t pos)
{
	uint32_t round = ordering_round(a, pos), status = l->cqe[3] >> 17 & GPUNVME_ST_CODE;

	if (status != (round & 1 ? GPUNVME_SC_COMPARE_FAILURE : 0))
		l->fault = round && (!status || status == GPUNVME_SC_COMPARE_FAILURE) ? GNV_ORDERING_UNSEEN : GNV_ORDERING_STATUS;
	else if (!round)
		ordering_check_data(a, l, pos);
}

/* One completion, that of the i-th entry of a batch of n. Commands of a batch may complete in any order. */
GNVK_FN void ordering_take(const struct gnv_ordering_args *a, struct ordering *l, uint32_t i, uint32_t n)
{
	uint32_t which;

	l->at = l->pos + i;
	if (!ordering_poll(a, l, l->at)) {
		l->fault = GNV_ORDERING_SILENT;
		return;
	}
	which = ((l->cqe[3] & GPUNVME_CQE_DW3_CID) - (uint32_t)l->pos) & CID_MASK;
	if (which >= n || !(l->open >> which & 1))
		l->fault = GNV_ORDERING_STALE;
	else
		ordering_judge(a, l, l->pos + which);
	l->open &= ~(1u << (which & 31));
}

GNVK_FN void ordering_report(const struct gnv_ordering_args *a, const struct ordering *l)
{
	GNVK_GLOBAL struct gnv_ordering_result *r = GNVK_AT(struct gnv_ordering_result, a->result);
	uint32_t i;

	r->pos = l->pos;
	r->worst = l->worst > r->worst ? l->worst : r->worst;
	r->total += l->total;
	r->count[GNV_ORDERING_LATE] += l->late;
	r->count[GNV_ORDERING_TORN] += l->torn;
	if (l->fault) {
		r->fault = l->fault;
		r->count[l->fault]++;
		r->at = l->at;
		for (i = 0; i < 4; i++)
			r->seen[i] = l->cqe[i];
	}
}

/* Every other batch is one command that meets an idle controller. */
GNVK_FN uint32_t ordering_batch(const struct gnv_ordering_args *a, uint64_t pos, uint64_t end)
{
	uint32_t draw = (uint32_t)(pos * 0x9e3779b97f4a7c15ull >> 40), n = draw & 1 ? 1 : 1 + (draw >> 1) % a->batch;

	return n < end - pos ? n : (uint32_t)(end - pos);
}

GNVK_FN void ordering_run(const struct gnv_ordering_args *a)
{
	struct ordering l = { GNVK_AT(struct gnv_ordering_result, a->result)->pos, 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } };
	uint64_t end = l.pos + a->commands, cq_mask = (1ull << a->dq.cq_shift) - 1;
	uint32_t n, i;
	struct gnvd_wave w;

	gnvd_enter(&w, &a->dq, GNVD_SITE_RUN);
	while (l.pos < end && !l.fault) {
		n = ordering_batch(a, l.pos, end);
		for (i = 0; i < n; i++)
			ordering_prepare(a, l.pos + i);
		l.open = n == 32 ? ~0u : (1u << n) - 1;
		ordering_ring(a, &w, &l, n);
		for (i = 0; i < n && !l.fault; i++)
			ordering_take(a, &l, i, n);
		l.pos += n;
		gnvd_doorbell(a->dq.cq_db, (uint32_t)(l.pos & cq_mask));
	}
	gnvd_leave(&w);
	ordering_report(a, &l);
}

#endif
