/* SPDX-License-Identifier: MIT */
#include "soft/store/data.h"

#include <stdlib.h>
#include <string.h>

#include "soft/core/controller.h"
#include "util/bits.h"
#include "util/log.h"

#define BOUNCE_ALIGN 4096u

/* Said once. */
static void lost(const struct gnv_soft_cmd *cmd, const char *why)
{
	struct gnv_soft_dma *dma = cmd->data->dma;

	if (!dma->lost_said)
		gnv_log(dma->log, GPUNVME_LOG_ERROR, "data does not reach its buffer (said once): %s", why);
	dma->lost_said = true;
}

void gnv_soft_data_lost(struct gnv_soft_cmd *cmd)
{
	lost(cmd, cmd->data->segs.far ? gpunvme_errmsg() : "it was freed while it was mapped. Call gpunvme_mem_free() first");
}

/* ---- Pieces of memory of the host ---- */

uint16_t gnv_soft_data_map(struct gnv_soft_cmd *cmd, uint64_t len)
{
	cmd->data->seg = 0;
	return gnv_soft_dptr(cmd->io, cmd->data->dma, &cmd->sqe, len, &cmd->data->segs);
}

void gnv_soft_data_drop(struct gnv_soft_cmd *cmd)
{
	gnv_soft_segs_clear(cmd->data->dma, &cmd->data->segs);
	free(cmd->data->bounce);
	cmd->data->bounce = NULL;
	cmd->apart = false;
}

/* Skip the vectors that are done. The kernel may stop anywhere. */
void gnv_soft_data_advance(struct gnv_soft_cmd *cmd, size_t bytes)
{
	struct gnv_soft_data *data = cmd->data;
	struct iovec *iov;

	while (bytes) {
		iov = &data->segs.iov[data->seg];
		if (bytes < iov->iov_len) {
			iov->iov_base = (char *)iov->iov_base + bytes;
			iov->iov_len -= bytes;
			return;
		}
		bytes -= iov->iov_len;
		data->seg++;
	}
}

static uint16_t take(const struct gnv_soft_cmd *cmd, void *to, uint64_t len)
{
	uint16_t status = gnv_soft_segs_read(cmd->data->dma, &cmd->data->segs, to, (size_t)len);

	if (status)
		lost(cmd, gpunvme_errmsg());
	return status;
}

/* ---- Memory of the controller's own ---- */

/* Direct I/O needs aligned pieces of the host's own memory, and a host may have others. Compare runs here, or in a drive. */
bool gnv_soft_data_must_be_apart(const struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_store *store = cmd->part->store;
	const uintptr_t mem = store->mem_align - 1, len = store->len_align - 1;
	unsigned i;

	if (cmd->stage == GNV_SOFT_STAGE_COMPARE || (cmd->data->segs.far && !store->reaches_far))
		return true;
	if (!store->mem_align)
		return false;
	for (i = 0; i < cmd->data->segs.count; i++)
		if (((uintptr_t)cmd->data->segs.iov[i].iov_base & mem) || (cmd->data->segs.iov[i].iov_len & len))
			return true;
	return false;
}

static uint16_t room(struct gnv_soft_cmd *cmd, uint64_t len)
{
	cmd->data->bounce = aligned_alloc(BOUNCE_ALIGN, (size_t)gnv_align_up(len, BOUNCE_ALIGN));
	cmd->apart = cmd->data->bounce;
	return cmd->apart ? 0 : GPUNVME_SC_INTERNAL;
}

/*
 * Copy the host's data for a write, or for any command of a drive that takes data. Without a drive, Compare fetches it after the
 * read.
 */
uint16_t gnv_soft_data_fill(struct gnv_soft_cmd *cmd)
{
	const bool gives = cmd->stage == GNV_SOFT_STAGE_WHOLE ? cmd->op.opc != GPUNVME_IO_READ : cmd->op.opc == GPUNVME_IO_WRITE;
	uint16_t status = room(cmd, cmd->op.data_len);

	return !status && gives ? take(cmd, cmd->data->bounce, cmd->op.data_len) : status;
}

uint16_t gnv_soft_data_hand_over(struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_data *data = cmd->data;
	const uint16_t status = gnv_soft_segs_write(data->dma, &data->segs, data->bounce, (size_t)cmd->op.len);

	if (status)
		lost(cmd, gpunvme_errmsg());
	return status;
}

uint16_t gnv_soft_data_compare(struct gnv_soft_cmd *cmd)
{
	char *given = malloc((size_t)cmd->op.len);
	uint16_t status = given ? take(cmd, given, cmd->op.len) : GPUNVME_SC_INTERNAL;

	if (!status && memcmp(cmd->data->bounce, given, (size_t)cmd->op.len))
		status = GPUNVME_SC_COMPARE_FAILURE;
	free(given);
	return status;
}

void gnv_soft_data_flip(struct gnv_soft_cmd *cmd, uint64_t bit)
{
	char *at = &cmd->data->bounce[bit / 8];

	*at = (char)(*at ^ 1 << bit % 8);
}

/* The bytes after the ranges overwrite deallocated blocks, on a drive that does not report how these read. */
uint16_t gnv_soft_data_take_ranges(struct gnv_soft_cmd *cmd)
{
	const unsigned ones = gnv_soft_has(cmd->io->quirks, GNV_SOFT_UNSAID) ? GNV_SOFT_FILL : 0;
	const uint16_t status = room(cmd, GNV_SOFT_RANGES + ones);

	if (status)
		return status;
	memset(cmd->data->bounce + GNV_SOFT_RANGES, 0xff, ones);
	return take(cmd, cmd->data->bounce, cmd->op.data_len);
}

const struct gpunvme_dsm_range *gnv_soft_data_ranges(const struct gnv_soft_cmd *cmd)
{
	return (const void *)cmd->data->bounce;
}

/* ---- Data of admin commands ---- */

uint16_t gnv_soft_reply(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, const void *data, size_t len, uint64_t want)
{
	struct gnv_soft_dma *dma = cmd->data->dma;
	uint16_t status = gnv_soft_dptr(&soft->io, dma, &cmd->sqe, want, &cmd->data->segs);
	char *reply;

	if (status)
		return status;
	reply = calloc(1, (size_t)want);
	if (!reply)
		return GPUNVME_SC_INTERNAL;
	memcpy(reply, data, gnv_min(len, want));
	status = gnv_soft_segs_write(dma, &cmd->data->segs, reply, (size_t)want);
	free(reply);
	return status;
}

uint16_t gnv_soft_receive(struct gnv_soft_cmd *cmd, void *to, size_t len)
{
	const uint16_t status = gnv_soft_dptr(cmd->io, cmd->data->dma, &cmd->sqe, len, &cmd->data->segs);

	return status ? status : gnv_soft_segs_read(cmd->data->dma, &cmd->data->segs, to, len);
}
