/* SPDX-License-Identifier: MIT */
/*
 * bench/drive_memory: reads and writes of a drive on a GPU, with rings and data in memory of the host or of a GPU.
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o drive_memory bench/drive_memory.cu -Lbuild/release/lib \
 *     -lgpunvme -Xlinker -rpath=$PWD/build/release/lib
 *   drive_memory 'soft:vram:2G?on=cuda:0&link=0&queues=64' --queues 32 --vram
 *   drive_memory 'soft:vram:2G?on=cuda:0&link=0&queues=64' --queues 32 --vram --check 20
 *
 * Without --check random reads, or with --writes also writes, are counted, in turns. With it each thread writes blocks of its own
 * and reads them, one command at a time, and compares all bytes of what it has read with what it wrote last. Queues that end, because
 * a command was lost, are recovered, and a write that failed may have happened or not.
 *
 * --vram       rings and data in memory of the GPU that runs the threads
 * --data       only the data
 * --gpu N      that runs the threads (0)
 * --queues N   queue pairs (4)
 * --threads N  a multiple of the next (12,800)
 * --block N    threads of a block (256)
 * --bytes N    of a command (512)
 * --turns N    of reads (9)
 * --ms N       of a turn (300)
 * --alone      one thread of each wave has commands; with latencies of the first of all
 * --rest US    that a thread waits before each command but its first (0). Its latency begins after that
 * --sequential consecutive threads take consecutive places, not random ones. With --alone every 32nd place
 * --writes N   per cent that a wave writes, and not reads (0)
 * --check S    seconds
 * --commands N ends the check sooner
 * --timeout MS of a command (30,000)
 * --plant      one thread expects what it has not written: the check must find that
 *
 * A line of JSON. Ends with 1 when a block was wrong, or a read without --check failed. Built as C++, the threads are of the CPU:
 * that shows that the program is right and nothing about speed.
 */
#include <algorithm>
#include <cinttypes>
#include <ctime>

#include <getopt.h>

#include <gpunvme/device.h>

extern const char *const program;
const char *const program = "drive_memory";

#include "drive_memory.h"

#define OWN 8u /* places of a thread */
#define SAMPLES 65536u

struct options {
	const char *uri = nullptr;
	int vram = 0, data = 0, plant = 0, alone = 0, sequential = 0;
	unsigned gpu = 0, queues = 4, threads = 12800, block = 256, bytes = 512, turns = 9, ms = 300, timeout = 30000, writes = 0, rest = 0;
	double check = 0;
	uint64_t commands = UINT64_MAX;
};

/* Of a thread of the GPU. */
struct lane {
	uint64_t seed, reads, writes, errors, blocks, wrong;
	uint64_t begin, end; /* ticks */
	uint32_t generation[OWN]; /* of its places; 0: zeroes */
	uint32_t unsure;	  /* places, as bits, where a write has failed */
	int status;
};

struct job {
	const gpunvme_dq *dq;
	uint32_t queues, bytes;
	uint64_t places;
	uint32_t ms, round, writes, rest;
	int sequential;
	gpunvme_dbuf buf;
	struct lane *lane;
	uint32_t *sample; /* latencies of the first thread, ns; null: all threads of a wave have commands */
	int plant;
};

__device__ static uint32_t draw(uint64_t *x)
{
	*x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
	return (uint32_t)(*x >> 32);
}

/* 16 bytes, which move together. */
struct alignas(16) vec {
	uint32_t w[4];
};

/* Four words of a place: each has its own value for each generation. */
__device__ static struct vec words_of(uint64_t pos, uint32_t i, uint32_t generation)
{
	uint32_t h = (uint32_t)(pos >> 9) * 0x9e3779b1u ^ generation * 0x85ebca6bu ^ i * 0xc2b2ae35u;

	h ^= h >> 15;
	return generation ? vec{ { h * 3 + 1, h * 5 + 2, h * 7 + 3, h * 9 + 4 } } : vec{ { 0, 0, 0, 0 } };
}

__device__ static bool same(struct vec a, struct vec b)
{
	return a.w[0] == b.w[0] && a.w[1] == b.w[1] && a.w[2] == b.w[2] && a.w[3] == b.w[3];
}

__device__ static uint32_t count_wrong(const struct vec *at, uint64_t pos, uint32_t bytes, uint32_t generation)
{
	uint32_t wrong = 0, block, i;

	for (block = 0; block < bytes / 512; block++) {
		bool fits = true;

		for (i = block * 32; i < block * 32 + 32; i++)
			fits = fits && same(at[i], words_of(pos, i, generation));
		wrong += !fits;
	}
	return wrong;
}

/* Read a place and compare it. After a failed write it has either content, as a whole or by blocks. */
__device__ static int read_own(const struct job &j, const gpunvme_dq &dq, struct lane *l, uint32_t own, uint64_t offset, uint64_t pos)
{
	struct vec *at = (struct vec *)(j.buf.base + offset);
	const uint32_t expected = l->generation[own] + (j.plant && !gpunvme_thread_id());
	uint32_t i, wrong, other = 0;
	int ret;

	for (i = 0; i < j.bytes / 64; i++)
		at[4 * i].w[0] = ~0u; /* what does not arrive is seen */
	ret = gpunvme_read(&dq, &j.buf, offset, pos, j.bytes);
	if (ret)
		return ret;
	wrong = count_wrong(at, pos, j.bytes, expected);
	if (wrong && l->unsure >> own & 1)
		other = j.bytes / 512 - count_wrong(at, pos, j.bytes, expected + 1);
	l->blocks += j.bytes / 512;
	l->wrong += wrong - other;
	l->reads++;
	return 0;
}

/* After a write that failed the next one writes the same, so there are two contents that the place may have. */
__device__ static int write_own(const struct job &j, const gpunvme_dq &dq, struct lane *l, uint32_t own, uint64_t offset, uint64_t pos)
{
	struct vec *at = (struct vec *)(j.buf.base + offset);
	uint32_t i;
	int ret;

	for (i = 0; i < j.bytes / 16; i++)
		at[i] = words_of(pos, i, l->generation[own] + 1);
	ret = gpunvme_write(&dq, &j.buf, offset, pos, j.bytes, 0);
	if (ret) {
		l->unsure |= 1u << own;
		return ret;
	}
	l->unsure &= ~(1u << own);
	l->generation[own]++;
	l->writes++;
	return 0;
}

__global__ static void check_blocks(const struct job j)
{
	const uint32_t me = gpunvme_thread_id();
	const gpunvme_dq dq = j.dq[me / 32 % j.queues];
	const uint64_t begin = gnvd_clock(), end = begin + (uint64_t)j.ms * dq.ticks_per_ms, offset = (uint64_t)me * j.bytes;
	struct lane *out = &j.lane[me], l = *out;
	uint64_t turn = (uint64_t)j.round << 40 | (uint64_t)(me / 32) << 20; /* of the wave: its threads all read, or all write */
	int ret = 0;

	while (ret >= 0 && gnvd_clock() < end) {
		const uint32_t own = draw(&l.seed) % OWN;
		const bool reads = (++turn * 0x9e3779b97f4a7c15ull >> 40 & 3) != 0;
		const uint64_t pos = ((uint64_t)me * OWN + own) * j.bytes;

		ret = reads ? read_own(j, dq, &l, own, offset, pos) : write_own(j, dq, &l, own, offset, pos);
		l.errors += ret != 0;
	}
	l.status = ret;
	l.begin = begin, l.end = gnvd_clock();
	*out = l;
}

/* Return: when the next command begins. */
__device__ static uint64_t rest(uint64_t now, uint64_t ticks)
{
	const uint64_t end = now + ticks;

	while (now < end)
		now = gnvd_clock();
	return now;
}

__global__ static void move_blocks(const struct job j)
{
	const uint32_t me = gpunvme_thread_id();
	const gpunvme_dq dq = j.dq[me / 32 % j.queues];
	const uint64_t begin = gnvd_clock(), end = begin + (uint64_t)j.ms * dq.ticks_per_ms, offset = (uint64_t)me * j.bytes;
	struct lane *l = &j.lane[me];
	uint64_t seed = l->seed, done = 0, turn = (uint64_t)(me / 32) << 20; /* of the wave, as in check_blocks() */
	uint64_t since = begin;
	int ret = 0;

	while (!ret && since < end && !(j.sample && me % 32)) {
		const uint64_t next = (uint64_t)j.round * j.places / 16 + done * gpunvme_thread_count() + me;
		const uint64_t place = (j.sequential ? next : (uint64_t)draw(&seed) << 16 | draw(&seed) >> 16) % j.places;
		const bool writes = j.writes && (++turn * 0x9e3779b97f4a7c15ull >> 40) % 100 < j.writes;

		ret = writes ? gpunvme_write(&dq, &j.buf, offset, place * j.bytes, j.bytes, 0) :
			       gpunvme_read(&dq, &j.buf, offset, place * j.bytes, j.bytes);
		const uint64_t now = gnvd_clock();
		if (j.sample && !me && done < SAMPLES)
			j.sample[done] = (uint32_t)((now - since) * 1000000 / dq.ticks_per_ms);
		since = rest(now, (uint64_t)j.rest * dq.ticks_per_ms / 1000);
		done += !ret;
	}
	l->seed = seed;
	l->reads = done;
	l->status = ret;
	l->begin = begin, l->end = gnvd_clock();
}

/* ---- The host ---- */

struct rig {
	gpunvme_dev *dev = nullptr;
	gpunvme_gpu *gpu = nullptr;
	gpunvme_mem *mem = nullptr;
	std::vector<gpunvme_queue *> queue;
	struct gpunvme_dev_info info = {};
	struct gpunvme_queue_info rings = {};
	struct job job = {};
	struct there there;
	uint32_t block = 0;
	std::vector<gpunvme_dq> dq;
	std::vector<struct lane> lane;
	uint64_t recoveries = 0;
};

static double now_s()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int view(struct rig &r, size_t i)
{
	gpunvme_view window = GPUNVME_VIEW_INIT;

	window.flags = GPUNVME_VIEW_WRITE;
	return gpunvme_queue_view(r.queue[i], &window, &r.dq[i]);
}

static void open_queues(struct rig &r, const options &o)
{
	gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;

	opts.flags = o.vram ? GPUNVME_QUEUE_VRAM : 0;
	opts.cmd_timeout_ms = o.timeout;
	r.queue.resize(o.queues);
	r.dq.resize(o.queues);
	for (size_t i = 0; i < r.queue.size(); i++) {
		check(gpunvme_queue_create(r.dev, r.gpu, &opts, &r.queue[i]));
		check(view(r, i));
	}
	r.rings.size = sizeof(r.rings);
	check(gpunvme_queue_get_info(r.queue[0], &r.rings));
}

static void open_buffer(struct rig &r, const options &o)
{
	gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	struct gpunvme_ns_info ns = {};

	ns.size = sizeof(ns);
	check(gpunvme_ns_get_info(r.dev, 0, &ns));
	opts.flags = o.data ? GPUNVME_MEM_VRAM : 0; /* else with the rings */
	check(gpunvme_mem_alloc(r.gpu, r.queue[0], (size_t)o.threads * o.bytes, &opts, &r.mem));
	check(gpunvme_mem_map(r.mem, r.dev));
	check(gpunvme_mem_dbuf(r.mem, r.dev, &r.job.buf));
	r.job.places = ns.nblocks * ns.lba_size / o.bytes;
	if (o.check > 0 && r.job.places < (uint64_t)o.threads * OWN)
		die("the drive is too small for these threads");
}

static void print_log(void *, enum gpunvme_log_level level, const char *text)
{
	if (level <= GPUNVME_LOG_WARN)
		fprintf(stderr, "%s: %s\n", program, text);
}

static void open_rig(struct rig &r, const options &o)
{
	gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;

	open_there(r.there, o.gpu, &r.gpu);
	opts.log = print_log;
	check(gpunvme_dev_open(o.uri, &opts, &r.dev));
	r.info.size = sizeof(r.info);
	check(gpunvme_dev_get_info(r.dev, &r.info));
	open_queues(r, o);
	open_buffer(r, o);
	r.lane.resize(o.threads);
	r.block = o.block;
	for (uint32_t i = 0; i < o.threads; i++)
		r.lane[i].seed = (i + 1) * 0x9e3779b97f4a7c15ull;
	r.job.lane = (struct lane *)memory_there(o.threads * sizeof(struct lane));
	r.job.dq = (gpunvme_dq *)memory_there(o.queues * sizeof(gpunvme_dq));
	copy_there(r.there, r.job.lane, r.lane.data(), o.threads * sizeof(struct lane));
	if (o.alone)
		r.job.sample = (uint32_t *)memory_there(SAMPLES * sizeof(uint32_t));
	r.job.queues = o.queues;
	r.job.bytes = o.bytes;
	r.job.ms = o.ms;
	r.job.plant = o.plant;
	r.job.writes = o.writes;
	r.job.rest = o.rest;
	r.job.sequential = o.sequential;
}

static void close_rig(struct rig &r)
{
	for (gpunvme_queue *queue : r.queue)
		gpunvme_queue_destroy(queue);
	check(gpunvme_mem_free(r.mem));
	check(gpunvme_dev_close(r.dev));
	gpunvme_gpu_close(r.gpu);
}

static void print_common(const struct rig &r, const options &o)
{
	printf("{\"uri\": \"%s\", \"threads_on\": %u, \"placement\": \"%s\", \"data\": \"%s\", \"queues\": %u, \"threads\": %u, "
	       "\"bytes\": %u, "
	       "\"link\": %" PRIu64 ", \"no_link\": %s, \"writes_percent\": %u, \"sequential\": %s, \"rest_us\": %u, ",
	       o.uri, o.gpu, r.rings.placement, o.vram || o.data ? "gpu" : "host", o.queues, o.threads, o.bytes, r.info.link,
	       r.info.no_link ? "true" : "false", o.check > 0 ? 25 : o.writes, o.sequential ? "true" : "false", o.rest);
}

/* Queues that have ended, and views of all. */
static void repair(struct rig &r)
{
	for (size_t i = 0; i < r.queue.size(); i++) {
		gpunvme_queue_retire(r.queue[i]);
		if (!view(r, i))
			continue;
		check(gpunvme_queue_recover(r.queue[i]));
		gpunvme_queue_retire(r.queue[i]);
		check(view(r, i));
		r.recoveries++;
	}
}

/* Run a kernel once. Return: the sums over all its threads. */
static struct lane run(struct rig &r, void (*kernel)(struct job))
{
	const uint32_t threads = (uint32_t)r.lane.size();
	struct lane sum = {};

	copy_there(r.there, (void *)r.job.dq, r.dq.data(), r.dq.size() * sizeof(r.dq[0]));
	launch(r.there, kernel, threads, r.block, r.job);
	copy_back(r.there, r.lane.data(), r.job.lane, threads * sizeof(r.lane[0]));
	for (const struct lane &l : r.lane) {
		sum.reads += l.reads, sum.writes += l.writes, sum.errors += l.errors;
		sum.blocks += l.blocks, sum.wrong += l.wrong;
		sum.status = sum.status ? sum.status : l.status;
		sum.begin = sum.begin ? std::min(sum.begin, l.begin) : l.begin;
		sum.end = std::max(sum.end, l.end);
	}
	return sum;
}

static int check_all(struct rig &r, const options &o)
{
	const double begin = now_s();
	struct lane sum;

	do {
		r.job.round++;
		sum = run(r, check_blocks);
		repair(r);
	} while (now_s() - begin < o.check && sum.reads + sum.writes < o.commands && !sum.wrong);
	print_common(r, o);
	printf("\"reads\": %" PRIu64 ", \"writes\": %" PRIu64 ", \"blocks\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"failed\": %" PRIu64
	       ", \"recoveries\": %" PRIu64 ", \"seconds\": %.2f, \"last\": \"%s\"}\n", sum.reads, sum.writes, sum.blocks, sum.wrong,
	       sum.errors, r.recoveries, now_s() - begin, sum.status ? gpunvme_strerror(sum.status) : "");
	return sum.wrong != 0;
}

/* Of the last turn. */
static void print_latency(struct rig &r)
{
	std::vector<uint32_t> ns(std::min(r.lane[0].reads, (uint64_t)SAMPLES));
	double sum = 0;

	if (ns.empty())
		die("no command ended in time: use a longer --ms");
	copy_back(r.there, ns.data(), r.job.sample, ns.size() * sizeof(ns[0]));
	std::sort(ns.begin(), ns.end());
	for (uint32_t n : ns)
		sum += n;
	printf("\"latency_us\": {\"mean\": %.2f, \"p50\": %.2f, \"p99\": %.2f}, ", sum / (double)ns.size() / 1e3, ns[ns.size() / 2] / 1e3,
	       ns[ns.size() * 99 / 100] / 1e3);
}

static int measure(struct rig &r, const options &o)
{
	std::vector<double> rate;
	struct lane sum = {};

	for (unsigned i = 0; i <= o.turns && !sum.status; i++) { /* the first one does not count */
		r.job.round = i;
		sum = run(r, move_blocks);
		if (i)
			rate.push_back((double)sum.reads * r.dq[0].ticks_per_ms * 1e3 / (double)(sum.end - sum.begin));
	}
	if (sum.status)
		die(std::string("a command failed: ") + gpunvme_strerror(sum.status));
	std::sort(rate.begin(), rate.end());
	print_common(r, o);
	if (o.alone)
		print_latency(r);
	printf("\"reads_per_second\": %.0f, \"least\": %.0f, \"most\": %.0f, \"bytes_per_second\": %.0f}\n", rate[rate.size() / 2], rate[0],
	       rate.back(), rate[rate.size() / 2] * o.bytes);
	return 0;
}

static options parse(int argc, char **argv)
{
	static options o;
	static const struct option known[] = {
		{ "vram", no_argument, &o.vram, 1 },	     { "data", no_argument, &o.data, 1 },
		{ "alone", no_argument, &o.alone, 1 }, { "plant", no_argument, &o.plant, 1 },	     { "gpu", required_argument, nullptr, 'g' },
		{ "queues", required_argument, nullptr, 'q' }, { "threads", required_argument, nullptr, 't' },
		{ "block", required_argument, nullptr, 'l' },	     { "bytes", required_argument, nullptr, 'b' }, { "turns", required_argument, nullptr, 'n' },
		{ "ms", required_argument, nullptr, 'm' },   { "check", required_argument, nullptr, 'c' },
		{ "commands", required_argument, nullptr, 'k' }, { "timeout", required_argument, nullptr, 'o' },
		{ "writes", required_argument, nullptr, 'w' }, { "rest", required_argument, nullptr, 'r' },
		{ "sequential", no_argument, &o.sequential, 1 },
		{ nullptr, 0, nullptr, 0 },
	};
	int key;

	while ((key = getopt_long(argc, argv, "", known, nullptr)) != -1) {
		const unsigned long long value = optarg ? strtoull(optarg, nullptr, 10) : 0;
		unsigned *const to = key == 'g' ? &o.gpu : key == 'q' ? &o.queues : key == 't' ? &o.threads : key == 'b' ? &o.bytes :
				     key == 'n' ? &o.turns : key == 'm' ? &o.ms : key == 'o' ? &o.timeout : key == 'l' ? &o.block :
				     key == 'w' ? &o.writes : key == 'r' ? &o.rest : nullptr;

		if (key == '?')
			exit(2);
		if (key == 'c')
			o.check = strtod(optarg, nullptr);
		else if (key == 'k')
			o.commands = value;
		else if (to)
			*to = (unsigned)value;
	}
	o.uri = optind + 1 == argc ? argv[optind] : nullptr;
	if (!o.uri || !o.queues || !o.turns || !o.ms || !o.block || o.block % 32 || !o.threads || o.threads % o.block || !o.bytes || o.bytes % 512 ||
	    o.writes > 100)
		die("usage: drive_memory URI [--vram | --data] [--gpu N] [--queues N] [--threads N] [--block N] [--bytes N] [--turns N] [--ms N] "
		    "[--writes PERCENT] [--sequential] [--rest US] [--alone] [--check SECONDS] [--commands N] [--timeout MS] [--plant]");
	return o;
}

int main(int argc, char **argv)
{
	const options o = parse(argc, argv);
	static struct rig r;
	int wrong;

	open_rig(r, o);
	wrong = o.check > 0 ? check_all(r, o) : measure(r, o);
	close_rig(r);
	return wrong;
}
