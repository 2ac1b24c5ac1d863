/* SPDX-License-Identifier: MIT */
/* Admin commands (Base Specification 5): dispatch, queue creation and deletion, abort. */
#include "soft/state.h"

#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

#define ABORT_FAILED 1u /* Abort, dword 0: the command was not aborted */

/* ---- Queues ---- */

static struct gnv_soft_ring ring_of(const struct gpunvme_sqe *sqe)
{
	return (struct gnv_soft_ring){ .iova = sqe->prp1,
				       .entries = GPUNVME_FIELD_GET(GPUNVME_QUEUE_QSIZE_0B, sqe->cdw10) + 1,
				       .qid = (uint16_t)GPUNVME_FIELD_GET(GPUNVME_QUEUE_QID, sqe->cdw10) };
}

/* Identifiers go from 1 to what Set Features granted. */
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

	if (!is_qid(ring.qid, granted_cqs(soft)) || soft->cqs[ring.qid])
		return GPUNVME_SC_INVALID_QID;
	status = check_ring(soft, sqe, &ring);
	if (status)
		return status;
	ring.interrupts = sqe->cdw11 & GPUNVME_QUEUE_IEN;
	ring.vector = (uint16_t)GPUNVME_FIELD_GET(GPUNVME_QUEUE_IV, sqe->cdw11);
	/* A host that asked for one that does not exist would wait for ever. */
	if ((ring.interrupts || ring.vector) && ring.vector >= soft->config.irq.vectors)
		return GPUNVME_SC_INVALID_VECTOR;
	return gnv_soft_cq_new(soft, &ring);
}

static uint16_t create_sq(struct gnv_soft *soft, const struct gpunvme_sqe *sqe)
{
	uint32_t cqid = GPUNVME_FIELD_GET(GPUNVME_QUEUE_CQID, sqe->cdw11);
	struct gnv_soft_ring ring = ring_of(sqe);
	uint16_t status;

	if (!is_qid(ring.qid, granted_sqs(soft)) || soft->sqs[ring.qid] || !is_qid(cqid, granted_cqs(soft)))
		return GPUNVME_SC_INVALID_QID;
	if (!soft->cqs[cqid])
		return GPUNVME_SC_CQ_INVALID;
	status = check_ring(soft, sqe, &ring);
	if (gnv_soft_has(&soft->config.traits, GNV_SOFT_PRIO) &&
	    GPUNVME_FIELD_GET(GPUNVME_QUEUE_QPRIO, sqe->cdw11) != GPUNVME_QPRIO_MEDIUM)
		return GPUNVME_SC_INVALID_FIELD;
	return status ? status : gnv_soft_sq_new(soft, &ring, (uint16_t)cqid);
}

static uint16_t delete_cq(struct gnv_soft *soft, const struct gpunvme_sqe *sqe)
{
	uint32_t qid = GPUNVME_FIELD_GET(GPUNVME_QUEUE_QID, sqe->cdw10);

	if (!qid || qid > soft->config.queues || !soft->cqs[qid])
		return GPUNVME_SC_INVALID_QID;
	if (soft->cqs[qid]->sqs)
		return GPUNVME_SC_INVALID_QUEUE_DELETION;
	gnv_soft_cq_free(soft, (uint16_t)qid);
	return 0;
}

/* Completes later, when the queue's commands have: see gnv_soft_admin_poll(). */
static uint16_t delete_sq(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, bool *kept)
{
	uint32_t qid = GPUNVME_FIELD_GET(GPUNVME_QUEUE_QID, cmd->sqe.cdw10);

	if (!qid || qid > soft->config.queues || !soft->sqs[qid] || soft->sqs[qid]->deleter)
		return GPUNVME_SC_INVALID_QID;
	gnv_soft_sq_close(soft->sqs[qid]);
	soft->sqs[qid]->deleter = cmd;
	soft->deleting++;
	*kept = true;
	return 0;
}

static bool is_dry(struct gnv_soft_sq *sq)
{
	bool dry;

	gnv_soft_server_lock(sq->server);
	dry = !sq->inflight;
	gnv_soft_server_unlock(sq->server);
	return dry;
}

unsigned gnv_soft_admin_poll(struct gnv_soft *soft)
{
	struct gnv_soft_cmd *cmd;
	unsigned qid, n = 0;

	for (qid = 1; qid <= soft->config.queues && soft->deleting; qid++) {
		if (!soft->sqs[qid] || !soft->sqs[qid]->deleter || !is_dry(soft->sqs[qid]))
			continue;
		cmd = soft->sqs[qid]->deleter;
		soft->deleting--;
		gnv_soft_sq_free(soft, (uint16_t)qid);
		gnv_soft_finish(cmd, 0);
		n++;
	}
	return n;
}

/* ---- Abort ---- */

/* A command can be aborted while it is parked, not once the kernel has it; the answer says which it was. */
static uint16_t abort_command(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	uint16_t sqid = (uint16_t)cmd->sqe.cdw10;
	uint16_t cid = (uint16_t)(cmd->sqe.cdw10 >> 16);
	struct gnv_soft_server *server;
	bool found;

	cmd->dw0 = ABORT_FAILED;
	if (sqid > soft->config.queues || !soft->sqs[sqid])
		return GPUNVME_SC_INVALID_FIELD;
	if (!sqid) {
		found = gnv_soft_abort_aer(soft, cid);
	} else {
		server = soft->sqs[sqid]->server;
		gnv_soft_server_lock(server);
		found = gnv_soft_abort_parked(server, sqid, cid);
		gnv_soft_server_unlock(server);
	}
	if (found)
		cmd->dw0 = 0;
	return 0;
}

/* ---- Dispatch ---- */

uint16_t gnv_soft_reply(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, const void *data, size_t len, uint64_t want)
{
	struct gnv_soft_dma *dma = &cmd->sq->server->dma;
	uint16_t status = gnv_soft_dptr(dma, &cmd->sqe, soft->page, want, &cmd->segs);
	char *reply;

	if (status)
		return status;
	reply = calloc(1, (size_t)want);
	if (!reply)
		return GPUNVME_SC_INTERNAL;
	memcpy(reply, data, gnv_min(len, want));
	status = gnv_soft_segs_write(dma, &cmd->segs, reply, (size_t)want);
	free(reply);
	return status;
}

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

void gnv_soft_admin(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	bool kept = false;
	uint16_t status;

	if ((soft->faulty || soft->admin_fault.decide) && !gnv_soft_meet(cmd))
		return;
	status = execute(soft, cmd, &kept);
	if (!kept)
		gnv_soft_finish(cmd, status);
}
