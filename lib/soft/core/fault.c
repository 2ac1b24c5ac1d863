/* SPDX-License-Identifier: MIT */
#include "soft/core/fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunvme/unstable.h>

#include "util/bits.h"
#include "util/log.h"
#include "util/opts.h"

#define SECONDS_600 600000000u /* longer than hosts wait: Linux 30 s and 60 s (nvme/host/core.c, nvme_io_timeout, admin_timeout) */
#define BYTES (1u << 31)
#define P_DIGITS 24u

enum sort {
	STATE,
	POWER_OF_2, /* the number of a state */
	RULE,
	ANY_QUEUE, /* a rule that applies to admin commands, too */
	ENABLE,	   /* a rule that applies to no commands */
	SEED
};

static const struct word {
	const char *word, *number; /* NULL: it takes none */
	uint32_t max;
	enum sort sort;
	unsigned value; /* enum gnv_soft_quirk, or enum gnv_soft_action */
	const char *text;
} words[] = {
	{ "lists-round", "BYTES", 4096, POWER_OF_2, GNV_SOFT_LISTS_ROUND,
	  "looks for a PRP list at the multiple of BYTES below its address" },
	{ "lists-fail", "BYTES", BYTES, POWER_OF_2, GNV_SOFT_LISTS_FAIL,
	  "refuses a list that does not begin at a multiple of BYTES" },
	{ "lists-hang", "BYTES", BYTES, POWER_OF_2, GNV_SOFT_LISTS_HANG, "never ends a command with such a list" },
	{ "lists-at", "BYTES", 4095, STATE, GNV_SOFT_LISTS_AT,
	  "looks at the start of the page for a list that begins BYTES into it" },
	{ "lists-half", NULL, 0, STATE, GNV_SOFT_LISTS_HALF, "goes on at the start of the page where a list runs over its middle" },
	{ "sgl-short", NULL, 0, STATE, GNV_SOFT_SGL_SHORT, "puts data by an SGL 512 bytes further" },
	{ "sgl-strict", NULL, 0, STATE, GNV_SOFT_SGL_STRICT, "no error: refuses an SGL that is longer than the data, and reports that" },
	{ "cqe-pieces", NULL, 0, STATE, GNV_SOFT_CQE_PIECES,
	  "no error: writes a completion in pieces, the phase last, and leaves dwords that are reserved as they were" },
	{ "zeroes", NULL, 0, STATE, GNV_SOFT_ZEROES, "Write Zeroes succeeds and writes nothing" },
	{ "cns", NULL, 0, STATE, GNV_SOFT_CNS, "Identify knows CNS 0 and 1 only" },
	{ "ids", NULL, 0, STATE, GNV_SOFT_IDS, "has the identifiers of all its kind" },
	{ "hasty", NULL, 0, STATE, GNV_SOFT_HASTY, "dies when it is enabled within two seconds of a reset" },
	{ "prio", NULL, 0, STATE, GNV_SOFT_PRIO, "refuses submission queues that are not of medium priority" },
	{ "locked", NULL, 0, STATE, GNV_SOFT_LOCKED, "denies reads and writes: TCG Opal" },
	{ "sanitizing", NULL, 0, STATE, GNV_SOFT_SANITIZING, "reads and writes end with the status of an erasure" },
	{ "formatting", NULL, 0, STATE, GNV_SOFT_FORMATTING, "reads and writes end with the status of a format" },
	{ "reserved", NULL, 0, STATE, GNV_SOFT_RESERVED, "another host has reserved it" },
	{ "reserved-write", NULL, 0, STATE, GNV_SOFT_RESERVED_WRITE, "another host has reserved it, and lets others read" },
	{ "activating", NULL, 0, STATE, GNV_SOFT_ACTIVATING, "new firmware is at work, its namespace not yet ready" },
	{ "offline", NULL, 0, STATE, GNV_SOFT_OFFLINE, "is a virtual function without queues" },
	{ "worn", NULL, 0, STATE, GNV_SOFT_WORN, "warns that it is read-only for good, and refuses writes" },
	{ "hot", NULL, 0, STATE, GNV_SOFT_HOT, "warns of its temperature" },
	{ "one-vector", NULL, 0, STATE, GNV_SOFT_ONE_VECTOR, "no error: by vfio-user, has one interrupt for all queues" },
	{ "unfelt", NULL, 0, STATE, GNV_SOFT_UNFELT, "no error: reports 0 K, as drives without a thermometer do" },
	{ "spare", NULL, 0, STATE, GNV_SOFT_SPARE, "warns that few spare blocks are left" },
	{ "unreliable", NULL, 0, STATE, GNV_SOFT_UNRELIABLE, "warns that it is not reliable any more" },
	{ "backup", NULL, 0, STATE, GNV_SOFT_BACKUP, "warns that the backup power of its cache has failed" },
	{ "detached", NULL, 0, STATE, GNV_SOFT_DETACHED, "its namespace is not attached" },
	{ "staged", NULL, 0, STATE, GNV_SOFT_STAGED, "firmware waits for a reset" },
	{ "slow-format", NULL, 0, STATE, GNV_SOFT_SLOW_FORMAT, "calls another format faster" },
	{ "hints", NULL, 0, STATE, GNV_SOFT_HINTS,
	  "no error: reports preferred and atomic sizes of writes, and limits of deallocating and zeroing" },
	{ "unsaid", NULL, 0, STATE, GNV_SOFT_UNSAID,
	  "no error: does not report how deallocated blocks read: as ones or as their old data" },
	{ "sleepy", NULL, 0, STATE, GNV_SOFT_SLEEPY, "no error: has three power states, and is in the last" },
	{ "no-wake", NULL, 0, STATE, GNV_SOFT_NO_WAKE,
	  "with the one before: dies of an I/O command while it may go to its last power state by itself" },
	{ "slow-wake", "US", SECONDS_600, STATE, GNV_SOFT_SLOW_WAKE,
	  "with sleepy: takes US microseconds to come back from its last power state, and claims to take 1000" },
	{ "hmb", "MIB", 1024, POWER_OF_2, GNV_SOFT_HMB,
	  "no error: requests MIB of host memory, and dies if any other party writes to it" },
	{ "hmb-wild", NULL, 0, STATE, GNV_SOFT_HMB_WILD,
	  "with the one before: writes around that memory, and into it while it does not own it" },
	{ "cmb-data", NULL, 0, STATE, GNV_SOFT_CMB_DATA, "with cmb=MIB: puts data for its own memory a page away from its place" },
	{ "cmb-lists", NULL, 0, STATE, GNV_SOFT_CMB_LISTS,
	  "with cmb=MIB: refuses lists in its own memory, though it reports to accept them" },
	{ "addr-48", NULL, 0, STATE, GNV_SOFT_ADDR_48, "knows 48 bits of an address, and ignores the others" },
	{ "sqe-128", NULL, 0, STATE, GNV_SOFT_SQE_128, "takes the entries of I/O submission queues for 128 bytes long" },
	{ "one-command", NULL, 0, STATE, GNV_SOFT_ONE_COMMAND, "dies of a second I/O command in flight" },
	{ "shared-tags", NULL, 0, STATE, GNV_SOFT_SHARED_TAGS,
	  "dies of a command with the identifier of one that is in flight in another queue, the admin queue included" },
	{ "few-cids", "NUMBER", 65535, STATE, GNV_SOFT_FEW_CIDS, "dies of an I/O command whose identifier is NUMBER or more" },

	{ "delay", "US", SECONDS_600, ANY_QUEUE, GNV_SOFT_DELAY, "the completion comes US microseconds later" },
	{ "shuffle", "US", SECONDS_600, ANY_QUEUE, GNV_SOFT_SHUFFLE,
	  "the same for any time up to US, so that completions overtake each other" },
	{ "lose", NULL, 0, ANY_QUEUE, GNV_SOFT_DROP, "the command is taken and never completed" },
	{ "twice", "US", SECONDS_600, ANY_QUEUE, GNV_SOFT_TWICE, "its completion is posted again, US microseconds later (0: at once)" },
	{ "early", "US", SECONDS_600, RULE, GNV_SOFT_EARLY,
	  "its completion is posted at once, and its data moves US microseconds later" },
	{ "torn", "US", 10000, ANY_QUEUE, GNV_SOFT_TORN,
	  "the dword with the phase is written US microseconds before the other three of its completion" },
	{ "cid", "MASK", 0xffff, ANY_QUEUE, GNV_SOFT_CID, "the completion names another command: MASK is XORed into the CID" },
	{ "sqid", "MASK", 0xffff, ANY_QUEUE, GNV_SOFT_SQID, "the completion names another queue: MASK is XORed into the SQID" },
	{ "sqhd", "MASK", 0xffff, ANY_QUEUE, GNV_SOFT_SQHD,
	  "the completion reports another head of the queue: MASK is XORed into SQHD" },
	{ "phase", NULL, 0, ANY_QUEUE, GNV_SOFT_PHASE, "the completion has the phase of the lap before, so that no host sees it" },
	{ "status", "CODE", 0x7ff, ANY_QUEUE, GNV_SOFT_FAIL,
	  "the command ends with the NVMe status CODE, type and code, and does nothing" },
	{ "skip", NULL, 0, RULE, GNV_SOFT_SKIP, "the command does nothing and succeeds: a lost write, a read that brings nothing" },
	{ "flip", NULL, 0, RULE, GNV_SOFT_FLIP, "one bit of the data of a read or a write is another, and the command succeeds" },
	{ "stray", "BLOCKS", 1u << 20, RULE, GNV_SOFT_STRAY, "a read or a write goes to the blocks BLOCKS further, and succeeds" },
	{ "io-short", NULL, 0, RULE, GNV_SOFT_SHORT,
	  "no error: the storage below moves half of the data, and the rest at the next request" },
	{ "io-error", "ERRNO", 133, RULE, GNV_SOFT_ERRNO,
	  "the storage below fails with this number of errno: 5 is EIO, 28 ENOSPC" },
	{ "stuck", NULL, 0, ANY_QUEUE, GNV_SOFT_STUCK,
	  "the command is never completed, and nothing more is taken from its queue until that is deleted" },
	{ "cfs", NULL, 0, ANY_QUEUE, GNV_SOFT_CFS, "the controller stops at the command, and reports that by CSTS.CFS" },
	{ "ones", NULL, 0, ANY_QUEUE, GNV_SOFT_ONES,
	  "at the command the controller is gone: its registers are all ones from then on" },
	{ "event", "KIND", 5, ANY_QUEUE, GNV_SOFT_EVENT,
	  "an asynchronous event: 1 invalid doorbell, 2 its value, 3 temperature, 4 namespace, 5 firmware" },
	{ "unready", NULL, 0, ENABLE, GNV_SOFT_UNREADY, "CC.EN that is set changes nothing" },
	{ "dies", NULL, 0, ENABLE, GNV_SOFT_DIES, "CC.EN that is set sets CSTS.CFS" },
	{ "deaf", NULL, 0, ENABLE, GNV_SOFT_HOLDS, "CC.EN that is cleared changes nothing: the controller goes on" },
	{ "seed", "NUMBER", UINT32_MAX, SEED, 0, "no error: decides which commands a share is, for all rules" },
};

struct rest { /* of a word: the part after a colon */
	const char *at;
	size_t len;
};

/* ---- Conditions ---- */

static bool take_number(struct rest text, uint64_t max, uint64_t *number)
{
	char digits[24] = "";
	char *end;

	if (!text.len || text.len >= sizeof(digits) || text.at[0] < '0' || text.at[0] > '9')
		return false;
	memcpy(digits, text.at, text.len);
	errno = 0;
	*number = strtoull(digits, &end, strncmp(digits, "0x", 2) ? 10 : 16);
	return !*end && !errno && *number <= max;
}

static bool is_word(struct rest text, const char *word)
{
	return strlen(word) == text.len && !memcmp(text.at, word, text.len);
}

static bool set_op(struct gnv_soft_rule *rule, struct rest value)
{
	static const struct {
		const char *name;
		uint16_t opc;
	} ops[] = { { "read", GPUNVME_IO_READ },       { "write", GPUNVME_IO_WRITE },	      { "flush", GPUNVME_IO_FLUSH },
		    { "compare", GPUNVME_IO_COMPARE }, { "zeroes", GPUNVME_IO_WRITE_ZEROES }, { "deallocate", GPUNVME_IO_DSM } };
	uint64_t number = 0;
	size_t i;

	for (i = 0; i < GNV_ARRAY_LEN(ops) && !is_word(value, ops[i].name); i++)
		;
	if (i == GNV_ARRAY_LEN(ops) && !take_number(value, 0xff, &number))
		return false;
	rule->op = i < GNV_ARRAY_LEN(ops) ? ops[i].opc : (uint16_t)number;
	return true;
}

static bool set_lba(struct gnv_soft_rule *rule, struct rest value)
{
	const char *dash = memchr(value.at, '-', value.len);
	struct rest first = { value.at, dash ? (size_t)(dash - value.at) : value.len };
	struct rest last = { dash ? dash + 1 : value.at, dash ? value.len - first.len - 1 : value.len };

	return take_number(first, UINT64_MAX, &rule->first) && take_number(last, UINT64_MAX - 1, &rule->last) &&
	       rule->first <= rule->last;
}

static bool set_queue(struct gnv_soft_rule *rule, struct rest value)
{
	uint64_t number;

	if (!take_number(value, 1024, &number))
		return false;
	rule->queue = (uint16_t)number;
	return true;
}

static bool set_p(struct gnv_soft_rule *rule, struct rest value)
{
	double p = 0, unit = 1;
	bool point = false;
	size_t i;

	for (i = 0; i < value.len && i < P_DIGITS; i++) { /* not strtod(): a locale may have a comma */
		if (value.at[i] == '.' && !point && value.len > 1) {
			point = true;
			continue;
		}
		if (value.at[i] < '0' || value.at[i] > '9')
			return false;
		unit = point ? unit / 10 : 1;
		p = point ? p + (value.at[i] - '0') * unit : p * 10 + (value.at[i] - '0');
	}
	if (i < value.len || !(p > 0 && p <= 1))
		return false;
	rule->p = (uint64_t)(p * 4294967296.0);
	return true;
}

static bool set_count(struct gnv_soft_rule *rule, struct rest value)
{
	return take_number(value, UINT64_MAX, &rule->count) && rule->count;
}

static bool set_after(struct gnv_soft_rule *rule, struct rest value)
{
	return take_number(value, UINT64_MAX, &rule->after);
}

static bool set_flag(struct gnv_soft_rule *rule, struct rest value, uint32_t flag)
{
	uint64_t number;

	if (rule->action != GNV_SOFT_FAIL || !take_number(value, 1, &number))
		return false;
	rule->number |= GNV_SOFT_AS_IS | (number ? flag : 0);
	return true;
}

static bool set_dnr(struct gnv_soft_rule *rule, struct rest value)
{
	return set_flag(rule, value, GPUNVME_ST_DNR);
}

static bool set_more(struct gnv_soft_rule *rule, struct rest value)
{
	return set_flag(rule, value, GPUNVME_ST_MORE);
}

static const struct condition {
	const char *key, *value;
	bool of_commands;
	bool (*set)(struct gnv_soft_rule *rule, struct rest value);
	const char *text;
} conditions[] = {
	{ "op", "OPCODE", true, set_op, "commands of this opcode: read, write, flush, compare, zeroes, deallocate, or a number" },
	{ "lba", "FIRST[-LAST]", true, set_lba, "commands that touch one of these blocks" },
	{ "queue", "ID", true, set_queue, "commands of this queue, 0 is the admin queue (default: any I/O queue)" },
	{ "p", "SHARE", false, set_p, "this share of them, from 0 to 1, chosen by the seed" },
	{ "after", "N", false, set_after, "none of the first N of them" },
	{ "count", "N", false, set_count, "no more than N are hit" },
	{ "dnr", "0|1", true, set_dnr,
	  "of status: the bit Do Not Retry (default without more=: set where a retry is of no use)" },
	{ "more", "0|1", true, set_more, "of status: the bit More" },
};

/* ---- Parsing ---- */

/* The part before the next @end. *rest moves past it. */
static struct rest split(struct rest *rest, char end)
{
	const char *at = memchr(rest->at, end, rest->len);
	struct rest part = { rest->at, at ? (size_t)(at - rest->at) : rest->len };
	size_t gone = at ? part.len + 1 : part.len;

	rest->at += gone;
	rest->len -= gone;
	return part;
}

static int bad_condition(struct rest given)
{
	return gnv_fail(
		-EINVAL,
		"fault=: '%.*s' is no condition here. Conditions are op=, lba=FIRST[-LAST], queue=, p=, after=, count= and, of status, "
		"dnr= and more=. `gpunvme faults` explains them",
		(int)gnv_min(given.len, 40), given.at);
}

static int set_condition(struct gnv_soft_rule *rule, const struct word *word, struct rest given)
{
	struct rest value = given, key = split(&value, '=');
	size_t i;

	for (i = 0; i < GNV_ARRAY_LEN(conditions); i++)
		if (is_word(key, conditions[i].key))
			break;
	if (i == GNV_ARRAY_LEN(conditions) || (word->sort == ENABLE && conditions[i].of_commands) ||
	    !conditions[i].set(rule, value))
		return bad_condition(given);
	if (word->sort == RULE && rule->queue == 0)
		return gnv_fail(-EINVAL, "fault=%s applies to reads and writes, and the queue 0 has none. Leave queue=0 away",
				word->word);
	return 0;
}

static int add_rule(const struct word *word, uint32_t number, struct rest rest, struct gnv_soft_rules *rules)
{
	struct gnv_soft_rule rule = { .action = (enum gnv_soft_action)word->value,
				      .number = number,
				      .op = GNV_SOFT_ANY,
				      .queue = GNV_SOFT_ANY,
				      .last = UINT64_MAX,
				      .p = 1ull << 32 };
	int ret = 0;

	if (rules->count == GNV_SOFT_RULES)
		return gnv_fail(-EINVAL, "fault= has more than %u faults. Remove some", GNV_SOFT_RULES);
	while (rest.len && !ret)
		ret = set_condition(&rule, word, split(&rest, ':'));
	if (!ret)
		rules->rule[rules->count++] = rule;
	return ret;
}

static int take_word_number(const struct word *word, struct rest *rest, uint32_t *number)
{
	const unsigned least = word->sort == ANY_QUEUE && word->value == GNV_SOFT_TWICE ? 0 : 1;
	struct rest given = split(rest, ':');
	uint64_t value;

	if (!take_number(given, word->max, &value) || value < least || (word->sort == POWER_OF_2 && !gnv_is_pow2(value)))
		return gnv_fail(-EINVAL, "fault=%s:%.*s: %s must be a %s from %u to %u", word->word, (int)gnv_min(given.len, 40),
				given.at, word->number, word->sort == POWER_OF_2 ? "power of two" : "number", least, word->max);
	*number = (uint32_t)value;
	return 0;
}

static int parse_one(struct rest text, struct gnv_soft_quirks *quirks, struct gnv_soft_rules *rules)
{
	struct rest rest = text, name = split(&rest, ':');
	uint32_t number = 0;
	size_t i;
	int ret;

	for (i = 0; i < GNV_ARRAY_LEN(words) && !is_word(name, words[i].word); i++)
		;
	if (i == GNV_ARRAY_LEN(words))
		return gnv_fail(-EINVAL, "fault=%.*s is not known: `gpunvme faults` lists all words", (int)gnv_min(text.len, 40),
				text.at);
	ret = words[i].number ? take_word_number(&words[i], &rest, &number) : 0;
	if (!ret && text.at[text.len - 1] == ':')
		ret = bad_condition(rest);
	if (ret)
		return ret;
	if (words[i].sort == RULE || words[i].sort == ANY_QUEUE || words[i].sort == ENABLE)
		return add_rule(&words[i], number, rest, rules);
	if (rest.len)
		return bad_condition(rest);
	if (words[i].sort == SEED) {
		rules->seed = number;
		return 0;
	}
	quirks->set |= 1ull << words[i].value;
	quirks->number[words[i].value] = number;
	return 0;
}

int gnv_soft_fault_parse(const char *text, struct gnv_soft_quirks *quirks, struct gnv_soft_rules *rules)
{
	for (;;) {
		size_t len = strcspn(text, ",");
		int ret = parse_one((struct rest){ text, len }, quirks, rules);

		if (ret || !text[len])
			return ret;
		text += len + 1;
	}
}

/* ---- The list ---- */

static void add(struct gnv_list *list, uint32_t kind, uint32_t max, const char *word, const char *number, const char *text)
{
	struct gpunvme_fault fault = { .kind = kind, .max = max };

	snprintf(fault.word, sizeof(fault.word), "%s", word);
	snprintf(fault.number, sizeof(fault.number), "%s", number ? number : "");
	snprintf(fault.text, sizeof(fault.text), "%s", text);
	gnv_list_add(list, &fault, sizeof(fault));
}

int gpunvme_fault_list_v(struct gpunvme_fault *to, uint32_t *count, size_t stride)
{
	struct gnv_list list;
	int ret = gnv_list_begin(&list, to, count, stride, "gpunvme_fault");

	if (ret)
		return ret;
	for (size_t i = 0; i < GNV_ARRAY_LEN(words); i++)
		add(&list, words[i].sort <= POWER_OF_2 ? GPUNVME_FAULT_STATE : GPUNVME_FAULT_ACTION, words[i].max, words[i].word,
		    words[i].number, words[i].text);
	for (size_t i = 0; i < GNV_ARRAY_LEN(conditions); i++)
		add(&list, GPUNVME_FAULT_CONDITION, 0, conditions[i].key, conditions[i].value, conditions[i].text);
	*count = list.count;
	return 0;
}
