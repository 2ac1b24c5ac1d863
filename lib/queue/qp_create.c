/* SPDX-License-Identifier: MIT */
/*
 * The placement of a queue. Fallback order: rings and data in the GPU's memory, then in the host's with doorbells that threads
 * ring, then the same with doorbells that a CPU thread rings. Only a self-test shows that a placement works, so without one the
 * first is not tried. A queue in the drive's memory, if asked for, comes before these, or is not used at all, as measured.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "queue/qp.h"
#include "queue/selftest.h"
#include "queue/cmb_probe.h"
#include "util/bits.h"

struct place {
	bool local;   /* rings and data in the GPU's memory */
	bool forward; /* a CPU thread rings */
};

void gnv_qp_placement(const struct gnv_qp *qp, char *placement, size_t size)
{
	const struct gnv_port *port = qp->dev->nvme.port;
	const char *name = port->placement;

	if (qp->flags & GPUNVME_QUEUE_CMB)
		name = qp->local ? "vram+cmb" : "cmb";
	else if (port->remote && qp->local)
		name = "vram";
	else if (port->remote && !qp->bells.cpu && qp->gpu->info.kind != GPUNVME_GPU_CPU)
		name = "direct-db";
	snprintf(placement, size, "%.9s%s%s", name, qp->local && !port->remote ? "+vram" : "", qp->bells.cpu ? "+fwd" : "");
}

static int attempt(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *user, struct place place,
		   struct gnv_qp **out)
{
	struct gnv_selftest test = { { NULL }, { NULL } };
	struct gpunvme_queue_opts opts = *user;
	struct gnv_qp *qp = calloc(1, sizeof(*qp));
	struct gnv_message cause;
	int ret;

	if (!qp)
		return gnv_fail(-ENOMEM, "out of memory");
	opts.flags |= place.forward ? (uint32_t)GPUNVME_QUEUE_FORWARD : 0;
	qp->node.ops = &gnv_qp_ops;
	qp->dev = dev;
	qp->gpu = gnv_gpu_get(gpu);
	qp->local = place.local;
	pthread_mutex_lock(&dev->queues_lock); /* the watchdog sees it when it is finished */
	gnv_qp_sweep(dev);
	ret = gnv_qp_bring_up(qp, &opts);
	if (!ret)
		gnv_log(&dev->nvme.log, GPUNVME_LOG_DEBUG, "queue %u: created", qp->qid);
	if (!ret && !(opts.flags & GPUNVME_QUEUE_NO_SELFTEST))
		ret = gnv_selftest_run(&test, qp);
	if (ret) {
		cause = gnv_message();
		gnv_qp_undo(qp);
		gnv_fail_again(ret, &cause);
	} else {
		*out = qp;
	}
	pthread_mutex_unlock(&dev->queues_lock);
	gnv_selftest_fini(&test); /* after the queue that may have commands for its buffers */
	return ret;
}

/*
 * An owner of an RX 7900 XTX saw old completions in uncached memory until the GPU's translations were invalidated. Where the user
 * allows it, rings in GPU memory are tried again after that.
 */
static int attempt_twice(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *opts,
			 struct place place, struct gnv_qp **out)
{
	int ret = attempt(dev, gpu, opts, place, out);
	const struct gnv_message cause = gnv_message();

	if (!(opts->flags & GPUNVME_QUEUE_INVALIDATE) || !place.local || (ret != -EIO && ret != -ETIMEDOUT))
		return ret;
	if (gpu->ops->coherence(gpu, GPUNVME_COHERENCE_INVALIDATE)) {
		gnv_log(&dev->nvme.log, GPUNVME_LOG_WARN, "the GPU's translations are not invalidated: %s", gpunvme_errmsg());
		return gnv_fail_again(ret, &cause);
	}
	gnv_log(&dev->nvme.log, GPUNVME_LOG_WARN, "the GPU's translations were invalidated, and placement vram is tried again: %s",
		cause.text);
	return attempt(dev, gpu, opts, place, out);
}

/* The placements to try, best first. */
static unsigned fallback_order(const struct gpunvme_dev *dev, const struct gpunvme_gpu *gpu, uint32_t flags, struct place place[3])
{
	const bool other = gpu->info.kind != GPUNVME_GPU_CPU && dev->nvme.port->remote;
	unsigned n = 0;

	if (flags & (GPUNVME_QUEUE_VRAM | GPUNVME_QUEUE_FORWARD) || !other) {
		place[n++] = (struct place){ flags & GPUNVME_QUEUE_VRAM, flags & GPUNVME_QUEUE_FORWARD };
		return n;
	}
	if (!(flags & (GPUNVME_QUEUE_NO_SELFTEST | GPUNVME_QUEUE_HOST)) && !gpu->stale_reads)
		place[n++] = (struct place){ true, false };
	place[n++] = (struct place){ false, false };
	place[n++] = (struct place){ false, true };
	return n;
}

/* Is it the placement that failed, rather than what was asked for? Memory of the GPU may be used up where the host has some. */
static bool may_fall(int ret, struct place from)
{
	return ret == -EIO || ret == -ETIMEDOUT || ret == -EOPNOTSUPP || ret == -EXDEV || (from.local && ret == -ENOMEM);
}

static int place_queue(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *opts, struct gnv_qp **out)
{
	static const char *const names[2][2] = { { "direct-db", "vfio-host+fwd" }, { "vram", "vram+fwd" } };
	struct place place[3];
	const unsigned count = fallback_order(dev, gpu, opts->flags, place);
	unsigned i;
	int ret = 0;

	for (i = 0; i < count; i++) {
		ret = attempt_twice(dev, gpu, opts, place[i], out);
		if (!ret || !may_fall(ret, place[i]) || i + 1 == count)
			break;
		gnv_log(&dev->nvme.log, GPUNVME_LOG_WARN, "placement %s does not work, trying %s: %s", names[place[i].local][place[i].forward],
			names[place[i + 1].local][place[i + 1].forward], gpunvme_errmsg());
	}
	return ret;
}

/* The first queue in the drive's memory that works is compared with one that lies elsewhere, and decides for those that come. */
static uint32_t compare_cmb(struct gnv_qp **qp, const struct gpunvme_queue_opts *opts)
{
	struct gpunvme_dev *dev = (*qp)->dev;
	struct gnv_qp *other = NULL;
	bool below = false;
	int ret = place_queue(dev, (*qp)->gpu, opts, &other);

	if (!ret)
		ret = gnv_cmb_probe_compare(*qp, other, &below);
	if (ret)
		gnv_log(&dev->nvme.log, GPUNVME_LOG_INFO, "queues in the drive's memory were not compared with others: %s", gpunvme_errmsg());
	if (other && ret) /* if measuring ended one, the other works */
		below = gnv_qp_poisoned(*qp) && !gnv_qp_poisoned(other);
	if (other) {
		gnv_qp_discard(below ? *qp : other);
		*qp = below ? other : *qp;
	}
	(void)gnv_qp_zero_counters(*qp);
	return below ? GNV_CMB_BELOW : ret ? 0 : GNV_CMB_ABOVE;
}

/* In the drive's memory, if that is not slower. What is not to be tested is not compared either. */
static int place_with_cmb(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *opts,
			  struct gnv_qp **out)
{
	uint32_t *place = &dev->nvme.cmb.place[gpu->info.kind - 1];
	struct gpunvme_queue_opts without = *opts;
	uint32_t open = 0;
	int ret;

	without.flags &= ~(uint32_t)GPUNVME_QUEUE_CMB;
	if (__atomic_load_n(place, __ATOMIC_RELAXED) == GNV_CMB_BELOW) {
		gnv_log(&dev->nvme.log, GPUNVME_LOG_INFO, "a queue does not lie in the drive's memory, as that is slower");
		return place_queue(dev, gpu, &without, out);
	}
	ret = place_queue(dev, gpu, opts, out);
	if (!ret && __atomic_compare_exchange_n(place, &open, GNV_CMB_OPEN, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		__atomic_store_n(place, compare_cmb(out, &without), __ATOMIC_RELAXED);
	return ret;
}

int gnv_qp_create(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *opts, struct gnv_qp **out)
{
	if (gpu->stale_reads && dev->nvme.port->remote && !(opts->flags & (GPUNVME_QUEUE_VRAM | GPUNVME_QUEUE_HOST)))
		gnv_log(&dev->nvme.log, GPUNVME_LOG_INFO, "placement vram is not tried: controllers may read old lines of this GPU's memory. "
			"If gpunvme ordering-test --vram passes, ask for it by GPUNVME_QUEUE_VRAM");
	if (opts->flags & GPUNVME_QUEUE_CMB && !(opts->flags & GPUNVME_QUEUE_NO_SELFTEST))
		return place_with_cmb(dev, gpu, opts, out);
	return place_queue(dev, gpu, opts, out);
}
