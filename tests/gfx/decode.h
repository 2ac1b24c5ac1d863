/* SPDX-License-Identifier: MIT */
/* Between decode.c, which knows what formats have in common, decode9.c and decode12.c. */
#ifndef TESTS_GFX_DECODE_H
#define TESTS_GFX_DECODE_H

#include "gfx/gfx.h"

static inline uint32_t gfx_bits(uint64_t v, unsigned low, unsigned count)
{
	return (uint32_t)(v >> low) & ((1u << count) - 1);
}

/* The opcode of an instruction set, or NULL. */
const struct gfx_op *gfx_lookup(enum gfx_isa isa, unsigned format, unsigned code);
/* Fields of the formats that all sets encode alike; field[letter] is what the encoding says of an operand. */
const struct gfx_op *gfx_decode_scalar(enum gfx_isa isa, struct gfx_inst *in, uint32_t w, uint16_t *field);
const struct gfx_op *gfx_decode_vop(enum gfx_isa isa, struct gfx_inst *in, uint32_t w, uint16_t *field);
const struct gfx_op *gfx_decode_vop3(enum gfx_isa isa, struct gfx_inst *in, uint64_t w, uint16_t *field);
/* All of gfx942's formats; and the bytes of an instruction without what may follow it. */
const struct gfx_op *gfx_decode_fields9(struct gfx_inst *in, uint64_t w, uint16_t *field);
unsigned gfx_length9(uint32_t w);
/* The same of the formats that gfx12 encodes in its own way; NULL, or no bytes, for others. */
const struct gfx_op *gfx_decode_fields12(struct gfx_inst *in, uint64_t w, uint16_t *field);
unsigned gfx_length12(uint32_t w);
/* The second word of SDWA. */
void gfx_decode_sdwa(struct gfx_inst *in, uint16_t *field);

#endif
