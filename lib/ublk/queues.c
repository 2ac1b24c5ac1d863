/* SPDX-License-Identifier: MIT */
/* Queues of a block device: queue pairs, buffers and threads. */
#include <gpunvme/serve.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mem/mem.h"
#include "ublk/ublk.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define QUEUES 4u
#define BEGIN_MS 30000 /* for threads to start */

/* ---- Queues ---- */

static void close_worker(struct gnv_ublk_worker *w, uint32_t depth)
{
	uint32_t i;

	for (i = 0; w->tag && i < depth; i++)
		gpunvme_mem_free(w->tag[i].mem);
	free(w->own);
	free(w->tag);
	w->own = NULL;
	w->tag = NULL;
}

static int open_tag(struct gpunvme_ublk *u, struct gpunvme_queue *qp, struct gnv_ublk_tag *t)
{
	int ret = gpunvme_mem_alloc(u->gpu, qp, u->info.max_bytes, NULL, &t->mem);

	if (ret)
		return ret;
	t->mem->ours = true;
	ret = gpunvme_mem_map(t->mem, u->dev);
	if (ret)
		return ret;
	return gpunvme_mem_dbuf(t->mem, u->dev, &t->dbuf);
}

int gnv_ublk_open_worker(struct gpunvme_ublk *u, struct gnv_ublk_worker *w)
{
	uint32_t i;
	int ret;

	w->tag = calloc(u->info.depth, sizeof(*w->tag));
	w->own = calloc(u->info.depth, sizeof(struct gnv_ublk_tag *));
	if (!w->tag || !w->own)
		return gnv_fail(-ENOMEM, "out of memory");
	for (i = 0; i < u->info.depth; i++) {
		ret = open_tag(u, w->qp, &w->tag[i]);
		if (ret)
			return ret;
	}
	ret = gnv_ublk_map(u->fd, w->number, u->info.depth, &w->desc);
	return ret ? gnv_fail(ret, "the requests of queue %u cannot be mapped: %s", w->number, strerror(-ret)) : 0;
}

/* Of an SQ with room for them all: a ring of n holds n - 1. */
static uint32_t sq_depth(uint32_t requests)
{
	uint32_t depth = 2;

	while (depth <= requests)
		depth *= 2;
	return depth;
}

int gnv_ublk_make_queues(struct gpunvme_ublk *u, uint32_t wanted, uint32_t timeout_ms)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, sq_depth(u->info.depth), timeout_ms, 0, 0, 0 };
	const struct gpunvme_view view = { sizeof(view), u->read_only ? 0 : GPUNVME_VIEW_WRITE, u->ns.nsid, 0, 0 };
	uint32_t count = wanted ? wanted : QUEUES;
	struct gnv_ublk_worker *w;
	int ret = 0;

	u->worker = calloc(count, sizeof(*u->worker));
	if (!u->worker)
		return gnv_fail(-ENOMEM, "out of memory");
	for (u->workers = 0; u->workers < count && !ret; u->workers += !ret) {
		w = &u->worker[u->workers];
		w->ublk = u;
		w->number = u->workers;
		w->state = GNV_UBLK_STARTING;
		ret = gpunvme_queue_create(u->dev, u->gpu, &opts, &w->qp);
		if (!ret)
			ret = gpunvme_queue_view(w->qp, &view, &w->dq);
		if (ret)
			gpunvme_queue_destroy(w->qp);
	}
	return ret == -ENOSPC && !wanted && u->workers ? 0 : ret;
}

int gnv_ublk_end_queues(struct gpunvme_ublk *u)
{
	struct gnv_ublk_worker *w;
	int ret = 0, kept;

	for (w = u->worker; w < u->worker + u->workers; w++) {
		kept = gpunvme_queue_destroy(w->qp);
		if (!kept)
			w->qp = NULL;
		ret = ret ? ret : kept;
	}
	for (w = u->worker; w < u->worker + u->workers; w++)
		close_worker(w, u->info.depth); /* of a controller that may still write there they go with the device */
	return ret;
}

/* ---- Threads ---- */

int gnv_ublk_start_workers(struct gpunvme_ublk *u)
{
	struct gnv_deadline deadline = gnv_deadline_in(BEGIN_MS);
	struct gnv_ublk_worker *w;
	int ret = 0, state;

	for (w = u->worker; w < u->worker + u->workers && !ret; w++) {
		ret = gnv_thread_start(&w->thread, gnv_ublk_worker_run, w);
		w->started = !ret;
	}
	if (ret)
		return gnv_fail(ret, "no thread for a queue of the block device. Raise the limit of threads (ulimit -u)");
	for (w = u->worker; w < u->worker + u->workers; w++) {
		do
			state = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE);
		while (state == GNV_UBLK_STARTING && gnv_deadline_poll_again(&deadline));
		if (state)
			return gnv_fail(state < 0 ? state : -ETIMEDOUT, "queue %u of the block device did not start: %s", w->number,
					state < 0 ? strerror(-state) : "its thread did not start");
	}
	return 0;
}

void gnv_ublk_join_workers(struct gpunvme_ublk *u)
{
	struct gnv_ublk_worker *w;

	__atomic_store_n(&u->leave, 1, __ATOMIC_RELEASE);
	for (w = u->worker; w < u->worker + u->workers; w++) {
		if (w->started)
			pthread_join(w->thread, NULL);
		w->started = false;
		if (w->desc)
			gnv_ublk_unmap(w->desc, u->info.depth);
		w->desc = NULL;
	}
	if (u->fd >= 0)
		gnv_ublk_close(u->fd);
	u->fd = -1;
}
