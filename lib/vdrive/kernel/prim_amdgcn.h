/* SPDX-License-Identifier: MIT */
/*
 * The primitives of prim.h on AMD GPUs. A team is a wave, and a workgroup has one wave.
 *
 * Words that other processors use are loaded and stored by assembler text with all cache bits of the instruction set, so that no
 * cache has an old value of them. The text also has the wait of a load, because compilers do not count loads that they cannot see.
 * vd_fence() waits for stores.
 */
#ifndef GNV_VDRIVE_PRIM_AMDGCN_H
#define GNV_VDRIVE_PRIM_AMDGCN_H

#include <stdbool.h>
#include <stdint.h>

#define VD_WIDTH __AMDGCN_WAVEFRONT_SIZE
#define VD_TEARS 1

#if defined(__GFX12__)
#define PAST " scope:SCOPE_SYS"
#define LOADED "\n\ts_wait_loadcnt 0x0"
#define LOCAL "s_wait_dscnt 0x0"
#define WRITTEN "global_wb scope:SCOPE_SYS\n\ts_wait_loadcnt 0x0\n\ts_wait_dscnt 0x0\n\ts_wait_storecnt 0x0"
#elif defined(__GFX11__) || defined(__GFX10__)
#define PAST " glc slc dlc"
#define LOADED "\n\ts_waitcnt vmcnt(0)"
#define LOCAL "s_waitcnt lgkmcnt(0)"
#define WRITTEN "s_waitcnt vmcnt(0) lgkmcnt(0)\n\ts_waitcnt_vscnt null, 0x0"
#elif defined(__gfx942__)
#define PAST " sc0 sc1 nt"
#define LOADED "\n\ts_waitcnt vmcnt(0)"
#define LOCAL "s_waitcnt lgkmcnt(0)"
#define WRITTEN "buffer_wbl2 sc0 sc1\n\ts_waitcnt vmcnt(0) lgkmcnt(0)"
#else
#define PAST " glc slc"
#define LOADED "\n\ts_waitcnt vmcnt(0)"
#define LOCAL "s_waitcnt lgkmcnt(0)"
#if defined(__gfx90a__)
#define WRITTEN "buffer_wbl2\n\ts_waitcnt vmcnt(0) lgkmcnt(0)"
#else
#define WRITTEN "s_waitcnt vmcnt(0) lgkmcnt(0)"
#endif
#endif

typedef uint32_t vd_four __attribute__((ext_vector_type(4)));

static inline uint32_t vd_lane(void)
{
	return __builtin_amdgcn_workitem_id_x() % VD_WIDTH;
}

static inline uint32_t vd_team(void)
{
	return __builtin_amdgcn_workgroup_id_x();
}

/* A wave's accesses of a word of memory keep their order. Those of LDS by generic pointers may not, so this waits for LDS. */
static inline void vd_meet(void)
{
	__asm__ volatile(LOCAL : : : "memory");
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

/* ---- Words that other processors use ---- */

static inline uint32_t vd_get32(const uint32_t *at)
{
	uint32_t v;

	__asm__ volatile("global_load_dword %0, %1, off" PAST LOADED : "=v"(v) : "v"(at) : "memory");
	return v;
}

static inline uint64_t vd_get64(const uint64_t *at)
{
	uint64_t v;

	__asm__ volatile("global_load_dwordx2 %0, %1, off" PAST LOADED : "=v"(v) : "v"(at) : "memory");
	return v;
}

static inline uint64_t vd_acquire64(const uint64_t *at)
{
	const uint64_t v = vd_get64(at);

	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
	return v;
}

static inline void vd_put64(uint64_t *at, uint64_t value)
{
	__asm__ volatile("global_store_dwordx2 %0, %1, off" PAST : : "v"(at), "v"(value) : "memory");
}

/* All threads load the same words. */
static inline void vd_look(const uint32_t *const at[VD_LOOKS], uint32_t value[VD_LOOKS])
{
	uint32_t i;

	__asm__ volatile("global_load_dword %0, %5, off" PAST "\n\t"
			 "global_load_dword %1, %6, off" PAST "\n\t"
			 "global_load_dword %2, %7, off" PAST "\n\t"
			 "global_load_dword %3, %8, off" PAST "\n\t"
			 "global_load_dword %4, %9, off" PAST LOADED
			 : "=&v"(value[0]), "=&v"(value[1]), "=&v"(value[2]), "=&v"(value[3]), "=&v"(value[4])
			 : "v"(at[0]), "v"(at[1]), "v"(at[2]), "v"(at[3]), "v"(at[4])
			 : "memory");
	_Static_assert(VD_LOOKS == 5, "the loads above");
	VD_UNROLL
	for (i = 0; i < VD_LOOKS; i++)
		value[i] = vd_first(value[i]);
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}

/* Halves of a wave are added by another instruction: a permutation does not leave 32 threads on each GPU. */
static inline void vd_add64(uint64_t *sum, uint32_t value)
{
	uint32_t by;

	for (by = 16; by; by /= 2)
		value += (uint32_t)__builtin_amdgcn_ds_bpermute((int)((vd_lane() ^ by) * 4), (int)value);
#if VD_WIDTH == 64
	value = (uint32_t)__builtin_amdgcn_readlane((int)value, 0) + (uint32_t)__builtin_amdgcn_readlane((int)value, 32);
#endif
	if (value && vd_lane() == 0)
		__atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
}

/* ---- Data ---- */

static inline struct vd_vec vd_load(const void *at)
{
	vd_four v;

	__asm__ volatile("global_load_dwordx4 %0, %1, off" PAST LOADED : "=v"(v) : "v"(at) : "memory");
	return (struct vd_vec){ { v[0], v[1], v[2], v[3] } };
}

static inline void vd_store(void *at, struct vd_vec v)
{
	const vd_four four = { v.w[0], v.w[1], v.w[2], v.w[3] };

	__asm__ volatile("global_store_dwordx4 %0, %1, off" PAST : : "v"(at), "v"(four) : "memory");
}

static inline uint32_t vd_load8(const uint8_t *at)
{
	uint32_t v;

	__asm__ volatile("global_load_ubyte %0, %1, off" PAST LOADED : "=v"(v) : "v"(at) : "memory");
	return v;
}

/* The write-back and its waits are a release. Compilers up to 22 leave out the wait after a write-back of their own fence. */
static inline void vd_fence(void)
{
	__asm__ volatile(WRITTEN : : : "memory");
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}

/* ---- Time ---- */

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
