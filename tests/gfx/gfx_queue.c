/* SPDX-License-Identifier: MIT */
/* Runs the kernels of queue.hip against the controller: many seeds, several depths, failing controllers. */
#include "gfx/world.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNTOUCHED 0x7fffffff
#define WRONG_DATA 0x10000 /* as in queue.hip */

enum manner { HONEST, SILENT, CRIMINAL };

struct scenario {
	const char *kernel;
	unsigned groups, width, shift, rounds, queues;
	uint64_t start;
	enum manner manner;
	enum mini_crime crime;
	uint32_t flags; /* of struct gpunvme_dq */
};

static const struct scenario scenarios[] = {
	{ "mixed", 1, 32, 1, 4, 1, 0, HONEST, MINI_HONEST, 0 },
	{ "mixed", 2, 32, 3, 6, 1, 6, HONEST, MINI_HONEST, 0 },
	{ "mixed", 1, 70, 4, 6, 1, (1ull << 32) - 50, HONEST, MINI_HONEST, 0 },
	{ "mixed", 4, 32, 6, 4, 1, 0, HONEST, MINI_HONEST, 0 },
	{ "mixed", 3, 7, 2, 6, 1, 3, HONEST, MINI_HONEST, 0 },
	{ "many", 2, 32, 2, 4, 3, 0, HONEST, MINI_HONEST, 0 },
	{ "many", 1, 64, 5, 6, 3, 65530, HONEST, MINI_HONEST, 0 },
	{ "deep", 2, 20, 3, 6, 1, 1, HONEST, MINI_HONEST, 0 },
	{ "deep", 2, 32, 6, 6, 1, 0, HONEST, MINI_HONEST, 0 },
	{ "mixed", 1, 40, 3, 2, 1, 0, SILENT, MINI_HONEST, 0 },
	{ "mixed", 2, 32, 4, 4, 1, 0, CRIMINAL, MINI_BAD_CID, 0 },
	{ "mixed", 2, 32, 4, 4, 1, 0, CRIMINAL, MINI_TWICE, 0 },
	{ "mixed", 2, 32, 4, 4, 1, 0, CRIMINAL, MINI_BAD_SQID, 0 },
	{ "mixed", 2, 32, 4, 4, 1, 0, CRIMINAL, MINI_LATE, 0 },
	{ "many", 2, 32, 4, 4, 3, 0, CRIMINAL, MINI_SQHD_BIG, 0 },
	{ "mixed", 2, 32, 3, 6, 1, 9, HONEST, MINI_HONEST, GPUNVME_DQ_CQE16 },
	{ "many", 1, 70, 5, 4, 3, 0, HONEST, MINI_HONEST, GPUNVME_DQ_CQE16 | GPUNVME_DQ_READBACK_SQE },
	{ "mixed", 2, 32, 4, 4, 1, 0, CRIMINAL, MINI_BAD_CID, GPUNVME_DQ_CQE16 },
	{ "halves", 1, 64, 3, 4, 2, 0, HONEST, MINI_HONEST, 0 },
	{ "mixed", 1, 128, 4, 4, 1, 5, HONEST, MINI_HONEST, 0 },
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

struct by_value {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct { uint64_t out; uint32_t rounds, queues; } work;
};

struct by_address {
	uint64_t dq, dbuf;
	struct { uint64_t out; uint32_t rounds, queues; } work;
};

struct options {
	const char *program, *file;
	uint64_t seed, seeds, max_steps;
	int only;
	unsigned threads;
	uint32_t rules;
};

static uint64_t instructions, accesses;

static uint64_t crime_stamp(const struct scenario *s)
{
	return 20 - 20 % s->queues;
}

/* What one command may have ended with. */
static bool allowed(const struct scenario *s, uint64_t stamp, int got)
{
	bool own = got == world_status(stamp);

	if (got == UNTOUCHED || s->manner == HONEST)
		return own || got == UNTOUCHED || (!strcmp(s->kernel, "deep") && got == -GPUNVME_EAGAIN);
	if (s->manner == SILENT)
		return got == -GPUNVME_ETIMEDOUT || got == -GPUNVME_ESHUTDOWN;
	return own || got == -GPUNVME_EPROTO || got == -GPUNVME_ESHUTDOWN || got == -GPUNVME_ETIMEDOUT;
}

static bool judge(struct world *w, const struct scenario *s, const int *out)
{
	const char *wrong = world_check(w, s->manner == HONEST);
	uint32_t i;

	for (i = 0; i < w->stamps && !wrong; i++) {
		if (!allowed(s, i, out[i])) {
			printf("command %u ended with %#x, its status is %#x\n", i, (unsigned)out[i], world_status(i));
			wrong = out[i] & WRONG_DATA && out[i] > 0 ? "a lane read data from before its command" : "a lane got a wrong status";
		} else if (w->seen[i] > 1 || (s->manner == HONEST && w->seen[i] != (out[i] != UNTOUCHED && out[i] >= 0))) {
			wrong = "a command was not fetched exactly once";
		}
	}
	if (wrong)
		printf("%s\n", wrong);
	return !wrong;
}

static int launch(struct gfx *m, struct world *w, const struct scenario *s, int *out)
{
	struct by_address address = { (uintptr_t)w->dq, (uintptr_t)w->dbuf, { (uintptr_t)out, s->rounds, s->queues } };
	struct by_value value = { w->dq[0], *w->dbuf, { (uintptr_t)out, s->rounds, s->queues } };

	if (s->queues > 1)
		return gfx_launch(m, s->kernel, s->groups * s->width, s->width, &address, sizeof(address));
	return gfx_launch(m, s->kernel, s->groups * s->width, s->width, &value, sizeof(value));
}

/* The manners of caches, stores and controllers change with the seed. */
static void season(struct gfx *m, struct world *w, const struct scenario *s, uint64_t seed)
{
	unsigned i;

	m->random = seed * 0x9e3779b97f4a7c15ull + 77;
	gfx_season(m);
	w->check_writes = strcmp(s->kernel, "deep") != 0;
	for (i = 0; i < w->queues; i++) {
		struct mini *c = &w->queue[i].ctrl;

		c->opts = (struct mini_opts){ .seed = gfx_draw(m, 1u << 30), .window = 1 + gfx_draw(m, 16), .idle = gfx_draw(m, 60),
					      .crime = i ? MINI_HONEST : s->crime, .crime_stamp = crime_stamp(s), .status = world_status };
		c->frozen = s->manner == SILENT;
		if (s->manner != HONEST)
			w->dq[i].cmd_timeout = s->manner == SILENT ? 20000 : 3000000;
		mini_begin(c);
	}
}

static bool run_one(struct gfx_code *code, const struct options *o, unsigned number, uint64_t seed)
{
	const struct scenario *s = &scenarios[number];
	struct gfx m = { .code = code, .rules = o->rules, .random = seed, .max_steps = o->max_steps, .threads = o->threads };
	uint32_t lanes = s->groups * s->width, i;
	struct world *w = world_new(&m, s->queues, s->shift, s->start, lanes, lanes * s->rounds, s->flags);
	int *out = aligned_alloc(64, (4ull * w->stamps + 63) & ~63ull);
	bool good;

	if (!out)
		abort();
	for (i = 0; i < w->stamps; i++)
		out[i] = UNTOUCHED;
	gfx_register(&m, "out", out, 4ull * w->stamps, 0);
	season(&m, w, s, seed);
	good = launch(&m, w, s, out) == 0;
	if (!good)
		printf("%s\n", m.error);
	for (i = 0; i < 200 && good; i++) /* let completions of abandoned commands come in */
		world_turn(w);
	if (good && !judge(w, s, out)) {
		good = false;
		gfx_trace(&m);
	}
	if (!good)
		world_show(w);
	if (!good)
		printf("FAILED: replay with: %s --case %u --seed %llu --rules %u%s %s\n", o->program, number, (unsigned long long)seed,
		       o->rules, o->threads > 1 ? " --threads 2 (threads are never the same twice)" : "", o->file);
	instructions += m.step;
	accesses += m.noted;
	free(out);
	world_free(w);
	return good;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int run_all(struct gfx_code *code, const struct options *o)
{
	double start = now();
	uint64_t seed, runs = 0;
	unsigned i;

	for (seed = o->seed; seed < o->seed + o->seeds; seed++)
		for (i = 0; i < SCENARIOS; i++) {
			if (o->only >= 0 && (unsigned)o->only != i)
				continue;
			runs++;
			if (!run_one(code, o, i, seed))
				return 1;
		}
	printf("%llu runs, %llu instructions, %llu accesses, %.1f million instructions per second of CPU time, rules %u: all good\n",
	       (unsigned long long)runs, (unsigned long long)instructions, (unsigned long long)accesses,
	       (double)instructions / (now() - start) / 1e6, o->rules);
	return 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: gfx_queue [--seed N] [--seeds N] [--case N] [--rules MASK] [--steps N] [--threads N] CODE-OBJECT\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option list[] = { { "seed", 1, 0, 's' }, { "seeds", 1, 0, 'n' }, { "case", 1, 0, 'c' }, { "rules", 1, 0, 'r' },
					      { "steps", 1, 0, 'm' },
					      { "threads", 1, 0, 't' }, { 0, 0, 0, 0 } };
	struct options o = { .program = argv[0], .seed = 1, .seeds = 1, .max_steps = 40000000, .only = -1, .rules = GFX_NASTY };
	struct gfx_code *code;
	char why[300];
	int c, ret;

	while ((c = getopt_long(argc, argv, "", list, NULL)) != -1) {
		if (c == '?')
			return usage();
		if (c == 's')
			o.seed = strtoull(optarg, NULL, 0);
		else if (c == 'n')
			o.seeds = strtoull(optarg, NULL, 0);
		else if (c == 'c')
			o.only = atoi(optarg);
		else if (c == 'r')
			o.rules = (uint32_t)strtoul(optarg, NULL, 0);
		else if (c == 't')
			o.threads = (unsigned)strtoul(optarg, NULL, 0);
		else
			o.max_steps = strtoull(optarg, NULL, 0);
	}
	if (optind + 1 != argc)
		return usage();
	o.file = argv[optind];
	code = gfx_load(o.file, why, sizeof(why));
	if (!code) {
		fprintf(stderr, "%s\n", why);
		return 2;
	}
	ret = run_all(code, &o);
	gfx_unload(code);
	return ret;
}
