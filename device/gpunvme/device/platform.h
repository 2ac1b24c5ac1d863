/* SPDX-License-Identifier: MIT */
/*
 * What the queue needs from a processor. This page declares all functions with their contracts. cuda.h, amd.h and cpu.h each define
 * every one of them. Another kind of processor needs a fourth such file.
 *
 * Addresses are 64-bit integers. The platform casts them to the global address space, so that GPUs use global accesses instead of
 * flat ones. Words of the queue state are atomic at agent scope (the whole device). Rings and doorbells are shared with the
 * controller and need system scope. A function that orders names the word that it orders on, so that a race detector understands
 * the CPU build.
 */
#ifndef GPUNVME_DEVICE_PLATFORM_H
#define GPUNVME_DEVICE_PLATFORM_H

#if (defined(__HIP__) || defined(__AMDGCN__)) && defined(__clang__) && __clang_major__ < 19
#error "gpunvme/device.h needs clang 19 or newer for AMD GPUs: ROCm 6.4 or 7 has it; hipcc --version says which one this is"
#endif

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
#else
#define GPUNVME_DEVICE
#endif
#ifdef GPUNVME_CALLS /* for builds that look for mistakes: a tenth of the code to compile, slower threads */
#define GNVD_FN GPUNVME_DEVICE __attribute__((unused)) static
#elif defined(__CUDACC__) && !defined(__clang__)
#define GNVD_FN static __forceinline__ GPUNVME_DEVICE
#else
#define GNVD_FN static inline __attribute__((always_inline)) GPUNVME_DEVICE
#endif

/* The calls of kernels. On a CPU each is a function. The rest is inlined into it, once for a lane on its own and once for waves. */
#if defined(GNVD_CPU) && !defined(__CUDACC__)
#define GPUNVME_FN GPUNVME_DEVICE static inline
#else
#define GPUNVME_FN GNVD_FN
#endif

/*
 * Lanes form a group only within the same site. From GNVD_SITE_WAVE on all lanes of the wave must call, and the call waits for
 * them. There a wave is whole, whatever path its lanes took before.
 */
enum gnvd_site {
	GNVD_SITE_RUN,
	GNVD_SITE_SUBMIT,
	GNVD_SITE_POLL,
	GNVD_SITE_WAIT,
	GNVD_SITE_UNPAGE,
	/* Of caches: each for a namespace, then for a file, then for a volume (gnvd_site_of()). */
	GNVD_SITE_PAGE,
	GNVD_SITE_FILE_PAGE,
	GNVD_SITE_VOLUME_PAGE,
	GNVD_SITE_ARRAY,
	GNVD_SITE_FILE_ARRAY,
	GNVD_SITE_VOLUME_ARRAY,
	GNVD_SITE_PREFETCH,
	GNVD_SITE_FILE_PREFETCH,
	GNVD_SITE_VOLUME_PREFETCH,
	GNVD_SITE_PREFETCH_PAGE,
	GNVD_SITE_FILE_PREFETCH_PAGE,
	GNVD_SITE_VOLUME_PREFETCH_PAGE,
	GNVD_SITE_PREFETCH_ARRAY,
	GNVD_SITE_FILE_PREFETCH_ARRAY,
	GNVD_SITE_VOLUME_PREFETCH_ARRAY,
	GNVD_SITE_FINISH,
	GNVD_SITE_FILE_FINISH,
	GNVD_SITE_VOLUME_FINISH,
	GNVD_SITE_CHANGED,
	GNVD_SITE_FILE_CHANGED,
	GNVD_SITE_VOLUME_CHANGED,
	GNVD_SITE_ROOM,
	GNVD_SITE_FILE_ROOM,
	GNVD_SITE_VOLUME_ROOM,
	GNVD_SITE_WRITE_BACK,
	GNVD_SITE_FILE_WRITE_BACK,
	GNVD_SITE_VOLUME_WRITE_BACK,
	GNVD_SITE_WAVE,
	GNVD_SITE_BLOCK,
	GNVD_SITE_LAND,
	GNVD_SITE_LANDED
};

/* The lanes of one call: those that were together when it began. All fields but the last two are the same for all of them. */
struct gnvd_wave {
	uint64_t mask;  /* one bit per lane */
	uint32_t count; /* lanes in mask */
	uint32_t hint;  /* gnvd_hint(), in a wave that submits */
	uint32_t lane;  /* this lane's bit in mask */
	uint32_t rank;  /* lanes of mask below this one. Rank 0 is the leader */
};

/*
 * Constants of the platform, and one macro:
 *
 * GNVD_LOOKS          completions that a lane looks at in one look (deliver.h)
 * GNVD_SECTOR         1: two loads of one sector of 32 bytes run one after the other. So a look begins at an even entry, and
 *                     neighbours share each sector. It reads this many entries before the position and skips them
 * GNVD_LOOK_FIRST     1: a look at the ring costs less than the drain lock
 * GNVD_PLAIN_UNLOCK   1: a drainer that rang no doorbell releases its lock without a fence
 * GNVD_SHORT_LOWEST   1: there is a shorter way to take one bit of a word. A lane on its own requests only one
 * GNVD_SHORT_NTH      1: and the lowest bit is found by one instruction
 * GNVD_AT_HAND(type, name, from)   declares a pointer to what `from` points to, or to a copy where a fence empties the cache
 */

/* ---- Numbers ---- */

/* A thread address (dq.h) as a pointer, in the address space that GPUs access directly. */
GNVD_FN void *gnvd_lane_bytes(uint64_t at);
GNVD_FN const void *gnvd_lane_memory(uint64_t at);


GNVD_FN uint32_t gnvd_popc(uint64_t v);    /* set bits */
GNVD_FN uint32_t gnvd_lowest(uint64_t v);  /* position of the lowest set bit. v must not be 0 */
GNVD_FN uint32_t gnvd_highest(uint64_t v); /* position of the highest set bit. v must not be 0 */

/* A value that is the same for all lanes that are active. AMD GPUs then keep it in scalar registers. */
GNVD_FN uint32_t gnvd_same32(uint32_t v);

/*
 * A compiler may merge the end of a branch of some lanes with the end of a branch of all lanes. It then no longer knows that the
 * result of the latter is the same for all lanes. This keeps the two apart.
 */
GNVD_FN void gnvd_join(void);

/* Hide a number from the compiler, which then keeps neither its operands nor, for a constant, a copy for the whole call. */
GNVD_FN uint32_t gnvd_opaque32(uint32_t v);

/* ---- Words of the state: atomic for all threads of the device, relaxed unless stated otherwise ---- */

GNVD_FN uint32_t gnvd_ld32(uint64_t a);
GNVD_FN uint64_t gnvd_ld64(uint64_t a);
GNVD_FN void gnvd_st32(uint64_t a, uint32_t v);
GNVD_FN void gnvd_st64(uint64_t a, uint64_t v);

/* Load. The caller's stores that depend on it come after what the writer did before. A caller that loads next orders first. */
GNVD_FN uint64_t gnvd_ld_after64(uint64_t a);

/* Load. Later loads of the thread come after it. Only on platforms with GNVD_GLANCES, the number of glances in a millisecond. */
#if defined(GNVD_GLANCES)
GNVD_FN uint64_t gnvd_ld_acquire64(uint64_t a);
#endif

/* Store, after all that this thread did before. */
GNVD_FN void gnvd_st_release64(uint64_t a, uint64_t v);

/* Return the old value. Acquire and release: */
GNVD_FN uint64_t gnvd_xchg64(uint64_t a, uint64_t v);
GNVD_FN uint32_t gnvd_cas32(uint64_t a, uint32_t expect, uint32_t v);
/* Release: */
GNVD_FN uint64_t gnvd_or64(uint64_t a, uint64_t v);
/* Only accesses that depend on the value come after it: */
GNVD_FN uint64_t gnvd_fetch_add64(uint64_t a, uint64_t v);
GNVD_FN uint64_t gnvd_cas64(uint64_t a, uint64_t expect, uint64_t v);
GNVD_FN uint64_t gnvd_and64(uint64_t a, uint64_t v);
/* As above, released by what came before it: a gnvd_order_agent(), or the result of another atomic. */
GNVD_FN uint64_t gnvd_or_after64(uint64_t a, uint64_t v);

/*
 * Without a result, released by a gnvd_order_agent() before it. max: store v if the word is lower. A thread that sees an older
 * value misses nothing by it.
 */
GNVD_FN void gnvd_add64(uint64_t a, uint64_t v);
GNVD_FN void gnvd_max64(uint64_t a, uint64_t v);

/*
 * Exchange a word that is DONE, or one whose completion this thread has read. This thread then also sees what the controller wrote
 * before.
 */
GNVD_FN uint64_t gnvd_take64(uint64_t a, uint64_t v);

/* All earlier accesses come before all later ones, for all threads. */
GNVD_FN void gnvd_order_agent(void);

/* As above, and for the controller. */
GNVD_FN void gnvd_order_system(void);

/* ---- Rings and doorbells: shared with the controller ---- */

/* Load past all caches, for words that the controller or the host writes. The round trips of several loads overlap. */
GNVD_FN uint32_t gnvd_load_ring32(uint64_t a);
GNVD_FN void gnvd_load_ring32s(const uint64_t *a, uint32_t *v, uint32_t n);

/* Load four dwords at once, where the descriptor has GPUNVME_DQ_CQE16. */
GNVD_FN void gnvd_load_ring128(uint64_t a, uint32_t *v);

/* Call it after the word was seen: this thread then sees all that the controller wrote before the word. */
GNVD_FN void gnvd_acquire_ring32(uint64_t a);

/* Store 64 bytes by four wide stores. Dword 0 comes without the CID. The steps before READY and the doorbell order them. */
GNVD_FN void gnvd_store_sqe(uint64_t a, const uint32_t *w, uint32_t cid);

/* A doorbell will be written here soon. */
GNVD_FN void gnvd_soon(uint64_t a);

/* Store to the controller, after gnvd_order_system(). Doorbells of successive holders of gate or drain lock arrive in order. */
GNVD_FN void gnvd_doorbell(uint64_t a, uint32_t v);

/* ---- Time ---- */

/* Ticks of one clock for all threads of a queue, dq->ticks_per_ms a millisecond. It never goes back for one thread. */
GNVD_FN uint64_t gnvd_clock(void);

/* A thread waits, and has looked `turn` times without a result: let other threads run. */
GNVD_FN void gnvd_pause(uint32_t turn);

/*
 * A thread has polled, or requested a page, without a result, and may do so without limit. Where threads keep others from running,
 * yield now and then.
 */
GNVD_FN void gnvd_polled_in_vain(void);

/* ---- The wave: the lanes that are together here and use the same queue, fixed for the whole call ---- */

/* Set all of w but the hint. gnvd_leave() ends it. */
GNVD_FN void gnvd_enter(struct gnvd_wave *w, const struct gpunvme_dq *dq, enum gnvd_site site);
GNVD_FN void gnvd_leave(const struct gnvd_wave *w);

/* A number that differs between waves, to spread them over the CID map. */
GNVD_FN uint32_t gnvd_hint(void);

/*
 * GNVD_EACH_QUEUE(dq) { }   the block runs once for each lane, for the lanes of one queue at a time if a compiler knows no masks
 * GNVD_APART(w, alone, together)   a copy for a lane on its own, without ballots, and a copy for waves, where there are two copies
 * GNVD_ALONE(w)   is this a lane on its own? 0 where there is one copy
 * GNVD_OWNS(w)    are its lanes their ranks, so that they may take their own completions while they drain (deliver.h)?
 */

#define GNVD_TOGETHER(w, what) GNVD_APART(w, what, what)

/* Collectives, which every lane of the wave calls: the lanes with pred set, and the value of another lane. */
GNVD_FN uint64_t gnvd_ballot(const struct gnvd_wave *w, int pred);
GNVD_FN uint32_t gnvd_shfl32(const struct gnvd_wave *w, uint32_t v, uint32_t lane);
GNVD_FN uint64_t gnvd_shfl64(const struct gnvd_wave *w, uint64_t v, uint32_t lane);

/* May this lane act for all that are active? True for at least one lane. More than one costs time only. */
GNVD_FN int gnvd_first(void);

/* How many of these lanes are below this one? */
GNVD_FN uint32_t gnvd_below(const struct gnvd_wave *w, uint64_t lanes);

/* All that the lanes did before comes before what the leader does next. */
GNVD_FN void gnvd_meet(const struct gnvd_wave *w);

/*
 * Words that guard memory which lanes only read. All lanes of the wave come to the meeting, some of them access the word. What
 * others did before they changed the word, in order, comes before what these lanes do after gnvd_meet_acquire(). What these lanes
 * read before gnvd_meet_release() comes before the addition.
 */
GNVD_FN uint64_t gnvd_fetch_add_acquire64(uint64_t a, uint64_t v); /* the old value. gnvd_meet_acquire() comes next */
GNVD_FN void gnvd_meet_acquire(const struct gnvd_wave *w);
GNVD_FN void gnvd_meet_release(const struct gnvd_wave *w);
GNVD_FN void gnvd_add_release64(uint64_t a, uint64_t v); /* without a result, after gnvd_meet_release() */

/* The leader stores one word, after all earlier stores of the wave. */
GNVD_FN void gnvd_release_to64(const struct gnvd_wave *w, uint64_t a, uint64_t v);

/* ---- The workgroup ---- */

/* Number of this thread in its workgroup, of any dimensions, threads of the workgroup, its number, threads of a whole wave. */
GNVD_FN uint32_t gnvd_block_lane(void);
GNVD_FN uint32_t gnvd_block_lanes(void);
GNVD_FN uint32_t gnvd_block_number(void);
GNVD_FN uint32_t gnvd_wave_lanes(void);

/* All threads of the workgroup call. After it each thread sees what the others did before. */
GNVD_FN void gnvd_block_sync(const struct gpunvme_dq *dq);

/* The smallest value of the threads, for all of them. *came: number of threads that called. */
GNVD_FN uint64_t gnvd_block_min(const struct gpunvme_dq *dq, uint64_t v, uint32_t *came);

/* ---- The launch ---- */

/**
 * gpunvme_thread_id() - get the number of this thread in the launch, along the x dimension
 * Return: 0 to gpunvme_thread_count() - 1. 0 on a thread that no launch has made.
 */
GPUNVME_FN uint32_t gpunvme_thread_id(void);

/**
 * gpunvme_thread_count() - get the number of threads in the launch, along the x dimension
 * Return: 1 or more.
 */
GPUNVME_FN uint32_t gpunvme_thread_count(void);

/* ---- Made of these ---- */

GNVD_FN uint64_t gnvd_same64(uint64_t v)
{
	return gnvd_same32((uint32_t)v) | (uint64_t)gnvd_same32((uint32_t)(v >> 32)) << 32;
}

#if defined(GNVD_CUDA)
#include <gpunvme/device/cuda.h>
#elif defined(GNVD_AMD)
#include <gpunvme/device/amd.h>
#else
#include <gpunvme/device/cpu.h>
#endif

/* The leader's value, for all lanes. */
GNVD_FN uint64_t gnvd_bcast64(const struct gnvd_wave *w, uint64_t v)
{
	return gnvd_shfl64(w, v, gnvd_lowest(w->mask));
}

GNVD_FN uint32_t gnvd_bcast32(const struct gnvd_wave *w, uint32_t v)
{
	return gnvd_shfl32(w, v, gnvd_lowest(w->mask));
}

/*
 * How many ranks, from the leader on, have pred set without a gap? *next is the lane of the first rank without it, undefined if all
 * have it.
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
