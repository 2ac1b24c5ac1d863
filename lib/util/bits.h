/* SPDX-License-Identifier: MIT */
/* Small integer helpers. Powers of two only where a name says so. */
#ifndef GNV_UTIL_BITS_H
#define GNV_UTIL_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GNV_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define gnv_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

static inline bool gnv_is_pow2(uint64_t v)
{
	return v && !(v & (v - 1));
}

/* Position of the highest set bit. v must not be 0. */
static inline unsigned gnv_log2(uint64_t v)
{
	return 63u - (unsigned)__builtin_clzll(v);
}

/* v rounded up to a multiple of the power of two `to`. The caller knows that it does not overflow. */
static inline uint64_t gnv_align_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) & ~(to - 1);
}

static inline uint64_t gnv_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t gnv_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The finalizer of SplitMix64 (Stafford's variant 13 of MurmurHash3's): each bit of the input changes half of the output. */
static inline uint64_t gnv_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

#endif
