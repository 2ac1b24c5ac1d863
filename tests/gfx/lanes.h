/* SPDX-License-Identifier: MIT */
/*
 * Lanes on the executor for whole programs: gfx_lanes.c implements lanes/gpunvme/device.h by launches. Environment: GFX_CODE, the
 * code object; GFX_CALLS, that of calls.hip, if the program calls lane functions; GFX_SEED and GFX_RULES (1 and all). A launch that
 * fails prints why and how to replay it, and ends the program.
 */
#ifndef TESTS_GFX_LANES_H
#define TESTS_GFX_LANES_H

#include "gfx/gfx.h"

#include <gpunvme/dq.h>

/* The kernels gpunvme_cpu_launch() is called with, by their names in the code object, and the bytes of their argument. */
struct lanes_kernel {
	void (*function)(void *arg);
	const char *name;
	size_t bytes;
};
extern const struct lanes_kernel lanes_kernels[]; /* ends with a function NULL */

/* Memory that kernels may touch, until it is forgotten. A base that is known already is replaced. */
void lanes_memory(const char *name, const void *base, uint64_t bytes, uint32_t flags);
void lanes_forget(const void *base);
/* All that a queue consists of. */
void lanes_queue(const struct gpunvme_dq *dq, bool known);
/* Run a kernel; ends the program when the executor finds something. */
void lanes_launch(const char *kernel, uint32_t lanes, uint32_t width, const void *args, uint32_t bytes);
/* The other side of the queues: called while lanes run and wait. */
extern void (*lanes_outside)(void);
/* Time passes for the lanes, and the other side gets a turn. */
void lanes_idle(void);
/* Random numbers that follow from GFX_SEED. */
uint32_t lanes_draw(uint32_t below);
extern uint64_t lanes_tick; /* of the lane clock, for each instruction */

#endif
