/* SPDX-License-Identifier: MIT */
/*
 * The state of a queue, which is the lanes': the host writes it before the first lane runs, and then only reads copies.
 * Invariant: the control word leaves a cause (more than 1) for nothing else.
 */
#include <errno.h>
#include <string.h>

#include "nvme/qp.h"
#include "util/bits.h"

#define LINE 128u
#define WORDS 64u /* copied at once */

void gnv_qp_layout(uint32_t depth, uint32_t cids, bool latency, struct gnv_qp_layout *layout)
{
	layout->ready = sizeof(struct gpunvme_dq_state);
	layout->result = gnv_align_up(layout->ready + (size_t)depth * 8, LINE);
	layout->buckets = latency ? layout->result + 2 * (size_t)cids * 8 : 0;
	layout->cid_map = latency ? layout->buckets + GPUNVME_LATENCY_BUCKETS * 8 : layout->result + (size_t)cids * 8;
	layout->cid_map = gnv_align_up(layout->cid_map, LINE);
	layout->size = gnv_align_up(layout->cid_map + ((size_t)cids + 63) / 64 * 8, LINE);
}

/* Every identifier is free. */
static int fill_cid_map(struct gpunvme_qp *qp)
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

int gnv_qp_state_open(struct gpunvme_qp *qp)
{
	int ret;

	gnv_qp_layout(qp->depth, qp->cids, qp->flags & GPUNVME_QP_LATENCY, &qp->layout);
	ret = qp->gpu->ops->local_alloc(qp->gpu, qp->layout.size, &qp->state);
	if (ret) {
		qp->state.lane = 0;
		return ret;
	}
	return fill_cid_map(qp);
}

void gnv_qp_state_close(struct gpunvme_qp *qp)
{
	if (qp->state.lane)
		qp->gpu->ops->local_free(qp->gpu, &qp->state, qp->layout.size);
	qp->state.lane = 0;
}

void gnv_qp_command(struct gpunvme_qp *qp, uint32_t word)
{
	uint32_t *control = qp->control.cpu, seen;

	if (!control)
		return;
	seen = __atomic_load_n(control, __ATOMIC_RELAXED);
	while (seen <= 1 && !__atomic_compare_exchange_n(control, &seen, word, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

uint32_t gnv_qp_poisoned(const struct gpunvme_qp *qp)
{
	uint32_t word = 0;

	if (qp->state.lane && qp->gpu->ops->peek(qp->gpu, &word, qp->state.lane + offsetof(struct gpunvme_dq_state, poison), 4))
		return GPUNVME_ENODEV;
	if (!word && qp->control.cpu)
		word = __atomic_load_n((const uint32_t *)qp->control.cpu, __ATOMIC_RELAXED);
	return word > 1 ? word : 0;
}

uint32_t gnv_qp_in_flight(const struct gpunvme_qp *qp)
{
	uint64_t at = qp->state.lane + qp->layout.result, words[WORDS];
	uint32_t left = qp->cids, count = 0, n, i;

	for (; left && qp->state.lane; left -= n, at += sizeof(words)) {
		n = (uint32_t)gnv_min(left, WORDS);
		if (qp->gpu->ops->peek(qp->gpu, words, at, (size_t)n * 8))
			return count + left;
		for (i = 0; i < n; i++)
			count += (words[i] & GPUNVME_RES_STATE) == GPUNVME_RES_SUBMITTED;
	}
	return count;
}

void gnv_qp_state_read(const struct gpunvme_qp *qp, struct gpunvme_dq_state *state)
{
	if (qp->gpu->ops->peek(qp->gpu, state, qp->state.lane, sizeof(*state)))
		memset(state, 0, sizeof(*state));
}

int gnv_qp_latency_read(const struct gpunvme_qp *qp, uint64_t *bucket)
{
	return qp->gpu->ops->peek(qp->gpu, bucket, qp->state.lane + qp->layout.buckets, GPUNVME_LATENCY_BUCKETS * sizeof(*bucket));
}

/* The counters are the lanes': they go on, and what they were is subtracted. */
int gnv_qp_zero_counters(struct gpunvme_qp *qp)
{
	static const uint64_t none[GPUNVME_LATENCY_BUCKETS];

	gnv_qp_state_read(qp, &qp->before);
	return qp->layout.buckets ? qp->gpu->ops->poke(qp->gpu, qp->state.lane + qp->layout.buckets, none, sizeof(none)) : 0;
}

bool gnv_qp_completion_waits(const struct gpunvme_qp *qp, const struct gpunvme_dq_state *state)
{
	size_t at = ((state->drain >> 1) & (qp->cq_depth - 1)) * sizeof(struct gpunvme_cqe) + 12;
	uint32_t phase = ~(uint32_t)((state->drain >> 1) / qp->cq_depth) & 1, dw3;

	if (qp->cq.cpu)
		dw3 = __atomic_load_n((const uint32_t *)((const char *)qp->cq.cpu + at), __ATOMIC_RELAXED);
	else if (qp->gpu->ops->peek(qp->gpu, &dw3, qp->cq.lane + at, sizeof(dw3)))
		return false;
	return GPUNVME_FIELD_GET(GPUNVME_CQE_DW3_PHASE, dw3) == phase;
}
