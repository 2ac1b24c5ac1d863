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

static void close_lane(struct gnv_ublk_lane *l, uint32_t depth)
{
	uint32_t i;

	for (i = 0; l->tag && i < depth; i++)
		gpunvme_mem_free(l->tag[i].mem);
	free(l->own);
	free(l->tag);
	l->own = NULL;
	l->tag = NULL;
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

int gnv_ublk_open_lane(struct gpunvme_ublk *u, struct gnv_ublk_lane *l)
{
	uint32_t i;
	int ret;

	l->tag = calloc(u->info.depth, sizeof(*l->tag));
	l->own = calloc(u->info.depth, sizeof(struct gnv_ublk_tag *));
	if (!l->tag || !l->own)
		return gnv_fail(-ENOMEM, "out of memory");
	for (i = 0; i < u->info.depth; i++) {
		ret = open_tag(u, l->qp, &l->tag[i]);
		if (ret)
			return ret;
	}
	ret = gnv_ublk_map(u->fd, l->number, u->info.depth, &l->desc);
	return ret ? gnv_fail(ret, "the requests of queue %u cannot be mapped: %s", l->number, strerror(-ret)) : 0;
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
	struct gnv_ublk_lane *l;
	int ret = 0;

	u->lane = calloc(count, sizeof(*u->lane));
	if (!u->lane)
		return gnv_fail(-ENOMEM, "out of memory");
	for (u->lanes = 0; u->lanes < count && !ret; u->lanes += !ret) {
		l = &u->lane[u->lanes];
		l->ublk = u;
		l->number = u->lanes;
		l->state = GNV_UBLK_STARTING;
		ret = gpunvme_queue_create(u->dev, u->gpu, &opts, &l->qp);
		if (!ret)
			ret = gpunvme_queue_view(l->qp, &view, &l->dq);
		if (ret)
			gpunvme_queue_destroy(l->qp);
	}
	return ret == -ENOSPC && !wanted && u->lanes ? 0 : ret;
}

int gnv_ublk_end_queues(struct gpunvme_ublk *u)
{
	struct gnv_ublk_lane *l;
	int ret = 0, kept;

	for (l = u->lane; l < u->lane + u->lanes; l++) {
		kept = gpunvme_queue_destroy(l->qp);
		if (!kept)
			l->qp = NULL;
		ret = ret ? ret : kept;
	}
	for (l = u->lane; l < u->lane + u->lanes; l++)
		close_lane(l, u->info.depth); /* of a controller that may still write there they go with the device */
	return ret;
}

/* ---- Threads ---- */

int gnv_ublk_start_lanes(struct gpunvme_ublk *u)
{
	struct gnv_deadline deadline = gnv_deadline_in(BEGIN_MS);
	struct gnv_ublk_lane *l;
	int ret = 0, state;

	for (l = u->lane; l < u->lane + u->lanes && !ret; l++) {
		ret = gnv_thread_start(&l->thread, gnv_ublk_lane_run, l);
		l->started = !ret;
	}
	if (ret)
		return gnv_fail(ret, "no thread for a queue of the block device. Raise the limit of threads (ulimit -u)");
	for (l = u->lane; l < u->lane + u->lanes; l++) {
		do
			state = __atomic_load_n(&l->state, __ATOMIC_ACQUIRE);
		while (state == GNV_UBLK_STARTING && gnv_deadline_poll_again(&deadline));
		if (state)
			return gnv_fail(state < 0 ? state : -ETIMEDOUT, "queue %u of the block device did not start: %s", l->number,
					state < 0 ? strerror(-state) : "its thread did not start");
	}
	return 0;
}

void gnv_ublk_join_lanes(struct gpunvme_ublk *u)
{
	struct gnv_ublk_lane *l;

	__atomic_store_n(&u->leave, 1, __ATOMIC_RELEASE);
	for (l = u->lane; l < u->lane + u->lanes; l++) {
		if (l->started)
			pthread_join(l->thread, NULL);
		l->started = false;
		if (l->desc)
			gnv_ublk_unmap(l->desc, u->info.depth);
		l->desc = NULL;
	}
	if (u->fd >= 0)
		gnv_ublk_close(u->fd);
	u->fd = -1;
}
