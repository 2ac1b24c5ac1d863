/* SPDX-License-Identifier: MIT */
#include "dev/queues.h"

#include "dev/dev.h"

void gnv_queues_end(struct gpunvme_dev *dev, uint32_t cause)
{
	struct gnv_dev_queue *q;

	pthread_mutex_lock(&dev->lock);
	for (q = dev->queues.first; q; q = q->next)
		q->ops->end(q, cause);
	pthread_mutex_unlock(&dev->lock);
}

uint32_t gnv_queues_busy(struct gpunvme_dev *dev, bool well, bool *over)
{
	const struct gnv_dev_queue *q;
	uint32_t qid = 0;

	pthread_mutex_lock(&dev->lock);
	for (q = dev->queues.first; q && !qid; q = q->next)
		qid = q->ops->busy(q, well, over);
	pthread_mutex_unlock(&dev->lock);
	return qid;
}

void gnv_queues_mark(struct gpunvme_dev *dev)
{
	struct gnv_dev_queue *q;

	for (q = dev->queues.first; q; q = q->next)
		q->ops->mark(q);
}

uint32_t gnv_queues_before_mark(const struct gpunvme_dev *dev)
{
	const struct gnv_dev_queue *q;
	uint32_t qid = 0;

	for (q = dev->queues.first; q && !qid; q = q->next)
		qid = q->ops->before_mark(q);
	return qid;
}

bool gnv_queues_unfenced(const struct gpunvme_dev *dev, const struct gpunvme_gpu *gpu)
{
	const struct gnv_dev_queue *q;

	for (q = dev->queues.first; q && !q->ops->unfenced(q, gpu); q = q->next)
		;
	return q;
}
