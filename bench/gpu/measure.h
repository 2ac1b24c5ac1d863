/* SPDX-License-Identifier: MIT */
/* One point: so many threads on so many queues for some time. What came out, and whether every command was accounted for. */
#ifndef GPUNVME_BENCH_MEASURE_H
#define GPUNVME_BENCH_MEASURE_H

#include "block_drain.h"
#include "fronts.h"
#include "rig.h"

struct options {
	uint32_t threads; /* of the controller */
	uint32_t blocks; /* most of the threads, or 0: as many as fit */
	double seconds; /* for each point */
	bool check, json, on_gpu, apart, stats;
	const char *only; /* points whose name contains this, or is this after '=' */
	const char *figure;
	int groups; /* multiprocessors */
	const char *machine;
};

/* What GNVD_BATCH is where the threads run; here it is the host's. */
#if defined(GPUNVME_CQ_BATCH)
#define ENTRIES_A_LOOK (uint32_t)(GPUNVME_CQ_BATCH)
#else
#define ENTRIES_A_LOOK (ON_GPU ? 8u : 1u)
#endif

enum per { PER_LANE, PER_WAVE }; /* which of the threads issue commands */

struct point {
	const char *queue; /* whose: "ours", "block-drain", "ticket" */
	const char *name;
	uint32_t queues, blocks, block_lanes, depth;
	kernel_fn kernel;
	enum per per;
	enum serve_mode mode;
};

struct outcome {
	double rate, seconds;
	uint64_t issued, served, errors, lost, strange, doorbells, drains;
	uint32_t poisoned;
	uint32_t *samples; /* of latency, in ns; the caller frees it */
	double tick_ns;    /* of the fine clock, where there are samples */
};

/* CPU threads are threads: small blocks, few queues. */
static inline struct point fit(struct point p)
{
	if (!ON_GPU) {
		p.block_lanes = p.block_lanes < 4 ? p.block_lanes : 4;
		p.blocks = p.blocks < 2 ? p.blocks : 2;
		p.queues = p.queues < 2 ? p.queues : 2;
		p.depth = p.depth < 64 ? p.depth : 64; /* the handles of all threads must fit */
	}
	return p;
}

/* Those that play the controller have multiprocessors of their own. */
static inline uint32_t most_blocks(const struct options *o, uint32_t queues)
{
	uint32_t most = o->groups > 128 || !ON_GPU ? (uint32_t)o->groups : 128;

#if ON_GPU
	if (o->on_gpu)
		most = o->groups - controller_blocks(queues);
#endif
	(void)queues;
	return o->blocks && o->blocks < most ? o->blocks : most;
}

static inline uint64_t commands_per_round(const struct point *p)
{
	uint64_t lanes = (uint64_t)p->blocks * p->block_lanes;

	return p->per == PER_LANE ? lanes : lanes / (ON_GPU ? 32 : p->block_lanes);
}

static inline void run_lanes(const struct point *p, const struct options *o, struct controller *c, struct work *w,
			     struct outcome *out)
{
	struct controller_thread *threads = NULL;
	double began;

	machine_prepare(p->kernel);
#if ON_GPU
	struct gpu_side side = {};
	if (o->on_gpu)
		side = gpu_controller_start(c, o->apart);
#endif
	c->threads = o->threads < c->queues ? o->threads : c->queues;
	if (!o->on_gpu)
		threads = controller_start(c);
	began = now_seconds();
	machine_run(p->kernel, p->blocks, p->block_lanes, w);
	out->seconds = now_seconds() - began;
	if (!o->on_gpu)
		controller_end(c, threads);
#if ON_GPU
	if (o->on_gpu)
		gpu_controller_end(c, &side);
#endif
}

static inline void account(const struct rig *r, const struct work *w, struct outcome *out)
{
	struct gpunvme_dq_state state;
	uint64_t k;
	uint32_t i;

	local_read(&out->errors, w->errors, 8);
	for (i = 0; i < r->c.queues; i++) {
		local_read(&state, r->dqs[i].state, sizeof(state));
		out->served += r->c.rings[i].done;
		out->doorbells += state.doorbells;
		out->drains += state.drains;
		out->poisoned += state.poison != 0;
		if (state.poison)
			fprintf(stderr, "queue_rate: queue %u is poisoned by %u: completion %08x %08x, fetched %llx, pub %llx, resv %llx\n", i,
				state.poison, state.poison_cqe[2], state.poison_cqe[3], (unsigned long long)state.fetched,
				(unsigned long long)state.pub, (unsigned long long)state.resv);
	}
	out->strange = r->c.stamps.strange;
	for (k = 0; k < r->c.stamps.count; k++)
		out->lost += r->c.stamps.seen[k] != 1;
}

/* Times of each round, from ticks of the fine clock to ns. */
static inline void collect_samples(const struct work *w, struct outcome *out)
{
	uint64_t span[4];
	uint32_t i;

	out->samples = (uint32_t *)calloc(w->rounds, 4);
	local_read(span, w->span, sizeof(span));
	local_read(out->samples, w->samples, 4ull * w->rounds);
	out->tick_ns = (double)(span[2] - span[0]) / (double)(span[3] - span[1]);
	for (i = 0; i < w->rounds; i++)
		out->samples[i] = (uint32_t)(out->samples[i] * out->tick_ns);
}

/* Of one queue, while all its threads were at work: at the end the unlucky are alone. */
static inline double middle_rate(const struct ring *q)
{
	return (double)(q->mark_done[1] - q->mark_done[0]) / (q->mark_time[1] - q->mark_time[0]);
}

/* timed: each round of the first thread is. */
static inline struct outcome launch(const struct point *p, const struct options *o, uint32_t rounds, bool timed)
{
	struct rig *r = rig_new(p->queues, p->depth, p->mode, !strcmp(p->queue, "ticket"), o->on_gpu,
				o->stats ? GPUNVME_DQ_STATS : 0);
	struct work w = rig_work(r, rounds);
	struct outcome out;

	memset(&out, 0, sizeof(out));
	out.issued = commands_per_round(p) * rounds;
	if (w.check) {
		r->c.stamps.count = out.issued;
		r->c.stamps.seen = (uint8_t *)calloc(out.issued, 1);
	}
	r->c.rings[0].expect = out.issued;
	w.samples = timed ? rig_local(r, 4ull * rounds, NULL) : 0;
	run_lanes(p, o, &r->c, &w, &out);
	account(r, &w, &out);
	if (timed)
		collect_samples(&w, &out);
	out.rate = (double)out.issued / out.seconds;
	if (r->c.rings[0].mark_time[1] > r->c.rings[0].mark_time[0])
		out.rate = middle_rate(&r->c.rings[0]);
	free(r->c.stamps.seen);
	rig_free(r);
	return out;
}

/* A short launch to see the pace, then one of the wanted length. */
static inline struct outcome measure(const struct point *p, const struct options *o)
{
	struct outcome out = launch(p, o, 20, false);
	double each = (double)commands_per_round(p), rounds = 20 * o->seconds / out.seconds;
	double most = p->mode == SERVE_CHECK || p->mode == SERVE_ORDERED ? 4e8 / each : 1e9;

	if (rounds <= 20)
		return out;
	return launch(p, o, (uint32_t)(rounds > most ? most : rounds), false);
}

static inline bool outcome_ok(const struct outcome *r)
{
	return !r->errors && r->served == r->issued && !r->poisoned && !r->lost && !r->strange;
}

/* Returns 1 when a command was not accounted for. */
static inline int report(const struct point *p, const struct options *o, const struct outcome *r)
{
	bool ok = outcome_ok(r);
	char counted[64] = "";

	if (r->doorbells) /* the queue kept its counters */
		snprintf(counted, sizeof(counted), "%6.1f commands a doorbell, %5.1f a drain; ", (double)r->issued / (double)r->doorbells,
			 (double)r->issued / (double)(r->drains ? r->drains : 1));
	if (o->json)
		printf("{\"figure\": \"%s\", \"queue\": \"%s\", \"point\": \"%s\", \"controller\": \"%s\", \"threads\": %u, \"queues\": %u, "
		       "\"depth\": %u, \"lanes\": %u, \"block_lanes\": %u, \"batch\": %u, \"check\": %d, \"rate\": %.0f, \"issued\": %llu, \"served\": %llu, "
		       "\"errors\": %llu, \"lost\": %llu, \"doorbells\": %llu, \"drains\": %llu, \"ok\": %s}\n",
		       o->figure, p->queue, p->name, o->on_gpu ? "gpu" : "cpu", o->threads, p->queues, p->depth,
		       p->blocks * p->block_lanes, p->block_lanes, ENTRIES_A_LOOK, o->check, r->rate, (unsigned long long)r->issued, (unsigned long long)r->served,
		       (unsigned long long)r->errors, (unsigned long long)r->lost, (unsigned long long)r->doorbells,
		       (unsigned long long)r->drains, ok ? "true" : "false");
	else
		printf("%-11s %-32s %7u lanes %9.3f M/s  %s%llu issued, %llu served, %llu errors, %llu lost%s\n", p->queue, p->name,
		       p->blocks * p->block_lanes, r->rate / 1e6, counted, (unsigned long long)r->issued,
		       (unsigned long long)r->served, (unsigned long long)r->errors, (unsigned long long)(r->lost + r->strange), ok ? "" : "  WRONG");
	fflush(stdout);
	return !ok;
}

#endif
