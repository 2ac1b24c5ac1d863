/* SPDX-License-Identifier: MIT */
/*
 * Commands that wait for a time, of one submission queue: an array of times, and for each the number of the slot that has the
 * command. Numbers of free slots stand at the end of the array of numbers, so those two never meet. All of it is collective.
 */
#ifndef GNV_VDRIVE_PARK_H
#define GNV_VDRIVE_PARK_H

#include "vdrive/kernel/reach.h"

struct parking {
	struct gnv_soft_cmd *slot;
	uint64_t *due;
	uint32_t *index;
	uint32_t max;
};

static inline struct parking parking_of(const struct gnv_vd_sq *sq)
{
	return (struct parking){ (struct gnv_soft_cmd *)(uintptr_t)sq->slots, (uint64_t *)(uintptr_t)sq->due,
				 (uint32_t *)(uintptr_t)sq->index, sq->parked_max };
}

/* Each lane with @yes parks its command; there is room for them all. */
static VD_RARE void park(const struct gnv_vd_sq *sq, struct gnv_vd_sq_state *s, const struct gnv_soft_cmd *cmd, bool yes)
{
	const struct parking p = parking_of(sq);
	uint32_t all, rank = vd_rank(yes, &all), slot;

	if (!all)
		return;
	if (yes) {
		slot = p.index[s->parked + rank];
		p.slot[slot] = *cmd;
		p.due[s->parked + rank] = cmd->post_at;
	}
	s->parked += all;
	s->next_due = 0; /* look */
	vd_meet();
}

/* Take those that are due out of the array, @max at most, and let the others move up. Return: how many, as work->cmd[]. */
static VD_RARE uint32_t take_due(const struct gnv_vd_sq *sq, struct gnv_vd_sq_state *s, struct gnv_vd_work *work, uint64_t now,
				 uint32_t max)
{
	const struct parking p = parking_of(sq);
	const uint32_t count = s->parked;
	uint32_t at, i, n = 0, kept = 0, all, rank, slot = 0;
	uint64_t due = 0, next = UINT64_MAX;
	bool yes, no;

	if (!count || !max || s->next_due > now)
		return 0;
	for (at = 0; at < count; at += VD_WIDTH) {
		i = at + vd_lane();
		if (i < count) {
			due = p.due[i];
			slot = p.index[i];
		}
		yes = i < count && due <= now;
		rank = vd_rank(yes, &all);
		no = i < count && (!yes || n + rank >= max);
		yes = yes && n + rank < max;
		if (yes)
			work->cmd[n + rank] = p.slot[slot];
		vd_meet(); /* all have read what is written now */
		n += (uint32_t)gnv_min(all, max - n);
		rank = vd_rank(no, &all);
		if (no) {
			p.due[kept + rank] = due;
			p.index[kept + rank] = slot;
			next = gnv_min(next, due);
		}
		kept += all;
		vd_meet();
		/* Slots that are free go to where no parked command is: between those that are kept and those not yet looked at. */
		rank = vd_rank(yes, &all);
		if (yes)
			work->to[n - all + rank] = slot;
		vd_meet();
	}
	for (i = vd_lane(); i < n; i += VD_WIDTH)
		p.index[kept + i] = (uint32_t)work->to[i];
	s->parked = kept;
	s->next_due = VD_WIDTH == 1 ? next : 0;
	vd_meet();
	return n;
}

/* Let a command with this identifier be due now, with a status. Return: there was one. */
static bool abort_parked(const struct gnv_vd_sq *sq, struct gnv_vd_sq_state *s, uint16_t cid)
{
	const struct parking p = parking_of(sq);
	bool found = false;
	uint32_t i;

	for (i = vd_lane(); i < s->parked; i += VD_WIDTH) {
		struct gnv_soft_cmd *cmd = &p.slot[p.index[i]];

		if (cmd->sqe.cid != cid)
			continue;
		found = true;
		p.due[i] = 0;
		cmd->post_at = 0;
		cmd->timed = false;
		cmd->stalled = false;
		cmd->dw0 = 0;
		cmd->status = GPUNVME_SC_ABORT_REQUESTED;
		cmd->counted = false;
	}
	found = vd_any(found);
	if (found)
		s->next_due = 0;
	vd_meet();
	return found;
}

#endif
