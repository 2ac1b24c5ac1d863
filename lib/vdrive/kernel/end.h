/* SPDX-License-Identifier: MIT */
/*
 * The end of commands in a turn of a team at a queue (queue.h): errors, counters, completions.
 *
 * A turn has one fence. Each thread that posts a completion fences once, after the team has met and before its entries:
 *
 *	data before completion	The data that all threads moved is ordered before each entry. The threads met, so the fence of one
 *				covers the stores of the others (a fence is cumulative). The memory of the host gets the data, then
 *				the entry.
 *	head before entry	The team loads the host's head of the completion queue before it writes to the entries that this head
 *				frees (vd_look()).
 *	tail before entry	The team loads the host's tail before it loads the entries of the submission queue (vd_look()). They are
 *				in registers and copied before the fence, so before the host sees a completion that frees them.
 *
 * Entries of one turn have no order among each other. The host takes them one by one, by the phase of each. Nothing is ordered
 * after the entries, except the number of completions, for queues with interrupts.
 */
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
	struct gnv_vd_sq_state s; /* the same in all threads, which change it in the same way. put_back() stores it */
	struct gnv_vd_cq_state c;
	uint64_t now, looked;
	uint64_t took; /* when it looked for parked commands that are due */
	uint64_t hook;
	uint32_t due; /* commands of the batch that were parked, which are its first ones */
	uint32_t n;
	bool closing;
};

/* A sum of two positions in a ring. */
static inline uint32_t wrap(uint32_t at, uint32_t size)
{
	return at >= size ? at - size : at;
}

/* One thread: log the error of a command, once. */
static VD_RARE void note_error(struct gnv_vd *vd, struct gnv_soft_cmd *cmd)
{
	struct gnv_vd_error *error;
	uint32_t number;

	if (cmd->counted)
		return;
	cmd->counted = true;
	number = __atomic_fetch_add(&vd->errors, 1, __ATOMIC_RELAXED);
	vd_fence(); /* a host that copies a part of this entry and then the number sees this number (collect() of attend.c) */
	error = &vd->error[number % GNV_VD_ERRORS];
	vd_put64(&error->lba, cmd->sqe.cdw10 | (uint64_t)cmd->sqe.cdw11 << 32);
	vd_put64(&error->command, (uint64_t)cmd->status << 32 | (uint32_t)cmd->sqe.cid << 16 | cmd->qid);
	vd_fence();
	vd_put64(&error->nsid_number, (uint64_t)(number + 1) << 32 | cmd->sqe.nsid);
}

/* A time in units of struct gnv_vd_pace. It is at most 8.5 s for each of 128 threads, so that the sum of all threads fits. */
static inline uint32_t pace_of(uint64_t ns)
{
	return (uint32_t)gnv_min((ns + (1u << GNV_VD_PACE_SHIFT) / 2) >> GNV_VD_PACE_SHIFT, UINT32_MAX / VD_WIDTH);
}

/* Collective: count commands that have ended, each once. */
static inline void count(struct turn *t)
{
	struct gnv_soft_counters own = { 0 }, *sum = &t->worker->counters;
	uint32_t i;

	for (i = vd_lane(); i < t->n; i += VD_WIDTH)
		if (t->work->cmd[i].began && t->work->next[i] == GNV_SOFT_END) {
			gnv_soft_io_count(&own, &t->work->cmd[i]);
			t->work->cmd[i].began = 0;
		}
	vd_add64(&sum->reads, (uint32_t)own.reads);
	vd_add64(&sum->writes, (uint32_t)own.writes);
	vd_add64(&sum->sectors_read, (uint32_t)own.sectors_read);
	vd_add64(&sum->sectors_written, (uint32_t)own.sectors_written);
	vd_add64(&sum->media_errors, (uint32_t)own.media_errors);
}

/* One thread: write the entry of a command. @place: its position among the entries of this turn. */
static inline void put_entry(const struct turn *t, const struct gnv_soft_cmd *cmd, uint32_t place)
{
	const struct gnv_vd_cq *cq = t->cq;
	const uint32_t at = t->c.tail + place, wrapped = at >= cq->size;
	const uint64_t entry = cq->ring + (uint64_t)(wrapped ? at - cq->size : at) * VEC;
	const uint32_t phase = (t->c.phase ^ wrapped) << 16;
	uint32_t status = cmd->status & ~GNV_SOFT_AS_IS, dw2 = t->s.head | t->sq->qid << 16, dw3;

	if (status && !(cmd->status & GNV_SOFT_AS_IS) && gnv_soft_is_final(cmd->status))
		status |= GPUNVME_ST_DNR;
	dw3 = cmd->sqe.cid | phase | status << 17;
	if (cmd->action)
		gnv_soft_action_entry(cmd, &dw2, &dw3);
	if (VD_TEARS) { /* all but the phase arrives first */
		const uint32_t old = (dw3 & ~GPUNVME_CQE_DW3_PHASE) | (phase ^ GPUNVME_CQE_DW3_PHASE);

		vd_store((void *)(uintptr_t)entry, (struct vd_vec){ { cmd->dw0, 0, dw2, old } });
		vd_fence();
	}
	vd_store((void *)(uintptr_t)entry, (struct vd_vec){ { cmd->dw0, 0, dw2, dw3 } });
}

#define LEAD_MAX_NS 16000u

/*
 * One thread. Return: the command has ended and its completion is due. For a new one that is by the time that take_due() used:
 * by a later one it could complete before parked ones that are also due. A parked one was taken early, and one that a fault had
 * stalled has a new time since, which is in the future.
 */
static inline bool is_due(const struct turn *t, uint32_t i)
{
	const uint64_t by = i < t->due ? t->took + LEAD_MAX_NS : t->now;

	return t->work->next[i] == GNV_SOFT_END && (t->closing || t->work->cmd[i].post_at <= by);
}

/* Add up the lateness of the commands that end now. The data of a command may take longer than the model allows. */
static inline void note_late(const struct turn *t)
{
	const uint64_t now = vd_now();
	const struct gnv_soft_cmd *cmd;
	uint64_t late = 0;
	uint32_t i;

	for (i = vd_lane(); i < t->n; i += VD_WIDTH) {
		cmd = &t->work->cmd[i];
		if (is_due(t, i) && cmd->timed && cmd->post_at < now)
			late += now - cmd->post_at;
	}
	vd_add64(&t->worker->pace.late, pace_of(late));
}

/*
 * One thread: a turn takes commands that are due when it posts its completions, so it takes them some time before. Learn that time.
 */
static inline void learn_lead(const struct turn *t)
{
	const int64_t took = (int64_t)gnv_min(vd_now() - t->took, LEAD_MAX_NS), lead = (int64_t)t->worker->lead;

	t->worker->lead = (uint64_t)(lead + (took - lead) / 8);
}

/* One thread: a command that was taken before its time ends at its time. */
static inline void await_time(const struct turn *t, const struct gnv_soft_cmd *cmd)
{
	if (!t->closing)
		while (cmd->post_at > vd_now())
			;
}

/* Move the tail past the entries of @place completions. */
static inline void advance(struct turn *t, uint32_t place)
{
	const uint32_t at = t->c.tail + place;

	t->c.phase ^= at >= t->cq->size;
	t->c.tail = wrap(at, t->cq->size);
	if (!place || !t->cq->interrupts)
		return;
	vd_meet();
	if (vd_lane() == 0) {
		vd_fence(); /* the entries are ordered before the number that raises the interrupt */
		vd_put64(&t->vd->posted[t->sq->cq], t->vd->posted[t->sq->cq] + place);
	}
}

/* Post the completions that are due, in the order of the batch, and park the other commands. */
static inline void end_all(struct turn *t)
{
	uint32_t at, i, place = 0, all, rank;
	struct gnv_vd_sq_state s; /* a copy: see close_queue() of queue.h */
	bool in, yes;

	vd_meet();
	if (vd_lane() < t->n)
		vd_fence(); /* the one of the turn */
	if (t->vd->view.timing.on)
		note_late(t);
	if (t->due && !t->closing && vd_lane() == 0)
		learn_lead(t);
	for (at = 0; at < t->n; at += VD_WIDTH) {
		i = at + vd_lane();
		in = i < t->n;
		yes = in && is_due(t, i);
		if (in && t->work->next[i] == GNV_SOFT_END && t->work->cmd[i].status & GPUNVME_ST_CODE)
			note_error(t->vd, &t->work->cmd[i]);
		rank = vd_rank(yes, &all);
		if (yes && i < t->due)
			await_time(t, &t->work->cmd[i]);
		if (yes)
			put_entry(t, &t->work->cmd[i], place + rank);
		place += all;
		if (all == gnv_min(t->n - at, VD_WIDTH))
			continue;
		s = t->s;
		s.stuck |= vd_any(in && t->work->next[i] == GNV_SOFT_PARK_ALL);
		park(t->sq, &s, in ? &t->work->cmd[i] : NULL, in && !yes);
		t->s = s;
	}
	advance(t, place);
}

/* Store the state at the end of a turn. All threads load it in the next one. */
static inline void put_back(const struct turn *t)
{
	if (vd_lane() == 0) {
		t->sq->state = t->s;
		t->cq->state = t->c;
	}
	vd_meet();
}

#endif
