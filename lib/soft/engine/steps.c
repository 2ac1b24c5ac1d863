/* SPDX-License-Identifier: MIT */
/*
 * Commands, step by step: the controller chooses the next step (core/io.h), and the worker does it. Under the lock of the
 * command's worker.
 */
#include "soft/engine/threads.h"

#include <errno.h>

#include "soft/core/errno.h"

_Static_assert(GNV_SOFT_EPERM == EPERM && GNV_SOFT_EINTR == EINTR && GNV_SOFT_EBADF == EBADF && GNV_SOFT_EAGAIN == EAGAIN &&
		       GNV_SOFT_ENOMEM == ENOMEM && GNV_SOFT_EACCES == EACCES && GNV_SOFT_EFAULT == EFAULT && GNV_SOFT_ENODEV == ENODEV,
	       "numbers of errors");
_Static_assert(GNV_SOFT_EINVAL == EINVAL && GNV_SOFT_EFBIG == EFBIG && GNV_SOFT_ENOSPC == ENOSPC && GNV_SOFT_EROFS == EROFS &&
		       GNV_SOFT_ENOLINK == ENOLINK && GNV_SOFT_EOPNOTSUPP == EOPNOTSUPP && GNV_SOFT_ENOBUFS == ENOBUFS &&
		       GNV_SOFT_EDQUOT == EDQUOT && GNV_SOFT_ECANCELED == ECANCELED,
	       "numbers of errors");

/* ---- Faults ---- */

static enum gnv_soft_action judge(struct gnv_soft_cmd *cmd, uint16_t *status, uint32_t *number)
{
	const struct gnv_soft_fault *fault = &cmd->sq->server->fault;
	const struct gnv_soft_admin_fault *admin = &cmd->sq->server->soft->admin_fault;

	if (!cmd->qid && admin->decide)
		return admin->decide(admin->ctx, &cmd->sqe, status);
	if (cmd->qid && fault->decide)
		return fault->decide(fault->ctx, cmd->qid, &cmd->sqe, status, number);
	return gnv_soft_fault_judge(cmd->io->rules, cmd->qid, &cmd->sqe, status, number);
}

static enum gnv_soft_next meet(struct gnv_soft_cmd *cmd)
{
	enum gnv_soft_action action;
	uint16_t status = 0;
	uint32_t number = 0;

	if (cmd->stalled) { /* its fault was decided before */
		cmd->stalled = false;
		cmd->post_at = 0;
		return GNV_SOFT_STEP;
	}
	action = judge(cmd, &status, &number);
	return action == GNV_SOFT_GO ? GNV_SOFT_STEP : gnv_soft_carry_out(cmd, action, status, number, gnv_soft_now());
}

/* ---- Next steps ---- */

static enum gnv_soft_next post_early(struct gnv_soft_cmd *cmd)
{
	return gnv_soft_post_copy(cmd) ? gnv_soft_posted_early(cmd, gnv_soft_now()) : GNV_SOFT_STEP;
}

/* All but a step, which it may come to. Return: as goes_on(). */
static bool see_to(struct gnv_soft_cmd *cmd, enum gnv_soft_next next)
{
	if (next == GNV_SOFT_POST)
		next = post_early(cmd);
	switch (next) {
	case GNV_SOFT_END:
		gnv_soft_finish(cmd, cmd->status);
		return false;
	case GNV_SOFT_PARK_ALL:
		cmd->sq->stuck = true; /* fall through */
	case GNV_SOFT_PARK:
		gnv_soft_park(cmd);
		return false;
	default:
		return true;
	}
}

/* Return: true a step is next; else it was seen to. */
static inline bool goes_on(struct gnv_soft_cmd *cmd, enum gnv_soft_next next)
{
	return next == GNV_SOFT_STEP || see_to(cmd, next);
}

void gnv_soft_admin_start(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft *soft = cmd->sq->server->soft;
	uint16_t status;

	if ((soft->faulty || soft->admin_fault.decide) && !goes_on(cmd, meet(cmd)))
		return;
	if (gnv_soft_admin(soft, cmd, &status))
		gnv_soft_finish(cmd, status);
}

void gnv_soft_io_start(struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_server *server = cmd->sq->server;

	if (!goes_on(cmd, gnv_soft_io_begin(cmd)))
		return;
	if ((server->soft->faulty || server->fault.decide) && !goes_on(cmd, meet(cmd)))
		return;
	if (server->soft->timing.on)
		gnv_soft_time(cmd);
	if (goes_on(cmd, gnv_soft_io_ready(cmd)))
		gnv_soft_issue(cmd);
}

/* The controller's own. */
void gnv_soft_flush(struct gnv_soft_sq *own, struct gnv_soft_part *part)
{
	struct gnv_soft_cmd *cmd = gnv_soft_take_cmd(own);

	gnv_soft_io_flush(cmd, part);
	gnv_soft_issue(cmd);
}

/* ---- Steps ---- */

/* Return: true there is another. */
static bool step_ended(struct gnv_soft_cmd *cmd, int res)
{
	if (gnv_soft_io_step(cmd, res) == GNV_SOFT_STEP)
		return true;
	gnv_soft_io_count(&cmd->sq->server->counters, cmd);
	gnv_soft_finish(cmd, cmd->status);
	return false;
}

void gnv_soft_issue(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;
	struct gnv_soft_seat *seat;
	int res;

	do {
		seat = gnv_soft_seat_of(cmd);
		res = seat->store->ops->start(seat, cmd);
	} while (res != GNV_SOFT_LATER && step_ended(cmd, res));
	if (res != GNV_SOFT_LATER)
		return;
	seat->taken++;
	if (server->in_store++ == 0)
		server->busy_since = gnv_soft_now();
}

static void left_store(const struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;

	gnv_soft_seat_of(cmd)->taken--;
	if (--server->in_store == 0)
		server->counters.busy_ns += gnv_soft_now() - server->busy_since;
}

void gnv_soft_io_unsent(struct gnv_soft_cmd *cmd)
{
	left_store(cmd);
	gnv_soft_finish(cmd, GPUNVME_SC_INTERNAL);
}

void gnv_soft_io_done(struct gnv_soft_cmd *cmd, int res)
{
	left_store(cmd);
	if (step_ended(cmd, res))
		gnv_soft_issue(cmd);
}
