/* SPDX-License-Identifier: MIT */
/*
 * The state of a queue, which belongs to the threads: the host writes it before the first thread runs, and then only reads copies.
 * Invariant: a control word that has a cause (more than 1) never changes again.
 */
#include <errno.h>
#include <string.h>

#include "queue/qp.h"
#include "util/bits.h"
#include "util/clock.h"

#define QUIESCE_MS 2000u /* a wave is inside a lock for microseconds, unless its thread does not run */
#define WORDS 64u /* copied at once */

/* Every identifier is free. */
static int fill_cid_map(struct gnv_qp *qp)
{
	uint64_t at = qp->state.lane + qp->layout.cid_map, words[WORDS];
	uint32_t left = qp->cids, n, i;
	int ret = 0;

	for (; left && !ret; left -= n, at += sizeof(words)) {
		n = (uint32_t)gnv_min(left, 64 * WORDS);
		memset(words, 0, sizeof(words));
		for (i = 0; i < n; i++)
			words[i / 64] |= 1ull << (i % 64);
		ret = qp->gpu->ops->poke(qp->gpu, at, words, ((size_t)n + 63) / 64 * 8);
	}
	return ret;
}

int gnv_qp_state_open(struct gnv_qp *qp)
{
	int ret;

	gnv_qp_layout(qp->depth, qp->cids, qp->flags & GPUNVME_QUEUE_LATENCY, &qp->layout);
	ret = qp->gpu->ops->local_alloc(qp->gpu, qp->layout.size, &qp->state);
	if (ret) {
		qp->state.lane = 0;
		return ret;
	}
	return fill_cid_map(qp);
}

void gnv_qp_state_close(struct gnv_qp *qp)
{
	if (qp->state.lane)
		qp->gpu->ops->local_free(qp->gpu, &qp->state, qp->layout.size);
	qp->state.lane = 0;
}

/*
 * Takes the two locks under which doorbells are rung, and never releases them. A wave that comes finds the gate closed. It leaves
 * its commands to the thread inside, and the drain to the thread that drains. CPU threads only: their memory takes host atomics.
 */
static bool lock_gate(struct gpunvme_dq_state *state)
{
	return !(__atomic_load_n(&state->pub_gate, __ATOMIC_RELAXED) & GPUNVME_GATE_CAME) &&
	       !(__atomic_fetch_add(&state->pub_gate, 1, __ATOMIC_ACQ_REL) & GPUNVME_GATE_CAME);
}

static bool lock_drain(struct gpunvme_dq_state *state)
{
	return !(__atomic_fetch_or(&state->drain, 1, __ATOMIC_ACQ_REL) & 1);
}

static bool lock_out(struct gpunvme_dq_state *state, bool (*lock)(struct gpunvme_dq_state *state))
{
	struct gnv_deadline deadline = gnv_deadline_in(QUIESCE_MS);

	do {
		if (lock(state))
			return true;
	} while (gnv_deadline_poll_again(&deadline));
	return false;
}

int gnv_qp_quiesce(struct gnv_qp *qp)
{
	struct gpunvme_dq_state *state = (struct gpunvme_dq_state *)(uintptr_t)qp->state.lane;

	if (qp->lanes_gone || qp->bells.cpu) /* the forwarder looks at those bells no more */
		return 0;
	if (qp->gpu->info.kind == GPUNVME_GPU_CPU) {
		qp->gate_held = qp->gate_held || lock_out(state, lock_gate);
		if (qp->gate_held && lock_out(state, lock_drain))
			return 0;
	}
	return gnv_fail(-ENOSPC,
			"all %u I/O queue pairs of the controller are in use, and a kernel may still ring for queue %u: end it, call "
			"gpunvme_queue_retire() and recover again, or destroy a queue",
			qp->dev->nvme.info.queues, qp->qid);
}

void gnv_qp_command(struct gnv_qp *qp, uint32_t word)
{
	uint32_t *control = qp->control.cpu, seen;

	if (!control)
		return;
	seen = __atomic_load_n(control, __ATOMIC_RELAXED);
	while (seen <= 1 && !__atomic_compare_exchange_n(control, &seen, word, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

uint32_t gnv_qp_poisoned(const struct gnv_qp *qp)
{
	uint32_t word = 0;

	if (qp->state.lane && qp->gpu->ops->peek(qp->gpu, &word, qp->state.lane + offsetof(struct gpunvme_dq_state, poison), 4))
		return GPUNVME_ENODEV;
	if (!word && qp->control.cpu)
		word = __atomic_load_n((const uint32_t *)qp->control.cpu, __ATOMIC_RELAXED);
	return word > 1 ? word : 0;
}

uint32_t gnv_qp_in_flight(const struct gnv_qp *qp)
{
	uint64_t at = qp->state.lane + qp->layout.result, words[WORDS];
	uint32_t left = qp->cids, count = 0, n, i;

	for (; left && qp->state.lane; left -= n, at += sizeof(words)) {
		n = (uint32_t)gnv_min(left, WORDS);
		if (qp->gpu->ops->peek(qp->gpu, words, at, (size_t)n * 8))
			return count + left;
		for (i = 0; i < n; i++)
			count += gnv_qp_is_open(qp->cid_gens, words[i]);
	}
	return count;
}

uint64_t gnv_qp_position(const struct gnv_qp *qp)
{
	uint64_t resv = 0;

	if (qp->state.lane && qp->gpu->ops->peek(qp->gpu, &resv, qp->state.lane + offsetof(struct gpunvme_dq_state, resv), 8))
		return UINT64_MAX;
	return resv;
}

/* A word has 32 bits of its command's position. The next command's position is greater by less than 2^32. */
uint64_t gnv_qp_oldest(const struct gnv_qp *qp)
{
	uint64_t at = qp->state.lane + qp->layout.result, end = gnv_qp_position(qp), oldest = UINT64_MAX, words[WORDS];
	uint32_t left = qp->cids, n, i;

	for (; left && qp->state.lane; left -= n, at += sizeof(words)) {
		n = (uint32_t)gnv_min(left, WORDS);
		if (end == UINT64_MAX || qp->gpu->ops->peek(qp->gpu, words, at, (size_t)n * 8))
			return 0;
		for (i = 0; i < n; i++)
			if (gnv_qp_is_open(qp->cid_gens, words[i]))
				oldest = gnv_min(oldest, end - (uint32_t)(end - (words[i] >> GPUNVME_RES_GEN_SHIFT)));
	}
	return oldest;
}

void gnv_qp_state_read(const struct gnv_qp *qp, struct gpunvme_dq_state *state)
{
	if (qp->gpu->ops->peek(qp->gpu, state, qp->state.lane, sizeof(*state)))
		memset(state, 0, sizeof(*state));
}

int gnv_qp_latency_add(const struct gnv_qp *qp, uint64_t *bucket)
{
	uint64_t own[GPUNVME_LATENCY_BUCKETS];
	uint32_t i;
	int ret = qp->gpu->ops->peek(qp->gpu, own, qp->state.lane + qp->layout.buckets, sizeof(own));

	for (i = 0; i < GPUNVME_LATENCY_BUCKETS && !ret; i++)
		bucket[i] += own[i];
	return ret;
}

/* The counters belong to the threads: they go on, and their earlier values are subtracted. */
int gnv_qp_zero_counters(struct gnv_qp *qp)
{
	static const uint64_t none[GPUNVME_LATENCY_BUCKETS];

	gnv_qp_state_read(qp, &qp->before);
	return qp->layout.buckets ? qp->gpu->ops->poke(qp->gpu, qp->state.lane + qp->layout.buckets, none, sizeof(none)) : 0;
}

bool gnv_qp_completion_waits(const struct gnv_qp *qp, const struct gpunvme_dq_state *state)
{
	size_t at = ((state->drain >> 1) & (qp->cq_depth - 1)) * sizeof(struct gpunvme_cqe) + 12;
	uint32_t phase = ~(uint32_t)((state->drain >> 1) / qp->cq_depth) & 1, dw3;

	if (qp->cq.cpu)
		dw3 = __atomic_load_n((const uint32_t *)((const char *)qp->cq.cpu + at), __ATOMIC_RELAXED);
	else if (qp->gpu->ops->peek(qp->gpu, &dw3, qp->cq.lane + at, sizeof(dw3)))
		return false;
	return GPUNVME_FIELD_GET(GPUNVME_CQE_DW3_PHASE, dw3) == phase;
}
