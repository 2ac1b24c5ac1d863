/* SPDX-License-Identifier: MIT */
/*
 * Which way a queue takes: the ladder. From the top: rings and data in the GPU's memory; in the host's, with doorbells that the
 * lanes ring; the same, rung by a CPU thread. Only a self-test says that a way works, so without one the top is not tried.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "nvme/qp.h"
#include "nvme/selftest.h"
#include "util/bits.h"
#include "util/opts.h"

struct rung {
	bool local;   /* rings and data in the GPU's memory */
	bool forward; /* a CPU thread rings */
};

void gnv_qp_rung(const struct gpunvme_qp *qp, char *rung, size_t size)
{
	const struct gnv_port *port = qp->dev->port;
	const char *name = port->rung;

	if (port->remote && qp->local)
		name = "vram";
	else if (port->remote && !qp->bells.cpu && qp->gpu->info.kind != GPUNVME_GPU_CPU)
		name = "direct-db";
	snprintf(rung, size, "%.9s%s%s", name, qp->local && !port->remote ? "+vram" : "", qp->bells.cpu ? "+fwd" : "");
}

static int attempt(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_qp_opts *user, struct rung rung,
		   struct gpunvme_qp **out)
{
	struct gnv_selftest test = { { NULL }, { NULL } };
	struct gpunvme_qp_opts opts = *user;
	struct gpunvme_qp *qp = calloc(1, sizeof(*qp));
	char cause[512];
	int ret;

	if (!qp)
		return gnv_fail(-ENOMEM, "out of memory");
	opts.flags |= rung.forward ? (uint32_t)GPUNVME_QP_FORWARD : 0;
	qp->dev = dev;
	qp->gpu = gnv_gpu_get(gpu);
	qp->local = rung.local;
	pthread_mutex_lock(&dev->queues_lock); /* the watchdog sees it when it is finished */
	ret = gnv_qp_bring_up(qp, &opts);
	if (!ret)
		gnv_log(&dev->log, GPUNVME_LOG_DEBUG, "queue %u: created", qp->qid);
	if (!ret && !(opts.flags & GPUNVME_QP_NO_SELFTEST))
		ret = gnv_selftest_run(&test, qp);
	if (ret) {
		snprintf(cause, sizeof(cause), "%s", gpunvme_errmsg());
		gnv_qp_abandon(qp);
		gnv_fail(ret, "%s", cause);
	} else {
		*out = qp;
	}
	pthread_mutex_unlock(&dev->queues_lock);
	gnv_selftest_fini(&test); /* after the queue that may have commands for its buffers */
	return ret;
}

/* The ways to try, best first. */
static unsigned ladder(const struct gpunvme_dev *dev, const struct gpunvme_gpu *gpu, uint32_t flags, struct rung rung[3])
{
	const bool other = gpu->info.kind != GPUNVME_GPU_CPU && dev->port->remote;
	unsigned n = 0;

	if (flags & (GPUNVME_QP_VRAM | GPUNVME_QP_FORWARD) || !other) {
		rung[n++] = (struct rung){ flags & GPUNVME_QP_VRAM, flags & GPUNVME_QP_FORWARD };
		return n;
	}
	if (!(flags & GPUNVME_QP_NO_SELFTEST))
		rung[n++] = (struct rung){ true, false };
	rung[n++] = (struct rung){ false, false };
	rung[n++] = (struct rung){ false, true };
	return n;
}

/* Is it the way that failed, rather than what was asked for? Memory of the GPU may be used up where the host has some. */
static bool may_fall(int ret, struct rung from)
{
	return ret == -EIO || ret == -ETIMEDOUT || ret == -EOPNOTSUPP || ret == -EXDEV || (from.local && ret == -ENOMEM);
}

GPUNVME_API int gpunvme_qp_create(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_qp_opts *user,
				  struct gpunvme_qp **out)
{
	static const char *const names[2][2] = { { "direct-db", "vfio-host+fwd" }, { "vram", "vram+fwd" } };
	struct gpunvme_qp_opts opts = GPUNVME_QP_OPTS_INIT;
	struct rung rung[3];
	unsigned count, i;
	int ret;

	if (!dev || !gpu || !out)
		return gnv_fail(-EINVAL, "gpunvme_qp_create: dev, gpu and qp must not be NULL");
	ret = gnv_opts_copy(&opts, sizeof(opts), user, "gpunvme_qp_opts");
	if (ret)
		return ret;
	count = ladder(dev, gpu, opts.flags, rung);
	for (i = 0; i < count; i++) {
		ret = attempt(dev, gpu, &opts, rung[i], out);
		if (!ret && rung[i].local && !(opts.flags & GPUNVME_QP_NO_SELFTEST))
			__atomic_store_n(&gpu->data_local, true, __ATOMIC_RELAXED);
		if (!ret || !may_fall(ret, rung[i]) || i + 1 == count)
			break;
		gnv_log(&dev->log, GPUNVME_LOG_WARN, "rung %s does not work, trying %s: %s", names[rung[i].local][rung[i].forward],
			names[rung[i + 1].local][rung[i + 1].forward], gpunvme_errmsg());
	}
	return ret;
}
