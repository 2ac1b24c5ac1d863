/* SPDX-License-Identifier: MIT */
/*
 * bench/search_drive: nearest neighbours in a graph on a drive, by threads of the GPU that read themselves, and by CPU threads that
 * read for them. A wave runs a query (chains/step.h).
 *
 *   0 CPU threads   the threads of one kernel read with <gpunvme/device.h>
 *   N CPU threads   they read through bare rings, for the waves of a kernel that stays (chains/rings.h, chains/waves.h). Or they start
 *                   kernels for batches of queries whose nodes are there, as CUDA graphs or launches (chains/batches.h)
 *
 * All have the same drive, the same arithmetic and rings in memory of the host. Data is there, too, or with --data in memory of the
 * GPU. The queues of the GPU have the flags that gpunvme_gpu_ordering_test() finds to be safe. Each result is compared with that of
 * the same search in memory, which takes no drive. These results are compared with the exact ones of the image.
 *
 *   search_data graph.img 100000 4000 512      # examples/search
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o search_drive bench/search_drive.cu -Lbuild/release/lib \
 *     -lgpunvme -Xlinker -rpath=$PWD/build/release/lib
 *   search_drive 'soft:vram:1G?on=cuda:0&lat_us=20&queues=36&image=graph.img' graph.img --ways 0:32:1536,1:8:384,4:32:384,12:36:384
 *
 * --ways N:Q:C,.. CPU threads, queues, queries at a time, one way after the other (0:32:1536). N:Q:C:graphB: CUDA graphs, for B
 *                 batches of queries of each CPU thread; N:Q:C:launchB: launches
 * --runs N        so many times
 * --list N        best nodes that a query remembers (48; 10 to 128)
 * --seconds S     of a run
 * --data          nodes arrive in memory of the GPU. With link=0 of the drive that is no link that can be bought
 *
 * A line of JSON for each run. Ends with 1 when a result was wrong or a read failed. Built as C++, kernels are threads of the CPU:
 * that shows that the program is right and nothing about speed.
 */
#include <algorithm>
#include <cinttypes>
#include <ctime>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <getopt.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <gpunvme/device.h>

#include "chains/rig.h"
#include "chains/step.h"
#include "chains/waves.h"
#include "chains/ways.h"

#ifndef RESIDENT
#define RESIDENT 1 /* blocks of GPU threads on a multiprocessor: 2 for more than 2,112 queries at a time on an H200 */
#endif

const char *const program = "search_drive";

static const char usage[] = "usage: search_drive URI IMAGE [--ways THREADS:QUEUES:QUERIES[:graphN|:launchN],..] [--runs N] [--list N] "
			    "[--seconds S] [--data]";

struct setup {
	const char *uri, *image;
	std::vector<struct way> ways = {};
	uint32_t runs = 1, list = 48;
	double seconds = 1;
	bool data = false;
};

struct counts {
	unsigned long long queries, steps, reads, wrong;
};

struct job : trip {
	struct step_graph graph;
	const uint64_t *answer; /* hash of each query's */
	struct counts *counts;	/* of the waves that have ended, in memory of the host */
	struct waves waves;
};

/* ---- Waves ---- */

/* Return: all nodes of the step are there. */
WAVE_FN bool read_nodes(const struct job &j, const struct gpunvme_dq *dq, uint32_t chain, const uint64_t *want, uint32_t wanted)
{
	int err = 0;

	for (uint32_t b = wave_lane(); b < wanted && !err; b += WAVE)
		err = gpunvme_read(dq, &j.buf, (chain * BEAM + b) * (uint64_t)j.node, j.skip + one_of(want, b) * j.node, j.node);
	if (err)
		*j.failed = err;
	return !wave_ballot(err);
}

/* The queries of one wave. @dq: its queue, or null where CPU threads read for it. */
template <uint32_t BYTES>
WAVE_FN void run_chain(const struct job &j, const struct gpunvme_dq *dq, const struct seen *seen, struct step *s, uint32_t chain)
{
	const uint32_t *data = (const uint32_t *)(uintptr_t)(j.buf.base + chain * (uint64_t)BEAM * BYTES);
	const uint64_t begun = clock_ns();
	struct counts c = {};

	for (uint64_t n = chain; n == chain || wave_ballot(clock_ns() - begun < j.ns); n += j.chains) {
		uint32_t query = (uint32_t)(n % j.graph.queries), wanted;
		uint64_t want[BEAM];

		for (wanted = step_begin<BYTES>(s, &j.graph, &j.graph.query[query], want); wanted;) {
			c.steps++;
			c.reads += wanted;
			if (!dq)
				post(j.waves, chain, c.steps, want);
			if (dq ? !read_nodes(j, dq, chain, want, wanted) : !wait(j.waves, seen, chain, c.steps))
				goto over;
			wanted = step_take<BYTES>(s, &j.graph, data, wanted, want);
		}
		c.queries++;
		c.wrong += step_hash(s) != j.answer[query];
	}
over:
	if (!dq)
		post_end(j.waves, chain, c.steps + 1);
	if (wave_lane())
		return;
	wave_add(&j.counts->queries, c.queries);
	wave_add(&j.counts->steps, c.steps);
	wave_add(&j.counts->reads, c.reads);
	wave_add(&j.counts->wrong, c.wrong);
}

/* A wave between two kernels of its batch, in memory of the threads. */
struct kept {
	struct step step;
	struct counts c;
	uint64_t begun, n;
	uint32_t wanted, over;
};

/* As a turn of run_chain(). Its nodes are there. */
template <uint32_t BYTES> WAVE_FN void run_step(const struct job &j, struct kept *k, struct step *s, uint32_t chain)
{
	const uint32_t *data = (const uint32_t *)(uintptr_t)(j.buf.base + chain * (uint64_t)BEAM * BYTES);
	const uint64_t begun = k->c.steps ? k->begun : clock_ns();
	uint64_t want[BEAM], n = k->c.steps ? k->n : chain;
	struct counts c = k->c;
	bool over = k->over;
	uint32_t wanted = 0;

	if (over)
		return;
	if (c.steps) {
		wave_copy(s, &k->step);
		wanted = step_take<BYTES>(s, &j.graph, data, k->wanted, want);
	}
	while (!wanted && !over) {
		if (c.steps) {
			c.queries++;
			c.wrong += step_hash(s) != j.answer[n % j.graph.queries];
			n += j.chains;
		}
		over = !wave_ballot(!c.steps || clock_ns() - begun < j.ns);
		if (!over)
			wanted = step_begin<BYTES>(s, &j.graph, &j.graph.query[n % j.graph.queries], want);
	}
	c.steps++;
	c.reads += wanted;
	if (over)
		post_end(j.waves, chain, c.steps);
	else
		post(j.waves, chain, c.steps, want);
	wave_copy(&k->step, s);
	if (wave_lane())
		return;
	k->c = c;
	k->begun = begun;
	k->n = n;
	k->wanted = wanted;
	k->over = over;
}

static void add_counts(struct counts *sum, const struct kept *k, uint32_t chains)
{
	std::vector<struct kept> all(chains);

	local_read(all.data(), k, chains * sizeof(*k));
	for (const struct kept &one : all) {
		sum->queries += one.c.queries;
		sum->steps += one.c.steps;
		sum->reads += one.c.reads;
		sum->wrong += one.c.wrong;
	}
}

#ifdef __CUDACC__
template <uint32_t BYTES>
__global__ static void __launch_bounds__(BATCH_BLOCK) once(const struct job j, struct kept *k, uint32_t first, uint32_t count)
{
	uint32_t slot = threadIdx.x / WARP, chain = blockIdx.x * (BATCH_BLOCK / WARP) + slot;
	__shared__ struct step step[BATCH_BLOCK / WARP];

	if (chain < count)
		run_step<BYTES>(j, &k[first + chain], &step[slot], first + chain);
}

template <uint32_t BYTES>
static void start_batch(const struct job &j, struct kept *k, uint32_t first, uint32_t count, batch_stream stream)
{
	once<BYTES><<<(count * WARP + BATCH_BLOCK - 1) / BATCH_BLOCK, BATCH_BLOCK, 0, stream>>>(j, k, first, count);
	check(cudaGetLastError(), "the kernel");
}

template <uint32_t BYTES> __global__ static void __launch_bounds__(BLOCK, RESIDENT) walk(const struct job j)
{
	uint32_t slot = threadIdx.x / WARP, chain = blockIdx.x * SLOTS + slot;
	__shared__ struct gpunvme_dq own[SLOTS];
	__shared__ struct step step[SLOTS];

	if (chain >= j.chains)
		return;
	if (wave_lane() == 0)
		own[slot] = j.dq[chain % j.queues];
	__syncwarp();
	run_chain<BYTES>(j, &own[slot], nullptr, &step[slot], chain);
}

template <uint32_t BYTES> __global__ static void __launch_bounds__(BLOCK + WARP, 1) work(const struct job j)
{
	uint32_t slot = threadIdx.x / WARP, chain = blockIdx.x * SLOTS + slot;
	__shared__ struct seen seen;
	__shared__ struct step step[SLOTS];

	watch_begin(&seen);
	if (slot == SLOTS)
		watch(j.waves, &seen, j.chains);
	else if (chain < j.chains)
		run_chain<BYTES>(j, nullptr, &seen, &step[slot], chain);
}

template <uint32_t BYTES> static void run_waves(const struct job &j, bool reads)
{
	cudaStream_t stream;

	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	if (reads)
		walk<BYTES><<<(j.chains + SLOTS - 1) / SLOTS, BLOCK, 0, stream>>>(j);
	else
		work<BYTES><<<(j.chains + SLOTS - 1) / SLOTS, BLOCK + WARP, 0, stream>>>(j);
	check(cudaGetLastError(), "the kernel");
	check(cudaStreamSynchronize(stream), "the kernel");
	check(cudaStreamDestroy(stream), "a stream");
}
#else
template <uint32_t BYTES> static void start_batch(const struct job &j, struct kept *k, uint32_t first, uint32_t count, batch_stream)
{
	struct step s;

	for (uint32_t i = first; i < first + count; i++)
		run_step<BYTES>(j, &k[i], &s, i);
}

template <uint32_t BYTES> static void walk(void *arg)
{
	const struct job *j = (const struct job *)arg;
	struct step s;

	run_chain<BYTES>(*j, &j->dq[gpunvme_thread_id() % j->queues], nullptr, &s, gpunvme_thread_id());
}

template <uint32_t BYTES> static void work(void *arg)
{
	struct step s;

	run_chain<BYTES>(*(const struct job *)arg, nullptr, nullptr, &s, gpunvme_thread_id());
}

template <uint32_t BYTES> static void run_waves(const struct job &j, bool reads)
{
	struct job copy = j;

	check(gpunvme_cpu_launch(j.chains, 1, reads ? walk<BYTES> : work<BYTES>, &copy));
}
#endif

/* ---- The search in memory ---- */

template <uint32_t BYTES>
static void search_part(const struct step_graph *g, const char *nodes, uint32_t count, uint32_t first, uint32_t *found, uint64_t *hash)
{
	std::vector<uint32_t> data(BEAM * BYTES / 4);
	struct step s;

	for (uint32_t q = first; q < g->queries; q += 16) {
		uint64_t want[BEAM];
		uint32_t wanted = step_begin<BYTES>(&s, g, &g->query[q], want);

		while (wanted) {
			for (uint32_t b = 0; b < wanted; b++) {
				if (want[b] >= count)
					die("a node has a neighbour that the image does not have");
				memcpy(&data[b * (BYTES / 4)], nodes + want[b] * BYTES, BYTES);
			}
			wanted = step_take<BYTES>(&s, g, data.data(), wanted, want);
		}
		hash[q] = step_hash(&s);
		for (uint32_t i = 0; i < SEARCH_TOP * SEARCH_TOP; i++)
			*found += (uint32_t)(s.top[i / SEARCH_TOP] >> 1) == g->query[q].answer[i % SEARCH_TOP];
	}
}

/* Return: recall@10. */
template <uint32_t BYTES> static double search_memory(const struct step_graph *g, const char *nodes, uint32_t count, uint64_t *hash)
{
	std::vector<std::thread> threads;
	uint32_t found[16] = {}, all = 0;

	for (uint32_t i = 0; i < 16; i++)
		threads.emplace_back(search_part<BYTES>, g, nodes, count, i, &found[i], hash);
	for (auto &t : threads)
		t.join();
	for (uint32_t n : found)
		all += n;
	return (double)all / g->queries / SEARCH_TOP;
}

/* ---- Runs ---- */

/* Return: seconds. */
template <uint32_t BYTES> static double run_batches(struct job &j, const struct way &w)
{
	std::vector<struct kept> none(j.chains);
	struct kept *k = (struct kept *)local_copy(none.data(), j.chains * sizeof(*k));
	double seconds;

	j.waves = open_waves(j.chains);
	{
		struct kernels kernels(j.chains, j.chains / w.threads / w.batches, w.graph,
				       [&j, k](uint32_t first, uint32_t count, batch_stream s) { start_batch<BYTES>(j, k, first, count, s); });
		double begun = now();

		run_rings(&j, j.waves.mail, j.waves.arrived, w.threads, &kernels);
		seconds = now() - begun;
	}
	add_counts(j.counts, k, j.chains);
	free_local(k);
	close_waves(j.waves);
	return seconds;
}

/* Return: seconds. */
template <uint32_t BYTES> static double run_way(struct job &j, const struct way &w)
{
	std::thread waves;
	double begun = now();

	if (!w.threads) {
		run_waves<BYTES>(j, true);
		return now() - begun;
	}
	if (w.batches)
		return run_batches<BYTES>(j, w);
	j.waves = open_waves(j.chains);
	waves = std::thread([&j] { run_waves<BYTES>(j, false); });
	begun = now();
	run_rings(&j, j.waves.mail, j.waves.arrived, w.threads);
	double seconds = now() - begun;
	__atomic_store_n(j.waves.end, 1, __ATOMIC_RELEASE);
	waves.join();
	close_waves(j.waves);
	return seconds;
}

static void print(const struct setup &o, const struct job &j, const struct way &w, uint32_t nodes, double seconds, double recall)
{
	const struct counts &c = *j.counts;

	printf("{\"uri\": \"%s\", \"threads\": %u, \"kernels\": \"%s\", \"batches\": %u, \"queues\": %u, \"node\": %u, \"nodes\": %u, "
	       "\"list\": %u, \"chains\": %u, \"data\": \"%s\", \"seconds\": %.3f, \"queries_s\": %.0f, \"reads_s\": %.0f, "
	       "\"gb_s\": %.2f, \"reads_query\": %.1f, \"steps_query\": %.1f, \"recall\": %.4f, \"wrong\": %llu}\n",
	       o.uri, w.threads, kernels_of(w), w.batches, w.queues, j.node, nodes, o.list, w.at_once, o.data ? "gpu" : "host", seconds,
	       (double)c.queries / seconds, (double)c.reads / seconds, (double)c.reads * j.node / seconds / 1e9,
	       c.queries ? (double)c.reads / (double)c.queries : 0, c.queries ? (double)c.steps / (double)c.queries : 0, recall, c.wrong);
	fflush(stdout);
}

struct data {
	const char *file;
	const struct search_head *head;
	const struct search_query *query;
	const struct search_entry *entry;
};

static struct data map_image(const char *path)
{
	struct data d = {};
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) || (size_t)st.st_size < sizeof(*d.head))
		die(std::string(path) + ": there is no such data set; search_data makes one");
	d.file = (const char *)mmap(nullptr, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (d.file == MAP_FAILED)
		die(std::string(path) + ": mmap failed");
	d.head = (const struct search_head *)d.file;
	d.query = (const struct search_query *)(d.file + search_queries_at(d.head));
	d.entry = (const struct search_entry *)(d.query + d.head->queries);
	if (d.head->magic != SEARCH_MAGIC || !d.head->queries || !d.head->entries ||
	    (d.head->bytes != 512 && d.head->bytes != 1024 && d.head->bytes != 4096) ||
	    (const char *)(d.entry + d.head->entries) > d.file + st.st_size)
		die(std::string(path) + ": this is no data set of search_data");
	return d;
}

/* All but what the drive gives. */
template <uint32_t BYTES> static struct job prepare(const struct setup &o, const struct data &d, double *recall)
{
	std::vector<uint64_t> hash(d.head->queries);
	struct step_graph here = { d.query, d.entry, d.head->queries, d.head->entries, o.list };
	struct job j = {};

	*recall = search_memory<BYTES>(&here, d.file + SEARCH_NODE, d.head->nodes, hash.data());
	j.skip = SEARCH_NODE;
	j.node = BYTES, j.ns = (uint64_t)(o.seconds * 1e9);
	j.graph = here;
	j.graph.query = (const struct search_query *)local_copy(d.query, sizeof(*d.query) * d.head->queries);
	j.graph.entry = (const struct search_entry *)local_copy(d.entry, sizeof(*d.entry) * d.head->entries);
	j.answer = (const uint64_t *)local_copy(hash.data(), 8 * hash.size());
	j.counts = (struct counts *)host_memory(sizeof(*j.counts) + sizeof(*j.failed));
	j.failed = (int *)(j.counts + 1);
	return j;
}

/* Return: results that were wrong, and runs without any. */
template <uint32_t BYTES> static unsigned long long run_all(const struct setup &o, const struct data &d)
{
	unsigned long long wrong = 0;
	uint32_t most = 0;
	struct session s;
	gpunvme_gpu *cpu;
	double recall;
	struct job j = prepare<BYTES>(o, d, &recall);

	open_drive(s, o.uri, &cpu);
	if (s.ns.nblocks * 512 < search_queries_at(d.head))
		die("the drive is smaller than the graph");
	const uint32_t flags = safe_flags(s);
	for (const struct way &w : o.ways) {
		most = std::max(most, w.at_once);
		if (w.threads && !w.batches)
			must_fit(work<BYTES>, w.at_once);
	}
	open_buffer(s, (size_t)most * BEAM * BYTES, o.data);
	j.buf = s.dbuf;
	for (uint32_t run = 0; run < o.runs; run++)
		for (const struct way &w : o.ways) {
			memset(j.counts, 0, sizeof(*j.counts));
			open_queues(s, w.threads ? cpu : s.gpu, w.queues, w.threads ? 0 : flags);
			j.dq = s.dq;
			j.queues = w.queues;
			j.chains = w.at_once;
			if (w.threads && (w.at_once / w.queues + 1) * BEAM >= 1u << s.dq->sq_shift)
				die("that many queries at a time do not fit into the queues");
			double seconds = run_way<BYTES>(j, w);
			if (*j.failed)
				die(std::string("a read failed: ") + gpunvme_strerror(*j.failed));
			print(o, j, w, d.head->nodes, seconds, recall);
			wrong += j.counts->wrong + !j.counts->queries;
			close_queues(s);
		}
	close_drive(s, cpu);
	free_local(j.graph.query);
	free_local(j.graph.entry);
	free_local(j.answer);
	free_host(j.counts);
	return wrong;
}

static struct setup options(int argc, char **argv)
{
	static const struct option names[] = { { "ways", 1, 0, 'w' }, { "runs", 1, 0, 'r' }, { "list", 1, 0, 'l' },
					       { "seconds", 1, 0, 's' }, { "data", 0, 0, 'd' }, {} };
	char all[] = "0:32:1536", *ways = all;
	struct setup o;
	int c;

	while ((c = getopt_long(argc, argv, "", names, nullptr)) != -1) {
		if (c == 'w')
			ways = optarg;
		else if (c == 'r')
			o.runs = (uint32_t)atoi(optarg);
		else if (c == 'l')
			o.list = (uint32_t)atoi(optarg);
		else if (c == 's')
			o.seconds = atof(optarg);
		else if (c == 'd')
			o.data = true;
		else
			die(usage);
	}
	if (argc != optind + 2 || !o.runs || !(o.seconds > 0) || o.list < SEARCH_TOP || o.list > STEP_LIST)
		die(usage);
	o.uri = argv[optind];
	o.image = argv[optind + 1];
	o.ways = ways_of(ways, usage);
	return o;
}

int main(int argc, char **argv)
{
	struct setup o = options(argc, argv);
	struct data d = map_image(o.image);
	uint32_t bytes = d.head->bytes;
	unsigned long long wrong;

#ifdef __CUDACC__
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* so that batches do not wait for each other */
	check(cudaSetDevice(0), "there is no GPU that CUDA can use");
#endif
	wrong = bytes == 512 ? run_all<512>(o, d) : bytes == 1024 ? run_all<1024>(o, d) : run_all<4096>(o, d);
	if (wrong)
		die("results differ from those of the search in memory");
	return 0;
}
