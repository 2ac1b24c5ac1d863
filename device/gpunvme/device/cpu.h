/* SPDX-License-Identifier: MIT */
/* CPU threads: memory and time of platform.h. cpu_wave.h makes waves of threads, and cpu_launch.h starts the threads. */
#ifndef GPUNVME_DEVICE_CPU_H
#define GPUNVME_DEVICE_CPU_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#if !defined(CLOCK_MONOTONIC)
#error "define _POSIX_C_SOURCE=200809L or _GNU_SOURCE, or include <gpunvme/device.h> before system headers"
#endif

#define GNVD_LOOKS 1u
#ifndef GNVD_SECTOR /* tests on CPUs set it */
#define GNVD_SECTOR 0u
#endif
#define GNVD_LOOK_FIRST 1
#define GNVD_PLAIN_UNLOCK 0
#define GNVD_SHORT_LOWEST 1
#define GNVD_SHORT_NTH 1
#define GNVD_AT_HAND(type, name, from) const type *name = (from)

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
	/* A CPU's baseline may have no instruction for this, and a lane on its own asks for one bit at most. */
	if (!(v & (v - 1)))
		return v != 0;
	return (uint32_t)__builtin_popcountll(v);
}

GNVD_FN uint32_t gnvd_lowest(uint64_t v)
{
	return (uint32_t)__builtin_ctzll(v);
}

GNVD_FN uint32_t gnvd_highest(uint64_t v)
{
	return 63 - (uint32_t)__builtin_clzll(v);
}

/* ---- Words of the state ---- */

GNVD_FN uint32_t gnvd_ld32(uint64_t a)
{
	return __atomic_load_n((const uint32_t *)(uintptr_t)a, __ATOMIC_RELAXED);
}

GNVD_FN uint64_t gnvd_ld64(uint64_t a)
{
	return __atomic_load_n((const uint64_t *)(uintptr_t)a, __ATOMIC_RELAXED);
}

GNVD_FN uint64_t gnvd_ld_after64(uint64_t a)
{
	return __atomic_load_n((const uint64_t *)(uintptr_t)a, __ATOMIC_ACQUIRE);
}

#define GNVD_GLANCES 128u /* 8 us. A change of a page takes at least 50 ns */

GNVD_FN uint64_t gnvd_ld_acquire64(uint64_t a)
{
	return gnvd_ld_after64(a);
}

/* Nothing to do: gnvd_ld_after64() has acquired. */
GNVD_FN void gnvd_order_agent(void)
{
}

/* Nothing to do: gnvd_doorbell() releases. */
GNVD_FN void gnvd_order_system(void)
{
}

GNVD_FN void gnvd_st32(uint64_t a, uint32_t v)
{
	__atomic_store_n((uint32_t *)(uintptr_t)a, v, __ATOMIC_RELAXED);
}

GNVD_FN void gnvd_st64(uint64_t a, uint64_t v)
{
	/* A release, because `fetched` and freed result words hand over ring slots. It costs nothing on x86. */
	__atomic_store_n((uint64_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

GNVD_FN void gnvd_st_release64(uint64_t a, uint64_t v)
{
	__atomic_store_n((uint64_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

GNVD_FN uint64_t gnvd_xchg64(uint64_t a, uint64_t v)
{
	return __atomic_exchange_n((uint64_t *)(uintptr_t)a, v, __ATOMIC_ACQ_REL);
}

/*
 * These are two steps. Only its owner changes a word that is DONE. Only the holder of the drain lock changes a word whose
 * completion this lane has read, and the owner is a lane of the same wave. If another lane stores a second completion of that
 * command meanwhile, that completion is of another generation, or neither would be taken here. So it is wrong in any case.
 */
GNVD_FN uint64_t gnvd_take64(uint64_t a, uint64_t v)
{
	uint64_t old = gnvd_ld_after64(a);

	gnvd_st64(a, v);
	return old;
}

GNVD_FN uint64_t gnvd_fetch_add64(uint64_t a, uint64_t v)
{
	return __atomic_fetch_add((uint64_t *)(uintptr_t)a, v, __ATOMIC_ACQ_REL);
}

GNVD_FN uint32_t gnvd_cas32(uint64_t a, uint32_t expect, uint32_t v)
{
	__atomic_compare_exchange_n((uint32_t *)(uintptr_t)a, &expect, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return expect;
}

GNVD_FN uint64_t gnvd_cas64(uint64_t a, uint64_t expect, uint64_t v)
{
	__atomic_compare_exchange_n((uint64_t *)(uintptr_t)a, &expect, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return expect;
}

GNVD_FN uint64_t gnvd_and64(uint64_t a, uint64_t v)
{
	return __atomic_fetch_and((uint64_t *)(uintptr_t)a, v, __ATOMIC_ACQUIRE);
}

GNVD_FN uint64_t gnvd_or64(uint64_t a, uint64_t v)
{
	return __atomic_fetch_or((uint64_t *)(uintptr_t)a, v, __ATOMIC_ACQ_REL);
}

GNVD_FN uint64_t gnvd_or_after64(uint64_t a, uint64_t v)
{
	return gnvd_or64(a, v);
}

GNVD_FN void gnvd_add64(uint64_t a, uint64_t v)
{
	__atomic_fetch_add((uint64_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

GNVD_FN uint64_t gnvd_fetch_add_acquire64(uint64_t a, uint64_t v)
{
	return gnvd_fetch_add64(a, v);
}

GNVD_FN void gnvd_add_release64(uint64_t a, uint64_t v)
{
	gnvd_add64(a, v);
}

/* The caller holds the drain lock, which orders it after the previous store. */
GNVD_FN void gnvd_max64(uint64_t a, uint64_t v)
{
	gnvd_st64(a, v);
}

/* ---- Rings and doorbells ---- */

GNVD_FN uint32_t gnvd_load_ring32(uint64_t a)
{
	return __atomic_load_n((const uint32_t *)(uintptr_t)a, __ATOMIC_RELAXED);
}

GNVD_FN void gnvd_load_ring32s(const uint64_t *a, uint32_t *v, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		v[i] = gnvd_load_ring32(a[i]);
}

/*
 * No CPU guarantees a 16-byte load, so the host does not set GPUNVME_DQ_CQE16 for CPU threads. Dword 3 is loaded first anyway.
 */
GNVD_FN void gnvd_load_ring128(uint64_t a, uint32_t *v)
{
	uint32_t i;

	for (i = 4; i--;)
		v[i] = __atomic_load_n((const uint32_t *)(uintptr_t)a + i, __ATOMIC_ACQUIRE);
}

GNVD_FN void gnvd_acquire_ring32(uint64_t a)
{
	(void)__atomic_load_n((const uint32_t *)(uintptr_t)a, __ATOMIC_ACQUIRE);
}

/* The cache of the controller's CPU has the line: request it before the store, which has to wait for it. */
GNVD_FN void gnvd_soon(uint64_t a)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)(uintptr_t)a));
#else
	(void)a;
#endif
}

GNVD_FN void gnvd_store_sqe(uint64_t a, const uint32_t *w, uint32_t cid)
{
	uint64_t *sqe = (uint64_t *)(uintptr_t)a;

#define GNVD_STORE_TWO(i) __atomic_store_n(sqe + (i), w[2 * (i)] | (uint64_t)w[2 * (i) + 1] << 32, __ATOMIC_RELAXED)
	__atomic_store_n(sqe, w[0] | cid << 16 | (uint64_t)w[1] << 32, __ATOMIC_RELAXED);
	GNVD_STORE_TWO(1);
	GNVD_STORE_TWO(2);
	GNVD_STORE_TWO(3);
	GNVD_STORE_TWO(4);
	GNVD_STORE_TWO(5);
	GNVD_STORE_TWO(6);
	GNVD_STORE_TWO(7);
#undef GNVD_STORE_TWO
	gnvd_soon(a + 64);
}

GNVD_FN void gnvd_doorbell(uint64_t a, uint32_t v)
{
	__atomic_store_n((uint32_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

/* ---- Time ---- */

GNVD_FN uint64_t gnvd_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

GNVD_FN void gnvd_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Spin, then yield, then sleep: a thread that waits long must not keep the core from the controller's thread. */
GNVD_FN void gnvd_pause(uint32_t turn)
{
	if (turn < 64) {
		gnvd_cpu_relax();
	} else if (turn < 4096) {
		sched_yield();
	} else {
		struct timespec nap = { 0, 50000 };

		nanosleep(&nap, NULL);
	}
}

#include <gpunvme/device/cpu_wave.h>
#include <gpunvme/device/cpu_launch.h>

/* The controller may be a thread that waits for this core. Yield to it about every 10 us. */
GNVD_FN void gnvd_polled_in_vain(void)
{
	static GNVD_THREAD_LOCAL uint32_t polls;

	if (++polls % 128 == 0)
		sched_yield();
}

#endif
