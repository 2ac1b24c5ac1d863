/* SPDX-License-Identifier: MIT */
/* Execution of I/O commands (NVM Command Set Specification 3). Runs on the queue's own thread. */
#include "soft/engine/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

#define MAX_RETRIES 16u

/* ---- errno to NVMe status ---- */

static uint16_t status_of(int err, bool reads)
{
	switch (err) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return GPUNVME_SC_CAPACITY_EXCEEDED;
	case ENOLINK: /* the path to a drive elsewhere (BLK_STS_TRANSPORT of the kernel) */
		return GPUNVME_SC_TRANSIENT_TRANSPORT;
	case EROFS:
	case EPERM:
	case EBADF:
		return GPUNVME_SC_NS_WRITE_PROTECTED;
	case EACCES: /* this user may not have a drive do it */
		return GPUNVME_SC_ACCESS_DENIED;
	case EFAULT:
		return GPUNVME_SC_DATA_TRANSFER;
	case EAGAIN:
	case EINTR:
	case ECANCELED:
		return GPUNVME_SC_COMMAND_INTERRUPTED;
	case ENOMEM:
	case ENOBUFS:
	case EINVAL:
	case EOPNOTSUPP:
		return GPUNVME_SC_INTERNAL;
	default:
		return reads ? GPUNVME_SC_UNRECOVERED_READ : GPUNVME_SC_WRITE_FAULT;
	}
}

static bool is_reading(const struct gnv_soft_cmd *cmd)
{
	return cmd->op.opc == GPUNVME_IO_READ || cmd->op.opc == GPUNVME_IO_COMPARE;
}

/* ---- Starting ---- */

static uint16_t start_rw(struct gnv_soft_cmd *cmd)
{
	cmd->stage = cmd->op.opc == GPUNVME_IO_COMPARE ? GNV_SOFT_STAGE_COMPARE : GNV_SOFT_STAGE_RW;
	return gnv_soft_data_apart(cmd) ? gnv_soft_data_fill(cmd) : 0;
}

/* Ranges of Dataset Management are the drive's to check, too. */
static uint16_t start_whole(struct gnv_soft_cmd *cmd)
{
	cmd->stage = GNV_SOFT_STAGE_WHOLE;
	return cmd->op.data_len && gnv_soft_data_apart(cmd) ? gnv_soft_data_fill(cmd) : 0;
}

/* It is a hint, and a drive may leave the old data. */
static bool leaves(const struct gnv_soft_cmd *cmd, const struct gpunvme_dsm_range *range)
{
	return gnv_soft_has(&cmd->sq->server->soft->config.traits, GNV_SOFT_UNSAID) && range->slba % 2;
}

/* The next range that has blocks; op.ranges when there is none. */
static void next_range(struct gnv_soft_cmd *cmd)
{
	const struct gpunvme_dsm_range *range = (const void *)cmd->data->bounce;

	while (cmd->done < cmd->op.ranges && (!range[cmd->done].nlb || leaves(cmd, &range[cmd->done])))
		cmd->done++;
}

static uint16_t start_dsm(const struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	const struct gpunvme_dsm_range *range;
	const unsigned ones = gnv_soft_has(&soft->config.traits, GNV_SOFT_UNSAID) ? GNV_SOFT_FILL : 0;
	uint16_t status = gnv_soft_data_room(cmd, GNV_SOFT_RANGES + ones);
	unsigned i;

	if (!status) {
		memset(cmd->data->bounce + GNV_SOFT_RANGES, 0xff, ones);
		status = gnv_soft_data_take(cmd, cmd->data->bounce, cmd->op.data_len);
	}
	if (status)
		return status;
	/* Ranges are checked and used from this copy. */
	range = (const void *)cmd->data->bounce;
	for (i = 0; i < cmd->op.ranges && !status; i++)
		status = gnv_soft_check_range(&cmd->part->ns, &range[i]);
	cmd->stage = GNV_SOFT_STAGE_DSM;
	next_range(cmd);
	return status;
}

static uint16_t prepare(const struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	cmd->done = 0;
	cmd->data->seg = 0;
	cmd->retries = 0;
	if (cmd->part->store->drive)
		return start_whole(cmd);
	switch (cmd->op.opc) {
	case GPUNVME_IO_FLUSH:
		cmd->stage = GNV_SOFT_STAGE_SYNC;
		return 0;
	case GPUNVME_IO_WRITE_ZEROES:
		cmd->stage = __atomic_load_n(&cmd->part->no_zero_range, __ATOMIC_RELAXED) ? GNV_SOFT_STAGE_FILL : GNV_SOFT_STAGE_ZERO;
		if (gnv_soft_has(&soft->config.traits, GNV_SOFT_ZEROES))
			cmd->stage = GNV_SOFT_STAGE_SYNC;
		return 0;
	case GPUNVME_IO_DSM:
		return start_dsm(soft, cmd);
	default:
		return start_rw(cmd);
	}
}

/* The state of the drive that is played. Return: 0 it serves; or the status. */
static uint16_t denied(const struct gnv_soft *soft, const struct gnv_soft_cmd *cmd)
{
	static const struct {
		enum gnv_soft_trait trait;
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
		if (gnv_soft_has(&soft->config.traits, states[i].trait))
			return states[i].status;
	if (is_reading(cmd))
		return 0;
	if (gnv_soft_has(&soft->config.traits, GNV_SOFT_RESERVED_WRITE))
		return GPUNVME_SC_RESERVATION_CONFLICT;
	return gnv_soft_has(&soft->config.traits, GNV_SOFT_WORN) && cmd->op.opc != GPUNVME_IO_FLUSH ? GPUNVME_SC_READ_ONLY_RANGE : 0;
}

/* Data that goes wrong does so in memory of the controller's own, as does what a store could not move in parts. */
static bool needs_own(const struct gnv_soft_cmd *cmd)
{
	return !cmd->data->bounce && cmd->op.data_len &&
	       (cmd->verdict == GNV_SOFT_FLIP || (cmd->verdict == GNV_SOFT_SHORT && cmd->part->store->reaches_far));
}

static bool meet(struct gnv_soft_cmd *cmd)
{
	uint16_t status = 0;

	if (!gnv_soft_meet(cmd))
		return false;
	if (needs_own(cmd))
		status = gnv_soft_data_fill(cmd);
	if (status)
		gnv_soft_finish(cmd, status);
	else if (cmd->verdict == GNV_SOFT_FLIP && cmd->op.opc == GPUNVME_IO_WRITE)
		gnv_soft_mishap_data(cmd);
	return !status;
}

/* A drive that stalls at lists which it does not like. */
static bool hangs(const struct gnv_soft *soft, const struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_traits *traits = &soft->config.traits;

	return gnv_soft_has(traits, GNV_SOFT_LISTS_HANG) && cmd->op.data_len > 2 * soft->io.page &&
	       (cmd->sqe.flags & GPUNVME_SQE_PSDT) == GPUNVME_PSDT_PRP && cmd->sqe.prp2 & (traits->number[GNV_SOFT_LISTS_HANG] - 1);
}

static void begin(struct gnv_soft_cmd *cmd)
{
	if (cmd->sq->server->soft->timing.on)
		gnv_soft_time(cmd);
	if (cmd->stage == GNV_SOFT_STAGE_DSM && (!cmd->op.deallocate || cmd->done == cmd->op.ranges))
		gnv_soft_finish(cmd, 0);
	else
		gnv_soft_issue(cmd);
}

/* The namespace that a command names, the first for a Flush of all; NULL: there is none. */
static struct gnv_soft_part *part_of(struct gnv_soft *soft, const struct gpunvme_sqe *sqe)
{
	if (sqe->opc == GPUNVME_IO_FLUSH && sqe->nsid == GPUNVME_NSID_ALL)
		return &soft->part[0];
	return sqe->nsid && sqe->nsid <= soft->parts ? &soft->part[sqe->nsid - 1] : NULL;
}

void gnv_soft_io_start(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;
	struct gnv_soft *soft = server->soft;
	uint16_t status;

	cmd->part = part_of(soft, &cmd->sqe);
	status = gnv_soft_parse(&cmd->sqe, cmd->part ? &cmd->part->ns : NULL, &cmd->op);
	if (!status)
		status = denied(soft, cmd);
	if (hangs(soft, cmd)) {
		cmd->post_at = UINT64_MAX;
		gnv_soft_park(cmd);
		return;
	}
	if (!status && cmd->op.data_len)
		status = gnv_soft_dptr(&server->dma, &cmd->sqe, soft->io.page, cmd->op.data_len, &cmd->data->segs);
	if (!status)
		status = prepare(soft, cmd);
	if (status)
		gnv_soft_finish(cmd, status);
	else if ((soft->faulty || server->fault.decide) && !meet(cmd))
		return;
	else
		begin(cmd);
}

/* The controller's own: what hosts' commands meet does not concern it. */
void gnv_soft_flush(struct gnv_soft_sq *own, struct gnv_soft_part *part)
{
	const struct gnv_soft *soft = own->server->soft;
	struct gnv_soft_cmd *cmd = gnv_soft_take_cmd(own);

	cmd->part = part;
	cmd->sqe = (struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .cid = UINT16_MAX, .nsid = (uint32_t)(part - soft->part) + 1 };
	cmd->op = (struct gnv_soft_op){ .opc = GPUNVME_IO_FLUSH };
	prepare(soft, cmd);
	gnv_soft_issue(cmd);
}

/* ---- Continuing ---- */

static void count(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_counters *c = &cmd->sq->server->counters;

	if (is_reading(cmd)) {
		c->reads++;
		c->sectors_read += cmd->op.len >> 9;
	} else if (cmd->op.opc == GPUNVME_IO_WRITE) {
		c->writes++;
		c->sectors_written += cmd->op.len >> 9;
	}
}

static bool end(struct gnv_soft_cmd *cmd, uint16_t status)
{
	const uint16_t code = status & GPUNVME_ST_CODE;

	if (code == GPUNVME_SC_WRITE_FAULT || code == GPUNVME_SC_UNRECOVERED_READ)
		cmd->sq->server->counters.media_errors++;
	if (!status)
		count(cmd);
	gnv_soft_finish(cmd, status);
	return false;
}

/* What the host gave against what is stored. */
static uint16_t compare(const struct gnv_soft_cmd *cmd)
{
	char *given = malloc((size_t)cmd->op.len);
	uint16_t status = given ? gnv_soft_data_take(cmd, given, cmd->op.len) : GPUNVME_SC_INTERNAL;

	if (!status && memcmp(cmd->data->bounce, given, (size_t)cmd->op.len))
		status = GPUNVME_SC_COMPARE_FAILURE;
	free(given);
	return status;
}

/* Each of these answers whether there is another step. */

/* What was read goes to the host. */
static uint16_t hand_over(struct gnv_soft_cmd *cmd)
{
	if (cmd->op.opc != GPUNVME_IO_READ)
		return 0;
	if (cmd->verdict == GNV_SOFT_FLIP)
		gnv_soft_mishap_data(cmd);
	return cmd->data->bounce ? gnv_soft_data_give(cmd, cmd->data->bounce, cmd->op.len) : 0;
}

/* All bytes moved. What remains: hand them over, and the medium, where the store was not asked for it in the same step. */
static bool end_data(struct gnv_soft_cmd *cmd)
{
	uint16_t status = hand_over(cmd);

	if (cmd->stage == GNV_SOFT_STAGE_COMPARE)
		status = compare(cmd);
	if (!status && ((is_reading(cmd) && cmd->op.fua) || (cmd->stage == GNV_SOFT_STAGE_ZERO && gnv_soft_is_durable(cmd)))) {
		cmd->stage = GNV_SOFT_STAGE_SYNC;
		return true;
	}
	return end(cmd, status);
}

/* Skip the vectors that are done; the kernel may stop anywhere. */
static void advance_segs(struct gnv_soft_cmd *cmd, size_t bytes)
{
	struct iovec *iov;

	while (bytes) {
		iov = &cmd->data->segs.iov[cmd->data->seg];
		if (bytes < iov->iov_len) {
			iov->iov_base = (char *)iov->iov_base + bytes;
			iov->iov_len -= bytes;
			return;
		}
		bytes -= iov->iov_len;
		cmd->data->seg++;
	}
}

static bool moved(struct gnv_soft_cmd *cmd, size_t bytes)
{
	if (!bytes) /* the image ended before its time: someone truncated it */
		return end(cmd, is_reading(cmd) ? GPUNVME_SC_UNRECOVERED_READ : GPUNVME_SC_WRITE_FAULT);
	cmd->done += bytes;
	if (cmd->done >= cmd->op.len)
		return end_data(cmd);
	if (!cmd->data->bounce && cmd->stage == GNV_SOFT_STAGE_RW)
		advance_segs(cmd, bytes);
	return true;
}

/* What memory direct I/O accepts depends on the device below; a refusal of ours is answered with memory that all accept. */
static bool may_bounce(const struct gnv_soft_cmd *cmd, int err)
{
	return err == EINVAL && cmd->part->store->mem_align && cmd->op.data_len && !cmd->data->bounce && !cmd->done;
}

static bool failed(struct gnv_soft_cmd *cmd, int err)
{
	if ((err == EAGAIN || err == EINTR) && cmd->retries++ < MAX_RETRIES)
		return true;
	if (may_bounce(cmd, err) && !gnv_soft_data_fill(cmd))
		return true;
	if (cmd->stage == GNV_SOFT_STAGE_ZERO && (err == EOPNOTSUPP || err == EINVAL || err == ENODEV)) {
		if (!cmd->op.deallocate)
			__atomic_store_n(&cmd->part->no_zero_range, true, __ATOMIC_RELAXED);
		cmd->stage = GNV_SOFT_STAGE_FILL;
		return true;
	}
	if (err == EFAULT)
		gnv_soft_data_lost(cmd, cmd->data->segs.far ? gpunvme_errmsg() :
							      "it was freed while it was mapped; call gpunvme_mem_free() before");
	return end(cmd, status_of(err, is_reading(cmd)));
}

/* A Flush of all namespaces goes from one to the next. */
static bool flushes_next(struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft *soft = cmd->sq->server->soft;

	if (cmd->op.opc != GPUNVME_IO_FLUSH || cmd->sqe.nsid != GPUNVME_NSID_ALL || cmd->part == &soft->part[soft->parts - 1])
		return false;
	cmd->part++;
	cmd->stage = cmd->part->store->drive ? GNV_SOFT_STAGE_WHOLE : GNV_SOFT_STAGE_SYNC;
	return true;
}

bool gnv_soft_io_step(struct gnv_soft_cmd *cmd, int res)
{
	if (cmd->verdict)
		res = gnv_soft_mishap_io(cmd, res);
	if (cmd->stage == GNV_SOFT_STAGE_DSM) { /* a hint: whether the store could follow it does not matter */
		cmd->done++;
		next_range(cmd);
		return cmd->done < cmd->op.ranges || end(cmd, 0);
	}
	if (gnv_soft_is_answer(res))
		return end(cmd, (uint16_t)(res - GNV_SOFT_ANSWER) | GNV_SOFT_AS_IS);
	if (res < 0)
		return failed(cmd, -res);
	if (flushes_next(cmd))
		return true;
	if (cmd->stage == GNV_SOFT_STAGE_WHOLE)
		return end(cmd, hand_over(cmd));
	if (cmd->stage == GNV_SOFT_STAGE_SYNC)
		return end(cmd, 0);
	return cmd->stage == GNV_SOFT_STAGE_ZERO ? end_data(cmd) : moved(cmd, (size_t)res);
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
	end(cmd, GPUNVME_SC_INTERNAL);
}

void gnv_soft_io_done(struct gnv_soft_cmd *cmd, int res)
{
	left_store(cmd);
	if (gnv_soft_io_step(cmd, res))
		gnv_soft_issue(cmd);
}
