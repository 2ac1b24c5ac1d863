/* SPDX-License-Identifier: MIT */
/*
 * bench/pages: what an array larger than memory costs on an NVIDIA GPU, beside the same accesses without a cache in the same run.
 *
 *   whole pages   each wave has a page after the other, all there, and copies it; beside the same copy from plain memory
 *   elements      each lane loads 8 bytes anywhere, all there; beside plain loads
 *   misses        each lane has pages that are not there; beside gpunvme_read() of the same blocks
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o pages bench/pages.cu -Lbuild/release/lib -lgpunvme
 *   pages 'soft:disk.img?threads=12' [MIB of memory for pages]    # the image three times as large at least
 *
 * Prints a line of JSON for each figure.
 */
#include <algorithm>
#include <chrono>
#include <cinttypes>

#include "session.h"

#include <gpunvme/device_array.h>

const char *const program = "pages";

#define PAGE 4096u
#define WAVE 32u
#define BLOCK 256u
#define DEPTH 1024u
#ifndef BLOCKS
#define BLOCKS 2 /* of a multiprocessor: more make hits slower (docs/gpu-performance.md), one leaves the memory idle */
#endif
#define WITH_CACHE __global__ __launch_bounds__(BLOCK, BLOCKS)
#define MOST 8 /* blocks of a multiprocessor, without a cache */
#define TURNS 5

/* dq: the descriptor of the queue, in memory of the block, because what is acquired empties the cache of a multiprocessor. */
#define OWN_DQ(dq, j)                                    \
	__shared__ gpunvme_dq dq;                        \
                                                         \
	if (threadIdx.x == 0)                            \
		dq = j.dq[blockIdx.x % j.queues];        \
	__syncthreads()

struct job {
	const struct gpunvme_dq *dq; /* of each queue */
	uint32_t queues, processors;
	struct gpunvme_dpages pages;
	struct gpunvme_dbuf buf; /* a page for each lane */
	uint64_t *to;		 /* a page for each wave, or a word for each lane */
	const uint64_t *plain;
	uint64_t count, rounds; /* pages that are used */
	int *failed;
};

__device__ static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15ull;
	return v ^ v >> 29;
}

/* All loads are under way before the first store: lanes that wait for each one make few waves look slow. */
__device__ static void copy_wave(uint64_t *to, const uint64_t *from)
{
	const ulonglong2 *source = (const ulonglong2 *)from;
	ulonglong2 *target = (ulonglong2 *)to;

	ulonglong2 part[PAGE / 16 / WAVE];

#pragma unroll
	for (uint32_t i = 0; i < PAGE / 16 / WAVE; i++)
		part[i] = source[threadIdx.x % WAVE + i * WAVE];
#pragma unroll
	for (uint32_t i = 0; i < PAGE / 16 / WAVE; i++)
		target[threadIdx.x % WAVE + i * WAVE] = part[i];
}

WITH_CACHE static void pages_by_cache(struct job j)
{
	OWN_DQ(dq, j);
	uint64_t wave = gpunvme_lane() / WAVE, waves = gridDim.x * (blockDim.x / WAVE);
	struct gpunvme_page page;

	for (uint64_t i = 0; i < j.rounds; i++) {
		int ret = gpunvme_page_get(&dq, &j.pages, mix(wave + i * waves) % j.count, &page);

		if (!ret) {
			copy_wave(j.to + wave * (PAGE / 8), (const uint64_t *)page.base);
			ret = gpunvme_page_put(&dq, &page);
		}
		if (ret)
			*j.failed = ret;
	}
}

__global__ static void pages_plain(struct job j)
{
	uint64_t wave = gpunvme_lane() / WAVE, waves = gridDim.x * (blockDim.x / WAVE);

	for (uint64_t i = 0; i < j.rounds; i++)
		copy_wave(j.to + wave * (PAGE / 8), j.plain + mix(wave + i * waves) % j.count * (PAGE / 8));
}

WITH_CACHE static void elements_by_cache(struct job j)
{
	OWN_DQ(dq, j);
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x, sum = 0, value = 0;

	for (uint64_t i = 0; i < j.rounds; i++) {
		int ret = gpunvme_array_get(&dq, &j.pages, mix(gpunvme_lane() + i * lanes) % (j.count * (PAGE / 8)), 8, &value);

		if (ret)
			*j.failed = ret;
		sum += value;
	}
	j.to[gpunvme_lane()] = sum;
}

__global__ static void elements_plain(struct job j)
{
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x, sum = 0;

	for (uint64_t i = 0; i < j.rounds; i++)
		sum += j.plain[mix(gpunvme_lane() + i * lanes) % (j.count * (PAGE / 8))];
	j.to[gpunvme_lane()] = sum;
}

/* Lane by lane pages that no other has: pages from `count` on. */
WITH_CACHE static void misses_by_cache(struct job j)
{
	OWN_DQ(dq, j);
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x;
	struct gpunvme_page page;

	for (uint64_t i = 0; i < j.rounds; i++) {
		int ret = gpunvme_page_get(&dq, &j.pages, j.count + gpunvme_lane() + i * lanes, &page);

		if (!ret)
			ret = gpunvme_page_put(&dq, &page);
		if (ret)
			*j.failed = ret;
	}
}

__global__ static void misses_plain(struct job j)
{
	OWN_DQ(dq, j);
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x, blocks = PAGE >> dq.lba_shift;

	for (uint64_t i = 0; i < j.rounds; i++) {
		int ret = gpunvme_read(&dq, &j.buf, (uint64_t)gpunvme_lane() * PAGE, (j.count + gpunvme_lane() + i * lanes) * blocks, blocks);

		if (ret)
			*j.failed = ret;
	}
}

/* Every page of the first `count`, so that it is there. */
__global__ static void warm(struct job j)
{
	OWN_DQ(dq, j);
	struct gpunvme_page page;

	for (uint64_t i = gpunvme_lane(); i < j.count; i += (uint64_t)gridDim.x * blockDim.x)
		if (gpunvme_page_get(&dq, &j.pages, i, &page) || gpunvme_page_put(&dq, &page))
			*j.failed = -1;
}

typedef void (*kernel)(struct job);

static double run(kernel k, uint32_t blocks, const job &j)
{
	auto start = std::chrono::steady_clock::now();

	*j.failed = 0;
	k<<<blocks, BLOCK>>>(j);
	check(cudaGetLastError(), "launch");
	check(cudaDeviceSynchronize(), "kernel");
	if (*j.failed)
		die(std::string("a lane failed: ") + gpunvme_strerror(*j.failed));
	return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/* Seconds for the work of one block of each multiprocessor, where as many as `most` of them run: the best number, the best turn. */
static double best(kernel k, uint32_t least, uint32_t most, job &j)
{
	double time = 1e9;

	(void)run(k, least * j.processors, j);
	for (uint32_t n = least; n <= most; n++)
		for (uint32_t turn = 0; turn < TURNS; turn++)
			time = std::min(time, run(k, n * j.processors, j) / n);
	return time;
}

static void figure(const char *name, const char *way, double amount, const char *unit, double cached, double plain)
{
	printf("{\"figure\": \"%s\", \"pages\": \"%s\", \"unit\": \"%s\", \"cached\": %.3f, \"plain\": %.3f, \"ratio\": %.3f}\n", name, way,
	       unit, amount / cached, amount / plain, plain / cached);
	fflush(stdout);
}

/* Both ways by turns, and the middle of each: the controller in software decides, which is not steady. */
static void misses(const char *way, job &j)
{
	double cached[TURNS], plain[TURNS];

	for (uint32_t turn = 0; turn < TURNS; turn++) {
		cached[turn] = run(misses_by_cache, j.processors, j);
		plain[turn] = run(misses_plain, j.processors, j);
	}
	std::sort(cached, cached + TURNS);
	std::sort(plain, plain + TURNS);
	figure("misses", way, 1e-6 * j.rounds * j.processors * BLOCK, "million/s", cached[TURNS / 2], plain[TURNS / 2]);
}

static void measure(gpunvme_dev *dev, gpunvme_gpu *gpu, job j, const char *way, uint32_t flags, uint64_t frames, uint64_t all)
{
	gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;
	uint32_t lanes = j.processors * BLOCK;
	gpunvme_pagecache *cache;

	opts.flags = flags;
	opts.page_size = PAGE;
	opts.frames = (uint32_t)frames;
	check(gpunvme_pagecache_create(dev, gpu, &opts, &cache));
	check(gpunvme_pagecache_view(cache, &j.pages));
	j.count = frames;
	run(warm, BLOCKS * j.processors, j);
	j.rounds = 256;
	figure("whole pages", way, 1e-9 * j.rounds * (lanes / WAVE) * PAGE, "GB/s", best(pages_by_cache, BLOCKS, BLOCKS, j),
	       best(pages_plain, 1, MOST, j));
	j.rounds = 1024;
	figure("elements of 8 bytes", way, 1e-6 * j.rounds * lanes, "million/s", best(elements_by_cache, BLOCKS, BLOCKS, j),
	       best(elements_plain, 1, MOST, j));
	j.rounds = (all - frames) / lanes;
	misses(way, j);
	check(gpunvme_pagecache_destroy(cache));
}

int main(int argc, char **argv)
{
	struct gpunvme_dev_info info = {};
	struct gpunvme_ns_info ns = {};
	gpunvme_qp_opts opts = GPUNVME_QP_OPTS_INIT;
	gpunvme_mem_opts host = GPUNVME_MEM_OPTS_INIT;
	gpunvme_view window = GPUNVME_VIEW_INIT;
	uint64_t frames, pages;
	int processors;
	gpunvme_gpu *gpu;
	gpunvme_dev *dev;
	gpunvme_mem *mem;
	gpunvme_dq *dq;
	job j = {};

	if (argc < 2 || argc > 3)
		die("usage: pages URI [MIB]");
	frames = (argc > 2 ? strtoull(argv[2], nullptr, 10) : 1024) << 20 >> 12;
	check(cudaFree(nullptr), "there is no GPU that CUDA can use");
	check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
	j.processors = processors;
	if (frames < (uint64_t)processors * BLOCKS * BLOCK)
		die("each lane needs a page of its own: give more memory");
	check(gpunvme_gpu_open("cuda:0", nullptr, &gpu));
	check(gpunvme_dev_open(argv[1], nullptr, &dev));
	info.size = sizeof(info);
	ns.size = sizeof(ns);
	check(gpunvme_dev_get_info(dev, &info));
	check(gpunvme_ns_get_info(dev, 0, &ns));
	pages = ns.nblocks * ns.lba_size / PAGE;
	if (pages < 3 * frames)
		die("what is missed in one turn must be gone by the next: give less memory, or an image three times as large");
	j.queues = info.queues < 64 ? info.queues : 64;
	check(cudaMallocManaged(&dq, j.queues * sizeof(*dq)), "cudaMallocManaged");
	check(cudaMallocManaged(&j.failed, sizeof(*j.failed)), "cudaMallocManaged");
	opts.depth = DEPTH;
	std::vector<gpunvme_qp *> qp(j.queues);
	for (uint32_t i = 0; i < j.queues; i++) {
		check(gpunvme_qp_create(dev, gpu, &opts, &qp[i]));
		check(gpunvme_qp_view(qp[i], &window, &dq[i]));
	}
	j.dq = dq;
	host.flags = GPUNVME_MEM_HOST;
	check(gpunvme_mem_alloc(gpu, (size_t)j.processors * BLOCK * PAGE, &host, &mem));
	check(gpunvme_mem_map(mem, dev));
	check(gpunvme_mem_dbuf(mem, dev, &j.buf));
	check(cudaMalloc(&j.to, (size_t)j.processors * MOST * BLOCK / WAVE * PAGE), "cudaMalloc");
	check(cudaMalloc((void **)&j.plain, frames * PAGE), "cudaMalloc");
	check(cudaMemset((void *)j.plain, 1, frames * PAGE), "cudaMemset");
	fprintf(stderr, "%u queues of depth %u, %" PRIu64 " pages of %u bytes of a namespace of %" PRIu64 "\n", j.queues, DEPTH, frames, PAGE,
		pages);
	measure(dev, gpu, j, "in place", GPUNVME_PAGECACHE_IN_PLACE, frames, pages);
	measure(dev, gpu, j, "copied", GPUNVME_PAGECACHE_LANDING, frames, pages);
	for (gpunvme_qp *q : qp)
		check(gpunvme_qp_destroy(q));
	check(gpunvme_mem_free(mem));
	check(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	return 0;
}
