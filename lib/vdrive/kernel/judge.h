/* SPDX-License-Identifier: MIT */
/* Faults of the commands of a turn. A thread has one command, in the order of the queue, so a run of one queue can be repeated. */
#ifndef GNV_VDRIVE_JUDGE_H
#define GNV_VDRIVE_JUDGE_H

#include "vdrive/kernel/reach.h"

/* The action on a command, by gnv_soft_fault_judge(). */
struct fate {
	enum gnv_soft_action action;
	uint32_t number;
	uint16_t status;
};

/* Collective: number the threads with @yes, from the value of *count, which becomes larger by their number. */
static inline uint64_t take_number(uint64_t *count, bool yes)
{
	uint64_t first = 0;
	uint32_t all;
	const uint32_t rank = vd_rank(yes, &all);

	if (!all)
		return 0;
	if (vd_lane() == 0)
		first = __atomic_fetch_add(count, all, __ATOMIC_RELAXED);
	return vd_first64(first) + rank;
}

/* Collective: judge the command of each thread with @yes. */
static inline struct fate judge(struct gnv_soft_rules *rules, const struct gnv_soft_cmd *cmd, bool yes)
{
	struct fate fate = { GNV_SOFT_GO, 0, 0 };
	struct gnv_soft_rule *rule;
	uint32_t random = 0;
	uint64_t n;
	bool hit;

	for (rule = rules->rule; rule < rules->rule + rules->count; rule++) {
		hit = yes && gnv_soft_fault_is_for(rule, cmd->qid, &cmd->sqe);
		n = take_number(&rule->matched, hit);
		hit = hit && gnv_soft_fault_draw(rules, rule, n, &random);
		if (rule->count)
			hit = take_number(&rule->hits, hit) < rule->count && hit;
		if (hit)
			fate.action = gnv_soft_fault_befall(rule, random, &fate.status, &fate.number);
		yes = yes && !hit;
	}
	return fate;
}

/*
 * Collective: the faults of the commands that have begun. @hook: a test's function that judges in place of the rules.
 * @next: GNV_SOFT_STEP if the thread has such a command. Return: its next step.
 */
static VD_RARE enum gnv_soft_next meet_faults(uint64_t hook, struct gnv_soft_rules *rules, struct gnv_soft_cmd *cmd,
					      enum gnv_soft_next next)
{
	const bool begins = next == GNV_SOFT_STEP, yes = begins && !cmd->stalled;
	const uint64_t now = vd_first64(vd_now()); /* the same for all, so that those of one delay end in the order of the queue */
	struct fate fate = { GNV_SOFT_GO, 0, 0 };

	if (begins && cmd->stalled) { /* it has been judged already, and was taken shortly before its time */
		while (cmd->post_at > vd_now())
			;
		cmd->stalled = false;
		cmd->post_at = 0;
	}
	if (!hook)
		fate = judge(rules, cmd, yes);
	else if (yes)
		fate.action = vd_judge(hook, cmd, &fate.status, &fate.number);
	return fate.action == GNV_SOFT_GO ? next : gnv_soft_carry_out(cmd, fate.action, fate.status, fate.number, now);
}

#endif
