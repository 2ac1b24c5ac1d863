/* SPDX-License-Identifier: MIT */
/* The primitives of prim.h on AMD GPUs. A team is a wave, and a workgroup has one wave. */
#ifndef GNV_VDRIVE_PRIM_AMDGCN_H
#define GNV_VDRIVE_PRIM_AMDGCN_H

#include <stdbool.h>
#include <stdint.h>

#define VD_WIDTH __AMDGCN_WAVEFRONT_SIZE

static inline uint32_t vd_lane(void)
{
	return __builtin_amdgcn_workitem_id_x() % VD_WIDTH;
}

static inline uint32_t vd_team(void)
{
	return __builtin_amdgcn_workgroup_id_x();
}

static inline void vd_meet(void)
{
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
	__builtin_amdgcn_wave_barrier();
}

static inline uint64_t wave_ballot(bool yes)
{
#if VD_WIDTH == 64
	return __builtin_amdgcn_ballot_w64(yes);
#else
	return __builtin_amdgcn_ballot_w32(yes);
#endif
}

static inline bool vd_any(bool yes)
{
	return wave_ballot(yes) != 0;
}

static inline uint32_t vd_rank(bool yes, uint32_t *all)
{
	const uint64_t mask = wave_ballot(yes);

	*all = (uint32_t)__builtin_popcountll(mask);
	return (uint32_t)__builtin_popcountll(mask & ((1ull << vd_lane()) - 1));
}

static inline uint32_t vd_first(uint32_t value)
{
	return (uint32_t)__builtin_amdgcn_readfirstlane((int)value);
}

static inline uint32_t vd_get32(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static inline void vd_look(const uint32_t *const at[VD_LOOKS], uint32_t value[VD_LOOKS])
{
	uint32_t i;

	VD_UNROLL
	for (i = 0; i < VD_LOOKS; i++)
		value[i] = vd_get32(at[i]);
	VD_UNROLL
	for (i = 0; i < VD_LOOKS; i++)
		value[i] = vd_first(value[i]);
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}

static inline void vd_add64(uint64_t *sum, uint32_t value)
{
	uint32_t by;

	for (by = VD_WIDTH / 2; by; by /= 2)
		value += (uint32_t)__builtin_amdgcn_ds_bpermute((int)((vd_lane() ^ by) * 4), (int)value);
	if (value && vd_lane() == 0)
		__atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
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

/* The clock has 100 MHz, so a tick is 10 ns. */
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

#endif
