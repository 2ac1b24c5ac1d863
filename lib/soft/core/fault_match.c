/* SPDX-License-Identifier: MIT */
/* Which commands, and which changes of CC.EN, the rules of fault= pick. */
#include "soft/core/fault.h"

#include "util/bits.h"

static bool touches(const struct gnv_soft_rule *rule, const struct gpunvme_sqe *cmd)
{
	uint64_t lba = cmd->cdw10 | (uint64_t)cmd->cdw11 << 32;

	if (!rule->first && rule->last == UINT64_MAX)
		return true;
	if (cmd->opc == GPUNVME_IO_FLUSH || cmd->opc == GPUNVME_IO_DSM)
		return false;
	return lba <= rule->last && lba + (cmd->cdw12 & GPUNVME_RW_NLB_0B) >= rule->first;
}

bool gnv_soft_fault_is_for(const struct gnv_soft_rule *rule, uint16_t sqid, const struct gpunvme_sqe *cmd)
{
	bool moves = cmd->opc == GPUNVME_IO_READ || cmd->opc == GPUNVME_IO_WRITE;

	if (rule->action >= GNV_SOFT_UNREADY || (rule->queue == GNV_SOFT_ANY ? !sqid : rule->queue != sqid))
		return false;
	if ((rule->action == GNV_SOFT_FLIP || rule->action == GNV_SOFT_STRAY) && !moves)
		return false;
	return (rule->op == GNV_SOFT_ANY || rule->op == cmd->opc) && (!sqid || touches(rule, cmd));
}

/* One is added to n, because the mix of 0 is 0, which is less than any share. */
bool gnv_soft_fault_draw(const struct gnv_soft_rules *rules, const struct gnv_soft_rule *rule, uint64_t n, uint32_t *random)
{
	const uint64_t drawn = gnv_mix(gnv_mix((uint64_t)rules->seed << 8 | (uint64_t)(rule - rules->rule)) + n + 1);

	*random = (uint32_t)(drawn >> 32);
	return n >= rule->after && (uint32_t)drawn < rule->p;
}

enum gnv_soft_action gnv_soft_fault_befall(const struct gnv_soft_rule *rule, uint32_t random, uint16_t *status, uint32_t *number)
{
	*status = (uint16_t)rule->number;
	*number = rule->action == GNV_SOFT_FLIP ? random : rule->number;
	if (rule->action == GNV_SOFT_SHUFFLE)
		*number = random % (rule->number + 1);
	return rule->action;
}

/* Is the next one that matches hit? *random is its own. */
static bool strikes(struct gnv_soft_rules *rules, struct gnv_soft_rule *rule, uint32_t *random)
{
	const uint64_t n = __atomic_fetch_add(&rule->matched, 1, __ATOMIC_RELAXED);

	return gnv_soft_fault_draw(rules, rule, n, random) &&
	       (!rule->count || __atomic_fetch_add(&rule->hits, 1, __ATOMIC_RELAXED) < rule->count);
}

enum gnv_soft_action gnv_soft_fault_judge(struct gnv_soft_rules *rules, uint16_t sqid, const struct gpunvme_sqe *cmd,
					   uint16_t *status, uint32_t *number)
{
	struct gnv_soft_rule *rule;
	uint32_t random;

	for (rule = rules->rule; rule < rules->rule + rules->count; rule++)
		if (gnv_soft_fault_is_for(rule, sqid, cmd) && strikes(rules, rule, &random))
			return gnv_soft_fault_befall(rule, random, status, number);
	return GNV_SOFT_GO;
}

enum gnv_soft_action gnv_soft_fault_judge_enable(struct gnv_soft_rules *rules, bool set)
{
	struct gnv_soft_rule *rule;
	uint32_t random;

	for (rule = rules->rule; rule < rules->rule + rules->count; rule++)
		if (rule->action >= GNV_SOFT_UNREADY && set == (rule->action != GNV_SOFT_HOLDS) && strikes(rules, rule, &random))
			return rule->action;
	return GNV_SOFT_GO;
}
