/* SPDX-License-Identifier: MIT */
/* struct gfx_inst to assembler text, spelled as llvm-objdump spells it. */
#include "gfx/gfx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct buffer {
	char *at;
	size_t left;
};

static void put(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct buffer *b, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(b->at, b->left, format, ap);
	va_end(ap);
	if (n < 0 || !b->left)
		return;
	if ((size_t)n >= b->left)
		n = (int)b->left - 1;
	b->at += n;
	b->left -= (size_t)n;
}

static void put_range(struct buffer *b, const char *name, unsigned reg, unsigned width)
{
	if (width == 1)
		put(b, "%s%u", name, reg);
	else
		put(b, "%s[%u:%u]", name, reg, reg + width - 1);
}

static void put_operand(struct buffer *b, const struct gfx_inst *in, unsigned code, unsigned width)
{
	static const char *const reals[] = { "0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494" };

	if (code >= 256)
		put_range(b, "v", code - 256, width);
	else if (code < 106)
		put_range(b, "s", code, width);
	else if (code == 106 || code == 107)
		put(b, width == 2 ? "vcc" : code == 106 ? "vcc_lo" : "vcc_hi");
	else if (code < 124)
		put_range(b, "ttmp", code - 108, width);
	else if (code == 124 || code == 125)
		put(b, code == 124 ? "null" : "m0");
	else if (code == 126 || code == 127)
		put(b, width == 2 ? "exec" : code == 126 ? "exec_lo" : "exec_hi");
	else if (code <= 192)
		put(b, "%u", code - 128);
	else if (code <= 208)
		put(b, "-%u", code - 192);
	else if (code >= 240 && code <= 248)
		put(b, "%s", reals[code - 240]);
	else if (code == 255)
		put(b, "0x%x", in->literal);
	else
		put(b, "src_%u", code);
}

static void put_args(struct buffer *b, const struct gfx_inst *in, const struct gfx_half *h)
{
	unsigned i, source = 0;

	for (i = 0; i < h->count; i++) {
		const struct gfx_arg *a = &h->arg[i];
		bool is_source = a->role == 'a' || a->role == 'b' || a->role == 'c';
		bool neg = is_source && in->neg >> source & 1, abs = is_source && in->abs >> source & 1;

		if (in->format == F_VOPD && a->role == 'k')
			continue;
		put(b, i ? ", %s%s" : " %s%s", neg ? "-" : "", abs ? "|" : "");
		if (in->off && a->role == 'a')
			put(b, "off");
		else
			put_operand(b, in, a->code, a->width);
		put(b, "%s%s", !in->e64 && in->format <= F_VOPC && a->part == P_HIGH ? ".h" : "", abs ? "|" : "");
		source += is_source;
	}
}

static void put_delay(struct buffer *b, unsigned imm)
{
	static const char *const what[16] = { "NO_DEP", "VALU_DEP_1", "VALU_DEP_2", "VALU_DEP_3", "VALU_DEP_4", "TRANS32_DEP_1",
					      "TRANS32_DEP_2", "TRANS32_DEP_3", "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2",
					      "SALU_CYCLE_3", "12", "13", "14", "15" };
	static const char *const skip[8] = { "SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4", "6", "7" };
	const char *join = " ";

	if (imm & 15) {
		put(b, "%sinstid0(%s)", join, what[imm & 15]);
		join = " | ";
	}
	if (imm >> 4 & 7) {
		put(b, "%sinstskip(%s)", join, skip[imm >> 4 & 7]);
		join = " | ";
	}
	if (imm >> 7 & 15)
		put(b, "%sinstid1(%s)", join, what[imm >> 7 & 15]);
}

static void put_waitcnt(struct buffer *b, unsigned imm)
{
	unsigned vm = imm >> 10 & 63, lgkm = imm >> 4 & 63, exp = imm & 7;
	bool all = vm == 63 && lgkm == 63 && exp == 7;

	if (vm != 63 || all)
		put(b, " vmcnt(%u)", vm);
	if (exp != 7 || all)
		put(b, " expcnt(%u)", exp);
	if (lgkm != 63 || all)
		put(b, " lgkmcnt(%u)", lgkm);
}

static void put_sopp(struct buffer *b, const struct gfx_inst *in)
{
	unsigned imm = (uint16_t)in->imm;

	switch (in->x.op->id) {
	case OP_s_delay_alu:
		put_delay(b, imm);
		break;
	case OP_s_waitcnt:
		put_waitcnt(b, imm);
		break;
	case OP_s_sendmsg:
		put(b, imm == 3 ? " sendmsg(MSG_DEALLOC_VGPRS)" : " sendmsg(%u, 0, 0)", imm);
		break;
	case OP_s_endpgm:
	case OP_s_barrier:
		break;
	case OP_s_clause:
	case OP_s_set_inst_prefetch_distance:
	case OP_s_waitcnt_depctr:
		put(b, " 0x%x", imm);
		break;
	default:
		put(b, " %u", imm);
	}
}

static void put_bits(struct buffer *b, const struct gfx_inst *in)
{
	put(b, "%s%s%s", in->glc ? " glc" : "", in->slc ? " slc" : "", in->dlc ? " dlc" : "");
}

static void put_scalar(struct buffer *b, const struct gfx_inst *in)
{
	if (in->format == F_SOPP)
		put_sopp(b, in);
	else if (in->x.op->id == OP_s_waitcnt_vscnt)
		put(b, " null, 0x%x", (uint16_t)in->imm);
	else
		put_args(b, in, &in->x);
	if (in->format == F_SOPK && in->x.count)
		put(b, ", 0x%x", (uint16_t)in->imm);
	if (in->x.op->id == OP_s_sendmsg_rtn_b32 || in->x.op->id == OP_s_sendmsg_rtn_b64)
		put(b, (in->word[0] & 255) == 0x83 ? ", sendmsg(MSG_RTN_GET_REALTIME)" : ", sendmsg(%u, 0, 0)", in->word[0] & 255);
	if (in->format == F_SMEM) {
		if (!in->has_saddr)
			put(b, in->imm ? ", 0x%x" : ", null", (uint32_t)in->imm & 0x1fffff);
		else if (in->imm)
			put(b, " offset:0x%x", (uint32_t)in->imm & 0x1fffff);
		put_bits(b, in);
	}
}

static void put_memory(struct buffer *b, const struct gfx_inst *in)
{
	bool two = in->format == F_DS && strstr(in->x.op->name, "2addr");

	put_args(b, in, &in->x);
	if (in->format == F_FLAT && in->segment && !in->has_saddr)
		put(b, ", off");
	if (two) {
		if (in->imm & 255)
			put(b, " offset0:%d", in->imm & 255);
		if (in->imm >> 8)
			put(b, " offset1:%d", in->imm >> 8 & 255);
	} else if (in->imm) {
		put(b, " offset:%d", in->imm);
	}
	put_bits(b, in);
}

static void put_vector(struct buffer *b, const struct gfx_inst *in)
{
	static const char *const omod[] = { "", " mul:2", " mul:4", " div:2" };
	unsigned i, sources = 0;

	if (in->format != F_VOP3 && in->x.op->id != OP_v_readfirstlane_b32 && !strchr(in->x.op->spec, 'L'))
		put(b, in->dpp ? "_dpp" : in->e64 ? "_e64" : "_e32");
	put_args(b, in, &in->x);
	if (in->opsel) {
		for (i = 0; i < in->x.count; i++)
			sources += strchr("abc", in->x.arg[i].role) != NULL;
		put(b, " op_sel:[");
		for (i = 0; i < sources; i++)
			put(b, "%u,", in->opsel >> i & 1u);
		put(b, "%u]", in->opsel >> 3 & 1u);
	}
	put(b, "%s%s", in->clamp ? " clamp" : "", omod[in->omod]);
}

void gfx_text(const struct gfx_inst *in, char *out, size_t size)
{
	struct buffer b = { out, size };

	out[0] = 0;
	if (!in->len) {
		put(&b, "<unknown: %08x %08x %08x>", in->word[0], in->word[1], in->word[2]);
		return;
	}
	if (in->format == F_VOPD) {
		put(&b, "v_dual_%s", in->x.op->name + 2);
		put_args(&b, in, &in->x);
		put(&b, " :: v_dual_%s", in->y.op->name + 2);
		put_args(&b, in, &in->y);
		return;
	}
	put(&b, "%s%s", in->format != F_FLAT ? "" : in->segment == 2 ? "global_" : in->segment ? "scratch_" : "flat_", in->x.op->name);
	if (in->format == F_FLAT || in->format == F_DS || in->format == F_MUBUF)
		put_memory(&b, in);
	else if (in->format <= F_SMEM)
		put_scalar(&b, in);
	else
		put_vector(&b, in);
}
