/* SPDX-License-Identifier: MIT */
/*
 * bench/pages: what an array larger than memory costs on an NVIDIA GPU, beside the same accesses without a cache in the same run.
 *
 *   whole pages   each wave has a page after the other, all there, and copies it; beside the same copy from plain memory
 *   elements      each lane loads 8 bytes anywhere, all there; beside plain loads
 *   misses        each lane has pages that are not there; beside gpunvme_read() of the same blocks
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o pages bench/pages.cu -Lbuild/release/lib -lgpunvme
 *   pages 'soft:disk.img?threads=12' [MIB of memory for pages]    # the image twice as large at least
 *
 * Prints a line of JSON for each figure.
 */
#include <chrono>
#include <cinttypes>

#include "session.h"

#include <gpunvme/device_array.h>

const char *const program = "pages";

#define PAGE 4096u
#define WAVE 32u
#define BLOCK 256u
#define DEPTH 1024u
#define WITH_CACHE __global__ __launch_bounds__(BLOCK, 2) /* else registers let one block run on each multiprocessor */

struct job {
	const struct gpunvme_dq *dq; /* of each queue */
	uint32_t queues;
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

__device__ static void copy_wave(uint64_t *to, const uint64_t *from)
{
	const ulonglong2 *source = (const ulonglong2 *)from;
	ulonglong2 *target = (ulonglong2 *)to;

	for (uint32_t i = threadIdx.x % WAVE; i < PAGE / 16; i += WAVE)
		target[i] = source[i];
}

WITH_CACHE static void pages_by_cache(struct job j)
{
	const gpunvme_dq dq = j.dq[blockIdx.x % j.queues];
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
	const gpunvme_dq dq = j.dq[blockIdx.x % j.queues];
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
	const gpunvme_dq dq = j.dq[blockIdx.x % j.queues];
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
	const gpunvme_dq dq = j.dq[blockIdx.x % j.queues];
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
	const gpunvme_dq dq = j.dq[blockIdx.x % j.queues];
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

/* Twice, of which the second counts: clocks have risen, and the caches are as full as they get. */
static double best(kernel k, uint32_t blocks, job &j)
{
	(void)run(k, blocks, j);
	return run(k, blocks, j);
}

static void figure(const char *name, const char *way, double amount, const char *unit, double cached, double plain)
{
	printf("{\"figure\": \"%s\", \"pages\": \"%s\", \"unit\": \"%s\", \"cached\": %.3f, \"plain\": %.3f, \"ratio\": %.3f}\n", name, way,
	       unit, amount / cached, amount / plain, plain / cached);
	fflush(stdout);
}

static void measure(gpunvme_dev *dev, gpunvme_gpu *gpu, job j, const char *way, uint32_t flags, uint64_t frames, uint64_t all)
{
	gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;
	gpunvme_pagecache *cache;
	uint32_t blocks = 132 * 4, lanes = blocks * BLOCK;
	double cached;

	opts.flags = flags;
	opts.page_size = PAGE;
	opts.frames = (uint32_t)frames;
	check(gpunvme_pagecache_create(dev, gpu, &opts, &cache));
	check(gpunvme_pagecache_view(cache, &j.pages));
	j.count = frames;
	run(warm, blocks, j);
	j.rounds = 64;
	cached = best(pages_by_cache, blocks, j);
	figure("whole pages", way, 1e-9 * j.rounds * (lanes / WAVE) * PAGE, "GB/s", cached, best(pages_plain, blocks, j));
	j.rounds = 256;
	cached = best(elements_by_cache, blocks, j);
	figure("elements of 8 bytes", way, 1e-6 * j.rounds * lanes, "million/s", cached, best(elements_plain, blocks, j));
	blocks = 132;
	lanes = blocks * BLOCK;
	j.rounds = (all - frames) / lanes;
	cached = run(misses_by_cache, blocks, j);
	figure("misses", way, 1e-6 * j.rounds * lanes, "million/s", cached, run(misses_plain, blocks, j));
	check(gpunvme_pagecache_destroy(cache));
}

int main(int argc, char **argv)
{
	struct gpunvme_dev_info info = {};
	struct gpunvme_ns_info ns = {};
	gpunvme_qp_opts opts = GPUNVME_QP_OPTS_INIT;
	gpunvme_mem_opts host = GPUNVME_MEM_OPTS_INIT;
	gpunvme_view window = GPUNVME_VIEW_INIT;
	uint64_t frames;
	gpunvme_gpu *gpu;
	gpunvme_dev *dev;
	gpunvme_mem *mem;
	gpunvme_dq *dq;
	job j = {};

	if (argc < 2 || argc > 3)
		die("usage: pages URI [MIB]");
	frames = (argc > 2 ? strtoull(argv[2], nullptr, 10) : 1024) << 20 >> 12;
	if (frames < 132ull * 4 * BLOCK)
		die("each lane needs a page of its own: give 528 MiB or more");
	check(cudaFree(nullptr), "there is no GPU that CUDA can use");
	check(gpunvme_gpu_open("cuda:0", nullptr, &gpu));
	check(gpunvme_dev_open(argv[1], nullptr, &dev));
	info.size = sizeof(info);
	ns.size = sizeof(ns);
	check(gpunvme_dev_get_info(dev, &info));
	check(gpunvme_ns_get_info(dev, 0, &ns));
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
	check(gpunvme_mem_alloc(gpu, (size_t)132 * BLOCK * PAGE, &host, &mem));
	check(gpunvme_mem_map(mem, dev));
	check(gpunvme_mem_dbuf(mem, dev, &j.buf));
	check(cudaMalloc(&j.to, (size_t)132 * 4 * BLOCK / WAVE * PAGE), "cudaMalloc");
	check(cudaMalloc((void **)&j.plain, frames * PAGE), "cudaMalloc");
	check(cudaMemset((void *)j.plain, 1, frames * PAGE), "cudaMemset");
	fprintf(stderr, "%u queues of depth %u, %" PRIu64 " pages of %u bytes of a namespace of %" PRIu64 "\n", j.queues, DEPTH, frames, PAGE,
		ns.nblocks * ns.lba_size / PAGE);
	measure(dev, gpu, j, "in place", GPUNVME_PAGECACHE_IN_PLACE, frames, ns.nblocks * ns.lba_size / PAGE);
	measure(dev, gpu, j, "copied", GPUNVME_PAGECACHE_LANDING, frames, ns.nblocks * ns.lba_size / PAGE);
	for (gpunvme_qp *q : qp)
		check(gpunvme_qp_destroy(q));
	check(gpunvme_mem_free(mem));
	check(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	return 0;
}
