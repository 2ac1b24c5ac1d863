/* SPDX-License-Identifier: MIT */
/* The primitives of prim.h on NVIDIA GPUs. A team is a block. */
#ifndef GNV_VDRIVE_PRIM_NVPTX_H
#define GNV_VDRIVE_PRIM_NVPTX_H

#include <stdbool.h>
#include <stdint.h>

#define VD_WIDTH GNV_VD_LANES
#define VD_TEARS 0
#define WARP 32u
#define WARPS (VD_WIDTH / WARP)
#define ALL 0xffffffffu

/* Words that threads of a block exchange. There is a barrier between two uses. */
static uint32_t team_word[WARPS > VD_LOOKS ? WARPS : VD_LOOKS] __attribute__((address_space(3), loader_uninitialized));

static inline uint32_t vd_lane(void)
{
	return (uint32_t)__nvvm_read_ptx_sreg_tid_x();
}

static inline uint32_t vd_team(void)
{
	return (uint32_t)__nvvm_read_ptx_sreg_ctaid_x();
}

static inline void vd_meet(void)
{
	__syncthreads();
}

static inline uint32_t vd_first(uint32_t value)
{
	uint32_t first;

	if (vd_lane() == 0)
		team_word[0] = value;
	__syncthreads();
	first = team_word[0];
	__syncthreads();
	return first;
}

static inline bool vd_any(bool yes)
{
	return __nvvm_bar0_or(yes) != 0;
}

static inline uint32_t vd_rank(bool yes, uint32_t *all)
{
	const uint32_t mask = (uint32_t)__nvvm_vote_ballot_sync(ALL, yes), lane = vd_lane() % WARP, warp = vd_lane() / WARP;
	uint32_t i, before = 0, n, sum = 0;

	if (lane == 0)
		team_word[warp] = (uint32_t)__builtin_popcount(mask);
	__syncthreads();
	VD_UNROLL
	for (i = 0; i < WARPS; i++) {
		n = team_word[i];
		before += i < warp ? n : 0;
		sum += n;
	}
	__syncthreads();
	*all = sum;
	return before + (uint32_t)__builtin_popcount(mask & ((1u << lane) - 1));
}

static inline void vd_look(const uint32_t *const at[VD_LOOKS], uint32_t value[VD_LOOKS])
{
	const uint32_t lane = vd_lane();
	const uint32_t *word = at[0];
	uint32_t i, v;

	VD_UNROLL
	for (i = 1; i < VD_LOOKS; i++)
		word = lane == i ? at[i] : word;
	if (lane < VD_LOOKS) {
		__asm__ volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(v) : "l"(word) : "memory");
		team_word[lane] = v;
	}
	__syncthreads();
	VD_UNROLL
	for (i = 0; i < VD_LOOKS; i++)
		value[i] = team_word[i];
	__syncthreads();
}

/* Each warp adds its sum. */
static inline void vd_add64(uint64_t *sum, uint32_t value)
{
	int by;

	for (by = WARP / 2; by; by /= 2)
		value += (uint32_t)__nvvm_shfl_sync_bfly_i32(ALL, (int)value, by, 31);
	if (value && vd_lane() % WARP == 0)
		__asm__ volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" : : "l"(sum), "l"((uint64_t)value) : "memory");
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

static inline void vd_fence(void)
{
	__asm__ volatile("fence.acq_rel.sys;" : : : "memory");
}

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

#endif
