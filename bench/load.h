/* SPDX-License-Identifier: MIT */
/*
 * The load: one thread for each queue, which holds a number of handles, submits where one is free and polls the others in turn.
 * Only the functions of the device header that a user's kernel would call. All of it is `static inline`.
 */
#ifndef GPUNVME_BENCH_LOAD_H
#define GPUNVME_BENCH_LOAD_H

#include "bench.h"

struct load_lane {
	struct hist hist;
	uint64_t cpu_ns;
	uint64_t seed;
	uint64_t next; /* slot, when sequential */
	int status;    /* the first failure; the thread ends there */
};

struct load {
	struct session s;
	struct session_opts o;
	const char *rw; /* read, write, randread, randwrite */
	uint64_t bs;
	uint32_t qd;
	double seconds;
	uint32_t idle_ms; /* rest before each command; 0: none */
	/* Derived. */
	int write, random;
	uint32_t nblocks;
	uint64_t slots; /* places of that size in the namespace */
	uint64_t end_ns;
	struct load_lane *lane;
};

struct load_result {
	double seconds, iops;
	uint64_t ios;
	double lane_cpu, other_cpu; /* CPUs: of the threads, and of all else: the controller */
	uint64_t switches;	    /* voluntary and involuntary, of the process */
	uint64_t doorbells, drains;
	struct hist *hist;
};

#define BUFFER_ALIGN 4096u
#define YIELDS 4096u /* fruitless passes over all handles before a thread sleeps between them */

/* One handle of a thread. */
struct flight {
	struct gpunvme_req req;
	uint64_t since; /* 0: free */
};

static inline uint64_t next_lba(const struct load *l, struct load_lane *lane)
{
	if (l->random) {
		lane->seed = lane->seed * 6364136223846793005u + 1442695040888963407u;
		return (lane->seed >> 20) % l->slots * l->nblocks;
	}
	return lane->next++ % l->slots * l->nblocks;
}

static inline void submit(struct load *l, const struct gpunvme_dq *dq, struct load_lane *lane, struct flight *f, uint64_t offset)
{
	uint64_t pos = next_lba(l, lane) << dq->lba_shift;

	f->since = now_ns();
	lane->status = l->write ? gpunvme_submit_write(dq, &l->s.dbuf, offset, pos, l->bs, 0, &f->req)
				: gpunvme_submit_read(dq, &l->s.dbuf, offset, pos, l->bs, &f->req);
	if (lane->status)
		f->since = 0;
	if (lane->status == -GPUNVME_EAGAIN)
		lane->status = 0;
}

/* A thread whose passes find nothing gives its CPU away, as gpunvme_wait() does: there may be more threads than CPUs. */
static inline void rest(uint32_t turn)
{
	struct timespec nap = { 0, 20000 };

	if (turn < YIELDS)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* One pass over all handles. Returns how many moved; *busy: how many commands are in flight after it. */
static inline uint32_t pass(struct load *l, const struct gpunvme_dq *dq, struct load_lane *lane, struct flight *flights,
			    uint32_t *busy)
{
	uint64_t base = gpunvme_thread_id() * l->qd * l->bs;
	uint32_t moved = 0;

	*busy = 0;
	for (uint32_t i = 0; i < l->qd && !lane->status; i++) {
		struct flight *f = &flights[i];

		if (f->since) {
			int status = gpunvme_poll(dq, &f->req);

			if (status != -GPUNVME_EAGAIN) {
				uint64_t now = now_ns();

				lane->status = status;
				hist_add(&lane->hist, now - f->since);
				f->since = 0;
				moved++;
			}
		}
		if (!f->since && !lane->status && !interrupted && now_ns() < l->end_ns) {
			submit(l, dq, lane, f, base + i * l->bs);
			moved += f->since != 0;
		}
		*busy += f->since != 0;
	}
	return moved;
}

static inline void run_busy(struct load *l, const struct gpunvme_dq *dq, struct load_lane *lane, struct flight *flights)
{
	uint32_t turn = 0, busy;

	do {
		turn = pass(l, dq, lane, flights, &busy) ? 0 : turn + 1;
		if (turn)
			rest(turn);
	} while (!lane->status && (busy || (now_ns() < l->end_ns && !interrupted)));
}

static inline void run_rested(struct load *l, const struct gpunvme_dq *dq, struct load_lane *lane)
{
	uint64_t base = gpunvme_thread_id() * l->qd * l->bs, since, pos;

	while (!lane->status && now_ns() < l->end_ns && !interrupted) {
		sleep_ms(l->idle_ms);
		since = now_ns();
		pos = next_lba(l, lane) << dq->lba_shift;
		lane->status = l->write ? gpunvme_write(dq, &l->s.dbuf, base, pos, l->bs, 0) : gpunvme_read(dq, &l->s.dbuf, base, pos, l->bs);
		hist_add(&lane->hist, now_ns() - since);
	}
}

static inline void kernel(void *arg)
{
	struct load *l = arg;
	struct load_lane *lane = &l->lane[gpunvme_thread_id()];
	const struct gpunvme_dq *dq = &l->s.dq[gpunvme_thread_id()];
	struct flight *flights = calloc(l->qd, sizeof(*flights));

	if (!flights)
		lane->status = -ENOMEM;
	else if (l->idle_ms)
		run_rested(l, dq, lane);
	else
		run_busy(l, dq, lane, flights);
	free(flights);
	lane->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* ---- The host's side ---- */

/* Check the pattern, fill what is derived. Exit code or GO_ON, as the functions below. */
static inline int load_prepare(struct load *l)
{
	static const char *const patterns[] = { "read", "write", "randread", "randwrite" };
	unsigned i;

	for (i = 0; i < 4 && strcmp(l->rw, patterns[i]) != 0; i++)
		;
	if (i == 4)
		return misused("--rw takes read, write, randread or randwrite, not '%s'", l->rw);
	l->write = i & 1;
	l->random = i / 2;
	if (!l->o.dev)
		return misused("a controller is missing: --dev soft:PATH");
	if (l->qd > 4096 || l->o.queues > 128)
		return misused("at most --qd 4096 and --queues 128");
	l->o.threads = l->o.queues;
	if (l->bs % BUFFER_ALIGN)
		return misused("--bs must be a multiple of %u", BUFFER_ALIGN);
	return GO_ON;
}

/* Queues, buffer, threads' records; the session must be open. */
static inline int load_open(struct load *l)
{
	int ret;

	if (l->bs % l->s.ns.lba_size || l->bs > l->s.info.max_transfer)
		return failed("--bs %" PRIu64 " is not possible: one command moves at most %u bytes, in blocks of %u", l->bs,
			      l->s.info.max_transfer, l->s.ns.lba_size);
	l->nblocks = (uint32_t)(l->bs / l->s.ns.lba_size);
	l->slots = l->s.ns.nblocks / l->nblocks;
	if (!l->slots)
		return failed("the image is smaller than --bs");
	ret = l->write ? session_may_write(&l->s, &l->o) : GO_ON;
	if (ret == GO_ON)
		ret = session_open_queues(&l->s, &l->o, l->write ? GPUNVME_VIEW_WRITE : 0, 0, l->s.ns.nblocks);
	if (ret == GO_ON)
		ret = session_buffer(&l->s, l->s.queues * l->qd * l->bs);
	if (ret != GO_ON)
		return ret;
	memset(gpunvme_mem_ptr(l->s.mem), 0xa5, gpunvme_mem_len(l->s.mem));
	l->lane = calloc(l->s.threads, sizeof(*l->lane));
	return l->lane ? GO_ON : failed("no memory for %u threads", l->s.threads);
}

static inline uint64_t switches(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (uint64_t)use.ru_nvcsw + (uint64_t)use.ru_nivcsw;
}

static inline void count_queues(const struct load *l, uint64_t *doorbells, uint64_t *drains)
{
	*doorbells = *drains = 0;
	for (uint32_t i = 0; i < l->s.queues; i++) {
		struct gpunvme_queue_info info = { .size = sizeof(info) };

		gpunvme_queue_get_info(l->s.queue[i], &info);
		*doorbells += info.doorbells;
		*drains += info.drains;
	}
}

static inline int gather(struct load *l, struct load_result *r, uint64_t cpu)
{
	uint64_t lane_cpu = 0;

	r->hist = calloc(1, sizeof(*r->hist));
	if (!r->hist)
		return failed("no memory");
	for (uint32_t i = 0; i < l->s.threads; i++) {
		if (l->lane[i].status)
			return failed("lane %u: %s", i, gpunvme_strerror(l->lane[i].status));
		hist_merge(r->hist, &l->lane[i].hist);
		lane_cpu += l->lane[i].cpu_ns;
	}
	r->ios = r->hist->count;
	r->iops = (double)r->ios / r->seconds;
	r->lane_cpu = (double)lane_cpu / 1e9 / r->seconds;
	r->other_cpu = (double)(cpu - lane_cpu) / 1e9 / r->seconds;
	return GO_ON;
}

/* Run for l->seconds. The histogram is the caller's. */
static inline int load_run(struct load *l, struct load_result *r)
{
	uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), doorbells, drains;
	double start = now_s();
	int ret;

	memset(r, 0, sizeof(*r));
	count_queues(l, &doorbells, &drains);
	for (uint32_t i = 0; i < l->s.threads; i++) {
		memset(&l->lane[i], 0, sizeof(l->lane[i]));
		l->lane[i].seed = now_ns() * (2 * i + 1);
		l->lane[i].next = l->slots / l->s.threads * i;
	}
	r->switches = switches();
	l->end_ns = now_ns() + (uint64_t)(l->seconds * 1e9);
	ret = session_launch(&l->s, l->s.threads, kernel, l);
	r->seconds = now_s() - start;
	r->switches = switches() - r->switches;
	count_queues(l, &r->doorbells, &r->drains);
	r->doorbells -= doorbells;
	r->drains -= drains;
	return ret == GO_ON ? gather(l, r, clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) : ret;
}

static inline void load_close(struct load *l, struct load_result *r)
{
	free(r->hist);
	free(l->lane);
	session_close(&l->s);
}

#endif
