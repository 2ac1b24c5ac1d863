/* SPDX-License-Identifier: MIT */
/* Mishaps: which commands the rules of fault= and the hooks of tests pick, and what becomes of those. */
#include "soft/engine/threads.h"

#include <stdlib.h>

#include "util/bits.h"

/* ---- Judging ---- */

static bool touches(const struct gnv_soft_rule *rule, const struct gpunvme_sqe *cmd)
{
	uint64_t lba = cmd->cdw10 | (uint64_t)cmd->cdw11 << 32;

	if (!rule->first && rule->last == UINT64_MAX)
		return true;
	if (cmd->opc == GPUNVME_IO_FLUSH || cmd->opc == GPUNVME_IO_DSM)
		return false;
	return lba <= rule->last && lba + (cmd->cdw12 & GPUNVME_RW_NLB_0B) >= rule->first;
}

static bool matches(const struct gnv_soft_rule *rule, uint16_t sqid, const struct gpunvme_sqe *cmd)
{
	bool moves = cmd->opc == GPUNVME_IO_READ || cmd->opc == GPUNVME_IO_WRITE;

	if (rule->verdict >= GNV_SOFT_UNREADY || (rule->queue == GNV_SOFT_ANY ? !sqid : rule->queue != sqid))
		return false;
	if ((rule->verdict == GNV_SOFT_FLIP || rule->verdict == GNV_SOFT_STRAY) && !moves)
		return false;
	return (rule->op == GNV_SOFT_ANY || rule->op == cmd->opc) && (!sqid || touches(rule, cmd));
}

/* Is the next one that matches hit? *random is its own. */
static bool strikes(struct gnv_soft_rules *rules, struct gnv_soft_rule *rule, uint32_t *random)
{
	uint64_t n = __atomic_fetch_add(&rule->matched, 1, __ATOMIC_RELAXED);
	uint64_t drawn = gnv_mix(gnv_mix((uint64_t)rules->seed << 8 | (uint64_t)(rule - rules->rule)) + n);

	*random = (uint32_t)(drawn >> 32);
	if (n < rule->after || (uint32_t)drawn >= rule->p)
		return false;
	return __atomic_fetch_add(&rule->hits, 1, __ATOMIC_RELAXED) < rule->count || !rule->count;
}

enum gnv_soft_verdict gnv_soft_fault_judge(struct gnv_soft_rules *rules, uint16_t sqid, const struct gpunvme_sqe *cmd,
					   uint16_t *status, uint32_t *number)
{
	struct gnv_soft_rule *rule;
	uint32_t random;

	for (rule = rules->rule; rule < rules->rule + rules->count; rule++) {
		if (!matches(rule, sqid, cmd) || !strikes(rules, rule, &random))
			continue;
		*status = (uint16_t)rule->number;
		*number = rule->verdict == GNV_SOFT_FLIP ? random : rule->number;
		if (rule->verdict == GNV_SOFT_SHUFFLE)
			*number = random % (rule->number + 1);
		return rule->verdict;
	}
	return GNV_SOFT_GO;
}

enum gnv_soft_verdict gnv_soft_fault_judge_enable(struct gnv_soft_rules *rules, bool set)
{
	struct gnv_soft_rule *rule;
	uint32_t random;

	for (rule = rules->rule; rule < rules->rule + rules->count; rule++)
		if (rule->verdict >= GNV_SOFT_UNREADY && set == (rule->verdict != GNV_SOFT_HOLDS) && strikes(rules, rule, &random))
			return rule->verdict;
	return GNV_SOFT_GO;
}

/* ---- Carrying out ---- */

/* Its completion goes out now, and the command begins later, which nobody hears of. A full queue saves it. */
static bool complete_early(struct gnv_soft_cmd *cmd, uint32_t delay_us)
{
	if (!gnv_soft_post_copy(cmd))
		return true;
	cmd->verdict = GNV_SOFT_EARLY;
	cmd->stalled = true;
	cmd->post_at = gnv_soft_now() + (uint64_t)delay_us * 1000;
	return false;
}

/* A controller that stalls keeps no host from unmapping. */
static bool stall(struct gnv_soft_cmd *cmd, uint64_t until)
{
	cmd->stalled = until != UINT64_MAX;
	cmd->post_at = until;
	gnv_soft_segs_clear(&cmd->sq->server->dma, &cmd->data->segs);
	free(cmd->data->bounce);
	cmd->data->bounce = NULL;
	gnv_soft_park(cmd);
	return false;
}

static void move_away(struct gnv_soft_cmd *cmd, uint64_t blocks)
{
	const struct gnv_soft_ns *ns = &cmd->part->ns;
	uint64_t far = blocks << ns->lba_shift;

	if (cmd->op.offset + cmd->op.len + far <= ns->blocks << ns->lba_shift)
		cmd->op.offset += far;
	else if (cmd->op.offset >= far)
		cmd->op.offset -= far;
}

/* What only concerns the completion, or the I/O, is done there. Return: true when the command is executed now. */
static bool carry_out(struct gnv_soft_cmd *cmd, enum gnv_soft_verdict verdict, uint16_t status, uint32_t number)
{
	struct gnv_soft *soft = cmd->sq->server->soft;
	uint64_t later = gnv_soft_now() + (uint64_t)number * 1000;

	switch (verdict) {
	case GNV_SOFT_SKIP:
		status = 0; /* fall through */
	case GNV_SOFT_FAIL:
		gnv_soft_finish(cmd, status);
		return false;
	case GNV_SOFT_DELAY:
	case GNV_SOFT_SHUFFLE:
		cmd->post_at = later;
		return true;
	case GNV_SOFT_EARLY:
		return complete_early(cmd, number) || stall(cmd, later);
	case GNV_SOFT_STALL:
		return stall(cmd, later);
	case GNV_SOFT_STUCK:
		cmd->sq->stuck = true;
		return stall(cmd, UINT64_MAX);
	case GNV_SOFT_CFS:
	case GNV_SOFT_ONES:
		__atomic_store_n(&soft->io.doom, verdict, __ATOMIC_RELAXED);
		return stall(cmd, UINT64_MAX);
	case GNV_SOFT_DROP:
		return stall(cmd, UINT64_MAX);
	case GNV_SOFT_STRAY:
		move_away(cmd, number);
		return true;
	case GNV_SOFT_EVENT:
		gnv_soft_raise(soft, (enum gnv_soft_event)(number - 1));
		return true;
	default:
		cmd->verdict = verdict;
		cmd->number = number;
		return true;
	}
}

bool gnv_soft_meet(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;
	struct gnv_soft *soft = server->soft;
	enum gnv_soft_verdict verdict = GNV_SOFT_GO;
	uint16_t status = 0;
	uint32_t number = 0;

	if (cmd->stalled) { /* it was judged before */
		cmd->stalled = false;
		cmd->post_at = 0;
		return true;
	}
	if (!cmd->qid && soft->admin_fault.decide)
		verdict = soft->admin_fault.decide(soft->admin_fault.ctx, &cmd->sqe, &status);
	else if (cmd->qid && server->fault.decide)
		verdict = server->fault.decide(server->fault.ctx, cmd->qid, &cmd->sqe, &status, &number);
	else
		verdict = gnv_soft_fault_judge(&soft->config.rules, cmd->qid, &cmd->sqe, &status, &number);
	return verdict == GNV_SOFT_GO || carry_out(cmd, verdict, status, number);
}

int gnv_soft_mishap_io(struct gnv_soft_cmd *cmd, int res)
{
	uint32_t block = 1u << cmd->part->ns.lba_shift;

	if (cmd->verdict == GNV_SOFT_ERRNO)
		return -(int)cmd->number;
	if (cmd->verdict == GNV_SOFT_SHORT && !cmd->done && cmd->stage == GNV_SOFT_STAGE_RW && res >= (int)(2 * block))
		return res / 2 - (int)((uint32_t)res / 2 % block);
	return res;
}

void gnv_soft_mishap_data(const struct gnv_soft_cmd *cmd)
{
	uint64_t bit = cmd->number % (cmd->op.len * 8);

	if (cmd->verdict == GNV_SOFT_FLIP)
		cmd->data->bounce[bit / 8] = (char)(cmd->data->bounce[bit / 8] ^ 1 << bit % 8);
}

void gnv_soft_mishap_entry(const struct gnv_soft_cmd *cmd, uint32_t *dw2, uint32_t *dw3)
{
	switch (cmd->verdict) {
	case GNV_SOFT_CID:
		*dw3 ^= cmd->number;
		break;
	case GNV_SOFT_PHASE:
		*dw3 ^= 1u << 16;
		break;
	case GNV_SOFT_SQID:
		*dw2 ^= cmd->number << 16;
		break;
	case GNV_SOFT_SQHD:
		*dw2 ^= cmd->number;
		break;
	default:
		break;
	}
}
