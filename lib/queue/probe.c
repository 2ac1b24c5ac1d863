/* SPDX-License-Identifier: MIT */
#include "queue/probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "queue/doorbell.h"
#include "util/bits.h"

/* The earlier result for this way, or NULL. */
static const struct gnv_dev_probed *known(const struct gnv_qp *qp, unsigned way)
{
	const struct gpunvme_dev *dev = qp->dev;

	for (unsigned i = 0; i < dev->probed.count; i++)
		if (dev->probed.of[i].way == way && !strcmp(dev->probed.of[i].gpu, qp->gpu->spec))
			return &dev->probed.of[i];
	return NULL;
}

static void keep(struct gnv_qp *qp, unsigned way, bool works)
{
	struct gpunvme_dev *dev = qp->dev;
	struct gnv_dev_probed *one = &dev->probed.of[dev->probed.count];

	if (dev->probed.count == GNV_ARRAY_LEN(dev->probed.of))
		return; /* the next queue runs a helper again */
	snprintf(one->gpu, sizeof(one->gpu), "%s", qp->gpu->spec);
	one->way = way;
	one->works = works;
	dev->probed.count++;
}

static bool all(const uint32_t word[GNV_PROBE_WORDS], uint32_t value)
{
	return word[0] == value && word[1] == value && word[2] == value;
}

/* No controller has CAP or VS of all ones or zeros. */
static int compare(const struct gnv_qp *qp, const uint32_t seen[GNV_PROBE_WORDS])
{
	const struct gpunvme_mem *bar0 = qp->dev->nvme.port->bar0;
	bool same = true;

	for (unsigned i = 0; i < GNV_PROBE_WORDS; i++)
		same = same && seen[i] == gnv_mem_reg_read32(bar0, 4 * i);
	if (same)
		return 0;
	if (all(seen, 0) || all(seen, ~0u))
		return gnv_fail(-ENXIO, "the GPU reads all %s where the controller has its registers: there is no route between the two",
				seen[0] ? "ones" : "zeros");
	return gnv_fail(-ENXIO, "the GPU reads %08x%08x and %08x in CAP and VS, the CPU other values: its mapping leads elsewhere",
			seen[1], seen[0], seen[2]);
}

static int ring(void *ctx)
{
	return gnv_probe_ring(ctx);
}

/* Return: 0; -ENXIO; -EIO it is not the doorbell; -EFAULT, -ETIME of the program; -ETIMEDOUT, -EPROTO as the ring test. */
static int use(struct gnv_probe *probe, struct gnv_ringtest *test, struct gnv_qp *qp, bool *used)
{
	uint32_t word[GNV_PROBE_WORDS];
	int ret = gnv_probe_load(probe, word);

	if (!ret)
		ret = compare(qp, word);
	if (ret)
		return ret;
	*used = true;
	ret = gnv_ringtest_one(test, qp, ring, probe);
	return ret == -ENOENT ? 0 : ret; /* no namespace to read: the loads are the only result */
}

/* Return: 0: the program has mapped BAR0; -ENOENT; -ETIME: it did not report in time. */
static int start(struct gnv_probe *probe, const struct gnv_qp *qp, unsigned way)
{
	struct gpunvme_dev *dev = qp->dev;
	size_t offset, len;
	int dmabuf;

	gnv_dev_doorbells(dev, &offset, &len);
	if (dev->nvme.port->ops->export_bar0(dev->nvme.port, 0, offset + len, &dmabuf))
		return -ENOENT;
	return gnv_probe_start(probe, qp->gpu, way, dmabuf, offset + len, gnv_ctrl_sq_doorbell(&dev->nvme.ctrl, qp->qid));
}

static bool is_blamed(int ret)
{
	return ret == -ENXIO || ret == -EFAULT || ret == -ETIME || ret == -ETIMEDOUT || ret == -EPROTO;
}

/* A controller that is lost by now says nothing about the way. */
static int judge(struct gnv_qp *qp, unsigned way, int ret)
{
	const struct gnv_message why = gnv_message();
	int lost = gnv_ctrl_check(&qp->dev->nvme.ctrl);

	if (lost)
		return lost;
	if (ret && !is_blamed(ret))
		return gnv_fail_again(ret, &why);
	keep(qp, way, !ret);
	if (!ret) {
		gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_DEBUG, "queue %u: a helper process has tried out the registers", qp->qid);
		return 0;
	}
	gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_WARN, "queue %u: a helper process has tried out the registers: %s", qp->qid, why.text);
	return -ENXIO;
}

/*
 * A program that cannot be ended may still ring. The queue ends, and its identifier stays taken while the device is open: otherwise
 * the late ring would reach the doorbell of another queue.
 */
static int end(struct gnv_probe *probe, struct gnv_qp *qp, unsigned way)
{
	if (!gnv_probe_end(probe))
		return 0;
	pthread_mutex_lock(&qp->dev->lock);
	qp->qid_passed_on = true;
	pthread_mutex_unlock(&qp->dev->lock);
	keep(qp, way, false);
	return -EIO;
}

int gnv_probe_run(struct gnv_ringtest *test, struct gnv_qp *qp, bool *used)
{
	struct gnv_probe probe = { .open_ms = qp->dev->probed.open_ms, .step_ms = qp->dev->probed.step_ms };
	const struct gnv_dev_probed *one;
	struct gnv_message why;
	unsigned way;
	int ret, stays, missing;

	*used = false;
	if (!*qp->gpu->spec || !gnv_doorbells_doubtful(qp, &way))
		return 0;
	one = known(qp, way);
	if (one)
		return one->works ? 0 : -ENXIO;
	missing = start(&probe, qp, way);
	if (missing == -ETIME) /* the next queue does not wait again */
		keep(qp, way, true);
	if (missing) {
		gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_INFO, "queue %u: not tried out by a helper process, so that a fault costs this "
			"process its GPU: %s", qp->qid, gpunvme_errmsg());
		return 0;
	}
	ret = use(&probe, test, qp, used);
	why = gnv_message();
	stays = end(&probe, qp, way);
	if (stays)
		return stays;
	if (ret)
		gnv_fail_again(ret, &why);
	return judge(qp, way, ret);
}
