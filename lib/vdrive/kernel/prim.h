/* SPDX-License-Identifier: MIT */
/*
 * The few things that the kernel needs of the processor that it runs on: CPU threads, NVIDIA and AMD GPUs. They are its own,
 * and share nothing with those of the device header: with the same wrong fence in both, no test would fail.
 *
 * A team is VD_WIDTH lanes that work together: a block on an NVIDIA GPU, a wave on an AMD GPU, one lane on a CPU thread. All lanes
 * of a team call each function that is called collective.
 *
 *	vd_lane()	the number of a lane in its team
 *	vd_team()	the number of its team
 *	vd_meet()	collective: a lane returns when all have called it; it sees what the others stored before
 *	vd_first(), vd_first64()	collective: the value of lane 0
 *	vd_any()	collective: a lane says true
 *	vd_rank()	collective: how many lanes before this one say true; @all: how many of them all
 *	vd_look()	collective: words that other processors write, by loads that run at the same time. No later access of any
 *			lane goes before them
 *	vd_add64()	collective: add the values of all lanes to a sum in memory
 *	vd_get32(), vd_get64(), vd_put64()	words that other processors use, too
 *	vd_acquire64()	the same, and no later access of this lane goes before it
 *	vd_load(), vd_store(), vd_load8()	data
 *	vd_fence()	all that this lane did, and all that lanes did before it met them, goes before all that this lane does
 *			next, for every processor and device
 *	vd_now()	nanoseconds
 *	vd_rest()	there was nothing to do, @idle times
 */
#ifndef GNV_VDRIVE_PRIM_H
#define GNV_VDRIVE_PRIM_H

#include <stdbool.h>
#include <stdint.h>

#include "vdrive/shared.h"

/* Loads of such a loop are under way together: unrolled, their values are in registers. */
#if defined(__clang__)
#define VD_UNROLL _Pragma("unroll")
#else
#define VD_UNROLL
#endif

#define VD_RARE __attribute__((noinline)) /* its registers do not count where it is called */
#define VD_LOOKS 5u /* words of vd_look(), at most */

/* 16 bytes that move as one where the processor can. */
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

/* Collective: a word of 64 bits of lane 0. */
static inline uint64_t vd_first64(uint64_t value)
{
	const uint32_t low = vd_first((uint32_t)value), high = vd_first((uint32_t)(value >> 32));

	return low | (uint64_t)high << 32;
}

/* Collective: the test that judges commands, on CPU threads only; 0: none. */
static inline uint64_t vd_hook(const struct gnv_vd *vd)
{
#if defined(VD_HOOKS)
	return vd_first64(vd_get64(&vd->hook));
#else
	(void)vd;
	return 0;
#endif
}

/*
 * Does a test judge this command in place of the rules? On CPU threads only; one lane. Return: it does, and what follows is set.
 */
static inline bool vd_judge(uint64_t hook, const struct gnv_soft_cmd *cmd, enum gnv_soft_verdict *verdict, uint16_t *status,
			    uint32_t *number)
{
#if defined(VD_HOOKS)
	const struct gnv_soft_fault *fault = (const struct gnv_soft_fault *)(uintptr_t)hook;

	if (fault)
		*verdict = fault->decide(fault->ctx, cmd->qid, &cmd->sqe, status, number);
	return fault;
#else
	(void)hook;
	(void)cmd;
	(void)verdict;
	(void)status;
	(void)number;
	return false;
#endif
}

#endif
