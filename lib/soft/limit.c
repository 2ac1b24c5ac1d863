/* SPDX-License-Identifier: MIT */
/*
 * Drives that do not take what every host may ask of them: one command at a time, identifiers that are few or one for all queues,
 * a last power state that they do not leave. That they exist stands in Linux 7 (drivers/nvme/host/pci.c, nvme_pci_enable() of
 * 106b:2001; nvme.h, NVME_QUIRK_SHARED_TAGS and NVME_QUIRK_SKIP_CID_GEN, of 106b:2005, NVME_QUIRK_NO_DEEPEST_PS): they reset
 * themselves, lose data or are not heard of again. That they die of it (CSTS.CFS) is guessed.
 */
#include "soft/engine/threads.h"

#define LIMITS \
	(1ull << GNV_SOFT_ONE_COMMAND | 1ull << GNV_SOFT_SHARED_TAGS | 1ull << GNV_SOFT_FEW_CIDS | 1ull << GNV_SOFT_NO_WAKE)

static bool is_limited(const struct gnv_soft *soft)
{
	return soft->config.traits.set & LIMITS;
}

static uint32_t bit_of(const struct gnv_soft_cmd *cmd)
{
	return 1u << cmd->sqe.cid % 32;
}

/* What the drive does not take is counted all the same: it ends with the reset that ends all. */
static bool is_too_much(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_traits *traits = &soft->config.traits;
	const uint32_t io = cmd->qid != 0, before = __atomic_fetch_add(&soft->io.flying, io, __ATOMIC_RELAXED);
	const uint32_t same = __atomic_fetch_or(&soft->io.tags[cmd->sqe.cid / 32], bit_of(cmd), __ATOMIC_RELAXED) & bit_of(cmd);

	cmd->counted = true;
	if (same && gnv_soft_has(traits, GNV_SOFT_SHARED_TAGS))
		return true;
	if (io && gnv_soft_has(traits, GNV_SOFT_NO_WAKE) && __atomic_load_n(&soft->io.apst, __ATOMIC_RELAXED))
		return true;
	if (io && before && gnv_soft_has(traits, GNV_SOFT_ONE_COMMAND))
		return true;
	return io && gnv_soft_has(traits, GNV_SOFT_FEW_CIDS) && cmd->sqe.cid >= traits->number[GNV_SOFT_FEW_CIDS];
}

/* The first command for its blocks ends its sleep. */
static void wake(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft *soft = cmd->sq->server->soft;

	if (cmd->qid && __atomic_load_n(&soft->io.asleep, __ATOMIC_RELAXED) && __atomic_exchange_n(&soft->io.asleep, 0, __ATOMIC_RELAXED))
		cmd->post_at = gnv_soft_now() + soft->config.traits.number[GNV_SOFT_SLOW_WAKE] * 1000ull;
}

bool gnv_soft_enter(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft *soft = cmd->sq->server->soft;

	wake(cmd);
	if (!is_limited(soft) || !is_too_much(soft, cmd))
		return true;
	__atomic_store_n(&soft->io.doom, GNV_SOFT_CFS, __ATOMIC_RELAXED);
	cmd->post_at = UINT64_MAX;
	gnv_soft_park(cmd);
	return false;
}

void gnv_soft_leave(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft *soft = cmd->sq->server->soft;

	if (!cmd->counted)
		return;
	cmd->counted = false;
	__atomic_fetch_sub(&soft->io.flying, cmd->qid != 0, __ATOMIC_RELAXED);
	__atomic_fetch_and(&soft->io.tags[cmd->sqe.cid / 32], ~bit_of(cmd), __ATOMIC_RELAXED);
}
