/* SPDX-License-Identifier: MIT */
/*
 * Lock order: that of the internal queue, then queues_lock. A thread that has queues_lock only tries this one.
 * Invariant: between two users the queue has no command in flight.
 */
#include "queue/internal.h"

#include <errno.h>

#include "dma/mem_map.h"
#include "queue/qp_recover.h"
#include "util/process.h"

#define DEPTH 2u

static int make_buffer(struct gpunvme_dev *dev)
{
	const struct gpunvme_mem_opts opts = { sizeof(opts), gnv_mem_shared_for(dev->nvme.port->space), 0 };
	struct gnv_dev_internal *in = &dev->internal;
	int ret = gpunvme_mem_alloc(in->gpu, NULL, GNV_INTERNAL_BYTES, &opts, &in->mem);

	if (ret)
		return ret;
	in->mem->ours = true;
	ret = gpunvme_mem_map(in->mem, dev);
	if (ret)
		return ret;
	return gpunvme_mem_dbuf(in->mem, dev, &in->dbuf);
}

static int make_queue(struct gpunvme_dev *dev)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gnv_dev_internal *in = &dev->internal;
	int ret;

	opts.depth = DEPTH;
	ret = gnv_qp_create(dev, in->gpu, &opts, &in->qp);
	if (!ret)
		in->qp->internal = true;
	return ret;
}

/* With its lock. A queue that cannot be deleted stays with its device, which releases the queue, and the memory after it. */
static void drop(struct gpunvme_dev *dev)
{
	struct gnv_dev_internal *in = &dev->internal;

	gnv_qp_discard(in->qp);
	gnv_map_free(in->mem);
	gpunvme_gpu_close(in->gpu);
	in->qp = NULL;
	in->mem = NULL;
	in->gpu = NULL;
}

/* A watchdog or a reset may exchange its rings meanwhile. */
static bool has_ended(struct gpunvme_dev *dev)
{
	bool ended;

	pthread_mutex_lock(&dev->lock);
	ended = dev->internal.qp && gnv_qp_poisoned(dev->internal.qp);
	pthread_mutex_unlock(&dev->lock);
	return ended;
}

/* With its lock. The rest of a queue after a reset goes: no thread uses it. */
static int make(struct gpunvme_dev *dev)
{
	struct gnv_dev_internal *in = &dev->internal;
	int ret = 0;

	if (has_ended(dev))
		drop(dev);
	if (in->qp) {
		gnv_qp_retire(in->qp);
		return 0;
	}
	if (!in->gpu)
		ret = gpunvme_gpu_open("cpu", NULL, &in->gpu);
	if (!ret)
		ret = make_queue(dev);
	if (!ret && !in->mem)
		ret = make_buffer(dev);
	return ret;
}

int gnv_internal_ask(struct gpunvme_dev *dev, uint32_t nsid, struct gnv_internal_ns *ns)
{
	ns->changes = __atomic_load_n(&dev->internal.changes, __ATOMIC_ACQUIRE); /* before: later changes are noticed */
	ns->info = (struct gpunvme_ns_info){ .size = sizeof(ns->info) };
	return gpunvme_ns_get_info(dev, nsid, &ns->info);
}

/* With the lock, which an admin command that changes blocks holds, too. */
static int check_current(const struct gnv_dev_internal *in, const struct gnv_internal_ns *ns)
{
	if (__atomic_load_n(&in->changes, __ATOMIC_ACQUIRE) == ns->changes)
		return 0;
	return gnv_fail(-ESTALE, "namespace %u was formatted, deleted or detached while it was used. Begin again", ns->info.nsid);
}

int gnv_internal_begin(struct gpunvme_dev *dev, const struct gnv_internal_ns *ns, bool write, struct gnv_internal *q)
{
	struct gnv_dev_internal *in = &dev->internal;
	int ret;

	if (gnv_foreign(dev->process))
		return -ECHILD;
	if (write && ns->info.read_only)
		return gnv_fail(-EROFS, "namespace %u cannot be written: it is write protected, or the device was opened read-only",
				ns->info.nsid);
	pthread_mutex_lock(&in->lock);
	ret = check_current(in, ns);
	if (ret) {
		pthread_mutex_unlock(&in->lock);
		return ret;
	}
	ret = make(dev);
	if (ret) {
		const struct gnv_message cause = gnv_message();

		drop(dev);
		pthread_mutex_unlock(&in->lock);
		return gnv_fail_again(ret, &cause);
	}
	*q = (struct gnv_internal){ .gpu = in->gpu, .dbuf = in->dbuf, .buf = gpunvme_mem_ptr(in->mem) };
	pthread_mutex_lock(&dev->lock);
	gnv_qp_describe(in->qp, &ns->info, &q->dq);
	pthread_mutex_unlock(&dev->lock);
	q->dq.flags |= write ? GPUNVME_DQ_WRITE : 0;
	return 0;
}

void gnv_internal_end(struct gpunvme_dev *dev)
{
	const struct gnv_message cause = gnv_message();

	if (has_ended(dev)) {
		drop(dev);
		gnv_fail_again(0, &cause); /* report the cause of its end */
	}
	pthread_mutex_unlock(&dev->internal.lock);
}

bool gnv_internal_yield(struct gpunvme_dev *dev, const struct gnv_qp *but)
{
	struct gnv_dev_internal *in = &dev->internal;
	struct gnv_qp *qp;
	bool gone = false;

	if (pthread_mutex_trylock(&in->lock))
		return false;
	qp = in->qp;
	if (qp && qp != but) {
		in->qp = NULL;
		gnv_qp_drop_old(dev, qp);
		gone = !gnv_qp_undo(qp);
	}
	pthread_mutex_unlock(&in->lock);
	return gone;
}

void gnv_internal_close(struct gpunvme_dev *dev)
{
	pthread_mutex_lock(&dev->internal.lock);
	drop(dev);
	pthread_mutex_unlock(&dev->internal.lock);
}
