/* SPDX-License-Identifier: MIT */
/*
 * A queue as kernels see it: a view of its one pair, or of all pairs as one range of blocks.
 * Invariant: the tables that a view points to never change while they exist. Equal tables are one.
 */
#include <errno.h>
#include <stdlib.h>

#include "queue/queue.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"

static int check_window(const struct gnv_blocks *blocks, struct gpunvme_view *view)
{
	if (view->flags & GPUNVME_VIEW_WRITE && blocks->read_only)
		return gnv_fail(-EROFS, "the queue cannot be written: a namespace of it is write protected or opened read-only");
	if (!view->nblocks && view->lba < blocks->nblocks)
		view->nblocks = blocks->nblocks - view->lba;
	if (!view->nblocks || !gnv_within(view->lba, view->nblocks, blocks->nblocks))
		return gnv_fail(-ERANGE, "blocks %llu to +%llu are not within the %llu blocks of the queue",
				(unsigned long long)view->lba, (unsigned long long)view->nblocks, (unsigned long long)blocks->nblocks);
	return 0;
}

static int lost(void)
{
	return gnv_fail(-ESHUTDOWN, "the queue has lost a pair: a device of it was closed, or it is being destroyed. Call "
				    "gpunvme_queue_destroy()");
}

int gnv_queue_check(const struct gpunvme_queue *queue)
{
	uint32_t i;

	for (i = 0; i < gnv_queue_pairs(queue); i++)
		if (!queue->qp[i])
			return lost();
	return 0;
}

static int view_pair(struct gnv_qp *qp, const struct gpunvme_view *view, struct gpunvme_dq *dq)
{
	return qp ? gnv_qp_view(qp, view, dq) : lost();
}

/* Views of all pairs, in memory of the threads. */
static int place_views(struct gpunvme_queue *queue, const struct gpunvme_view *view, uint64_t *lane)
{
	const struct gpunvme_view whole = { sizeof(whole), view->flags, 0, 0, 0 };
	const uint32_t count = gnv_queue_pairs(queue);
	struct gpunvme_dq *dq = calloc(count, sizeof(*dq));
	uint32_t i;
	int ret = 0;

	if (!dq)
		return gnv_fail(-ENOMEM, "out of memory");
	for (i = 0; i < count && !ret; i++)
		ret = view_pair(queue->qp[i], &whole, &dq[i]);
	if (!ret)
		ret = gnv_tables_place(&queue->tables, GNV_TABLE_VIEWS, dq, count * sizeof(*dq), lane);
	free(dq);
	return ret;
}

static int view_all(struct gpunvme_queue *queue, struct gpunvme_view *view, struct gpunvme_dvol *dvol)
{
	struct gnv_blocks blocks;
	uint64_t table = 0;
	int ret;

	if (view->nsid)
		return gnv_fail(-EINVAL, "a struct gpunvme_dvol names no namespace: it has the default one of each device");
	ret = gnv_queue_blocks(queue, &blocks);
	if (ret)
		return ret;
	ret = check_window(&blocks, view);
	if (ret)
		return ret;
	ret = place_views(queue, view, &table);
	if (ret)
		return ret;
	*dvol = (struct gpunvme_dvol){
		.head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, *dvol),
		.flags = view->flags & GPUNVME_VIEW_WRITE ? GPUNVME_DQ_WRITE : 0,
		.members = queue->devices,
		.queues = queue->queues,
		.stripe_shift = gnv_log2(blocks.stripe),
		.lba_shift = gnv_log2(blocks.lba_size),
		.dq = table,
		.lba_first = view->lba,
		.lba_count = view->nblocks,
		.devices = gnv_dev_numbers(queue->dev, queue->devices),
	};
	return 0;
}

static int view_one(struct gpunvme_queue *queue, const struct gpunvme_view *view, struct gpunvme_dq *dq)
{
	if (gnv_queue_pairs(queue) != 1)
		return gnv_fail(-EINVAL, "a struct gpunvme_dq is the view of one queue pair, and this queue has %u: take the view as a struct "
				"gpunvme_dvol", gnv_queue_pairs(queue));
	return view_pair(queue->qp[0], view, dq);
}

GPUNVME_API int gpunvme_queue_view_v(struct gpunvme_queue *queue, const struct gpunvme_view *user, void *out, uint32_t kind,
				     uint32_t version, uint32_t size)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	int ret = gnv_enter(queue->gpu, queue && out, "queue and out");

	if (ret)
		return ret;
	if (kind != GPUNVME_KIND_QUEUE && kind != GPUNVME_KIND_VOLUME)
		return gnv_fail(-EINVAL, "a queue has no view of kind %u: use GPUNVME_KIND_QUEUE or _VOLUME", kind);
	ret = gnv_view_check(version, size, kind == GPUNVME_KIND_QUEUE ? sizeof(struct gpunvme_dq) : sizeof(struct gpunvme_dvol));
	if (ret)
		return ret;
	ret = gnv_opts_copy(&view, user, gpunvme_view);
	if (ret)
		return ret;
	return kind == GPUNVME_KIND_QUEUE ? view_one(queue, &view, out) : view_all(queue, &view, out);
}

/* Is it of views, one of a pair that is no more? */
static bool is_old(const void *ctx, const struct gnv_table *table)
{
	const struct gpunvme_queue *queue = ctx;
	const struct gpunvme_dq *dq = (const void *)table->content;
	uint32_t i;

	for (i = 0; table->kind == GNV_TABLE_VIEWS && i < gnv_queue_pairs(queue); i++)
		if (gnv_qp_tag(queue->qp[i]) != dq[i].tag)
			return true;
	return false;
}

void gnv_queue_drop_views(struct gpunvme_queue *queue)
{
	gnv_tables_drop(&queue->tables, is_old, queue);
}
