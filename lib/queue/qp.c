/* SPDX-License-Identifier: MIT */
/*
 * Creating and deleting queue pairs: Base Specification 5.4, 5.5 (create), 5.6, 5.7 (delete).
 * Invariant: rings are zeroed before the controller gets them, because an old phase tag would be a completion. They are given back
 * only after the controller has deleted the queue, or was stopped.
 */
#include "queue/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/cmb.h"
#include "nvme/ioq.h"
#include "queue/doorbell.h"
#include "queue/internal.h"
#include "queue/probe.h"
#include "dma/deferred_free.h"
#include "dma/placement.h"
#include "queue/qp_recover.h"
#include "queue/queue.h"
#include "queue/ringtest.h"
#include "util/bits.h"

#define STILL_MOST 4u /* rounds of the test of the doorbells in which the GPU stands still */
#define DEPTH_AUTO 1024u
#define TIMEOUT_MS 30000u

/* Take the lowest free queue id, or that of the queue it replaces. With dev->lock held. */
static void find_qid(struct gnv_qp *qp, bool inherit)
{
	struct gpunvme_dev *dev = qp->dev;
	uint32_t qid = 1;

	while (qid <= dev->nvme.info.queues && dev->queues.ids[qid / 64] >> (qid % 64) & 1)
		qid++;
	if (qid > dev->nvme.info.queues && !inherit)
		return;
	if (qid > dev->nvme.info.queues) {
		qid = qp->from->qid;
		qp->from->qid_passed_on = true;
	}
	dev->queues.ids[qid / 64] |= 1ull << (qid % 64);
	qp->qid = qid;
	qp->tag = (uint32_t)++dev->queues.incarnation << 16 | qid;
	qp->node.next = dev->queues.first;
	dev->queues.first = &qp->node;
}

/* An identifier, and a tag that no other queue of this device had lately. */
static int take_qid(struct gnv_qp *qp)
{
	struct gpunvme_dev *dev = qp->dev;
	bool inherit = false;
	int ret;

	for (;;) {
		pthread_mutex_lock(&dev->lock);
		find_qid(qp, inherit);
		pthread_mutex_unlock(&dev->lock);
		if (qp->qid)
			return 0;
		if (!qp->internal && gnv_internal_yield(dev, qp->from)) /* the internal queue does not give itself up */
			continue;
		if (!qp->from)
			return gnv_fail(-ENOSPC, "all %u I/O queue pairs of the controller are in use. Destroy one",
					dev->nvme.info.queues);
		ret = gnv_qp_quiesce(qp->from);
		if (ret)
			return ret;
		inherit = true;
	}
}

static void give_qid(struct gnv_qp *qp)
{
	struct gpunvme_dev *dev = qp->dev;
	struct gnv_dev_queue **link;

	pthread_mutex_lock(&dev->lock);
	for (link = &dev->queues.first; *link != &qp->node; link = &(*link)->next)
		;
	*link = qp->node.next;
	if (!qp->qid_passed_on)
		dev->queues.ids[qp->qid / 64] &= ~(1ull << (qp->qid % 64));
	pthread_mutex_unlock(&dev->lock);
}

static int set_sizes(struct gnv_qp *qp, const struct gpunvme_queue_opts *opts)
{
	uint32_t max = qp->dev->nvme.info.max_depth, timeout = opts->cmd_timeout_ms ? opts->cmd_timeout_ms : TIMEOUT_MS;
	uint32_t known = GPUNVME_QUEUE_SGL | GPUNVME_QUEUE_STATS | GPUNVME_QUEUE_NO_SELFTEST | GPUNVME_QUEUE_FORWARD |
			 GPUNVME_QUEUE_POLLED | GPUNVME_QUEUE_CQE16 | GPUNVME_QUEUE_NO_READBACK | GPUNVME_QUEUE_VRAM |
			 GPUNVME_QUEUE_LATENCY | GPUNVME_QUEUE_INVALIDATE | GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_COMPLETION_THREAD |
			 GPUNVME_QUEUE_HOST;

	if (opts->flags & ~known)
		return gnv_fail(-EINVAL, "unknown queue flags 0x%x. Valid are the GPUNVME_QUEUE_ flags of this version, 0x%x",
				opts->flags & ~known, known);
	if (opts->flags & GPUNVME_QUEUE_HOST && opts->flags & GPUNVME_QUEUE_VRAM)
		return gnv_fail(-EINVAL, "GPUNVME_QUEUE_HOST and GPUNVME_QUEUE_VRAM exclude each other");
	if (opts->flags & GPUNVME_QUEUE_SGL && !qp->dev->nvme.info.sgl)
		return gnv_fail(-EOPNOTSUPP, "the controller has no SGLs. Leave GPUNVME_QUEUE_SGL out");
	if (opts->flags & GPUNVME_QUEUE_CMB && gnv_cmb_check(&qp->dev->nvme, GPUNVME_CMB_QUEUES))
		return -EOPNOTSUPP;
	/* Reading the command back would push nothing: the data is on its way to other memory. */
	if (opts->flags & GPUNVME_QUEUE_CMB && qp->dev->nvme.port->remote && qp->gpu->info.kind != GPUNVME_GPU_CPU &&
	    !(opts->flags & GPUNVME_QUEUE_NO_READBACK))
		return gnv_fail(-EOPNOTSUPP, "commands in the drive's memory may overtake the stores of a GPU's threads for them. "
				"Leave GPUNVME_QUEUE_CMB out, or add GPUNVME_QUEUE_NO_READBACK where an ordering test has shown that "
				"nothing overtakes");
	qp->depth = opts->depth ? opts->depth : 1u << gnv_log2(gnv_min(DEPTH_AUTO, max));
	if (!gnv_is_pow2(qp->depth) || qp->depth < 2 || qp->depth > max)
		return gnv_fail(-EINVAL, "a queue depth of %u is not possible: it must be a power of two from 2 to %u", qp->depth,
				max);
	qp->cq_depth = qp->depth <= max / 2 ? 2 * qp->depth : qp->depth;
	qp->cids = gnv_qp_cids(qp->dev->nvme.drive.quirks & GNV_QUIRK_FEW_CIDS ? qp->depth : qp->cq_depth);
	qp->cid_gens = qp->dev->nvme.drive.quirks & GNV_QUIRK_FEW_CIDS ? 0 : gnv_qp_cid_gens(qp->cids);
	qp->flags = opts->flags;
	qp->cmd_timeout = (uint64_t)timeout * gnv_gpu_ticks_per_ms(qp->gpu);
	return 0;
}

static struct gnv_arena *rings(const struct gnv_qp *qp)
{
	return qp->local ? gnv_placement_arena(qp->dev, qp->gpu) : qp->dev->nvme.arena;
}

static struct gnv_arena *sq_ring(const struct gnv_qp *qp)
{
	return qp->flags & GPUNVME_QUEUE_CMB ? qp->dev->nvme.cmb.arena : rings(qp);
}

/* The rings and the control word, which are mapped to the controller before threads see them, and the state. */
static int allocate(struct gnv_qp *qp)
{
	struct gnv_arena *arena;
	int ret = gnv_placement_claim(qp->dev, qp->gpu, qp->local);

	if (ret)
		return ret;
	qp->placed = true;
	gnv_deferred_free_unused(qp->dev);
	arena = rings(qp);
	ret = gnv_arena_alloc(sq_ring(qp), (size_t)qp->depth * sizeof(struct gpunvme_sqe), qp->gpu, &qp->sq);
	if (!ret)
		ret = gnv_arena_alloc(arena, (size_t)qp->cq_depth * sizeof(struct gpunvme_cqe), qp->gpu, &qp->cq);
	ret = gnv_placement_status(qp->dev, qp->local, ret);
	if (ret)
		return ret;
	ret = gnv_arena_alloc_own(qp->dev->nvme.arena, sizeof(uint32_t), qp->gpu, &qp->control);
	if (ret)
		return ret;
	return gnv_qp_state_open(qp);
}

static int run(struct gnv_qp *qp, struct gpunvme_sqe cmd)
{
	return gnv_admin_run(&qp->dev->nvme.admin, &cmd, NULL, 0, false, NULL);
}

static int create_queues(struct gnv_qp *qp)
{
	int ret = run(qp, gnv_ioq_create_cq(qp->qid, qp->cq.iova, qp->cq_depth));

	qp->cq_exists = ret <= 0; /* after an error it may exist */
	if (ret)
		return ret;
	ret = run(qp, gnv_ioq_create_sq(&qp->dev->nvme, qp->qid, qp->sq.iova, qp->depth));
	__atomic_store_n(&qp->sq_exists, ret <= 0, __ATOMIC_RELAXED);
	return ret;
}

int gnv_qp_delete(struct gnv_qp *qp)
{
	int ret = 0;

	if (qp->sq_exists)
		ret = run(qp, (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = qp->qid });
	if (ret)
		return ret;
	__atomic_store_n(&qp->sq_exists, false, __ATOMIC_RELAXED);
	if (qp->cq_exists)
		ret = run(qp, (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_CQ, .cdw10 = qp->qid });
	if (ret)
		return ret;
	qp->cq_exists = false;
	return 0;
}

int gnv_qp_place(struct gnv_qp *qp)
{
	int ret = allocate(qp);

	if (ret)
		return ret;
	ret = take_qid(qp);
	if (ret)
		return ret;
	return create_queues(qp);
}

void gnv_qp_release(struct gnv_qp *qp)
{
	if (qp->owner)
		gnv_queue_lose(qp->owner, qp);
	if (qp->qid)
		give_qid(qp);
	gnv_qp_state_close(qp);
	gnv_arena_free(qp->dev->nvme.arena, &qp->control);
	if (qp->placed) {
		gnv_arena_free(rings(qp), &qp->cq);
		gnv_arena_free(sq_ring(qp), &qp->sq);
		gnv_placement_release(qp->dev, qp->gpu, qp->local);
	}
	gnv_gpu_put(qp->gpu);
	free(qp);
}

int gnv_qp_undo(struct gnv_qp *qp)
{
	gnv_doorbells_close(qp);
	if (!gnv_qp_delete(qp)) {
		gnv_qp_release(qp);
		return 0;
	}
	pthread_mutex_lock(&qp->dev->lock);
	qp->zombie = true;
	pthread_mutex_unlock(&qp->dev->lock);
	gnv_fail(-EBUSY,
		 "queue %u could not be deleted. The controller keeps its rings and all buffers until it is reset or closed: %s",
		 qp->qid, gpunvme_errmsg());
	gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_ERROR, "%s", gpunvme_errmsg());
	return -EBUSY;
}

void gnv_qp_sweep(struct gpunvme_dev *dev)
{
	struct gnv_qp *qp, *next;

	for (qp = gnv_qp_first(dev); qp; qp = next) {
		next = gnv_qp_next(qp);
		if (qp->zombie && !qp->kept && !gnv_qp_delete(qp))
			gnv_qp_release(qp);
	}
}

/* @kept: the caller still has it when it could not be deleted. */
static int destroy(struct gnv_qp *qp, bool kept)
{
	struct gpunvme_dev *dev = qp->dev;
	int ret;

	pthread_mutex_lock(&dev->queues_lock);
	gnv_qp_drop_old(dev, qp);
	qp->kept = kept;
	if (!kept)
		qp->owner = NULL;
	ret = gnv_qp_undo(qp);
	if (!ret && !dev->closing) /* which goes through the list itself */
		gnv_qp_sweep(dev);
	pthread_mutex_unlock(&dev->queues_lock);
	return ret;
}

void gnv_qp_discard(struct gnv_qp *qp)
{
	if (qp)
		destroy(qp, false);
}

int gnv_qp_destroy(struct gnv_qp *qp)
{
	return destroy(qp, true);
}

/* The same queue once more, with empty rings. */
static int create_anew(struct gnv_qp *qp)
{
	int ret = gnv_qp_delete(qp);

	if (ret)
		return ret;
	if (!qp->local) {
		memset(qp->sq.cpu, 0, qp->sq.len);
		memset(qp->cq.cpu, 0, qp->cq.len);
		return create_queues(qp);
	}
	ret = gnv_gpu_fill(qp->gpu, qp->sq.lane, qp->sq.len, 0);
	if (ret)
		return ret;
	ret = gnv_gpu_fill(qp->gpu, qp->cq.lane, qp->cq.len, 0);
	if (ret)
		return ret;
	return create_queues(qp);
}

/* A helper process rings first, because its errors cost only itself. Return: as prove_once(). */
static int probe(struct gnv_qp *qp, unsigned way, unsigned *passed)
{
	struct gnv_ringtest test = { .data = { 0 } };
	bool used;
	int ret = gnv_probe_run(&test, qp, &used), anew = 0;

	if (!ret)
		*passed = way;
	if (ret == -ENXIO)
		gnv_doorbells_judge(qp, false);
	if (used)
		anew = create_anew(qp);
	if (anew)
		return anew; /* as below */
	gnv_ringtest_fini(&test, qp);
	return ret == -ENXIO ? gnv_doorbells_open(qp) : ret;
}

/* Run one round of the doorbell test. Return: 0 there is a result, or another round is needed. Else: the error of the creation. */
static int prove_once(struct gnv_qp *qp, unsigned *late, unsigned *still)
{
	struct gnv_ringtest test = { .data = { 0 } };
	int ret = gnv_ringtest_run(&test, qp), anew;
	bool works = !ret || ret == -ENOENT, fails = ret == -ETIMEDOUT || ret == -EPROTO || (ret == -EAGAIN && ++*late == 2);

	if (ret)
		gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_INFO, "queue %u: %s", qp->qid, gpunvme_errmsg());
	if (works || fails)
		gnv_doorbells_judge(qp, works); /* before the queue goes: a store that still waits must not meet the next one */
	anew = create_anew(qp);
	if (anew)
		return anew; /* the controller may still use the test's memory, which stays the arena's */
	gnv_ringtest_fini(&test, qp);
	if (ret == -EBUSY && ++*still == STILL_MOST)
		return gnv_fail(-EIO, "the GPU ran no kernel in time in any test of the doorbells of queue %u. Try again when it "
				      "has less work", qp->qid);
	if (fails) {
		*late = 0;
		return gnv_doorbells_open(qp);
	}
	return works || ret == -EAGAIN || ret == -EBUSY ? 0 : ret;
}

/* Test doorbells that the hardware leaves in doubt. Try the next way until one works or the CPU rings. */
static int prove(struct gnv_qp *qp)
{
	unsigned late = 0, still = 0, rounds = 0, way, passed = ~0u;
	int ret = 0;

	while (!ret && gnv_doorbells_doubtful(qp, &way)) {
		if (!qp->cq.cpu)
			return gnv_fail(-EOPNOTSUPP, "the doorbells of queue %u cannot be tested: the CPU does not reach its rings",
					qp->qid);
		if (++rounds > 20)
			return gnv_fail(-EBUSY, "the doorbells of queue %u cannot be tested while others use them. Try again",
					qp->qid);
		if (way != passed)
			ret = probe(qp, way, &passed);
		else
			ret = prove_once(qp, &late, &still);
	}
	return ret;
}

int gnv_qp_bring_up(struct gnv_qp *qp, const struct gpunvme_queue_opts *opts)
{
	int ret = set_sizes(qp, opts);

	if (ret)
		return ret;
	ret = gnv_qp_place(qp);
	if (ret)
		return ret;
	ret = gnv_doorbells_open(qp);
	if (ret)
		return ret;
	return qp->flags & GPUNVME_QUEUE_NO_SELFTEST ? 0 : prove(qp);
}

uint32_t gnv_qp_of_tag(struct gpunvme_dev *dev, uint32_t tag)
{
	struct gnv_qp *qp;
	uint32_t qid;

	pthread_mutex_lock(&dev->lock);
	for (qp = gnv_qp_first(dev); qp && (qp->tag != tag || qp->zombie || gnv_qp_poisoned(qp)); qp = gnv_qp_next(qp))
		;
	qid = qp ? qp->qid : 0;
	pthread_mutex_unlock(&dev->lock);
	return qid;
}
