/* SPDX-License-Identifier: MIT */
/*
 * bench/queue_path: the queue alone. One CPU thread against a controller that only fetches and completes, in order, without I/O.
 *
 *   queue_path                     the controller is a thread: commands per second with 1 and 64 outstanding
 *   queue_path --inline N          the thread calls the controller itself: N commands, no waiting, always the same instructions
 *   queue_path --inline N --empty  the same without the thread's part
 *
 * The difference of the last two, counted by perf stat or by valgrind, divided by N is what one command costs a thread; bench/run
 * does that. bench/guarantees does it with one of the queue's guarantees left out at a time.
 */
#include "bench.h"

#include <pthread.h>

#include "common/rig.h"

#define SQ_SHIFT 8 /* 256 entries */
#define MAX_QD 64u

struct controller {
	struct mini_queue q;
	uint32_t head, tail, phase;
	uint32_t stop;
};

/*
 * Completes all there is. The completion queue cannot overflow: it has two entries for each command that can be in flight, and an
 * honest thread after it.
 */
static uint32_t serve(struct controller *c)
{
	uint32_t tail = __atomic_load_n(c->q.sq_db, __ATOMIC_ACQUIRE), n = 0;

	for (; c->head != tail; n++) {
		uint32_t cid = c->q.sq[16 * c->head] >> 16, *cqe = c->q.cq + 4 * c->tail;

		c->head = (c->head + 1) & (c->q.sq_depth - 1);
		cqe[0] = 0;
		cqe[1] = 0;
		cqe[2] = (uint32_t)c->q.qid << 16 | c->head;
		__atomic_store_n(&cqe[3], c->phase << 16 | cid, __ATOMIC_RELEASE);
		c->tail = (c->tail + 1) & (c->q.cq_depth - 1);
		c->phase ^= c->tail == 0;
	}
	return n;
}

/* Spins; yields now and then, as thread and controller may have to share a CPU. */
static void *serve_thread(void *arg)
{
	struct controller *c = arg;
	uint32_t quiet = 0;

	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		quiet = serve(c) ? 0 : quiet + 1;
		if (quiet >= 1024) {
			sched_yield();
			quiet = 0;
		}
	}
	return NULL;
}

static void controller_init(struct controller *c, const struct rig *r)
{
	memset(c, 0, sizeof(*c));
	c->q = r->ctrl.q;
	c->phase = 1;
}

/* The controller is part of this program: that it fails is a bug of the device header, or of this file. */
static void must(int ret)
{
	if (ret)
		exit(failed("a command failed: %s", gpunvme_strerror(ret)));
}

static void submit(const struct rig *r, struct gpunvme_req *req, uint64_t i)
{
	must(gpunvme_submit_read(&r->dq, &r->dbuf, (i % 256) * 4096, (uint64_t)i << r->dq.lba_shift, 8ull << r->dq.lba_shift, req));
}

/* ---- A thread as controller ---- */

struct run {
	struct rig *rig;
	uint32_t qd;
	uint64_t end_ns;
	uint64_t commands;
	double seconds;
};

static void lane(void *arg)
{
	struct gpunvme_req req[MAX_QD];
	struct run *run = arg;
	const struct gpunvme_dq *dq = &run->rig->dq;
	uint64_t start = now_ns(), n = 0;
	uint32_t i;

	for (i = 0; i < run->qd; i++)
		submit(run->rig, &req[i], i);
	do {
		for (i = 0; i < run->qd; i++, n++) {
			must(gpunvme_wait(dq, &req[i], 0));
			submit(run->rig, &req[i], n);
		}
	} while ((n / run->qd) % 64 || (now_ns() < run->end_ns && !interrupted));
	for (i = 0; i < run->qd; i++, n++)
		must(gpunvme_wait(dq, &req[i], 0));
	run->commands = n;
	run->seconds = (double)(now_ns() - start) / 1e9;
}

static int measure(uint32_t qd, double seconds, struct json_object *points)
{
	struct run run = { rig_new(SQ_SHIFT, 0), qd, now_ns() + (uint64_t)(seconds * 1e9), 0, 0 };
	struct json_object *point;
	struct controller c;
	pthread_t thread;
	double rate, each;
	int ret;

	run.rig->dq.flags &= ~(uint32_t)GPUNVME_DQ_STATS;
	controller_init(&c, run.rig);
	ret = pthread_create(&thread, NULL, serve_thread, &c);
	if (ret)
		return failed("no thread for the controller: %s", strerror(ret));
	ret = gpunvme_cpu_launch(1, 1, lane, &run);
	__atomic_store_n(&c.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	rate = ret ? 0 : (double)run.commands / run.seconds;
	each = rate > 0 ? 1e9 / rate : 0;
	if (points) {
		point = append_object(points);
		put_count(point, "qd", qd);
		put_real(point, "commands_per_second", rate, 0);
	} else {
		printf("  %3u outstanding   %6.2f million commands/s, %6.0f ns each\n", qd, rate / 1e6, each);
	}
	rig_free(run.rig);
	return ret ? failed("no thread for the lane") : GO_ON;
}

/* ---- The thread as controller ---- */

static void run_inline(uint64_t commands, uint32_t qd, int empty, uint32_t flags)
{
	struct rig *r = rig_new(SQ_SHIFT, 0);
	struct gpunvme_req req[MAX_QD];
	struct controller c;

	r->dq.flags = (r->dq.flags & ~(uint32_t)GPUNVME_DQ_STATS) | flags;
	controller_init(&c, r);
	for (uint64_t n = 0; n < commands; n += qd) {
		for (uint32_t i = 0; i < qd && !empty; i++)
			submit(r, &req[i], n);
		if (empty)
			__atomic_store_n(c.q.sq_db, (c.head + qd) & (c.q.sq_depth - 1), __ATOMIC_RELEASE);
		serve(&c);
		for (uint32_t i = 0; i < qd && !empty; i++)
			must(gpunvme_wait(&r->dq, &req[i], 0));
	}
	rig_free(r);
}

int main(int argc, char **argv)
{
	struct json_object *result, *points;
	uint64_t ms = 1000, commands = 0;
	uint32_t qd = 1;
	int json = 0, empty = 0, stats = 0, latency = 0, ret;
	const struct option_def defs[] = {
		{ "ms", OPTION_U64, &ms, 1, "N", "milliseconds for each number of outstanding commands (default 1000)" },
		{ "inline", OPTION_U64, &commands, 1, "N", "that many commands without a second thread" },
		{ "qd", OPTION_U32, &qd, 1, "N", "with --inline: outstanding, 1 to 64 (default 1)" },
		{ "empty", OPTION_FLAG, &empty, 0, NULL, "with --inline: leave out the lane's part" },
		{ "stats", OPTION_FLAG, &stats, 0, NULL, "with --inline: keep counters" },
		{ "latency", OPTION_FLAG, &latency, 0, NULL, "with --inline: keep the histogram of latencies" },
		{ "json", OPTION_FLAG, &json, 0, NULL, "the result as one JSON object" },
		OPTIONS_END,
	};

	program = "queue_path";
	catch_signals();
	ret = parse_options(argc, argv, "usage: queue_path [options]", defs, NULL, 0);
	if (ret != GO_ON)
		return ret;
	if (qd > MAX_QD || ms > 600000 || commands > 1000000000)
		return misused("--qd must be at most %u, --ms 600000, --inline 1000000000", MAX_QD);
	if (commands) {
		run_inline(commands, qd, empty, (stats ? GPUNVME_DQ_STATS : 0u) | (latency ? GPUNVME_DQ_LATENCY : 0u));
		return EXIT_DONE;
	}
	result = print_setup(json, NULL);
	points = json ? put_list(result, "points") : NULL;
	ret = measure(1, (double)ms / 1000, points);
	if (ret == GO_ON)
		ret = measure(64, (double)ms / 1000, points);
	if (json && ret == GO_ON)
		print_object(result);
	return finish(ret == GO_ON ? EXIT_DONE : ret);
}
