/* SPDX-License-Identifier: MIT */
/*
 * What the queue algorithm needs from a processor, once per compiler: AMD GPUs (HIP, or C for amdgcn), NVIDIA GPUs (nvcc, or
 * clang), and CPU threads (C11, C++17).
 *
 * Addresses are 64-bit integers and are cast to the global address space here, so that GPUs use global instead of flat accesses.
 * Words of the queue state are atomic at agent (whole device) scope; rings and doorbells are shared with the controller and need
 * system scope. The primitives that order name the word they order on, so that a race detector understands the CPU build.
 *
 *   gnvd_ld*, gnvd_st*        relaxed load and store of a state word
 *   gnvd_ld_after*            load; what the caller does next is ordered after what the writer did before (see there)
 *   gnvd_xchg64, gnvd_cas32, gnvd_or64   atomic, acquire and release at agent scope
 *   gnvd_fetch_add64, gnvd_cas64, gnvd_and64   atomic; only what depends on the value is ordered behind it
 *   gnvd_or_after64           the same, released by what came before it: a gnvd_order_agent, or the answer of another atomic
 *   gnvd_max64                makes the word no less than that; who sees an older one may miss nothing by it
 *   gnvd_take64               exchange; everything the controller wrote before the word became what it was is seen too
 *   gnvd_load_ring32          load that no cache answers, for words the controller writes; 32s: several; 128: four dwords whole
 *   gnvd_acquire_ring32       after the word was seen: everything the controller wrote before it is seen too
 *   gnvd_store_sqe            64 bytes as four wide stores; dword 0 comes without the CID
 *   gnvd_soon                 the controller will be told by this word soon
 *   gnvd_order_agent          what comes before is seen and done before what comes behind, for all lanes
 *   gnvd_order_system         and for the controller
 *   gnvd_meet                 the wave: what its lanes did before comes before what its leader does behind
 *   gnvd_release_to64         the wave: all earlier stores, then one word
 *   gnvd_doorbell             store to the controller, after everything before it
 *   gnvd_same32, 64           a value that is the same for all lanes that are here: AMD GPUs keep it in scalar registers then
 *   gnvd_join                 behind branches that lanes take on their own (see there)
 *   gnvd_opaque32             the same number, of which a compiler for AMD GPUs knows nothing (see there)
 *   gnvd_below                how many of these lanes are below this one
 *   gnvd_hint                 a number that differs between waves, to spread them over the CID map
 *   gnvd_enter .. gnvd_leave  the wave: the lanes that are together here and use the same queue, fixed for the whole call
 *   GNVD_TOGETHER             what a wave does; for a CPU lane on its own it is compiled once more, without ballots
 *   GNVD_EACH_QUEUE           the block behind it runs once for each lane, with lanes of one queue at a time where a compiler knows
 *                             no masks
 */
#ifndef GPUNVME_DEVICE_PLATFORM_H
#define GPUNVME_DEVICE_PLATFORM_H

#include <gpunvme/dq.h>

#if defined(__CUDA_ARCH__)
#define GNVD_CUDA 1
#elif defined(__HIP_DEVICE_COMPILE__) || (defined(__AMDGCN__) && !defined(__HIP__))
#define GNVD_AMD 1
#else
#define GNVD_CPU 1
#endif

#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
/* Attributes instead of __host__ __device__: they work without the vendor's headers. */
#define GPUNVME_DEVICE __attribute__((host)) __attribute__((device))
#if defined(__CUDACC__) && !defined(__clang__)
#define GNVD_FN static __forceinline__ __attribute__((host)) __attribute__((device))
#else
#define GNVD_FN static inline __attribute__((always_inline)) __attribute__((host)) __attribute__((device))
#endif
#else
#define GPUNVME_DEVICE
#define GNVD_FN static inline __attribute__((always_inline))
#endif

/* What kernels call. On a CPU that is a call; what is below is inlined into it, once for a lane on its own and once for waves. */
#if defined(GNVD_CPU) && !defined(__CUDACC__)
#define GPUNVME_FN GPUNVME_DEVICE static inline
#else
#define GPUNVME_FN GNVD_FN
#endif

/*
 * Lanes are together only within the same of these. From GNVD_SITE_WAVE on all lanes of the wave come, by contract, and are waited
 * for: there a wave is whole, whatever path its lanes took before.
 */
enum gnvd_site { GNVD_SITE_RUN, GNVD_SITE_SUBMIT, GNVD_SITE_POLL, GNVD_SITE_WAIT, GNVD_SITE_WAVE, GNVD_SITE_BLOCK };

/* The lanes of one call: those that were together when it began. Everything below is the same for all of them but the last two. */
struct gnvd_wave {
	uint64_t mask;  /* one bit per lane */
	uint32_t count; /* lanes in mask */
	uint32_t hint;  /* of a wave that submits: gnvd_hint() */
	uint32_t lane;  /* this lane's bit in mask */
	uint32_t rank;  /* lanes of mask below this one; rank 0 leads */
};

GNVD_FN uint32_t gnvd_same32(uint32_t v)
{
#if defined(GNVD_AMD)
	return (uint32_t)__builtin_amdgcn_readfirstlane((int)v);
#else
	return v;
#endif
}

GNVD_FN uint64_t gnvd_same64(uint64_t v)
{
	return gnvd_same32((uint32_t)v) | (uint64_t)gnvd_same32((uint32_t)(v >> 32)) << 32;
}

/*
 * A compiler that merges the end of a branch that some lanes take with the end of one that all take no longer knows that what comes
 * out of the latter is the same for all lanes. This keeps them apart.
 */
GNVD_FN void gnvd_join(void)
{
#if defined(GNVD_AMD)
	__asm__ volatile("");
#endif
}

/* A compiler that knows nothing of the number keeps neither what it was made of nor, of a constant, a copy for the whole call. */
GNVD_FN uint32_t gnvd_opaque32(uint32_t v)
{
#if defined(GNVD_AMD)
	__asm__ volatile("" : "+v"(v));
#endif
	return v;
}

GNVD_FN uint32_t gnvd_popc(uint64_t v)
{
#if defined(GNVD_CPU)
	/* A CPU's baseline may have no instruction for it, and a lane on its own asks for one bit at most. */
	if (!(v & (v - 1)))
		return v != 0;
#endif
	return (uint32_t)__builtin_popcountll(v);
}

/* Position of the lowest set bit; v must not be 0. */
GNVD_FN uint32_t gnvd_lowest(uint64_t v)
{
#if defined(GNVD_CPU)
	return (uint32_t)__builtin_ctzll(v);
#else
	return gnvd_popc((v & (~v + 1)) - 1);
#endif
}

/* Position of the highest set bit; v must not be 0. */
GNVD_FN uint32_t gnvd_highest(uint64_t v)
{
#if defined(GNVD_CUDA)
	uint32_t at;

	__asm__("bfind.u64 %0, %1;" : "=r"(at) : "l"(v));
	return at;
#else
	return 63 - (uint32_t)__builtin_clzll(v);
#endif
}

/* ------------------------------------------------------------------------------------------------------------------------ */
#if defined(GNVD_CUDA)

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

/* The dependency on the loaded value orders later stores; a lane that goes on to load takes gnvd_order_agent first. */
GNVD_FN uint64_t gnvd_ld_after64(uint64_t a)
{
	return gnvd_ld64(a);
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

/* Coherence of one word keeps doorbells of successive lock holders in order; the lock's release carries the rest. */
GNVD_FN void gnvd_doorbell(uint64_t a, uint32_t v)
{
	__asm__ volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(a), "r"(v) : "memory");
}

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

GNVD_FN uint64_t gnvd_ballot(const struct gnvd_wave *w, int pred)
{
	uint32_t bits;
	__asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }"
			 : "=r"(bits) : "r"(pred), "r"((uint32_t)w->mask) : "memory");
	return bits;
}

GNVD_FN uint32_t gnvd_shfl32(const struct gnvd_wave *w, uint32_t v, uint32_t lane)
{
	uint32_t r;
	__asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, %3;" : "=r"(r) : "r"(v), "r"(lane), "r"((uint32_t)w->mask) : "memory");
	return r;
}

GNVD_FN void gnvd_meet(const struct gnvd_wave *w)
{
	__asm__ volatile("bar.warp.sync %0;" : : "r"((uint32_t)w->mask) : "memory");
}

GNVD_FN void gnvd_release_to64(const struct gnvd_wave *w, uint64_t a, uint64_t v)
{
	gnvd_order_agent();
	gnvd_meet(w);
	if (w->rank == 0)
		gnvd_st64(a, v);
}

#define GNVD_EACH_QUEUE(dq)

GNVD_FN void gnvd_enter(struct gnvd_wave *w, const struct gpunvme_dq *dq, enum gnvd_site site)
{
	uint32_t mask, below;

	if (site < GNVD_SITE_WAVE)
		__asm__ volatile("activemask.b32 %0;" : "=r"(mask) : : "memory");
	else /* waits for every lane that has not left the kernel, and answers which those are */
		__asm__ volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(mask) : : "memory");
	__asm__ volatile("match.any.sync.b64 %0, %1, %2;" : "=r"(mask) : "l"(dq->state), "r"(mask) : "memory");
	__asm__("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
	__asm__("mov.u32 %0, %%laneid;" : "=r"(w->lane));
	w->mask = mask;
	w->count = gnvd_popc(mask);
	w->rank = gnvd_popc(mask & below);
}

GNVD_FN uint32_t gnvd_hint(void)
{
	uint32_t block, thread;

	__asm__("mov.u32 %0, %%ctaid.x;" : "=r"(block));
	__asm__("mov.u32 %0, %%tid.x;" : "=r"(thread));
	return block * 32 + thread / 32;
}

GNVD_FN void gnvd_leave(const struct gnvd_wave *w)
{
	(void)w;
}

GPUNVME_FN uint32_t gpunvme_lane(void)
{
	uint32_t block, width, thread;

	__asm__("mov.u32 %0, %%ctaid.x;" : "=r"(block));
	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(width));
	__asm__("mov.u32 %0, %%tid.x;" : "=r"(thread));
	return block * width + thread;
}

GPUNVME_FN uint32_t gpunvme_lanes(void)
{
	uint32_t blocks, width;

	__asm__("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(width));
	return blocks * width;
}

/* ------------------------------------------------------------------------------------------------------------------------ */
#elif defined(GNVD_AMD)

#define GNVD_GLOBAL32(a) ((__attribute__((address_space(1))) uint32_t *)(a))
#define GNVD_GLOBAL64(a) ((__attribute__((address_space(1))) uint64_t *)(a))
typedef uint32_t gnvd_v4 __attribute__((ext_vector_type(4)));

#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
#define GNVD_RING_BITS "sc0 sc1 nt"
#define GNVD_WAIT_LOADS "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_STORES "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_ALL "s_waitcnt vmcnt(0) lgkmcnt(0)"
#define GNVD_WRITE_BACK_AGENT "buffer_wbl2 sc1\n\t"
#define GNVD_WRITE_BACK_SYSTEM "buffer_wbl2 sc0 sc1\n\t"
#elif defined(__GFX12__)
#define GNVD_RING_BITS "scope:SCOPE_SYS"
#define GNVD_WAIT_LOADS "s_wait_loadcnt 0x0"
#define GNVD_WAIT_STORES "s_wait_storecnt 0x0"
#define GNVD_WAIT_ALL "s_wait_loadcnt 0x0\n\ts_wait_dscnt 0x0\n\ts_wait_storecnt 0x0"
#define GNVD_WRITE_BACK_AGENT "global_wb scope:SCOPE_DEV\n\t"
#define GNVD_WRITE_BACK_SYSTEM "global_wb scope:SCOPE_SYS\n\t"
#elif defined(__GFX11__) || defined(__GFX10__)
#define GNVD_RING_BITS "glc slc dlc"
#define GNVD_WAIT_LOADS "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_STORES "s_waitcnt_vscnt null, 0x0"
#define GNVD_WAIT_ALL "s_waitcnt vmcnt(0) lgkmcnt(0)\n\ts_waitcnt_vscnt null, 0x0"
#define GNVD_WRITE_BACK_AGENT
#define GNVD_WRITE_BACK_SYSTEM
#else
#define GNVD_RING_BITS "glc slc"
#define GNVD_WAIT_LOADS "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_STORES "s_waitcnt vmcnt(0)"
#define GNVD_WAIT_ALL "s_waitcnt vmcnt(0) lgkmcnt(0)"
#define GNVD_WRITE_BACK_AGENT
#if defined(__gfx90a__)
#define GNVD_WRITE_BACK_SYSTEM "buffer_wbl2\n\t"
#else
#define GNVD_WRITE_BACK_SYSTEM
#endif
#endif

#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define GNVD_WAVE32 1
#endif
#if defined(__AMDGCN_WAVEFRONT_SIZE__) && __AMDGCN_WAVEFRONT_SIZE__ == 64
#undef GNVD_WAVE32
#endif

/* What an atomic takes: of a constant a compiler keeps a copy for the whole call otherwise, in two registers of each lane. */
GNVD_FN uint64_t gnvd_operand64(uint64_t v)
{
	if (__builtin_constant_p(v))
		__asm__ volatile("" : "+s"(v));
	return v;
}

GNVD_FN uint32_t gnvd_ld32(uint64_t a)
{
	return __scoped_atomic_load_n(GNVD_GLOBAL32(a), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

GNVD_FN uint64_t gnvd_ld64(uint64_t a)
{
	return __scoped_atomic_load_n(GNVD_GLOBAL64(a), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

/* The dependency on the loaded value orders later stores; a lane that goes on to load takes gnvd_order_agent first. */
GNVD_FN uint64_t gnvd_ld_after64(uint64_t a)
{
	return gnvd_ld64(a);
}

GNVD_FN void gnvd_order_agent(void)
{
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
}

/*
 * A release, and no fence of the compiler's: those up to 22 leave out the wait behind a write-back, and a second one costs time. It
 * is for all that lanes of the wave did, also through generic pointers, which the counter of LDS counts too. Who goes on to load
 * what the controller wrote takes gnvd_load_ring32, which needs no invalidate.
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

/* All cache bits the instruction set has, and the wait in the same string: the compiler does not count loads it cannot see. */
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

/*
 * Not volatile: a volatile store is followed by a full wait. The release before READY is what orders them. One after the other, and
 * what is still to be made at the end, so that they share registers: a command is where most are in use.
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

/* Comes behind a gnvd_order_system, or needs none; the wait behind it lets the lock go. */
GNVD_FN void gnvd_doorbell(uint64_t a, uint32_t v)
{
	__scoped_atomic_store_n(GNVD_GLOBAL32(a), v, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
	__asm__ volatile(GNVD_WAIT_STORES ::: "memory");
}

GNVD_FN uint64_t gnvd_clock(void)
{
	return gnvd_same64(__builtin_readsteadycounter()); /* a scalar, which compilers do not know */
}

GNVD_FN void gnvd_pause(uint32_t turn)
{
	(void)turn;
	__builtin_amdgcn_s_sleep(1);
}

GNVD_FN uint64_t gnvd_ballot(const struct gnvd_wave *w, int pred)
{
	(void)w;
#if defined(GNVD_WAVE32)
	return __builtin_amdgcn_ballot_w32(pred != 0);
#else
	return __builtin_amdgcn_ballot_w64(pred != 0);
#endif
}

GNVD_FN uint32_t gnvd_shfl32(const struct gnvd_wave *w, uint32_t v, uint32_t lane)
{
	(void)w;
	return (uint32_t)__builtin_amdgcn_readlane((int)v, (int)lane);
}

/* Lanes of a wave store in order, and a fence of one is a fence of all. */
GNVD_FN void gnvd_meet(const struct gnvd_wave *w)
{
	(void)w;
}

GNVD_FN void gnvd_release_to64(const struct gnvd_wave *w, uint64_t a, uint64_t v)
{
	__asm__ volatile(GNVD_WRITE_BACK_AGENT GNVD_WAIT_ALL ::: "memory"); /* as gnvd_order_system */
	if (w->rank == 0)
		gnvd_st64(a, v);
}

/*
 * Does this lane use the queue of the first lane of todo? What is read from that lane changes with todo: else a compiler that knows
 * the address to be the same for all lanes keeps a copy for each of them through the whole call.
 */
GNVD_FN int gnvd_same_queue(const struct gpunvme_dq *dq, uint64_t todo)
{
	uint32_t low = (uint32_t)(dq->state ^ todo), high = (uint32_t)(dq->state >> 32 ^ todo);
	int first = (int)gnvd_lowest(todo);

	low = (uint32_t)__builtin_amdgcn_readlane((int)low, first);
	high = (uint32_t)__builtin_amdgcn_readlane((int)high, first);
	return dq->state == ((low | (uint64_t)high << 32) ^ (uint32_t)todo ^ todo << 32);
}

/* The ballots in the loop keep a compiler from moving the block out of it. */
#define GNVD_EACH_QUEUE(dq)                                                                                                        \
	for (uint64_t gnvd_todo = gnvd_ballot(NULL, 1), gnvd_mine;                                                                 \
	     gnvd_todo && (gnvd_mine = gnvd_same_queue(dq, gnvd_todo), 1); gnvd_todo &= ~gnvd_ballot(NULL, gnvd_mine != 0))         \
		if (gnvd_mine)

GNVD_FN void gnvd_enter(struct gnvd_wave *w, const struct gpunvme_dq *dq, enum gnvd_site site)
{
	uint32_t low, high;

	(void)dq;
	(void)site;
	w->mask = gnvd_ballot(w, 1);
	low = (uint32_t)w->mask;
	high = (uint32_t)(w->mask >> 32);
	w->count = gnvd_popc(w->mask);
	w->rank = __builtin_amdgcn_mbcnt_hi(high, __builtin_amdgcn_mbcnt_lo(low, 0));
	w->lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}

GNVD_FN uint32_t gnvd_hint(void)
{
	return gnvd_same32(__builtin_amdgcn_workgroup_id_x() * 32 + __builtin_amdgcn_workitem_id_x() / 32);
}

GNVD_FN void gnvd_leave(const struct gnvd_wave *w)
{
	(void)w;
}

GPUNVME_FN uint32_t gpunvme_lane(void)
{
	return __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
}

GPUNVME_FN uint32_t gpunvme_lanes(void)
{
	return __builtin_amdgcn_grid_size_x();
}

/* ------------------------------------------------------------------------------------------------------------------------ */
#else
#include <gpunvme/device_cpu.h>
#endif

/* ---- The same for all ---- */

GNVD_FN uint32_t gnvd_below(const struct gnvd_wave *w, uint64_t lanes)
{
#if defined(GNVD_AMD)
	(void)w;
	return __builtin_amdgcn_mbcnt_hi((uint32_t)(lanes >> 32), __builtin_amdgcn_mbcnt_lo((uint32_t)lanes, 0));
#else
	return gnvd_popc(lanes & ((1ull << w->lane) - 1));
#endif
}

GNVD_FN uint64_t gnvd_shfl64(const struct gnvd_wave *w, uint64_t v, uint32_t lane)
{
#if defined(GNVD_CPU)
	return gnvd_cpu_shfl(w, v, lane);
#else
	return gnvd_shfl32(w, (uint32_t)v, lane) | (uint64_t)gnvd_shfl32(w, (uint32_t)(v >> 32), lane) << 32;
#endif
}

#if !defined(GNVD_CPU)
#define GNVD_TOGETHER(w, ...) __VA_ARGS__

GNVD_FN void gnvd_soon(uint64_t a)
{
	(void)a;
}
#endif

/* The leader's value, for all. */
GNVD_FN uint64_t gnvd_bcast64(const struct gnvd_wave *w, uint64_t v)
{
	return gnvd_shfl64(w, v, gnvd_lowest(w->mask));
}

GNVD_FN uint32_t gnvd_bcast32(const struct gnvd_wave *w, uint32_t v)
{
	return gnvd_shfl32(w, v, gnvd_lowest(w->mask));
}

/*
 * How many ranks, from the leader on, have pred set without a gap; *next is the lane of the first that has not (undefined when
 * all have).
 */
GNVD_FN uint32_t gnvd_leading(const struct gnvd_wave *w, int pred, uint32_t *next)
{
	uint64_t not_set = gnvd_ballot(w, !pred);

	*next = not_set ? gnvd_lowest(not_set) : 0;
	return not_set ? gnvd_popc(w->mask & ((not_set & (~not_set + 1)) - 1)) : w->count;
}

/* The lane that has the given rank (below w->count). */
GNVD_FN uint32_t gnvd_lane_of_rank(const struct gnvd_wave *w, int is_it)
{
	return gnvd_lowest(gnvd_ballot(w, is_it));
}

#endif
