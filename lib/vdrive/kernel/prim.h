/* SPDX-License-Identifier: MIT */
/*
 * The few things that the kernel needs of the processor that it runs on: CPU threads, NVIDIA and AMD GPUs. They are its own,
 * and share nothing with those of the device header: with the same wrong fence in both, no test would fail.
 *
 * A wave is VD_WIDTH lanes that run together; on CPU threads it is one lane. All lanes of a wave call each function of a group
 * that is called collective.
 */
#ifndef GNV_VDRIVE_PRIM_H
#define GNV_VDRIVE_PRIM_H

#include <stdbool.h>
#include <stdint.h>

#include "vdrive/shared.h"

/* Loads of such a loop are under way together: unrolled, their values are in registers. */
#if defined(__clang__)
#define VD_UNROLL _Pragma("unroll")
#else
#define VD_UNROLL
#endif

/* 16 bytes that move as one where the processor can. */
struct vd_vec {
	uint32_t w[4];
};

#if defined(__NVPTX__)

#define VD_WIDTH 32u
#define ALL 0xffffffffu

static inline uint32_t vd_lane(void)
{
	return (uint32_t)__nvvm_read_ptx_sreg_tid_x() % VD_WIDTH;
}

static inline uint32_t vd_wave(void)
{
	return (uint32_t)(__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x()) / VD_WIDTH;
}

/* Collective: what lanes stored before it, lanes of the wave see after it. */
static inline void vd_meet(void)
{
	__nvvm_bar_warp_sync(ALL);
}

/* Collective: bit i: lane i says true. */
static inline uint64_t vd_ballot(bool yes)
{
	return (uint32_t)__nvvm_vote_ballot_sync(ALL, yes);
}

/* Collective: the value of lane 0. */
static inline uint32_t vd_first(uint32_t value)
{
	return (uint32_t)__nvvm_shfl_sync_idx_i32(ALL, (int)value, 0, 31);
}

/* Collective: two words that another processor writes, by loads that are under way together. */
static inline void vd_pair(const uint32_t *a, const uint32_t *b, uint32_t *va, uint32_t *vb)
{
	const uint32_t *at = vd_lane() ? b : a;
	uint32_t v;

	__asm__ volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
	*va = (uint32_t)__nvvm_shfl_sync_idx_i32(ALL, (int)v, 0, 31);
	*vb = (uint32_t)__nvvm_shfl_sync_idx_i32(ALL, (int)v, 1, 31);
}

/* Collective: the sum of all. */
static inline uint32_t vd_sum(uint32_t value)
{
	int by;

	for (by = 16; by; by /= 2)
		value += (uint32_t)__nvvm_shfl_sync_bfly_i32(ALL, (int)value, by, 31);
	return value;
}

static inline uint32_t vd_get32(const uint32_t *at)
{
	uint32_t v;

	__asm__ volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
	return v;
}

static inline uint64_t vd_get64(const uint64_t *at)
{
	uint64_t v;

	__asm__ volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}

/* The same, and no later load goes before it. */
static inline uint64_t vd_acquire64(const uint64_t *at)
{
	uint64_t v;

	__asm__ volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}

static inline void vd_put64(uint64_t *at, uint64_t value)
{
	__asm__ volatile("st.relaxed.sys.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}

static inline struct vd_vec vd_load(const void *at)
{
	struct vd_vec v;

	__asm__ volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
			 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
			 : "l"(at)
			 : "memory");
	return v;
}

static inline void vd_store(void *at, struct vd_vec v)
{
	__asm__ volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
			 :
			 : "l"(at), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
			 : "memory");
}

static inline uint32_t vd_load8(const uint8_t *at)
{
	uint32_t v;

	__asm__ volatile("ld.relaxed.sys.u8 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
	return v;
}

/* All that this lane, and all that it has met, did before goes before all that follows, for every processor and device. */
static inline void vd_fence(void)
{
	__asm__ volatile("fence.acq_rel.sys;" : : : "memory");
}

/* Nanoseconds. */
static inline uint64_t vd_now(void)
{
	uint64_t t;

	__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) : : "memory");
	return t;
}

static inline void vd_rest(uint32_t idle)
{
	uint32_t ns = idle < 64 ? 20 : idle < 1024 ? 200 : 2000;

	__asm__ volatile("nanosleep.u32 %0;" : : "r"(ns) : "memory");
}

#elif defined(__AMDGCN__)

#define VD_WIDTH __AMDGCN_WAVEFRONT_SIZE

static inline uint32_t vd_lane(void)
{
	return __builtin_amdgcn_workitem_id_x() % VD_WIDTH;
}

/* A workgroup is a wave. */
static inline uint32_t vd_wave(void)
{
	return __builtin_amdgcn_workgroup_id_x();
}

static inline void vd_meet(void)
{
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
	__builtin_amdgcn_wave_barrier();
}

static inline uint64_t vd_ballot(bool yes)
{
#if VD_WIDTH == 64
	return __builtin_amdgcn_ballot_w64(yes);
#else
	return __builtin_amdgcn_ballot_w32(yes);
#endif
}

static inline uint32_t vd_first(uint32_t value)
{
	return (uint32_t)__builtin_amdgcn_readfirstlane((int)value);
}

static inline uint32_t vd_sum(uint32_t value)
{
	uint32_t by;

	for (by = VD_WIDTH / 2; by; by /= 2)
		value += (uint32_t)__builtin_amdgcn_ds_bpermute((int)((vd_lane() ^ by) * 4), (int)value);
	return value;
}

static inline uint32_t vd_get32(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static inline void vd_pair(const uint32_t *a, const uint32_t *b, uint32_t *va, uint32_t *vb)
{
	*va = vd_first(vd_get32(a));
	*vb = vd_first(vd_get32(b));
}

static inline uint64_t vd_get64(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static inline uint64_t vd_acquire64(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static inline void vd_put64(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELAXED);
}

static inline struct vd_vec vd_load(const void *at)
{
	return *(const volatile struct vd_vec *)at;
}

static inline void vd_store(void *at, struct vd_vec v)
{
	*(volatile struct vd_vec *)at = v;
}

static inline uint32_t vd_load8(const uint8_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static inline void vd_fence(void)
{
	__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}

/* Of a clock of 100 MHz: 10 ns each. */
static inline uint64_t vd_now(void)
{
	return __builtin_readsteadycounter() * 10;
}

static inline void vd_rest(uint32_t idle)
{
	__builtin_amdgcn_s_sleep(1);
	if (idle > 64)
		__builtin_amdgcn_s_sleep(64);
}

#else

#include <time.h>

#define VD_WIDTH 1u
#define VD_HOOKS

static inline uint32_t vd_lane(void)
{
	return 0;
}

static inline void vd_meet(void)
{
}

static inline uint64_t vd_ballot(bool yes)
{
	return yes;
}

static inline uint32_t vd_first(uint32_t value)
{
	return value;
}

static inline uint32_t vd_sum(uint32_t value)
{
	return value;
}

static inline uint32_t vd_get32(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static inline void vd_pair(const uint32_t *a, const uint32_t *b, uint32_t *va, uint32_t *vb)
{
	*va = vd_get32(a);
	*vb = vd_get32(b);
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

/* A host may write there meanwhile: whatever mixture arrives is the one that is used. */
static inline struct vd_vec vd_load(const void *at)
{
	const uint64_t *word = at;
	const uint64_t low = __atomic_load_n(&word[0], __ATOMIC_RELAXED), high = __atomic_load_n(&word[1], __ATOMIC_RELAXED);

	return (struct vd_vec){ { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32) } };
}

/* The last dword last. */
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

#endif

/*
 * Does a test judge this command in place of the rules? On CPU threads only; one lane. Return: it does, and what follows is set.
 */
static inline bool vd_judge(uint64_t hook, const struct gnv_soft_cmd *cmd, enum gnv_soft_verdict *verdict, uint16_t *status,
			    uint32_t *number)
{
#if defined(VD_HOOKS)
	const struct gnv_soft_fault *fault = (const struct gnv_soft_fault *)(uintptr_t)hook;

	if (fault)
		*verdict = fault->decide(fault->ctx, cmd->qid, &cmd->sqe, status, number);
	return fault;
#else
	(void)hook;
	(void)cmd;
	(void)verdict;
	(void)status;
	(void)number;
	return false;
#endif
}

/* Collective: how many lanes before this one say true, and, as @all, how many of them all. */
static inline uint32_t vd_rank(bool yes, uint32_t *all)
{
	const uint64_t mask = vd_ballot(yes);

	*all = (uint32_t)__builtin_popcountll(mask);
	return (uint32_t)__builtin_popcountll(mask & ((1ull << vd_lane()) - 1));
}

#endif
