/* SPDX-License-Identifier: MIT */
/*
 * Creating and deleting queue pairs: Base Specification 5.4, 5.5 (create), 5.6, 5.7 (delete).
 * Invariant: rings are zeroed before the controller learns of them (an old phase tag would be a completion), and given back only
 * after it was told to forget them and agreed, or was stopped.
 */
#include "nvme/qp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "nvme/selftest.h"
#include "util/bits.h"
#include "util/opts.h"

#define DEPTH_AUTO 1024u
#define TIMEOUT_MS 30000u
#define LINE 128u

uint32_t gnv_qp_cids(uint32_t cq_depth)
{
	uint32_t cids = cq_depth - 1 - cq_depth / 4;

	if (cids < 1)
		return 1;
	if (cids > 65535)
		cids = 65535;
	return cids >= 128 ? cids & ~63u : cids;
}

void gnv_qp_layout(uint32_t depth, uint32_t cids, struct gnv_qp_layout *layout)
{
	layout->ready = sizeof(struct gpunvme_dq_state);
	layout->result = gnv_align_up(layout->ready + (size_t)depth * 8, LINE);
	layout->cid_map = gnv_align_up(layout->result + (size_t)cids * 8, LINE);
	layout->stop = gnv_align_up(layout->cid_map + ((size_t)cids + 63) / 64 * 8, LINE);
	layout->size = layout->stop + LINE;
}

/* Take the lowest free queue id, and a tag that no other queue of this device had lately. */
static int take_qid(struct gpunvme_qp *qp)
{
	struct gpunvme_dev *dev = qp->dev;
	uint32_t qid = 1;

	pthread_mutex_lock(&dev->lock);
	while (qid <= dev->info.queues && dev->qids[qid / 64] >> (qid % 64) & 1)
		qid++;
	if (qid <= dev->info.queues) {
		dev->qids[qid / 64] |= 1ull << (qid % 64);
		qp->qid = qid;
		qp->tag = (uint32_t)++dev->incarnation << 16 | qid;
		qp->next = dev->qps;
		dev->qps = qp;
	}
	pthread_mutex_unlock(&dev->lock);
	if (!qp->qid)
		return gnv_fail(-ENOSPC, "all %u I/O queue pairs of the controller are in use; destroy one", dev->info.queues);
	return 0;
}

static void give_qid(struct gpunvme_qp *qp)
{
	struct gpunvme_dev *dev = qp->dev;
	struct gpunvme_qp **link;

	pthread_mutex_lock(&dev->lock);
	for (link = &dev->qps; *link != qp; link = &(*link)->next)
		;
	*link = qp->next;
	dev->qids[qp->qid / 64] &= ~(1ull << (qp->qid % 64));
	pthread_mutex_unlock(&dev->lock);
}

static int set_sizes(struct gpunvme_qp *qp, const struct gpunvme_qp_opts *opts)
{
	uint32_t max = qp->dev->info.max_depth, timeout = opts->cmd_timeout_ms ? opts->cmd_timeout_ms : TIMEOUT_MS;
	uint32_t unknown = opts->flags & ~(uint32_t)(GPUNVME_QP_SGL | GPUNVME_QP_STATS | GPUNVME_QP_NO_SELFTEST);

	if (unknown)
		return gnv_fail(-EINVAL, "unknown queue flags 0x%x; valid: GPUNVME_QP_SGL, _STATS, _NO_SELFTEST", unknown);
	if (opts->flags & GPUNVME_QP_SGL && !qp->dev->info.sgl)
		return gnv_fail(-EOPNOTSUPP, "the controller has no SGLs; leave GPUNVME_QP_SGL out");
	qp->depth = opts->depth ? opts->depth : 1u << gnv_log2(gnv_min(DEPTH_AUTO, max));
	if (!gnv_is_pow2(qp->depth) || qp->depth < 2 || qp->depth > max)
		return gnv_fail(-EINVAL, "a queue depth of %u is not possible: it must be a power of two from 2 to %u", qp->depth,
				max);
	qp->cq_depth = qp->depth <= max / 2 ? 2 * qp->depth : qp->depth;
	qp->cids = gnv_qp_cids(qp->cq_depth);
	qp->flags = opts->flags;
	qp->cmd_timeout = (uint64_t)timeout * gnv_gpu_ticks_per_ms(qp->gpu);
	gnv_qp_layout(qp->depth, qp->cids, &qp->layout);
	return 0;
}

static int place(struct gpunvme_qp *qp)
{
	struct gnv_arena *arena = qp->dev->arena;
	uint64_t *cid_map;
	uint32_t cid;
	int ret;

	ret = gnv_arena_alloc(arena, (size_t)qp->depth * sizeof(struct gpunvme_sqe), &qp->sq);
	if (!ret)
		ret = gnv_arena_alloc(arena, (size_t)qp->cq_depth * sizeof(struct gpunvme_cqe), &qp->cq);
	if (!ret)
		ret = gnv_arena_alloc(arena, qp->layout.size, &qp->state);
	if (ret)
		return ret;
	cid_map = (uint64_t *)(void *)((char *)qp->state.cpu + qp->layout.cid_map);
	for (cid = 0; cid < qp->cids; cid++)
		cid_map[cid / 64] |= 1ull << (cid % 64);
	return 0;
}

static int run(struct gpunvme_qp *qp, struct gpunvme_sqe cmd)
{
	return gnv_admin_run(&qp->dev->admin, &cmd, NULL, 0, false, NULL);
}

static int create_queues(struct gpunvme_qp *qp)
{
	struct gpunvme_sqe cq = { .opc = GPUNVME_ADMIN_CREATE_CQ, .prp1 = qp->cq.iova, .cdw11 = GPUNVME_QUEUE_PC };
	struct gpunvme_sqe sq = { .opc = GPUNVME_ADMIN_CREATE_SQ, .prp1 = qp->sq.iova, .cdw11 = GPUNVME_QUEUE_PC };
	int ret;

	cq.cdw10 = qp->qid | GPUNVME_FIELD_PREP(GPUNVME_QUEUE_QSIZE_0B, qp->cq_depth - 1);
	sq.cdw10 = qp->qid | GPUNVME_FIELD_PREP(GPUNVME_QUEUE_QSIZE_0B, qp->depth - 1);
	sq.cdw11 |= GPUNVME_FIELD_PREP(GPUNVME_QUEUE_CQID, qp->qid);
	ret = run(qp, cq);
	qp->cq_exists = ret <= 0; /* without an answer nobody knows */
	if (ret)
		return ret;
	ret = run(qp, sq);
	qp->sq_exists = ret <= 0;
	return ret;
}

/* Delete what exists on the controller, in reverse. Return: 0 when it has let go of the rings. */
static int delete_queues(struct gpunvme_qp *qp)
{
	int ret = 0;

	if (qp->sq_exists)
		ret = run(qp, (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = qp->qid });
	if (ret)
		return ret;
	qp->sq_exists = false;
	if (qp->cq_exists)
		ret = run(qp, (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_CQ, .cdw10 = qp->qid });
	if (ret)
		return ret;
	qp->cq_exists = false;
	return 0;
}

void gnv_qp_release(struct gpunvme_qp *qp)
{
	struct gnv_arena *arena = qp->dev->arena;

	if (qp->qid)
		give_qid(qp);
	gnv_arena_free(arena, &qp->state);
	gnv_arena_free(arena, &qp->cq);
	gnv_arena_free(arena, &qp->sq);
	gnv_gpu_put(qp->gpu);
	free(qp);
}

GPUNVME_API void gpunvme_qp_destroy(struct gpunvme_qp *qp)
{
	if (!qp)
		return;
	if (!delete_queues(qp)) {
		gnv_qp_release(qp);
		return;
	}
	gnv_log(&qp->dev->log, GPUNVME_LOG_ERROR,
		"queue %u could not be deleted, its memory and all buffers stay with the controller until the device is closed: %s",
		qp->qid, gpunvme_errmsg());
	pthread_mutex_lock(&qp->dev->lock);
	qp->zombie = true;
	pthread_mutex_unlock(&qp->dev->lock);
}

static int bring_up(struct gpunvme_qp *qp, const struct gpunvme_qp_opts *opts)
{
	int ret = set_sizes(qp, opts);

	if (!ret)
		ret = place(qp);
	if (!ret)
		ret = take_qid(qp);
	if (!ret)
		ret = create_queues(qp);
	return ret;
}

GPUNVME_API int gpunvme_qp_create(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_qp_opts *user,
				  struct gpunvme_qp **out)
{
	struct gpunvme_qp_opts opts = GPUNVME_QP_OPTS_INIT;
	struct gnv_selftest test = { { NULL } };
	struct gpunvme_qp *qp;
	char cause[512];
	int ret;

	if (!dev || !gpu || !out)
		return gnv_fail(-EINVAL, "gpunvme_qp_create: dev, gpu and qp must not be NULL");
	ret = gnv_opts_copy(&opts, sizeof(opts), user, "gpunvme_qp_opts");
	if (ret)
		return ret;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return gnv_fail(-ENOMEM, "out of memory");
	qp->dev = dev;
	qp->gpu = gnv_gpu_get(gpu);
	ret = bring_up(qp, &opts);
	if (!ret && !(opts.flags & GPUNVME_QP_NO_SELFTEST))
		ret = gnv_selftest_run(&test, qp);
	if (ret) {
		snprintf(cause, sizeof(cause), "%s", gpunvme_errmsg());
		gpunvme_qp_destroy(qp);
		gnv_fail(ret, "%s", cause);
	} else {
		*out = qp;
	}
	gnv_selftest_fini(&test); /* after the queue that may have commands for its buffers */
	return ret;
}

void gnv_qp_poison(struct gpunvme_qp *qp, uint32_t cause)
{
	struct gpunvme_dq_state *state = qp->state.cpu;
	uint32_t none = 0;

	if (state)
		__atomic_compare_exchange_n(&state->poison, &none, cause, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static bool has_submitted(const struct gpunvme_qp *qp)
{
	const uint64_t *result = (const uint64_t *)(const void *)((const char *)qp->state.cpu + qp->layout.result);
	uint32_t cid;

	for (cid = 0; cid < qp->cids; cid++)
		if ((__atomic_load_n(&result[cid], __ATOMIC_RELAXED) & GPUNVME_RES_STATE) == GPUNVME_RES_SUBMITTED)
			return true;
	return false;
}

uint32_t gnv_qp_first_busy(struct gpunvme_dev *dev)
{
	struct gpunvme_qp *qp;
	uint32_t qid = 0;

	pthread_mutex_lock(&dev->lock);
	for (qp = dev->qps; qp && !qid; qp = qp->next) {
		const struct gpunvme_dq_state *state = qp->state.cpu;

		if (state && (qp->zombie || __atomic_load_n(&state->poison, __ATOMIC_RELAXED)) && has_submitted(qp))
			qid = qp->qid;
	}
	pthread_mutex_unlock(&dev->lock);
	return qid;
}
