/* SPDX-License-Identifier: MIT */
/*
 * Interrupts of completion queues, and when they wait for more completions (Base Specification 3.3.1.2, features 08h and 09h:
 * 5.27.1.6, 5.27.1.7). Completions are counted for each queue: of queues that share a vector, the first that is due tells the host.
 */
#include "soft/state.h"

#include "util/bits.h"

#define TIME_NS 100000u /* unit of the aggregation time */
#define WORD(vector) ((vector) / 32)
#define BIT(vector) (1u << (vector) % 32)

static bool is_at_once(const struct gnv_soft *soft, unsigned vector)
{
	return vector >= GNV_SOFT_VECTORS || __atomic_load_n(&soft->features.at_once[WORD(vector)], __ATOMIC_RELAXED) & BIT(vector);
}

/* Those of the admin queue never wait, nor do those of errors: a host may want to act on one. */
static bool may_wait(const struct gnv_soft *soft, struct gnv_soft_cq *cq)
{
	uint32_t value = __atomic_load_n(&soft->features.coalescing, __ATOMIC_RELAXED);
	uint32_t time = GPUNVME_FIELD_GET(GPUNVME_COALESCING_TIME, value), more = GPUNVME_FIELD_GET(GPUNVME_COALESCING_THR_0B, value);
	uint64_t now;

	if (!time || !more || !cq->qid || cq->urgent || cq->unsaid > more || is_at_once(soft, cq->vector))
		return false;
	now = gnv_soft_now();
	if (!cq->due)
		cq->due = now + (uint64_t)time * TIME_NS;
	return now < cq->due;
}

void gnv_soft_interrupt(struct gnv_soft_server *server)
{
	const struct gnv_soft_irq *irq = &server->soft->config.irq;
	struct gnv_soft_cq *cq;

	server->posted = false;
	for (cq = server->cqs; cq; cq = cq->next) {
		if (!cq->unsaid)
			continue;
		if (may_wait(server->soft, cq)) {
			server->posted = true;
			continue;
		}
		cq->unsaid = 0;
		cq->urgent = false;
		cq->due = 0;
		irq->raise(irq->ctx, cq->vector);
	}
}

void gnv_soft_interrupt_by(const struct gnv_soft_server *server, uint64_t *deadline)
{
	const struct gnv_soft_cq *cq;

	for (cq = server->cqs; cq && server->posted; cq = cq->next)
		if (cq->due)
			*deadline = gnv_min(*deadline, cq->due);
}

/* ---- The features; thread 0 ---- */

/* Of a completion queue for I/O that exists. */
static bool is_used(const struct gnv_soft *soft, uint32_t vector)
{
	unsigned qid;

	for (qid = 1; qid <= soft->config.queues; qid++)
		if (soft->cqs[qid] && soft->cqs[qid]->interrupts && soft->cqs[qid]->vector == vector)
			return vector < GNV_SOFT_VECTORS;
	return false;
}

uint16_t gnv_soft_set_vector(struct gnv_soft *soft, uint32_t value)
{
	uint32_t vector = GPUNVME_FIELD_GET(GPUNVME_VECTOR_IV, value);
	uint32_t *word;

	if (value & ~(GPUNVME_VECTOR_IV | GPUNVME_VECTOR_CD) || !is_used(soft, vector))
		return GPUNVME_SC_INVALID_FIELD;
	word = &soft->features.at_once[WORD(vector)];
	__atomic_store_n(word, value & GPUNVME_VECTOR_CD ? *word | BIT(vector) : *word & ~BIT(vector), __ATOMIC_RELAXED);
	return 0;
}

bool gnv_soft_get_vector(const struct gnv_soft *soft, uint32_t cdw11, bool current, uint32_t *value)
{
	uint32_t vector = GPUNVME_FIELD_GET(GPUNVME_VECTOR_IV, cdw11);

	if (cdw11 & ~GPUNVME_VECTOR_IV || !is_used(soft, vector))
		return false;
	*value = vector | (current && is_at_once(soft, vector) ? GPUNVME_VECTOR_CD : 0);
	return true;
}
