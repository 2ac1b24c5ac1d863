/* SPDX-License-Identifier: MIT */
/* Execution of I/O commands (NVM Command Set Specification 3): the next step of each. */
#include "soft/core/io.h"

#include "soft/core/data.h"
#include "soft/core/errno.h"
#include "util/bits.h"

#define MAX_RETRIES 16u

/* ---- errno to NVMe status ---- */

static uint16_t status_of(int err, bool reads)
{
	switch (err) {
	case GNV_SOFT_ENOSPC:
	case GNV_SOFT_EDQUOT:
	case GNV_SOFT_EFBIG:
		return GPUNVME_SC_CAPACITY_EXCEEDED;
	case GNV_SOFT_ENOLINK: /* the path to a drive elsewhere (BLK_STS_TRANSPORT of the kernel) */
		return GPUNVME_SC_TRANSIENT_TRANSPORT;
	case GNV_SOFT_EROFS:
	case GNV_SOFT_EPERM:
	case GNV_SOFT_EBADF:
		return GPUNVME_SC_NS_WRITE_PROTECTED;
	case GNV_SOFT_EACCES: /* this user must not send it to a drive */
		return GPUNVME_SC_ACCESS_DENIED;
	case GNV_SOFT_EFAULT:
		return GPUNVME_SC_DATA_TRANSFER;
	case GNV_SOFT_EAGAIN:
	case GNV_SOFT_EINTR:
	case GNV_SOFT_ECANCELED:
		return GPUNVME_SC_COMMAND_INTERRUPTED;
	case GNV_SOFT_ENOMEM:
	case GNV_SOFT_ENOBUFS:
	case GNV_SOFT_EINVAL:
	case GNV_SOFT_EOPNOTSUPP:
		return GPUNVME_SC_INTERNAL;
	default:
		return reads ? GPUNVME_SC_UNRECOVERED_READ : GPUNVME_SC_WRITE_FAULT;
	}
}

/* ---- Starting ---- */

static uint16_t start_rw(struct gnv_soft_cmd *cmd)
{
	cmd->stage = cmd->op.opc == GPUNVME_IO_COMPARE ? GNV_SOFT_STAGE_COMPARE : GNV_SOFT_STAGE_RW;
	return gnv_soft_data_must_be_apart(cmd) ? gnv_soft_data_fill(cmd) : 0;
}

/* Ranges of Dataset Management are the drive's to check, too. */
static uint16_t start_whole(struct gnv_soft_cmd *cmd)
{
	cmd->stage = GNV_SOFT_STAGE_WHOLE;
	return cmd->op.data_len && gnv_soft_data_must_be_apart(cmd) ? gnv_soft_data_fill(cmd) : 0;
}

/* It is a hint, and a drive may leave the old data. */
static bool leaves(const struct gnv_soft_cmd *cmd, const struct gpunvme_dsm_range *range)
{
	return gnv_soft_has(cmd->io->quirks, GNV_SOFT_UNSAID) && range->slba % 2;
}

/* The next range that has blocks, or op.ranges. */
static void next_range(struct gnv_soft_cmd *cmd)
{
	const struct gpunvme_dsm_range *range = gnv_soft_data_ranges(cmd);

	while (cmd->done < cmd->op.ranges && (!range[cmd->done].nlb || leaves(cmd, &range[cmd->done])))
		cmd->done++;
}

static uint16_t start_dsm(struct gnv_soft_cmd *cmd)
{
	const struct gpunvme_dsm_range *range;
	uint16_t status = gnv_soft_data_take_ranges(cmd);
	unsigned i;

	if (status)
		return status;
	range = gnv_soft_data_ranges(cmd);
	for (i = 0; i < cmd->op.ranges && !status; i++)
		status = gnv_soft_check_range(&cmd->part->ns, &range[i]);
	cmd->stage = GNV_SOFT_STAGE_DSM;
	next_range(cmd);
	return status;
}

static uint16_t prepare(struct gnv_soft_cmd *cmd)
{
	cmd->done = 0;
	cmd->retries = 0;
	if (cmd->part->store->drive)
		return start_whole(cmd);
	switch (cmd->op.opc) {
	case GPUNVME_IO_FLUSH:
		cmd->stage = GNV_SOFT_STAGE_SYNC;
		return 0;
	case GPUNVME_IO_WRITE_ZEROES:
		cmd->stage = __atomic_load_n(&cmd->part->no_zero_range, __ATOMIC_RELAXED) ? GNV_SOFT_STAGE_FILL : GNV_SOFT_STAGE_ZERO;
		if (gnv_soft_has(cmd->io->quirks, GNV_SOFT_ZEROES))
			cmd->stage = GNV_SOFT_STAGE_SYNC;
		return 0;
	case GPUNVME_IO_DSM:
		return start_dsm(cmd);
	default:
		return start_rw(cmd);
	}
}

/* The state of the emulated drive. Return: 0 it executes the command; or the status. */
static uint16_t denied(const struct gnv_soft_cmd *cmd)
{
	static const struct {
		enum gnv_soft_quirk quirk;
		uint16_t status;
	} states[] = {
		{ GNV_SOFT_LOCKED, GPUNVME_SC_ACCESS_DENIED },
		{ GNV_SOFT_SANITIZING, GPUNVME_SC_SANITIZE_IN_PROGRESS },
		{ GNV_SOFT_FORMATTING, GPUNVME_SC_FORMAT_IN_PROGRESS },
		{ GNV_SOFT_RESERVED, GPUNVME_SC_RESERVATION_CONFLICT },
		{ GNV_SOFT_ACTIVATING, GPUNVME_SC_NS_NOT_READY },
	};
	size_t i;

	for (i = 0; i < GNV_ARRAY_LEN(states); i++)
		if (gnv_soft_has(cmd->io->quirks, states[i].quirk))
			return states[i].status;
	if (gnv_soft_is_reading(cmd))
		return 0;
	if (gnv_soft_has(cmd->io->quirks, GNV_SOFT_RESERVED_WRITE))
		return GPUNVME_SC_RESERVATION_CONFLICT;
	return gnv_soft_has(cmd->io->quirks, GNV_SOFT_WORN) && cmd->op.opc != GPUNVME_IO_FLUSH ? GPUNVME_SC_READ_ONLY_RANGE : 0;
}

/* Data with an injected fault uses the controller's own memory, as does data that a store could not move in parts. */
static bool needs_own(const struct gnv_soft_cmd *cmd)
{
	return (cmd->action == GNV_SOFT_FLIP || (cmd->action == GNV_SOFT_SHORT && cmd->part->store->reaches_far)) &&
	       cmd->op.data_len && !cmd->apart;
}

/* A drive that stalls at lists which it does not like. */
static bool hangs(const struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_quirks *quirks = cmd->io->quirks;

	return gnv_soft_has(quirks, GNV_SOFT_LISTS_HANG) && cmd->op.data_len > 2 * cmd->io->page &&
	       (cmd->sqe.flags & GPUNVME_SQE_PSDT) == GPUNVME_PSDT_PRP && cmd->sqe.prp2 & (quirks->number[GNV_SOFT_LISTS_HANG] - 1);
}

/* The namespace that a command names, the first for a Flush of all, or NULL. */
static struct gnv_soft_part *part_of(const struct gnv_soft_io *io, const struct gpunvme_sqe *sqe)
{
	if (sqe->opc == GPUNVME_IO_FLUSH && sqe->nsid == GPUNVME_NSID_ALL)
		return &io->part[0];
	return sqe->nsid && sqe->nsid <= io->parts ? &io->part[sqe->nsid - 1] : NULL;
}

static enum gnv_soft_next end(struct gnv_soft_cmd *cmd, uint16_t status)
{
	cmd->status = status;
	return GNV_SOFT_END;
}

enum gnv_soft_next gnv_soft_io_begin(struct gnv_soft_cmd *cmd)
{
	uint16_t status;

	cmd->part = part_of(cmd->io, &cmd->sqe);
	status = gnv_soft_parse(&cmd->sqe, cmd->part ? &cmd->part->ns : NULL, &cmd->op);
	if (!status)
		status = denied(cmd);
	if (hangs(cmd)) {
		cmd->post_at = UINT64_MAX;
		return GNV_SOFT_PARK;
	}
	if (!status && cmd->op.data_len)
		status = gnv_soft_data_map(cmd, cmd->op.data_len);
	if (!status)
		status = prepare(cmd);
	return status ? end(cmd, status) : GNV_SOFT_STEP;
}

enum gnv_soft_next gnv_soft_io_look(struct gnv_soft_cmd *cmd)
{
	const uint16_t status = needs_own(cmd) ? gnv_soft_data_fill(cmd) : 0;

	if (status)
		return end(cmd, status);
	if (cmd->action == GNV_SOFT_FLIP && cmd->op.opc == GPUNVME_IO_WRITE)
		gnv_soft_action_data(cmd);
	if (cmd->stage == GNV_SOFT_STAGE_DSM && (!cmd->op.deallocate || cmd->done == cmd->op.ranges))
		return end(cmd, 0);
	return GNV_SOFT_STEP;
}

void gnv_soft_io_flush(struct gnv_soft_cmd *cmd, struct gnv_soft_part *part)
{
	cmd->part = part;
	cmd->sqe = (struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .cid = UINT16_MAX, .nsid = (uint32_t)(part - cmd->io->part) + 1 };
	cmd->op = (struct gnv_soft_op){ .opc = GPUNVME_IO_FLUSH };
	prepare(cmd);
}

/* ---- Continuing ---- */

/* Copy the data of a read to the host. */
static uint16_t hand_over(struct gnv_soft_cmd *cmd)
{
	if (cmd->op.opc != GPUNVME_IO_READ)
		return 0;
	if (cmd->action == GNV_SOFT_FLIP)
		gnv_soft_action_data(cmd);
	return cmd->apart ? gnv_soft_data_hand_over(cmd) : 0;
}

/* All bytes moved. Copy them to the host, and flush the medium, unless the store did that in the same step. */
static enum gnv_soft_next end_data(struct gnv_soft_cmd *cmd)
{
	uint16_t status = hand_over(cmd);

	if (cmd->stage == GNV_SOFT_STAGE_COMPARE)
		status = gnv_soft_data_compare(cmd);
	if (!status && ((gnv_soft_is_reading(cmd) && cmd->op.fua) || (cmd->stage == GNV_SOFT_STAGE_ZERO && gnv_soft_is_durable(cmd)))) {
		cmd->stage = GNV_SOFT_STAGE_SYNC;
		return GNV_SOFT_STEP;
	}
	return end(cmd, status);
}

static enum gnv_soft_next moved(struct gnv_soft_cmd *cmd, size_t bytes)
{
	if (!bytes) /* the image ended before its time: someone truncated it */
		return end(cmd, gnv_soft_is_reading(cmd) ? GPUNVME_SC_UNRECOVERED_READ : GPUNVME_SC_WRITE_FAULT);
	cmd->done += bytes;
	if (cmd->done >= cmd->op.len)
		return end_data(cmd);
	if (cmd->stage == GNV_SOFT_STAGE_RW && !cmd->apart)
		gnv_soft_data_advance(cmd, bytes);
	return GNV_SOFT_STEP;
}

/* What memory direct I/O accepts depends on the device below. After a refusal, use memory that all devices accept. */
static bool may_bounce(const struct gnv_soft_cmd *cmd, int err)
{
	return err == GNV_SOFT_EINVAL && cmd->part->store->mem_align && cmd->op.data_len && !cmd->apart && !cmd->done;
}

static enum gnv_soft_next failed(struct gnv_soft_cmd *cmd, int err)
{
	if ((err == GNV_SOFT_EAGAIN || err == GNV_SOFT_EINTR) && cmd->retries++ < MAX_RETRIES)
		return GNV_SOFT_STEP;
	if (may_bounce(cmd, err) && !gnv_soft_data_fill(cmd))
		return GNV_SOFT_STEP;
	if (cmd->stage == GNV_SOFT_STAGE_ZERO && (err == GNV_SOFT_EOPNOTSUPP || err == GNV_SOFT_EINVAL || err == GNV_SOFT_ENODEV)) {
		if (!cmd->op.deallocate)
			__atomic_store_n(&cmd->part->no_zero_range, true, __ATOMIC_RELAXED);
		cmd->stage = GNV_SOFT_STAGE_FILL;
		return GNV_SOFT_STEP;
	}
	if (err == GNV_SOFT_EFAULT)
		gnv_soft_data_lost(cmd);
	return end(cmd, status_of(err, gnv_soft_is_reading(cmd)));
}

/* A Flush of all namespaces goes from one to the next. */
static bool flushes_next(struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_io *io = cmd->io;

	if (cmd->op.opc != GPUNVME_IO_FLUSH || cmd->sqe.nsid != GPUNVME_NSID_ALL || cmd->part == &io->part[io->parts - 1])
		return false;
	cmd->part++;
	cmd->stage = cmd->part->store->drive ? GNV_SOFT_STAGE_WHOLE : GNV_SOFT_STAGE_SYNC;
	return true;
}

/*
 * A store that cannot deallocate any more breaks the guarantee that Identify gave (DLFEAT): the command must not succeed.
 * Any other failure leaves blocks that are not deallocated, which a controller may do: the command is a hint.
 */
static enum gnv_soft_next deallocated(struct gnv_soft_cmd *cmd, int res)
{
	if (res == -GNV_SOFT_EOPNOTSUPP && !cmd->part->store->keeps_old && !gnv_soft_has(cmd->io->quirks, GNV_SOFT_UNSAID))
		return failed(cmd, -res);
	cmd->done++;
	next_range(cmd);
	return cmd->done < cmd->op.ranges ? GNV_SOFT_STEP : end(cmd, 0);
}

enum gnv_soft_next gnv_soft_io_step(struct gnv_soft_cmd *cmd, int res)
{
	if (cmd->action)
		res = gnv_soft_action_io(cmd, res);
	if (cmd->stage == GNV_SOFT_STAGE_DSM)
		return deallocated(cmd, res);
	if (gnv_soft_is_answer(res))
		return end(cmd, (uint16_t)(res - GNV_SOFT_ANSWER) | GNV_SOFT_AS_IS);
	if (res < 0)
		return failed(cmd, -res);
	if (flushes_next(cmd))
		return GNV_SOFT_STEP;
	if (cmd->stage == GNV_SOFT_STAGE_WHOLE)
		return end(cmd, hand_over(cmd));
	if (cmd->stage == GNV_SOFT_STAGE_SYNC)
		return end(cmd, 0);
	return cmd->stage == GNV_SOFT_STAGE_ZERO ? end_data(cmd) : moved(cmd, (size_t)res);
}
