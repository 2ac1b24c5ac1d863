/* SPDX-License-Identifier: MIT */
/* Doorbells for threads: Base Specification 3.1.2 (where they are). */
#include "queue/doorbell.h"

#include <errno.h>
#include <stdlib.h>

#include "queue/qp.h"

/* BAR0 itself. */
static int show(struct gnv_qp *qp)
{
	struct gpunvme_dev *dev = qp->dev;
	size_t offset, len;
	uint64_t lane;
	int ret;

	gnv_dev_doorbells(dev, &offset, &len);
	pthread_mutex_lock(&dev->nvme.bar0_lock);
	ret = gnv_mem_show(dev->nvme.port->bar0, qp->gpu, offset, len, &lane);
	pthread_mutex_unlock(&dev->nvme.bar0_lock);
	if (ret)
		return ret;
	qp->sq_db = lane + gnv_ctrl_sq_doorbell(&dev->nvme.ctrl, qp->qid) - offset;
	qp->cq_db = lane + gnv_ctrl_cq_doorbell(&dev->nvme.ctrl, qp->qid) - offset;
	return 0;
}

static int forward(struct gnv_qp *qp)
{
	struct gpunvme_dev *dev = qp->dev;
	int ret = gnv_arena_alloc_own(dev->nvme.arena, sizeof(struct gnv_bells), qp->gpu, &qp->bells);

	if (ret)
		return ret;
	qp->forward = malloc(sizeof(*qp->forward));
	ret = qp->forward ? gnv_forward_add(&dev->forward, qp->forward, &dev->nvme.ctrl, qp->qid, qp->bells.cpu) :
			    gnv_fail(-ENOMEM, "out of memory");
	if (ret) {
		free(qp->forward);
		qp->forward = NULL;
		gnv_arena_free(dev->nvme.arena, &qp->bells);
		return ret;
	}
	qp->sq_db = qp->bells.lane + offsetof(struct gnv_bells, sq);
	qp->cq_db = qp->bells.lane + offsetof(struct gnv_bells, cq);
	return 0;
}

int gnv_doorbells_open(struct gnv_qp *qp)
{
	int ret = qp->flags & GPUNVME_QUEUE_FORWARD ? -EOPNOTSUPP : show(qp);

	if (ret != -EOPNOTSUPP)
		return ret;
	if (!(qp->flags & GPUNVME_QUEUE_FORWARD))
		gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_INFO, "queue %u: a CPU thread rings the doorbells: %s", qp->qid,
			gpunvme_errmsg());
	return forward(qp);
}

static int hide(const struct gnv_qp *qp)
{
	struct gpunvme_dev *dev = qp->dev;
	size_t offset, len;

	gnv_dev_doorbells(dev, &offset, &len);
	return gnv_mem_hide_at(dev->nvme.port->bar0, qp->gpu, qp->sq_db - gnv_ctrl_sq_doorbell(&dev->nvme.ctrl, qp->qid) + offset);
}

void gnv_doorbells_close(struct gnv_qp *qp)
{
	struct gpunvme_dev *dev = qp->dev;

	if (qp->bells.cpu) {
		gnv_forward_remove(&dev->forward, qp->forward);
		free(qp->forward);
		qp->forward = NULL;
		gnv_arena_free(dev->nvme.arena, &qp->bells);
	} else if (qp->sq_db) {
		pthread_mutex_lock(&dev->nvme.bar0_lock);
		if (hide(qp)) {
			gnv_log(&dev->nvme.log, GPUNVME_LOG_ERROR, "%s", gpunvme_errmsg());
			dev->nvme.port->keep = true;
		}
		pthread_mutex_unlock(&dev->nvme.bar0_lock);
	}
	qp->sq_db = qp->cq_db = 0;
}

bool gnv_doorbells_doubtful(struct gnv_qp *qp, unsigned *way)
{
	struct gpunvme_dev *dev = qp->dev;
	const struct gnv_visibility *visible;
	bool doubtful;

	if (qp->bells.cpu)
		return false;
	pthread_mutex_lock(&dev->nvme.bar0_lock);
	visible = gnv_mem_visibility(dev->nvme.port->bar0, qp->gpu);
	doubtful = visible && visible->range.doubtful && !visible->proven; /* none: the device was lost just now */
	if (doubtful)
		*way = visible->range.way;
	pthread_mutex_unlock(&dev->nvme.bar0_lock);
	return doubtful;
}

void gnv_doorbells_judge(struct gnv_qp *qp, bool works)
{
	struct gpunvme_dev *dev = qp->dev;
	struct gnv_visibility *visible;

	pthread_mutex_lock(&dev->nvme.bar0_lock);
	visible = gnv_mem_visibility(dev->nvme.port->bar0, qp->gpu);
	if (visible)
		visible->proven = works;
	if (visible && !works)
		qp->gpu->ops->mmio_distrust(qp->gpu, &visible->range);
	pthread_mutex_unlock(&dev->nvme.bar0_lock);
	if (!works)
		gnv_doorbells_close(qp);
}
