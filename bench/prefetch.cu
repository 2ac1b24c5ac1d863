/* SPDX-License-Identifier: MIT */
/*
 * bench/prefetch: what prefetch costs where all threads of a GPU use one cache, and what its share is of the one queue that they
 * use. Each thread loads 8 bytes of pages near those of its neighbours, one of 32 anywhere, with room for an eighth of the pages.
 * That is the load of bench/pages_check, which compares what it loads.
 *
 *   caches     plain, of a namespace through one queue or eight. Or with prefetch, of a namespace through one queue, or of a
 *              volume (-DVOLUME) through one queue or eight. The queue of a page follows from its number
 *   prefetch   the page that is wanted two steps later: by one thread of 4 to 1,024, or by whole waves, one of 32
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o prefetch bench/prefetch.cu -Lbuild/release/lib -lgpunvme
 *   prefetch 'soft:ram:256M?threads=12'
 *
 * --seconds S   of a row (0.5)
 * --blocks N    of 256 threads (as many as multiprocessors)
 *
 * Prints a line of JSON for each row: accesses, and where the threads' time went. "refused" prefetches found no identifier.
 */
#include <algorithm>
#include <cinttypes>

#include <getopt.h>

#include "session.h"

#include <gpunvme/device.h>

const char *const program = "prefetch";

#define PAGE 4096u
#define WORDS (PAGE / 8)
#define WAVE 32u
#define BLOCK 256u
#define MOST 8u /* queues */

struct sums {
	unsigned long long accesses, asked, refused, load_ns, ask_ns, failed;
};

struct job {
	const struct gpunvme_dq *dq;
	struct gpunvme_dvol vol;
	struct gpunvme_dpages cache;
	struct sums *sums;
	uint64_t pages, hot, ns;
	uint32_t queues;
	uint32_t every; /* one thread of so many prefetches, or with `waves` one wave of so many. 0: none */
	bool waves;
};

__device__ static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ v >> 27) * 0x94d049bb133111ebull;
	return v ^ v >> 31;
}

__device__ static uint64_t random_of(uint64_t step)
{
	return mix((uint64_t)gpunvme_thread_id() << 32 ^ step);
}

/* Near that of other threads at the same step, or anywhere. */
__device__ static uint64_t page_of(const struct job &j, uint64_t step)
{
	uint64_t random = random_of(step), window = step / 16 * (j.hot / 8 + 1);

	return (random & 31 ? window + (random >> 8) % j.hot : random >> 8) % j.pages;
}

__device__ static bool asks(const struct job &j)
{
	uint32_t n = j.waves ? gpunvme_thread_id() / WAVE : gpunvme_thread_id();

	return j.every && n % j.every == 0;
}

/* The source of a call. */
template <class S> struct source;
#ifdef VOLUME
template <> struct source<gpunvme_prefetch_volume> {
	__device__ static gpunvme_prefetch_volume of(const struct job &j) { return { &j.vol, &j.cache }; }
};
typedef gpunvme_prefetch_volume ahead;
#define NAME "volume"
#else
template <> struct source<gpunvme_cached_queue> {
	__device__ static gpunvme_cached_queue of(const struct job &j)
	{
		return { &j.dq[gpunvme_thread_id() / WAVE % j.queues], &j.cache };
	}
};
template <> struct source<gpunvme_prefetch_queue> {
	__device__ static gpunvme_prefetch_queue of(const struct job &j) { return { j.dq, &j.cache }; }
};
typedef gpunvme_prefetch_queue ahead;
#define NAME "queue"
#endif

#ifndef VOLUME
/* Such a cache has no prefetch. */
__device__ static int ask(const gpunvme_cached_queue *, uint64_t)
{
	return 0;
}
#endif

__device__ static int ask(const ahead *src, uint64_t page)
{
	return gpunvme_prefetch(src, page);
}

template <class S> __device__ static void ask_ahead(const struct job &j, const S *src, uint64_t step, struct sums *own)
{
	const uint64_t begun = gnvd_clock();
	int ret = ask(src, page_of(j, step + 2));

	own->ask_ns += gnvd_clock() - begun;
	own->asked++;
	own->refused += ret == -GPUNVME_EAGAIN;
	if (ret && ret != -GPUNVME_EAGAIN)
		own->failed = (unsigned long long)-ret;
}

template <class S> __global__ static void __launch_bounds__(BLOCK, 1) walk(const struct job j)
{
	const S src = source<S>::of(j);
	const uint64_t start = gnvd_clock();
	struct sums own = {};
	uint64_t value;

	for (uint64_t step = 0; __any_sync(~0u, gnvd_clock() - start < j.ns); step++) {
		uint64_t begun;
		int ret;

		if (asks(j))
			ask_ahead(j, &src, step, &own);
		__syncwarp();
		begun = gnvd_clock();
		do
			ret = gpunvme_array_load(&src, page_of(j, step) * WORDS + (random_of(step) >> 40) % WORDS, 8, &value);
		while (ret == -GPUNVME_EAGAIN);
		own.load_ns += gnvd_clock() - begun;
		own.accesses++;
		if (ret)
			own.failed = (unsigned long long)(ret < 0 ? -ret : ret);
		__syncwarp();
	}
	atomicAdd(&j.sums->accesses, own.accesses);
	atomicAdd(&j.sums->asked, own.asked);
	atomicAdd(&j.sums->refused, own.refused);
	atomicAdd(&j.sums->load_ns, own.load_ns);
	atomicAdd(&j.sums->ask_ns, own.ask_ns);
	if (own.failed)
		atomicMax(&j.sums->failed, own.failed);
}

__global__ static void finish(const struct job j)
{
	const ahead src = source<ahead>::of(j);
	int ret = gpunvme_prefetch_finish(&src);

	if (ret)
		atomicMax(&j.sums->failed, (unsigned long long)(ret < 0 ? -ret : ret));
}

struct row {
	bool prefetch;
	uint32_t queues, depth, every;
	bool waves;
	uint32_t part; /* of the blocks: 1 of so many */
};

static const struct row rows[] = {
#ifdef VOLUME
	{ true, 1, 1024, 4, false, 1 }, { true, 8, 1024, 0, false, 1 }, { true, 8, 1024, 4, false, 1 }, { true, 8, 1024, 32, false, 1 },
#else
	{ false, 1, 1024, 0, false, 1 },   { false, 8, 1024, 0, false, 1 }, { true, 1, 1024, 0, false, 1 },
	{ true, 1, 1024, 1024, false, 1 }, { true, 1, 1024, 32, false, 1 }, { true, 1, 1024, 4, false, 1 },
	{ true, 1, 1024, 32, true, 1 },	   { true, 1, 4096, 4, false, 1 },  { false, 1, 1024, 0, false, 8 },
	{ true, 1, 1024, 4, false, 8 },
#endif
};

static void run(session &s, struct job j, const struct row &r, uint32_t blocks)
{
	gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache_info info = {};
	gpunvme_cache *cache;
	struct sums sum;

	opts.flags = GPUNVME_CACHE_STATS | (r.prefetch ? GPUNVME_CACHE_PREFETCH : 0);
	opts.page_size = PAGE;
	opts.frames = (uint32_t)(j.pages / 8);
#ifdef VOLUME
	opts.flags |= GPUNVME_CACHE_VOLUME;
#endif
	check(gpunvme_cache_create(s.queue[0], &opts, &cache));
	check(gpunvme_cache_view(cache, &j.cache));
	j.every = r.every;
	j.waves = r.waves;
	check(cudaMemset(j.sums, 0, sizeof(sum)), "cudaMemset");
#ifndef VOLUME
	if (!r.prefetch)
		walk<gpunvme_cached_queue><<<blocks, BLOCK>>>(j);
#endif
	if (r.prefetch)
		walk<ahead><<<blocks, BLOCK>>>(j);
	check(cudaGetLastError(), "the kernel");
	check(cudaDeviceSynchronize(), "the kernel");
	if (r.prefetch)
		finish<<<1, WAVE>>>(j);
	check(cudaMemcpy(&sum, j.sums, sizeof(sum), cudaMemcpyDeviceToHost), "cudaMemcpy");
	if (sum.failed)
		die(std::string("a thread failed: ") + gpunvme_strerror(-(int)sum.failed));
	info.size = sizeof(info);
	check(gpunvme_cache_get_info(cache, &info));
	printf("{\"figure\": \"prefetch\", \"source\": \"" NAME "\", \"cache\": \"%s\", \"queues\": %u, \"depth\": %u, \"threads\": %u, "
	       "\"one_of\": %u, \"by\": \"%s\", \"accesses_s\": %.0f, \"misses_s\": %.0f, \"prefetches_s\": %.0f, \"used\": %" PRIu64
	       ", \"wasted\": %" PRIu64 ", \"asked\": %llu, \"refused\": %llu, \"ask_us\": %.1f, \"load_us\": %.2f}\n",
	       r.prefetch ? "prefetch" : "plain", r.queues, r.depth, blocks * BLOCK, r.every, r.waves ? "wave" : "thread",
	       (double)sum.accesses / ((double)j.ns / 1e9), (double)info.misses / ((double)j.ns / 1e9),
	       (double)info.prefetches / ((double)j.ns / 1e9), info.used, info.wasted, sum.asked, sum.refused,
	       sum.asked ? (double)sum.ask_ns / (double)sum.asked / 1e3 : 0, (double)sum.load_ns / (double)sum.accesses / 1e3);
	fflush(stdout);
	check(gpunvme_cache_destroy(cache));
}

/* Of the row alone: a queue that was made later would be the one that prefetches. */
static void open_queues(session &s, struct job &j, const struct row &r)
{
	gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dq dq[MOST];

	opts.depth = r.depth;
	j.queues = r.queues;
#ifdef VOLUME
	opts.queues = r.queues;
	opts.stripe = 16;
	s.queue.resize(1);
	check(gpunvme_queue_create_striped(&s.dev, 1, s.gpu, &opts, &s.queue[0]));
	check(gpunvme_queue_view(s.queue[0], &view, &j.vol));
	(void)dq;
#else
	s.queue.resize(r.queues);
	for (uint32_t i = 0; i < r.queues; i++) {
		check(gpunvme_queue_create(s.dev, s.gpu, &opts, &s.queue[i]));
		check(gpunvme_queue_view(s.queue[i], &view, &dq[i]));
	}
	check(cudaMemcpy((void *)j.dq, dq, r.queues * sizeof(*dq), cudaMemcpyHostToDevice), "cudaMemcpy");
#endif
}

static void close_queues(session &s)
{
	for (gpunvme_queue *q : s.queue)
		check(gpunvme_queue_destroy(q));
	s.queue.clear();
}

int main(int argc, char **argv)
{
	static const struct option names[] = { { "seconds", 1, 0, 's' }, { "blocks", 1, 0, 'b' }, {} };
	int processors, blocks = 0, c;
	double seconds = 0.5;
	struct job j = {};
	session s;

	while ((c = getopt_long(argc, argv, "", names, nullptr)) != -1) {
		seconds = c == 's' ? atof(optarg) : seconds;
		blocks = c == 'b' ? atoi(optarg) : blocks;
	}
	if (argc != optind + 1 || !(seconds > 0))
		die("usage: prefetch URI [--seconds S] [--blocks N]");
	s.open(argv[optind], 0, 1);
	close_queues(s);
	check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
	check(cudaMalloc(&j.sums, sizeof(*j.sums)), "cudaMalloc");
	check(cudaMalloc((void **)&j.dq, MOST * sizeof(*j.dq)), "cudaMalloc");
	j.ns = (uint64_t)(seconds * 1e9);
	j.pages = s.ns.nblocks * s.ns.lba_size / PAGE;
	j.hot = j.pages / 16;
	if (!j.hot)
		die("the drive is too small");
	blocks = blocks ? blocks : processors;
	for (const struct row &r : rows) {
		open_queues(s, j, r);
		run(s, j, r, std::max((uint32_t)blocks / r.part, 1u));
		close_queues(s);
	}
	(void)cudaFree(j.sums);
	(void)cudaFree((void *)j.dq);
	s.close();
	return 0;
}
