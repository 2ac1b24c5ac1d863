/* SPDX-License-Identifier: MIT */
/*
 * AMD GPUs, compiled by clang 19 or newer as HIP or as C for amdgcn: the functions of platform.h. Addresses are cast to the global
 * address space. Values that are the same for all lanes are kept in scalar registers.
 */
#ifndef GPUNVME_DEVICE_AMD_H
#define GPUNVME_DEVICE_AMD_H

#define GNVD_GLOBAL32(a) ((__attribute__((address_space(1))) uint32_t *)(a))
#define GNVD_GLOBAL64(a) ((__attribute__((address_space(1))) uint64_t *)(a))
typedef uint32_t gnvd_v4 __attribute__((ext_vector_type(4)));

#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) || defined(__gfx9_4_generic__)
#define GNVD_RING_BITS "sc0 sc1 nt"
#define GNVD_WAIT_LOADS "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_STORES "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_READS "s_waitcnt vmcnt(0) lgkmcnt(0)"
#define GNVD_WAIT_ALL GNVD_WAIT_READS
#define GNVD_WRITE_BACK_AGENT "buffer_wbl2 sc1\n\t"
#define GNVD_WRITE_BACK_SYSTEM "buffer_wbl2 sc0 sc1\n\t"
#elif defined(__GFX12__)
#define GNVD_RING_BITS "scope:SCOPE_SYS"
#define GNVD_WAIT_LOADS "s_wait_loadcnt 0x0"
#define GNVD_WAIT_STORES "s_wait_storecnt 0x0"
#define GNVD_WAIT_READS "s_wait_loadcnt 0x0\n\ts_wait_dscnt 0x0\n\ts_wait_kmcnt 0x0"
#define GNVD_WAIT_ALL "s_wait_loadcnt 0x0\n\ts_wait_dscnt 0x0\n\ts_wait_storecnt 0x0"
#define GNVD_WRITE_BACK_AGENT "global_wb scope:SCOPE_DEV\n\t"
#define GNVD_WRITE_BACK_SYSTEM "global_wb scope:SCOPE_SYS\n\t"
#elif defined(__GFX11__) || defined(__GFX10__)
#define GNVD_RING_BITS "glc slc dlc"
#define GNVD_WAIT_LOADS "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_STORES "s_waitcnt_vscnt null, 0x0"
#define GNVD_WAIT_READS "s_waitcnt vmcnt(0) lgkmcnt(0)"
#define GNVD_WAIT_ALL GNVD_WAIT_READS "\n\ts_waitcnt_vscnt null, 0x0"
#define GNVD_WRITE_BACK_AGENT
#define GNVD_WRITE_BACK_SYSTEM
#else
#define GNVD_RING_BITS "glc slc"
#define GNVD_WAIT_LOADS "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_STORES "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_READS "s_waitcnt vmcnt(0) lgkmcnt(0)"
#define GNVD_WAIT_ALL GNVD_WAIT_READS
#define GNVD_WRITE_BACK_AGENT
#if defined(__gfx90a__)
#define GNVD_WRITE_BACK_SYSTEM "buffer_wbl2\n\t"
#else
#define GNVD_WRITE_BACK_SYSTEM
#endif
#endif

#define GNVD_LOOKS 1u
#ifndef GNVD_SECTOR /* tests on CPUs set it */
#define GNVD_SECTOR 0u
#endif
#define GNVD_LOOK_FIRST 0
#define GNVD_PLAIN_UNLOCK 0
#define GNVD_SHORT_LOWEST 0
#define GNVD_SHORT_NTH 0
#define GNVD_AT_HAND(type, name, from) const type *name = (from)

/* ---- Numbers ---- */

GNVD_FN void *gnvd_lane_bytes(uint64_t at)
{
	return (void *)(__attribute__((address_space(1))) void *)at;
}

GNVD_FN const void *gnvd_lane_memory(uint64_t at)
{
	return (const void *)(__attribute__((address_space(1))) const void *)at;
}

GNVD_FN uint32_t gnvd_same32(uint32_t v)
{
	return (uint32_t)__builtin_amdgcn_readfirstlane((int)v);
}

GNVD_FN void gnvd_join(void)
{
	__asm__ volatile("");
}

GNVD_FN uint32_t gnvd_opaque32(uint32_t v)
{
	__asm__ volatile("" : "+v"(v));
	return v;
}

GNVD_FN uint32_t gnvd_popc(uint64_t v)
{
	return (uint32_t)__builtin_popcountll(v);
}

GNVD_FN uint32_t gnvd_lowest(uint64_t v)
{
	return gnvd_popc((v & (~v + 1)) - 1);
}

GNVD_FN uint32_t gnvd_highest(uint64_t v)
{
	return 63 - (uint32_t)__builtin_clzll(v);
}

/* The operand of an atomic. Without this a compiler keeps a constant in two registers of each lane for the whole call. */
GNVD_FN uint64_t gnvd_operand64(uint64_t v)
{
	if (__builtin_constant_p(v))
		__asm__ volatile("" : "+s"(v));
	return v;
}

/* ---- Words of the state ---- */

GNVD_FN uint32_t gnvd_ld32(uint64_t a)
{
	return __scoped_atomic_load_n(GNVD_GLOBAL32(a), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN uint64_t gnvd_ld64(uint64_t a)
{
	return __scoped_atomic_load_n(GNVD_GLOBAL64(a), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

/* The dependency on the loaded value orders later stores. A thread that loads next calls gnvd_order_agent() first. */
GNVD_FN uint64_t gnvd_ld_after64(uint64_t a)
{
	return gnvd_ld64(a);
}

GNVD_FN void gnvd_order_agent(void)
{
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
}

/*
 * A release without a fence of the compiler. Compilers up to 22 leave out the wait after a write-back, and a second wait costs
 * time. It covers all accesses of the wave's lanes, also through generic pointers, which the counter of LDS counts, too. A lane
 * that loads next what the controller wrote uses gnvd_load_ring32(), which needs no invalidate.
 */
GNVD_FN void gnvd_order_system(void)
{
	__asm__ volatile(GNVD_WRITE_BACK_SYSTEM GNVD_WAIT_ALL ::: "memory");
}

GNVD_FN void gnvd_st32(uint64_t a, uint32_t v)
{
	__scoped_atomic_store_n(GNVD_GLOBAL32(a), v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN void gnvd_st64(uint64_t a, uint64_t v)
{
	__scoped_atomic_store_n(GNVD_GLOBAL64(a), v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN void gnvd_st_release64(uint64_t a, uint64_t v)
{
	__scoped_atomic_store_n(GNVD_GLOBAL64(a), v, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN uint64_t gnvd_xchg64(uint64_t a, uint64_t v)
{
	return __scoped_atomic_exchange_n(GNVD_GLOBAL64(a), gnvd_operand64(v), __ATOMIC_ACQ_REL, __MEMORY_SCOPE_DEVICE);
}

/* An invalidate is local to one compute unit, so every lane that reads does this itself. */
GNVD_FN uint64_t gnvd_take64(uint64_t a, uint64_t v)
{
	uint64_t old = __scoped_atomic_exchange_n(GNVD_GLOBAL64(a), gnvd_operand64(v), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);

	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
	return old;
}

GNVD_FN uint64_t gnvd_fetch_add64(uint64_t a, uint64_t v)
{
	return __scoped_atomic_fetch_add(GNVD_GLOBAL64(a), gnvd_operand64(v), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN uint32_t gnvd_cas32(uint64_t a, uint32_t expect, uint32_t v)
{
	v = gnvd_opaque32(v);
	expect = gnvd_opaque32(expect);
	__scoped_atomic_compare_exchange_n(GNVD_GLOBAL32(a), &expect, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE);
	return expect;
}

GNVD_FN uint64_t gnvd_cas64(uint64_t a, uint64_t expect, uint64_t v)
{
	__scoped_atomic_compare_exchange_n(GNVD_GLOBAL64(a), &expect, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
	return expect;
}

GNVD_FN uint64_t gnvd_and64(uint64_t a, uint64_t v)
{
	return __scoped_atomic_fetch_and(GNVD_GLOBAL64(a), gnvd_operand64(v), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN uint64_t gnvd_or64(uint64_t a, uint64_t v)
{
	return __scoped_atomic_fetch_or(GNVD_GLOBAL64(a), gnvd_operand64(v), __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN uint64_t gnvd_or_after64(uint64_t a, uint64_t v)
{
	return __scoped_atomic_fetch_or(GNVD_GLOBAL64(a), gnvd_operand64(v), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN void gnvd_add64(uint64_t a, uint64_t v)
{
	__scoped_atomic_fetch_add(GNVD_GLOBAL64(a), gnvd_operand64(v), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN void gnvd_max64(uint64_t a, uint64_t v)
{
	__scoped_atomic_fetch_max(GNVD_GLOBAL64(a), gnvd_operand64(v), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

/* The meeting has the fence, once for a wave. */
GNVD_FN uint64_t gnvd_fetch_add_acquire64(uint64_t a, uint64_t v)
{
	return gnvd_fetch_add64(a, v);
}

GNVD_FN void gnvd_add_release64(uint64_t a, uint64_t v)
{
	gnvd_add64(a, v);
}

/* ---- Rings and doorbells ---- */

/*
 * The load has all cache bits of the instruction set. The string also has the wait, because compilers do not count loads that they
 * cannot see.
 */
GNVD_FN uint32_t gnvd_load_ring32(uint64_t a)
{
	uint32_t v;
	__asm__ volatile("global_load_dword %0, %1, off " GNVD_RING_BITS "\n\t" GNVD_WAIT_LOADS : "=v"(v) : "v"(a) : "memory");
	return v;
}

GNVD_FN void gnvd_load_ring32x4(const uint64_t *a, uint32_t *v)
{
	__asm__ volatile("global_load_dword %0, %4, off " GNVD_RING_BITS "\n\t"
			 "global_load_dword %1, %5, off " GNVD_RING_BITS "\n\t"
			 "global_load_dword %2, %6, off " GNVD_RING_BITS "\n\t"
			 "global_load_dword %3, %7, off " GNVD_RING_BITS "\n\t" GNVD_WAIT_LOADS
			 : "=&v"(v[0]), "=&v"(v[1]), "=&v"(v[2]), "=&v"(v[3])
			 : "v"(a[0]), "v"(a[1]), "v"(a[2]), "v"(a[3]) : "memory");
}

GNVD_FN void gnvd_load_ring32s(const uint64_t *a, uint32_t *v, uint32_t n)
{
	uint32_t i;

	for (i = 0; i + 4 <= n; i += 4)
		gnvd_load_ring32x4(a + i, v + i);
	for (; i < n; i++)
		v[i] = gnvd_load_ring32(a[i]);
}

GNVD_FN void gnvd_load_ring128(uint64_t a, uint32_t *v)
{
	gnvd_v4 whole;

	__asm__ volatile("global_load_dwordx4 %0, %1, off " GNVD_RING_BITS "\n\t" GNVD_WAIT_LOADS : "=v"(whole) : "v"(a) : "memory");
	v[0] = whole[0];
	v[1] = whole[1];
	v[2] = whole[2];
	v[3] = whole[3];
}

GNVD_FN void gnvd_acquire_ring32(uint64_t a)
{
	(void)a;
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}

GNVD_FN void gnvd_soon(uint64_t a)
{
	(void)a;
}

/*
 * Not volatile: a volatile store is followed by a full wait. The release before READY orders these stores. Each store ends before
 * the next one begins, and the first dwords are computed last, so that all share registers. Most registers are in use here.
 */
GNVD_FN void gnvd_store_sqe(uint64_t a, const uint32_t *w, uint32_t cid)
{
	__attribute__((address_space(1))) gnvd_v4 *sqe = (__attribute__((address_space(1))) gnvd_v4 *)a;

	__builtin_amdgcn_sched_barrier(0);
	sqe[2] = (gnvd_v4){ w[8], w[9], w[10], w[11] };
	__builtin_amdgcn_sched_barrier(0);
	sqe[3] = (gnvd_v4){ w[12], w[13], w[14], w[15] };
	__builtin_amdgcn_sched_barrier(0);
	sqe[0] = (gnvd_v4){ w[0] | gnvd_opaque32(cid) << 16, w[1], w[2], w[3] };
	__builtin_amdgcn_sched_barrier(0);
	sqe[1] = (gnvd_v4){ w[4], w[5], w[6], w[7] };
}

/* The caller has called gnvd_order_system() if it must. The wait lets the caller release its lock. */
GNVD_FN void gnvd_doorbell(uint64_t a, uint32_t v)
{
	__scoped_atomic_store_n(GNVD_GLOBAL32(a), v, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
	__asm__ volatile(GNVD_WAIT_STORES ::: "memory");
}

/* ---- Time ---- */

GNVD_FN uint64_t gnvd_clock(void)
{
	return gnvd_same64(__builtin_readsteadycounter()); /* a scalar, which compilers do not know */
}

GNVD_FN void gnvd_pause(uint32_t turn)
{
	(void)turn;
	__builtin_amdgcn_s_sleep(1);
}

GNVD_FN void gnvd_polled_in_vain(void)
{
}

#include <gpunvme/device/amd_wave.h>

#endif
