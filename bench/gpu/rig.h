/* SPDX-License-Identifier: MIT */
/*
 * Queues made by hand, each word where the host library has it (lib/queue): rings and the control word in host memory, the state with the
 * threads, in one piece. tests/unit/test_gpu.c compares the descriptors field by field. Only with the controller on the GPU the
 * rings are in its memory, as on the library's first placement.
 */
#ifndef GPUNVME_BENCH_RIG_H
#define GPUNVME_BENCH_RIG_H

#include "queue/layout.h"
#include "ticket.h"

#define RIG_IOVA 0x5a00000000100000ull
#define RIG_BUFFER (1u << 20)

struct rig {
	struct controller c;
	struct gpunvme_dq *dqs;
	struct ticket_queue *tickets; /* NULL: for the library's queue */
	bool local; /* rings in the threads' memory */
	uint32_t flags; /* of the queues: counters */
	void *shared[2048];
	uint64_t memory[4096];
	uint32_t shared_count, memory_count;
};

static inline uint64_t rig_local(struct rig *r, size_t bytes, const void *from)
{
	if (r->memory_count == sizeof(r->memory) / sizeof(r->memory[0]))
		die("too many queues");
	return r->memory[r->memory_count++] = local_alloc(bytes, from);
}

static inline uint32_t *rig_shared(struct rig *r, size_t bytes)
{
	if (r->shared_count == sizeof(r->shared) / sizeof(r->shared[0]))
		die("too many queues");
	return (uint32_t *)(r->shared[r->shared_count++] = shared_alloc(bytes));
}

static inline uint32_t *rig_ring(struct rig *r, size_t bytes)
{
	return r->local ? (uint32_t *)(uintptr_t)rig_local(r, bytes, NULL) : rig_shared(r, bytes);
}

static inline uint32_t shift_of(uint32_t depth)
{
	uint32_t shift = 0;

	while (1u << shift < depth)
		shift++;
	return shift;
}

static inline void make_ring(struct rig *r, struct ring *q, uint32_t depth, uint32_t qid, double late)
{
	memset(q, 0, sizeof(*q));
	q->depth = depth;
	q->cq_depth = 2 * depth;
	q->sq = rig_ring(r, 64ull * q->depth);
	q->cq = rig_ring(r, 16ull * q->cq_depth);
	q->sq_db = rig_ring(r, 512);
	q->cq_db = q->sq_db + 64;
	q->qid = qid;
	q->phase = 1;
	q->random = 12345 + qid;
	if (late > 0)
		q->late = (struct late *)calloc(LATE_MOST, sizeof(struct late));
}

/* The state of a queue, zeroed but for its identifiers, which are free. */
static inline void make_state(struct rig *r, const struct ring *q, struct gpunvme_dq *dq)
{
	struct gnv_qp_layout layout;
	char *state;
	uint32_t i;

	dq->cids = gnv_qp_cids(q->cq_depth);
	dq->cid_gens = gnv_qp_cid_gens(dq->cids);
	gnv_qp_layout(q->depth, dq->cids, r->flags & GPUNVME_DQ_LATENCY, &layout);
	state = (char *)calloc(1, layout.size);
	for (i = 0; i < dq->cids; i++)
		((uint64_t *)(state + layout.cid_map))[i / 64] |= 1ull << (i & 63);
	gnv_qp_point(rig_local(r, layout.size, state), &layout, dq);
	free(state);
}

static inline void make_head(struct gpunvme_head *head, enum gpunvme_kind kind, size_t size)
{
	head->version = GPUNVME_HEAD_VERSION;
	head->kind = kind;
	head->minor = GPUNVME_DQ_MINOR;
	head->size = (uint32_t)size;
}

static inline void make_dq(struct rig *r, const struct ring *q, struct gpunvme_dq *dq)
{
	memset(dq, 0, sizeof(*dq));
	make_head(&dq->head, GPUNVME_KIND_QUEUE, sizeof(*dq));
	dq->flags = r->flags | (ON_GPU ? GPUNVME_DQ_CQE16 : 0); /* there a CQE is posted and read with one access */
	dq->tag = 1u << 16 | q->qid;
	dq->qid = q->qid;
	dq->nsid = 1;
	dq->lba_shift = 9;
	dq->page_shift = 12;
	dq->sq_shift = (uint8_t)shift_of(q->depth);
	dq->cq_shift = (uint8_t)shift_of(q->cq_depth);
	dq->sq = (uintptr_t)q->sq;
	dq->cq = (uintptr_t)q->cq;
	dq->sq_db = (uintptr_t)q->sq_db;
	dq->cq_db = (uintptr_t)q->cq_db;
	dq->stop = (uintptr_t)rig_shared(r, sizeof(uint32_t));
	dq->cmd_timeout = 20000000000ull;
	dq->lba_count = 1ull << 62;
	dq->max_blocks = 2048;
	dq->ticks_per_ms = 1000000;
	make_state(r, q, dq);
}

/* Entry i waits for ticket i first, the last one for none before something was fetched. */
static inline void make_ticket(struct rig *r, const struct gpunvme_dq *dq, struct ticket_queue *t)
{
	uint32_t depth = 1u << dq->sq_shift, i;
	uint64_t *turn = (uint64_t *)calloc(depth, 8);

	for (i = 0; i < depth; i++)
		turn[i] = i + 1 < depth ? i : ~0ull;
	memset(t, 0, sizeof(*t));
	t->turn = rig_local(r, 8ull * depth, turn);
	t->mark = rig_local(r, 8ull * depth, NULL);
	t->seen = rig_local(r, 16ull * depth, NULL);
	t->busy = rig_local(r, 8ull * dq->cids, NULL);
	free(turn);
}

static inline struct rig *rig_new(uint32_t queues, uint32_t depth, enum serve_mode mode, bool tickets, bool local, uint32_t flags)
{
	struct rig *r = (struct rig *)calloc(1, sizeof(*r));
	uint32_t i;

	r->local = local;
	r->flags = flags;
	r->c.queues = queues;
	r->c.mode = mode;
	r->c.rings = (struct ring *)calloc(queues, sizeof(struct ring));
	r->dqs = (struct gpunvme_dq *)calloc(queues, sizeof(struct gpunvme_dq));
	if (tickets)
		r->tickets = (struct ticket_queue *)calloc(queues, sizeof(struct ticket_queue));
	for (i = 0; i < queues; i++) {
		make_ring(r, &r->c.rings[i], depth, i + 1, mode == SERVE_LATE ? LATE_SECONDS : 0);
		make_dq(r, &r->c.rings[i], &r->dqs[i]);
		if (tickets)
			make_ticket(r, &r->dqs[i], &r->tickets[i]);
	}
	return r;
}

/* What a kernel gets: all queues, one buffer of which every command names the first page, and the queues as one volume. */
static inline struct work rig_work(struct rig *r, uint32_t rounds)
{
	uint32_t queues = r->c.queues;
	struct work w;

	memset(&w, 0, sizeof(w));
	w.queues = queues;
	w.rounds = rounds;
	w.check = r->c.mode == SERVE_CHECK || r->c.mode == SERVE_ORDERED;
	w.dqs = rig_local(r, sizeof(struct gpunvme_dq) * queues, r->dqs);
	w.peer = r->tickets ? rig_local(r, sizeof(struct ticket_queue) * queues, r->tickets) : 0;
	w.errors = rig_local(r, 8, NULL);
	w.span = rig_local(r, 32, NULL);
	w.buf.len = RIG_BUFFER;
	w.buf.iova = RIG_IOVA;
	make_head(&w.vol.head, GPUNVME_KIND_VOLUME, sizeof(w.vol));
	w.vol.members = 1;
	w.vol.queues = queues;
	w.vol.stripe_shift = 8;
	w.vol.lba_shift = 9;
	w.vol.dq = w.dqs;
	w.vol.lba_count = 1ull << 62;
	w.vbuf.len = RIG_BUFFER;
	w.vbuf.member = rig_local(r, sizeof(w.buf), &w.buf);
	return w;
}

static inline void rig_free(struct rig *r)
{
	uint32_t i;

	for (i = 0; i < r->c.queues; i++)
		free(r->c.rings[i].late);
	for (i = 0; i < r->shared_count; i++)
		shared_free(r->shared[i]);
	for (i = 0; i < r->memory_count; i++)
		local_free(r->memory[i]);
	free(r->tickets);
	free(r->dqs);
	free(r->c.rings);
	free(r);
}

#endif
