/* SPDX-License-Identifier: MIT */
/*
 * The commands of a submission queue that wait for a time: an array of times, and an array with the slot of each command. Free
 * slots are at the end of the second array, which has an entry for each slot, so the two parts never overlap. All functions are
 * collective.
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

/* Park the command of each thread with @yes. The caller ensures that there are slots for all. */
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
	s->next_due = 0; /* unknown: take_due() looks */
	vd_meet();
}

/* Move commands that are due from the array to work->cmd[], @max at most. The others move up. Return: their number. */
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
		vd_meet(); /* all threads have read the entries that are overwritten next */
		n += (uint32_t)gnv_min(all, max - n);
		rank = vd_rank(no, &all);
		if (no) {
			p.due[kept + rank] = due;
			p.index[kept + rank] = slot;
			next = gnv_min(next, due);
		}
		kept += all;
		vd_meet();
		/* Free slots are stored where no parked command is: after those that are kept, before those not yet read. */
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

/* Make parked commands with this identifier due now, with the status of an abort. Return: there was one. */
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
