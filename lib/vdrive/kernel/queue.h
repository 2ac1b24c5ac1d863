/* SPDX-License-Identifier: MIT */
/*
 * One turn of a team at a submission queue: parked commands that are due, new commands, their data, their completions. A command's
 * data moves within the turn that begins it, so between turns no command accesses memory outside of the drive. Functions are
 * collective, unless a comment says otherwise.
 */
#ifndef GNV_VDRIVE_QUEUE_H
#define GNV_VDRIVE_QUEUE_H

#include "vdrive/kernel/end.h"
#include "vdrive/kernel/judge.h"

/* ---- Doorbells ---- */

/* Report an invalid value of a doorbell, once for each value. */
static inline void refuse(struct gnv_vd *vd, uint64_t *bad, uint32_t value)
{
	if (*bad != value && vd_lane() == 0)
		gnv_soft_io_raise(&vd->view.io, GNV_SOFT_EVENT_DOORBELL_VALUE);
	*bad = value;
}

/* Take a new head. It is valid from the old head to the last entry posted. Return: entries that are free. */
static inline uint32_t look_at_head(struct turn *t, uint32_t head)
{
	struct gnv_vd_cq_state *c = &t->c;
	const uint32_t size = t->cq->size, posted = wrap(c->tail + size - c->head, size);

	if (head >= size || wrap(head + size - c->head, size) > posted) {
		refuse(t->vd, &c->bad, head);
	} else if (head != c->head) {
		c->head = head;
		c->bad = UINT64_MAX;
	}
	return wrap(c->head + size - c->tail - 1, size);
}

/* Take a new tail. Return: entries that wait. */
static inline uint32_t look_at_tail(struct turn *t, uint32_t tail)
{
	const uint32_t size = t->sq->size;

	if (tail >= size) {
		refuse(t->vd, &t->s.bad, tail);
		return 0;
	}
	t->s.bad = UINT64_MAX;
	return wrap(tail + size - t->s.head, size);
}

/* ---- Fetching ---- */

/* One thread: initialise a command of the batch. */
static inline void fresh(const struct turn *t, struct gnv_soft_cmd *cmd)
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
	cmd->timed = false;
	cmd->action = GNV_SOFT_GO;
	cmd->number = 0;
}

#define SQE_VECS 4u /* of an entry, independent of the stride */

/* Copy @n entries. Four threads read an entry as one line, and once, because the host may be rewriting it. */
static inline void fetch(struct turn *t, uint32_t n)
{
	const uint64_t ring = t->sq->ring, stride = t->sq->stride;
	const uint32_t head = t->s.head, size = t->sq->size;
	struct vd_vec v[SQE_VECS];
	uint32_t i, j, k, at;

	for (i = vd_lane(); i < SQE_VECS * n; i += SQE_VECS * VD_WIDTH) {
		VD_UNROLL
		for (j = 0, k = i; j < SQE_VECS; j++, k += VD_WIDTH)
			if (k < SQE_VECS * n) {
				at = wrap(head + k / SQE_VECS, size);
				v[j] = vd_load((const void *)(uintptr_t)(ring + at * stride + k % SQE_VECS * VEC));
			}
		VD_UNROLL
		for (j = 0, k = i; j < SQE_VECS; j++, k += VD_WIDTH)
			if (k < SQE_VECS * n)
				((struct vd_vec *)(void *)&t->work->cmd[t->n + k / SQE_VECS].sqe)[k % SQE_VECS] = v[j];
	}
	for (i = vd_lane(); i < n; i += VD_WIDTH)
		fresh(t, &t->work->cmd[t->n + i]);
	t->s.head = wrap(head + n, size);
	t->n += n;
	vd_meet();
}

/* ---- Begin: one thread for each command ---- */

/* One thread: set the time of the completion, as lib/soft/engine does, so that a queue draws the same latencies in both. */
static void take_time(const struct turn *t, struct gnv_soft_cmd *cmd, uint64_t number)
{
	struct gnv_soft_timing *timing = &t->vd->view.timing;
	const uint64_t drawn = gnv_soft_timing_draw(timing, cmd->qid, number);
	const uint64_t due = gnv_soft_timing_due(timing, t->now, t->looked, &cmd->op, drawn);

	if (due < cmd->post_at) /* the delay of a fault is longer */
		return;
	cmd->post_at = due;
	cmd->timed = true;
}

/* One thread: go on with a command that has begun, after the faults. */
static enum gnv_soft_next go_on(const struct turn *t, struct gnv_soft_cmd *cmd, uint64_t number, enum gnv_soft_next next)
{
	if (next == GNV_SOFT_STEP && t->vd->view.timing.on)
		take_time(t, cmd, number);
	if (next == GNV_SOFT_STEP)
		next = gnv_soft_io_ready(cmd);
	cmd->began = next == GNV_SOFT_STEP;
	return next;
}

/* Add up the times that the model gives to new commands. */
static inline void note_asked(const struct turn *t)
{
	struct gnv_vd_pace *pace = &t->worker->pace;
	const struct gnv_soft_cmd *cmd;
	uint64_t asked = 0;
	uint32_t i, count = 0;

	for (i = t->due + vd_lane(); i < t->n; i += VD_WIDTH) {
		cmd = &t->work->cmd[i];
		asked += cmd->timed ? cmd->post_at - t->now : 0;
		count += cmd->timed;
	}
	vd_add64(&pace->asked, pace_of(asked));
	vd_add64(&pace->commands, count);
}

static inline void begin_all(struct turn *t)
{
	enum gnv_soft_next next;
	struct gnv_soft_cmd *cmd;
	uint32_t at, i;
	bool begins;

	for (at = 0; at < t->n; at += VD_WIDTH) {
		i = at + vd_lane();
		cmd = &t->work->cmd[i];
		begins = i < t->n && (i >= t->due || cmd->stalled);
		if (i < t->n) {
			cmd->data = &t->work->data[i];
			cmd->data->room = &t->worker->room[i];
			cmd->data->dma = &t->vd->dma;
		}
		next = begins ? gnv_soft_io_begin(cmd) : GNV_SOFT_END;
		if (t->vd->judged || t->hook)
			next = meet_faults(t->hook, &t->vd->rules, cmd, next);
		if (begins) /* the number counts new commands only */
			next = go_on(t, cmd, t->s.drawn + i + 1 - gnv_min(i + 1, t->due), next);
		if (i < t->n)
			t->work->next[i] = (uint8_t)next;
	}
	t->s.drawn += t->n - t->due;
	vd_meet();
	if (t->vd->view.timing.on)
		note_asked(t);
}

/* ---- Data ---- */

/* One thread. Return: the whole command is one transfer of @len bytes between two places, as most commands are. */
static inline bool is_plain(const struct turn *t, uint32_t i, uint64_t len)
{
	const struct gnv_soft_cmd *cmd = &t->work->cmd[i];

	return t->work->next[i] == GNV_SOFT_STEP && cmd->stage == GNV_SOFT_STAGE_RW && !cmd->action && cmd->data->segs.count == 1 &&
	       cmd->op.len == len && cmd->data->segs.first.at % VEC == 0;
}

/* Move the data of all plain commands that have the length of the first one together. */
static inline void move_plain(struct turn *t)
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
			const uint64_t blocks = flash_of(t->vd, &work->cmd[i]) + work->cmd[i].op.offset, piece = work->data[i].segs.first.at;

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

/* Carry out the other commands, one after the other, step by step. */
static inline void move_others(struct turn *t)
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

static inline void carry_out(struct turn *t)
{
	begin_all(t);
	move_plain(t);
	move_others(t);
	count(t);
	end_all(t);
}

/*
 * Close a queue that the host deletes: parked commands complete as long as the completion queue has room, and the others are
 * discarded. Functions for rare cases take a copy of the turn, because a turn whose address is taken is not kept in registers.
 */
static VD_RARE void close_queue(struct turn copy, uint32_t flags)
{
	struct turn *t = &copy;
	struct gnv_soft_cmd *cmd;
	uint32_t head, i;

	t->closing = true;
	while (!(flags & GNV_VD_GONE) && t->s.parked) {
		head = vd_first(vd_get32((const uint32_t *)(uintptr_t)t->cq->doorbell));
		t->s.next_due = 0;
		t->due = t->n = take_due(t->sq, &t->s, t->work, UINT64_MAX, (uint32_t)gnv_min(look_at_head(t, head), GNV_VD_BATCH));
		if (!t->n)
			break;
		for (i = vd_lane(); i < t->n; i += VD_WIDTH) {
			cmd = &t->work->cmd[i];
			if (cmd->post_at == UINT64_MAX || cmd->stalled) { /* it never began. Other commands keep their status */
				cmd->status = GPUNVME_SC_ABORT_SQ_DELETED;
				cmd->counted = false;
			}
			cmd->stalled = false;
			t->work->next[i] = GNV_SOFT_END;
		}
		vd_meet();
		end_all(t);
	}
	t->s.parked = 0;
	put_back(t);
}

static VD_RARE struct gnv_vd_sq_state look_for_abort(struct gnv_vd_sq *sq, struct gnv_vd_sq_state s)
{
	const uint64_t asked = vd_first64(vd_get64(&sq->abort));
	const bool found = abort_parked(sq, &s, (uint16_t)asked);

	s.asked = asked;
	if (vd_lane() == 0)
		vd_put64(&sq->aborted, asked >> 16 << 1 | found);
	return s;
}

enum look { FLAGS, NEXT, ABORT, TAIL, HEAD };

/* Load the words that the host writes. */
static inline void look(const struct turn *t, uint32_t word[VD_LOOKS])
{
	const uint32_t *const at[VD_LOOKS] = {
		[FLAGS] = &t->sq->flags,
		[NEXT] = &t->sq->next,
		[ABORT] = (const uint32_t *)(const void *)&t->sq->abort, /* the low half, which changes with each request */
		[TAIL] = (const uint32_t *)(uintptr_t)t->sq->doorbell,
		[HEAD] = (const uint32_t *)(uintptr_t)t->cq->doorbell,
	};

	vd_look(at, word);
}

/* Return: a rule may stop the queue, or a test judges. */
static inline bool is_one_by_one(const struct turn *t)
{
	return t->vd->judged == GNV_VD_ONE_BY_ONE || t->hook;
}

/* One thread: count the turn. @left: commands of the queue were not fetched although the completion queue has room for them. */
static inline void note_turn(const struct turn *t, bool left)
{
	struct gnv_vd_pace *pace = &t->worker->pace;

	vd_put64(&pace->turns, pace->turns + 1);
	if (left && !is_one_by_one(t) && gnv_soft_timing_is_idle(&t->vd->view.timing, t->now))
		vd_put64(&pace->starved, pace->starved + 1);
}

/* Fill the batch with parked commands that are due, then with new ones, as far as there is room. */
static inline void gather(struct turn *t, uint32_t waits, uint32_t room)
{
	struct gnv_vd_sq_state s = t->s;
	uint32_t n;

	t->due = 0;
	if (s.parked) {
		t->took = vd_first64(vd_now());
		t->due = take_due(t->sq, &s, t->work, t->took + t->worker->lead, (uint32_t)gnv_min(room, GNV_VD_BATCH));
	}
	t->n = t->due;
	t->s = s;
	n = (uint32_t)gnv_min(gnv_min(waits, GNV_VD_BATCH - t->n), gnv_min(room - t->n, t->sq->parked_max - t->s.parked - t->n));
	if (is_one_by_one(t))
		n = (uint32_t)gnv_min(n, 1);
	if (t->vd->view.timing.on && !t->s.stuck && vd_lane() == 0)
		note_turn(t, n < gnv_min(waits, room - t->n));
	if (n && !t->s.stuck)
		fetch(t, n);
}

/* Make one turn at a queue. @next: set to the next queue of the worker. Return: commands that it handled. */
static inline uint32_t serve_queue(struct turn *t, struct gnv_vd_sq *sq, uint32_t *next)
{
	uint32_t word[VD_LOOKS], waits, room;

	t->sq = sq;
	t->cq = &t->vd->cq[sq->cq];
	t->s = sq->state;
	t->c = t->cq->state;
	t->n = 0;
	look(t, word);
	*next = word[NEXT];
	if (word[FLAGS]) {
		if (t->s.parked)
			close_queue(*t, word[FLAGS]);
		return 0;
	}
	if (word[ABORT] != (uint32_t)t->s.asked)
		t->s = look_for_abort(sq, t->s);
	room = look_at_head(t, word[HEAD]);
	waits = look_at_tail(t, word[TAIL]);
	if (room)
		gather(t, waits, room);
	if (t->n)
		carry_out(t);
	put_back(t);
	return t->n;
}

#endif
