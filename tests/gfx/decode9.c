/* SPDX-License-Identifier: MIT */
/* What gfx942 encodes in its own way: fields of the CDNA3 ISA, opcodes from ops9.def. */
#include "gfx/decode.h"

#include <string.h>

unsigned gfx_length9(uint32_t w)
{
	unsigned top = w >> 26;

	return top == 0x30 || top == 0x34 || top == 0x36 || top == 0x37 || top == 0x38 ? 8 : 4;
}

static const struct gfx_op *decode_smem(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	bool immediate = gfx_bits(w, 17, 1), more = gfx_bits(w, 14, 1);

	field['d'] = (uint16_t)gfx_bits(w, 6, 7);
	field['a'] = (uint16_t)(gfx_bits(w, 0, 6) * 2);
	field['S'] = (uint16_t)gfx_bits(w, more ? 57 : 32, 7);
	in->glc = gfx_bits(w, 16, 1);
	in->imm = immediate ? (int32_t)(gfx_bits(w, 32, 21) << 11) >> 11 : 0;
	in->has_saddr = more || !immediate;
	return gfx_lookup(ISA_9, in->format = F_SMEM, gfx_bits(w, 18, 8));
}

static const struct gfx_op *decode_memory(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	unsigned top = (uint32_t)w >> 26;
	const struct gfx_op *op;

	field['d'] = (uint16_t)(256 + gfx_bits(w, 56, 8));
	field['a'] = (uint16_t)(256 + gfx_bits(w, 32, 8));
	field['b'] = (uint16_t)(256 + gfx_bits(w, 40, 8));
	field['c'] = (uint16_t)(256 + gfx_bits(w, 48, 8));
	if (top == 0x36) {
		in->imm = (int32_t)gfx_bits(w, 0, 16);
		op = gfx_lookup(ISA_9, in->format = F_DS, gfx_bits(w, 17, 8));
		if (op && strstr(op->text, "_cmpst_")) { /* what is compared comes first */
			field['b'] = (uint16_t)(256 + gfx_bits(w, 48, 8));
			field['c'] = (uint16_t)(256 + gfx_bits(w, 40, 8));
		}
		return gfx_bits(w, 25, 1) || gfx_bits(w, 16, 1) ? NULL : op;
	}
	in->slc = gfx_bits(w, 17, 1); /* nt */
	if (top == 0x38) {
		in->glc = gfx_bits(w, 14, 1); /* sc0 */
		in->dlc = gfx_bits(w, 15, 1); /* sc1 */
		return gfx_lookup(ISA_9, in->format = F_MUBUF, gfx_bits(w, 18, 7));
	}
	in->glc = gfx_bits(w, 16, 1);
	in->dlc = gfx_bits(w, 25, 1);
	in->segment = (uint8_t)gfx_bits(w, 14, 2);
	in->imm = in->segment ? (int32_t)(gfx_bits(w, 0, 13) << 19) >> 19 : (int32_t)gfx_bits(w, 0, 12);
	field['S'] = (uint16_t)gfx_bits(w, 48, 7);
	in->has_saddr = in->segment && field['S'] != 127;
	in->off = in->segment == 1 && !gfx_bits(w, 13, 1);
	in->acc = gfx_bits(w, 55, 1);
	op = gfx_lookup(ISA_9, in->format = F_FLAT, gfx_bits(w, 18, 7));
	return in->segment == 3 || (in->acc && op && op->code >= 0x33) ? NULL : op; /* no atomics with such data */
}

/* Sources of two dwords, whose halves OP_SEL (low result) and OP_SEL_HI (high result) choose. */
static const struct gfx_op *decode_packed(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	const struct gfx_op *op = gfx_lookup(ISA_9, in->format = F_VOP3P, gfx_bits(w, 16, 7));

	field['d'] = (uint16_t)(256 + gfx_bits(w, 0, 8));
	field['a'] = (uint16_t)gfx_bits(w, 32, 9);
	field['b'] = (uint16_t)gfx_bits(w, 41, 9);
	field['c'] = (uint16_t)gfx_bits(w, 50, 9);
	in->opsel = (uint8_t)gfx_bits(w, 11, 3);
	in->opsel_hi = (uint8_t)(gfx_bits(w, 59, 2) | gfx_bits(w, 14, 1) << 2);
	return gfx_bits(w, 8, 3) || gfx_bits(w, 15, 1) || gfx_bits(w, 61, 3) ? NULL : op;
}

const struct gfx_op *gfx_decode_fields9(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	switch ((uint32_t)w >> 26) {
	case 0x34:
		return (uint32_t)w >> 23 == 0x1a7 ? decode_packed(in, w, field) : gfx_decode_vop3(ISA_9, in, w, field);
	case 0x30:
		return decode_smem(in, w, field);
	case 0x36:
	case 0x37:
	case 0x38:
		return decode_memory(in, w, field);
	default:
		return (uint32_t)w >> 31 == 0 ? gfx_decode_vop(ISA_9, in, (uint32_t)w, field) :
		       (uint32_t)w >> 30 == 2 ? gfx_decode_scalar(ISA_9, in, (uint32_t)w, field) : NULL;
	}
}

/* Which part of a source or of the destination counts, and what becomes of the rest. */
void gfx_decode_sdwa(struct gfx_inst *in, uint16_t *field)
{
	uint32_t w = in->word[1];
	unsigned scalar = in->format == F_VOPC;

	in->sdwa = true;
	in->sel[0] = (uint8_t)gfx_bits(w, 16, 3);
	in->sel[1] = (uint8_t)gfx_bits(w, 24, 3);
	in->sel[2] = (uint8_t)(scalar ? 6 : gfx_bits(w, 8, 3));
	in->unused = (uint8_t)(scalar ? 0 : gfx_bits(w, 11, 2));
	in->sext = (uint8_t)(gfx_bits(w, 19, 1) | gfx_bits(w, 27, 1) << 1);
	in->neg = (uint8_t)(gfx_bits(w, 20, 1) | gfx_bits(w, 28, 1) << 1);
	in->abs = (uint8_t)(gfx_bits(w, 21, 1) | gfx_bits(w, 29, 1) << 1);
	in->clamp = !scalar && gfx_bits(w, 13, 1);
	field['a'] = (uint16_t)(gfx_bits(w, 0, 8) + (gfx_bits(w, 23, 1) ? 0 : 256));
	if (gfx_bits(w, 31, 1))
		field['b'] = (uint16_t)(field['b'] - 256);
	if (scalar && gfx_bits(w, 15, 1)) {
		in->e64 = true;
		field['s'] = (uint16_t)gfx_bits(w, 8, 7);
	}
}
