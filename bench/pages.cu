/* SPDX-License-Identifier: MIT */
/*
 * bench/pages: what an array larger than memory costs on an NVIDIA GPU, and the same accesses without a cache in the same run.
 *
 *   whole pages   each wave has a page after the other, all there, and copies it; and the same copy from plain memory
 *   elements      each thread loads 8 bytes anywhere, all there; and plain loads
 *   misses        each thread has pages that are not there; and gpunvme_read() of the same blocks
 *
 * and each once more with a cache of another kind (gpu/ticket_pages.h): hits from memory of the GPU, misses into memory of the host.
 *
 * With --no-io misses alone, by queues whose controller counts and completes commands and moves nothing (gpu/controller.h), so
 * that no drive and no controller's work is in the figure. Pages keep what was there. Then both queues without a cache.
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Ilib -Iexamples/cuda -o pages bench/pages.cu -Lbuild/release/lib -lgpunvme
 *   pages 'soft:disk.img?threads=12' [MIB of memory for pages]    # the image three times as large at least
 *   pages --no-io THREADS 'soft:disk.img' [MIB]                   # threads of that controller
 *
 * Prints a line of JSON for each figure.
 */
#include <algorithm>
#include <chrono>
#include <cinttypes>

#include "session.h"

#include <gpunvme/device.h>

#include "gpu/rig.h"
#include "gpu/ticket_pages.h"

const char *const program = "pages";

#define PAGE 4096u
#define WAVE 32u
#define BLOCK 256u
#define DEPTH 1024u
#ifndef PER_PROCESSOR
#define PER_PROCESSOR 2 /* of a multiprocessor: more make hits slower (docs/results/gpu.md), one leaves the memory idle */
#endif
#define WITH_CACHE __global__ __launch_bounds__(BLOCK, PER_PROCESSOR)
#define MOST 8 /* blocks of a multiprocessor, without a cache */
#define TURNS 5

/* dq: the descriptor of the queue, in memory of the block, because what is acquired empties the cache of a multiprocessor. */
#define BLOCK_DQ(dq, j) SHARED_DQ(dq, (j).dq[blockIdx.x % (j).queues])
#define OTHER_DQ(dq, j) SHARED_DQ(dq, (j).dq[(j).queues + blockIdx.x % (j).queues])
#define SHARED_DQ(dq, from)       \
	__shared__ gpunvme_dq dq; \
                                  \
	if (threadIdx.x == 0)     \
		dq = from;        \
	__syncthreads()

struct job {
	const struct gpunvme_dq *dq; /* of each queue, then of each one of the other cache */
	uint32_t queues, processors;
	struct gpunvme_dpages pages;
	struct gpunvme_dbuf buf; /* a page for each thread */
	struct ticket_pages other;
	const struct ticket_queue *tickets; /* of each queue */
	uint64_t *to;		 /* a page for each wave, or a word for each thread */
	const uint64_t *plain;
	uint64_t count, rounds; /* pages that are used */
	int *failed;
};

__device__ static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15ull;
	return v ^ v >> 29;
}

/* All loads are under way before the first store: threads that wait for each one make few waves look slow. */
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
	BLOCK_DQ(dq, j);
	const struct gpunvme_cached_queue src = { &dq, &j.pages };
	uint64_t wave = gpunvme_thread_id() / WAVE, waves = gridDim.x * (blockDim.x / WAVE);
	struct gpunvme_page page;

	for (uint64_t i = 0; i < j.rounds; i++) {
		int ret = gpunvme_page_get(&src, mix(wave + i * waves) % j.count, &page);

		if (!ret) {
			copy_wave(j.to + wave * (PAGE / 8), (const uint64_t *)page.base);
			ret = gpunvme_page_put(&src, &page);
		}
		if (ret)
			*j.failed = ret;
	}
}

__global__ static void pages_plain(struct job j)
{
	uint64_t wave = gpunvme_thread_id() / WAVE, waves = gridDim.x * (blockDim.x / WAVE);

	for (uint64_t i = 0; i < j.rounds; i++)
		copy_wave(j.to + wave * (PAGE / 8), j.plain + mix(wave + i * waves) % j.count * (PAGE / 8));
}

WITH_CACHE static void elements_by_cache(struct job j)
{
	BLOCK_DQ(dq, j);
	const struct gpunvme_cached_queue src = { &dq, &j.pages };
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x, sum = 0, value = 0;

	for (uint64_t i = 0; i < j.rounds; i++) {
		int ret = gpunvme_array_load(&src, mix(gpunvme_thread_id() + i * lanes) % (j.count * (PAGE / 8)), 8, &value);

		if (ret)
			*j.failed = ret;
		sum += value;
	}
	j.to[gpunvme_thread_id()] = sum;
}

__global__ static void elements_plain(struct job j)
{
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x, sum = 0;

	for (uint64_t i = 0; i < j.rounds; i++)
		sum += j.plain[mix(gpunvme_thread_id() + i * lanes) % (j.count * (PAGE / 8))];
	j.to[gpunvme_thread_id()] = sum;
}

/* Thread by thread pages that no other has: pages from `count` on. */
WITH_CACHE static void misses_by_cache(struct job j)
{
	BLOCK_DQ(dq, j);
	const struct gpunvme_cached_queue src = { &dq, &j.pages };
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x;
	struct gpunvme_page page;

	for (uint64_t i = 0; i < j.rounds; i++) {
		int ret = gpunvme_page_get(&src, j.count + gpunvme_thread_id() + i * lanes, &page);

		if (!ret)
			ret = gpunvme_page_put(&src, &page);
		if (ret)
			*j.failed = ret;
	}
}

__global__ static void misses_plain(struct job j)
{
	BLOCK_DQ(dq, j);
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = 0; i < j.rounds; i++) {
		int ret = gpunvme_read(&dq, &j.buf, (uint64_t)gpunvme_thread_id() * PAGE,
				       (uint64_t)(j.count + gpunvme_thread_id() + i * lanes) * PAGE, PAGE);

		if (ret)
			*j.failed = ret;
	}
}

/* ---- The same with the other cache ---- */

#define OWN_TICKETS(j) &(j).tickets[blockIdx.x % (j).queues]

WITH_CACHE static void pages_by_other(struct job j)
{
	OTHER_DQ(dq, j);
	uint64_t wave = gpunvme_thread_id() / WAVE, waves = gridDim.x * (blockDim.x / WAVE);
	uint32_t refs, mates;

	for (uint64_t i = 0; i < j.rounds; i++) {
		uint64_t page = mix(wave + i * waves) % j.count;

		copy_wave(j.to + wave * (PAGE / 8), (const uint64_t *)ticket_get(&j.other, &dq, OWN_TICKETS(j), page, &refs, &mates));
		ticket_put(&j.other, page, refs, mates);
	}
}

WITH_CACHE static void elements_by_other(struct job j)
{
	OTHER_DQ(dq, j);
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x, sum = 0;
	uint32_t refs, mates;

	for (uint64_t i = 0; i < j.rounds; i++) {
		uint64_t at = mix(gpunvme_thread_id() + i * lanes) % (j.count * (PAGE / 8)), page = at / (PAGE / 8);

		sum += ((const uint64_t *)ticket_get(&j.other, &dq, OWN_TICKETS(j), page, &refs, &mates))[at % (PAGE / 8)];
		ticket_put(&j.other, page, refs, mates);
	}
	j.to[gpunvme_thread_id()] = sum;
}

WITH_CACHE static void misses_by_other(struct job j)
{
	OTHER_DQ(dq, j);
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x;
	uint32_t refs, mates;

	for (uint64_t i = 0; i < j.rounds; i++) {
		uint64_t page = j.count + gpunvme_thread_id() + i * lanes;

		(void)ticket_get(&j.other, &dq, OWN_TICKETS(j), page, &refs, &mates);
		ticket_put(&j.other, page, refs, mates);
	}
}

/* Its queue without a cache. */
__global__ static void misses_by_tickets(struct job j)
{
	OTHER_DQ(dq, j);
	uint64_t lanes = (uint64_t)gridDim.x * blockDim.x, blocks = PAGE >> dq.lba_shift;
	const struct ticket_queue *q = OWN_TICKETS(j);

	for (uint64_t i = 0; i < j.rounds; i++) {
		uint32_t cid = ticket_claim_cid(&dq, q);

		ticket_submit(&dq, q, &j.buf, cid, (j.count + gpunvme_thread_id() + i * lanes) * blocks);
		if (ticket_complete(&dq, q, cid))
			*j.failed = -1;
	}
}

/* Every page of the first `count`, so that it is there. */
__global__ static void warm(struct job j)
{
	BLOCK_DQ(dq, j);
	const struct gpunvme_cached_queue src = { &dq, &j.pages };
	struct gpunvme_page page;

	for (uint64_t i = gpunvme_thread_id(); i < j.count; i += (uint64_t)gridDim.x * blockDim.x)
		if (gpunvme_page_get(&src, i, &page) || gpunvme_page_put(&src, &page))
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

/* Million pages a second. */
static double rate(kernel k, uint32_t blocks, const job &j)
{
	return 1e-6 * j.rounds * blocks * BLOCK / run(k, blocks, j);
}

/* What is there is the first `count` pages, in their order. */
static void fill_other(const job &j, uint64_t all)
{
	std::vector<uint32_t> word(all), owner(j.count);

	for (uint64_t i = 0; i < j.count; i++) {
		word[i] = TICKET_VALID;
		owner[i] = (uint32_t)i + 1;
	}
	check(cudaMemcpy(j.other.word, word.data(), all * 4, cudaMemcpyDefault), "cudaMemcpy");
	check(cudaMemcpy(j.other.owner, owner.data(), j.count * 4, cudaMemcpyDefault), "cudaMemcpy");
	for (uint64_t i = 0; i < j.count; i++)
		word[i] = (uint32_t)i;
	check(cudaMemcpy(j.other.place, word.data(), all * 4, cudaMemcpyDefault), "cudaMemcpy");
}

/* Its threads stand in each other's way, so it may have fewer. */
static double other_rate(kernel k, const job &j, uint64_t all)
{
	double most = 0;

	for (uint32_t part = 1; part <= 16; part *= 4) {
		fill_other(j, all);
		most = std::max(most, rate(k, std::max(j.processors / part, 1u), j));
	}
	return most;
}

static bool no_io;

/* All ways by turns, and the middle of each: the controller in software decides, which is not steady. */
static void misses(const char *way, job &j, uint64_t all)
{
	std::vector<double> cached(TURNS), plain(TURNS), other(TURNS), tickets(TURNS);

	for (uint32_t turn = 0; turn < TURNS; turn++) {
		cached[turn] = rate(misses_by_cache, j.processors, j);
		plain[turn] = rate(misses_plain, j.processors, j);
		if (j.other.iova)
			other[turn] = other_rate(misses_by_other, j, all);
		if (j.other.iova && no_io)
			tickets[turn] = other_rate(misses_by_tickets, j, all);
	}
	std::sort(cached.begin(), cached.end());
	std::sort(plain.begin(), plain.end());
	std::sort(other.begin(), other.end());
	std::sort(tickets.begin(), tickets.end());
	figure("misses", way, 1, "million/s", 1 / cached[TURNS / 2], 1 / plain[TURNS / 2]);
	if (j.other.iova)
		figure("misses", "another cache", 1, "million/s", 1 / other[TURNS / 2], 1 / plain[TURNS / 2]);
	if (j.other.iova && no_io)
		figure("misses", "another cache, its queue alone", 1, "million/s", 1 / tickets[TURNS / 2], 1 / plain[TURNS / 2]);
}

static void hits(job &j, const char *way, uint32_t lanes)
{
	j.rounds = 256;
	figure("whole pages", way, 1e-9 * j.rounds * (lanes / WAVE) * PAGE, "GB/s", best(pages_by_cache, PER_PROCESSOR, PER_PROCESSOR, j),
	       best(pages_plain, 1, MOST, j));
	j.rounds = 1024;
	figure("elements of 8 bytes", way, 1e-6 * j.rounds * lanes, "million/s", best(elements_by_cache, PER_PROCESSOR, PER_PROCESSOR, j),
	       best(elements_plain, 1, MOST, j));
}

static void hits_of_other(job &j, uint32_t lanes)
{
	j.rounds = 256;
	figure("whole pages", "another cache", 1e-9 * j.rounds * (lanes / WAVE) * PAGE, "GB/s", best(pages_by_other, 1, MOST, j),
	       best(pages_plain, 1, MOST, j));
	j.rounds = 1024;
	figure("elements of 8 bytes", "another cache", 1e-6 * j.rounds * lanes, "million/s", best(elements_by_other, 1, MOST, j),
	       best(elements_plain, 1, MOST, j));
}

static void measure(gpunvme_queue *queue, job j, const char *way, uint32_t flags, uint64_t frames, uint64_t all)
{
	gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	uint32_t lanes = j.processors * BLOCK;
	gpunvme_cache *cache;

	opts.flags = flags;
	opts.page_size = PAGE;
	opts.frames = (uint32_t)frames;
	check(gpunvme_cache_create(queue, &opts, &cache));
	check(gpunvme_cache_view(cache, &j.pages));
	j.count = frames;
	run(warm, PER_PROCESSOR * j.processors, j);
	if (!no_io)
		hits(j, way, lanes);
	j.rounds = (all - frames) / lanes;
	misses(way, j, all);
	check(gpunvme_cache_destroy(cache));
}

/* Its pages lie where ours do: for hits in memory of the GPU, for misses where the controller reaches them. */
static void measure_other(job &j, const struct gpunvme_dbuf &buf, uint64_t frames, uint64_t all)
{
	uint32_t lanes = j.processors * BLOCK;

	j.count = frames;
	j.other.places = (uint32_t)frames;
	j.other.base = (uint64_t)j.plain;
	check(cudaMalloc(&j.other.word, all * 4), "cudaMalloc");
	check(cudaMalloc(&j.other.place, all * 4), "cudaMalloc");
	check(cudaMalloc(&j.other.owner, frames * 4), "cudaMalloc");
	check(cudaMalloc(&j.other.hand, 8), "cudaMalloc");
	check(cudaMemset(j.other.hand, 0, 8), "cudaMemset");
	fill_other(j, all);
	if (!no_io)
		hits_of_other(j, lanes);
	j.other.base = buf.base;
	j.other.iova = buf.iova;
}

/* The queue has had commands of the library's, by which it was tested. */
static void begin_behind(const struct gpunvme_dq &dq, struct ticket_queue *t)
{
	const uint64_t depth = 1ull << dq.sq_shift;
	std::vector<uint64_t> turn(depth);
	struct gpunvme_dq_state state;

	check(cudaMemcpy(&state, (const void *)dq.state, sizeof(state), cudaMemcpyDefault), "cudaMemcpy");
	t->ticket = t->tail = t->head = t->fetched = state.resv;
	for (uint64_t i = 0; i < depth; i++)
		turn[(state.resv + i) % depth] = i + 1 < depth ? state.resv + i : ~0ull;
	check(cudaMemcpy((void *)t->turn, turn.data(), depth * 8, cudaMemcpyDefault), "cudaMemcpy");
}

/* Queues of its own. */
static void make_tickets(gpunvme_dev *dev, gpunvme_gpu *gpu, job &j, gpunvme_dq *dq)
{
	struct rig *r = (struct rig *)calloc(1, sizeof(*r)); /* keeps what is allocated, to the end */
	gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	gpunvme_view window = GPUNVME_VIEW_INIT;
	struct ticket_queue *t;
	gpunvme_queue *queue;

	opts.depth = DEPTH;
	check(cudaMallocManaged(&t, j.queues * sizeof(*t)), "cudaMallocManaged");
	for (uint32_t i = 0; i < j.queues; i++) {
		check(gpunvme_queue_create(dev, gpu, &opts, &queue)); /* the device's end ends it */
		check(gpunvme_queue_view(queue, &window, &dq[i]));
		make_ticket(r, &dq[i], &t[i]);
		begin_behind(dq[i], &t[i]);
	}
	j.tickets = t;
}

/* Instead of the library's queues those of a controller that does nothing but count. */
static struct rig *rig_instead(job &j, gpunvme_dq *dq, uint32_t threads)
{
	struct rig *r = rig_new(2 * j.queues, DEPTH, SERVE_COUNT, false, false, 0);
	struct ticket_queue *t;

	check(cudaMallocManaged(&t, j.queues * sizeof(*t)), "cudaMallocManaged");
	for (uint32_t i = 0; i < j.queues; i++)
		make_ticket(r, &r->dqs[j.queues + i], &t[i]);
	memcpy(dq, r->dqs, 2 * j.queues * sizeof(*dq));
	j.tickets = t;
	r->c.threads = threads;
	return r;
}

static gpunvme_mem *host_memory(gpunvme_dev *dev, gpunvme_gpu *gpu, uint64_t bytes, struct gpunvme_dbuf *buf)
{
	gpunvme_mem *mem;

	check(gpunvme_mem_alloc(gpu, nullptr, bytes, nullptr, &mem));
	check(gpunvme_mem_map(mem, dev));
	check(gpunvme_mem_dbuf(mem, dev, buf));
	return mem;
}

int main(int argc, char **argv)
{
	struct gpunvme_dev_info info = {};
	struct gpunvme_ns_info ns = {};
	gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	gpunvme_view window = GPUNVME_VIEW_INIT;
	struct gpunvme_dbuf buf;
	uint64_t frames, pages;
	int processors;
	gpunvme_gpu *gpu;
	gpunvme_dev *dev;
	gpunvme_mem *mem[2];
	gpunvme_dq *dq;
	struct controller_thread *counting = nullptr;
	struct rig *rig = nullptr;
	uint32_t threads = 0;
	job j = {};

	if (argc > 3 && !strcmp(argv[1], "--no-io")) {
		threads = (uint32_t)strtoul(argv[2], nullptr, 10);
		no_io = true;
		argv += 2;
		argc -= 2;
	}
	if (argc < 2 || argc > 3 || (no_io && !threads))
		die("usage: pages [--no-io THREADS] URI [MIB]");
	frames = (argc > 2 ? strtoull(argv[2], nullptr, 10) : 1024) << 20 >> 12;
	check(cudaFree(nullptr), "there is no GPU that CUDA can use");
	check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
	j.processors = processors;
	if (frames < (uint64_t)processors * PER_PROCESSOR * BLOCK)
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
	j.queues = info.queues < 128 ? info.queues / 2 : 64;
	check(cudaMallocManaged(&dq, 2 * j.queues * sizeof(*dq)), "cudaMallocManaged");
	check(cudaMallocManaged(&j.failed, sizeof(*j.failed)), "cudaMallocManaged");
	opts.depth = DEPTH;
	std::vector<gpunvme_queue *> queue(j.queues);
	for (uint32_t i = 0; i < j.queues; i++) {
		check(gpunvme_queue_create(dev, gpu, &opts, &queue[i]));
		check(gpunvme_queue_view(queue[i], &window, &dq[i]));
	}
	j.dq = dq;
	mem[0] = host_memory(dev, gpu, (uint64_t)j.processors * BLOCK * PAGE, &j.buf);
	mem[1] = host_memory(dev, gpu, frames * PAGE, &buf);
	check(cudaMalloc(&j.to, (size_t)j.processors * MOST * BLOCK / WAVE * PAGE), "cudaMalloc");
	check(cudaMalloc((void **)&j.plain, frames * PAGE), "cudaMalloc");
	check(cudaMemset((void *)j.plain, 1, frames * PAGE), "cudaMemset");
	fprintf(stderr, "%u queues of depth %u, %" PRIu64 " pages of %u bytes of a namespace of %" PRIu64 "\n", j.queues, DEPTH, frames, PAGE,
		pages);
	if (no_io) {
		rig = rig_instead(j, dq, threads);
		counting = controller_start(&rig->c);
	}
	if (ns.lba_size == PAGE / BLOCKS) { /* as its commands have it */
		if (!no_io)
			make_tickets(dev, gpu, j, dq + j.queues);
		measure_other(j, buf, frames, pages);
	}
	measure(queue[0], j, "in place", GPUNVME_CACHE_IN_PLACE, frames, pages);
	measure(queue[0], j, "copied", GPUNVME_CACHE_LANDING, frames, pages);
	if (counting)
		controller_end(&rig->c, counting);
	for (gpunvme_queue *q : queue)
		check(gpunvme_queue_destroy(q));
	check(gpunvme_dev_close(dev));
	check(gpunvme_mem_free(mem[0]));
	check(gpunvme_mem_free(mem[1]));
	gpunvme_gpu_close(gpu);
	return 0;
}
