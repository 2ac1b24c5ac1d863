/* SPDX-License-Identifier: MIT */
/* Which queues there are: the engine makes them, and the controller remembers (Base Specification 3.3, 5.4 to 5.7). */
#include "soft/core/controller.h"

uint16_t gnv_soft_cq_new(struct gnv_soft *soft, const struct gnv_soft_ring *ring)
{
	struct gnv_soft_queue *queue = &soft->queue[ring->qid];
	const uint16_t status = soft->engine->cq_create(soft, ring);

	if (status)
		return status;
	queue->cq = true;
	queue->interrupts = ring->interrupts;
	queue->vector = ring->vector;
	soft->io_queues += ring->qid != 0;
	return 0;
}

uint16_t gnv_soft_sq_new(struct gnv_soft *soft, const struct gnv_soft_ring *ring, uint16_t cqid)
{
	struct gnv_soft_queue *queue = &soft->queue[ring->qid];
	const uint16_t status = soft->engine->sq_create(soft, ring, cqid);

	if (status)
		return status;
	queue->sq = true;
	queue->cqid = cqid;
	soft->queue[cqid].sqs++;
	soft->io_queues += ring->qid != 0;
	return 0;
}

void gnv_soft_sq_free(struct gnv_soft *soft, uint16_t qid)
{
	struct gnv_soft_queue *queue = &soft->queue[qid];

	soft->engine->sq_delete(soft, qid);
	soft->queue[queue->cqid].sqs--;
	queue->sq = false;
	queue->deleter = NULL;
	soft->io_queues -= qid != 0;
}

void gnv_soft_cq_free(struct gnv_soft *soft, uint16_t qid)
{
	soft->engine->cq_delete(soft, qid);
	soft->queue[qid].cq = false;
	soft->queue[qid].interrupts = false;
	soft->io_queues -= qid != 0;
}

void gnv_soft_free_queues(struct gnv_soft *soft)
{
	unsigned qid;

	for (qid = 0; qid <= soft->config.queues; qid++)
		if (soft->queue[qid].sq)
			gnv_soft_sq_free(soft, (uint16_t)qid);
	for (qid = 0; qid <= soft->config.queues; qid++)
		if (soft->queue[qid].cq)
			gnv_soft_cq_free(soft, (uint16_t)qid);
}

void gnv_soft_quiesce(struct gnv_soft *soft, bool dead)
{
	unsigned qid;

	soft->engine->quiesce(soft, dead);
	for (qid = 1; qid <= soft->config.queues && soft->deleting; qid++) {
		if (!soft->queue[qid].deleter)
			continue;
		soft->engine->discard(soft, soft->queue[qid].deleter);
		soft->queue[qid].deleter = NULL;
		soft->deleting--;
	}
	gnv_soft_events_reset(soft);
}
