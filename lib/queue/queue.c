/* SPDX-License-Identifier: MIT */
/* The life of a queue: pairs of one device, or of several whose blocks are striped. Views for kernels: queue_view.c. */
#include "queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "run/completions.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define QUEUES_AUTO 8u
#define STRIPE_BYTES (128u << 10)

/* ---- Blocks ---- */

/* Of one device. */
static int ask(const struct gpunvme_queue *queue, uint32_t m, struct gnv_blocks *blocks)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	int ret = gpunvme_ns_get_info(queue->dev[m], 0, &ns);

	if (ret)
		return ret;
	blocks->lba_size = ns.lba_size;
	blocks->stripe = queue->stripe ? queue->stripe : STRIPE_BYTES > ns.lba_size ? STRIPE_BYTES / ns.lba_size : 1;
	blocks->nblocks = ns.nblocks;
	blocks->read_only = ns.read_only;
	return 0;
}

int gnv_queue_blocks(const struct gpunvme_queue *queue, struct gnv_blocks *blocks)
{
	if (queue->devices == 1)
		return ask(queue, 0, blocks);
	*blocks = queue->striped;
	return 0;
}

/* Whole stripes of the smallest device, as many from each. As of a namespace, all users count its bytes in 64 bits. */
static int add_up(struct gnv_blocks *all, uint64_t least, uint32_t devices)
{
	uint64_t bytes;

	if (least < all->stripe)
		return gnv_fail(-ERANGE, "the smallest namespace has %llu blocks, less than a stripe of %u. Use a smaller stripe",
				(unsigned long long)least, all->stripe);
	if (gnv_mul_overflow(least / all->stripe * all->stripe, (uint64_t)devices, &all->nblocks) ||
	    gnv_mul_overflow(all->nblocks, (uint64_t)all->lba_size, &bytes))
		return gnv_fail(-ERANGE, "the volume would have more bytes than 64 bits count. Use fewer controllers");
	return 0;
}

static int measure(struct gpunvme_queue *queue)
{
	struct gnv_blocks *all = &queue->striped, one;
	uint64_t least = UINT64_MAX;
	uint32_t m;
	int ret;

	for (m = 0; m < queue->devices; m++) {
		ret = ask(queue, m, &one);
		if (ret)
			return ret;
		if (m && one.lba_size != all->lba_size)
			return gnv_fail(
				-EINVAL,
				"controller %u of the volume has blocks of %u bytes, the first one of %u. Format them alike", m,
				one.lba_size, all->lba_size);
		one.read_only |= all->read_only;
		*all = one;
		least = gnv_min(least, one.nblocks);
	}
	return add_up(all, least, queue->devices);
}

/* ---- Creation ---- */

static int check_devices(const struct gpunvme_queue *queue)
{
	uint32_t m, k;

	for (m = 0; m < queue->devices; m++) {
		if (!queue->dev[m])
			return gnv_fail(-EINVAL, "gpunvme_queue_create_striped: controller %u is NULL", m);
		if (gnv_foreign(queue->dev[m]->process))
			return -ECHILD;
		for (k = 0; k < m; k++)
			if (queue->dev[m] == queue->dev[k])
				return gnv_fail(-EINVAL, "controllers %u and %u of the volume are the same. Name each once", k, m);
	}
	return 0;
}

static int create_pair(struct gpunvme_queue *queue, uint32_t i, const struct gpunvme_queue_opts *opts)
{
	struct gpunvme_dev *dev = queue->dev[i % queue->devices];
	int ret = gnv_qp_create(dev, queue->gpu, opts, &queue->qp[i]);

	if (ret)
		return ret;
	pthread_mutex_lock(&dev->queues_lock); /* of the watchdog */
	queue->qp[i]->owner = queue;
	pthread_mutex_unlock(&dev->queues_lock);
	return 0;
}

/* Create a pair of each device, or none: an incomplete row is of no use. */
static int create_row(struct gpunvme_queue *queue, const struct gpunvme_queue_opts *opts)
{
	const uint32_t first = gnv_queue_pairs(queue);
	uint32_t m;
	int ret = 0;

	for (m = 0; m < queue->devices && !ret; m++)
		ret = create_pair(queue, first + m, opts);
	if (!ret) {
		queue->queues++;
		return 0;
	}
	while (m--) {
		gnv_qp_discard(queue->qp[first + m]);
		queue->qp[first + m] = NULL;
	}
	return ret;
}

/* @most: fewer will do, where a device has no more. */
static int create_pairs(struct gpunvme_queue *queue, const struct gpunvme_queue_opts *opts, uint32_t wanted, bool most)
{
	int ret = 0;

	queue->qp = calloc((size_t)wanted * queue->devices, sizeof(struct gnv_qp *));
	if (!queue->qp)
		return gnv_fail(-ENOMEM, "out of memory");
	while (queue->queues < wanted && !ret)
		ret = create_row(queue, opts);
	if (ret == -ENOSPC && wanted > 1 && !most)
		return gnv_fail(ret, "room for %u of %u pairs on each device: lower gpunvme_queue_opts.queues, or destroy others",
				queue->queues, wanted);
	return ret == -ENOSPC && most && queue->queues ? 0 : ret;
}

/* Of a queue that is not given out. */
static void discard_pairs(struct gpunvme_queue *queue)
{
	uint32_t i = gnv_queue_pairs(queue);

	while (i--)
		gnv_qp_discard(queue->qp[i]);
}

static void drop(struct gpunvme_queue *queue)
{
	gnv_completions_free(queue->completions);
	gnv_tables_fini(&queue->tables);
	gnv_gpu_put(queue->gpu);
	free(queue->qp);
	free(queue);
}

/* ---- The completion thread ---- */

/* Of the rings alone: no block of them is read or written. */
static uint32_t rings(void *ctx, struct gpunvme_dq *dq)
{
	const struct gpunvme_ns_info none = { .size = sizeof(none), .lba_size = 512 };
	const struct gpunvme_queue *queue = ctx;
	struct gnv_qp *qp;
	uint32_t i, n = 0;

	for (i = 0; i < gnv_queue_pairs(queue); i++) {
		qp = queue->qp[i];
		pthread_mutex_lock(&qp->dev->lock);
		gnv_qp_describe(qp, &none, &dq[n++]);
		pthread_mutex_unlock(&qp->dev->lock);
	}
	return n;
}

void gnv_queue_renewed(struct gpunvme_queue *queue)
{
	gnv_completions_renew(__atomic_load_n(&queue->completions, __ATOMIC_ACQUIRE));
}

void gnv_queue_quiet(struct gpunvme_queue *queue)
{
	gnv_completions_end(queue->completions);
}

/* ---- All of it ---- */

static int check_opts(const struct gpunvme_queue_opts *opts, const struct gpunvme_gpu *gpu)
{
	if (opts->flags & GPUNVME_QUEUE_COMPLETION_THREAD && gpu->info.kind != GPUNVME_GPU_CPU)
		return gnv_fail(-EOPNOTSUPP, "a completion thread is for threads of the CPU. On %s use GPUNVME_QUEUE_POLLED, and call "
				"gpunvme_poll_queue() in a kernel", gpu->info.name);
	if (opts->stripe && !gnv_is_pow2(opts->stripe))
		return gnv_fail(-EINVAL, "a stripe of %u blocks is not possible: use a power of two", opts->stripe);
	if (opts->reserved)
		return gnv_fail(-EINVAL, "gpunvme_queue_opts.reserved must be 0");
	if (opts->queues > UINT16_MAX)
		return gnv_fail(-EINVAL, "%u queues for each controller are not possible: use 65535 or less", opts->queues);
	return 0;
}

static uint32_t local_pairs(const struct gpunvme_queue *queue)
{
	uint32_t i, n = 0;

	for (i = 0; i < gnv_queue_pairs(queue); i++)
		n += queue->qp[i]->local;
	return n;
}

/*
 * All pairs of a volume, in one place: no memory would suit those of several. Without a flag one device may have them in memory of
 * the GPU, and another in that of the host.
 */
static int create_alike(struct gpunvme_queue *queue, const struct gpunvme_queue_opts *opts, bool striped)
{
	const uint32_t wanted = opts->queues ? opts->queues : striped ? QUEUES_AUTO : 1;
	struct gpunvme_queue_opts in_host = *opts;
	int ret = create_pairs(queue, opts, wanted, striped && !opts->queues);

	if (ret || !local_pairs(queue) || local_pairs(queue) == gnv_queue_pairs(queue))
		return ret;
	discard_pairs(queue);
	free(queue->qp);
	queue->qp = NULL;
	queue->queues = 0;
	in_host.flags |= GPUNVME_QUEUE_HOST;
	return create_pairs(queue, &in_host, wanted, striped && !opts->queues);
}

/* Where data is to lie. A recovery changes none of it. */
static void note_place(struct gpunvme_queue *queue)
{
	uint32_t i;

	queue->local = local_pairs(queue);
	for (i = 0; i < queue->devices; i++)
		queue->by_fd |= queue->dev[i]->nvme.port->space->by_fd;
}

static int make(struct gpunvme_queue *queue, const struct gpunvme_queue_opts *opts, bool striped)
{
	int ret = check_devices(queue);

	if (ret)
		return ret;
	if (queue->devices > 1) {
		ret = measure(queue);
		if (ret)
			return ret;
	}
	ret = create_alike(queue, opts, striped);
	if (ret)
		return ret;
	note_place(queue);
	if (!(opts->flags & GPUNVME_QUEUE_COMPLETION_THREAD))
		return 0;
	return gnv_completions_start(gnv_queue_pairs(queue), rings, queue, &queue->completions);
}

static int create(struct gpunvme_dev *const *devs, uint32_t count, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *user,
		  bool striped, struct gpunvme_queue **out)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue *queue;
	struct gnv_message cause;
	int ret = gnv_opts_copy(&opts, user, gpunvme_queue_opts);

	if (ret)
		return ret;
	ret = check_opts(&opts, gpu);
	if (ret)
		return ret;
	if (opts.flags & GPUNVME_QUEUE_COMPLETION_THREAD)
		opts.flags |= GPUNVME_QUEUE_POLLED;
	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return gnv_fail(-ENOMEM, "out of memory");
	queue->gpu = gnv_gpu_get(gpu);
	gnv_tables_init(&queue->tables, gpu);
	queue->devices = count;
	queue->stripe = opts.stripe;
	memcpy(queue->dev, devs, count * sizeof(struct gpunvme_dev *));
	ret = make(queue, &opts, striped);
	if (!ret) {
		queue->left = gnv_queue_pairs(queue);
		*out = queue;
		return 0;
	}
	cause = gnv_message();
	discard_pairs(queue);
	drop(queue);
	return gnv_fail_again(ret, &cause);
}

GPUNVME_API int gpunvme_queue_create(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *opts,
				     struct gpunvme_queue **queue)
{
	int ret = gnv_enter(gpu, dev && gpu && queue, "dev, gpu and queue");

	return ret ? ret : create(&dev, 1, gpu, opts, false, queue);
}

GPUNVME_API int gpunvme_queue_create_striped(struct gpunvme_dev *const *devs, uint32_t count, struct gpunvme_gpu *gpu,
					     const struct gpunvme_queue_opts *opts, struct gpunvme_queue **queue)
{
	int ret = gnv_enter(gpu, devs && gpu && queue, "devs, gpu and queue");

	if (ret)
		return ret;
	if (!count || count > GPUNVME_QUEUE_DEVICES)
		return gnv_fail(-EINVAL, "a volume of %u controllers is not possible: use 1 to %u", count, GPUNVME_QUEUE_DEVICES);
	return create(devs, count, gpu, opts, true, queue);
}

/* ---- Its end ---- */

static uint32_t leave(struct gpunvme_queue *queue)
{
	return __atomic_sub_fetch(&queue->left, 1, __ATOMIC_ACQ_REL);
}

/* Threads that close its other devices may be here, too. */
void gnv_queue_lose(struct gpunvme_queue *queue, const struct gnv_qp *qp)
{
	uint32_t i = 0;

	while (__atomic_load_n(&queue->qp[i], __ATOMIC_RELAXED) != qp)
		i++;
	__atomic_store_n(&queue->qp[i], NULL, __ATOMIC_RELAXED);
	if (!leave(queue) && qp->dev->closing)
		drop(queue);
}

GPUNVME_API int gpunvme_queue_destroy(struct gpunvme_queue *queue)
{
	struct gnv_message cause = { .text = "" };
	uint32_t i;
	int ret = 0, kept;

	if (!queue)
		return 0;
	if (gnv_foreign(queue->gpu->process))
		return -ECHILD;
	gnv_queue_quiet(queue);
	__atomic_fetch_add(&queue->left, 1, __ATOMIC_RELAXED);
	for (i = gnv_queue_pairs(queue); i--;) {
		kept = queue->qp[i] ? gnv_qp_destroy(queue->qp[i]) : 0;
		if (kept && !ret)
			cause = gnv_message();
		ret = ret ? ret : kept;
	}
	if (!leave(queue))
		drop(queue);
	return ret ? gnv_fail_again(ret, &cause) : 0;
}
