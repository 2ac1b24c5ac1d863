/* SPDX-License-Identifier: MIT */
/* Admin commands (Base Specification 5): dispatch, queue creation and deletion, abort. */
#include "soft/core/controller.h"

#define ABORT_FAILED 1u /* Abort, dword 0: the command was not aborted */

/* ---- Queues ---- */

static struct gnv_soft_ring ring_of(const struct gpunvme_sqe *sqe)
{
	return (struct gnv_soft_ring){ .iova = sqe->prp1,
				       .entries = GPUNVME_FIELD_GET(GPUNVME_QUEUE_QSIZE_0B, sqe->cdw10) + 1,
				       .qid = (uint16_t)GPUNVME_FIELD_GET(GPUNVME_QUEUE_QID, sqe->cdw10) };
}

/* Identifiers go from 1 to the number that Set Features granted. */
static bool is_qid(uint32_t qid, uint32_t granted_0b)
{
	return qid >= 1 && qid <= granted_0b + 1;
}

static uint32_t granted_sqs(const struct gnv_soft *soft)
{
	return GPUNVME_FIELD_GET(GPUNVME_NUMQ_NSQ_0B, soft->features.queues);
}

static uint32_t granted_cqs(const struct gnv_soft *soft)
{
	return GPUNVME_FIELD_GET(GPUNVME_NUMQ_NCQ_0B, soft->features.queues);
}

static uint16_t check_ring(const struct gnv_soft *soft, const struct gpunvme_sqe *sqe, const struct gnv_soft_ring *ring)
{
	if (ring->entries < 2 || ring->entries > soft->config.depth)
		return GPUNVME_SC_INVALID_QUEUE_SIZE;
	if (!(sqe->cdw11 & GPUNVME_QUEUE_PC))
		return GPUNVME_SC_INVALID_FIELD;
	return 0;
}

static uint16_t create_cq(struct gnv_soft *soft, const struct gpunvme_sqe *sqe)
{
	struct gnv_soft_ring ring = ring_of(sqe);
	uint16_t status;

	if (!is_qid(ring.qid, granted_cqs(soft)) || soft->queue[ring.qid].cq)
		return GPUNVME_SC_INVALID_QID;
	status = check_ring(soft, sqe, &ring);
	if (status)
		return status;
	ring.interrupts = sqe->cdw11 & GPUNVME_QUEUE_IEN;
	ring.vector = (uint16_t)GPUNVME_FIELD_GET(GPUNVME_QUEUE_IV, sqe->cdw11);
	/* A host with a vector that does not exist would wait without end. */
	if ((ring.interrupts || ring.vector) && ring.vector >= soft->config.irq.vectors)
		return GPUNVME_SC_INVALID_VECTOR;
	return gnv_soft_cq_new(soft, &ring);
}

static uint16_t create_sq(struct gnv_soft *soft, const struct gpunvme_sqe *sqe)
{
	uint32_t cqid = GPUNVME_FIELD_GET(GPUNVME_QUEUE_CQID, sqe->cdw11);
	struct gnv_soft_ring ring = ring_of(sqe);
	uint16_t status;

	if (!is_qid(ring.qid, granted_sqs(soft)) || soft->queue[ring.qid].sq || !is_qid(cqid, granted_cqs(soft)))
		return GPUNVME_SC_INVALID_QID;
	if (!soft->queue[cqid].cq)
		return GPUNVME_SC_CQ_INVALID;
	status = check_ring(soft, sqe, &ring);
	if (gnv_soft_has(&soft->config.quirks, GNV_SOFT_PRIO) &&
	    GPUNVME_FIELD_GET(GPUNVME_QUEUE_QPRIO, sqe->cdw11) != GPUNVME_QPRIO_MEDIUM)
		return GPUNVME_SC_INVALID_FIELD;
	return status ? status : gnv_soft_sq_new(soft, &ring, (uint16_t)cqid);
}

static uint16_t delete_cq(struct gnv_soft *soft, const struct gpunvme_sqe *sqe)
{
	uint32_t qid = GPUNVME_FIELD_GET(GPUNVME_QUEUE_QID, sqe->cdw10);

	if (!qid || qid > soft->config.queues || !soft->queue[qid].cq)
		return GPUNVME_SC_INVALID_QID;
	if (soft->queue[qid].sqs)
		return GPUNVME_SC_INVALID_QUEUE_DELETION;
	gnv_soft_cq_free(soft, (uint16_t)qid);
	return 0;
}

/* Completes later, when the queue's commands have: see gnv_soft_admin_poll(). */
static uint16_t delete_sq(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, bool *kept)
{
	uint32_t qid = GPUNVME_FIELD_GET(GPUNVME_QUEUE_QID, cmd->sqe.cdw10);

	if (!qid || qid > soft->config.queues || !soft->queue[qid].sq || soft->queue[qid].deleter)
		return GPUNVME_SC_INVALID_QID;
	soft->engine->sq_close(soft, (uint16_t)qid);
	soft->queue[qid].deleter = cmd;
	soft->deleting++;
	*kept = true;
	return 0;
}

unsigned gnv_soft_admin_poll(struct gnv_soft *soft)
{
	struct gnv_soft_cmd *cmd;
	unsigned qid, n = 0;

	for (qid = 1; qid <= soft->config.queues && soft->deleting; qid++) {
		cmd = soft->queue[qid].deleter;
		if (!cmd || !soft->engine->sq_is_dry(soft, (uint16_t)qid))
			continue;
		soft->deleting--;
		gnv_soft_sq_free(soft, (uint16_t)qid);
		soft->engine->complete(soft, cmd, 0);
		n++;
	}
	return n;
}

/* ---- Abort ---- */

/* Abort a command. The result shows whether the abort came in time. */
static uint16_t abort_command(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	uint16_t sqid = (uint16_t)cmd->sqe.cdw10;
	uint16_t cid = (uint16_t)(cmd->sqe.cdw10 >> 16);
	bool found;

	cmd->dw0 = ABORT_FAILED;
	if (sqid > soft->config.queues || !soft->queue[sqid].sq)
		return GPUNVME_SC_INVALID_FIELD;
	found = sqid ? soft->engine->abort(soft, sqid, cid) : gnv_soft_abort_aer(soft, cid);
	if (found)
		cmd->dw0 = 0;
	return 0;
}

/* ---- Dispatch ---- */

static uint16_t execute(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, bool *kept)
{
	uint16_t status = gnv_soft_check_flags(&cmd->sqe, false);

	switch (cmd->sqe.opc) {
	case GPUNVME_ADMIN_DELETE_SQ:
		return status ? status : delete_sq(soft, cmd, kept);
	case GPUNVME_ADMIN_CREATE_SQ:
		return status ? status : create_sq(soft, &cmd->sqe);
	case GPUNVME_ADMIN_GET_LOG_PAGE:
		return status ? status : gnv_soft_get_log_page(soft, cmd);
	case GPUNVME_ADMIN_DELETE_CQ:
		return status ? status : delete_cq(soft, &cmd->sqe);
	case GPUNVME_ADMIN_CREATE_CQ:
		return status ? status : create_cq(soft, &cmd->sqe);
	case GPUNVME_ADMIN_IDENTIFY:
		return status ? status : gnv_soft_identify(soft, cmd);
	case GPUNVME_ADMIN_ABORT:
		return status ? status : abort_command(soft, cmd);
	case GPUNVME_ADMIN_SET_FEATURES:
		return status ? status : gnv_soft_set_features(soft, cmd);
	case GPUNVME_ADMIN_GET_FEATURES:
		return status ? status : gnv_soft_get_features(soft, cmd);
	case GPUNVME_ADMIN_ASYNC_EVENT_REQUEST:
		return status ? status : gnv_soft_async_request(soft, cmd, kept);
	default:
		return GPUNVME_SC_INVALID_OPCODE;
	}
}

bool gnv_soft_admin(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, uint16_t *status)
{
	bool kept = false;

	*status = execute(soft, cmd, &kept);
	return !kept;
}
