/* SPDX-License-Identifier: MIT */
/* A turn of a wave at a queue (queue.h), and how its commands end: errors, counters, completions. */
#ifndef GNV_VDRIVE_END_H
#define GNV_VDRIVE_END_H

#include "vdrive/kernel/move.h"
#include "vdrive/kernel/park.h"

struct turn {
	struct gnv_vd *vd;
	struct gnv_vd_worker *worker;
	struct gnv_vd_work *work;
	struct gnv_vd_sq *sq;
	struct gnv_vd_cq *cq;
	uint64_t now, looked;
	uint64_t hook;
	uint32_t due; /* commands of the batch that were parked, which come first */
	uint32_t n;
	bool closing;
};

/* One lane: a command has ended, and is noted once. */
static void note_error(struct gnv_vd *vd, struct gnv_soft_cmd *cmd)
{
	struct gnv_vd_error *error;
	uint32_t number;

	if (cmd->counted || !(cmd->status & GPUNVME_ST_CODE))
		return;
	cmd->counted = true;
	number = __atomic_fetch_add(&vd->errors, 1, __ATOMIC_RELAXED);
	vd_fence(); /* a host that copies a part of this entry, and then the number, sees this one (collect() of attend.c) */
	error = &vd->error[number % GNV_VD_ERRORS];
	vd_put64(&error->lba, cmd->sqe.cdw10 | (uint64_t)cmd->sqe.cdw11 << 32);
	vd_put64(&error->command, (uint64_t)cmd->status << 32 | (uint32_t)cmd->sqe.cid << 16 | cmd->qid);
	vd_fence();
	vd_put64(&error->nsid_number, (uint64_t)(number + 1) << 32 | cmd->sqe.nsid);
}

/* Commands that a step has ended, each once. */
static void count(struct turn *t)
{
	struct gnv_soft_counters own = { 0 }, *sum = &t->worker->counters;
	uint32_t i;

	for (i = vd_lane(); i < t->n; i += VD_WIDTH)
		if (t->work->cmd[i].began && t->work->next[i] == GNV_SOFT_END) {
			gnv_soft_io_count(&own, &t->work->cmd[i]);
			t->work->cmd[i].began = 0;
		}
	own.reads = vd_sum((uint32_t)own.reads);
	own.writes = vd_sum((uint32_t)own.writes);
	own.sectors_read = vd_sum((uint32_t)own.sectors_read);
	own.sectors_written = vd_sum((uint32_t)own.sectors_written);
	own.media_errors = vd_sum((uint32_t)own.media_errors);
	if (vd_lane() != 0)
		return;
	vd_put64(&sum->reads, sum->reads + own.reads);
	vd_put64(&sum->writes, sum->writes + own.writes);
	vd_put64(&sum->sectors_read, sum->sectors_read + own.sectors_read);
	vd_put64(&sum->sectors_written, sum->sectors_written + own.sectors_written);
	vd_put64(&sum->media_errors, sum->media_errors + own.media_errors);
}

/* One lane: the entry of a command, by its place in the ring. */
static void put_entry(const struct turn *t, const struct gnv_soft_cmd *cmd, uint32_t place)
{
	const struct gnv_vd_cq *cq = t->cq;
	const uint32_t at = cq->tail + place, wrapped = at >= cq->size;
	const uint64_t entry = cq->ring + (uint64_t)(wrapped ? at - cq->size : at) * VEC;
	uint32_t status = cmd->status & ~GNV_SOFT_AS_IS, dw2 = t->sq->head | t->sq->qid << 16, dw3;

	if (status && !(cmd->status & GNV_SOFT_AS_IS) && gnv_soft_is_final(cmd->status))
		status |= GPUNVME_ST_DNR;
	dw3 = cmd->sqe.cid | (cq->phase ^ wrapped) << 16 | status << 17;
	if (cmd->verdict)
		gnv_soft_mishap_entry(cmd, &dw2, &dw3);
	vd_store((void *)(uintptr_t)entry, (struct vd_vec){ { cmd->dw0, 0, dw2, dw3 } });
}

/* One lane: has it ended, and is its completion to be posted now? */
static bool is_due(const struct turn *t, uint32_t i, uint64_t now)
{
	return t->work->next[i] == GNV_SOFT_END && (t->closing || i < t->due || t->work->cmd[i].post_at <= now);
}

/*
 * Completions, in order, and the others are parked. Each lane fences after the wave has met, and before its entries. So a fence
 * covers the data that other lanes of the wave moved, and a host that sees an entry sees the data of its command.
 */
static void end_all(struct turn *t)
{
	const uint64_t now = vd_now();
	struct gnv_vd_cq *cq = t->cq;
	uint32_t at, i, place = 0, all, rank;
	bool yes, ends;

	vd_meet();
	vd_fence();
	for (at = 0; at < t->n; at += VD_WIDTH) {
		i = at + vd_lane();
		ends = i < t->n && t->work->next[i] == GNV_SOFT_END;
		yes = i < t->n && is_due(t, i, now);
		if (ends)
			note_error(t->vd, &t->work->cmd[i]);
		rank = vd_rank(yes, &all);
		if (yes)
			put_entry(t, &t->work->cmd[i], place + rank);
		place += all;
		if (i < t->n && t->work->next[i] == GNV_SOFT_PARK_ALL)
			t->sq->stuck = 1;
		park(t->sq, i < t->n ? &t->work->cmd[i] : NULL, i < t->n && !yes);
	}
	if (vd_lane() == 0 && place) {
		cq->phase ^= cq->tail + place >= cq->size;
		cq->tail = (cq->tail + place) % cq->size;
		vd_fence(); /* an interrupt goes after its entries */
		vd_put64(&t->vd->posted[t->sq->cq], t->vd->posted[t->sq->cq] + place);
	}
	vd_meet();
}

#endif
