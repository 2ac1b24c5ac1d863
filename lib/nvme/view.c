/* SPDX-License-Identifier: MIT */
/*
 * What a queue pair tells: views for kernels, counters, the stop word.
 * Invariant: a view never reaches outside its namespace, and may write only where the namespace and the device may be written.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nvme/qp.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/opts.h"

#define MAX_BLOCKS 65536u /* of one command: NLB has 16 bits */

static uint32_t dq_flags(const struct gpunvme_qp *qp)
{
	uint32_t flags = 0;

	if (qp->flags & GPUNVME_QP_SGL)
		flags |= GPUNVME_DQ_SGL;
	if (qp->flags & GPUNVME_QP_STATS)
		flags |= GPUNVME_DQ_STATS;
	if (qp->dev->info.oncs & GPUNVME_ONCS_WRITE_ZEROES)
		flags |= GPUNVME_DQ_WRITE_ZEROES;
	return flags;
}

static uint32_t max_blocks(const struct gpunvme_dev *dev, uint32_t lba_size)
{
	uint32_t max = dev->info.max_transfer;

	return max ? (uint32_t)gnv_min(MAX_BLOCKS, max / lba_size) : MAX_BLOCKS;
}

void gnv_qp_describe(const struct gpunvme_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_dq *dq)
{
	const struct gnv_ctrl *ctrl = &qp->dev->ctrl;

	memset(dq, 0, sizeof(*dq));
	dq->magic = GPUNVME_DQ_MAGIC;
	dq->major = GPUNVME_DQ_MAJOR;
	dq->minor = GPUNVME_DQ_MINOR;
	dq->size = sizeof(*dq);
	dq->flags = dq_flags(qp);
	dq->tag = qp->tag;
	dq->qid = qp->qid;
	dq->nsid = ns->nsid;
	dq->lba_shift = (uint8_t)gnv_log2(ns->lba_size);
	dq->page_shift = (uint8_t)gnv_log2(ctrl->page_size);
	dq->sq_shift = (uint8_t)gnv_log2(qp->depth);
	dq->cq_shift = (uint8_t)gnv_log2(qp->cq_depth);
	dq->sq = qp->sq.lane;
	dq->cq = qp->cq.lane;
	dq->sq_db = ctrl->bar_lane + gnv_ctrl_sq_doorbell(ctrl, qp->qid);
	dq->cq_db = ctrl->bar_lane + gnv_ctrl_cq_doorbell(ctrl, qp->qid);
	dq->state = qp->state.lane;
	dq->ready = qp->state.lane + qp->layout.ready;
	dq->result = qp->state.lane + qp->layout.result;
	dq->cid_map = qp->state.lane + qp->layout.cid_map;
	dq->stop = qp->state.lane + qp->layout.stop;
	dq->cmd_timeout = qp->cmd_timeout;
	dq->lba_count = ns->nblocks;
	dq->cids = qp->cids;
	dq->max_blocks = max_blocks(qp->dev, ns->lba_size);
	dq->ticks_per_ms = gnv_gpu_ticks_per_ms(qp->gpu);
}

static const struct gpunvme_dq_state *state_of(const struct gpunvme_qp *qp)
{
	return qp->state.cpu;
}

static int check_window(const struct gpunvme_ns_info *ns, struct gpunvme_view *view)
{
	uint64_t end;

	if (!view->nblocks && view->lba < ns->nblocks)
		view->nblocks = ns->nblocks - view->lba;
	if (!view->nblocks || gnv_add_overflow(view->lba, view->nblocks, &end) || end > ns->nblocks)
		return gnv_fail(-ERANGE, "blocks %llu to +%llu are not within namespace %u of %llu blocks",
				(unsigned long long)view->lba, (unsigned long long)view->nblocks, ns->nsid,
				(unsigned long long)ns->nblocks);
	return 0;
}

static int check_view(const struct gpunvme_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_view *view)
{
	if (view->flags & ~(uint32_t)GPUNVME_VIEW_WRITE)
		return gnv_fail(-EINVAL, "unknown view flags 0x%x; valid: GPUNVME_VIEW_WRITE",
				view->flags & ~(uint32_t)GPUNVME_VIEW_WRITE);
	if (view->flags & GPUNVME_VIEW_WRITE && ns->read_only)
		return gnv_fail(-EROFS, "namespace %u cannot be written: it is write protected, or the device was opened read-only",
				ns->nsid);
	if (!max_blocks(qp->dev, ns->lba_size))
		return gnv_fail(-EOPNOTSUPP, "the controller transfers at most %u bytes, less than a block of namespace %u",
				qp->dev->info.max_transfer, ns->nsid);
	return check_window(ns, view);
}

GPUNVME_API int gpunvme_qp_view_v(struct gpunvme_qp *qp, const struct gpunvme_view *user, struct gpunvme_dq *dq, uint32_t version,
				  uint32_t size)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	int ret;

	if (!qp || !dq)
		return gnv_fail(-EINVAL, "gpunvme_qp_view: qp and dq must not be NULL");
	if (version >> 16 != GPUNVME_DQ_MAJOR || size != sizeof(*dq))
		return gnv_fail(-EPROTONOSUPPORT,
				"the caller was compiled with dq.h %u.%u (%u bytes), the library with %u.%u; compile it again",
				version >> 16, version & 0xffff, size, GPUNVME_DQ_MAJOR, GPUNVME_DQ_MINOR);
	ret = gnv_opts_copy(&view, sizeof(view), user, "gpunvme_view");
	if (ret)
		return ret;
	if (__atomic_load_n(&state_of(qp)->poison, __ATOMIC_RELAXED))
		return gnv_fail(-ESHUTDOWN, "queue %u is poisoned by an earlier failure; destroy it and create another", qp->qid);
	ret = gpunvme_ns_info(qp->dev, view.nsid, &ns);
	if (!ret)
		ret = check_view(qp, &ns, &view);
	if (ret)
		return ret;
	gnv_qp_describe(qp, &ns, dq);
	dq->lba_first = view.lba;
	dq->lba_count = view.nblocks;
	if (view.flags & GPUNVME_VIEW_WRITE)
		dq->flags |= GPUNVME_DQ_WRITE;
	return 0;
}

GPUNVME_API int gpunvme_qp_stop(struct gpunvme_qp *qp, int stop)
{
	if (!qp)
		return gnv_fail(-EINVAL, "gpunvme_qp_stop: qp must not be NULL");
	__atomic_store_n((uint32_t *)(void *)((char *)qp->state.cpu + qp->layout.stop), stop != 0, __ATOMIC_RELEASE);
	return 0;
}

static uint32_t count_submitted(const struct gpunvme_qp *qp)
{
	const uint64_t *result = (const uint64_t *)(const void *)((const char *)qp->state.cpu + qp->layout.result);
	uint32_t cid, count = 0;

	for (cid = 0; cid < qp->cids; cid++)
		count += (__atomic_load_n(&result[cid], __ATOMIC_RELAXED) & GPUNVME_RES_STATE) == GPUNVME_RES_SUBMITTED;
	return count;
}

static void read_counters(const struct gpunvme_qp *qp, struct gpunvme_qp_info *info)
{
	const struct gpunvme_dq_state *state = state_of(qp);

	info->submitted = __atomic_load_n(&state->pub, __ATOMIC_RELAXED);
	info->doorbells = __atomic_load_n(&state->doorbells, __ATOMIC_RELAXED);
	info->drains = __atomic_load_n(&state->drains, __ATOMIC_RELAXED);
	info->completions = __atomic_load_n(&state->completions, __ATOMIC_RELAXED);
}

void gnv_qp_zero_counters(struct gpunvme_qp *qp)
{
	read_counters(qp, &qp->before);
}

GPUNVME_API int gpunvme_qp_info(struct gpunvme_qp *qp, struct gpunvme_qp_info *user)
{
	struct gpunvme_qp_info info = { .size = sizeof(info) };

	if (!qp)
		return gnv_fail(-EINVAL, "gpunvme_qp_info: qp must not be NULL");
	read_counters(qp, &info);
	info.submitted -= qp->before.submitted;
	info.doorbells -= qp->before.doorbells;
	info.drains -= qp->before.drains;
	info.completions -= qp->before.completions;
	info.qid = qp->qid;
	info.depth = qp->depth;
	info.cq_depth = qp->cq_depth;
	info.cids = qp->cids;
	info.poison = __atomic_load_n(&state_of(qp)->poison, __ATOMIC_RELAXED);
	info.in_flight = count_submitted(qp);
	snprintf(info.rung, sizeof(info.rung), "%s", qp->dev->port->rung);
	return gnv_info_copy(user, &info, sizeof(info), "gpunvme_qp_info");
}
