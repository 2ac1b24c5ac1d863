/* SPDX-License-Identifier: MIT */
/*
 * Primitives of the processor that runs the kernel: CPU threads, NVIDIA and AMD GPUs. They share nothing with the primitives of the
 * device header. With the same wrong fence in both, no test would fail.
 *
 * A team is VD_WIDTH threads that work together: a block on an NVIDIA GPU, a wave on an AMD GPU, one thread on a CPU thread. A
 * collective function is called by all threads of a team.
 *
 *	vd_lane()	the number of a thread in its team
 *	vd_team()	the number of its team
 *	vd_meet()	collective: a barrier. Each thread then sees what the others stored before
 *	vd_first(), vd_first64()	collective: the value of thread 0
 *	vd_any()	collective: true if the value of any thread is true
 *	vd_rank()	collective: number of threads before this one whose value is true. @all: number of all such threads
 *	vd_look()	collective: load words that other processors write, with all loads in flight together. They are ordered
 *			before each later access of any thread
 *	vd_add64()	collective: add the values of all threads to a sum in memory
 *	vd_get32(), vd_get64(), vd_put64()	load and store words that other processors use too
 *	vd_acquire64()	the same load, ordered before each later access of this thread
 *	vd_load(), vd_store(), vd_load8()	load and store data
 *	VD_TEARS	vd_store() may arrive in pieces, in any order
 *	vd_fence()	order accesses of this thread, and those of other threads before it met them, before all accesses of this
 *			thread after the fence, for every processor and device
 *	vd_now()	the time in nanoseconds
 *	vd_rest()	pause after @idle passes without work
 */
#ifndef GNV_VDRIVE_PRIM_H
#define GNV_VDRIVE_PRIM_H

#include <stdbool.h>
#include <stdint.h>

#include "vdrive/shared.h"

/* Unrolls a loop, so that its loads are in flight together, with their values in registers. */
#if defined(__clang__)
#define VD_UNROLL _Pragma("unroll")
#else
#define VD_UNROLL
#endif

#define VD_RARE __attribute__((noinline)) /* a function of its own, so its registers do not add to those of the caller */
#define VD_LOOKS 5u /* most words of one vd_look() */

/* 16 bytes, which move in one access if the processor can. */
struct vd_vec {
	uint32_t w[4];
};

#if defined(__NVPTX__)
#include "vdrive/kernel/prim_nvptx.h"
#elif defined(__AMDGCN__)
#include "vdrive/kernel/prim_amdgcn.h"
#else
#include "vdrive/kernel/prim_cpu.h"
#endif

/* Collective: the 64-bit value of thread 0. */
static inline uint64_t vd_first64(uint64_t value)
{
	const uint32_t low = vd_first((uint32_t)value), high = vd_first((uint32_t)(value >> 32));

	return low | (uint64_t)high << 32;
}

/* Collective: the address of a test's function that judges commands, on CPU threads only, or 0. */
static inline uint64_t vd_hook(const struct gnv_vd *vd)
{
#if defined(VD_HOOKS)
	return vd_first64(vd_get64(&vd->hook));
#else
	(void)vd;
	return 0;
#endif
}

/* One thread: let a test's function judge a command, on CPU threads only. Return: its action. */
static inline enum gnv_soft_action vd_judge(uint64_t hook, const struct gnv_soft_cmd *cmd, uint16_t *status, uint32_t *number)
{
#if defined(VD_HOOKS)
	const struct gnv_soft_fault *fault = (const struct gnv_soft_fault *)(uintptr_t)hook;

	return fault->decide(fault->ctx, cmd->qid, &cmd->sqe, status, number);
#else
	(void)hook;
	(void)cmd;
	(void)status;
	(void)number;
	return GNV_SOFT_GO;
#endif
}

#endif
