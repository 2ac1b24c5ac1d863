/* SPDX-License-Identifier: MIT */
/* Machine words to struct gfx_inst: formats and fields of the RDNA3 ISA and what others share with it; opcodes from the tables ops*.def. */
#include "gfx/decode.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (unsigned)(sizeof(array) / sizeof((array)[0]))

static struct gfx_op ops11[] = {
#define OP(format, code, name, spec) { F_##format, code, OP_##name, #name, #spec, #name, false, false },
#include "ops.def"
#undef OP
};

#define SAME(format, code, name, spec, as) { F_##format, code, OP_##as, NULL, #spec, #name, false, false },
#define NEW(format, code, name, spec) { F_##format, code, OP_##name, #name, #spec, #name, false, false },
#define GONE(format, code)
static struct gfx_op ops9[] = {
#include "ops9.def"
};

static struct gfx_op ops12[] = {
#include "ops12.def"
};
#undef SAME
#undef NEW
#undef GONE

/* What gfx12 has no more of gfx11's. */
static const struct gfx_op gone12[] = {
#define SAME(format, code, name, spec, as)
#define NEW(format, code, name, spec)
#define GONE(format, code) { F_##format, code, OP_none, NULL, NULL, NULL, false, false },
#include "ops12.def"
#undef SAME
#undef NEW
#undef GONE
};

static const struct gfx_op *by_code[ISA_COUNT][F_COUNT][1024];
static struct gfx_op comparisons[256];
static char comparison_names[256][24];

/* Comparisons: opcode bits 2:0 (3:0 for floats) are the condition, those above the type, bit 7 writes EXEC instead of VCC. */
static void name_comparisons(void)
{
	static const char *const integer[] = { "f", "lt", "eq", "le", "gt", "ne", "ge", "t" };
	static const char *const real[] = { "f", "lt", "eq", "le", "gt", "lg", "ge", "o",
					    "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "t" };
	static const char *const type[] = { NULL, NULL, "f32", "f32", NULL, NULL, "i16", "u16", "i32", "u32", "i64", "u64" };
	static const uint8_t code9[] = { 0, 0, 0x40, 0x48, 0, 0, 0xa0, 0xa8, 0xc0, 0xc8, 0xe0, 0xe8 };
	static const char *const specs[] = { "kmahbh", "kma1b1", "kma2b2", "ahbh", "a1b1", "a2b2" };
	unsigned code, low;

	for (code = 0; code < 256; code++) {
		low = code & 0x7f;
		if (low / 8 >= 12 || !type[low / 8] || ((low / 8 == 6 || low / 8 == 7) && (low % 8 == 0 || low % 8 == 7)))
			continue;
		snprintf(comparison_names[code], sizeof(comparison_names[code]), "v_cmp%s_%s_%s", code & 0x80 ? "x" : "",
			 low < 0x20 ? real[low & 15] : integer[low & 7], type[low / 8]);
		comparisons[code] = (struct gfx_op){ F_VOPC, (uint16_t)code, OP_v_cmp, comparison_names[code],
						     specs[(code & 0x80 ? 3 : 0) + (low / 8 >= 10 ? 2 : low / 8 / 2 != 3)],
						     comparison_names[code], low < 0x20, false };
		by_code[ISA_11][F_VOPC][code] = by_code[ISA_12][F_VOPC][code] = &comparisons[code];
		if (!(code & 0x80)) /* there they write EXEC besides, and no compiler uses them */
			by_code[ISA_9][F_VOPC][code9[low / 8] | (low & 7)] = &comparisons[code];
	}
}

static void mark(struct gfx_op *op)
{
	op->real = strstr(op->name, "_f32") != NULL;
	op->saves = strstr(op->name, "_saveexec_") != NULL;
}

/* What ops9.def or ops12.def says an instruction is the same as. */
static void adopt(struct gfx_op *op)
{
	const struct gfx_op *as;

	for (as = ops11; !op->name; as++)
		if (as->id == op->id) {
			op->name = as->name;
			op->code = as->code;
		}
}

static void add_set(enum gfx_isa isa, struct gfx_op *op, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		by_code[isa][op[i].format][op[i].code] = &op[i];
		adopt(&op[i]);
		mark(&op[i]);
	}
}

static void fill(void)
{
	static bool filled;
	unsigned i;

	if (filled)
		return;
	for (i = 0; i < COUNT(ops11); i++) {
		mark(&ops11[i]);
		by_code[ISA_11][ops11[i].format][ops11[i].code] = &ops11[i];
		by_code[ISA_12][ops11[i].format][ops11[i].code] = ops11[i].format == F_MUBUF ? NULL : &ops11[i];
	}
	for (i = 0; i < COUNT(gone12); i++)
		by_code[ISA_12][gone12[i].format][gone12[i].code] = NULL;
	add_set(ISA_9, ops9, COUNT(ops9));
	add_set(ISA_12, ops12, COUNT(ops12));
	name_comparisons();
	filled = true;
}

const struct gfx_op *gfx_op_table(enum gfx_isa isa, unsigned *count)
{
	fill();
	*count = isa == ISA_9 ? COUNT(ops9) : isa == ISA_12 ? COUNT(ops12) : COUNT(ops11);
	return isa == ISA_9 ? ops9 : isa == ISA_12 ? ops12 : ops11;
}

const struct gfx_op *gfx_lookup(enum gfx_isa isa, unsigned format, unsigned code)
{
	fill();
	return code < 1024 ? by_code[isa][format][code] : NULL;
}

struct gfx_arg gfx_operand(const char *spec, unsigned code, unsigned lanes)
{
	bool half = spec[1] == 'h' || spec[1] == 'H';
	unsigned width = half || spec[1] == 'z' ? 1 : spec[1] == 'g' ? 16 : spec[1] == 'm' ? lanes / 32 : (unsigned)(spec[1] - '0');

	return (struct gfx_arg){ spec[0], (uint8_t)width, spec[1] == 'H' ? P_HIGH : half ? P_LOW : P_ALL, (uint16_t)code };
}

/* Operands by the letters of `spec`; field[letter] is what the encoding says. VOP3 forms name VCC's replacement. */
static void operands(struct gfx_half *h, const struct gfx_op *op, const uint16_t *field, bool e64, unsigned lanes)
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
		h->arg[i] = gfx_operand(spec, code, lanes);
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
		if (in->isa != ISA_9 && !in->e64 && in->format != F_VOP3 && a->code >= 384) {
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

const struct gfx_op *gfx_decode_scalar(enum gfx_isa isa, struct gfx_inst *in, uint32_t w, uint16_t *field)
{
	field['d'] = (uint16_t)gfx_bits(w, 16, 7);
	field['a'] = (uint16_t)gfx_bits(w, 0, 8);
	field['b'] = (uint16_t)gfx_bits(w, 8, 8);
	field['L'] = 255;
	in->imm = (int16_t)w;
	if (w >> 23 == 0x17d)
		return gfx_lookup(isa, in->format = F_SOP1, gfx_bits(w, 8, 8));
	if (w >> 23 == 0x17e)
		return gfx_lookup(isa, in->format = F_SOPC, gfx_bits(w, 16, 7));
	if (w >> 23 == 0x17f)
		return gfx_lookup(isa, in->format = F_SOPP, gfx_bits(w, 16, 7));
	if (w >> 28 == 0xb)
		return gfx_lookup(isa, in->format = F_SOPK, gfx_bits(w, 23, 5));
	return gfx_lookup(isa, in->format = F_SOP2, gfx_bits(w, 23, 7));
}

const struct gfx_op *gfx_decode_vop(enum gfx_isa isa, struct gfx_inst *in, uint32_t w, uint16_t *field)
{
	field['d'] = (uint16_t)(256 + gfx_bits(w, 17, 8));
	field['s'] = (uint16_t)gfx_bits(w, 17, 8);
	field['L'] = 255;
	field['a'] = (uint16_t)gfx_bits(w, 0, 9);
	field['b'] = (uint16_t)(256 + gfx_bits(w, 9, 8));
	if (w >> 25 == 0x3f)
		return gfx_lookup(isa, in->format = F_VOP1, gfx_bits(w, 9, 8));
	if (w >> 25 == 0x3e)
		return gfx_lookup(isa, in->format = F_VOPC, gfx_bits(w, 17, 8));
	return gfx_lookup(isa, in->format = F_VOP2, gfx_bits(w, 25, 6));
}

const struct gfx_op *gfx_decode_vop3(enum gfx_isa isa, struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	unsigned code = gfx_bits(w, 16, 10), one = isa == ISA_9 ? 0x140 : 0x180, more = isa == ISA_9 ? 0x1c0 : 0x200;

	field['d'] = (uint16_t)(256 + gfx_bits(w, 0, 8));
	field['s'] = (uint16_t)gfx_bits(w, 0, 8);
	field['t'] = (uint16_t)gfx_bits(w, 8, 7);
	field['a'] = (uint16_t)gfx_bits(w, 32, 9);
	field['b'] = (uint16_t)gfx_bits(w, 41, 9);
	field['c'] = (uint16_t)gfx_bits(w, 50, 9);
	in->clamp = gfx_bits(w, 15, 1);
	in->omod = (uint8_t)gfx_bits(w, 59, 2);
	in->neg = (uint8_t)gfx_bits(w, 61, 3);
	in->opsel = (uint8_t)gfx_bits(w, 11, 4);
	in->abs = (uint8_t)gfx_bits(w, 8, 3);
	in->e64 = code < more;
	in->format = code < 0x100 ? F_VOPC : code < one ? F_VOP2 : code < more ? F_VOP1 : F_VOP3;
	return gfx_lookup(isa, in->format, code < 0x100 ? code : code < one ? code - 0x100 : code < more ? code - one : code);
}

/* The halves of a dual instruction number their opcodes anew. */
static const struct gfx_op *dual_op(enum gfx_isa isa, unsigned code)
{
	static const uint8_t vop2[] = { 0x2b, 0x2d, 0x2c, 0x08, 0x03, 0x04, 0x05, 0, 0, 0x01, 0x10, 0x0f, 0, 0, 0, 0, 0x25, 0x18, 0x1b };

	if (code == 8)
		return gfx_lookup(isa, F_VOP1, 1);
	if (isa == ISA_12 && (code == 10 || code == 11)) /* max and min */
		return gfx_lookup(isa, F_VOP2, code == 10 ? 0x16 : 0x15);
	return code < sizeof(vop2) && vop2[code] ? gfx_lookup(isa, F_VOP2, vop2[code]) : NULL;
}

static const struct gfx_op *decode_dual(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	const struct gfx_op *x = dual_op(in->isa, gfx_bits(w, 22, 4)), *y = dual_op(in->isa, gfx_bits(w, 17, 5));

	in->format = F_VOPD;
	if (!x || !y)
		return NULL;
	field['L'] = 255;
	field['d'] = (uint16_t)(256 + (gfx_bits(w, 49, 7) << 1 | !gfx_bits(w, 56, 1)));
	field['a'] = (uint16_t)gfx_bits(w, 32, 9);
	field['b'] = (uint16_t)(256 + gfx_bits(w, 41, 8));
	operands(&in->y, y, field, false, 32);
	field['d'] = (uint16_t)(256 + gfx_bits(w, 56, 8));
	field['a'] = (uint16_t)gfx_bits(w, 0, 9);
	field['b'] = (uint16_t)(256 + gfx_bits(w, 9, 8));
	return x;
}

static const struct gfx_op *decode_memory(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	field['d'] = (uint16_t)(256 + gfx_bits(w, 56, 8));
	field['a'] = (uint16_t)(256 + gfx_bits(w, 32, 8));
	field['b'] = (uint16_t)(256 + gfx_bits(w, 40, 8));
	field['c'] = (uint16_t)(256 + gfx_bits(w, 48, 8));
	if (w << 32 >> 58 == 0x36) {
		in->imm = (int32_t)gfx_bits(w, 0, 16);
		return gfx_bits(w, 17, 1) ? NULL : gfx_lookup(in->isa, in->format = F_DS, gfx_bits(w, 18, 8));
	}
	in->glc = gfx_bits(w, 14, 1);
	if (w << 32 >> 58 == 0x38)
		return gfx_lookup(ISA_11, in->format = F_MUBUF, gfx_bits(w, 18, 8));
	in->slc = gfx_bits(w, 15, 1);
	in->dlc = gfx_bits(w, 13, 1);
	in->segment = (uint8_t)gfx_bits(w, 16, 2);
	in->imm = (int32_t)(gfx_bits(w, 0, 13) << 19) >> 19;
	field['S'] = (uint16_t)gfx_bits(w, 48, 7);
	in->has_saddr = in->segment && field['S'] != 124;
	in->off = in->segment == 1 && !gfx_bits(w, 55, 1);
	return in->segment == 3 ? NULL : gfx_lookup(ISA_11, in->format = F_FLAT, gfx_bits(w, 18, 7));
}

static const struct gfx_op *decode_smem(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	field['d'] = (uint16_t)gfx_bits(w, 6, 7);
	field['a'] = (uint16_t)(gfx_bits(w, 0, 6) * 2);
	field['S'] = (uint16_t)gfx_bits(w, 57, 7);
	in->dlc = gfx_bits(w, 13, 1);
	in->glc = gfx_bits(w, 14, 1);
	in->imm = (int32_t)(gfx_bits(w, 32, 21) << 11) >> 11;
	in->has_saddr = field['S'] != 124;
	return gfx_lookup(ISA_11, in->format = F_SMEM, gfx_bits(w, 18, 8));
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
		h->arg[h->count++] = gfx_operand(in->segment == 1 ? "S1" : "S2", field['S'], 0);
}

/* A short form whose first source comes from another lane: the operand and its modifiers stand in the second word. */
static void decode_dpp(struct gfx_inst *in, uint16_t *field)
{
	uint32_t w = in->word[1];

	in->dpp = true;
	field['a'] = (uint16_t)(256 + gfx_bits(w, 0, 8));
	in->neg = (uint8_t)(gfx_bits(w, 20, 1) | gfx_bits(w, 22, 1) << 1);
	in->abs = (uint8_t)(gfx_bits(w, 21, 1) | gfx_bits(w, 23, 1) << 1);
}

static unsigned base_length(enum gfx_isa isa, uint32_t w)
{
	unsigned top = w >> 26;

	if (isa == ISA_9)
		return gfx_length9(w);
	if (isa == ISA_12 && gfx_length12(w))
		return gfx_length12(w);
	return top == 0x35 || top == 0x32 || top == 0x36 || top == 0x37 || top == 0x38 || top == 0x3d ? 8 : 4;
}

static const struct gfx_op *decode_fields(struct gfx_inst *in, uint64_t w, uint16_t *field)
{
	if (in->isa == ISA_9)
		return gfx_decode_fields9(in, w, field);
	switch ((uint32_t)w >> 26) {
	case 0x35:
		return gfx_decode_vop3(in->isa, in, w, field);
	case 0x32:
		return decode_dual(in, w, field);
	case 0x36:
		return decode_memory(in, w, field);
	case 0x37:
	case 0x38:
		return in->isa == ISA_12 ? NULL : decode_memory(in, w, field);
	case 0x3b:
	case 0x3d:
		return in->isa == ISA_12 ? gfx_decode_fields12(in, w, field) : decode_smem(in, w, field);
	default:
		return (uint32_t)w >> 31 == 0 ? gfx_decode_vop(in->isa, in, (uint32_t)w, field) :
		       (uint32_t)w >> 30 == 2 ? gfx_decode_scalar(in->isa, in, (uint32_t)w, field) : NULL;
	}
}

/* A second word after a short form, which says more of its sources. */
static void decode_extension(struct gfx_inst *in, uint16_t *field, uint64_t left, unsigned *len)
{
	bool sdwa = in->isa == ISA_9 && field['a'] == 249, dpp = field['a'] == 250 && in->format != F_VOPC;

	if (in->format < F_VOP1 || in->format > F_VOPC || in->e64 || !(sdwa || dpp))
		return;
	*len = left < 8 ? 0 : 8;
	if (sdwa)
		gfx_decode_sdwa(in, field);
	else
		decode_dpp(in, field);
}

/* gfx942 numbers M0 as others number the null register, which it lacks. */
static void rename_m0(struct gfx_half *h)
{
	unsigned i;

	for (i = 0; i < h->count; i++)
		if (h->arg[i].code == 124)
			h->arg[i].code = 125;
}

void gfx_decode(const struct gfx_code *code, uint64_t at, struct gfx_inst *in)
{
	const uint8_t *from = code->image + code->text + at;
	uint16_t field[128] = { 0 };
	uint64_t left = code->text_size - at, w = 0;
	const struct gfx_op *op;
	unsigned len;

	memset(in, 0, sizeof(*in));
	in->addr = code->text + at;
	in->isa = (uint8_t)code->family->isa;
	memcpy(in->word, from, left < 12 ? left : 12);
	len = base_length(code->family->isa, in->word[0]);
	if (left < len)
		return;
	w = in->word[0] | (len >= 8 ? (uint64_t)in->word[1] << 32 : 0);
	op = decode_fields(in, w, field);
	if (!op)
		return;
	decode_extension(in, field, left, &len);
	operands(&in->x, op, field, in->e64, code->lanes);
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
	if (in->format == F_SMEM && in->has_saddr && in->x.count > 1)
		in->x.arg[in->x.count++] = gfx_operand("S1", field['S'], 0);
	if (in->isa == ISA_9)
		rename_m0(&in->x);
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
