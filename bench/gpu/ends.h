/* SPDX-License-Identifier: MIT */
/* How waiting ends when a controller does not do what it should: how late, and with which results. */
#ifndef GPUNVME_BENCH_ENDS_H
#define GPUNVME_BENCH_ENDS_H

#include "measure.h"

/* ---- The host speaks ---- */

struct stopper {
	struct rig *r;
	pthread_t thread;
	uint32_t word;
	double said; /* when; the stop itself is asked for in the middle of the time-out */
};

static void *say_stop(void *arg)
{
	struct stopper *s = (struct stopper *)arg;
	struct timespec nap = { 0, 50000000 };
	uint32_t i;

	nanosleep(&nap, NULL);
	s->said = now_seconds();
	for (i = 0; i < s->r->c.queues; i++)
		__atomic_store_n((uint32_t *)(uintptr_t)s->r->dqs[i].stop, s->word, __ATOMIC_RELEASE);
	return NULL;
}

static inline void stopper_start(struct stopper *s, struct rig *r, uint32_t word)
{
	s->r = r;
	s->word = word;
	if (word && pthread_create(&s->thread, NULL, say_stop, s))
		die("no thread for the host");
}

static inline void stopper_end(struct stopper *s)
{
	if (s->word)
		pthread_join(s->thread, NULL);
}

static inline void set_timeout(struct rig *r, double seconds)
{
	uint32_t i;

	for (i = 0; i < r->c.queues; i++)
		r->dqs[i].cmd_timeout = (uint64_t)(seconds * 1000 * r->dqs[i].ticks_per_ms);
}

/* ---- A controller that says nothing ---- */

/* What the last thread is late; of a thread that waits for room the time-out begins when it comes. */
static int end_point(struct point p, bool stop, const struct options *o)
{
	struct stopper s;
	struct rig *r;
	struct work w;
	double began, late;
	uint64_t wrong;

	p = fit(p);
	r = rig_new(p.queues, p.depth, SERVE_COUNT, false, o->on_gpu, 0);
	set_timeout(r, 0.1);
	w = rig_work(r, 1);
	machine_prepare(p.kernel);
	stopper_start(&s, r, stop);
	began = now_seconds();
	machine_run(p.kernel, p.blocks, p.block_lanes, &w);
	late = now_seconds();
	stopper_end(&s);
	late -= stop ? s.said : began + 0.1;
	local_read(&wrong, w.errors, 8);
	rig_free(r);
	if (o->json)
		printf("{\"figure\": \"ends\", \"point\": \"%s\", \"queues\": %u, \"lanes\": %u, \"late_ms\": %.3f, \"ok\": %s}\n",
		       stop ? "stop" : "time-out", p.queues, p.blocks * p.block_lanes, late * 1e3, wrong ? "false" : "true");
	else
		printf("%-9s %4u queues %7u lanes: the last one is %8.3f ms late%s\n", stop ? "stop" : "time-out", p.queues,
		       p.blocks * p.block_lanes, late * 1e3, wrong ? "  WRONG" : "");
	fflush(stdout);
	return wrong != 0;
}

static int run_ends(const struct options *o)
{
	static const uint32_t queues[] = { 1, 8, 128 };
	int bad = 0;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		struct point p = { "ours", "ends", queues[i], most_blocks(o, queues[i]), 512, 1024, vain_512, PER_LANE, SERVE_COUNT };

		bad += end_point(p, false, o) + end_point(p, true, o);
	}
	return bad;
}

/* ---- A hostile controller ---- */

#define TELLS (ANSWER_OK | ANSWER_STATUS)
#define TIMES (TELLS | ANSWER_TIME | ANSWER_SHUTDOWN)
#define BREAKS (TELLS | ANSWER_PROTO | ANSWER_SHUTDOWN)
#define HOSTILE_LATE_MS 20.0 /* a thread may hear of it later than it should */

static const struct hostility {
	const char *name;
	enum trick trick;
	uint32_t word;  /* what the host says in the middle, 0: nothing */
	uint32_t must;  /* results that some thread gets */
	uint32_t may;   /* results that any thread may get */
	uint32_t cause; /* of the queue's end */
	bool lies;      /* tells threads of other commands' ends, which nobody can see */
} hostilities[] = {
	{ "disorder and errors", TRICK_NONE, 0, TELLS, TELLS, 0, false },
	{ "pauses", TRICK_PAUSE, 0, TELLS, TELLS, 0, false },
	{ "silence", TRICK_SILENCE, 0, ANSWER_TIME, ANSWER_TIME | ANSWER_SHUTDOWN, GPUNVME_ETIMEDOUT, false },
	{ "falls silent", TRICK_FALL_SILENT, 0, ANSWER_TIME, TIMES, GPUNVME_ETIMEDOUT, false },
	{ "late", TRICK_LATE, 0, ANSWER_TIME, TIMES, GPUNVME_ETIMEDOUT, false },
	{ "loses commands", TRICK_LOSE, 0, ANSWER_TIME, TIMES, GPUNVME_ETIMEDOUT, false },
	{ "old phase", TRICK_OLD_PHASE, 0, ANSWER_TIME, TIMES, GPUNVME_ETIMEDOUT, false },
	{ "stop", TRICK_SILENCE, 1, ANSWER_CANCELED, ANSWER_CANCELED, 0, false },
	{ "the device is gone", TRICK_SILENCE, GPUNVME_ENODEV, ANSWER_NODEV, ANSWER_NODEV | ANSWER_SHUTDOWN, GPUNVME_ENODEV, false },
	{ "completes twice", TRICK_TWICE, 0, 0, BREAKS, GPUNVME_EPROTO, true },
	{ "completes again later", TRICK_AGAIN, 0, 0, BREAKS, GPUNVME_EPROTO, true },
	{ "nobody's identifier", TRICK_NOBODYS, 0, 0, BREAKS | ANSWER_TIME, GPUNVME_EPROTO, true },
	{ "identifier too high", TRICK_FAR_CID, 0, 0, BREAKS, GPUNVME_EPROTO, false },
	{ "SQ head ahead", TRICK_AHEAD, 0, 0, BREAKS, GPUNVME_EPROTO, false },
	{ "SQ head too high", TRICK_FAR_HEAD, 0, 0, BREAKS, GPUNVME_EPROTO, false },
	{ "another queue's", TRICK_OTHER_QUEUE, 0, 0, BREAKS, GPUNVME_EPROTO, false },
	{ "garbage", TRICK_GARBAGE, 0, 0, BREAKS, GPUNVME_EPROTO, false },
};

struct ended {
	uint64_t wrong, longest, answers;
	uint32_t others; /* queues that ended for another cause than they should */
	double longest_ms;
};

static inline void hostile_account(const struct rig *r, const struct work *w, uint32_t cause, struct ended *e)
{
	struct gpunvme_dq_state state;
	uint32_t i;

	memset(e, 0, sizeof(*e));
	local_read(&e->wrong, w->errors, 8);
	local_read(&e->longest, w->span, 8);
	local_read(&e->answers, w->span + 8, 8);
	e->longest_ms = (double)e->longest / r->dqs[0].ticks_per_ms;
	for (i = 0; i < r->c.queues; i++) {
		local_read(&state, r->dqs[i].state, sizeof(state));
		e->others += state.poison != cause;
	}
}

/* CPU threads share their processors: their commands have all the time that they need, unless a time-out is the end. */
static inline double hostile_timeout(const struct hostility *h)
{
	return ON_GPU || h->cause == GPUNVME_ETIMEDOUT ? TRICK_TIMEOUT : 20;
}

static inline bool in_time(const struct hostility *h, const struct point *p, double longest_ms)
{
	double most = hostile_timeout(h) * 1e3;

	if (p->depth < p->blocks * p->block_lanes / p->queues) /* it may have waited for room, too */
		most *= 2;
	return !ON_GPU || longest_ms <= most + HOSTILE_LATE_MS;
}

static int hostile_point(const struct hostility *h, struct point p, const struct options *o)
{
	struct controller_thread *threads;
	struct stopper s;
	struct ended e;
	struct rig *r;
	struct work w;
	bool ok;

	p = fit(p);
	r = rig_new(p.queues, p.depth, SERVE_HOSTILE, false, false, 0);
	set_timeout(r, hostile_timeout(h));
	w = rig_work(r, ON_GPU ? 2000 : 100);
	w.check = 1;
	r->c.trick = h->trick;
	r->c.threads = o->threads < p.queues ? o->threads : p.queues;
	r->c.stamps.count = (uint64_t)w.rounds * p.blocks * p.block_lanes;
	r->c.stamps.seen = (uint8_t *)calloc(r->c.stamps.count, 1);
	machine_prepare(p.kernel);
	threads = controller_start(&r->c);
	stopper_start(&s, r, h->word);
	machine_run(p.kernel, p.blocks, p.block_lanes, &w);
	stopper_end(&s);
	controller_end(&r->c, threads);
	hostile_account(r, &w, h->cause, &e);
	ok = !e.others && !(e.answers & ~h->may) && (e.answers & h->must) == h->must && (!e.wrong || h->lies) && !r->c.stamps.strange &&
	     in_time(h, &p, e.longest_ms);
	if (o->json)
		printf("{\"figure\": \"hostile\", \"point\": \"%s\", \"lanes_are\": \"%s\", \"queues\": %u, \"depth\": %u, \"lanes\": %u, "
		       "\"longest_ms\": %.3f, \"answers\": %llu, \"of_others\": %llu, \"ok\": %s}\n",
		       h->name, p.name, p.queues, p.depth, p.blocks * p.block_lanes, e.longest_ms, (unsigned long long)e.answers,
		       (unsigned long long)e.wrong, ok ? "true" : "false");
	else
		printf("%-20s %-9s %3u queues of %4u, %5u lanes: the longest call took %8.3f ms, answers %02llx%s\n", h->name, p.name, p.queues,
		       p.depth, p.blocks * p.block_lanes, e.longest_ms, (unsigned long long)e.answers, ok ? "" : "  WRONG");
	if (!ok)
		fprintf(stderr, "queue_rate: %s: %llu statuses of others, %u queues ended otherwise, %llu commands strange\n", h->name,
			(unsigned long long)e.wrong, e.others, (unsigned long long)r->c.stamps.strange);
	fflush(stdout);
	free(r->c.stamps.seen);
	rig_free(r);
	return !ok;
}

/*
 * Waves, threads of their own, and more threads than a ring has room for: these see nothing but ends, as there everything is ahead.
 */
static int run_hostile(const struct options *o)
{
	struct point waves = { "ours", "waves", 1, 1, 256, 1024, hostile_256, PER_LANE, SERVE_HOSTILE };
	struct point lone = { "ours", "lone", 8, 8, 256, 1024, hostile_lone_256, PER_WAVE, SERVE_HOSTILE };
	struct point crowd = { "ours", "crowd", 1, 1, 256, 16, hostile_256, PER_LANE, SERVE_HOSTILE };
	uint32_t i;
	int bad = 0;

	for (i = 0; i < sizeof(hostilities) / sizeof(hostilities[0]); i++) {
		bad += hostile_point(&hostilities[i], waves, o) + hostile_point(&hostilities[i], lone, o);
		if (hostilities[i].trick < TRICK_TWICE)
			bad += hostile_point(&hostilities[i], crowd, o);
	}
	return bad;
}

#endif
