/* SPDX-License-Identifier: MIT */
/*
 * What the queue needs from a processor. This page lists all of it, as declarations with their contracts; cuda.h, amd.h and
 * cpu.h each define every one of them, and whoever brings another kind of lanes writes a fourth such file.
 *
 * Addresses are 64-bit integers and are cast to the global address space by the platform, so that GPUs use global instead of
 * flat accesses. Words of the queue state are atomic at agent (whole device) scope; rings and doorbells are shared with the
 * controller and need system scope. The primitives that order name the word they order on, so that a race detector understands
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
#ifdef GPUNVME_CALLS /* for builds that look for mistakes: a tenth of the code to compile, slower lanes */
#define GNVD_FN GPUNVME_DEVICE __attribute__((unused)) static
#elif defined(__CUDACC__) && !defined(__clang__)
#define GNVD_FN static __forceinline__ GPUNVME_DEVICE
#else
#define GNVD_FN static inline __attribute__((always_inline)) GPUNVME_DEVICE
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
enum gnvd_site { GNVD_SITE_RUN, GNVD_SITE_SUBMIT, GNVD_SITE_POLL, GNVD_SITE_WAIT, GNVD_SITE_UNPAGE,
		 /* Of caches: each for a namespace, then for a file, then for a volume (gnvd_site_of). */
		 GNVD_SITE_PAGE, GNVD_SITE_FILE_PAGE, GNVD_SITE_VOLUME_PAGE, GNVD_SITE_ARRAY, GNVD_SITE_FILE_ARRAY, GNVD_SITE_VOLUME_ARRAY,
		 GNVD_SITE_PREFETCH, GNVD_SITE_FILE_PREFETCH, GNVD_SITE_VOLUME_PREFETCH,
		 GNVD_SITE_AHEAD_PAGE, GNVD_SITE_FILE_AHEAD_PAGE, GNVD_SITE_VOLUME_AHEAD_PAGE,
		 GNVD_SITE_AHEAD_ARRAY, GNVD_SITE_FILE_AHEAD_ARRAY, GNVD_SITE_VOLUME_AHEAD_ARRAY,
		 GNVD_SITE_SETTLE, GNVD_SITE_FILE_SETTLE, GNVD_SITE_VOLUME_SETTLE,
		 GNVD_SITE_CHANGED, GNVD_SITE_FILE_CHANGED, GNVD_SITE_VOLUME_CHANGED,
		 GNVD_SITE_ROOM, GNVD_SITE_FILE_ROOM, GNVD_SITE_VOLUME_ROOM,
		 GNVD_SITE_WRITE_BACK, GNVD_SITE_FILE_WRITE_BACK, GNVD_SITE_VOLUME_WRITE_BACK,
		 GNVD_SITE_WAVE, GNVD_SITE_BLOCK };

/* The lanes of one call: those that were together when it began. Everything below is the same for all of them but the last two. */
struct gnvd_wave {
	uint64_t mask;  /* one bit per lane */
	uint32_t count; /* lanes in mask */
	uint32_t hint;  /* of a wave that submits: gnvd_hint() */
	uint32_t lane;  /* this lane's bit in mask */
	uint32_t rank;  /* lanes of mask below this one; rank 0 leads */
};

/*
 * What costs less here; constants, but for the last:
 *
 * GNVD_LOOKS          completions that a lane looks at in one go (deliver.h)
 * GNVD_SECTOR         1: two loads of one sector of 32 bytes come one after another, so a look begins at an even entry, and each
 *                     sector is one lane's neighbour's, too; so many entries before the position are read and passed over
 * GNVD_LOOK_FIRST     1: a look at the ring costs less than the drain lock
 * GNVD_PLAIN_UNLOCK   1: a drainer that rang no doorbell gives its lock back without a fence
 * GNVD_SHORT_LOWEST   1: one bit is taken of a word by a way of its own; a lane on its own asks for no more
 * GNVD_SHORT_NTH      1: and the lowest is found by one
 * GNVD_AT_HAND(type, name, from)   declares a pointer to what `from` points to, or to a copy where a fence empties the cache
 */

/* ---- Numbers ---- */

/* An address in lane memory as a pointer, in the address space that GPUs reach without asking. */
GNVD_FN void *gnvd_lane_bytes(uint64_t at);
GNVD_FN const void *gnvd_lane_memory(uint64_t at);


GNVD_FN uint32_t gnvd_popc(uint64_t v);    /* set bits */
GNVD_FN uint32_t gnvd_lowest(uint64_t v);  /* position of the lowest set bit; v must not be 0 */
GNVD_FN uint32_t gnvd_highest(uint64_t v); /* position of the highest set bit; v must not be 0 */

/* A value that is the same for all lanes that are here: AMD GPUs keep it in scalar registers then. */
GNVD_FN uint32_t gnvd_same32(uint32_t v);

/*
 * A compiler that merges the end of a branch that some lanes take with the end of one that all take no longer knows that what
 * comes out of the latter is the same for all lanes. This keeps them apart.
 */
GNVD_FN void gnvd_join(void);

/* A compiler that knows nothing of the number keeps neither what it was made of nor, of a constant, a copy for the whole call. */
GNVD_FN uint32_t gnvd_opaque32(uint32_t v);

/* ---- Words of the state: atomic for all lanes of the device, relaxed where nothing else is said ---- */

GNVD_FN uint32_t gnvd_ld32(uint64_t a);
GNVD_FN uint64_t gnvd_ld64(uint64_t a);
GNVD_FN void gnvd_st32(uint64_t a, uint32_t v);
GNVD_FN void gnvd_st64(uint64_t a, uint64_t v);

/* Load; the caller's stores that depend on it come after what the writer did before. Who goes on to load orders first. */
GNVD_FN uint64_t gnvd_ld_after64(uint64_t a);

/* Load; what the lane loads behind it comes later, too. Only of platforms that say how often a glance fits into a millisecond. */
#if defined(GNVD_GLANCES)
GNVD_FN uint64_t gnvd_ld_acquire64(uint64_t a);
#endif

/* Store; what this lane did before comes before it. */
GNVD_FN void gnvd_st_release64(uint64_t a, uint64_t v);

/* The old value of each is the answer. Acquire and release: */
GNVD_FN uint64_t gnvd_xchg64(uint64_t a, uint64_t v);
GNVD_FN uint32_t gnvd_cas32(uint64_t a, uint32_t expect, uint32_t v);
/* Release: */
GNVD_FN uint64_t gnvd_or64(uint64_t a, uint64_t v);
/* Only what depends on the value is ordered behind it: */
GNVD_FN uint64_t gnvd_fetch_add64(uint64_t a, uint64_t v);
GNVD_FN uint64_t gnvd_cas64(uint64_t a, uint64_t expect, uint64_t v);
GNVD_FN uint64_t gnvd_and64(uint64_t a, uint64_t v);
/* The same, released by what came before it: a gnvd_order_agent, or the answer of another atomic. */
GNVD_FN uint64_t gnvd_or_after64(uint64_t a, uint64_t v);

/*
 * Without an answer; released by a gnvd_order_agent before it. max: makes the word no less than that; who sees an older one may
 * miss nothing by it.
 */
GNVD_FN void gnvd_add64(uint64_t a, uint64_t v);
GNVD_FN void gnvd_max64(uint64_t a, uint64_t v);

/*
 * Exchange of a word that says DONE, or of one whose completion this lane has read; what the controller wrote before that is seen
 * by this lane, too.
 */
GNVD_FN uint64_t gnvd_take64(uint64_t a, uint64_t v);

/* What comes before is seen and done before what comes behind, for all lanes. */
GNVD_FN void gnvd_order_agent(void);

/* And for the controller. */
GNVD_FN void gnvd_order_system(void);

/* ---- Rings and doorbells: shared with the controller ---- */

/* Load that no cache answers, for words the controller or the host writes. Several: their round trips overlap. */
GNVD_FN uint32_t gnvd_load_ring32(uint64_t a);
GNVD_FN void gnvd_load_ring32s(const uint64_t *a, uint32_t *v, uint32_t n);

/* Four dwords that arrive whole, where the descriptor says so (GPUNVME_DQ_CQE16). */
GNVD_FN void gnvd_load_ring128(uint64_t a, uint32_t *v);

/* After the word was seen: everything the controller wrote before it is seen, too. */
GNVD_FN void gnvd_acquire_ring32(uint64_t a);

/* 64 bytes as four wide stores; dword 0 comes without the CID. Ordered by what comes before READY and the doorbell. */
GNVD_FN void gnvd_store_sqe(uint64_t a, const uint32_t *w, uint32_t cid);

/* The controller will be told by this word soon. */
GNVD_FN void gnvd_soon(uint64_t a);

/* Store to the controller, behind a gnvd_order_system. Doorbells of successive holders of gate or drain lock arrive in order. */
GNVD_FN void gnvd_doorbell(uint64_t a, uint32_t v);

/* ---- Time ---- */

/* Ticks of one clock for all lanes of a queue; dq->ticks_per_ms of them are a millisecond. Never goes back for one lane. */
GNVD_FN uint64_t gnvd_clock(void);

/* A lane waits and has looked `turn` times in vain: let others have the processor. */
GNVD_FN void gnvd_pause(uint32_t turn);

/*
 * A lane has polled, or asked for a page, in vain, and may go on so for ever: where lanes keep others from running, every so often
 * give way.
 */
GNVD_FN void gnvd_polled_in_vain(void);

/* ---- The wave: the lanes that are together here and use the same queue, fixed for the whole call ---- */

/* Fill w but for the hint. gnvd_leave() ends what it began. */
GNVD_FN void gnvd_enter(struct gnvd_wave *w, const struct gpunvme_dq *dq, enum gnvd_site site);
GNVD_FN void gnvd_leave(const struct gnvd_wave *w);

/* A number that differs between waves, to spread them over the CID map. */
GNVD_FN uint32_t gnvd_hint(void);

/*
 * GNVD_EACH_QUEUE(dq) { }   the block runs once for each lane, with lanes of one queue at a time where a compiler knows no masks
 * GNVD_APART(w, alone, together)   what a wave does, and what a lane on its own does, where that is compiled apart, without ballots
 * GNVD_ALONE(w)   is this a lane on its own? 0 where that is not compiled apart
 * GNVD_OWNS(w)    are its lanes their ranks, so that they may take what they drain of their own (deliver.h)?
 */

#define GNVD_TOGETHER(w, what) GNVD_APART(w, what, what)

/* Collectives: every lane of the wave comes. The lanes with pred set; the value of another lane. */
GNVD_FN uint64_t gnvd_ballot(const struct gnvd_wave *w, int pred);
GNVD_FN uint32_t gnvd_shfl32(const struct gnvd_wave *w, uint32_t v, uint32_t lane);
GNVD_FN uint64_t gnvd_shfl64(const struct gnvd_wave *w, uint64_t v, uint32_t lane);

/* May this lane do what one of those that are here does for all? At least one is told so; more than one costs time only. */
GNVD_FN int gnvd_first(void);

/* How many of these lanes are below this one. */
GNVD_FN uint32_t gnvd_below(const struct gnvd_wave *w, uint64_t lanes);

/* What its lanes did before comes before what its leader does behind. */
GNVD_FN void gnvd_meet(const struct gnvd_wave *w);

/*
 * Words that guard memory which lanes only read. All lanes of the wave come to the meeting, some of them to the word. What others
 * did before they changed it, in order, comes before what these lanes do behind gnvd_meet_acquire; what these lanes read before
 * gnvd_meet_release comes before the addition.
 */
GNVD_FN uint64_t gnvd_fetch_add_acquire64(uint64_t a, uint64_t v); /* the old value; gnvd_meet_acquire comes next */
GNVD_FN void gnvd_meet_acquire(const struct gnvd_wave *w);
GNVD_FN void gnvd_meet_release(const struct gnvd_wave *w);
GNVD_FN void gnvd_add_release64(uint64_t a, uint64_t v); /* without an answer; behind gnvd_meet_release */

/* All earlier stores of the wave, then one word, by the leader. */
GNVD_FN void gnvd_release_to64(const struct gnvd_wave *w, uint64_t a, uint64_t v);

/* ---- The workgroup ---- */

/* This lane in its workgroup, of any dimensions, and how many there are; the workgroup's number; lanes of a whole wave. */
GNVD_FN uint32_t gnvd_block_lane(void);
GNVD_FN uint32_t gnvd_block_lanes(void);
GNVD_FN uint32_t gnvd_block_number(void);
GNVD_FN uint32_t gnvd_wave_lanes(void);

/* All lanes of the workgroup come: what each did before, each sees behind it. */
GNVD_FN void gnvd_block_sync(const struct gpunvme_dq *dq);

/* The smallest of the lanes' values, for all of them; *came: how many took part. */
GNVD_FN uint64_t gnvd_block_min(const struct gpunvme_dq *dq, uint64_t v, uint32_t *came);

/* ---- The launch ---- */

/**
 * gpunvme_lane() - number of this lane in the launch, from 0 on, counted along the x dimension
 *
 * Return: less than gpunvme_lanes(); 0 on a thread that no launch has made.
 */
GPUNVME_FN uint32_t gpunvme_lane(void);

/**
 * gpunvme_lanes() - how many lanes the launch has, along the x dimension
 *
 * Return: at least 1.
 */
GPUNVME_FN uint32_t gpunvme_lanes(void);

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
