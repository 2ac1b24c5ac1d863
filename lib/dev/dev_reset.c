/* SPDX-License-Identifier: MIT */
/*
 * Base Specification 3.7.2 (controller reset).
 * Invariant: threads see that a queue is over only after the controller has let go of it, because from then on they may use their
 * buffers for something else.
 */
#include <errno.h>

#include "dev/reset.h"
#include "nvme/reset.h"
#include "util/entry.h"

static void forget_all(void *ctx)
{
	struct gpunvme_dev *dev = ctx;
	struct gnv_dev_queue *q, *next;

	for (q = dev->queues.first; q; q = next) {
		next = q->next;
		q->ops->forget(q);
	}
}

/* The end of the line: nothing more is asked of it, and nothing waits for it. */
static void fail_dev(struct gpunvme_dev *dev)
{
	gnv_ctrl_kill(&dev->nvme.ctrl, -ESHUTDOWN, gpunvme_errmsg());
	gnv_queues_end(dev, GPUNVME_ENODEV);
}

/* Return: as gnv_dev_reset(). */
static int renew_all(struct gpunvme_dev *dev, const struct gnv_dev_queue *asked)
{
	struct gnv_dev_queue *q;
	int ret, first = 0;

	for (q = dev->queues.first; q; q = q->next) {
		ret = q->ops->renew(q);
		if (ret && (q == asked || (!asked && !first)))
			first = ret;
	}
	return first;
}

int gnv_dev_reset(struct gpunvme_dev *dev, const struct gnv_dev_queue *asked)
{
	char why[GNV_CTRL_WHY];
	struct gnv_dev_queue *q;
	int ret;

	gnv_events_reset(&dev->events);
	for (q = dev->queues.first; q; q = q->next)
		q->ops->silence(q);
	ret = gnv_reset(&dev->nvme, forget_all, dev);
	if (ret) {
		fail_dev(dev);
		gnv_ctrl_why(&dev->nvme.ctrl, why);
		gnv_events_reset_ended(&dev->events, why);
		return ret;
	}
	dev->hooks->refill(dev);
	ret = renew_all(dev, asked);
	gnv_events_reset_ended(&dev->events, NULL);
	if (gnv_ctrl_dead(&dev->nvme.ctrl)) { /* since its reset, and no event has said so */
		gnv_ctrl_why(&dev->nvme.ctrl, why);
		gnv_events_lost(&dev->events, why);
	}
	return ret;
}

GPUNVME_API int gpunvme_dev_reset(struct gpunvme_dev *dev)
{
	int ret = gnv_enter(dev, dev, "dev");

	if (ret)
		return ret;
	pthread_mutex_lock(&dev->queues_lock);
	ret = dev->closing ? gnv_fail(-ESHUTDOWN, "the device is being closed. Call gpunvme_dev_close() again") :
			     gnv_dev_reset(dev, NULL);
	pthread_mutex_unlock(&dev->queues_lock);
	return ret;
}
