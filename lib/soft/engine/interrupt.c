/* SPDX-License-Identifier: MIT */
/*
 * Interrupts of completion queues, and when they wait for more completions (Base Specification 3.3.1.2, features 08h and 09h:
 * 5.27.1.6, 5.27.1.7). Completions are counted for each queue: of queues that share a vector, the first that is due interrupts.
 *
 * After an interrupt, a host takes entries until it finds none, and then moves the head. Until then, another interrupt would find
 * nothing new, and costs a virtual machine much. Later completions are reported when the head is moved to an entry before them, or
 * after a while, as a host may move the head at any time.
 */
#include "soft/engine/threads.h"

#include "util/bits.h"

#define TIME_NS 100000u /* unit of the aggregation time */

/* Whether it may still wait. *until is 0 before the first call. */
static bool is_before(uint64_t *until, uint64_t now, uint64_t ns)
{
	if (!*until)
		*until = now + ns;
	return now < *until;
}

/* Those of the admin queue never wait, nor do those of errors: a host may want to act on one. */
static bool may_wait(const struct gnv_soft *soft, struct gnv_soft_cq *cq)
{
	uint32_t value = __atomic_load_n(&soft->features.coalescing, __ATOMIC_RELAXED);
	uint32_t time = GPUNVME_FIELD_GET(GPUNVME_COALESCING_TIME, value), more = GPUNVME_FIELD_GET(GPUNVME_COALESCING_THR_0B, value);
	bool gathers = time && more && cq->unsaid <= more, at_it;
	uint64_t now;

	if (!gathers)
		cq->due = 0;
	if ((!gathers && !cq->told) || !cq->qid || cq->urgent || gnv_soft_is_at_once(soft, cq->vector))
		return false;
	now = gnv_soft_now();
	at_it = cq->told && is_before(&cq->comes, now, TIME_NS);
	gathers = gathers && is_before(&cq->due, now, (uint64_t)time * TIME_NS);
	return at_it || gathers;
}

static void said(struct gnv_soft_cq *cq)
{
	cq->unsaid = 0;
	cq->urgent = false;
	cq->due = 0;
}

/* The host has moved the head: nothing is left to report of the entries before it. */
void gnv_soft_acknowledged(struct gnv_soft_cq *cq)
{
	if (cq->told && cq->head == cq->tail)
		said(cq);
	cq->told = false;
	cq->comes = 0;
}

void gnv_soft_interrupt(struct gnv_soft_server *server)
{
	const struct gnv_soft_irq *irq = &server->soft->config.irq;
	struct gnv_soft_cq *cq;

	if (gnv_soft_is_silent(server->soft))
		return; /* an interrupt is a write, too */
	server->posted = false;
	for (cq = server->cqs; cq; cq = cq->next) {
		if (!cq->unsaid)
			continue;
		if (may_wait(server->soft, cq)) {
			server->posted = true;
			continue;
		}
		said(cq);
		cq->told = cq->head != cq->tail;
		cq->comes = 0;
		irq->raise(irq->ctx, cq->vector);
	}
}

void gnv_soft_interrupt_by(const struct gnv_soft_server *server, uint64_t *deadline)
{
	const struct gnv_soft_cq *cq;

	for (cq = server->cqs; cq && server->posted; cq = cq->next)
		if (gnv_max(cq->due, cq->comes))
			*deadline = gnv_min(*deadline, gnv_max(cq->due, cq->comes));
}
