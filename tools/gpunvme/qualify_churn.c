/* SPDX-License-Identifier: MIT */
#include "qualify_churn.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gpunvme/device.h>

#define UNIT (16 * KIB) /* of one command: pages enough for a list */
#define WARM_UP 8	/* commands of each thread before the disturbance */
#define SHIFTS 1024	/* places of a unit in its part of the buffer, 4 bytes apart */
#define NONE UINT32_MAX

struct thread {
	struct churn *c;
	struct gpunvme_dq dq;
	uint64_t lba;	      /* of its first unit */
	uint64_t place;	      /* of its part of the buffer */
	uint64_t *generation; /* of each unit, as it was acknowledged last */
	char *known;	      /* contents of all units, if nothing is written */
	uint32_t pending;     /* the unit that was being written when the thread ended */
	uint64_t done, before, seed;
	int status;
	char wrong[240];
};

struct churn {
	struct qualify *a;
	struct thread *thread;
	uint32_t threads, units; /* of each thread */
	uint32_t unit_blocks;
	uint32_t commands;
	double end;
	int stop, ended; /* atomic: threads have to end, and some have ended */
	int (*act)(struct qualify *a);
	int act_ret;
	char act_why[320];
};

static uint64_t draw(struct thread *l)
{
	l->seed ^= l->seed << 13;
	l->seed ^= l->seed >> 7;
	l->seed ^= l->seed << 17;
	return l->seed;
}

static uint32_t unit_bytes(const struct churn *c)
{
	return c->unit_blocks * c->a->lba_size;
}

static struct stamp stamp_of(const struct thread *l, uint32_t unit, uint64_t generation)
{
	return (struct stamp){ .run = l->c->a->run, .lba = l->lba + (uint64_t)unit * l->c->unit_blocks, .generation = generation };
}

/* ---- In a thread ---- */

static int write_unit(struct thread *l, uint32_t unit)
{
	const struct churn *c = l->c;
	const uint64_t offset = l->place + draw(l) % SHIFTS * 4;
	const struct stamp stamp = stamp_of(l, unit, l->generation[unit] + 1);
	int status;

	stamp_fill(c->a->data + offset, c->a->lba_size, &stamp, c->unit_blocks);
	l->pending = unit;
	status = gpunvme_write(&l->dq, &c->a->s.dbuf, offset, stamp.lba << l->dq.lba_shift,
			       (uint64_t)c->unit_blocks << l->dq.lba_shift, 0);
	if (status)
		return status;
	l->generation[unit]++;
	l->pending = NONE;
	return 0;
}

static void find_wrong(struct thread *l, uint32_t unit, const char *data)
{
	const struct churn *c = l->c;
	const struct stamp stamp = stamp_of(l, unit, l->generation[unit]);
	const char *known = l->known + (size_t)unit * unit_bytes(c);
	uint64_t bad = c->a->write ? stamp_check(data, c->a->lba_size, &stamp, c->unit_blocks) : 0;
	char text[96];

	while (!c->a->write && bad < c->unit_blocks &&
	       !memcmp(data + bad * c->a->lba_size, known + bad * c->a->lba_size, c->a->lba_size))
		bad++;
	if (bad < c->unit_blocks)
		snprintf(l->wrong, sizeof(l->wrong), "block %" PRIu64 " of generation %" PRIu64 " is %s", stamp.lba + bad,
			 stamp.generation, stamp_tell(data + bad * c->a->lba_size, c->a->lba_size, c->a->run, text));
}

static int read_unit(struct thread *l, uint32_t unit)
{
	const struct churn *c = l->c;
	const uint64_t offset = l->place + draw(l) % SHIFTS * 4;
	int status = gpunvme_read(&l->dq, &c->a->s.dbuf, offset, (l->lba + (uint64_t)unit * c->unit_blocks) << l->dq.lba_shift,
				  (uint64_t)c->unit_blocks << l->dq.lba_shift);

	if (!status)
		find_wrong(l, unit, c->a->data + offset);
	return status;
}

static int goes_on(const struct churn *c, const struct thread *l)
{
	if (interrupted || __atomic_load_n(&c->stop, __ATOMIC_ACQUIRE))
		return 0;
	if (c->act)
		return 1;
	return c->commands ? l->done - l->before < c->commands : now_s() < c->end;
}

static void churn_kernel(void *arg)
{
	struct churn *c = arg;
	struct thread *l = &c->thread[gpunvme_thread_id()];

	while (!l->status && !*l->wrong && goes_on(c, l)) {
		const uint32_t unit = (uint32_t)(draw(l) % c->units);

		l->status = c->a->write && draw(l) & 1 ? write_unit(l, unit) : read_unit(l, unit);
		__atomic_store_n(&l->done, l->done + !l->status, __ATOMIC_RELAXED); /* read by the thread that acts */
	}
	__atomic_store_n(&c->ended, 1, __ATOMIC_RELEASE);
}

static void first_kernel(void *arg)
{
	struct churn *c = arg;
	struct thread *l = &c->thread[gpunvme_thread_id()];

	for (uint32_t unit = 0; unit < c->units && !l->status; unit++) {
		if (c->a->write)
			l->status = write_unit(l, unit);
		else
			l->status = gpunvme_read(&l->dq, &c->a->s.dbuf, l->place,
						 (l->lba + (uint64_t)unit * c->unit_blocks) << l->dq.lba_shift,
						 (uint64_t)c->unit_blocks << l->dq.lba_shift);
		if (!c->a->write && !l->status)
			memcpy(l->known + (size_t)unit * unit_bytes(c), c->a->data + l->place, unit_bytes(c));
	}
}

/* Accept old or new data in each block of a write that a reset cut off. Then write it again. */
static int redo_write(struct thread *l)
{
	const struct churn *c = l->c;
	const uint32_t unit = l->pending;
	const char *data = c->a->data + l->place;
	int status;

	if (unit == NONE)
		return 0;
	status = gpunvme_read(&l->dq, &c->a->s.dbuf, l->place, (l->lba + (uint64_t)unit * c->unit_blocks) << l->dq.lba_shift,
			      (uint64_t)c->unit_blocks << l->dq.lba_shift);
	for (uint32_t i = 0; i < c->unit_blocks && !status; i++) {
		struct stamp s = stamp_of(l, unit, l->generation[unit]);
		char text[96];

		s.lba += i;
		if (stamp_check(data + (size_t)i * c->a->lba_size, c->a->lba_size, &s, 1) == 1)
			continue;
		s.generation++;
		if (stamp_check(data + (size_t)i * c->a->lba_size, c->a->lba_size, &s, 1) == 1)
			continue;
		snprintf(l->wrong, sizeof(l->wrong), "block %" PRIu64 ", whose write to generation %" PRIu64 " was cut off, is %s",
			 s.lba, s.generation, stamp_tell(data + (size_t)i * c->a->lba_size, c->a->lba_size, c->a->run, text));
		return 0;
	}
	l->generation[unit]++;
	return status ? status : write_unit(l, unit);
}

static void verify_kernel(void *arg)
{
	struct churn *c = arg;
	struct thread *l = &c->thread[gpunvme_thread_id()];

	l->status = redo_write(l);
	for (uint32_t unit = 0; unit < c->units && !l->status && !*l->wrong; unit++)
		l->status = read_unit(l, unit);
}

/* ---- On the host ---- */

static void free_threads(struct churn *c)
{
	for (uint32_t i = 0; i < c->threads; i++) {
		free(c->thread[i].generation);
		free(c->thread[i].known);
	}
	free(c->thread);
	free(c);
}

static int make_threads(struct churn *c)
{
	struct qualify *a = c->a;
	const uint64_t room = QUALIFY_PLACE / c->threads / 4096 * 4096;

	c->thread = calloc(c->threads, sizeof(*c->thread));
	for (uint32_t i = 0; c->thread && i < c->threads; i++) {
		struct thread *l = &c->thread[i];

		l->c = c;
		l->dq = a->dq;
		l->lba = (uint64_t)i * c->units * c->unit_blocks;
		l->place = i * room;
		l->pending = NONE;
		l->seed = (i + 1) * 0x9e3779b97f4a7c15ull;
		l->generation = calloc(c->units, sizeof(*l->generation));
		l->known = a->write ? NULL : calloc(c->units, unit_bytes(c));
		if (!l->generation || (!a->write && !l->known))
			return -ENOMEM;
		for (uint32_t unit = 0; unit < c->units; unit++)
			l->generation[unit] = a->generation;
	}
	return c->thread ? 0 : -ENOMEM;
}

static int report(struct churn *c, int cut_off)
{
	for (uint32_t i = 0; i < c->threads; i++) {
		const struct thread *l = &c->thread[i];
		const int code = l->status > 0 ? l->status & (int)GPUNVME_ST_CODE : l->status;

		if (*l->wrong)
			return qualify_fail(c->a, "%s", l->wrong);
		if (l->status && !(cut_off && (code == -GPUNVME_ESHUTDOWN || code == GPUNVME_SC_ABORT_REQUESTED ||
					       code == GPUNVME_SC_ABORT_SQ_DELETED)))
			return qualify_fail(c->a, "a command of thread %u: %s", i, qualify_why(l->status));
	}
	return QUALIFY_PASSED;
}

static int launch(struct churn *c, void (*kernel)(void *arg), int cut_off)
{
	int ret;

	for (uint32_t i = 0; i < c->threads; i++)
		c->thread[i].status = 0;
	ret = gpunvme_cpu_launch(c->threads, 1, kernel, c);
	return ret ? qualify_fail(c->a, "cannot run %u threads: %s", c->threads, strerror(-ret)) : report(c, cut_off);
}

struct churn *churn_open(struct qualify *a, uint32_t threads)
{
	struct churn *c = calloc(1, sizeof(*c));
	uint64_t most;

	if (!c) {
		qualify_fail(a, "out of memory");
		return NULL;
	}
	c->a = a;
	c->unit_blocks = a->lba_size < UNIT ? (uint32_t)(UNIT / a->lba_size) : 1;
	most = a->area / c->unit_blocks;
	if (most > QUALIFY_PLACE / (2 * (uint64_t)unit_bytes(c)))
		most = QUALIFY_PLACE / (2 * (uint64_t)unit_bytes(c));
	c->threads = threads < most ? threads : (uint32_t)most;
	c->units = (uint32_t)(a->area / c->unit_blocks / c->threads);
	if (make_threads(c))
		qualify_fail(a, "out of memory");
	else if (launch(c, first_kernel, 0) == QUALIFY_PASSED)
		return c;
	free_threads(c);
	return NULL;
}

uint32_t churn_threads(const struct churn *c)
{
	return c->threads;
}

void churn_close(struct churn *c)
{
	for (uint32_t i = 0; i < c->threads; i++)
		for (uint32_t unit = 0; unit < c->units; unit++)
			if (c->thread[i].generation[unit] > c->a->generation)
				c->a->generation = c->thread[i].generation[unit];
	free_threads(c);
}

void churn_use(struct churn *c, uint32_t i, const struct gpunvme_dq *dq)
{
	c->thread[i].dq = *dq;
}

static int all_are_warm(const struct churn *c)
{
	for (uint32_t i = 0; i < c->threads; i++)
		if (__atomic_load_n(&c->thread[i].done, __ATOMIC_RELAXED) - c->thread[i].before < WARM_UP)
			return 0;
	return 1;
}

static void *act_main(void *arg)
{
	struct churn *c = arg;
	const struct timespec nap = { 0, 1000000 };

	while (!all_are_warm(c) && !__atomic_load_n(&c->ended, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	if (all_are_warm(c))
		c->act_ret = c->act(c->a);
	snprintf(c->act_why, sizeof(c->act_why), "%s", c->act_ret ? why(c->act_ret) : "");
	__atomic_store_n(&c->stop, 1, __ATOMIC_RELEASE);
	return NULL;
}

int churn_run(struct churn *c, uint32_t commands, double seconds, int (*act)(struct qualify *a))
{
	pthread_t thread;
	int ret;

	c->commands = commands;
	c->end = now_s() + seconds;
	c->act = act;
	c->act_ret = c->stop = c->ended = 0;
	for (uint32_t i = 0; i < c->threads; i++)
		c->thread[i].before = c->thread[i].done;
	if (act && pthread_create(&thread, NULL, act_main, c))
		return qualify_fail(c->a, "no thread could be started");
	ret = launch(c, churn_kernel, act != NULL);
	__atomic_store_n(&c->ended, 1, __ATOMIC_RELEASE); /* needed if no thread could start */
	if (act)
		pthread_join(thread, NULL);
	return c->act_ret ? qualify_fail(c->a, "%s", c->act_why) : ret;
}

int churn_verify(struct churn *c)
{
	int ret = launch(c, verify_kernel, 0);

	for (uint32_t i = 0; i < c->threads; i++)
		c->thread[i].pending = NONE;
	return ret;
}

uint64_t churn_done(const struct churn *c)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < c->threads; i++)
		done += c->thread[i].done;
	return done;
}
