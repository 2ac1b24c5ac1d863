/* SPDX-License-Identifier: MIT */
/*
 * Blocks in a regular file or a block device, by io_uring: a ring for each server thread, touched by that thread only, one request
 * for a step, and the memory that is registered with the ring.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/file.h"
#include "os/linux/sys.h"
#include "soft/state.h"
#include "util/bits.h"

#define REGISTER_AFTER 64u	  /* uses of a mapping before it is worth pinning */
#define REGISTER_MAX (1ull << 30) /* the kernel's limit for one buffer */
#define VECTORS_MAX 1024u /* the kernel's, UIO_MAXIOV; what lies behind them is asked for next */
#define ZERO_BYTES 65536u

static char zeroes[ZERO_BYTES] __attribute__((aligned(4096))); /* never written */

struct store_file {
	struct gnv_soft_store store;
	struct gnv_os_file file;
};

static struct store_file *file_of(struct gnv_soft_store *store)
{
	return gnv_container_of(store, struct store_file, store);
}

/* ---- Opening ---- */

static bool file_owns(const char *address)
{
	(void)address;
	return true;
}

/* What opening the image could not make sure of. */
static void warn_of_file(const struct gnv_os_file *file, const struct gnv_log *log, const char *path, uint32_t block)
{
	if (!file->direct && file->sector > block)
		gnv_log(log, GPUNVME_LOG_WARN,
			"%s: its blocks have %u bytes, so blocks of %u go through the page cache, and a write to one reads the rest; use lba=%u",
			path, file->sector, block, file->sector);
	else if (!file->direct)
		gnv_log(log, GPUNVME_LOG_INFO, "%s: it has no direct I/O for blocks of %u bytes; they go through the page cache", path, block);
	if (file->unseen)
		gnv_log(log, GPUNVME_LOG_WARN,
			"%s: %u processes could not be looked at, and one may have it open; root sees them all", path, file->unseen);
	if (file->unlocked)
		gnv_log(log, GPUNVME_LOG_WARN, "%s: its file system has no locks (%s), so nobody keeps a second writer away", path,
			strerror(file->unlocked));
}

static int file_open(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store)
{
	struct store_file *sf = calloc(1, sizeof(*sf));
	struct gnv_os_file *file;
	int ret;

	if (!sf)
		return gnv_fail(-ENOMEM, "out of memory");
	file = &sf->file;
	ret = gnv_os_file_open(config->path, config->lba_size, config->read_only, file);
	if (ret) {
		free(sf);
		return ret;
	}
	warn_of_file(file, log, config->path, config->lba_size);
	sf->store = (struct gnv_soft_store){ .ops = &gnv_soft_store_file,
					     .size = file->size,
					     .id = { file->dev, file->ino },
					     .mem_align = file->direct ? file->mem_align : 0,
					     .len_align = file->direct ? file->len_align : 0,
					     .read_only = file->read_only };
	*store = &sf->store;
	return 0;
}

static void file_close(struct gnv_soft_store *store)
{
	gnv_os_file_close(&file_of(store)->file);
	free(file_of(store));
}

static int file_sync(struct gnv_soft_store *store)
{
	return store->read_only ? 0 : gnv_os_file_sync(&file_of(store)->file);
}

/* ---- Threads ---- */

/* The ring is opened here because a ring with a single issuer belongs to the thread that opens it. */
static int file_attach(struct gnv_soft_server *server)
{
	return gnv_uring_open(GNV_SOFT_CMDS, GNV_SOFT_SPACE_SLOTS, file_of(server->soft->store)->file.fd, &server->ring);
}

static int file_explain(int error)
{
	if (error == -EPERM)
		return gnv_fail(-EOPNOTSUPP,
				"io_uring is switched off for this process; look at the sysctl kernel.io_uring_disabled and at "
				"the seccomp profile of the container");
	if (error == -EOPNOTSUPP)
		return gnv_fail(error, "this kernel has no io_uring that the soft controller can use; it needs Linux 5.11 or later");
	if (error == -ENOMEM && gnv_sys_lock_limit() != UINT64_MAX)
		return gnv_fail(error,
				"no memory for io_uring, whose rings count as locked memory, of which this user may have %llu KiB; raise "
				"RLIMIT_MEMLOCK (ulimit -l)",
				(unsigned long long)gnv_sys_lock_limit() / 1024);
	return 0;
}

static void file_detach(struct gnv_soft_server *server)
{
	gnv_uring_close(server->ring);
}

static int file_submit(struct gnv_soft_server *server)
{
	return gnv_uring_submit(server->ring);
}

static unsigned file_take_back(struct gnv_soft_server *server, void **cmd, unsigned max)
{
	return gnv_uring_take_back(server->ring, cmd, max);
}

static unsigned file_reap(struct gnv_soft_server *server, struct gnv_uring_done *done, unsigned max)
{
	return gnv_uring_reap(server->ring, done, max);
}

static void file_wait(struct gnv_soft_server *server, unsigned usec)
{
	gnv_uring_wait(server->ring, usec);
}

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

static void file_tidy(struct gnv_soft_server *server)
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

static int file_start(struct gnv_soft_server *server, struct gnv_soft_cmd *cmd)
{
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
	return ret ? -ENOBUFS : GNV_SOFT_LATER;
}

const struct gnv_soft_store_ops gnv_soft_store_file = {
	.name = "file",
	.owns = file_owns,
	.open = file_open,
	.close = file_close,
	.sync = file_sync,
	.attach = file_attach,
	.explain = file_explain,
	.detach = file_detach,
	.start = file_start,
	.submit = file_submit,
	.take_back = file_take_back,
	.reap = file_reap,
	.wait = file_wait,
	.tidy = file_tidy,
};
