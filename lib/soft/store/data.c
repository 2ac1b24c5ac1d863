/* SPDX-License-Identifier: MIT */
#include "soft/store/data.h"

#include <stdlib.h>
#include <string.h>

#include "soft/core/controller.h"
#include "util/bits.h"
#include "util/log.h"

#define BOUNCE_ALIGN 4096u

void gnv_soft_data_lost(const struct gnv_soft_cmd *cmd, const char *why)
{
	struct gnv_soft_dma *dma = cmd->data->dma;

	if (!dma->lost_said)
		gnv_log(dma->log, GPUNVME_LOG_ERROR, "data does not reach its buffer (said once): %s", why);
	dma->lost_said = true;
}

uint16_t gnv_soft_data_take(const struct gnv_soft_cmd *cmd, void *to, uint64_t len)
{
	uint16_t status = gnv_soft_segs_read(cmd->data->dma, &cmd->data->segs, to, (size_t)len);

	if (status)
		gnv_soft_data_lost(cmd, gpunvme_errmsg());
	return status;
}

uint16_t gnv_soft_data_give(const struct gnv_soft_cmd *cmd, const void *from, uint64_t len)
{
	uint16_t status = gnv_soft_segs_write(cmd->data->dma, &cmd->data->segs, from, (size_t)len);

	if (status)
		gnv_soft_data_lost(cmd, gpunvme_errmsg());
	return status;
}

/* Direct I/O wants aligned pieces of the host's own memory; a host may have others. Compare is carried out here, or by a drive. */
bool gnv_soft_data_apart(const struct gnv_soft_cmd *cmd)
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

uint16_t gnv_soft_data_room(struct gnv_soft_cmd *cmd, uint64_t len)
{
	cmd->data->bounce = aligned_alloc(BOUNCE_ALIGN, (size_t)gnv_align_up(len, BOUNCE_ALIGN));
	return cmd->data->bounce ? 0 : GPUNVME_SC_INTERNAL;
}

/* All that a drive does not read it is given; of the other stores Compare has its data taken when what is stored has been read. */
uint16_t gnv_soft_data_fill(struct gnv_soft_cmd *cmd)
{
	const bool gives = cmd->stage == GNV_SOFT_STAGE_WHOLE ? cmd->op.opc != GPUNVME_IO_READ : cmd->op.opc == GPUNVME_IO_WRITE;
	uint16_t status = gnv_soft_data_room(cmd, cmd->op.data_len);

	return !status && gives ? gnv_soft_data_take(cmd, cmd->data->bounce, cmd->op.data_len) : status;
}

/* ---- Data of admin commands ---- */

uint16_t gnv_soft_reply(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, const void *data, size_t len, uint64_t want)
{
	struct gnv_soft_dma *dma = cmd->data->dma;
	uint16_t status = gnv_soft_dptr(dma, &cmd->sqe, soft->io.page, want, &cmd->data->segs);
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
	const uint16_t status = gnv_soft_dptr(cmd->data->dma, &cmd->sqe, cmd->io->page, len, &cmd->data->segs);

	return status ? status : gnv_soft_segs_read(cmd->data->dma, &cmd->data->segs, to, len);
}
