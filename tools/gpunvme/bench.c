/* SPDX-License-Identifier: MIT */
/*
 * gpunvme bench: IOPS, bandwidth and latency of one access pattern.
 *
 * Each lane keeps --qd commands in flight: it holds that many handles and as many parts of the buffer, submits where a handle is
 * free and polls the others in turn. Latencies are those that the queues keep: from the write of a command to the drain that finds
 * its completion. They are ends of buckets, which are an eighth of their time wide.
 *
 * On a GPU the library's own kernel moves blocks in order, one command at a time for each of lanes times --qd lanes; IOPS and
 * bandwidth include the start of the kernels.
 */
#include "verbs.h"

#include <pthread.h>
#include <sched.h>

struct bench_lane {
	uint64_t ios;
	uint64_t sequence; /* next transfer when sequential */
	uint64_t seed;
	int status; /* the first failure */
};

struct bench {
	struct session s;
	struct session_opts o;
	const char *rw;
	uint64_t bs;
	uint32_t qd;
	uint32_t seconds;
	int write;
	int random;
	uint32_t nblocks; /* of one command */
	uint64_t slots;	  /* places of that size in the namespace */
	uint64_t end_ns;
	double took;
	struct bench_lane *lane;
	int done; /* the lanes have stopped; read and written atomically */
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void count(struct bench_lane *l, int status)
{
	__atomic_store_n(&l->ios, l->ios + 1, __ATOMIC_RELAXED); /* the progress thread looks */
	l->status = l->status ? l->status : status;
}

static uint64_t next_slot(const struct bench *b, struct bench_lane *l)
{
	if (!b->random) {
		l->sequence += b->s.lanes;
		return (l->sequence - b->s.lanes) % b->slots;
	}
	l->seed ^= l->seed << 13;
	l->seed ^= l->seed >> 7;
	l->seed ^= l->seed << 17;
	return l->seed % b->slots;
}

/* One handle of a lane. */
struct flight {
	struct gpunvme_req req;
	int busy;
};

/* Submits on a free handle or polls a busy one. Answers 1 when something moved, 0 when not, negative to give up. */
static int turn(struct bench *b, const struct gpunvme_dq *dq, struct bench_lane *l, struct flight *f, uint64_t offset)
{
	int status;

	if (f->busy) {
		status = gpunvme_poll(dq, &f->req);
		if (status == -GPUNVME_EAGAIN)
			return 0;
		count(l, status);
		f->busy = 0;
	} else {
		uint64_t lba = next_slot(b, l) * b->nblocks;

		if (now_ns() >= b->end_ns || interrupted)
			return 0;
		status = b->write ? gpunvme_submit_write(dq, &b->s.dbuf, offset, lba, b->nblocks, &f->req)
				  : gpunvme_submit_read(dq, &b->s.dbuf, offset, lba, b->nblocks, &f->req);
		if (status == -GPUNVME_EAGAIN)
			return 0;
		f->busy = !status;
		if (status)
			l->status = l->status ? l->status : status;
	}
	return status < 0 ? status : 1;
}

static void bench_kernel(void *arg)
{
	struct bench *b = arg;
	uint32_t number = gpunvme_lane();
	struct bench_lane *l = &b->lane[number];
	const struct gpunvme_dq *dq = &b->s.dq[number % b->s.queues];
	struct flight *flights = calloc(b->qd, sizeof(*flights));
	uint64_t base = (uint64_t)number * b->qd * b->bs;
	int busy = 1;

	if (!flights) {
		l->status = -ENOMEM;
		return;
	}
	while (busy && l->status >= 0) {
		int moved = 0;

		busy = now_ns() < b->end_ns && !interrupted;
		for (uint32_t i = 0; i < b->qd; i++) {
			moved |= turn(b, dq, l, &flights[i], base + i * b->bs) > 0;
			busy |= flights[i].busy;
		}
		if (!moved)
			sched_yield();
	}
	/* After a failure of the queue nothing may stay in flight that the buffer still belongs to. */
	for (uint32_t i = 0; i < b->qd; i++)
		if (flights[i].busy)
			gpunvme_wait(dq, &flights[i].req, 0);
	free(flights);
}

static uint64_t total_ios(const struct bench *b)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < b->s.lanes; i++)
		n += __atomic_load_n(&b->lane[i].ios, __ATOMIC_RELAXED);
	return n;
}

static void *show_progress(void *arg)
{
	struct bench *b = arg;
	uint64_t before = 0;
	struct timespec nap = { 0, 250000000 };

	while (!__atomic_load_n(&b->done, __ATOMIC_ACQUIRE)) {
		uint64_t ios = total_ios(b);
		uint64_t now = now_ns();

		fprintf(stderr, "\r%4.0f s left, %9.0f IOPS ", now < b->end_ns ? (double)(b->end_ns - now) / 1e9 : 0,
			(double)(ios - before) * 4);
		before = ios;
		nanosleep(&nap, NULL);
	}
	fprintf(stderr, "\r%40s\r", "");
	return NULL;
}

/* Starts the lanes, and a thread that shows progress when somebody watches. */
static int launch(struct bench *b)
{
	pthread_t watcher;
	double start = now_s();
	int watched;
	int ret;

	b->end_ns = now_ns() + (uint64_t)b->seconds * 1000000000u;
	watched = isatty(STDERR_FILENO) && pthread_create(&watcher, NULL, show_progress, b) == 0;
	ret = session_launch(&b->s, b->s.lanes, bench_kernel, b);
	b->took = now_s() - start;
	__atomic_store_n(&b->done, 1, __ATOMIC_RELEASE);
	if (watched)
		pthread_join(watcher, NULL);
	return ret;
}

#define GPU_ROUNDS 64u /* commands of one lane in one kernel */

/* The same with lanes of a GPU: pass after pass over the namespace, as much at a time as the buffer holds. */
static int launch_on_gpu(struct bench *b)
{
	uint64_t chunk = gpunvme_mem_len(b->s.mem) / b->bs, at = 0, n;
	struct lane_result failure = { 0, 0, 0 };
	double start = now_s();
	int ret = GO_ON;

	b->end_ns = now_ns() + (uint64_t)b->seconds * 1000000000u;
	while (ret == GO_ON && !failure.status && !interrupted && now_ns() < b->end_ns) {
		at = at < b->slots ? at : 0;
		n = b->slots - at < chunk ? b->slots - at : chunk;
		ret = session_copy(&b->s, b->write ? GPUNVME_COPY_WRITE : 0, at * b->nblocks, n * b->nblocks, b->nblocks, &failure);
		b->lane->ios += n;
		at += n;
	}
	b->took = now_s() - start;
	b->lane->status = failure.status;
	return ret;
}

/* Adds all lanes up in the first one. */
static void add_up(struct bench *b)
{
	struct bench_lane *sum = b->lane;

	for (uint32_t i = 1; i < b->s.lanes; i++) {
		const struct bench_lane *l = &b->lane[i];

		sum->ios += l->ios;
		sum->status = sum->status ? sum->status : l->status;
	}
}

/* What the queues counted, together. */
static int add_queues(const struct bench *b, struct gpunvme_qp_latency *sum, uint64_t *errors)
{
	struct gpunvme_qp_latency latency = { .size = sizeof(latency) };
	struct gpunvme_qp_info info = { .size = sizeof(info) };
	int ret;

	for (uint32_t i = 0; i < b->s.queues; i++) {
		ret = gpunvme_qp_info(b->s.qp[i], &info);
		if (!ret)
			ret = gpunvme_qp_latency(b->s.qp[i], &latency);
		if (ret)
			return failed("%s", why(ret));
		*errors += info.errors;
		sum->ticks_per_ms = latency.ticks_per_ms;
		for (uint32_t k = 0; k < GPUNVME_LATENCY_BUCKETS; k++)
			sum->bucket[k] += latency.bucket[k];
	}
	return GO_ON;
}

static double us(const struct gpunvme_qp_latency *sum, uint32_t per_million)
{
	return (double)gpunvme_latency_ns(sum, per_million) / 1e3;
}

static int report(const struct bench *b)
{
	struct gpunvme_qp_latency sum = { .size = sizeof(sum) };
	double iops = (double)b->lane->ios / b->took;
	uint64_t errors = 0;
	const char *text;
	int ret = add_queues(b, &sum, &errors);

	if (ret != GO_ON)
		return ret;
	text = b->o.json ? "{\"rw\": \"%s\", \"bs\": %" PRIu64 ", \"qd\": %u, \"queues\": %u, \"lanes\": %u, \"rung\": \"%s\""
			 : "%s of %" PRIu64 " bytes, %u in flight for each lane, %u queues, %u lanes, rung %s\n";
	printf(text, b->rw, b->bs, b->qd, b->s.queues, b->s.lanes, b->s.rung);
	text = b->o.json ? ", \"seconds\": %.3f, \"ios\": %" PRIu64 ", \"errors\": %" PRIu64
			   ", \"iops\": %.0f, \"bytes_per_second\": %.0f"
			 : "%.2f s, %" PRIu64 " commands, %" PRIu64 " errors: %.0f IOPS, %.0f bytes/s\n";
	printf(text, b->took, b->lane->ios, errors, iops, iops * (double)b->bs);
	text = b->o.json ? ", \"latency_us\": {\"min\": %.2f, \"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"p99.9\": %.2f, "
			   "\"max\": %.2f}}\n"
			 : "latency us: min %.2f  50 %% %.2f  90 %% %.2f  99 %% %.2f  99.9 %% %.2f  max %.2f\n";
	printf(text, us(&sum, 0), us(&sum, 500000), us(&sum, 900000), us(&sum, 990000), us(&sum, 999000), us(&sum, 1000000));
	if (session_on_gpu(&b->s) && !b->o.json)
		printf("lanes on %s\n", b->s.gpu_info.name);
	return EXIT_DONE;
}

static int parse_pattern(struct bench *b)
{
	static const char *const names[] = { "read", "write", "randread", "randwrite" };

	for (int i = 0; i < 4; i++) {
		if (strcmp(b->rw, names[i]) == 0) {
			b->write = i & 1;
			b->random = i >= 2;
			return GO_ON;
		}
	}
	return misused("--rw takes read, write, randread or randwrite, not '%s'", b->rw);
}

/* Checks sizes against the drive and makes queues, buffer and lanes. */
static int prepare(struct bench *b)
{
	int ret;

	if (b->bs % b->s.ns.lba_size)
		return failed("--bs %" PRIu64 " is not a multiple of the block size, %u bytes", b->bs, b->s.ns.lba_size);
	if (b->bs / b->s.ns.lba_size > 65536 || (b->s.info.max_transfer && b->bs > b->s.info.max_transfer))
		return failed("--bs %" PRIu64 " is too large for one command of this controller: use %s or less", b->bs,
			      b->s.info.max_transfer ? human(b->s.info.max_transfer) : "65536 blocks");
	if (b->write && (b->s.ns.read_only || b->s.info.read_only))
		return failed("%s is read-only: only --rw read and randread are possible", b->o.dev);
	if (b->write && !b->o.yes)
		return failed("this would overwrite data on %s, serial %s, %s: add --yes if that is the drive you mean",
			      b->s.info.model, b->s.info.serial, human((double)b->s.ns.nblocks * b->s.ns.lba_size));
	b->nblocks = (uint32_t)(b->bs / b->s.ns.lba_size);
	b->slots = b->s.ns.nblocks / b->nblocks;
	if (!b->slots)
		return failed("the namespace is smaller than --bs: use %s or less",
			      human((double)b->s.ns.nblocks * b->s.ns.lba_size));
	ret = session_open_queues(&b->s, &b->o, b->write ? GPUNVME_VIEW_WRITE : 0, 0, 0);
	if (ret == GO_ON && session_on_gpu(&b->s)) {
		if (b->random)
			return failed("lanes on a GPU move blocks in order here: use --rw read or write, or --gpu cpu");
		if ((uint64_t)b->s.lanes * b->qd > 1u << 16)
			return failed("%u lanes times --qd %u are too many: 65536 at most", b->s.lanes, b->qd);
		b->s.lanes *= b->qd;
		b->qd = 1;
		ret = session_buffer(&b->s, b->bs * b->s.lanes * GPU_ROUNDS);
	} else if (ret == GO_ON) {
		ret = session_buffer(&b->s, b->bs * b->qd * b->s.lanes);
	}
	if (ret != GO_ON)
		return ret;
	b->lane = calloc(b->s.lanes, sizeof(*b->lane));
	for (uint32_t i = 0; b->lane && i < b->s.lanes; i++) {
		b->lane[i].sequence = i;
		b->lane[i].seed = (i + 1) * 0x9e3779b97f4a7c15ull;
	}
	return b->lane ? GO_ON : failed("no memory for %u lanes", b->s.lanes);
}

static int run(struct bench *b)
{
	int ret = prepare(b);

	if (ret == GO_ON)
		ret = session_on_gpu(&b->s) ? launch_on_gpu(b) : launch(b);
	if (ret == GO_ON) {
		add_up(b);
		if (b->lane->status)
			ret = failed("a command failed: %s%s", gpunvme_strerror(b->lane->status), remedy(b->lane->status));
		else if (!b->lane->ios)
			ret = failed("no command ended in time: use a longer --seconds");
		else
			ret = report(b);
	}
	free(b->lane);
	return ret;
}

int verb_bench(int argc, char **argv)
{
	static struct bench b = { .o = SESSION_OPTS_INIT, .rw = "randread", .bs = 4096, .qd = 32, .seconds = 5 };
	const struct option_def defs[] = {
		{ "rw", OPTION_TEXT, &b.rw, 0, "PATTERN  read, write, randread (default), randwrite" },
		{ "bs", OPTION_SIZE, &b.bs, 1, "SIZE     bytes of one command (default 4K)" },
		{ "qd", OPTION_U32, &b.qd, 1, "N        commands each lane keeps in flight (default 32)" },
		{ "seconds", OPTION_U32, &b.seconds, 1, "N        how long (default 5)" },
		OPTIONS_LANES(&b.o),
		{ "yes", OPTION_FLAG, &b.o.yes, 0, "         do overwrite the namespace (write and randwrite)" },
		OPTION_JSON(&b.o),
		OPTIONS_END,
	};
	int ret = parse_verb(argc, argv,
			     "usage: gpunvme bench URI [options]\nMeasures; the write patterns destroy data and need --yes.", defs,
			     &b.o, NULL);

	if (ret == GO_ON)
		ret = parse_pattern(&b);
	if (ret == GO_ON && b.qd > 4096)
		ret = misused("--qd %u is too large: use 4096 or less", b.qd);
	if (ret != GO_ON)
		return ret;
	b.o.copies = 1;
	b.o.queue_flags = GPUNVME_QP_LATENCY;
	catch_signals();
	ret = session_open(&b.s, &b.o);
	if (ret != GO_ON)
		return ret;
	ret = run(&b);
	session_close(&b.s);
	return ret;
}
