/* SPDX-License-Identifier: MIT */
/* The report of a soak: what was done, results of commands, and the history of a wrong block. */
#include "emulated.h"
#include "soak.h"

#include "common/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STORY 8		/* commands listed for a wrong block */

const struct soak_thread *soak_wrong_thread(const struct soak *k)
{
	for (uint32_t i = 0; i < k->s.threads; i++)
		if (k->thread[i].wrong)
			return &k->thread[i];
	return NULL;
}

static void add_up(struct soak *k, struct soak_thread *all)
{
	memset(all, 0, sizeof(*all));
	for (uint32_t i = 0; i < k->s.threads; i++) {
		const struct soak_thread *l = &k->thread[i];

		all->commands += l->commands;
		all->blocks += l->blocks;
		all->verified += l->verified;
		for (int op = 0; op < SOAK_OPS; op++)
			all->count[op] += l->count[op];
		for (uint32_t j = 0; j < SOAK_STATUSES; j++) {
			uint32_t to = 0;

			while (to < SOAK_STATUSES - 1 && all->statuses[to].count &&
			       all->statuses[to].status != l->statuses[j].status)
				to++;
			all->statuses[to].status = all->statuses[to].count || l->statuses[j].count ? l->statuses[j].status : 0;
			all->statuses[to].count += l->statuses[j].count;
		}
	}
}

/* The drive's doing: not the status that a thread gets when its queue was stopped, recovered or reset. */
static bool is_error(const struct soak *k, int status)
{
	const bool aborted = status == GPUNVME_SC_ABORT_REQUESTED || status == GPUNVME_SC_ABORT_SQ_DELETED;

	if (status > 0)
		return k->calm || !aborted;
	return status == -GPUNVME_ETIMEDOUT || status == -GPUNVME_EPROTO;
}

static uint64_t errors_of(const struct soak *k, const struct soak_thread *all)
{
	uint64_t n = 0;

	for (uint32_t j = 0; j < SOAK_STATUSES; j++)
		n += is_error(k, all->statuses[j].status) ? all->statuses[j].count : 0;
	return n;
}

/* Blocks were compared, each holds its data, and no command failed but by an injected fault. False if the soak was interrupted. */
static bool passed(const struct soak *k, const struct soak_thread *all)
{
	return all->verified && !soak_wrong_thread(k) && !interrupted && (k->s.info.faulty || !errors_of(k, all));
}

/* The last commands on the block, the oldest first. Their number goes to *@n. */
static void find_story(const struct soak_thread *l, const struct soak_past *story[STORY], uint32_t *n)
{
	const uint64_t have = l->commands < SOAK_PAST ? l->commands : SOAK_PAST;

	*n = 0;
	for (uint64_t i = 1; i <= have && *n < STORY; i++) {
		const struct soak_past *p = &l->past[(l->commands - i) % SOAK_PAST];

		if (p->op != SOAK_FLUSH && l->where >= p->at && l->where < p->at + p->nblocks)
			story[(*n)++] = p;
	}
}

static void expected(const struct soak_block *b, char text[96])
{
	const char *const same = b->zero && b->ones ? "zeroes or ones" : b->zero ? "zeroes" : b->ones ? "ones" : "";
	const char *const or = b->zero || b->ones ? " or " : "";

	if (b->first > b->last)
		snprintf(text, 96, "%s", same);
	else if (b->first == b->last)
		snprintf(text, 96, "generation %u%s%s", b->first, or, same);
	else
		snprintf(text, 96, "generation %u to %u%s%s", b->first, b->last, or, same);
}

static void tell_wrong(const struct soak_thread *l)
{
	const struct soak_past *story[STORY];
	char text[96];
	uint32_t n;

	expected(&l->block[l->where], text);
	find_story(l, story, &n);
	printf("block %" PRIu64 " should hold %s, and holds %s. Its last commands:\n", l->lba + l->where, text, l->found);
	while (n--) {
		printf("  %10" PRIu64 " %-12s %u blocks from %" PRIu64, story[n]->n, soak_ops[story[n]->op], story[n]->nblocks,
		       l->lba + story[n]->at);
		if (story[n]->version)
			printf(", generation %u", story[n]->version);
		printf(": %s\n", gpunvme_strerror(story[n]->status));
	}
}

static void put_wrong(struct json_object *json, const struct soak_thread *l)
{
	struct json_object *wrong = put_object(json, "wrong"), *list;
	const struct soak_past *story[STORY];
	char text[96];
	uint32_t n;

	expected(&l->block[l->where], text);
	put_count(wrong, "block", l->lba + l->where);
	put_text(wrong, "expected", text);
	put_text(wrong, "found", l->found);
	list = put_list(wrong, "commands");
	find_story(l, story, &n);
	while (n--) {
		struct json_object *past = append_object(list);

		put_count(past, "number", story[n]->n);
		put_text(past, "command", soak_ops[story[n]->op]);
		put_count(past, "lba", l->lba + story[n]->at);
		put_count(past, "blocks", story[n]->nblocks);
		put_count(past, "generation", story[n]->version);
		put_number(past, "status", story[n]->status);
	}
}

static void print_json(const struct soak *k, const struct soak_thread *all)
{
	struct gpunvme_dev_info now = { .size = sizeof(now) };
	struct json_object *json = json_object_new_object(), *part;

	put_text(json, "device", k->o.dev);
	put_text(json, "placement", k->s.placement);
	put_count(json, "queues", k->s.queues);
	put_count(json, "threads", k->s.threads);
	put_real(json, "seconds", k->took, 3);
	put_count(json, "commands", all->commands);
	put_count(json, "blocks", all->blocks);
	put_count(json, "verified", all->verified);
	part = put_object(json, "counts");
	for (int op = 0; op < SOAK_OPS; op++)
		put_count(part, soak_ops[op], all->count[op]);
	part = put_object(json, "statuses");
	for (uint32_t j = 0; j < SOAK_STATUSES; j++)
		if (all->statuses[j].count)
			put_count(part, gpunvme_strerror(all->statuses[j].status), all->statuses[j].count);
	put_count(json, "errors", errors_of(k, all));
	put_count(json, "rounds", k->rounds);
	put_count(json, "stops", k->stops);
	put_count(json, "recoveries", k->recoveries);
	put_count(json, "resets", k->resets);
	put_bool(json, "interrupted", interrupted != 0);
	gpunvme_dev_get_info(k->s.dev, &now);
	put_emulated(json, &now);
	put_bool(json, "passed", passed(k, all));
	if (soak_wrong_thread(k))
		put_wrong(json, soak_wrong_thread(k));
	print_object(json);
}

static void print_text(const struct soak *k, const struct soak_thread *all)
{
	printf("%s: %" PRIu64 " commands on %" PRIu64 " blocks in %.1f s, %" PRIu64 " blocks read and compared\n", k->s.placement,
	       all->commands, all->blocks, k->took, all->verified);
	for (int op = 0; op < SOAK_OPS; op++)
		printf("%s%" PRIu64 " %s", op ? ", " : "", all->count[op], soak_ops[op]);
	printf("\n%" PRIu64 " stops, %" PRIu64 " recoveries, %" PRIu64 " resets\n", k->stops, k->recoveries, k->resets);
	for (uint32_t j = 0; j < SOAK_STATUSES; j++)
		if (all->statuses[j].count)
			printf("%10" PRIu64 " times: %s\n", all->statuses[j].count, gpunvme_strerror(all->statuses[j].status));
	if (soak_wrong_thread(k))
		tell_wrong(soak_wrong_thread(k));
	printf("%s\n", passed(k, all) ? "PASSED" : "FAILED");
}

int soak_report(struct soak *k)
{
	struct soak_thread all;

	add_up(k, &all);
	(k->o.json ? print_json : print_text)(k, &all);
	fflush(stdout);
	if (soak_wrong_thread(k))
		fprintf(stderr, "%s: block %" PRIu64 " does not hold its data\n", program,
			soak_wrong_thread(k)->lba + soak_wrong_thread(k)->where);
	else if (errors_of(k, &all) && !k->s.info.faulty)
		fprintf(stderr, "%s: %" PRIu64 " commands failed, though no block is wrong\n", program, errors_of(k, &all));
	else if (interrupted)
		fprintf(stderr, "%s: interrupted after %.1f s: all blocks read so far are right\n", program, k->took);
	else if (!all.verified)
		fprintf(stderr, "%s: no block was compared, as each write failed or none was read back\n", program);
	else
		return EXIT_DONE;
	return EXIT_FAILED;
}
