/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "soft/state.h"
#include "util/bits.h"

#define BOUNCE_ALIGN 4096u

void gnv_soft_data_lost(const struct gnv_soft_cmd *cmd, const char *why)
{
	struct gnv_soft_server *server = cmd->sq->server;

	if (!server->lost_said)
		gnv_log(server->soft->log, GPUNVME_LOG_ERROR, "data does not reach its buffer (said once): %s", why);
	server->lost_said = true;
}

uint16_t gnv_soft_data_take(const struct gnv_soft_cmd *cmd, void *to, uint64_t len)
{
	uint16_t status = gnv_soft_segs_read(&cmd->sq->server->dma, &cmd->segs, to, (size_t)len);

	if (status)
		gnv_soft_data_lost(cmd, gpunvme_errmsg());
	return status;
}

uint16_t gnv_soft_data_give(const struct gnv_soft_cmd *cmd, const void *from, uint64_t len)
{
	uint16_t status = gnv_soft_segs_write(&cmd->sq->server->dma, &cmd->segs, from, (size_t)len);

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

	if (cmd->stage == GNV_SOFT_STAGE_COMPARE || (cmd->segs.far && !store->reaches_far))
		return true;
	if (!store->mem_align)
		return false;
	for (i = 0; i < cmd->segs.count; i++)
		if (((uintptr_t)cmd->segs.iov[i].iov_base & mem) || (cmd->segs.iov[i].iov_len & len))
			return true;
	return false;
}

uint16_t gnv_soft_data_room(struct gnv_soft_cmd *cmd, uint64_t len)
{
	cmd->bounce = aligned_alloc(BOUNCE_ALIGN, (size_t)gnv_align_up(len, BOUNCE_ALIGN));
	return cmd->bounce ? 0 : GPUNVME_SC_INTERNAL;
}

/* All that a drive does not read it is given; of the other stores Compare has its data taken when what is stored has been read. */
uint16_t gnv_soft_data_fill(struct gnv_soft_cmd *cmd)
{
	const bool gives = cmd->stage == GNV_SOFT_STAGE_WHOLE ? cmd->op.opc != GPUNVME_IO_READ : cmd->op.opc == GPUNVME_IO_WRITE;
	uint16_t status = gnv_soft_data_room(cmd, cmd->op.data_len);

	return !status && gives ? gnv_soft_data_take(cmd, cmd->bounce, cmd->op.data_len) : status;
}
