/* SPDX-License-Identifier: MIT */
/* struct gfx_inst to assembler text, spelled as llvm-objdump spells it. */
#include "gfx/gfx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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
	else if (code < 102 || (in->isa != ISA_9 && code < 106))
		put_range(b, "s", code, width);
	else if (code == 106 || code == 107)
		put(b, width == 2 ? "vcc" : code == 106 ? "vcc_lo" : "vcc_hi");
	else if (code < 124)
		put_range(b, "ttmp", code - 108, width);
	else if (in->isa == ISA_9 && code >= 102 && code < 106)
		put(b, "%s%s", code < 104 ? "flat_scratch" : "xnack_mask", width == 2 ? "" : code & 1 ? "_hi" : "_lo");
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
	else if (code == 235 || code == 237)
		put(b, "src_%s_base", code == 235 ? "shared" : "private");
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
		bool neg = is_source && in->neg >> source & 1, abs = is_source && in->abs >> source & 1, sext;

		if (in->format == F_VOPD && a->role == 'k')
			continue;
		sext = is_source && in->sext >> source & 1;
		put(b, i ? ", %s%s%s" : " %s%s%s", neg ? "-" : "", abs ? "|" : "", sext ? "sext(" : "");
		if (a->role == (in->x.op->id == OP_v_accvgpr_write_b32 ? 'd' : in->x.op->id == OP_v_accvgpr_read_b32 ? 'a' : 0))
			put(b, "a%u", a->code & 255u);
		else if (in->acc && (a->role == 'd' || a->role == 'b'))
			put_range(b, "a", a->code & 255u, a->width);
		else if (in->off && a->role == 'a')
			put(b, "off");
		else
			put_operand(b, in, a->code, a->width);
		put(b, "%s%s", !in->e64 && in->isa != ISA_9 && in->format <= F_VOPC && a->part == P_HIGH ? ".h" : "", sext ? ")" : abs ? "|" : "");
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

static void put_waitcnt(struct buffer *b, const struct gfx_inst *in)
{
	unsigned imm = (uint16_t)in->imm, vm = gfx_wait_vm(in), lgkm = gfx_wait_lgkm(in), most = in->isa == ISA_9 ? 15 : 63;
	unsigned exp = in->isa == ISA_9 ? imm >> 4 & 7 : imm & 7;
	bool all = vm == 63 && lgkm == most && exp == 7;

	if (vm != 63 || all)
		put(b, " vmcnt(%u)", vm);
	if (exp != 7 || all)
		put(b, " expcnt(%u)", exp);
	if (lgkm != most || all)
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
		put_waitcnt(b, in);
		break;
	case OP_s_sendmsg:
		put(b, imm == 3 ? " sendmsg(MSG_DEALLOC_VGPRS)" : " sendmsg(%u, 0, 0)", imm);
		break;
	case OP_s_endpgm:
	case OP_s_barrier:
	case OP_s_set_gpr_idx_off:
		break;
	case OP_s_wait_idle:
		break;
	case OP_s_clause:
	case OP_s_set_inst_prefetch_distance:
		put(b, " 0x%x", imm);
		break;
	default:
		put(b, strstr(in->x.op->text, "_wait") ? " 0x%x" : " %u", imm);
	}
}

static void put_bits(struct buffer *b, const struct gfx_inst *in)
{
	static const char *const scope[] = { "", " scope:SCOPE_SE", " scope:SCOPE_DEV", " scope:SCOPE_SYS" };
	static const char *const hint[] = { "", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "7" };
	bool store = in->format == F_FLAT && !strncmp(in->x.op->text, "store", 5);

	if (in->isa == ISA_12 && in->format == F_FLAT && in->x.op->code >= 0x33)
		put(b, "%s%s", in->hint & 1 ? " th:TH_ATOMIC_RETURN" : "", scope[in->scope]);
	else if (in->isa == ISA_12 && in->format != F_DS)
		put(b, "%s%s%s", !in->hint ? "" : store ? " th:TH_STORE_" : " th:TH_LOAD_", hint[in->hint], scope[in->scope]);
	else if (in->isa == ISA_9 && in->format != F_SMEM)
		put(b, "%s%s%s", in->glc ? " sc0" : "", in->slc ? " nt" : "", in->dlc ? " sc1" : "");
	else
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
	if (in->x.op->id == OP_s_set_gpr_idx_on) {
		static const char *const what[4] = { "SRC0", "SRC1", "SRC2", "DST" };
		const char *join = ", gpr_idx(";
		unsigned i;

		for (i = 0; i < 4; i++)
			if (in->word[0] >> (8 + i) & 1) {
				put(b, "%s%s", join, what[i]);
				join = ",";
			}
		put(b, ")");
	}
	if (in->format == F_SOPK && in->x.count)
		put(b, ", 0x%x", (uint16_t)in->imm);
	if (in->x.op->id == OP_s_sendmsg_rtn_b32 || in->x.op->id == OP_s_sendmsg_rtn_b64)
		put(b, (in->word[0] & 255) == 0x83 ? ", sendmsg(MSG_RTN_GET_REALTIME)" : ", sendmsg(%u, 0, 0)", in->word[0] & 255);
	if (in->format == F_SMEM && in->x.count > 1) {
		if (in->isa == ISA_12)
			put(b, in->has_saddr ? " offset:%s0x%x" : ", %s0x%x", in->imm < 0 ? "-" : "", (unsigned)abs(in->imm));
		else if (in->isa == ISA_9 && !in->has_saddr)
			put(b, ", 0x%x", (uint32_t)in->imm & 0x1fffff);
		else if (!in->has_saddr)
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
	if (in->format == F_FLAT && in->x.count && in->segment && !in->has_saddr)
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

static void put_sdwa(struct buffer *b, const struct gfx_inst *in)
{
	static const char *const part[8] = { "BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "7" };
	static const char *const unused[4] = { "UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "3" };

	if (in->format != F_VOPC)
		put(b, " dst_sel:%s dst_unused:%s", part[in->sel[2]], unused[in->unused]);
	put(b, " src0_sel:%s", part[in->sel[0]]);
	if (in->format != F_VOP1)
		put(b, " src1_sel:%s", part[in->sel[1]]);
}

static void put_dpp(struct buffer *b, const struct gfx_inst *in)
{
	static const char *const row[8] = { "row_shl:", "row_shr:", "row_ror:", "?", "?", "row_newbcast:", "?", "?" };
	unsigned control = in->word[1] >> 8 & 0x1ff;

	if (control < 0x100)
		put(b, " quad_perm:[%u,%u,%u,%u]", control & 3, control >> 2 & 3, control >> 4 & 3, control >> 6);
	else if (control >= 0x140)
		put(b, "%s", control == 0x140 ? " row_mirror" : control == 0x141 ? " row_half_mirror" : control == 0x142 ? " row_bcast:15" :
		    control == 0x143 ? " row_bcast:31" : " ?");
	else
		put(b, " %s%u", row[(control >> 4) - 0x10], control & 15);
	put(b, " row_mask:0x%x bank_mask:0x%x%s", in->word[1] >> 28, in->word[1] >> 24 & 15, in->word[1] >> 19 & 1 ? " bound_ctrl:0" : "");
}

static void put_vector(struct buffer *b, const struct gfx_inst *in)
{
	static const char *const omod[] = { "", " mul:2", " mul:4", " div:2" };
	unsigned i, sources = 0;

	if (in->format < F_VOP3 && in->x.op->id != OP_v_readfirstlane_b32 && !strchr(in->x.op->spec, 'L'))
		put(b, in->sdwa ? "_sdwa" : in->dpp ? "_dpp" : in->e64 ? "_e64" : "_e32");
	put_args(b, in, &in->x);
	if (in->format == F_VOP3P) {
		if (in->x.count > 2 && (in->opsel || in->opsel_hi != 7))
			put(b, " op_sel:[%u,%u]%s", in->opsel & 1u, in->opsel >> 1 & 1u, "");
	} else if (in->opsel) {
		for (i = 0; i < in->x.count; i++)
			sources += strchr("abc", in->x.arg[i].role) != NULL;
		put(b, " op_sel:[");
		for (i = 0; i < sources; i++)
			put(b, "%u,", in->opsel >> i & 1u);
		put(b, "%u]", in->opsel >> 3 & 1u);
	}
	put(b, "%s%s", in->clamp ? " clamp" : "", omod[in->omod]);
	if (in->sdwa)
		put_sdwa(b, in);
	else if (in->dpp && in->isa == ISA_9)
		put_dpp(b, in);
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
		put(&b, "v_dual_%s", in->x.op->text + 2);
		put_args(&b, in, &in->x);
		put(&b, " :: v_dual_%s", in->y.op->text + 2);
		put_args(&b, in, &in->y);
		return;
	}
	put(&b, "%s%s", in->format != F_FLAT ? "" : in->segment == 2 ? "global_" : in->segment ? "scratch_" : "flat_", in->x.op->text);
	if (in->format == F_FLAT || in->format == F_DS || in->format == F_MUBUF)
		put_memory(&b, in);
	else if (in->format <= F_SMEM)
		put_scalar(&b, in);
	else
		put_vector(&b, in);
}
