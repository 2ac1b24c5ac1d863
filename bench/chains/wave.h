/* SPDX-License-Identifier: MIT */
/*
 * What the programs of bench/chains need of CUDA and of CPU threads, so that each is one text. On a GPU a wave is a warp. On a CPU a
 * wave is one thread, and `nvcc` compiles functions with WAVE_BOTH for both.
 */
#ifndef BENCH_CHAINS_WAVE_H
#define BENCH_CHAINS_WAVE_H

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define WAVE_FN __device__ static
#define WAVE_BOTH __host__ __device__ static
#else
#define WAVE_FN static inline
#define WAVE_BOTH static inline
#endif
#ifdef __CUDA_ARCH__
#define WAVE 32u
#define WAVE_UNROLL _Pragma("unroll")
#else
#define WAVE 1u
#define WAVE_UNROLL
#endif

WAVE_BOTH uint32_t wave_lane()
{
#ifdef __CUDA_ARCH__
	return threadIdx.x % WAVE;
#else
	return 0;
#endif
}

/* All threads of the wave come: what each has stored before, each sees after. */
WAVE_BOTH void wave_sync()
{
#ifdef __CUDA_ARCH__
	__syncwarp();
#endif
}

/* A bit for each thread of the wave. */
WAVE_BOTH uint32_t wave_ballot(bool yes)
{
#ifdef __CUDA_ARCH__
	return __ballot_sync(~0u, yes);
#else
	return yes;
#endif
}

/* The number of the lowest bit that is set. */
WAVE_BOTH uint32_t wave_lowest(uint32_t bits)
{
#ifdef __CUDA_ARCH__
	return (uint32_t)__ffs((int)bits) - 1;
#else
	return (uint32_t)__builtin_ctz(bits);
#endif
}

template <class T> WAVE_BOTH T wave_sum(T v)
{
#ifdef __CUDA_ARCH__
	for (uint32_t o = WAVE / 2; o; o /= 2)
		v += __shfl_xor_sync(~0u, v, o);
#endif
	return v;
}

/* A place in an array of the wave. */
WAVE_BOTH uint32_t wave_take(uint32_t *count)
{
#ifdef __CUDA_ARCH__
	return atomicAdd(count, 1u);
#else
	return (*count)++;
#endif
}

/* To a word of all waves. */
WAVE_BOTH void wave_add(unsigned long long *sum, unsigned long long v)
{
#ifdef __CUDA_ARCH__
	atomicAdd(sum, v);
#else
	__atomic_fetch_add(sum, v, __ATOMIC_RELAXED);
#endif
}

/* All threads of the wave copy, and each sees all of it. */
template <class T> WAVE_BOTH void wave_copy(T *to, const T *from)
{
	const uint64_t *word = (const uint64_t *)from;

	wave_sync();
	for (uint32_t i = wave_lane(); i < sizeof(T) / 8; i += WAVE)
		((uint64_t *)to)[i] = word[i];
	wave_sync();
}

/* A load from memory that a drive has written. */
template <class T> WAVE_BOTH T wave_load(const T *at)
{
#ifdef __CUDA_ARCH__
	return __ldcv(at);
#else
	return *at;
#endif
}

/* The squares of the differences of four bytes. */
WAVE_BOTH uint32_t wave_square(uint32_t a, uint32_t b, uint32_t sum)
{
#ifdef __CUDA_ARCH__
	uint32_t d = __vabsdiffu4(a, b);

	return __dp4a(d, d, sum);
#else
	for (uint32_t i = 0; i < 32; i += 8) {
		int32_t d = (int32_t)(a >> i & 255) - (int32_t)(b >> i & 255);

		sum += (uint32_t)(d * d);
	}
	return sum;
#endif
}

#endif
