/* SPDX-License-Identifier: MIT */
/* What gfx12 encodes in its own way: memory instructions, whose third word has the address and its offset. */
#include "gfx/decode.h"

unsigned gfx_length12(uint32_t w)
{
	return w >> 26 == 0x3b ? 12 : 0;
}

static const struct gfx_op *decode_smem(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	field['d'] = (uint16_t)gfx_bits(w, 6, 7);
	field['a'] = (uint16_t)(gfx_bits(w, 0, 6) * 2);
	field['S'] = (uint16_t)gfx_bits(w, 57, 7);
	in->scope = (uint8_t)gfx_bits(w, 21, 2);
	in->hint = (uint8_t)gfx_bits(w, 23, 2);
	in->imm = (int32_t)(gfx_bits(w, 32, 24) << 8) >> 8;
	in->has_saddr = field['S'] != 124;
	return gfx_lookup(ISA_12, in->format = F_SMEM, gfx_bits(w, 13, 6));
}

static const struct gfx_op *decode_flat(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	const struct gfx_op *op = gfx_lookup(ISA_12, in->format = F_FLAT, gfx_bits(w, 14, 8));

	field['d'] = (uint16_t)(256 + gfx_bits(w, 32, 8));
	field['b'] = (uint16_t)(256 + gfx_bits(w, 55, 8));
	field['a'] = (uint16_t)(256 + (in->word[2] & 255));
	field['S'] = (uint16_t)gfx_bits(w, 0, 7);
	in->imm = (int32_t)in->word[2] >> 8;
	in->scope = (uint8_t)gfx_bits(w, 50, 2);
	in->hint = (uint8_t)gfx_bits(w, 52, 3);
	in->segment = (uint8_t)gfx_bits(w, 24, 2);
	in->has_saddr = in->segment && field['S'] != 124;
	in->off = in->segment == 1 && !gfx_bits(w, 49, 1);
	/* What passes by all caches elsewhere; of atomics, whether they return. */
	in->glc = op && op->code >= 0x33 ? in->hint & 1 : in->scope == 3;
	in->slc = in->dlc = in->scope == 3;
	return in->segment == 3 ? NULL : op;
}

const struct gfx_op *gfx_decode_fields12(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	switch ((uint32_t)w >> 26) {
	case 0x3d:
		return decode_smem(in, w, field);
	case 0x3b:
		return decode_flat(in, w, field);
	default:
		return NULL;
	}
}
