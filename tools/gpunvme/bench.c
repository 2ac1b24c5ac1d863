/* SPDX-License-Identifier: MIT */
/*
 * gpunvme bench: IOPS, bandwidth and latency of one access pattern (examples/common/traffic.h). The queues measure latency: from
 * the write of a command to the drain that takes its completion. Latencies are upper bounds of buckets, which are an eighth of
 * their time wide.
 *
 * On a GPU the library's own kernel does the I/O (gpunvme_workload_run()). It runs --threads times --qd threads, each with one
 * command in flight. The time counts from the begin of the first thread to the end of the last.
 */
#include "emulated.h"
#include "verbs.h"

#include <gpunvme/unstable.h>

#include "common/permission.h"
#include "common/progress.h"
#include "common/traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GPU_BUFFER (64 * MIB)
#define NO_MIX UINT32_MAX

struct bench {
	struct session s;
	struct session_opts o;
	struct traffic t;
	const char *rw;
	uint32_t seconds;
	int vram;
	uint32_t mix; /* per cent of reads, or NO_MIX */
	double took;
	int done; /* the threads have stopped (atomic) */
};

static void *show_progress(void *arg)
{
	struct bench *b = arg;
	uint64_t before = 0;
	struct timespec nap = { 0, 250000000 };

	while (!__atomic_load_n(&b->done, __ATOMIC_ACQUIRE)) {
		uint64_t ios = traffic_ios(&b->t);
		uint64_t now = traffic_ns();

		fprintf(stderr, "\r%4.0f s left, %9.0f IOPS ", now < b->t.end_ns ? (double)(b->t.end_ns - now) / 1e9 : 0,
			(double)(ios - before) * 4);
		before = ios;
		nanosleep(&nap, NULL);
	}
	fprintf(stderr, "\r%40s\r", "");
	return NULL;
}

/* Start the threads, and a thread that shows progress on a terminal. */
static int launch(struct bench *b)
{
	pthread_t watcher;
	double start = now_s();
	int watched;
	int ret;

	b->t.end_ns = traffic_ns() + (uint64_t)b->seconds * 1000000000u;
	watched = isatty(STDERR_FILENO) && pthread_create(&watcher, NULL, show_progress, b) == 0;
	ret = session_launch(&b->s, b->s.threads, traffic_kernel, &b->t);
	b->took = now_s() - start;
	__atomic_store_n(&b->done, 1, __ATOMIC_RELEASE);
	if (watched)
		pthread_join(watcher, NULL);
	return ret;
}

#define GPU_MS 500u /* of one kernel, so that a signal takes effect */

/* The same with threads of a GPU and the library's own kernel: each has one command in flight. */
static int launch_on_gpu(struct bench *b)
{
	struct gpunvme_workload load = GPUNVME_WORKLOAD_INIT;
	int status = 0;

	load.flags = (b->t.reads ? 0 : GPUNVME_WORKLOAD_WRITE) | (b->t.random ? GPUNVME_WORKLOAD_RANDOM : 0);
	load.threads = b->s.threads;
	load.nblocks = b->t.nblocks;
	load.ms = GPU_MS;
	b->t.end_ns = traffic_ns() + (uint64_t)b->seconds * 1000000000u;
	while (!status && !interrupted && traffic_ns() < b->t.end_ns) {
		status = gpunvme_workload_run(b->s.gpu, b->s.dq, b->s.queues, &b->s.dbuf, &load);
		load.seed = load.next;
		b->t.thread->ios += load.commands;
		b->took += (double)load.took_ns / 1e9;
	}
	b->t.thread->status = status;
	return status < 0 && !load.commands ? failed("%s", why(status)) : GO_ON;
}

/* Add the results of all threads up in the first one. */
static void add_up(struct bench *b)
{
	struct traffic_thread *sum = b->t.thread;

	for (uint32_t i = 1; i < b->s.threads; i++) {
		const struct traffic_thread *l = &b->t.thread[i];

		sum->ios += l->ios;
		sum->status = sum->status ? sum->status : l->status;
	}
}

/* Add up the statistics of the queues. */
static int add_queues(const struct bench *b, struct gpunvme_queue_latency *sum, uint64_t *errors)
{
	struct gpunvme_queue_latency latency = { .size = sizeof(latency) };
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	int ret;

	for (uint32_t i = 0; i < b->s.queues; i++) {
		ret = gpunvme_queue_get_info(b->s.queue[i], &info);
		if (!ret)
			ret = gpunvme_queue_get_latency(b->s.queue[i], &latency);
		if (ret)
			return failed("%s", why(ret));
		*errors += info.errors;
		sum->ticks_per_ms = latency.ticks_per_ms;
		for (uint32_t k = 0; k < GPUNVME_LATENCY_BUCKETS; k++)
			sum->bucket[k] += latency.bucket[k];
	}
	return GO_ON;
}

static double us(const struct gpunvme_queue_latency *sum, uint32_t per_million)
{
	return (double)gpunvme_latency_ns(sum, per_million) / 1e3;
}

/* By the end of each command's bucket, as all latencies here. */
static double mean_us(const struct gpunvme_queue_latency *sum)
{
	struct gpunvme_queue_latency one = *sum;
	double all = 0, count = 0;

	memset(one.bucket, 0, sizeof(one.bucket));
	for (uint32_t i = 0; i < GPUNVME_LATENCY_BUCKETS; i++) {
		if (!sum->bucket[i])
			continue;
		one.bucket[i] = 1;
		all += us(&one, 1000000) * (double)sum->bucket[i];
		count += (double)sum->bucket[i];
		one.bucket[i] = 0;
	}
	return count > 0 ? all / count : 0;
}

/* Shares of a million commands, and their names. */
static const struct share {
	const char *json, *text;
	uint32_t per_million;
} shares[] = {
	{ "min", "min", 0 },	   { "p50", "50 %", 500000 },	  { "p90", "90 %", 900000 },
	{ "p99", "99 %", 990000 }, { "p99.9", "99.9 %", 999000 }, { "max", "max", 1000000 },
};
#define SHARES (sizeof(shares) / sizeof(shares[0]))

static void print_json(const struct bench *b, const struct gpunvme_queue_latency *sum, uint64_t errors)
{
	struct gpunvme_dev_info now = { .size = sizeof(now) };
	struct json_object *json = json_object_new_object(), *latency;
	double iops = (double)b->t.thread->ios / b->took;

	put_text(json, "rw", b->rw);
	put_count(json, "reads_percent", b->t.reads);
	put_count(json, "bs", b->t.bs);
	put_count(json, "qd", b->t.qd);
	put_count(json, "queues", b->s.queues);
	put_count(json, "threads", b->s.threads);
	put_text(json, "placement", b->s.placement);
	put_real(json, "seconds", b->took, 3);
	put_count(json, "ios", b->t.thread->ios);
	put_count(json, "errors", errors);
	put_bool(json, "interrupted", interrupted != 0);
	gpunvme_dev_get_info(b->s.dev, &now);
	put_emulated(json, &now);
	put_real(json, "iops", iops, 0);
	put_real(json, "bytes_per_second", iops * (double)b->t.bs, 0);
	put_real(json, "latency_mean_us", mean_us(sum), 2);
	latency = put_object(json, "latency_us");
	for (unsigned i = 0; i < SHARES; i++)
		put_real(latency, shares[i].json, us(sum, shares[i].per_million), 2);
	print_object(json);
}

/* Which share of the commands reads, as text. */
static const char *mixed(uint32_t reads)
{
	static char text[32];

	snprintf(text, sizeof(text), ", %u %% reads,", reads);
	return text;
}

static const char *plural(uint32_t n)
{
	return n == 1 ? "" : "s";
}

static void print_text(const struct bench *b, const struct gpunvme_queue_latency *sum, uint64_t errors)
{
	struct gpunvme_dev_info now = { .size = sizeof(now) };
	double iops = (double)b->t.thread->ios / b->took;

	printf("%s%s of %s: %u thread%s on %u queue%s, %u command%s in flight per thread, placement %s\n", b->rw,
	       b->mix == NO_MIX ? "" : mixed(b->mix), human((double)b->t.bs), b->s.threads, plural(b->s.threads), b->s.queues,
	       plural(b->s.queues), b->t.qd, plural(b->t.qd), b->s.placement);
	printf("%sIOPS, %sB/s: %" PRIu64 " commands in %.2f s, %" PRIu64 " errors\n", decimal(iops), decimal(iops * (double)b->t.bs),
	       b->t.thread->ios, b->took, errors);
	printf("latency in us: mean %.2f", mean_us(sum));
	for (unsigned i = 0; i < SHARES; i++)
		printf("  %s %.2f", shares[i].text, us(sum, shares[i].per_million));
	putchar('\n');
	gpunvme_dev_get_info(b->s.dev, &now);
	if (now.emulated)
		printf("emulated %s\n", emulated(&now));
	if (session_on_gpu(&b->s))
		printf("threads of %s\n", b->s.gpu_info.name);
}

static int report(const struct bench *b)
{
	struct gpunvme_queue_latency sum = { .size = sizeof(sum) };
	uint64_t errors = 0;
	int ret = add_queues(b, &sum, &errors);

	if (ret != GO_ON)
		return ret;
	(b->o.json ? print_json : print_text)(b, &sum, errors);
	if (!interrupted)
		return EXIT_DONE;
	fflush(stdout);
	fprintf(stderr, "%s: interrupted after %.1f of %u s: the figures are of that time\n", program, b->took, b->seconds);
	return EXIT_FAILED;
}

/* Reads and writes mixed: --rw sets the order, --mix the share of reads. */
static int parse_mix(struct bench *b)
{
	if (b->mix == NO_MIX)
		return GO_ON;
	if (b->mix > 100)
		return misused("--mix is a share of reads in per cent: 0 to 100, not %u", b->mix);
	if (!b->t.reads)
		return misused("--mix needs --rw read or randread, not %s", b->rw);
	b->t.reads = b->mix;
	return GO_ON;
}

static int parse_pattern(struct bench *b)
{
	static const char *const names[] = { "read", "write", "randread", "randwrite" };

	for (int i = 0; i < 4; i++) {
		if (strcmp(b->rw, names[i]) == 0) {
			b->t.reads = i & 1 ? 0 : 100;
			b->t.random = i >= 2;
			return parse_mix(b);
		}
	}
	return misused("--rw takes read, write, randread or randwrite, not '%s'", b->rw);
}

/* Checks sizes against the drive and makes queues, buffer and threads. */
static int prepare(struct bench *b)
{
	int ret;

	if (b->t.bs % b->s.ns.lba_size)
		return failed("--bs %" PRIu64 " is not a multiple of the block size, %u bytes", b->t.bs, b->s.ns.lba_size);
	if (b->t.bs / b->s.ns.lba_size > 65536 || (b->s.info.max_transfer && b->t.bs > b->s.info.max_transfer))
		return failed("--bs %" PRIu64 " is too large for one command of this controller: use %s or less", b->t.bs,
			      b->s.info.max_transfer ? human(b->s.info.max_transfer) : "65536 blocks");
	if (b->t.reads < 100 && (b->s.ns.read_only || b->s.info.read_only))
		return failed("%s is read-only: only --rw read and randread without --mix are possible", b->o.dev);
	ret = b->t.reads < 100 ? session_may_destroy(&b->s, &b->o, "") : GO_ON;
	if (ret != GO_ON)
		return ret;
	b->t.nblocks = (uint32_t)(b->t.bs / b->s.ns.lba_size);
	b->t.slots = b->s.ns.nblocks / b->t.nblocks;
	if (!b->t.slots)
		return failed("the namespace is smaller than --bs: use %s or less",
			      human((double)b->s.ns.nblocks * b->s.ns.lba_size));
	ret = session_open_queues(&b->s, &b->o, b->t.reads < 100 ? GPUNVME_VIEW_WRITE : 0, 0, 0);
	if (ret == GO_ON && session_on_gpu(&b->s)) {
		if (b->t.reads % 100)
			return failed("--mix needs threads of the CPU: leave out --gpu, or take --mix 0 or 100");
		if ((uint64_t)b->s.threads * b->t.qd > 1u << 16)
			return failed("%u threads times --qd %u are too many: 65536 at most", b->s.threads, b->t.qd);
		b->s.threads *= b->t.qd;
		b->t.qd = 1;
		ret = session_buffer(&b->s, GPU_BUFFER > b->t.bs ? GPU_BUFFER : b->t.bs); /* its threads share it */
	} else if (ret == GO_ON) {
		ret = session_buffer(&b->s, b->t.bs * b->t.qd * b->s.threads);
	}
	if (ret != GO_ON)
		return ret;
	b->t.dq = b->s.dq;
	b->t.queues = b->s.queues;
	b->t.dbuf = &b->s.dbuf;
	b->t.threads = b->s.threads;
	return traffic_init(&b->t) ? failed("no memory for %u threads", b->s.threads) : GO_ON;
}

static int run(struct bench *b)
{
	int ret = prepare(b);

	if (ret == GO_ON)
		ret = session_on_gpu(&b->s) ? launch_on_gpu(b) : launch(b);
	if (ret == GO_ON) {
		add_up(b);
		if (b->t.thread->status)
			ret = failed("a command failed: %s%s", gpunvme_strerror(b->t.thread->status), remedy(b->t.thread->status));
		else if (!b->t.thread->ios)
			ret = failed(interrupted ? "interrupted before a command ended" : "no command ended in time: use a longer --seconds");
		else
			ret = report(b);
	}
	free(b->t.thread);
	return ret;
}

int verb_bench(int argc, char **argv)
{
	static struct bench b = { .o = SESSION_OPTS_INIT, .t = { .bs = 4096, .qd = 32 }, .rw = "randread", .seconds = 5, .mix = NO_MIX };
	const struct option_def defs[] = {
		OPTION_DEV(&b.o),
		{ "rw", OPTION_TEXT, &b.rw, 0, "PATTERN", "read, write, randread (default), randwrite" },
		{ "mix", OPTION_U32, &b.mix, 0, "PERCENT", "share of reads, the others write (with read and randread)" },
		{ "bs", OPTION_SIZE, &b.t.bs, 1, "SIZE", "bytes of one command (default 4K)" },
		{ "qd", OPTION_U32, &b.t.qd, 1, "N", "commands each thread keeps in flight (default 32)" },
		{ "seconds", OPTION_U32, &b.seconds, 1, "N", "length of the run (default 5)" },
		OPTIONS_THREADS(&b.o),
		OPTION_VRAM(&b.vram),
		{ "yes", OPTION_FLAG, &b.o.yes, 0, NULL, "permit to overwrite the namespace (write, randwrite and --mix)" },
		OPTION_JSON(&b.o),
		OPTIONS_END,
	};
	int ret = session_options(argc, argv,
			     "usage: gpunvme bench URI [options]\n"
			     "Measures IOPS, bandwidth and latency. Patterns that write destroy data and need --yes,\n"
			     "but for a drive in memory.", defs,
			     &b.o, NULL);

	if (ret == GO_ON)
		ret = parse_pattern(&b);
	if (ret == GO_ON && b.t.qd > 4096)
		ret = misused("--qd %u is too large: use 4096 or less", b.t.qd);
	if (ret != GO_ON)
		return ret;
	b.o.copies = 1;
	b.o.queue_flags = GPUNVME_QUEUE_LATENCY | (b.vram ? GPUNVME_QUEUE_VRAM : 0);
	catch_signals();
	ret = session_open(&b.s, &b.o);
	if (ret != GO_ON)
		return ret;
	ret = run(&b);
	session_close(&b.s);
	return ret;
}
