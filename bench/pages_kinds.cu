/* SPDX-License-Identifier: MIT */
/*
 * bench/pages_kinds: what the other kinds of a cache of pages do on an NVIDIA GPU, and that every byte is right.
 *
 *   stream   each wave walks through pages of its own, which are not there; with prefetch some pages ahead, and without
 *   changes  threads put elements anywhere, with room for a quarter of the pages, so that most are written to make room for others;
 *            then the host flushes, and a cache of another kind reads all of it
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o pages_kinds bench/pages_kinds.cu \
 *        -Lbuild/release/lib -lgpunvme
 *   pages_kinds 'soft:ram:1G?threads=4&lat_us=100'        # writes over what is there: for drives without data
 *
 * Prints a line of JSON for each figure; ends with 1 when a byte was wrong.
 */
#include <chrono>
#include <cinttypes>

#include "session.h"

#include <gpunvme/device.h>

const char *const program = "pages_kinds";

#define PAGE 4096u
#define WORDS (PAGE / 8)
#define WAVE 32u
#define DEPTH 1024u

struct job {
	gpunvme_dq dq;
	struct gpunvme_dpages pages;
	uint64_t count;		 /* pages that are used */
	uint32_t waves, each;	 /* that work; pages of each */
	uint32_t ahead;
	unsigned long long *wrong;
	int *failed;
};

__device__ static uint64_t word_of(uint64_t index)
{
	index = (index ^ index >> 31) * 0x9e3779b97f4a7c15ull;
	return index ^ index >> 29;
}

__device__ static void look(const struct job &j, uint64_t page, const struct gpunvme_page &p)
{
	const uint64_t *words = (const uint64_t *)p.base;

	for (uint32_t i = threadIdx.x % WAVE; i < WORDS; i += WAVE)
		if (words[i] != word_of(page * WORDS + i))
			atomicAdd(j.wrong, 1ull);
}

__global__ static void stream(struct job j)
{
	uint32_t n = gpunvme_thread_id() / WAVE, i;
	struct gpunvme_page p;
	int err = 0;
	const struct gpunvme_cached_queue src = { &j.dq, &j.pages };

	for (i = 0; n < j.waves && i < j.each && !err; i++) {
		uint64_t page = (uint64_t)n * j.each + i;

		do
			err = gpunvme_page_get(&src, page, &p);
		while (err == -GPUNVME_EAGAIN);
		if (!err)
			look(j, page, p);
		err = err ? err : gpunvme_page_put(&src, &p);
	}
	if (err)
		*j.failed = err;
}

__global__ static void stream_prefetched(struct job j)
{
	uint32_t n = gpunvme_thread_id() / WAVE, i, begun = 0;
	struct gpunvme_page p;
	int err = 0;
	const struct gpunvme_prefetch_queue src = { &j.dq, &j.pages };

	for (i = 0; n < j.waves && i < j.each && !err; i++) {
		uint64_t page = (uint64_t)n * j.each + i;

		for (begun = begun > i ? begun : i + 1; begun < j.each && begun <= i + j.ahead && !err; begun++)
			err = gpunvme_prefetch(&src, (uint64_t)n * j.each + begun);
		do
			err = gpunvme_page_get(&src, page, &p);
		while (err == -GPUNVME_EAGAIN);
		if (!err)
			look(j, page, p);
		err = err ? err : gpunvme_page_put(&src, &p);
	}
	if (err)
		*j.failed = err;
}

__global__ static void finish(struct job j)
{
	const struct gpunvme_prefetch_queue src = { &j.dq, &j.pages };
	int err = gpunvme_prefetch_finish(&src);

	if (err)
		*j.failed = err;
}

/* Each element once, in an order in which neighbours are far apart; the number of elements is a power of two. */
__global__ static void change(struct job j)
{
	uint64_t all = j.count * WORDS, lanes = (uint64_t)gridDim.x * blockDim.x, i;
	int err = 0;
	const struct gpunvme_writable_queue src = { &j.dq, &j.pages };

	for (i = gpunvme_thread_id(); i < all && !err; i += lanes) {
		uint64_t index = i * 0x9e3779b97f4a7c15ull & (all - 1), value = word_of(index);

		do
			err = gpunvme_array_store(&src, index, 8, &value);
		while (err == -GPUNVME_EAGAIN);
	}
	if (err)
		*j.failed = err;
}

__global__ static void compare(struct job j)
{
	uint64_t all = j.count * WORDS, lanes = (uint64_t)gridDim.x * blockDim.x, i, value = 0;
	int err = 0;
	const struct gpunvme_cached_queue src = { &j.dq, &j.pages };

	for (i = gpunvme_thread_id(); i < all && !err; i += lanes) {
		do
			err = gpunvme_array_load(&src, i, 8, &value);
		while (err == -GPUNVME_EAGAIN);
		if (!err && value != word_of(i))
			atomicAdd(j.wrong, 1ull);
	}
	if (err)
		*j.failed = err;
}

/* ---- The host ---- */

typedef void (*kernel)(struct job);

static double run(kernel k, const job &j, uint32_t blocks, uint32_t lanes)
{
	auto start = std::chrono::steady_clock::now();

	*j.failed = 0;
	k<<<blocks, lanes>>>(j);
	check(cudaGetLastError(), "launch");
	check(cudaDeviceSynchronize(), "kernel");
	if (*j.failed)
		die(std::string("a lane failed: ") + gpunvme_strerror(*j.failed));
	return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

static gpunvme_cache *open_cache(const session &s, uint32_t flags, uint64_t frames, job &j)
{
	gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	gpunvme_cache *cache;

	opts.flags = flags | GPUNVME_CACHE_STATS;
	opts.page_size = PAGE;
	opts.frames = (uint32_t)frames;
	check(gpunvme_cache_create(s.queue[0], &opts, &cache));
	check(gpunvme_cache_view(cache, &j.pages));
	return cache;
}

static struct gpunvme_cache_info info_of(gpunvme_cache *cache)
{
	struct gpunvme_cache_info info = {};

	info.size = sizeof(info);
	check(gpunvme_cache_get_info(cache, &info));
	return info;
}

static void changes(const session &s, job j, uint32_t processors)
{
	gpunvme_cache *cache = open_cache(s, GPUNVME_CACHE_WRITE_BACK, j.count / 4, j);
	double time = run(change, j, processors, 256);
	struct gpunvme_cache_info info = info_of(cache);
	auto start = std::chrono::steady_clock::now();

	check(gpunvme_cache_flush(cache));
	double flush = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
	check(gpunvme_cache_destroy(cache));
	cache = open_cache(s, 0, j.count / 4, j);
	run(compare, j, processors, 256);
	check(gpunvme_cache_destroy(cache));
	printf("{\"figure\": \"changes\", \"elements\": %" PRIu64 ", \"million_a_second\": %.3f, \"reads\": %" PRIu64 ", \"writes\": %" PRIu64
	       ", \"flushed\": %" PRIu64 ", \"flush_seconds\": %.3f, \"wrong\": %llu}\n",
	       j.count * WORDS, 1e-6 * j.count * WORDS / time, info.misses, info.writes, info.changed, flush, *j.wrong);
	fflush(stdout);
}

/* A cache of its own each time, so that nothing is there. */
static void walk(const session &s, job j, uint32_t ahead)
{
	gpunvme_cache *cache = open_cache(s, ahead ? GPUNVME_CACHE_PREFETCH : 0, j.count, j);
	struct gpunvme_cache_info info;
	double time;

	j.ahead = ahead;
	j.each = (uint32_t)(j.count / j.waves);
	time = run(ahead ? stream_prefetched : stream, j, (j.waves + 7) / 8, 8 * WAVE);
	if (ahead)
		run(finish, j, 1, WAVE);
	info = info_of(cache);
	printf("{\"figure\": \"stream\", \"waves\": %u, \"ahead\": %u, \"thousand_pages_a_second\": %.1f, \"misses\": %" PRIu64
	       ", \"prefetches\": %" PRIu64 ", \"used\": %" PRIu64 ", \"wrong\": %llu}\n",
	       j.waves, ahead, 1e-3 * j.each * j.waves / time, info.misses, info.prefetches, info.used, *j.wrong);
	fflush(stdout);
	check(gpunvme_cache_destroy(cache));
}

int main(int argc, char **argv)
{
	gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	gpunvme_view window = GPUNVME_VIEW_INIT;
	int processors, wrong;
	gpunvme_queue *queue;
	session s;
	job j = {};

	if (argc != 2)
		die("usage: pages_kinds URI");
	s.open(argv[1], 0, 1);
	check(gpunvme_queue_destroy(s.queue[0]));
	s.queue.clear();
	opts.depth = DEPTH;
	window.flags = GPUNVME_VIEW_WRITE;
	check(gpunvme_queue_create(s.dev, s.gpu, &opts, &queue));
	check(gpunvme_queue_view(queue, &window, &j.dq));
	check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
	check(cudaMallocManaged(&j.wrong, sizeof(*j.wrong)), "cudaMallocManaged");
	check(cudaMallocManaged(&j.failed, sizeof(*j.failed)), "cudaMallocManaged");
	*j.wrong = 0;
	for (j.count = 1; 4 * j.count <= s.ns.nblocks * s.ns.lba_size / PAGE; j.count *= 2)
		;
	changes(s, j, processors);
	for (j.waves = 1; j.waves <= 256; j.waves *= 16)
		for (uint32_t ahead : { 0u, 4u, 16u })
			walk(s, j, ahead);
	wrong = *j.wrong != 0;
	check(gpunvme_queue_destroy(queue));
	s.close();
	return wrong;
}
