/* SPDX-License-Identifier: MIT */
/*
 * Recovering queues: Base Specification 5.1 (Abort), 5.6 and 5.7 (delete).
 * Invariant: threads see the end of a queue only after the controller has stopped using it, because from then on they may use their
 * buffers for something else.
 */
#include "queue/qp_recover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/reset.h"
#include "queue/doorbell.h"
#include "queue/queue.h"
#include "util/bits.h"

#define ABORTS 64u /* one at a time. The deletion of the queue does the rest */
#define WORDS 64u

/* ---- Making the controller let go ---- */

/* Abort one command, by its CID on the wire. Return: 0 the Abort completed, with any status; negative: it did not complete. */
static int abort_command(struct gnv_qp *qp, uint32_t cid)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_ABORT, .cdw10 = qp->qid | cid << 16 };
	int ret = gnv_admin_run(&qp->dev->nvme.admin, &cmd, NULL, 0, false, NULL);

	return ret < 0 ? ret : 0;
}

static int abort_all(struct gnv_qp *qp)
{
	uint64_t words[WORDS];
	uint32_t gens = qp->cid_gens, cid, done = 0;
	int ret = 0;

	for (cid = 0; cid < qp->cids && done < ABORTS && !ret; cid++) {
		uint32_t n = (uint32_t)gnv_min(qp->cids - cid, WORDS);

		if (cid % WORDS == 0 &&
		    qp->gpu->ops->peek(qp->gpu, words, qp->state.lane + qp->layout.result + 8ull * cid, (size_t)n * 8))
			return 0;
		if (!gnv_qp_is_open(gens, words[cid % WORDS]))
			continue;
		ret = abort_command(qp, cid | GPUNVME_CID_GEN(gens, words[cid % WORDS] >> GPUNVME_RES_GEN_SHIFT));
		done++;
	}
	return ret;
}

void gnv_qp_silence(struct gnv_qp *qp)
{
	if (qp->bells.cpu)
		gnv_forward_remove(&qp->dev->forward, qp->forward);
}

static int forget(struct gnv_qp *qp)
{
	int ret = qp->sq_exists ? abort_all(qp) : 0;

	if (ret)
		return ret;
	return gnv_qp_delete(qp);
}

/* ---- Going on ---- */

static struct gnv_qp *new_like(struct gnv_qp *qp)
{
	struct gnv_qp *fresh = calloc(1, sizeof(*fresh));

	if (!fresh)
		return NULL;
	fresh->node.ops = qp->node.ops;
	fresh->dev = qp->dev;
	fresh->gpu = gnv_gpu_get(qp->gpu);
	fresh->local = qp->local;
	fresh->depth = qp->depth;
	fresh->cq_depth = qp->cq_depth;
	fresh->cids = qp->cids;
	fresh->cid_gens = qp->cid_gens;
	fresh->flags = qp->flags;
	fresh->internal = qp->internal;
	fresh->cmd_timeout = qp->cmd_timeout;
	fresh->recoveries = qp->recoveries + 1;
	fresh->from = qp->qid_passed_on ? NULL : qp;
	return fresh;
}

/* Exchange two queues, except for their places in the list, and for fields that never change and are read without a lock. */
static void exchange(struct gnv_qp *qp, struct gnv_qp *fresh)
{
	const size_t from = offsetof(struct gnv_qp, qid), len = sizeof(*qp) - from;
	char was[sizeof(*qp)];

	pthread_mutex_lock(&qp->dev->lock);
	memcpy(was, (char *)qp + from, len);
	memcpy((char *)qp + from, (char *)fresh + from, len);
	memcpy((char *)fresh + from, was, len);
	fresh->heir = qp;
	pthread_mutex_unlock(&qp->dev->lock);
}

int gnv_qp_renew(struct gnv_qp *qp)
{
	struct gnv_qp *fresh = new_like(qp);
	struct gnv_message cause;
	int ret;

	if (!fresh)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_qp_place(fresh);
	if (!ret)
		ret = gnv_doorbells_open(fresh);
	if (ret) {
		cause = gnv_message();
		gnv_qp_undo(fresh);
		return gnv_fail(ret, "queue %u was deleted, and cannot be created anew: %s", qp->qid, cause.text);
	}
	fresh->from = NULL;
	exchange(qp, fresh);
	if (qp->owner)
		gnv_queue_renewed(qp->owner);
	gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_WARN, "queue %u: over. It goes on as queue %u", fresh->qid, qp->qid);
	return 0;
}

/* ---- All of it ---- */

int gnv_qp_recover(struct gnv_qp *qp)
{
	int ret;

	gnv_qp_silence(qp);
	ret = forget(qp);
	if (ret) {
		gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_WARN, "queue %u: %s. Resetting the controller, which ends all its queues",
			qp->qid, gpunvme_errmsg());
		return gnv_dev_reset(qp->dev, &qp->node);
	}
	gnv_qp_command(qp, GPUNVME_ESHUTDOWN);
	ret = gnv_qp_renew(qp);
	if (!ret && !qp->internal)
		gnv_events_add(&qp->dev->events, GPUNVME_EVENT_RECOVERED, qp->owner, NULL);
	return ret;
}

void gnv_qp_drop_old(struct gpunvme_dev *dev, const struct gnv_qp *qp)
{
	struct gnv_qp *old, *next;

	for (old = gnv_qp_first(dev); old; old = next) {
		next = gnv_qp_next(old);
		if (!old->heir || (qp && old->heir != qp))
			continue;
		gnv_doorbells_close(old);
		gnv_qp_release(old);
	}
}

void gnv_qp_retire(struct gnv_qp *qp)
{
	pthread_mutex_lock(&qp->dev->queues_lock);
	gnv_qp_drop_old(qp->dev, qp);
	qp->lanes_gone = !qp->sq_exists && !(qp->flags & GPUNVME_QUEUE_COMPLETION_THREAD); /* all its views are old, but that thread's */
	pthread_mutex_unlock(&qp->dev->queues_lock);
}
