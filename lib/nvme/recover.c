/* SPDX-License-Identifier: MIT */
/*
 * Recovering queues: Base Specification 5.1 (Abort), 5.6 and 5.7 (delete), 3.7.2 (controller reset).
 * Invariant: lanes are told that a queue is over only after the controller has let go of it, because what they get then is the
 * permission to use their buffers for something else.
 */
#include "nvme/recover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/doorbell.h"
#include "nvme/features.h"
#include "util/bits.h"

#define ABORTS 64u /* one at a time; the deletion of the queue does the rest */
#define WORDS 64u

/* ---- Making the controller let go ---- */

/* Ask for the end of one command. Return: 0 however it answers; negative when it does not. */
static int abort_command(struct gpunvme_qp *qp, uint32_t cid)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_ABORT, .cdw10 = qp->qid | cid << 16 };
	int ret = gnv_admin_run(&qp->dev->admin, &cmd, NULL, 0, false, NULL);

	return ret < 0 ? ret : 0;
}

static int abort_all(struct gpunvme_qp *qp)
{
	uint64_t words[WORDS];
	uint32_t cid, done = 0;
	int ret = 0;

	for (cid = 0; cid < qp->cids && done < ABORTS && !ret; cid++) {
		uint32_t n = (uint32_t)gnv_min(qp->cids - cid, WORDS);

		if (cid % WORDS == 0 &&
		    qp->gpu->ops->peek(qp->gpu, words, qp->state.lane + qp->layout.result + 8ull * cid, (size_t)n * 8))
			return 0;
		if ((words[cid % WORDS] & GPUNVME_RES_STATE) != GPUNVME_RES_SUBMITTED)
			continue;
		ret = abort_command(qp, cid);
		done++;
	}
	return ret;
}

/* No late ring of an old lane reaches the controller any more. */
static void silence(struct gpunvme_qp *qp)
{
	if (qp->bells.cpu)
		gnv_forward_remove(&qp->dev->forward, qp->forward);
}

static int forget(struct gpunvme_qp *qp)
{
	int ret = qp->sq_exists ? abort_all(qp) : 0;

	if (!ret)
		ret = gnv_qp_delete(qp);
	return ret;
}

/* ---- Going on ---- */

static struct gpunvme_qp *twin(struct gpunvme_qp *qp)
{
	struct gpunvme_qp *fresh = calloc(1, sizeof(*fresh));

	if (!fresh)
		return NULL;
	fresh->dev = qp->dev;
	fresh->gpu = gnv_gpu_get(qp->gpu);
	fresh->local = qp->local;
	fresh->depth = qp->depth;
	fresh->cq_depth = qp->cq_depth;
	fresh->cids = qp->cids;
	fresh->flags = qp->flags;
	fresh->cmd_timeout = qp->cmd_timeout;
	fresh->recoveries = qp->recoveries + 1;
	return fresh;
}

/* Exchange what two queues are, but for their places in the list, and what is read without a lock because it never changes. */
static void exchange(struct gpunvme_qp *qp, struct gpunvme_qp *fresh)
{
	const size_t from = offsetof(struct gpunvme_qp, qid), len = sizeof(*qp) - from;
	char was[sizeof(*qp)];

	pthread_mutex_lock(&qp->dev->lock);
	memcpy(was, (char *)qp + from, len);
	memcpy((char *)qp + from, (char *)fresh + from, len);
	memcpy((char *)fresh + from, was, len);
	fresh->heir = qp;
	pthread_mutex_unlock(&qp->dev->lock);
}

/* New rings for a queue that the controller has forgotten. On failure it stays as it is: over. */
static int replace(struct gpunvme_qp *qp)
{
	struct gpunvme_qp *fresh = twin(qp);
	char cause[512];
	int ret;

	if (!fresh)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_qp_place(fresh);
	if (!ret)
		ret = gnv_doorbells_open(fresh);
	if (ret) {
		snprintf(cause, sizeof(cause), "%s", gpunvme_errmsg());
		gnv_qp_abandon(fresh);
		return gnv_fail(ret, "queue %u was deleted, and cannot be created anew: %s", qp->qid, cause);
	}
	exchange(qp, fresh);
	gnv_log(&qp->dev->log, GPUNVME_LOG_WARN, "queue %u: over; it goes on as queue %u", fresh->qid, qp->qid);
	return 0;
}

/* ---- Controller reset ---- */

/* The controller was disabled: it knows of no queue. Those that were given up before can go, the others end for their lanes. */
static void end_all(struct gpunvme_dev *dev)
{
	struct gpunvme_qp *qp, *next;

	for (qp = dev->qps; qp; qp = next) {
		next = qp->next;
		qp->sq_exists = qp->cq_exists = false;
		if (qp->zombie)
			gnv_qp_release(qp);
		else
			gnv_qp_command(qp, GPUNVME_ESHUTDOWN);
	}
}

static int restart(struct gpunvme_dev *dev)
{
	uint32_t granted = 0;
	struct gpunvme_qp *qp;
	int ret;

	for (qp = dev->qps; qp; qp = qp->next)
		silence(qp);
	ret = gnv_admin_restart(&dev->admin);
	if (!ret || !dev->ctrl.enabled)
		end_all(dev);
	if (!ret)
		ret = gnv_features_queues(dev, dev->info.queues, &granted);
	if (!ret && granted < dev->info.queues)
		ret = gnv_fail(-EIO, "after its reset the controller grants %u queues, before it had granted %u; close it", granted,
			       dev->info.queues);
	return ret;
}

static int reset(struct gpunvme_dev *dev, const struct gpunvme_qp *asked)
{
	struct gpunvme_qp *qp;
	char cause[512];
	int ret, first;

	gnv_log(&dev->log, GPUNVME_LOG_WARN, "queue %u: %s; resetting the controller, which ends all its queues", asked->qid,
		gpunvme_errmsg());
	first = restart(dev);
	if (first) {
		snprintf(cause, sizeof(cause), "%s", gpunvme_errmsg());
		gnv_ctrl_kill(&dev->ctrl, -ENODEV);
		for (qp = dev->qps; qp; qp = qp->next)
			gnv_qp_command(qp, GPUNVME_ENODEV);
		return gnv_fail(first, "%s", cause);
	}
	for (qp = dev->qps; qp; qp = qp->next) {
		ret = qp->heir ? 0 : replace(qp);
		if (ret && qp != asked)
			gnv_log(&dev->log, GPUNVME_LOG_ERROR, "queue %u: %s", qp->qid, gpunvme_errmsg());
		if (ret && qp == asked)
			first = ret;
	}
	return first;
}

/* ---- All of it ---- */

int gnv_qp_recover(struct gpunvme_qp *qp)
{
	int ret;

	silence(qp);
	ret = forget(qp);
	if (ret)
		return reset(qp->dev, qp);
	gnv_qp_command(qp, GPUNVME_ESHUTDOWN);
	return replace(qp);
}

void gnv_qp_drop_old(struct gpunvme_dev *dev, const struct gpunvme_qp *qp)
{
	struct gpunvme_qp *old, *next;

	for (old = dev->qps; old; old = next) {
		next = old->next;
		if (!old->heir || (qp && old->heir != qp))
			continue;
		gnv_doorbells_close(old);
		gnv_qp_release(old);
	}
}

GPUNVME_API int gpunvme_qp_recover(struct gpunvme_qp *qp)
{
	int ret;

	if (!qp)
		return gnv_fail(-EINVAL, "gpunvme_qp_recover: qp must not be NULL");
	pthread_mutex_lock(&qp->dev->queues_lock);
	ret = gnv_qp_recover(qp);
	pthread_mutex_unlock(&qp->dev->queues_lock);
	return ret;
}

GPUNVME_API int gpunvme_qp_release_old(struct gpunvme_qp *qp)
{
	if (!qp)
		return gnv_fail(-EINVAL, "gpunvme_qp_release_old: qp must not be NULL");
	pthread_mutex_lock(&qp->dev->queues_lock);
	gnv_qp_drop_old(qp->dev, qp);
	pthread_mutex_unlock(&qp->dev->queues_lock);
	return 0;
}
