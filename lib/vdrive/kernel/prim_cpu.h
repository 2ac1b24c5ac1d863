/* SPDX-License-Identifier: MIT */
/* The primitives of prim.h on CPU threads. A team has one thread. A test makes teams of four (tests/soft/team.c). */
#ifndef GNV_VDRIVE_PRIM_CPU_H
#define GNV_VDRIVE_PRIM_CPU_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define VD_HOOKS
#define VD_TEARS 0

static inline uint32_t vd_get32(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static inline uint64_t vd_get64(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static inline uint64_t vd_acquire64(const uint64_t *at)
{
	return vd_get64(at);
}

static inline void vd_put64(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

/* A host may write there at the same time. The mixture of old and new words that was loaded is used. */
static inline struct vd_vec vd_load(const void *at)
{
	const uint64_t *word = at;
	const uint64_t low = __atomic_load_n(&word[0], __ATOMIC_RELAXED), high = __atomic_load_n(&word[1], __ATOMIC_RELAXED);

	return (struct vd_vec){ { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32) } };
}

/* The last dword, which has the phase of a completion, is stored last. */
static inline void vd_store(void *at, struct vd_vec v)
{
	uint32_t *word = at;

	__atomic_store_n(&word[0], v.w[0], __ATOMIC_RELAXED);
	__atomic_store_n(&word[1], v.w[1], __ATOMIC_RELAXED);
	__atomic_store_n(&word[2], v.w[2], __ATOMIC_RELAXED);
	__atomic_store_n(&word[3], v.w[3], __ATOMIC_RELEASE);
}

static inline uint32_t vd_load8(const uint8_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static inline void vd_fence(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline uint64_t vd_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void vd_rest(uint32_t idle)
{
	(void)idle;
}

#if !defined(VD_WIDTH)

#define VD_WIDTH 1u

static inline uint32_t vd_lane(void)
{
	return 0;
}

static inline void vd_meet(void)
{
}

static inline uint32_t vd_first(uint32_t value)
{
	return value;
}

static inline bool vd_any(bool yes)
{
	return yes;
}

static inline uint32_t vd_rank(bool yes, uint32_t *all)
{
	*all = yes;
	return 0;
}

static inline void vd_look(const uint32_t *const at[VD_LOOKS], uint32_t value[VD_LOOKS])
{
	uint32_t i;

	for (i = 0; i < VD_LOOKS; i++)
		value[i] = vd_get32(at[i]);
}

static inline void vd_add64(uint64_t *sum, uint32_t value)
{
	vd_put64(sum, *sum + value);
}

#endif

#endif
