/* SPDX-License-Identifier: MIT */
/* Requests to all pairs of a queue, and queries of them, while kernels may run. */
#include <errno.h>

#include "queue/qp_recover.h"
#include "queue/queue.h"
#include "run/completions.h"
#include "util/entry.h"
#include "util/opts.h"

GPUNVME_API int gpunvme_queue_stop(struct gpunvme_queue *queue, int stop)
{
	int ret = gnv_enter(queue->gpu, queue, "queue");

	if (ret)
		return ret;
	gnv_qp_stop(queue->qp, gnv_queue_pairs(queue), stop != 0);
	return 0;
}

/* ---- Recovery ---- */

static bool has_ended(struct gnv_qp *qp)
{
	bool ended;

	if (!qp)
		return false;
	pthread_mutex_lock(&qp->dev->lock);
	ended = gnv_qp_poisoned(qp) != 0;
	pthread_mutex_unlock(&qp->dev->lock);
	return ended;
}

static int recover(struct gnv_qp *qp)
{
	int ret;

	pthread_mutex_lock(&qp->dev->queues_lock);
	ret = qp->zombie ? gnv_fail(-ESHUTDOWN, "queue %u is being destroyed. Call gpunvme_queue_destroy() again", qp->qid)
			 : gnv_qp_recover(qp);
	pthread_mutex_unlock(&qp->dev->queues_lock);
	return ret;
}

GPUNVME_API int gpunvme_queue_recover(struct gpunvme_queue *queue)
{
	struct gnv_message cause = { .text = "" };
	int ret = gnv_enter(queue->gpu, queue, "queue"), err;
	uint32_t i;

	if (ret)
		return ret;
	for (i = 0; i < gnv_queue_pairs(queue); i++) {
		err = queue->qp[i] && (gnv_queue_pairs(queue) == 1 || has_ended(queue->qp[i])) ? recover(queue->qp[i]) : 0;
		if (err && !ret)
			cause = gnv_message();
		ret = ret ? ret : err;
	}
	return ret ? gnv_fail_again(ret, &cause) : 0;
}

GPUNVME_API int gpunvme_queue_retire(struct gpunvme_queue *queue)
{
	uint32_t i;
	int ret = gnv_enter(queue->gpu, queue, "queue");

	if (ret)
		return ret;
	gnv_completions_pause(queue->completions);
	for (i = 0; i < gnv_queue_pairs(queue); i++)
		if (queue->qp[i])
			gnv_qp_retire(queue->qp[i]);
	gnv_completions_resume(queue->completions);
	gnv_queue_drop_views(queue);
	return 0;
}

/* ---- How it is doing ---- */

GPUNVME_API int gpunvme_queue_get_info(struct gpunvme_queue *queue, struct gpunvme_queue_info *user)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	uint32_t i;
	int ret = gnv_enter(queue->gpu, queue, "queue");

	if (ret)
		return ret;
	info.devices = queue->devices;
	info.queues = queue->queues;
	info.stripe = queue->striped.stripe;
	info.lba_size = queue->striped.lba_size;
	info.nblocks = queue->striped.nblocks;
	for (i = 0; i < gnv_queue_pairs(queue); i++)
		if (queue->qp[i])
			gnv_qp_add_info(queue->qp[i], &info);
	return gnv_info_copy(user, &info, gpunvme_queue_info);
}

GPUNVME_API int gpunvme_queue_get_latency(struct gpunvme_queue *queue, struct gpunvme_queue_latency *user)
{
	struct gpunvme_queue_latency latency = { .size = sizeof(latency) };
	struct gnv_qp *qp;
	uint32_t i;
	int ret = gnv_enter(queue->gpu, queue, "queue");

	if (ret)
		return ret;
	latency.ticks_per_ms = gnv_gpu_ticks_per_ms(queue->gpu);
	for (i = 0; i < gnv_queue_pairs(queue) && !ret; i++) {
		qp = queue->qp[i];
		if (!qp)
			continue;
		if (!(qp->flags & GPUNVME_QUEUE_LATENCY))
			return gnv_fail(-EOPNOTSUPP, "this queue keeps no latencies. Create it with GPUNVME_QUEUE_LATENCY");
		pthread_mutex_lock(&qp->dev->lock);
		ret = gnv_qp_latency_add(qp, latency.bucket);
		pthread_mutex_unlock(&qp->dev->lock);
	}
	return ret ? ret : gnv_info_copy(user, &latency, gpunvme_queue_latency);
}
