/* SPDX-License-Identifier: MIT */
/* Between vector.c and valu.c. */
#ifndef TESTS_GFX_VALU_H
#define TESTS_GFX_VALU_H

#include "gfx/gfx.h"

/* Sources and results of one half of an instruction, one 64-bit value per lane. */
struct gfx_lanes {
	uint64_t a[GFX_LANES], b[GFX_LANES], c[GFX_LANES], r[GFX_LANES];
	uint64_t carry, skip; /* out: carries, and lanes that DPP leaves out */
	unsigned count;
};

/* The first v->count lanes of an opcode; old: what the destination held. False: no such opcode. */
bool gfx_compute(struct gfx_lanes *v, unsigned id, const uint64_t *old);
uint64_t gfx_compare(const struct gfx_inst *in, const uint64_t *a, const uint64_t *b, unsigned lanes);

#endif
