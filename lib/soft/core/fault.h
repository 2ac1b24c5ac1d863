/* SPDX-License-Identifier: MIT */
/*
 * Faults of a software controller: `fault=` in its URI. One table of words drives parser and list. A word is a state of the drive
 * (soft/core/fault_quirk.h) or a rule: an action, its number, and its conditions.
 *
 * A rule counts the commands that match it, and decides by that number and the seed. So each run hits the same ones.
 */
#ifndef GNV_SOFT_FAULT_H
#define GNV_SOFT_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "soft/core/fault_quirk.h"

/* The action on a command. "number" is the rule's, or the delay from a hook. */
enum gnv_soft_action {
	GNV_SOFT_GO,	  /* execute it */
	GNV_SOFT_FAIL,	  /* complete it with *status, without I/O */
	GNV_SOFT_DELAY,	  /* execute it, and post its completion no sooner than `number` us later */
	GNV_SOFT_DROP,	  /* never complete it (until abort, queue deletion or reset) */
	GNV_SOFT_SKIP,	  /* complete it with success, without I/O */
	GNV_SOFT_STALL,	  /* begin its I/O, from the look-up of its addresses on, no sooner than `number` us later */
	GNV_SOFT_SHUFFLE, /* as DELAY, for a time up to `number` us that differs */
	GNV_SOFT_TWICE,	  /* its completion is posted again, number microseconds later */
	GNV_SOFT_EARLY,	  /* complete it with success, and begin its I/O `number` us later */
	GNV_SOFT_TORN,	  /* the dword with the phase is written `number` us before the other three */
	GNV_SOFT_CID,	  /* `number` is XORed into the CID of the completion, */
	GNV_SOFT_SQID,	  /* into its SQID, */
	GNV_SOFT_SQHD,	  /* into its SQHD, */
	GNV_SOFT_PHASE,	  /* or its phase is that of the lap before */
	GNV_SOFT_FLIP,	  /* one bit of its data is another */
	GNV_SOFT_STRAY,	  /* it moves the blocks `number` further */
	GNV_SOFT_SHORT,	  /* its first I/O moves half of the data */
	GNV_SOFT_ERRNO,	  /* its I/O ends with the errno `number` */
	GNV_SOFT_STUCK,	  /* never complete it, and take nothing more from its queue until that is deleted */
	GNV_SOFT_CFS,	  /* the controller stops, and reports that by CSTS.CFS */
	GNV_SOFT_ONES,	  /* the controller is gone: its registers are all ones from now on */
	GNV_SOFT_EVENT,	  /* execute it, and raise the asynchronous event `number` */
	GNV_SOFT_UNREADY, /* as the stubborn of soft.h, in each CC.EN that is set */
	GNV_SOFT_DIES,
	GNV_SOFT_HOLDS	  /* ... or cleared */
};

/* Flag in a status: send it unchanged. Without it, DNR is set where a retry is of no use. */
#define GNV_SOFT_AS_IS 0x8000u

#define GNV_SOFT_RULES 16u
#define GNV_SOFT_ANY 0xffffu

struct gnv_soft_rule {
	enum gnv_soft_action action;
	uint32_t number; /* of FAIL: the status, and GNV_SOFT_AS_IS */
	uint16_t op;	 /* opcode, or GNV_SOFT_ANY */
	uint16_t queue;	 /* GNV_SOFT_ANY: each but the admin queue */
	uint64_t first, last; /* the blocks. The whole range matches any command, also one without blocks */
	uint64_t p;	 /* of 2^32 */
	uint64_t after, count; /* matches that are skipped, and most hits, or 0: no limit */
	uint64_t matched, hits; /* atomic. Hits are counted if count limits them */
};

struct gnv_soft_rules {
	uint32_t count, seed;
	struct gnv_soft_rule rule[GNV_SOFT_RULES];
};

/* Return: 0; -EINVAL; gnv_fail() has the message. @quirks and @rules are added to. */
int gnv_soft_fault_parse(const char *text, struct gnv_soft_quirks *quirks, struct gnv_soft_rules *rules);

/*
 * gnv_soft_fault_judge() - find the action of the first rule that hits a command
 * @status, @number: of the action, from the rule. SHUFFLE and FLIP get a random number
 */
enum gnv_soft_action gnv_soft_fault_judge(struct gnv_soft_rules *rules, uint16_t sqid, const struct gpunvme_sqe *cmd,
					   uint16_t *status, uint32_t *number);

/*
 * Its parts, for an engine that checks many commands at once. For each rule, in the order of the queue, it numbers the commands
 * that match the rule and that no earlier rule has hit.
 */
bool gnv_soft_fault_is_for(const struct gnv_soft_rule *rule, uint16_t sqid, const struct gpunvme_sqe *cmd);
/* @n: the number, from 0. Return: the rule hits it, unless it has hit rule->count others. */
bool gnv_soft_fault_draw(const struct gnv_soft_rules *rules, const struct gnv_soft_rule *rule, uint64_t n, uint32_t *random);
/* Return: the action, as gnv_soft_fault_judge(). */
enum gnv_soft_action gnv_soft_fault_befall(const struct gnv_soft_rule *rule, uint32_t random, uint16_t *status, uint32_t *number);

/* The same for CC.EN, which the host has just set or cleared: GO, UNREADY, DIES, HOLDS. */
enum gnv_soft_action gnv_soft_fault_judge_enable(struct gnv_soft_rules *rules, bool set);

/*
 * Fault injection by a function, for tests and benchmarks, in place of the rules: called by a thread of the engine for each I/O
 * command after its checks, before its I/O. The action is carried out by the controller.
 */
struct gnv_soft_fault {
	enum gnv_soft_action (*decide)(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us);
	void *ctx;
};

/* The same for each admin command, whose actions have no number: GNV_SOFT_GO, _FAIL and _DROP. */
struct gnv_soft_admin_fault {
	enum gnv_soft_action (*decide)(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status);
	void *ctx;
};

/* Wrong behaviour of registers, until the next function reset or, if that does not help, until the end. */
enum gnv_soft_stubborn {
	GNV_SOFT_WILLING,
	GNV_SOFT_DEAF,      /* CC.EN that is cleared changes nothing: the controller goes on */
	GNV_SOFT_NOT_READY, /* CC.EN that is set changes nothing */
	GNV_SOFT_FAILS      /* CC.EN that is set sets CSTS.CFS */
};

#endif
