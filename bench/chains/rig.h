/* SPDX-License-Identifier: MIT */
/* The drive, its queues and memory, for the programs of bench/chains: on a GPU, or on CPU threads as tests run them. */
#ifndef BENCH_CHAINS_RIG_H
#define BENCH_CHAINS_RIG_H

#ifdef __CUDACC__
#include "session.h"

#define RIG_GPU "cuda:0"

static void *host_memory(size_t bytes)
{
	void *p;

	check(cudaHostAlloc(&p, bytes, cudaHostAllocMapped), "cudaHostAlloc");
	return memset(p, 0, bytes);
}

static void free_host(void *p)
{
	check(cudaFreeHost(p), "cudaFreeHost");
}

/* A copy in memory of the threads. */
static inline void *local_copy(const void *from, size_t bytes)
{
	void *p;

	check(cudaMalloc(&p, bytes), "cudaMalloc");
	check(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
	return p;
}

static inline void local_read(void *to, const void *from, size_t bytes)
{
	check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

static inline void free_local(const void *p)
{
	check(cudaFree((void *)p), "cudaFree");
}
#else
#include "../die.h"

#define RIG_GPU "cpu"

struct session {
	gpunvme_dev *dev = nullptr;
	gpunvme_gpu *gpu = nullptr;
	gpunvme_mem *mem = nullptr;
	std::vector<gpunvme_queue *> queue;
	gpunvme_dq *dq = nullptr;
	gpunvme_dbuf dbuf;
	struct gpunvme_ns_info ns = {};

	void buffer(size_t bytes)
	{
		check(gpunvme_mem_alloc(gpu, queue.empty() ? nullptr : queue[0], bytes, nullptr, &mem));
		check(gpunvme_mem_map(mem, dev));
		check(gpunvme_mem_dbuf(mem, dev, &dbuf));
	}
};

static inline void *host_memory(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (!p)
		die("out of memory");
	return memset(p, 0, bytes);
}

static inline void free_host(void *p)
{
	free(p);
}

static inline void *local_copy(const void *from, size_t bytes)
{
	return memcpy(host_memory(bytes), from, bytes);
}

static inline void local_read(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static inline void free_local(const void *p)
{
	free((void *)p);
}
#endif

/* A drive with blocks of 512 bytes. */
static void open_drive(struct session &s, const char *uri, gpunvme_gpu **cpu)
{
	s.ns.size = sizeof(s.ns);
	check(gpunvme_gpu_open(RIG_GPU, nullptr, &s.gpu));
	check(gpunvme_gpu_open("cpu", nullptr, cpu));
	check(gpunvme_dev_open(uri, nullptr, &s.dev));
	check(gpunvme_ns_get_info(s.dev, 0, &s.ns));
	if (s.ns.lba_size != 512)
		die("a namespace with blocks of 512 bytes is wanted");
}

/* What the order of this machine allows its queues. */
static uint32_t safe_flags(const struct session &s)
{
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_ordering seen = GPUNVME_ORDERING_INIT;

	opts.commands = 2000;
	check(gpunvme_gpu_ordering_test(s.dev, s.gpu, &opts, &seen));
	if (seen.failed)
		die("this machine does not keep the order that queues need: see `gpunvme ordering-test`");
	return seen.queue_flags;
}

/* Queues of @gpu. Those of the GPU have the safe @flags, those of the CPU need none. */
static void open_queues(struct session &s, gpunvme_gpu *gpu, uint32_t count, uint32_t flags)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;

	opts.flags = flags;
	view.flags = GPUNVME_VIEW_WRITE;
	s.queue.resize(count);
	s.dq = (struct gpunvme_dq *)host_memory(count * sizeof(*s.dq));
	for (uint32_t i = 0; i < count; i++) {
		check(gpunvme_queue_create(s.dev, gpu, &opts, &s.queue[i]));
		check(gpunvme_queue_view(s.queue[i], &view, &s.dq[i]));
	}
}

static void close_queues(struct session &s)
{
	for (gpunvme_queue *q : s.queue)
		check(gpunvme_queue_destroy(q));
	free_host(s.dq);
	s.queue.clear();
}

/* For data that drive and threads exchange, in memory of the GPU or of the host. */
static inline void open_buffer(struct session &s, size_t bytes, bool of_gpu)
{
	gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;

	opts.flags = of_gpu ? GPUNVME_MEM_VRAM : 0;
	check(gpunvme_mem_alloc(s.gpu, nullptr, bytes, &opts, &s.mem));
	check(gpunvme_mem_map(s.mem, s.dev));
	check(gpunvme_mem_dbuf(s.mem, s.dev, &s.dbuf));
}

/* After close_queues(). */
static void close_drive(struct session &s, gpunvme_gpu *cpu)
{
	check(gpunvme_mem_free(s.mem));
	check(gpunvme_dev_close(s.dev));
	gpunvme_gpu_close(s.gpu);
	gpunvme_gpu_close(cpu);
}

#endif
