/* SPDX-License-Identifier: MIT */
#include "traffic.h"
#include "progress.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include <gpunvme/device.h>

uint64_t traffic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int traffic_init(struct traffic *t)
{
	t->thread = calloc(t->threads, sizeof(*t->thread));
	for (uint32_t i = 0; t->thread && i < t->threads; i++) {
		t->thread[i].sequence = i;
		t->thread[i].seed = (i + 1) * 0x9e3779b97f4a7c15ull;
	}
	return t->thread ? 0 : -ENOMEM;
}

uint64_t traffic_ios(const struct traffic *t)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < t->threads; i++)
		n += __atomic_load_n(&t->thread[i].ios, __ATOMIC_RELAXED);
	return n;
}

/* The first failure stays, but for the end of the queue, after which nothing moves. */
static void note(struct traffic *t, struct traffic_thread *l, int status)
{
	if (!l->status || (l->status > 0 && status < 0))
		l->status = status;
	if (status)
		__atomic_store_n(&t->failed, 1, __ATOMIC_RELAXED);
}

static void count(struct traffic *t, struct traffic_thread *l, int status)
{
	__atomic_store_n(&l->ios, l->ios + 1, __ATOMIC_RELAXED); /* others look */
	note(t, l, status);
}

/* Figures with failures in them are none. */
static int is_over(const struct traffic *t)
{
	return traffic_ns() >= t->end_ns || interrupted || __atomic_load_n(&t->failed, __ATOMIC_RELAXED);
}

/* xorshift64 */
static uint64_t draw(struct traffic_thread *l)
{
	l->seed ^= l->seed << 13;
	l->seed ^= l->seed >> 7;
	l->seed ^= l->seed << 17;
	return l->seed;
}

static uint64_t next_slot(const struct traffic *t, struct traffic_thread *l)
{
	if (t->random)
		return draw(l) % t->slots;
	l->sequence += t->threads;
	return (l->sequence - t->threads) % t->slots;
}

static int reads_next(const struct traffic *t, struct traffic_thread *l)
{
	return t->reads == 100 || (t->reads && (draw(l) >> 32) % 100 < t->reads);
}

/* One handle of a thread. */
struct flight {
	struct gpunvme_req req;
	int busy;
};

static int submit(const struct traffic *t, const struct gpunvme_dq *dq, struct traffic_thread *l, struct flight *f, uint64_t offset)
{
	uint64_t len = (uint64_t)t->nblocks << dq->lba_shift, pos = next_slot(t, l) * len;

	return reads_next(t, l) ? gpunvme_submit_read(dq, t->dbuf, offset, pos, len, &f->req)
				: gpunvme_submit_write(dq, t->dbuf, offset, pos, len, 0, &f->req);
}

/* Submits on a free handle or polls a busy one. Returns 1 when something moved, 0 when not, negative to give up. */
static int turn(struct traffic *t, const struct gpunvme_dq *dq, struct traffic_thread *l, struct flight *f, uint64_t offset)
{
	int status;

	if (f->busy) { /* a thread with nothing else to do waits, which looks at the clock less often */
		status = t->qd == 1 ? gpunvme_wait(dq, &f->req, 0) : gpunvme_poll(dq, &f->req);
		if (status == -GPUNVME_EAGAIN)
			return 0;
		count(t, l, status);
		f->busy = 0;
	} else {
		if (is_over(t))
			return 0;
		status = submit(t, dq, l, f, offset);
		if (status == -GPUNVME_EAGAIN)
			return 0;
		f->busy = !status;
		note(t, l, status);
	}
	return status < 0 ? status : 1;
}

void traffic_kernel(void *arg)
{
	struct traffic *t = arg;
	uint32_t number = gpunvme_thread_id();
	struct traffic_thread *l = &t->thread[number];
	const struct gpunvme_dq *dq = &t->dq[number % t->queues];
	struct flight *flights = calloc(t->qd, sizeof(*flights));
	uint64_t base = (uint64_t)number * t->qd * t->bs;
	int busy = 1;

	if (!flights) {
		l->status = -ENOMEM;
		return;
	}
	while (busy && l->status >= 0) {
		int moved = 0;

		busy = !is_over(t);
		for (uint32_t i = 0; i < t->qd; i++) {
			moved |= turn(t, dq, l, &flights[i], base + i * t->bs) > 0;
			busy |= flights[i].busy;
		}
		if (!moved)
			sched_yield();
	}
	/* After a failure of the queue nothing may stay in flight that the buffer still belongs to. */
	for (uint32_t i = 0; i < t->qd; i++)
		if (flights[i].busy)
			gpunvme_wait(dq, &flights[i].req, 0);
	free(flights);
}
