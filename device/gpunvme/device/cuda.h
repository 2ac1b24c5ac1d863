/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA GPUs, compiled by nvcc or clang: the functions of platform.h, as PTX. Lanes of one warp may be at different instructions.
 * Masks have the lanes that are together.
 */
#ifndef GPUNVME_DEVICE_CUDA_H
#define GPUNVME_DEVICE_CUDA_H

#define GNVD_LOOKS 8u
#ifndef GNVD_SECTOR /* tests on CPUs set it */
#define GNVD_SECTOR 1u
#endif
#define GNVD_LOOK_FIRST 0
#define GNVD_PLAIN_UNLOCK 1
#define GNVD_SHORT_LOWEST 1
#define GNVD_SHORT_NTH 0
#define GNVD_AT_HAND(type, name, from) const type name##_copy = *(from), *name = &name##_copy

/* ---- Numbers ---- */

GNVD_FN void *gnvd_lane_bytes(uint64_t at)
{
	return (void *)(uintptr_t)at;
}

GNVD_FN const void *gnvd_lane_memory(uint64_t at)
{
	return (const void *)(uintptr_t)at;
}

GNVD_FN uint32_t gnvd_same32(uint32_t v)
{
	return v;
}

GNVD_FN void gnvd_join(void)
{
}

GNVD_FN uint32_t gnvd_opaque32(uint32_t v)
{
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
	uint32_t at;

	__asm__("bfind.u64 %0, %1;" : "=r"(at) : "l"(v));
	return at;
}

/* ---- Words of the state ---- */

GNVD_FN uint32_t gnvd_ld32(uint64_t a)
{
	uint32_t v;
	__asm__ volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
	return v;
}

GNVD_FN uint64_t gnvd_ld64(uint64_t a)
{
	uint64_t v;
	__asm__ volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(a) : "memory");
	return v;
}

/* The dependency on the loaded value orders later stores. A thread that loads next calls gnvd_order_agent() first. */
GNVD_FN uint64_t gnvd_ld_after64(uint64_t a)
{
	return gnvd_ld64(a);
}

#define GNVD_GLANCES 16u /* 64 us. A change of a page takes at least 1 us: several atomics in turn */

GNVD_FN uint64_t gnvd_ld_acquire64(uint64_t a)
{
	uint64_t v;
	__asm__ volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(a) : "memory");
	return v;
}

GNVD_FN void gnvd_order_agent(void)
{
	__asm__ volatile("fence.acq_rel.gpu;" ::: "memory");
}

GNVD_FN void gnvd_order_system(void)
{
	__asm__ volatile("fence.acq_rel.sys;" ::: "memory");
}

GNVD_FN void gnvd_st32(uint64_t a, uint32_t v)
{
	__asm__ volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(a), "r"(v) : "memory");
}

GNVD_FN void gnvd_st64(uint64_t a, uint64_t v)
{
	__asm__ volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(a), "l"(v) : "memory");
}

GNVD_FN void gnvd_st_release64(uint64_t a, uint64_t v)
{
	__asm__ volatile("st.release.gpu.global.u64 [%0], %1;" : : "l"(a), "l"(v) : "memory");
}

GNVD_FN uint64_t gnvd_xchg64(uint64_t a, uint64_t v)
{
	uint64_t old;
	__asm__ volatile("atom.acq_rel.gpu.global.exch.b64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");
	return old;
}

GNVD_FN void gnvd_max64(uint64_t a, uint64_t v)
{
	__asm__ volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" : : "l"(a), "l"(v) : "memory");
}

GNVD_FN uint64_t gnvd_take64(uint64_t a, uint64_t v)
{
	uint64_t old;
	__asm__ volatile("atom.acquire.sys.global.exch.b64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");
	return old;
}

GNVD_FN uint64_t gnvd_fetch_add64(uint64_t a, uint64_t v)
{
	uint64_t old;
	__asm__ volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");
	return old;
}

GNVD_FN uint32_t gnvd_cas32(uint64_t a, uint32_t expect, uint32_t v)
{
	uint32_t old;
	__asm__ volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(a), "r"(expect), "r"(v) : "memory");
	return old;
}

GNVD_FN uint64_t gnvd_cas64(uint64_t a, uint64_t expect, uint64_t v)
{
	uint64_t old;
	__asm__ volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(a), "l"(expect), "l"(v) : "memory");
	return old;
}

GNVD_FN uint64_t gnvd_and64(uint64_t a, uint64_t v)
{
	uint64_t old;
	__asm__ volatile("atom.relaxed.gpu.global.and.b64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");
	return old;
}

GNVD_FN uint64_t gnvd_or64(uint64_t a, uint64_t v)
{
	uint64_t old;
	__asm__ volatile("atom.release.gpu.global.or.b64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");
	return old;
}

GNVD_FN uint64_t gnvd_or_after64(uint64_t a, uint64_t v)
{
	uint64_t old;
	__asm__ volatile("atom.relaxed.gpu.global.or.b64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");
	return old;
}

GNVD_FN void gnvd_add64(uint64_t a, uint64_t v)
{
	__asm__ volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" : : "l"(a), "l"(v) : "memory");
}

/* A warp is on one multiprocessor: an acquire or release of one lane holds for all lanes after or before a meeting. */
GNVD_FN uint64_t gnvd_fetch_add_acquire64(uint64_t a, uint64_t v)
{
	uint64_t old;
	__asm__ volatile("atom.acquire.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");
	return old;
}

GNVD_FN void gnvd_add_release64(uint64_t a, uint64_t v)
{
	__asm__ volatile("red.release.gpu.global.add.u64 [%0], %1;" : : "l"(a), "l"(v) : "memory");
}

/* ---- Rings and doorbells ---- */

GNVD_FN uint32_t gnvd_load_ring32(uint64_t a)
{
	uint32_t v;
	__asm__ volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
	return v;
}

GNVD_FN void gnvd_load_ring32s(const uint64_t *a, uint32_t *v, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		v[i] = gnvd_load_ring32(a[i]);
}

GNVD_FN void gnvd_load_ring128(uint64_t a, uint32_t *v)
{
	__asm__ volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
			 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(a) : "memory");
}

GNVD_FN void gnvd_acquire_ring32(uint64_t a)
{
	(void)a;
	__asm__ volatile("fence.acq_rel.sys;" ::: "memory");
}

GNVD_FN void gnvd_soon(uint64_t a)
{
	(void)a;
}

GNVD_FN void gnvd_store_sqe(uint64_t a, const uint32_t *w, uint32_t cid)
{
	__asm__ volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
			 : : "l"(a), "r"(w[0] | cid << 16), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
	__asm__ volatile("st.relaxed.sys.global.v4.u32 [%0+16], {%1, %2, %3, %4};"
			 : : "l"(a), "r"(w[4]), "r"(w[5]), "r"(w[6]), "r"(w[7]) : "memory");
	__asm__ volatile("st.relaxed.sys.global.v4.u32 [%0+32], {%1, %2, %3, %4};"
			 : : "l"(a), "r"(w[8]), "r"(w[9]), "r"(w[10]), "r"(w[11]) : "memory");
	__asm__ volatile("st.relaxed.sys.global.v4.u32 [%0+48], {%1, %2, %3, %4};"
			 : : "l"(a), "r"(w[12]), "r"(w[13]), "r"(w[14]), "r"(w[15]) : "memory");
}

/* The coherence of one word keeps doorbells of successive lock holders in order. The release of the lock covers the rest. */
GNVD_FN void gnvd_doorbell(uint64_t a, uint32_t v)
{
	__asm__ volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(a), "r"(v) : "memory");
}

/* ---- Time ---- */

GNVD_FN uint64_t gnvd_clock(void)
{
	uint64_t t;
	__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

GNVD_FN void gnvd_pause(uint32_t turn)
{
	(void)turn;
}

GNVD_FN void gnvd_polled_in_vain(void)
{
}

#include <gpunvme/device/cuda_wave.h>

#endif
