/* SPDX-License-Identifier: MIT */
/*
 * Workgroups on several host threads at once. Each thread has a machine of its own with its share of the workgroups, its own random
 * numbers, clock and common L1, as compute units far apart have; memory is the same. No seed replays such a run.
 */
#include "gfx/gfx.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct part {
	struct gfx m;
	pthread_t thread;
	unsigned *running; /* parts that have not ended */
	void (*outside)(void *ctx);
	int ret;
};

static void *run_part(void *arg)
{
	struct part *p = arg;

	p->ret = gfx_run(&p->m);
	__atomic_sub_fetch(p->running, 1, __ATOMIC_RELAXED);
	while (p->outside && __atomic_load_n(p->running, __ATOMIC_RELAXED)) {
		p->outside(p->m.outside_ctx);
		sched_yield();
	}
	return NULL;
}

static void give_way(void *ctx)
{
	(void)ctx;
	sched_yield();
}

void gfx_decode_all(struct gfx_code *c)
{
	uint64_t at;

	for (at = 0; at < c->text_size; at += 4)
		if (!c->inst[at / 4].len)
			gfx_decode(c, at, &c->inst[at / 4]);
}

/* Workgroups from `first` on. The world outside belongs to the first part. */
static void start(struct part *p, struct gfx *m, unsigned first, unsigned groups, unsigned *running, int *halt)
{
	unsigned i;

	p->m = *m;
	p->m.random = m->random + 0x9e3779b97f4a7c15ull * (first + 1);
	p->m.wave += first * m->wave_of_group;
	p->m.waves = groups * m->wave_of_group;
	p->m.l1 = gfx_cache_new();
	p->m.far = gfx_cache_new();
	p->m.several = p->m.l2s > 0;
	for (i = 0; i < p->m.l2s; i++)
		p->m.l2[i] = gfx_cache_new();
	p->m.halt = halt;
	p->running = running;
	p->outside = first ? NULL : m->outside;
	p->m.outside = first || !m->outside ? give_way : m->outside;
	if (pthread_create(&p->thread, NULL, run_part, p))
		abort();
}

int gfx_run_threads(struct gfx *m)
{
	unsigned count = m->threads < m->groups ? m->threads : m->groups, running = count, i, first;
	struct part *part = calloc(count, sizeof(*part));
	int halt = 0, ret = 0;

	if (!part)
		abort();
	gfx_decode_all(m->code);
	for (i = first = 0; i < count; i++) {
		unsigned groups = (m->groups - first) / (count - i);

		start(&part[i], m, first, groups, &running, &halt);
		first += groups;
	}
	for (i = 0; i < count; i++) {
		pthread_join(part[i].thread, NULL);
		m->step += part[i].m.step;
		m->noted += part[i].m.noted;
		if (part[i].ret && part[i].m.error[0]) {
			memcpy(m->error, part[i].m.error, sizeof(m->error));
			m->cause = part[i].m.cause;
		}
		ret |= part[i].ret;
		gfx_cache_free(part[i].m.l1);
		gfx_cache_free(part[i].m.far);
		for (first = 0; first < part[i].m.l2s; first++)
			gfx_cache_free(part[i].m.l2[first]);
	}
	free(part);
	return ret;
}
