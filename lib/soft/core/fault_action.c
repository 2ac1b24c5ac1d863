/* SPDX-License-Identifier: MIT */
/* Injected faults: actions on commands that the rules of fault= and the hooks of tests select. */
#include "soft/core/io.h"

#include "soft/core/data.h"

/* A controller that stalls keeps no host from unmapping. */
static enum gnv_soft_next stall(struct gnv_soft_cmd *cmd, uint64_t until)
{
	cmd->stalled = until != UINT64_MAX;
	cmd->post_at = until;
	gnv_soft_data_drop(cmd);
	return GNV_SOFT_PARK;
}

static void move_away(struct gnv_soft_cmd *cmd, uint64_t blocks)
{
	const struct gnv_soft_ns *ns = &cmd->part->ns;
	uint64_t far = blocks << ns->lba_shift;

	if (cmd->op.offset + cmd->op.len + far <= ns->blocks << ns->lba_shift)
		cmd->op.offset += far;
	else if (cmd->op.offset >= far)
		cmd->op.offset -= far;
}

static enum gnv_soft_next fail(struct gnv_soft_cmd *cmd, uint16_t status)
{
	cmd->status = status;
	return GNV_SOFT_END;
}

/* Actions on the completion or on the I/O happen later. */
enum gnv_soft_next gnv_soft_carry_out(struct gnv_soft_cmd *cmd, enum gnv_soft_action action, uint16_t status, uint32_t number,
				      uint64_t now)
{
	const uint64_t later = now + (uint64_t)number * 1000;

	switch (action) {
	case GNV_SOFT_SKIP:
		return fail(cmd, 0);
	case GNV_SOFT_FAIL:
		return fail(cmd, status);
	case GNV_SOFT_DELAY:
	case GNV_SOFT_SHUFFLE:
		cmd->post_at = later;
		return GNV_SOFT_STEP;
	case GNV_SOFT_EARLY: /* the command begins later, unknown to the host */
		cmd->number = number;
		return GNV_SOFT_POST;
	case GNV_SOFT_STALL:
		return stall(cmd, later);
	case GNV_SOFT_STUCK:
		stall(cmd, UINT64_MAX);
		return GNV_SOFT_PARK_ALL;
	case GNV_SOFT_CFS:
	case GNV_SOFT_ONES:
		__atomic_store_n(&cmd->io->doom, action, __ATOMIC_RELAXED);
		return stall(cmd, UINT64_MAX);
	case GNV_SOFT_DROP:
		return stall(cmd, UINT64_MAX);
	case GNV_SOFT_STRAY:
		move_away(cmd, number);
		return GNV_SOFT_STEP;
	case GNV_SOFT_EVENT:
		gnv_soft_io_raise(cmd->io, (enum gnv_soft_event)(number - 1));
		return GNV_SOFT_STEP;
	default:
		cmd->action = action;
		cmd->number = number;
		return GNV_SOFT_STEP;
	}
}

enum gnv_soft_next gnv_soft_posted_early(struct gnv_soft_cmd *cmd, uint64_t now)
{
	const enum gnv_soft_next next = stall(cmd, now + (uint64_t)cmd->number * 1000);

	cmd->action = GNV_SOFT_EARLY;
	return next;
}

int gnv_soft_action_io(struct gnv_soft_cmd *cmd, int res)
{
	uint32_t block = 1u << cmd->part->ns.lba_shift;

	if (cmd->action == GNV_SOFT_ERRNO)
		return -(int)cmd->number;
	if (cmd->action == GNV_SOFT_SHORT && !cmd->done && cmd->stage == GNV_SOFT_STAGE_RW && res >= (int)(2 * block))
		return res / 2 - (int)((uint32_t)res / 2 % block);
	return res;
}

void gnv_soft_action_data(struct gnv_soft_cmd *cmd)
{
	if (cmd->action == GNV_SOFT_FLIP)
		gnv_soft_data_flip(cmd, cmd->number % (cmd->op.len * 8));
}

void gnv_soft_action_entry(const struct gnv_soft_cmd *cmd, uint32_t *dw2, uint32_t *dw3)
{
	switch (cmd->action) {
	case GNV_SOFT_CID:
		*dw3 ^= cmd->number;
		break;
	case GNV_SOFT_PHASE:
		*dw3 ^= 1u << 16;
		break;
	case GNV_SOFT_SQID:
		*dw2 ^= cmd->number << 16;
		break;
	case GNV_SOFT_SQHD:
		*dw2 ^= cmd->number;
		break;
	default:
		break;
	}
}
