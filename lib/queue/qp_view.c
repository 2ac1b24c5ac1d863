/* SPDX-License-Identifier: MIT */
/*
 * Views of a queue pair for kernels, its counters, and the stop word.
 * Invariant: a view never reaches outside its namespace, and may write only where the namespace and the device may be written.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "dma/mapping.h"
#include "queue/qp.h"
#include "util/bits.h"
#include "util/checked.h"

#define MAX_BLOCKS 65536u /* of one command: NLB has 16 bits */

/* Is every multiple of the boundary a border, across which nothing is written whole? */
static bool has_borders(uint32_t boundary, uint32_t border, uint32_t first)
{
	return border && !(boundary % border) && !(first % border);
}

static bool is_torn(const struct gpunvme_ns_info *ns)
{
	return has_borders(ns->boundary, ns->atomic_seen_border, ns->atomic_first) &&
	       has_borders(ns->boundary, ns->atomic_border, ns->atomic_first);
}

/* As in struct gpunvme_dq. Threads have no time for a boundary that is no power of two, nor for one smaller than a page. */
static uint32_t boundary_of(const struct gnv_qp *qp, const struct gpunvme_ns_info *ns)
{
	bool useful = gnv_is_pow2(ns->boundary) && (uint64_t)ns->boundary * ns->lba_size >= qp->dev->nvme.ctrl.page_size;

	return useful ? -ns->boundary : 0;
}

static uint32_t dq_flags(const struct gnv_qp *qp)
{
	uint32_t flags = 0;

	if (qp->flags & GPUNVME_QUEUE_SGL || qp->dev->nvme.lists.form == GNV_LISTS_SGL)
		flags |= GPUNVME_DQ_SGL;
	if (qp->flags & GPUNVME_QUEUE_STATS)
		flags |= GPUNVME_DQ_STATS;
	if (qp->flags & GPUNVME_QUEUE_LATENCY)
		flags |= GPUNVME_DQ_LATENCY;
	if (qp->flags & GPUNVME_QUEUE_POLLED)
		flags |= GPUNVME_DQ_POLLED;
	if (qp->flags & GPUNVME_QUEUE_CQE16)
		flags |= GPUNVME_DQ_CQE16;
	/* Below a switch a doorbell may overtake an SQE on its way to the host's memory. Reading the SQE back pushes it ahead. */
	if (qp->dev->nvme.port->remote && !qp->local && !qp->bells.cpu && qp->gpu->info.kind != GPUNVME_GPU_CPU &&
	    !(qp->flags & GPUNVME_QUEUE_NO_READBACK))
		flags |= GPUNVME_DQ_READBACK_SQE;
	return flags;
}

/* Write Zeroes, and of how many blocks: a power of two, as the limit is one of bytes. MDTS is none of its limits. */
static uint32_t zeroes_flags(const struct gpunvme_dev *dev, uint32_t lba_size)
{
	const uint32_t most = dev->nvme.limits.zeroes ? (uint32_t)gnv_min(MAX_BLOCKS, dev->nvme.limits.zeroes / lba_size) : MAX_BLOCKS;

	if (!most || !(dev->nvme.info.oncs & GPUNVME_ONCS_WRITE_ZEROES))
		return 0;
	return GPUNVME_DQ_WRITE_ZEROES | (gnv_log2(MAX_BLOCKS) - gnv_log2(most)) << GPUNVME_DQ_ZEROES_SHIFT;
}

static uint32_t max_blocks(const struct gpunvme_dev *dev, uint32_t lba_size)
{
	const size_t span = gnv_prp_span(dev->nvme.lists.form, dev->nvme.ctrl.page_size);
	uint32_t max = dev->nvme.info.max_transfer;

	if (span && (!max || span < max))
		max = (uint32_t)span;
	return max ? (uint32_t)gnv_min(MAX_BLOCKS, max / lba_size) : MAX_BLOCKS;
}

/*
 * Lists carry page/16 pages from any place of a page, and one more where the buffer is aligned. With that page, the next part of a
 * long write would begin in the middle of what the drive prefers to write at once (NPWG). All other limits are powers of two.
 */
static uint32_t whole_steps(const struct gpunvme_ns_info *ns, const struct gpunvme_dq *dq)
{
	const uint64_t listed = 1ull << (2 * dq->page_shift - 4) >> dq->lba_shift;

	return ns->write_step && !(dq->flags & GPUNVME_DQ_SGL) ? (uint32_t)gnv_min(dq->max_blocks, listed) : dq->max_blocks;
}

void gnv_qp_describe(const struct gnv_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_dq *dq)
{
	memset(dq, 0, sizeof(*dq));
	dq->head = (struct gpunvme_head)GPUNVME_HEAD(GPUNVME_KIND_QUEUE, *dq);
	dq->flags = dq_flags(qp) | zeroes_flags(qp->dev, ns->lba_size);
	dq->tag = qp->tag;
	dq->qid = qp->qid;
	dq->nsid = ns->nsid;
	dq->lba_shift = (uint8_t)gnv_log2(ns->lba_size);
	dq->page_shift = (uint8_t)gnv_log2(qp->dev->nvme.ctrl.page_size);
	dq->sq_shift = (uint8_t)gnv_log2(qp->depth);
	dq->cq_shift = (uint8_t)gnv_log2(qp->cq_depth);
	dq->sq = qp->sq.lane;
	dq->cq = qp->cq.lane;
	dq->sq_db = qp->sq_db;
	dq->cq_db = qp->cq_db;
	gnv_qp_point(qp->state.lane, &qp->layout, dq);
	dq->stop = qp->control.lane;
	dq->cmd_timeout = qp->cmd_timeout;
	dq->lba_count = ns->nblocks;
	dq->cids = qp->cids;
	dq->cid_gens = qp->cid_gens;
	dq->max_blocks = max_blocks(qp->dev, ns->lba_size);
	dq->max_blocks = whole_steps(ns, dq);
	dq->ticks_per_ms = gnv_gpu_ticks_per_ms(qp->gpu);
	dq->deallocate = qp->dev->nvme.limits.deallocate;
	dq->device = qp->dev->number;
	dq->boundary = boundary_of(qp, ns);
	dq->atomic = (uint32_t)gnv_min(dq->max_blocks, gnv_max(ns->atomic, ns->atomic_power));
	if (dq->boundary && is_torn(ns))
		dq->flags |= GPUNVME_DQ_TORN;
}

uint32_t gnv_qp_tag(const struct gnv_qp *qp)
{
	uint32_t tag;

	if (!qp)
		return 0;
	pthread_mutex_lock(&qp->dev->lock);
	tag = qp->tag;
	pthread_mutex_unlock(&qp->dev->lock);
	return tag;
}

/* The queue may be recovered meanwhile. */
static int check_alive(struct gnv_qp *qp)
{
	uint32_t qid, poison;
	bool zombie;
	int ret;

	pthread_mutex_lock(&qp->dev->lock);
	qid = qp->qid;
	zombie = qp->zombie;
	poison = gnv_qp_poisoned(qp);
	pthread_mutex_unlock(&qp->dev->lock);
	if (zombie)
		return gnv_fail(-ESHUTDOWN, "queue %u is being destroyed. Call gpunvme_queue_destroy() again", qid);
	if (!poison)
		return 0;
	ret = gnv_ctrl_check(&qp->dev->nvme.ctrl);
	if (ret)
		return ret == -ENODEV ? ret : -ESHUTDOWN; /* what else it died of may pass by a recovery */
	return gnv_fail(-ESHUTDOWN, "queue %u is poisoned by an earlier failure. Call gpunvme_queue_recover()", qid);
}

static int check_window(const struct gpunvme_ns_info *ns, struct gpunvme_view *view)
{
	if (!view->nblocks && view->lba < ns->nblocks)
		view->nblocks = ns->nblocks - view->lba;
	if (!view->nblocks || !gnv_within(view->lba, view->nblocks, ns->nblocks))
		return gnv_fail(-ERANGE, "blocks %llu to +%llu are not within namespace %u of %llu blocks",
				(unsigned long long)view->lba, (unsigned long long)view->nblocks, ns->nsid,
				(unsigned long long)ns->nblocks);
	return 0;
}

static int check_view(const struct gnv_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_view *view)
{
	const uint32_t unknown = view->flags & ~(uint32_t)(GPUNVME_VIEW_WRITE | GPUNVME_VIEW_FENCED);

	if (unknown)
		return gnv_fail(-EINVAL, "unknown view flags 0x%x. Valid are GPUNVME_VIEW_WRITE, _FENCED", unknown);
	if (view->flags & GPUNVME_VIEW_WRITE && ns->read_only)
		return gnv_fail(-EROFS, "namespace %u cannot be written: it is write protected, or the device was opened read-only",
				ns->nsid);
	if (!max_blocks(qp->dev, ns->lba_size))
		return gnv_fail(-EOPNOTSUPP, "the controller transfers at most %u bytes, less than a block of namespace %u",
				qp->dev->nvme.info.max_transfer, ns->nsid);
	return check_window(ns, view);
}

/* Memory that its GPU caches is for reading, unless the caller takes care. With dev->lock held. */
static int allow_writing(struct gnv_qp *qp, uint32_t flags)
{
	if (!(flags & GPUNVME_VIEW_WRITE) || flags & GPUNVME_VIEW_FENCED)
		return 0;
	if (gnv_mapping_cached(qp->dev, qp->gpu))
		return gnv_fail(-EOPNOTSUPP,
				"memory that %s may cache is mapped to the device, so the drive could get old bytes. Use memory "
				"of gpunvme_mem_alloc(), or add GPUNVME_VIEW_FENCED and call gpunvme_gpu_fence() between kernels "
				"that store data and kernels that write it",
				qp->gpu->info.name);
	qp->unfenced = true;
	return 0;
}

int gnv_qp_view(struct gnv_qp *qp, const struct gpunvme_view *user, struct gpunvme_dq *dq)
{
	struct gpunvme_view view = user ? *user : (struct gpunvme_view)GPUNVME_VIEW_INIT;
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	int ret = check_alive(qp);

	if (ret)
		return ret;
	ret = gpunvme_ns_get_info(qp->dev, view.nsid, &ns);
	if (ret)
		return ret;
	ret = check_view(qp, &ns, &view);
	if (ret)
		return ret;
	pthread_mutex_lock(&qp->dev->lock);
	ret = allow_writing(qp, view.flags);
	if (!ret)
		gnv_qp_describe(qp, &ns, dq);
	pthread_mutex_unlock(&qp->dev->lock);
	if (ret)
		return ret;
	dq->lba_first = view.lba;
	dq->lba_count = view.nblocks;
	if (view.flags & GPUNVME_VIEW_WRITE)
		dq->flags |= GPUNVME_DQ_WRITE;
	return 0;
}

/* Longer than a thread may believe a copy of the word (dq.h, GPUNVME_CONTROL_SAID_SHIFT). */
static const struct timespec forgotten = { 0, 1000000 };

void gnv_qp_stop(struct gnv_qp *const *qp, uint32_t count, bool stop)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (!qp[i])
			continue;
		pthread_mutex_lock(&qp[i]->dev->lock);
		gnv_qp_command(qp[i], stop);
		pthread_mutex_unlock(&qp[i]->dev->lock);
	}
	if (!stop)
		nanosleep(&forgotten, NULL);
}

static void add_counters(const struct gnv_qp *qp, struct gpunvme_queue_info *info)
{
	struct gpunvme_dq_state state;

	gnv_qp_state_read(qp, &state);
	info->submitted += state.pub - qp->before.pub;
	info->doorbells += state.doorbells - qp->before.doorbells;
	info->drains += state.drains - qp->before.drains;
	info->completions += state.completions - qp->before.completions;
	info->errors += state.errors - qp->before.errors;
}

void gnv_qp_add_info(const struct gnv_qp *qp, struct gpunvme_queue_info *info)
{
	uint32_t poison;

	pthread_mutex_lock(&qp->dev->lock);
	add_counters(qp, info);
	if (!info->qid) {
		info->qid = qp->qid;
		info->depth = qp->depth;
		info->cq_depth = qp->cq_depth;
		gnv_qp_placement(qp, info->placement, sizeof(info->placement));
	}
	poison = gnv_qp_poisoned(qp);
	info->poison = info->poison ? info->poison : poison;
	info->ended += poison != 0;
	info->cids += qp->cids;
	info->in_flight += gnv_qp_in_flight(qp);
	info->recoveries += qp->recoveries;
	pthread_mutex_unlock(&qp->dev->lock);
}
