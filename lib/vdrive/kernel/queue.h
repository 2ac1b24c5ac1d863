/* SPDX-License-Identifier: MIT */
/*
 * One turn of a wave at a submission queue: what is due, what is new, its data, its completions. A command's data moves within
 * the turn that begins it, so between turns no command reaches memory of the host. Functions are collective, unless a comment
 * says otherwise.
 */
#ifndef GNV_VDRIVE_QUEUE_H
#define GNV_VDRIVE_QUEUE_H

#include "vdrive/kernel/end.h"

/* ---- Doorbells ---- */

/* One lane: nonsense is reported, once for each value. */
static void refuse(struct gnv_vd *vd, uint64_t *bad, uint32_t value)
{
	if (*bad != value)
		gnv_soft_io_raise(&vd->view.io, GNV_SOFT_EVENT_DOORBELL_VALUE);
	*bad = value;
}

/* How far the host may have consumed: from the old head to the last entry posted. Return: entries that are free. */
static uint32_t look_at_head(const struct turn *t, uint32_t head)
{
	struct gnv_vd_cq *cq = t->cq;
	const uint32_t size = cq->size, old = cq->head, tail = cq->tail, posted = (tail + size - old) % size;
	const bool good = head < size && (head + size - old) % size <= posted;

	if (vd_lane() == 0 && head != old && good) {
		cq->head = head;
		cq->bad = UINT64_MAX;
	} else if (vd_lane() == 0 && head != old) {
		refuse(t->vd, &cq->bad, head);
	}
	vd_meet();
	return ((good ? head : old) + size - tail - 1) % size;
}

/* Return: entries that wait. */
static uint32_t look_at_tail(const struct turn *t, uint32_t tail)
{
	struct gnv_vd_sq *sq = t->sq;

	if (vd_lane() == 0 && tail >= sq->size)
		refuse(t->vd, &sq->bad, tail);
	else if (vd_lane() == 0)
		sq->bad = UINT64_MAX;
	return tail < sq->size ? (tail + sq->size - sq->head) % sq->size : 0;
}

/* ---- Fetching ---- */

/* One lane: a command slot of the batch is new. */
static void fresh(const struct turn *t, struct gnv_soft_cmd *cmd)
{
	cmd->next = NULL;
	cmd->sq = NULL;
	cmd->io = &t->vd->view.io;
	cmd->part = NULL;
	cmd->qid = (uint16_t)t->sq->qid;
	cmd->status = 0;
	cmd->dw0 = 0;
	cmd->post_at = 0;
	cmd->began = 0;
	cmd->stalled = false;
	cmd->counted = false;
	cmd->apart = false;
	cmd->verdict = GNV_SOFT_GO;
	cmd->number = 0;
}

#define SQE_VECS 4u /* of an entry, whatever the stride */

/* Entries are read as whole lines, four lanes each, and once: the host may be rewriting them. */
static void fetch(struct turn *t, uint32_t n)
{
	struct gnv_vd_sq *sq = t->sq;
	const uint64_t ring = sq->ring, stride = sq->stride;
	const uint32_t head = sq->head, size = sq->size;
	struct vd_vec v[SQE_VECS];
	uint32_t i, j, k, at;

	for (i = vd_lane(); i < SQE_VECS * n; i += SQE_VECS * VD_WIDTH) {
		VD_UNROLL
		for (j = 0, k = i; j < SQE_VECS; j++, k += VD_WIDTH)
			if (k < SQE_VECS * n) {
				at = head + k / SQE_VECS;
				at -= at >= size ? size : 0;
				v[j] = vd_load((const void *)(uintptr_t)(ring + at * stride + k % SQE_VECS * VEC));
			}
		VD_UNROLL
		for (j = 0, k = i; j < SQE_VECS; j++, k += VD_WIDTH)
			if (k < SQE_VECS * n)
				((struct vd_vec *)(void *)&t->work->cmd[t->n + k / SQE_VECS].sqe)[k % SQE_VECS] = v[j];
	}
	for (i = vd_lane(); i < n; i += VD_WIDTH)
		fresh(t, &t->work->cmd[t->n + i]);
	vd_meet();
	if (vd_lane() == 0)
		sq->head = (head + n) % sq->size;
	t->n += n;
	vd_meet();
}

/* ---- Beginning; one lane for each command ---- */

static enum gnv_soft_next meet_fault(const struct turn *t, struct gnv_soft_cmd *cmd)
{
	enum gnv_soft_verdict verdict;
	uint16_t status = 0;
	uint32_t number = 0;

	if (cmd->stalled) { /* it was judged before */
		cmd->stalled = false;
		cmd->post_at = 0;
		return GNV_SOFT_STEP;
	}
	if (!vd_judge(t->hook, cmd, &verdict, &status, &number))
		verdict = gnv_soft_fault_judge(cmd->io->rules, cmd->qid, &cmd->sqe, &status, &number);
	return verdict == GNV_SOFT_GO ? GNV_SOFT_STEP : gnv_soft_carry_out(cmd, verdict, status, number, vd_now());
}

/* As the threads of lib/soft/engine do, so that a queue draws the same latencies there and here. */
static void take_time(const struct turn *t, struct gnv_soft_cmd *cmd, uint64_t number)
{
	struct gnv_soft_timing *timing = &t->vd->view.timing;
	const uint64_t queue = gnv_mix(timing->seed << 16 | cmd->qid);
	const uint64_t drawn = gnv_mix(queue + number * 0x9e3779b97f4a7c15ull);
	const bool moves = cmd->op.opc != GPUNVME_IO_DSM;
	const uint64_t due = gnv_soft_timing_due(timing, t->now, t->looked, moves ? cmd->op.data_len : 0, drawn);

	if (due >= cmd->post_at) /* a fault's delay is longer */
		cmd->post_at = due;
}

static enum gnv_soft_next begin(const struct turn *t, struct gnv_soft_cmd *cmd, uint64_t number)
{
	enum gnv_soft_next next = gnv_soft_io_begin(cmd);

	if (next == GNV_SOFT_STEP && (t->vd->judged || t->hook))
		next = meet_fault(t, cmd);
	if (next == GNV_SOFT_STEP && t->vd->view.timing.on)
		take_time(t, cmd, number);
	if (next == GNV_SOFT_STEP)
		next = gnv_soft_io_ready(cmd);
	cmd->began = next == GNV_SOFT_STEP;
	return next;
}

static void begin_all(struct turn *t)
{
	const uint64_t drawn = t->sq->drawn;
	struct gnv_soft_cmd *cmd;
	uint64_t number;
	uint32_t i;

	for (i = vd_lane(); i < t->n; i += VD_WIDTH) {
		cmd = &t->work->cmd[i];
		cmd->data = &t->work->data[i];
		number = drawn + i + 1 - gnv_min(i + 1, t->due); /* of what is new */
		t->work->next[i] = (uint8_t)(i >= t->due || cmd->stalled ? begin(t, cmd, number) : GNV_SOFT_END);
	}
	vd_meet();
	if (vd_lane() == 0)
		t->sq->drawn = drawn + t->n - t->due;
}

/* ---- Data ---- */

/* One lane: is all of a command one transfer between two places, as most are? */
static bool is_plain(const struct turn *t, uint32_t i, uint64_t len)
{
	const struct gnv_soft_cmd *cmd = &t->work->cmd[i];

	return t->work->next[i] == GNV_SOFT_STEP && cmd->stage == GNV_SOFT_STAGE_RW && !cmd->verdict && cmd->data->segs.count == 1 &&
	       cmd->op.len == len && cmd->data->segs.piece[0].at % VEC == 0;
}

/* Those of the length of the first, at once. */
static void move_plain(struct turn *t)
{
	struct gnv_vd_work *work = t->work;
	uint32_t at, i, rank, all, n = 0;
	uint64_t len;
	bool yes;

	if (t->due == t->n || work->next[t->due] != GNV_SOFT_STEP)
		return;
	len = work->cmd[t->due].op.len;
	if (!gnv_is_pow2(len) || len < VEC)
		return;
	for (at = t->due; at < t->n; at += VD_WIDTH) {
		i = at + vd_lane();
		yes = i < t->n && is_plain(t, i, len);
		rank = n + vd_rank(yes, &all);
		if (yes) {
			const bool reads = work->cmd[i].op.opc == GPUNVME_IO_READ;
			const uint64_t blocks = flash_of(t->vd, &work->cmd[i]) + work->cmd[i].op.offset, piece = work->data[i].segs.piece[0].at;

			work->from[rank] = reads ? blocks : piece;
			work->to[rank] = reads ? piece : blocks;
		}
		n += all;
		vd_meet();
	}
	move_many(work->to, work->from, n, gnv_log2(len / VEC));
	for (i = t->due + vd_lane(); i < t->n; i += VD_WIDTH)
		if (is_plain(t, i, len))
			work->next[i] = (uint8_t)gnv_soft_io_step(&work->cmd[i], (int)len);
	vd_meet();
}

/* The others, step by step. */
static void move_others(struct turn *t)
{
	uint32_t i;
	int res;

	for (i = 0; i < t->n; i++)
		while (t->work->next[i] == GNV_SOFT_STEP) {
			res = carry(t->vd, &t->work->cmd[i]);
			vd_meet();
			if (vd_lane() == 0)
				t->work->next[i] = (uint8_t)gnv_soft_io_step(&t->work->cmd[i], res);
			vd_meet();
		}
}

/* ---- Turns ---- */

static void carry_out(struct turn *t)
{
	begin_all(t);
	move_plain(t);
	move_others(t);
	count(t);
	end_all(t);
}

/* A queue that the host gives up: what is parked ends, as far as there is room, and the rest vanishes. */
static void close_queue(struct turn *t, uint32_t flags)
{
	struct gnv_soft_cmd *cmd;
	uint32_t head, i;

	t->closing = true;
	while (!(flags & GNV_VD_GONE) && t->sq->parked) {
		head = vd_first(vd_get32((const uint32_t *)(uintptr_t)t->cq->doorbell));
		t->sq->next_due = 0;
		t->due = t->n = take_due(t->sq, t->work, UINT64_MAX, (uint32_t)gnv_min(look_at_head(t, head), GNV_VD_BATCH));
		if (!t->n)
			break;
		for (i = vd_lane(); i < t->n; i += VD_WIDTH) {
			cmd = &t->work->cmd[i];
			if (cmd->post_at == UINT64_MAX || cmd->stalled) { /* it never began; the others keep their status */
				cmd->status = GPUNVME_SC_ABORT_SQ_DELETED;
				cmd->counted = false;
			}
			cmd->stalled = false;
			t->work->next[i] = GNV_SOFT_END;
		}
		vd_meet();
		end_all(t);
	}
	if (vd_lane() == 0)
		t->sq->parked = 0;
	vd_meet();
}

static void look_for_abort(struct turn *t)
{
	const uint64_t asked = vd_get64(&t->sq->abort);
	bool found;

	if (vd_first((uint32_t)(asked >> 16)) == (uint32_t)(t->sq->aborted >> 1))
		return;
	found = abort_parked(t->sq, (uint16_t)vd_first((uint32_t)asked));
	if (vd_lane() == 0)
		vd_put64(&t->sq->aborted, asked >> 16 << 1 | found);
	vd_meet();
}

/* Return: commands that it has seen to. */
static uint32_t serve_queue(struct gnv_vd *vd, struct gnv_vd_worker *worker, struct gnv_vd_sq *sq, uint64_t now)
{
	struct turn t = { .vd = vd, .worker = worker, .work = &worker->work, .sq = sq, .cq = &vd->cq[sq->cq], .now = now,
			  .looked = worker->looked, .hook = vd_get64(&vd->hook) };
	const uint32_t flags = vd_first(vd_get32(&sq->flags));
	uint32_t tail, head, room, waits, n;

	if (flags) {
		if (sq->parked)
			close_queue(&t, flags);
		return 0;
	}
	look_for_abort(&t);
	vd_pair((const uint32_t *)(uintptr_t)sq->doorbell, (const uint32_t *)(uintptr_t)t.cq->doorbell, &tail, &head);
	room = look_at_head(&t, head);
	waits = look_at_tail(&t, tail);
	if (!room)
		return 0;
	t.due = t.n = take_due(sq, t.work, now, (uint32_t)gnv_min(room, GNV_VD_BATCH));
	n = (uint32_t)gnv_min(gnv_min(waits, GNV_VD_BATCH - t.n), gnv_min(room - t.n, sq->parked_max - sq->parked - t.n));
	if (vd->judged || t.hook) /* rules judge in the order of the queue, and may stop it */
		n = (uint32_t)gnv_min(n, 1);
	if (n && !sq->stuck) {
		vd_fence(); /* the doorbell was loaded before the entries are, by whichever lane */
		vd_meet();
		fetch(&t, n);
	}
	if (t.n)
		carry_out(&t);
	return t.n;
}

#endif
