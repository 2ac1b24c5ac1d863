/* SPDX-License-Identifier: MIT */
/* Machine words of gfx1100 to struct gfx_inst: formats and fields of the RDNA3 ISA, opcodes from ops.def. */
#include "gfx/gfx.h"

#include <stdio.h>
#include <string.h>

static const struct gfx_op ops[] = {
#define OP(format, code, name, spec) { F_##format, code, OP_##name, #name, #spec },
#include "ops.def"
#undef OP
};

static const struct gfx_op *by_code[F_COUNT][1024];
static struct gfx_op comparisons[256];
static char comparison_names[256][24];

const struct gfx_op *gfx_op_table(unsigned *count)
{
	*count = sizeof(ops) / sizeof(ops[0]);
	return ops;
}

/* Comparisons: opcode bits 2:0 (3:0 for floats) are the condition, those above the type, bit 7 writes EXEC instead of VCC. */
static void name_comparisons(void)
{
	static const char *const integer[] = { "f", "lt", "eq", "le", "gt", "ne", "ge", "t" };
	static const char *const real[] = { "f", "lt", "eq", "le", "gt", "lg", "ge", "o",
					    "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "t" };
	static const char *const type[] = { NULL, NULL, "f32", "f32", NULL, NULL, "i16", "u16", "i32", "u32", "i64", "u64" };
	static const char *const specs[] = { "k1ahbh", "k1a1b1", "k1a2b2", "ahbh", "a1b1", "a2b2" };
	unsigned code, low;

	for (code = 0; code < 256; code++) {
		low = code & 0x7f;
		if (low / 8 >= 12 || !type[low / 8] || ((low / 8 == 6 || low / 8 == 7) && (low % 8 == 0 || low % 8 == 7)))
			continue;
		snprintf(comparison_names[code], sizeof(comparison_names[code]), "v_cmp%s_%s_%s", code & 0x80 ? "x" : "",
			 low < 0x20 ? real[low & 15] : integer[low & 7], type[low / 8]);
		comparisons[code] = (struct gfx_op){ F_VOPC, (uint16_t)code, OP_v_cmp, comparison_names[code],
						     specs[(code & 0x80 ? 3 : 0) + (low / 8 >= 10 ? 2 : low / 8 / 2 != 3)] };
		by_code[F_VOPC][code] = &comparisons[code];
	}
}

static const struct gfx_op *lookup(unsigned format, unsigned code)
{
	static bool filled;
	unsigned i;

	if (!filled) {
		for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
			by_code[ops[i].format][ops[i].code] = &ops[i];
		name_comparisons();
		filled = true;
	}
	return code < 1024 ? by_code[format][code] : NULL;
}

static uint32_t bits(uint64_t v, unsigned low, unsigned count)
{
	return (uint32_t)(v >> low) & ((1u << count) - 1);
}

struct gfx_arg gfx_operand(const char *spec, unsigned code)
{
	bool half = spec[1] == 'h' || spec[1] == 'H';

	return (struct gfx_arg){ spec[0], (uint8_t)(half ? 1 : spec[1] == 'g' ? 16 : spec[1] - '0'),
				 spec[1] == 'H' ? P_HIGH : half ? P_LOW : P_ALL, (uint16_t)code };
}

/* Operands by the letters of `spec`; field[letter] is what the encoding says. VOP3 forms name VCC's replacement. */
static void operands(struct gfx_half *h, const struct gfx_op *op, const uint16_t *field, bool e64)
{
	const char *spec = op->spec;
	unsigned i = 0;

	h->op = op;
	for (; spec[0] && spec[0] != 'n'; spec += 2, i++) {
		char role = spec[0];
		uint16_t code;

		if (role == 'k' && e64)
			role = i == 0 ? 's' : spec[2] ? 't' : 'c';
		code = role == 'k' ? 106 : field[(unsigned char)role];
		h->arg[i] = gfx_operand(spec, code);
		h->arg[i].role = role;
	}
	h->count = (uint8_t)i;
}

/* Which half of a register: short forms say so in the register's number, long ones in OP_SEL, whose bit 3 is the destination's. */
static bool choose_halves(struct gfx_inst *in)
{
	unsigned i, bit, rest = in->opsel;

	for (i = 0; i < in->x.count; i++) {
		struct gfx_arg *a = &in->x.arg[i];

		if (a->part != P_LOW)
			continue;
		bit = a->role == 'd' ? 8 : 1u << (a->role - 'a');
		if (!in->e64 && in->format != F_VOP3 && a->code >= 384) {
			a->code -= 128;
			a->part = P_HIGH;
		} else if (rest & bit) {
			a->part = P_HIGH;
		}
		rest &= ~bit;
	}
	return !rest;
}

static bool wants_literal(const struct gfx_half *h)
{
	unsigned i;

	for (i = 0; i < h->count; i++)
		if (h->arg[i].code == 255 && strchr("abcL", h->arg[i].role))
			return true;
	return false;
}

/* Source fields 233, 234 and 250 announce DPP, 249 SDWA. */
static bool unsupported_source(const struct gfx_half *h)
{
	unsigned i;

	for (i = 0; i < h->count; i++)
		if (strchr("abc", h->arg[i].role) && (h->arg[i].code == 233 || h->arg[i].code == 234 || h->arg[i].code == 249 ||
						      h->arg[i].code == 250))
			return true;
	return false;
}

static const struct gfx_op *decode_scalar(struct gfx_inst *in, uint32_t w, uint16_t *field)
{
	field['d'] = (uint16_t)bits(w, 16, 7);
	field['a'] = (uint16_t)bits(w, 0, 8);
	field['b'] = (uint16_t)bits(w, 8, 8);
	in->imm = (int16_t)w;
	if (w >> 23 == 0x17d)
		return lookup(in->format = F_SOP1, bits(w, 8, 8));
	if (w >> 23 == 0x17e)
		return lookup(in->format = F_SOPC, bits(w, 16, 7));
	if (w >> 23 == 0x17f)
		return lookup(in->format = F_SOPP, bits(w, 16, 7));
	if (w >> 28 == 0xb)
		return lookup(in->format = F_SOPK, bits(w, 23, 5));
	return lookup(in->format = F_SOP2, bits(w, 23, 7));
}

static const struct gfx_op *decode_vop(struct gfx_inst *in, uint32_t w, uint16_t *field)
{
	field['d'] = (uint16_t)(256 + bits(w, 17, 8));
	field['s'] = (uint16_t)bits(w, 17, 8);
	field['L'] = 255;
	field['a'] = (uint16_t)bits(w, 0, 9);
	field['b'] = (uint16_t)(256 + bits(w, 9, 8));
	if (w >> 25 == 0x3f)
		return lookup(in->format = F_VOP1, bits(w, 9, 8));
	if (w >> 25 == 0x3e)
		return lookup(in->format = F_VOPC, bits(w, 17, 8));
	return lookup(in->format = F_VOP2, bits(w, 25, 6));
}

static const struct gfx_op *decode_vop3(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	unsigned code = bits(w, 16, 10);

	field['d'] = (uint16_t)(256 + bits(w, 0, 8));
	field['s'] = (uint16_t)bits(w, 0, 8);
	field['t'] = (uint16_t)bits(w, 8, 7);
	field['a'] = (uint16_t)bits(w, 32, 9);
	field['b'] = (uint16_t)bits(w, 41, 9);
	field['c'] = (uint16_t)bits(w, 50, 9);
	in->clamp = bits(w, 15, 1);
	in->omod = (uint8_t)bits(w, 59, 2);
	in->neg = (uint8_t)bits(w, 61, 3);
	in->e64 = code < 0x200;
	in->format = code < 0x100 ? F_VOPC : code < 0x180 ? F_VOP2 : code < 0x200 ? F_VOP1 : F_VOP3;
	return lookup(in->format, code < 0x100 ? code : code < 0x180 ? code - 0x100 : code < 0x200 ? code - 0x180 : code);
}

/* The halves of a dual instruction number their opcodes anew. */
static const struct gfx_op *dual_op(unsigned code)
{
	static const uint8_t vop2[] = { 0x2b, 0x2d, 0x2c, 0x08, 0x03, 0x04, 0x05, 0, 0, 0x01, 0x10, 0x0f, 0, 0, 0, 0, 0x25, 0x18, 0x1b };

	if (code == 8)
		return lookup(F_VOP1, 1);
	return code < sizeof(vop2) && vop2[code] ? lookup(F_VOP2, vop2[code]) : NULL;
}

static const struct gfx_op *decode_dual(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	const struct gfx_op *x = dual_op(bits(w, 22, 4)), *y = dual_op(bits(w, 17, 5));

	in->format = F_VOPD;
	if (!x || !y)
		return NULL;
	field['L'] = 255;
	field['d'] = (uint16_t)(256 + (bits(w, 49, 7) << 1 | !bits(w, 56, 1)));
	field['a'] = (uint16_t)bits(w, 32, 9);
	field['b'] = (uint16_t)(256 + bits(w, 41, 8));
	operands(&in->y, y, field, false);
	field['d'] = (uint16_t)(256 + bits(w, 56, 8));
	field['a'] = (uint16_t)bits(w, 0, 9);
	field['b'] = (uint16_t)(256 + bits(w, 9, 8));
	return x;
}

static const struct gfx_op *decode_memory(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	field['d'] = (uint16_t)(256 + bits(w, 56, 8));
	field['a'] = (uint16_t)(256 + bits(w, 32, 8));
	field['b'] = (uint16_t)(256 + bits(w, 40, 8));
	field['c'] = (uint16_t)(256 + bits(w, 48, 8));
	if (w << 32 >> 58 == 0x36) {
		in->imm = (int32_t)bits(w, 0, 16);
		return bits(w, 17, 1) ? NULL : lookup(in->format = F_DS, bits(w, 18, 8));
	}
	in->glc = bits(w, 14, 1);
	if (w << 32 >> 58 == 0x38)
		return lookup(in->format = F_MUBUF, bits(w, 18, 8));
	in->slc = bits(w, 15, 1);
	in->dlc = bits(w, 13, 1);
	in->segment = (uint8_t)bits(w, 16, 2);
	in->imm = (int32_t)(bits(w, 0, 13) << 19) >> 19;
	field['S'] = (uint16_t)bits(w, 48, 7);
	in->has_saddr = in->segment && field['S'] != 124;
	in->off = in->segment == 1 && !bits(w, 55, 1);
	return in->segment == 3 ? NULL : lookup(in->format = F_FLAT, bits(w, 18, 7));
}

static const struct gfx_op *decode_smem(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	field['d'] = (uint16_t)bits(w, 6, 7);
	field['a'] = (uint16_t)(bits(w, 0, 6) * 2);
	field['S'] = (uint16_t)bits(w, 57, 7);
	in->dlc = bits(w, 13, 1);
	in->glc = bits(w, 14, 1);
	in->imm = (int32_t)(bits(w, 32, 21) << 11) >> 11;
	in->has_saddr = field['S'] != 124;
	return lookup(in->format = F_SMEM, bits(w, 18, 8));
}

/* An address in scalar registers makes the vector operand a 32-bit offset; atomics return only with GLC. */
static void adjust_flat(struct gfx_inst *in, const uint16_t *field)
{
	struct gfx_half *h = &in->x;
	unsigned i;

	for (i = 0; i < h->count; i++)
		if (h->arg[i].role == 'a' && (in->has_saddr || in->segment == 1))
			h->arg[i].width = 1;
	if (h->op->code >= 0x33 && !in->glc) {
		memmove(&h->arg[0], &h->arg[1], (h->count - 1u) * sizeof(h->arg[0]));
		h->count--;
	}
	if (in->has_saddr)
		h->arg[h->count++] = gfx_operand(in->segment == 1 ? "S1" : "S2", field['S']);
}

/* A short form whose first source comes from another lane: the operand and its modifiers stand in the second word. */
static void decode_dpp(struct gfx_inst *in, uint16_t *field)
{
	uint32_t w = in->word[1];

	in->dpp = true;
	field['a'] = (uint16_t)(256 + bits(w, 0, 8));
	in->neg = (uint8_t)(bits(w, 20, 1) | bits(w, 22, 1) << 1);
	in->abs = (uint8_t)(bits(w, 21, 1) | bits(w, 23, 1) << 1);
}

static unsigned base_length(uint32_t w)
{
	unsigned top = w >> 26;

	return top == 0x35 || top == 0x32 || top == 0x36 || top == 0x37 || top == 0x38 || top == 0x3d ? 8 : 4;
}

static const struct gfx_op *decode_fields(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	switch ((uint32_t)w >> 26) {
	case 0x35:
		in->opsel = (uint8_t)bits(w, 11, 4);
		in->abs = (uint8_t)bits(w, 8, 3);
		return decode_vop3(in, w, field);
	case 0x32:
		return decode_dual(in, w, field);
	case 0x3d:
		return decode_smem(in, w, field);
	case 0x36:
	case 0x37:
	case 0x38:
		return decode_memory(in, w, field);
	default:
		return (uint32_t)w >> 31 == 0 ? decode_vop(in, (uint32_t)w, field) :
		       (uint32_t)w >> 30 == 2 ? decode_scalar(in, (uint32_t)w, field) : NULL;
	}
}

void gfx_decode(struct gfx_inst *in, const uint8_t *at, uint64_t left, uint64_t addr)
{
	uint16_t field[128] = { 0 };
	const struct gfx_op *op;
	uint64_t w = 0;
	unsigned len;

	memset(in, 0, sizeof(*in));
	in->addr = addr;
	memcpy(in->word, at, left < 12 ? left : 12);
	len = base_length(in->word[0]);
	if (left < len)
		return;
	w = in->word[0] | (len == 8 ? (uint64_t)in->word[1] << 32 : 0);
	op = decode_fields(in, w, field);
	if (!op)
		return;
	if ((in->format == F_VOP1 || in->format == F_VOP2) && field['a'] == 250) {
		len = left < 8 ? 0 : 8;
		decode_dpp(in, field);
	}
	operands(&in->x, op, field, in->e64);
	if (in->e64 || in->format == F_VOP3) /* VOP3SD has the carry where others have these */
		for (unsigned i = 0; i < in->x.count; i++)
			if (in->x.arg[i].role == 't')
				in->abs = in->opsel = 0;
	if (in->format >= F_VOP1 && in->format <= F_VOP3 && !choose_halves(in))
		return;
	if (in->format == F_VOPC)
		in->vopc = (uint8_t)op->code;
	if (in->format == F_FLAT)
		adjust_flat(in, field);
	if (in->format == F_SMEM && in->has_saddr)
		in->x.arg[in->x.count++] = gfx_operand("S1", field['S']);
	if (in->format <= F_VOPD && (unsupported_source(&in->x) || unsupported_source(&in->y)))
		return;
	if (in->format <= F_VOPD && (wants_literal(&in->x) || wants_literal(&in->y))) {
		if (left < len + 4)
			return;
		in->literal = in->word[len / 4];
		len += 4;
	}
	in->len = (uint8_t)len;
}
