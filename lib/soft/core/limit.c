/* SPDX-License-Identifier: MIT */
/*
 * Drives with less than the specification demands: one command at a time, few identifiers or one set for all queues, a last power
 * state that they do not leave. Linux 7 knows such drives (drivers/nvme/host/pci.c, nvme_pci_enable() of 106b:2001, and nvme.h,
 * NVME_QUIRK_SHARED_TAGS and NVME_QUIRK_SKIP_CID_GEN of 106b:2005, NVME_QUIRK_NO_DEEPEST_PS): they reset themselves, lose data or
 * disappear. That they die of it (CSTS.CFS) is a guess.
 */
#include "soft/core/io.h"

#define LIMITS \
	(1ull << GNV_SOFT_ONE_COMMAND | 1ull << GNV_SOFT_SHARED_TAGS | 1ull << GNV_SOFT_FEW_CIDS | 1ull << GNV_SOFT_NO_WAKE)

static bool is_limited(const struct gnv_soft_io *io)
{
	return io->quirks->set & LIMITS;
}

static uint32_t bit_of(const struct gnv_soft_cmd *cmd)
{
	return 1u << cmd->sqe.cid % 32;
}

/* Count also a command that is too much: the count ends with the reset. */
static bool is_too_much(struct gnv_soft_io *io, struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_quirks *quirks = io->quirks;
	const uint32_t one = cmd->qid != 0, before = __atomic_fetch_add(&io->flying, one, __ATOMIC_RELAXED);
	const uint32_t same = __atomic_fetch_or(&io->tags[cmd->sqe.cid / 32], bit_of(cmd), __ATOMIC_RELAXED) & bit_of(cmd);

	cmd->counted = true;
	if (same && gnv_soft_has(quirks, GNV_SOFT_SHARED_TAGS))
		return true;
	if (one && gnv_soft_has(quirks, GNV_SOFT_NO_WAKE) && __atomic_load_n(&io->apst, __ATOMIC_RELAXED))
		return true;
	if (one && before && gnv_soft_has(quirks, GNV_SOFT_ONE_COMMAND))
		return true;
	return one && gnv_soft_has(quirks, GNV_SOFT_FEW_CIDS) && cmd->sqe.cid >= quirks->number[GNV_SOFT_FEW_CIDS];
}

bool gnv_soft_enter(struct gnv_soft_cmd *cmd)
{
	if (!is_limited(cmd->io) || !is_too_much(cmd->io, cmd))
		return true;
	__atomic_store_n(&cmd->io->doom, GNV_SOFT_CFS, __ATOMIC_RELAXED);
	cmd->post_at = UINT64_MAX;
	return false;
}

void gnv_soft_leave(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_io *io = cmd->io;

	if (!cmd->counted)
		return;
	cmd->counted = false;
	__atomic_fetch_sub(&io->flying, cmd->qid != 0, __ATOMIC_RELAXED);
	__atomic_fetch_and(&io->tags[cmd->sqe.cid / 32], ~bit_of(cmd), __ATOMIC_RELAXED);
}
