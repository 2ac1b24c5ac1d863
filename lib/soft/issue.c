/* SPDX-License-Identifier: MIT */
/* One step of an I/O command as an io_uring request, and the memory that is registered with the ring. */
#include "soft/state.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"

#define REGISTER_AFTER 64u	  /* uses of a mapping before it is worth pinning */
#define REGISTER_MAX (1ull << 30) /* the kernel's limit for one buffer */
#define VECTORS_MAX 1024u /* the kernel's, UIO_MAXIOV; what lies behind them is asked for next */
#define ZERO_BYTES 65536u

static char zeroes[ZERO_BYTES] __attribute__((aligned(4096))); /* never written */

/* ---- Registered buffers ---- */

static void explain_refusal(struct gnv_soft_server *server, int err)
{
	if (!server->buffers_refused)
		gnv_log(server->soft->log, GPUNVME_LOG_INFO,
			"data memory is not registered with io_uring (%s); I/O works, a little slower; a larger locked-memory "
			"limit (ulimit -l) helps",
			strerror(-err));
	server->buffers_refused = true;
}

/* Slot of the registered buffer that holds the command's only segment, or -1. Registers a mapping that proved to be busy. */
static int buffer_of(struct gnv_soft_server *server, const struct gnv_soft_cmd *cmd)
{
	unsigned slot = cmd->segs.slot[0];
	struct gnv_soft_dma_entry *e = &server->dma.entry[slot];
	int ret;

	if (e->registered == e->map->serial)
		return (int)slot;
	if (e->counted != e->map->serial) {
		e->counted = e->map->serial;
		e->uses = 0;
	}
	if (e->map->foreign)
		return -1; /* whose owner may put other pages in the place of those that were pinned */
	if (e->uses > REGISTER_AFTER || ++e->uses != REGISTER_AFTER || e->map->len > REGISTER_MAX)
		return -1;
	ret = gnv_uring_set_buffer(server->ring, slot, e->map->cpu, e->map->len);
	if (ret) {
		explain_refusal(server, ret);
		return -1;
	}
	server->registered += !e->registered;
	e->registered = e->map->serial;
	return (int)slot;
}

void gnv_soft_io_tidy(struct gnv_soft_server *server)
{
	struct gnv_soft_dma_entry *e;
	unsigned i;

	for (i = 0; i < GNV_SOFT_SPACE_SLOTS && server->registered; i++) {
		e = &server->dma.entry[i];
		if (!e->registered || e->registered == gnv_soft_space_serial(server->dma.space, i))
			continue;
		gnv_uring_set_buffer(server->ring, i, NULL, 0);
		e->registered = 0;
		server->registered--;
	}
}

/* ---- Handing one step of a command to io_uring ---- */

bool gnv_soft_is_durable(const struct gnv_soft_cmd *cmd)
{
	return cmd->op.fua || !__atomic_load_n(&cmd->sq->server->soft->write_back, __ATOMIC_RELAXED);
}

static int issue_rw(struct gnv_soft_server *server, struct gnv_soft_cmd *cmd)
{
	bool write = cmd->op.opc == GPUNVME_IO_WRITE;
	const struct iovec *iov = &cmd->segs.iov[cmd->seg];
	unsigned count = (unsigned)gnv_min(cmd->segs.count - cmd->seg, VECTORS_MAX);
	int buffer = -1;

	if (cmd->bounce) {
		cmd->flat.iov_base = cmd->bounce + cmd->done;
		cmd->flat.iov_len = (size_t)(cmd->op.len - cmd->done);
		iov = &cmd->flat;
		count = 1;
	} else if (cmd->segs.count == 1) {
		buffer = buffer_of(server, cmd);
	}
	return gnv_uring_rw(server->ring, write, iov, count, cmd->op.offset + cmd->done, buffer, write && gnv_soft_is_durable(cmd),
			    cmd);
}

/* Write Zeroes has no segments, so their room holds the vectors. */
static int issue_fill(struct gnv_soft_server *server, struct gnv_soft_cmd *cmd)
{
	uint64_t left = cmd->op.len - cmd->done;
	unsigned n;

	for (n = 0; n < GNV_SOFT_SEGS && left; n++) {
		cmd->segs.iov_in[n].iov_base = zeroes;
		cmd->segs.iov_in[n].iov_len = (size_t)gnv_min(left, ZERO_BYTES);
		left -= cmd->segs.iov_in[n].iov_len;
	}
	return gnv_uring_rw(server->ring, true, cmd->segs.iov_in, n, cmd->op.offset + cmd->done, -1, gnv_soft_is_durable(cmd), cmd);
}

/* Where a drive says nothing of deallocated blocks they read as zeroes or ones (NVM Command Set Specification, DLFEAT). */
static int issue_ones(struct gnv_soft_server *server, struct gnv_soft_cmd *cmd, const struct gpunvme_dsm_range *range)
{
	const unsigned shift = server->soft->ns.lba_shift;

	cmd->flat.iov_base = cmd->bounce + GNV_SOFT_RANGES;
	cmd->flat.iov_len = (size_t)gnv_min((uint64_t)range->nlb << shift, GNV_SOFT_FILL);
	return gnv_uring_rw(server->ring, true, &cmd->flat, 1, range->slba << shift, -1, false, cmd);
}

static int issue_dsm(struct gnv_soft_server *server, struct gnv_soft_cmd *cmd)
{
	const struct gpunvme_dsm_range *range = (const void *)cmd->bounce;
	unsigned shift = server->soft->ns.lba_shift;

	if (gnv_soft_has(&server->soft->config.traits, GNV_SOFT_UNSAID))
		return issue_ones(server, cmd, &range[cmd->done]);
	return gnv_uring_zero(server->ring, range[cmd->done].slba << shift, (uint64_t)range[cmd->done].nlb << shift, true, cmd);
}

void gnv_soft_issue(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;
	int ret = -EINVAL;

	switch (cmd->stage) {
	case GNV_SOFT_STAGE_RW:
	case GNV_SOFT_STAGE_COMPARE:
		ret = issue_rw(server, cmd);
		break;
	case GNV_SOFT_STAGE_ZERO:
		ret = gnv_uring_zero(server->ring, cmd->op.offset, cmd->op.len, cmd->op.deallocate, cmd);
		break;
	case GNV_SOFT_STAGE_FILL:
		ret = issue_fill(server, cmd);
		break;
	case GNV_SOFT_STAGE_DSM:
		ret = issue_dsm(server, cmd);
		break;
	case GNV_SOFT_STAGE_SYNC:
		ret = gnv_uring_sync(server->ring, cmd);
		break;
	}
	if (ret) {
		gnv_soft_finish(cmd, GPUNVME_SC_INTERNAL);
		return;
	}
	if (server->in_ring++ == 0)
		server->busy_since = gnv_soft_now();
}
