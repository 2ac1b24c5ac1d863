/* SPDX-License-Identifier: MIT */
/* Blocks in a regular file or a block device, by io_uring (ring.h): one request for a step. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/file.h"
#include "soft/store/ring.h"
#include "util/bits.h"

#define VECTORS_MAX 1024u /* the kernel's UIO_MAXIOV. The rest is requested next */
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

/* Warn of conditions that opening the image could not ensure. */
static void warn_of_file(const struct gnv_os_file *file, const struct gnv_log *log, const char *path, uint32_t block)
{
	if (!file->direct && file->sector > block)
		gnv_log(log, GPUNVME_LOG_WARN,
			"%s: its blocks have %u bytes, so blocks of %u go through the page cache, and a write to one reads the rest. Use lba=%u",
			path, file->sector, block, file->sector);
	else if (!file->direct)
		gnv_log(log, GPUNVME_LOG_INFO, "%s: it has no direct I/O for blocks of %u bytes, which go through the page cache", path, block);
	if (file->unseen)
		gnv_log(log, GPUNVME_LOG_WARN,
			"%s: %u processes could not be checked, and one may have it open: run as root to check all", path, file->unseen);
	if (file->unheld[0])
		gnv_log(log, GPUNVME_LOG_WARN,
			"%s: a disk or file that shares its data could not be held, so another process may use it: %s", path,
			file->unheld);
	if (file->no_holes)
		gnv_log(log, GPUNVME_LOG_INFO, "%s: it has no holes, so blocks that are deallocated keep their data", path);
	if (file->overlay)
		gnv_log(log, file->read_only ? GPUNVME_LOG_INFO : GPUNVME_LOG_WARN,
			"%s is on an overlay file system: its lock does not keep away a writer of the same file in a layer below. Open "
			"it by this name alone, or keep it on its own volume",
			path);
	if (file->unlocked)
		gnv_log(log, GPUNVME_LOG_WARN, "%s: its file system has no locks (%s), so a second writer is not kept away", path,
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
					     .medium = { file->block ? GPUNVME_MEDIUM_BLOCK : GPUNVME_MEDIUM_FILE, file->dev, file->ino },
					     .id = { file->dev, file->ino },
					     .mem_align = file->direct ? file->mem_align : 0,
					     .len_align = file->direct ? file->len_align : 0,
					     .read_only = file->read_only,
					     .keeps_old = file->no_holes };
	*store = &sf->store;
	return 0;
}

static void file_close(struct gnv_soft_store *store)
{
	gnv_os_file_close(&file_of(store)->file);
	free(file_of(store));
}

/* ---- Threads ---- */

/* The ring is opened here because a ring with a single issuer belongs to the thread that opens it. */
static int file_attach(struct gnv_soft_seat *seat)
{
	int ret = gnv_soft_ring_attach(seat);

	if (!ret)
		ret = gnv_uring_open(GNV_SOFT_CMDS, GNV_SOFT_SPACE_SLOTS, file_of(seat->store)->file.fd, &seat->ring);
	if (ret)
		gnv_soft_ring_detach(seat);
	return ret;
}

/* ---- Handing one step of a command to io_uring ---- */

static int issue_rw(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd)
{
	bool write = cmd->op.opc == GPUNVME_IO_WRITE;
	const struct iovec *iov = &cmd->data->segs.iov[cmd->data->seg];
	unsigned count = (unsigned)gnv_min(cmd->data->segs.count - cmd->data->seg, VECTORS_MAX);
	int buffer = -1;

	if (cmd->data->bounce) {
		cmd->data->flat.iov_base = cmd->data->bounce + cmd->done;
		cmd->data->flat.iov_len = (size_t)(cmd->op.len - cmd->done);
		iov = &cmd->data->flat;
		count = 1;
	} else if (cmd->data->segs.count == 1) {
		buffer = gnv_soft_ring_buffer(seat, cmd);
	}
	return gnv_uring_rw(seat->ring, write, iov, count, cmd->op.offset + cmd->done, buffer, write && gnv_soft_is_durable(cmd),
			    cmd);
}

/* Write Zeroes has no segments, so their room holds the vectors. */
static int issue_fill(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd)
{
	uint64_t left = cmd->op.len - cmd->done;
	unsigned n;

	for (n = 0; n < GNV_SOFT_SEGS && left; n++) {
		cmd->data->segs.iov_in[n].iov_base = zeroes;
		cmd->data->segs.iov_in[n].iov_len = (size_t)gnv_min(left, ZERO_BYTES);
		left -= cmd->data->segs.iov_in[n].iov_len;
	}
	return gnv_uring_rw(seat->ring, true, cmd->data->segs.iov_in, n, cmd->op.offset + cmd->done, -1, gnv_soft_is_durable(cmd), cmd);
}

/* Without a report of the drive, deallocated blocks read as zeroes or ones (NVM Command Set Specification, DLFEAT). */
static int issue_ones(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd, const struct gpunvme_dsm_range *range)
{
	const unsigned shift = cmd->part->ns.lba_shift;

	cmd->data->flat.iov_base = cmd->data->bounce + GNV_SOFT_RANGES;
	cmd->data->flat.iov_len = (size_t)gnv_min((uint64_t)range->nlb << shift, GNV_SOFT_FILL);
	return gnv_uring_rw(seat->ring, true, &cmd->data->flat, 1, range->slba << shift, -1, false, cmd);
}

static int issue_dsm(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd)
{
	const struct gpunvme_dsm_range *range = (const void *)cmd->data->bounce;
	unsigned shift = cmd->part->ns.lba_shift;

	if (gnv_soft_has(cmd->io->quirks, GNV_SOFT_UNSAID))
		return issue_ones(seat, cmd, &range[cmd->done]);
	return gnv_uring_zero(seat->ring, range[cmd->done].slba << shift, (uint64_t)range[cmd->done].nlb << shift, true, cmd);
}

static int file_start(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd)
{
	int ret = -EINVAL;

	switch (cmd->stage) {
	case GNV_SOFT_STAGE_RW:
	case GNV_SOFT_STAGE_COMPARE:
		ret = issue_rw(seat, cmd);
		break;
	case GNV_SOFT_STAGE_ZERO:
		ret = gnv_uring_zero(seat->ring, cmd->op.offset, cmd->op.len, cmd->op.deallocate, cmd);
		break;
	case GNV_SOFT_STAGE_FILL:
		ret = issue_fill(seat, cmd);
		break;
	case GNV_SOFT_STAGE_DSM:
		ret = issue_dsm(seat, cmd);
		break;
	case GNV_SOFT_STAGE_WHOLE: /* that is for a drive */
		break;
	case GNV_SOFT_STAGE_SYNC:
		ret = gnv_uring_sync(seat->ring, cmd);
		break;
	}
	return ret ? -ENOBUFS : GNV_SOFT_LATER;
}

const struct gnv_soft_store_ops gnv_soft_store_file = {
	.name = "file",
	.owns = file_owns,
	.open = file_open,
	.close = file_close,
	.attach = file_attach,
	.explain = gnv_soft_ring_explain,
	.detach = gnv_soft_ring_detach,
	.start = file_start,
	.submit = gnv_soft_ring_submit,
	.take_back = gnv_soft_ring_take_back,
	.reap = gnv_soft_ring_reap,
	.wait = gnv_soft_ring_wait,
	.tidy = gnv_soft_ring_tidy,
};
