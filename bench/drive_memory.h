/* SPDX-License-Identifier: MIT */
/* Where the threads of bench/drive_memory run: a GPU, or the CPU. */
#ifndef BENCH_DRIVE_MEMORY_H
#define BENCH_DRIVE_MEMORY_H

#ifdef __CUDACC__
#include "session.h"

struct there {
	cudaStream_t stream; /* which waits for no other */
};

static void open_there(struct there &t, unsigned gpu, gpunvme_gpu **opened)
{
	check(cudaSetDevice((int)gpu), "cudaSetDevice");
	check(gpunvme_gpu_open(("cuda:" + std::to_string(gpu)).c_str(), nullptr, opened));
	check(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking), "a stream");
}

static void *memory_there(size_t bytes)
{
	void *p;

	check(cudaMalloc(&p, bytes), "cudaMalloc");
	return p;
}

static void copy_there(const struct there &t, void *to, const void *from, size_t bytes)
{
	check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, t.stream), "a copy");
}

/* After all that was begun. */
static void copy_back(const struct there &t, void *to, const void *from, size_t bytes)
{
	check(cudaStreamSynchronize(t.stream), "a kernel");
	check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, t.stream), "a copy");
	check(cudaStreamSynchronize(t.stream), "a copy");
}

template <typename Job> static void launch(const struct there &t, void (*kernel)(Job), uint32_t threads, uint32_t block, const Job &job)
{
	kernel<<<threads / block, block, 0, t.stream>>>(job);
	check(cudaGetLastError(), "a kernel");
}
#else
#include "die.h"

#define __global__
#define __device__

struct there {};

static void open_there(struct there &, unsigned, gpunvme_gpu **opened)
{
	check(gpunvme_gpu_open("cpu", nullptr, opened));
}

static void *memory_there(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

	if (!p)
		die("out of memory");
	return p;
}

static void copy_there(const struct there &, void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static void copy_back(const struct there &, void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

template <typename Job> struct bound {
	void (*kernel)(Job);
	const Job *job;
	static void run(void *arg)
	{
		const struct bound *b = (const struct bound *)arg;

		b->kernel(*b->job);
	}
};

template <typename Job> static void launch(const struct there &, void (*kernel)(Job), uint32_t threads, uint32_t, const Job &job)
{
	struct bound<Job> b = { kernel, &job };

	check(gpunvme_cpu_launch(threads, 32, bound<Job>::run, &b));
}
#endif

#endif
