/* SPDX-License-Identifier: MIT */
/*
 * bench/gather_drive: rows of a feature matrix on a drive, read by threads of the GPU and by CPU threads that read for them. A wave
 * adds up the rows of the neighbours of a node, as a layer of a graph neural network does. Which rows a node has is known early.
 *
 *   0 CPU threads   the threads of one kernel read with <gpunvme/device.h>, each thread of a wave a row
 *   N CPU threads   they know the lists, too, and read through bare rings (chains/rings.h) as soon as a wave has used its rows. The
 *                   waves are those of a kernel that stays (chains/waves.h): no list crosses the link, and there are no launches.
 *                   Or they start kernels for batches of nodes whose rows are there, as CUDA graphs or launches (chains/batches.h)
 *
 * Both have the same drive and rings in memory of the host. Rows arrive there, too, or with --data in memory of the GPU. The queues
 * of the GPU have the flags that gpunvme_gpu_ordering_test() finds to be safe. The words of one sum in 64 are compared with what they must
 * be.
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o gather_drive bench/gather_drive.cu -Lbuild/release/lib \
 *     -lgpunvme -Xlinker -rpath=$PWD/build/release/lib
 *   gather_drive 'soft:vram:4G?on=cuda:1&lat_us=20&queues=36' --row 512 --ways 0:32:1536,1:8:384,4:32:384,12:36:768
 *
 * --ways N:Q:S,.. CPU threads, queues, nodes at a time, one way after the other (0:32:1536). N:Q:S:graphB: CUDA graphs, for B
 *                 batches of nodes of each CPU thread; N:Q:S:launchB: launches
 * --row BYTES     a power of two from 512 to 4096 (4096)
 * --fan N         neighbours of a node (16; at most 32)
 * --runs N        so many times
 * --seconds S     of a run
 * --data          rows arrive in memory of the GPU
 *
 * Writes over what the drive has. A line of JSON for each run. Ends with 1 when a sum was wrong or a read failed. Built as C++,
 * kernels are threads of the CPU: that shows that the program is right and nothing about speed.
 */
#include <algorithm>
#include <cinttypes>
#include <ctime>
#include <thread>
#include <vector>

#include <getopt.h>

#include <gpunvme/device.h>

#include "chains/rig.h"
#include "chains/waves.h"
#include "chains/ways.h"

const char *const program = "gather_drive";

static const char usage[] =
	"usage: gather_drive URI [--ways THREADS:QUEUES:NODES[:graphN|:launchN],..] [--row BYTES] [--fan N] [--runs N] [--seconds S] "
	"[--data]";

#define FILL (64u << 10) /* bytes of a write */
#define FILL_WAVES 32u
#define FAN 32u
#define LOADS 16u /* of a thread in flight */

struct setup {
	const char *uri;
	std::vector<struct way> ways = {};
	uint32_t runs = 1, row = 4096, fan = 16;
	double seconds = 1;
	bool data = false;
};

struct counts {
	unsigned long long nodes, wrong;
};

/* Of trip: node is a row's bytes, chains are slots. A slot has room for the rows of a node. */
struct job : trip {
	uint64_t rows; /* of the matrix */
	uint32_t fan;
	uint64_t *sum; /* a row for each slot, in memory of the threads */
	struct counts *counts;
	struct waves waves;
};

/* ---- Nodes and rows ---- */

WAVE_BOTH uint64_t word_of(uint64_t index)
{
	index = (index ^ index >> 31) * 0x9e3779b97f4a7c15ull;
	return index ^ index >> 29;
}

/* The node that a slot has in its turn, from 1. */
WAVE_BOTH uint64_t node_of(const struct job &j, uint32_t slot, uint64_t turn)
{
	return turn * j.chains + slot;
}

WAVE_BOTH uint64_t neighbour(const struct job &j, uint64_t node, uint32_t i)
{
	return word_of(node * FAN + i + 1) % j.rows;
}

WAVE_BOTH uint64_t place_of(const struct job &j, uint32_t slot, uint32_t i)
{
	return ((uint64_t)slot * j.fan + i) * j.node;
}

/* ---- Waves ---- */

/* Return: all rows of the node are there. */
WAVE_FN bool read_rows(const struct job &j, const struct gpunvme_dq *dq, uint32_t slot, uint64_t node)
{
	int err = 0;

	for (uint32_t i = wave_lane(); i < j.fan && !err; i += WAVE)
		err = gpunvme_read(dq, &j.buf, place_of(j, slot, i), neighbour(j, node, i) * j.node, j.node);
	if (err)
		*j.failed = err;
	return !wave_ballot(err);
}

WAVE_FN uint64_t add_up(const uint64_t *rows, uint32_t words, uint32_t fan, uint32_t word)
{
	uint64_t v[LOADS], sum = 0;

	for (uint32_t first = 0; first < fan; first += LOADS) {
		WAVE_UNROLL
		for (uint32_t i = 0; i < LOADS; i++)
			v[i] = first + i < fan ? wave_load(rows + (first + i) * words + word) : 0;
		WAVE_UNROLL
		for (uint32_t i = 0; i < LOADS; i++)
			sum += v[i];
	}
	return sum;
}

/* Use the rows of a node. Return: words that are wrong, of one node in 64. */
WAVE_FN uint32_t use_rows(const struct job &j, uint32_t slot, uint64_t node)
{
	const uint64_t *rows = (const uint64_t *)(uintptr_t)(j.buf.base + place_of(j, slot, 0));
	const uint32_t words = j.node / 8;
	uint64_t *sum = j.sum + (uint64_t)slot * words;
	uint32_t wrong = 0;

	for (uint32_t word = wave_lane(); word < words; word += WAVE)
		sum[word] = add_up(rows, words, j.fan, word);
	for (uint32_t word = wave_lane(); node % 64 == 0 && word < words; word += WAVE) {
		uint64_t right = 0;

		for (uint32_t i = 0; i < j.fan; i++)
			right += word_of(neighbour(j, node, i) * words + word);
		wrong += sum[word] != right;
	}
	wave_sync();
	return wrong;
}

/* The CPU threads see that the wave has used its rows. */
WAVE_FN void post_used(const struct waves &w, uint32_t slot, uint64_t turn)
{
	if (wave_lane())
		return;
#ifdef __CUDA_ARCH__
	*(volatile uint64_t *)&w.mail[slot].want[0] = turn;
#else
	__atomic_store_n(&w.mail[slot].want[0], turn, __ATOMIC_RELEASE);
#endif
}

/* The nodes of one wave. @dq: its queue, or null where CPU threads read for it. */
WAVE_FN void run_slot(const struct job &j, const struct gpunvme_dq *dq, const struct seen *seen, uint32_t slot)
{
	const uint64_t begun = clock_ns();
	uint64_t turn = 1;
	uint32_t wrong = 0;

	for (; !dq || wave_ballot(clock_ns() - begun < j.ns); turn++) {
		const uint64_t node = node_of(j, slot, turn);

		if (dq ? !read_rows(j, dq, slot, node) : !wait(j.waves, seen, slot, turn))
			break;
		wrong += use_rows(j, slot, node);
		if (!dq)
			post_used(j.waves, slot, turn);
	}
	wrong = wave_sum(wrong);
	if (wave_lane())
		return;
	wave_add(&j.counts->nodes, turn - 1);
	wave_add(&j.counts->wrong, wrong);
}

/* A slot between two kernels of its batch, in memory of the threads. */
struct kept {
	uint64_t turn, wrong;
};

/* As a turn of run_slot(). Its rows are there. */
WAVE_FN void run_turn(const struct job &j, struct kept *k, uint32_t slot)
{
	const uint64_t turn = k->turn + 1;
	uint32_t wrong = wave_sum(use_rows(j, slot, node_of(j, slot, turn)));

	post_used(j.waves, slot, turn);
	if (wave_lane())
		return;
	k->turn = turn;
	k->wrong += wrong;
}

static void add_counts(struct counts *sum, const struct kept *k, uint32_t slots)
{
	std::vector<struct kept> all(slots);

	local_read(all.data(), k, slots * sizeof(*k));
	for (const struct kept &one : all) {
		sum->nodes += one.turn;
		sum->wrong += one.wrong;
	}
}

/* Each word of the matrix follows from its place. */
WAVE_FN void fill_part(const struct job &j, uint32_t wave)
{
	uint64_t words = FILL / 8, all = j.rows * j.node / FILL;
	volatile uint64_t *own = (volatile uint64_t *)(uintptr_t)(j.buf.base + wave * (uint64_t)FILL);

	for (uint64_t i = wave; i < all; i += FILL_WAVES) {
		for (uint64_t w = wave_lane(); w < words; w += WAVE)
			own[w] = word_of(i * words + w);
#ifdef __CUDA_ARCH__
		__threadfence_system();
#endif
		wave_sync();
		if (wave_lane() == 0) {
			int err = gpunvme_write(&j.dq[wave % j.queues], &j.buf, wave * (uint64_t)FILL, i * FILL, FILL, 0);

			if (err)
				*j.failed = err;
		}
		wave_sync();
	}
}

#ifdef __CUDACC__
__global__ static void __launch_bounds__(BLOCK, 1) walk(const struct job j)
{
	uint32_t own = threadIdx.x / WARP, slot = blockIdx.x * SLOTS + own;
	__shared__ struct gpunvme_dq dq[SLOTS];

	if (slot >= j.chains)
		return;
	if (wave_lane() == 0)
		dq[own] = j.dq[slot % j.queues];
	__syncwarp();
	run_slot(j, &dq[own], nullptr, slot);
}

__global__ static void __launch_bounds__(BLOCK + WARP, 1) work(const struct job j)
{
	uint32_t own = threadIdx.x / WARP, slot = blockIdx.x * SLOTS + own;
	__shared__ struct seen seen;

	watch_begin(&seen);
	if (own == SLOTS)
		watch(j.waves, &seen, j.chains);
	else if (slot < j.chains)
		run_slot(j, nullptr, &seen, slot);
}

__global__ static void __launch_bounds__(BATCH_BLOCK) once(const struct job j, struct kept *k, uint32_t first, uint32_t count)
{
	uint32_t slot = blockIdx.x * (BATCH_BLOCK / WARP) + threadIdx.x / WARP;

	if (slot < count)
		run_turn(j, &k[first + slot], first + slot);
}

static void start_batch(const struct job &j, struct kept *k, uint32_t first, uint32_t count, batch_stream stream)
{
	once<<<(count * WARP + BATCH_BLOCK - 1) / BATCH_BLOCK, BATCH_BLOCK, 0, stream>>>(j, k, first, count);
	check(cudaGetLastError(), "the kernel");
}

__global__ static void fill(const struct job j)
{
	fill_part(j, blockIdx.x);
}

static void run_waves(const struct job &j, bool reads)
{
	cudaStream_t stream;

	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	if (reads)
		walk<<<(j.chains + SLOTS - 1) / SLOTS, BLOCK, 0, stream>>>(j);
	else
		work<<<(j.chains + SLOTS - 1) / SLOTS, BLOCK + WARP, 0, stream>>>(j);
	check(cudaGetLastError(), "the kernel");
	check(cudaStreamSynchronize(stream), "the kernel");
	check(cudaStreamDestroy(stream), "a stream");
}

static void run_fill(const struct job &j)
{
	fill<<<FILL_WAVES, WARP>>>(j);
	check(cudaGetLastError(), "the kernel");
	check(cudaDeviceSynchronize(), "the kernel");
}
#else
static void walk(void *arg)
{
	const struct job *j = (const struct job *)arg;

	run_slot(*j, &j->dq[gpunvme_thread_id() % j->queues], nullptr, gpunvme_thread_id());
}

static void work(void *arg)
{
	run_slot(*(const struct job *)arg, nullptr, nullptr, gpunvme_thread_id());
}

static void start_batch(const struct job &j, struct kept *k, uint32_t first, uint32_t count, batch_stream)
{
	for (uint32_t i = first; i < first + count; i++)
		run_turn(j, &k[i], i);
}

static void fill(void *arg)
{
	fill_part(*(const struct job *)arg, gpunvme_thread_id());
}

static void run_waves(const struct job &j, bool reads)
{
	struct job copy = j;

	check(gpunvme_cpu_launch(j.chains, 1, reads ? walk : work, &copy));
}

static void run_fill(const struct job &j)
{
	struct job copy = j;

	check(gpunvme_cpu_launch(FILL_WAVES, 1, fill, &copy));
}
#endif

/* ---- CPU threads ---- */

/* A CPU thread, its slots and its queues. */
struct feeder {
	const struct job *j;
	struct kernels *kernels; /* or null */
	uint32_t first, count, queue, queues;
	double end;
	struct pending pending = {};
	int failed = 0;
	std::vector<ring> ring_of = {};
	std::vector<uint32_t> missing = {};
	std::vector<uint64_t> turn = {}; /* that a slot has begun */
	uint32_t live = 0;		 /* slots that have rows under way, or in use */

	void submit(uint32_t s)
	{
		const uint64_t node = node_of(*j, first + s, ++turn[s]);

		for (uint32_t i = 0; i < j->fan; i++)
			ring_of[s % queues].put(s * j->fan + i, j->buf.iova + place_of(*j, first + s, i),
						neighbour(*j, node, i) * j->node / 512, j->node / 512);
		missing[s] = j->fan;
		live++;
	}

	void take(ring *r)
	{
		uint32_t before = r->head;
		int cid;

		r->ring_doorbell();
		while ((cid = r->take(&failed)) >= 0) {
			uint32_t s = (uint32_t)cid / j->fan;

			if (--missing[s])
				continue;
			__atomic_store_n(&j->waves.arrived[first + s], turn[s], __ATOMIC_RELEASE);
			if (kernels && pending.arrived(s, false))
				go_on(s);
		}
		if (r->head != before)
			__atomic_store_n((uint32_t *)r->dq->cq_db, r->head, __ATOMIC_RELEASE);
	}

	/* All rows of the batch of a slot are there. At the end they are not used. */
	void go_on(uint32_t s)
	{
		if (now() < end)
			kernels->start((first + s) / kernels->size);
		else
			live -= kernels->size;
	}

	bool is_used(uint32_t s)
	{
		return !missing[s] && __atomic_load_n(&j->waves.mail[first + s].want[0], __ATOMIC_ACQUIRE) == turn[s];
	}

	/* A drive that dies ends its queues. */
	void look_for_end(const ring *r)
	{
		uint32_t why = __atomic_load_n((const uint32_t *)(uintptr_t)r->dq->stop, __ATOMIC_RELAXED);

		if (why)
			failed = -(int)(why == 1 ? GPUNVME_ECANCELED : why);
	}

	void run()
	{
		std::vector<bool> over(count, false);

		for (uint32_t q = 0; q < queues; q++)
			ring_of.emplace_back(&j->dq[queue + q]);
		missing.assign(count, 0);
		turn.assign(count, 0);
		if (kernels)
			pending.begin(count, kernels->size);
		for (uint32_t s = 0; s < count; s++)
			submit(s);
		while (live && !failed) {
			const bool ends = !kernels && now() >= end;

			for (ring &r : ring_of) {
				take(&r);
				look_for_end(&r);
			}
			for (uint32_t s = 0; s < count; s++) {
				if (over[s] || !is_used(s))
					continue;
				live--;
				over[s] = ends;
				if (!ends)
					submit(s);
			}
#ifndef __CUDACC__
			sched_yield(); /* the waves are threads of this CPU, too */
#endif
		}
	}
};

static void run_feeders(const struct job &j, const struct way &w, struct kernels *k = nullptr)
{
	const uint32_t each = w.at_once / w.threads, queues = w.queues / w.threads;
	const double end = now() + (double)j.ns / 1e9;
	std::vector<struct feeder> all;
	std::vector<std::thread> thread;

	for (uint32_t i = 0; i < w.threads; i++)
		all.push_back({ &j, k, i * each, each, i * queues, queues, end });
	for (auto &f : all)
		thread.emplace_back(&feeder::run, &f);
	for (auto &t : thread)
		t.join();
	for (auto &f : all)
		if (f.failed)
			*j.failed = f.failed;
}

/* ---- Runs ---- */

/* Return: seconds. */
static double run_batches(struct job &j, const struct way &w)
{
	std::vector<struct kept> none(j.chains);
	struct kept *k = (struct kept *)local_copy(none.data(), j.chains * sizeof(*k));
	double seconds;

	j.waves = open_waves(j.chains);
	{
		struct kernels kernels(j.chains, j.chains / w.threads / w.batches, w.graph,
				       [&j, k](uint32_t first, uint32_t count, batch_stream s) { start_batch(j, k, first, count, s); });
		double begun = now();

		run_feeders(j, w, &kernels);
		seconds = now() - begun;
	}
	add_counts(j.counts, k, j.chains);
	free_local(k);
	close_waves(j.waves);
	return seconds;
}

/* Return: seconds. */
static double run_way(struct job &j, const struct way &w)
{
	std::thread waves;
	double begun = now();

	if (!w.threads) {
		run_waves(j, true);
		return now() - begun;
	}
	if (w.batches)
		return run_batches(j, w);
	j.waves = open_waves(j.chains);
	waves = std::thread([&j] { run_waves(j, false); });
	begun = now();
	run_feeders(j, w);
	double seconds = now() - begun;
	__atomic_store_n(j.waves.end, 1, __ATOMIC_RELEASE);
	waves.join();
	close_waves(j.waves);
	return seconds;
}

static void print(const struct setup &o, const struct job &j, const struct way &w, double seconds)
{
	const double rows = (double)j.counts->nodes * j.fan / seconds;

	printf("{\"uri\": \"%s\", \"threads\": %u, \"kernels\": \"%s\", \"batches\": %u, \"queues\": %u, \"nodes\": %u, \"row\": %u, "
	       "\"fan\": %u, \"data\": \"%s\", \"seconds\": %.3f, \"rows_s\": %.0f, \"gb_s\": %.2f, \"wrong\": %llu}\n",
	       o.uri, w.threads, kernels_of(w), w.batches, w.queues, w.at_once, j.node, j.fan, o.data ? "gpu" : "host", seconds, rows,
	       rows * j.node / 1e9, j.counts->wrong);
	fflush(stdout);
}

static void open_memory(struct session &s, const struct setup &o, struct job &j)
{
	uint32_t most = 1;

	for (const struct way &w : o.ways) {
		most = std::max(most, w.at_once);
		if (w.threads && !w.batches)
			must_fit(work, w.at_once);
	}
	open_buffer(s, std::max((size_t)most * o.fan * o.row, (size_t)FILL_WAVES * FILL), o.data);
	j.buf = s.dbuf;
	j.sum = (uint64_t *)local_copy(std::vector<char>((size_t)most * o.row).data(), (size_t)most * o.row);
}

static void fill_drive(struct session &s, struct job j, uint32_t flags)
{
	j.queues = 2;
	open_queues(s, s.gpu, j.queues, flags);
	j.dq = s.dq;
	run_fill(j);
	close_queues(s);
	if (*j.failed)
		die(std::string("the drive could not be filled: ") + gpunvme_strerror(*j.failed));
}

/* Return: sums that were wrong, and runs without any. */
static unsigned long long run_all(const struct setup &o, struct session &s, struct job &j, gpunvme_gpu *cpu)
{
	const uint32_t flags = safe_flags(s);
	unsigned long long wrong = 0;

	fill_drive(s, j, flags);
	for (uint32_t run = 0; run < o.runs; run++)
		for (const struct way &w : o.ways) {
			memset(j.counts, 0, sizeof(*j.counts));
			open_queues(s, w.threads ? cpu : s.gpu, w.queues, w.threads ? 0 : flags);
			j.dq = s.dq;
			j.queues = w.queues;
			j.chains = w.at_once;
			if (w.threads && ((w.at_once / w.queues + 1) * j.fan >= 1u << s.dq->sq_shift || w.at_once / w.threads * j.fan > 65536))
				die("that many nodes at a time do not fit into the queues");
			double seconds = run_way(j, w);
			if (*j.failed)
				die(std::string("a read failed: ") + gpunvme_strerror(*j.failed));
			print(o, j, w, seconds);
			wrong += j.counts->wrong + !j.counts->nodes;
			close_queues(s);
		}
	return wrong;
}

static struct setup options(int argc, char **argv)
{
	static const struct option names[] = { { "ways", 1, 0, 'w' }, { "runs", 1, 0, 'r' },	{ "row", 1, 0, 'b' }, { "fan", 1, 0, 'f' },
					       { "data", 0, 0, 'd' }, { "seconds", 1, 0, 's' }, {} };
	char all[] = "0:32:1536", *ways = all;
	struct setup o;
	int c;

	while ((c = getopt_long(argc, argv, "", names, nullptr)) != -1) {
		if (c == 'w')
			ways = optarg;
		else if (c == 'r')
			o.runs = (uint32_t)atoi(optarg);
		else if (c == 'b')
			o.row = (uint32_t)atoi(optarg);
		else if (c == 'f')
			o.fan = (uint32_t)atoi(optarg);
		else if (c == 's')
			o.seconds = atof(optarg);
		else if (c == 'd')
			o.data = true;
		else
			die(usage);
	}
	if (argc != optind + 1 || !o.runs || !(o.seconds > 0) || !o.fan || o.fan > FAN || o.row < 512 || o.row > 4096 || o.row & (o.row - 1))
		die(usage);
	o.uri = argv[optind];
	o.ways = ways_of(ways, usage);
	return o;
}

int main(int argc, char **argv)
{
	struct setup o = options(argc, argv);
	struct gpunvme_gpu *cpu;
	struct session s;
	struct job j = {};
	bool failed;

#ifdef __CUDACC__
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* so that batches do not wait for each other */
	check(cudaSetDevice(0), "there is no GPU that CUDA can use");
#endif
	open_drive(s, o.uri, &cpu);
	j.node = o.row, j.fan = o.fan, j.ns = (uint64_t)(o.seconds * 1e9);
	j.rows = s.ns.nblocks * 512 / FILL * FILL / o.row;
	if (!j.rows)
		die("the drive is smaller than 64 KiB");
	j.counts = (struct counts *)host_memory(sizeof(*j.counts) + sizeof(*j.failed));
	j.failed = (int *)(j.counts + 1);
	open_memory(s, o, j);
	failed = run_all(o, s, j, cpu);
	close_drive(s, cpu);
	free_local(j.sum);
	free_host(j.counts);
	if (failed)
		die("sums differ from what they must be");
	return 0;
}
