/* SPDX-License-Identifier: MIT */
/*
 * The waves' side of the baseline (rings.h): a kernel that stays. The last wave of a block looks for what arrived, in one line of
 * memory of the host for all, and the others work. On a CPU each wave looks for itself.
 */
#ifndef BENCH_CHAINS_WAVES_H
#define BENCH_CHAINS_WAVES_H

#include "rig.h"
#include "rings.h"
#include "wave.h"

#define WARP 32u	     /* WAVE, also in functions of the host */
#define BLOCK 512u	     /* threads of a kernel's block: one on a multiprocessor, so that others are left for the drive */
#define SLOTS (BLOCK / WARP) /* chains of a block */
#define BATCH_BLOCK 128u     /* threads of a block of a batch's kernel: small, so that a batch is on many multiprocessors */

/* What CPU threads and waves share, in memory of the host. */
struct waves {
	struct mail *mail;
	uint64_t *arrived; /* of each chain: its steps that are there */
	uint32_t *end;	   /* 1: the CPU threads have ended */
};

/* Not an array: it would lie in memory. */
WAVE_FN uint64_t one_of(const uint64_t *want, uint32_t b)
{
	return b == 0 ? want[0] : b == 1 ? want[1] : b == 2 ? want[2] : want[3];
}

WAVE_FN void post(const struct waves &w, uint32_t chain, uint64_t step, const uint64_t *want)
{
	for (uint32_t b = wave_lane(); b < BEAM; b += WAVE) {
		uint64_t word = one_of(want, b) | step << STEP_SHIFT;

#ifdef __CUDA_ARCH__
		*(volatile uint64_t *)&w.mail[chain].want[b] = word;
#else
		__atomic_store_n(&w.mail[chain].want[b], word, __ATOMIC_RELEASE);
#endif
	}
}

/* The wave has ended. */
WAVE_FN void post_end(const struct waves &w, uint32_t chain, uint64_t step)
{
	const uint64_t none[BEAM] = { NO_NODE, NO_NODE, NO_NODE, NO_NODE };

	post(w, chain, step, none);
}

WAVE_FN uint64_t clock_ns()
{
	uint64_t t;

#ifdef __CUDA_ARCH__
	__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
#else
	t = (uint64_t)(now() * 1e9);
#endif
	return t;
}

#ifdef __CUDACC__
/* Of a block, in shared memory. */
struct seen {
	uint64_t step[SLOTS];
	uint32_t over;
};

__device__ static void watch(const struct waves &w, volatile struct seen *seen, uint32_t chains)
{
	uint32_t lane = threadIdx.x % WARP, chain = blockIdx.x * SLOTS + lane;

	while (!seen->over) {
		if (lane < SLOTS && chain < chains) {
			uint64_t v = *(const volatile uint64_t *)&w.arrived[chain];

			__threadfence_system(); /* also keeps looks few: with fewer fences the link has more looks, and less data */
			seen->step[lane] = v;
		}
		if (lane == 0 && *(const volatile uint32_t *)w.end)
			seen->over = 1;
		__syncwarp();
	}
}

__device__ static void watch_begin(volatile struct seen *seen)
{
	if (threadIdx.x < SLOTS)
		seen->step[threadIdx.x] = 0;
	if (threadIdx.x == 0)
		seen->over = 0;
	__syncthreads();
}

/* Return: the nodes of the step are there; false: a read failed. */
__device__ static bool wait(const struct waves &, const volatile struct seen *seen, uint32_t chain, uint64_t step)
{
	uint32_t slot = chain % SLOTS;

	while (!__shfl_sync(~0u, wave_lane() == 0 && seen->step[slot] >= step, 0))
		if (__shfl_sync(~0u, wave_lane() == 0 ? seen->over : 0, 0))
			return false;
	return true;
}
#else
struct seen {};

static inline bool wait(const struct waves &w, const struct seen *, uint32_t chain, uint64_t step)
{
	while (__atomic_load_n(&w.arrived[chain], __ATOMIC_ACQUIRE) < step) {
		if (__atomic_load_n(w.end, __ATOMIC_ACQUIRE))
			return false;
		sched_yield();
	}
	return true;
}
#endif

/* A kernel that stays ends when all its waves were fed, so all must be on the GPU at the same time. */
template <typename F> static void must_fit(F *kernel, uint32_t chains)
{
#ifdef __CUDACC__
	int each, processors;

	check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, BLOCK + WARP, 0), "the kernel");
	check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "the GPU");
	if (chains > (uint32_t)(each * processors) * SLOTS)
		die("a kernel that stays has room for " + std::to_string(each * processors * (int)SLOTS) + " at a time on this GPU");
#else
	(void)kernel;
	(void)chains;
#endif
}

static struct waves open_waves(uint32_t chains)
{
	struct waves w;

	w.mail = (struct mail *)host_memory(sizeof(*w.mail) * chains);
	w.arrived = (uint64_t *)host_memory(8 * chains + 128);
	w.end = (uint32_t *)&w.arrived[chains + 8];
	return w;
}

static void close_waves(const struct waves &w)
{
	free_host(w.arrived);
	free_host(w.mail);
}

#endif
