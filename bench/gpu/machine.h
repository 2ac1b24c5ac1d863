/* SPDX-License-Identifier: MIT */
/*
 * Where threads run: an NVIDIA GPU when nvcc compiles this, threads of this CPU otherwise. Memory, launches and the form of a
 * kernel. Whatever fails ends the program with a sentence: a measurement has nothing to go on with.
 */
#ifndef GPUNVME_BENCH_MACHINE_H
#define GPUNVME_BENCH_MACHINE_H

#include <gpunvme/device.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef BENCH_NAME
#define BENCH_NAME "queue_rate"
#endif

static inline void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static inline void die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs(BENCH_NAME ": ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static inline double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------------------------------ */
#if defined(__CUDACC__)

#define ON_GPU 1
struct work; /* work.h */
typedef void (*kernel_fn)(struct work);

/*
 * KERNEL(name, threads of the largest block, body of a function of `const struct work *w`). More threads leave each fewer
 * registers.
 */
#define KERNEL(name, most, ...)                                                                                                    \
	__global__ void __launch_bounds__(most, 1) name(const struct work work)                                                       \
	{                                                                                                                          \
		const struct work *w = &work;                                                                                      \
		__VA_ARGS__                                                                                                        \
	}

#define CUDA(call)                                                                                                                 \
	do {                                                                                                                       \
		cudaError_t err_ = (call);                                                                                         \
		if (err_ != cudaSuccess)                                                                                           \
			die("%s: %s", #call, cudaGetErrorString(err_));                                                            \
	} while (0)

/* Host memory that threads reach, zeroed. */
static void *shared_alloc(size_t bytes)
{
	void *p;

	CUDA(cudaHostAlloc(&p, bytes, cudaHostAllocMapped));
	return memset(p, 0, bytes);
}

static void shared_free(void *p)
{
	CUDA(cudaFreeHost(p));
}

/* Memory of the threads, zeroed or filled. */
static uint64_t local_alloc(size_t bytes, const void *from)
{
	void *p;

	CUDA(cudaMalloc(&p, bytes));
	CUDA(from ? cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice) : cudaMemset(p, 0, bytes));
	return (uint64_t)p;
}

static void local_free(uint64_t at)
{
	CUDA(cudaFree((void *)at));
}

static void local_read(void *to, uint64_t from, size_t bytes)
{
	CUDA(cudaMemcpy(to, (void *)from, bytes, cudaMemcpyDeviceToHost));
}

static const char *machine_name(int *groups)
{
	static cudaDeviceProp prop;

	CUDA(cudaGetDeviceProperties(&prop, 0));
	*groups = prop.multiProcessorCount;
	return prop.name;
}

/* A kernel that is loaded when first launched would wait for a controller on the same GPU to end. */
static void machine_prepare(kernel_fn kernel)
{
	cudaFuncAttributes loaded;

	CUDA(cudaFuncGetAttributes(&loaded, (const void *)kernel));
	CUDA(cudaDeviceSynchronize());
}

/* Run to the end. The stream does not wait for a controller on the same GPU. */
static void machine_run(kernel_fn kernel, uint32_t blocks, uint32_t block_lanes, void *work)
{
	static cudaStream_t stream;

	if (!stream)
		CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA(cudaLaunchKernel((const void *)kernel, dim3(blocks), dim3(block_lanes), &work, 0, stream));
	CUDA(cudaStreamSynchronize(stream));
}

/* ------------------------------------------------------------------------------------------------------------------------ */
#else

#define ON_GPU 0
typedef void (*kernel_fn)(void *);

#define KERNEL(name, most, ...)                                                                                                    \
	static void name(void *arg)                                                                                                \
	{                                                                                                                          \
		const struct work *w = (const struct work *)arg;                                                                   \
		__VA_ARGS__                                                                                                        \
	}

static inline void *shared_alloc(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (!p)
		die("out of memory");
	return memset(p, 0, bytes);
}

static inline void shared_free(void *p)
{
	free(p);
}

static inline uint64_t local_alloc(size_t bytes, const void *from)
{
	void *p = shared_alloc(bytes);

	if (from)
		memcpy(p, from, bytes);
	return (uintptr_t)p;
}

static inline void local_free(uint64_t at)
{
	free((void *)(uintptr_t)at);
}

static inline void local_read(void *to, uint64_t from, size_t bytes)
{
	memcpy(to, (const void *)(uintptr_t)from, bytes);
}

static inline const char *machine_name(int *groups)
{
	*groups = 2;
	return "CPU threads as GPU threads";
}

static inline void machine_prepare(kernel_fn kernel)
{
	(void)kernel;
}

/* Blocks of CPU threads are waves. */
static inline void machine_run(kernel_fn kernel, uint32_t blocks, uint32_t block_lanes, void *work)
{
	int ret = gpunvme_cpu_launch(blocks * block_lanes, block_lanes, kernel, work);

	if (ret)
		die("%u lanes do not start: %s", blocks * block_lanes, strerror(-ret));
}

#endif

/* A clock that may be finer than gnvd_clock(), of another unit, and local to a multiprocessor. */
GNVD_FN uint64_t fine_clock(void)
{
#if defined(GNVD_CUDA)
	uint64_t t;

	__asm__ volatile("mov.u64 %0, %%clock64;" : "=l"(t) : : "memory");
	return t;
#else
	return gnvd_clock();
#endif
}

#endif
