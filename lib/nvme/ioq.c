/* SPDX-License-Identifier: MIT */
/* I/O queues: Base Specification 3.3, 5.4 and 5.5 (creation), 5.6 and 5.7 (deletion). */
#include "nvme/ioq.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"
#include "util/clock.h"
#include "util/mmio.h"

#define ENTRIES (2 * GNV_IOQ_BATCH)
#define WITNESSES 8u

struct gpunvme_sqe gnv_ioq_create_cq(uint32_t qid, uint64_t iova, uint32_t entries)
{
	return (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_CREATE_CQ,
				     .prp1 = iova,
				     .cdw10 = qid | GPUNVME_FIELD_PREP(GPUNVME_QUEUE_QSIZE_0B, entries - 1),
				     .cdw11 = GPUNVME_QUEUE_PC };
}

struct gpunvme_sqe gnv_ioq_create_sq(const struct gnv_nvme *nvme, uint32_t qid, uint64_t iova, uint32_t entries)
{
	const uint32_t prio = nvme->drive.quirks & GNV_QUIRK_MEDIUM_PRIO ? GPUNVME_QPRIO_MEDIUM : 0;

	return (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_CREATE_SQ,
				     .prp1 = iova,
				     .cdw10 = qid | GPUNVME_FIELD_PREP(GPUNVME_QUEUE_QSIZE_0B, entries - 1),
				     .cdw11 = GPUNVME_QUEUE_PC | GPUNVME_FIELD_PREP(GPUNVME_QUEUE_QPRIO, prio) |
					      GPUNVME_FIELD_PREP(GPUNVME_QUEUE_CQID, qid) };
}

static int admin(struct gnv_ioq *q, struct gpunvme_sqe cmd)
{
	return gnv_admin_run(&q->nvme->admin, &cmd, NULL, 0, false, NULL);
}

int gnv_ioq_open(struct gnv_ioq *q, struct gnv_nvme *nvme, uint32_t qid)
{
	const uint32_t entries = (uint32_t)gnv_min(ENTRIES, nvme->info.max_depth);
	int ret;

	*q = (struct gnv_ioq){ .nvme = nvme, .qid = qid, .phase = 1 };
	ret = gnv_arena_alloc(nvme->arena, ENTRIES * sizeof(struct gpunvme_sqe), NULL, &q->sq);
	if (ret)
		return ret;
	ret = gnv_arena_alloc(nvme->arena, ENTRIES * sizeof(struct gpunvme_cqe), NULL, &q->cq);
	if (ret)
		return ret;
	q->entries = entries;
	ret = admin(q, gnv_ioq_create_cq(qid, q->cq.iova, entries));
	q->cq_exists = ret <= 0;
	if (ret)
		return ret;
	ret = admin(q, gnv_ioq_create_sq(nvme, qid, q->sq.iova, entries));
	q->sq_exists = ret <= 0;
	return ret;
}

/*
 * The identifier of a command on the wire, and back. They are as high as any that threads use, from FFFEh down: a drive that dies
 * of those dies here. FFFFh stands for no command in the Error Information log (Base Specification, Command Dword 0).
 */
static uint32_t cid_of(const struct gnv_ioq *q, uint32_t i)
{
	return q->nvme->drive.quirks & GNV_QUIRK_FEW_CIDS ? i : 0xfffe - i;
}

/* Up to as many as fit the ring. */
static uint32_t send(struct gnv_ioq *q, struct gpunvme_sqe *cmds, uint32_t first, uint32_t count)
{
	struct gpunvme_sqe *ring = q->sq.cpu;
	uint32_t n;

	for (n = 0; n < count && n + 1 < q->entries; n++) {
		cmds[n].cid = (uint16_t)cid_of(q, first + n);
		ring[q->tail] = cmds[n];
		q->tail = (uint16_t)((q->tail + 1u) % q->entries);
	}
	gnv_mmio_write32(q->nvme->ctrl.bar + gnv_ctrl_sq_doorbell(&q->nvme->ctrl, q->qid), q->tail);
	return n;
}

static int broken(const struct gnv_ioq *q, const struct gpunvme_cqe *cqe)
{
	return gnv_fail(-EPROTO, "the controller broke the protocol: a completion of command %u, queue %u, on queue %u", cqe->cid,
			cqe->sqid, q->qid);
}

/* One completion, into the bit map of those that are missing. */
static int take(struct gnv_ioq *q, uint32_t *missing, int *status, uint32_t timeout_ms)
{
	const struct gpunvme_cqe *ring = q->cq.cpu;
	struct gnv_deadline deadline = gnv_deadline_in(timeout_ms);
	struct gpunvme_cqe cqe;
	uint32_t csts, i;

	while (GPUNVME_FIELD_GET(GPUNVME_CQE_DW3_PHASE, gnv_word_read32((const char *)&ring[q->head] + 12)) != q->phase) {
		if (gnv_ctrl_status(&q->nvme->ctrl, &csts))
			return -ENODEV;
		if (csts & GPUNVME_CSTS_CFS)
			return gnv_fail(-ESHUTDOWN, "the controller died of a read (CSTS.CFS)");
		if (!gnv_deadline_poll_again(&deadline))
			return gnv_fail(-ETIMEDOUT, "the controller did not complete a read within %u ms", timeout_ms);
	}
	cqe = ring[q->head];
	i = cid_of(q, cqe.cid);
	if (cqe.sqid != q->qid || i >= GNV_IOQ_BATCH || !(*missing >> i & 1))
		return broken(q, &cqe);
	*missing &= ~(1u << i);
	if (!*status && (cqe.status >> 1 & GPUNVME_ST_CODE))
		*status = cqe.status >> 1;
	q->head = (uint16_t)((q->head + 1u) % q->entries);
	if (!q->head)
		q->phase ^= 1;
	return 0;
}

int gnv_ioq_run(struct gnv_ioq *q, struct gpunvme_sqe *cmds, uint32_t count, uint32_t timeout_ms)
{
	uint32_t sent = 0;
	int status = 0, ret = 0;

	while (sent < count && !ret) {
		uint32_t n = send(q, cmds + sent, sent, count - sent), i;
		uint32_t missing = n == 32 ? ~0u : ((1u << n) - 1) << sent;

		for (i = 0; i < n && !ret; i++)
			ret = take(q, &missing, &status, timeout_ms);
		gnv_mmio_write32(q->nvme->ctrl.bar + gnv_ctrl_cq_doorbell(&q->nvme->ctrl, q->qid), q->head);
		sent += n;
	}
	if (ret)
		return ret;
	return status;
}

/* Take the completion of the witness, and that of the command if it comes first. */
static int take_witness(struct gnv_ioq *q, uint32_t bit, uint32_t *missing, int *status, uint32_t timeout_ms)
{
	int ret = 0;

	while (!ret && *missing & bit) {
		const bool was_missing = *missing & 1;
		int other = 0;

		ret = take(q, missing, &other, timeout_ms);
		if (was_missing && !(*missing & 1))
			*status = other;
	}
	return ret;
}

int gnv_ioq_run_witnessed(struct gnv_ioq *q, struct gpunvme_sqe *cmd, const struct gpunvme_sqe *witness, uint32_t timeout_ms,
			  uint32_t witness_ms)
{
	const uint32_t witnesses = gnv_min(WITNESSES, q->entries - 2);
	uint32_t missing = 1, i;
	int status = 0, ret;

	send(q, cmd, 0, 1);
	ret = take(q, &missing, &status, timeout_ms);
	for (i = 1; ret == -ETIMEDOUT && missing == 1 && i <= witnesses; i++) {
		struct gpunvme_sqe other = *witness;

		send(q, &other, i, 1);
		missing |= 1u << i;
		ret = take_witness(q, 1u << i, &missing, &status, witness_ms);
		if (!ret && missing)
			ret = gnv_fail(-ETIMEDOUT, "the controller completed %u reads, but not the one before them", i);
	}
	gnv_mmio_write32(q->nvme->ctrl.bar + gnv_ctrl_cq_doorbell(&q->nvme->ctrl, q->qid), q->head);
	if (ret)
		return ret;
	return status;
}

void gnv_ioq_forget(struct gnv_ioq *q)
{
	q->cq_exists = q->sq_exists = false;
}

int gnv_ioq_close(struct gnv_ioq *q)
{
	int ret = q->sq_exists ? admin(q, (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = q->qid }) : 0;

	if (!ret && q->cq_exists)
		ret = admin(q, (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_CQ, .cdw10 = q->qid });
	if (ret)
		return ret;
	gnv_arena_free(q->nvme->arena, &q->cq);
	gnv_arena_free(q->nvme->arena, &q->sq);
	return 0;
}
