/* SPDX-License-Identifier: MIT */
/* Scalar instructions: SOP1, SOP2, SOPC, SOPK, SOPP and SMEM. The program counter already points after the instruction. */
#include "gfx/valu.h"

#include <string.h>

#define NULL_REG 124

/* 64-bit signed operations extend a literal's sign, others fill with zeros. */
static uint64_t literal(const struct gfx_inst *in, unsigned width)
{
	unsigned id = in->x.op->id;

	if (width == 2 && (id == OP_s_ashr_i64 || id == OP_v_ashrrev_i64 || id == OP_v_mad_i64_i32 ||
			   (id == OP_v_cmp && (in->vopc & 0x78) == 0x50)))
		return (uint64_t)(int64_t)(int32_t)in->literal;
	return in->literal;
}

/* The last register has no other half. */
static void check_pair(struct gfx *m, const struct gfx_arg *a)
{
	if (a->width == 2 && a->code == 127)
		gfx_fail(m, "s128 does not exist");
}

uint64_t gfx_read_scalar(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, const struct gfx_arg *a)
{
	static const uint32_t reals[] = { 0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000, 0xc0000000, 0x40800000,
					  0xc0800000, 0x3e22f983 };
	uint64_t v;

	if (a->code < 128) {
		if (a->code == NULL_REG)
			return 0;
		check_pair(m, a);
		if (w->spoison[a->code] || (a->width == 2 && w->spoison[a->code + 1]))
			gfx_fail(m, "reads scalar register %u before the wait for its load", a->code);
		v = w->s[a->code];
		return a->width == 2 ? v | (uint64_t)w->s[a->code + 1] << 32 : v;
	}
	if (a->code <= 192)
		return a->code - 128u;
	if (a->code <= 208)
		return a->width == 2 ? (uint64_t)(192 - (int64_t)a->code) : (uint32_t)(192 - (int32_t)a->code);
	if (a->code >= 240 && a->code <= 248)
		return reals[a->code - 240];
	if (a->code == 235) /* src_shared_base */
		return a->width == 2 ? GFX_SHARED : GFX_SHARED >> 32;
	if (a->code == 237) /* src_private_base */
		return a->width == 2 ? GFX_PRIVATE : GFX_PRIVATE >> 32;
	if (a->code == 253)
		return w->scc;
	if (a->code == 255)
		return literal(in, a->width);
	gfx_fail(m, "operand %u is not supported", a->code);
}

void gfx_write_scalar(struct gfx *m, struct gfx_wave *w, const struct gfx_arg *a, uint64_t value)
{
	if (a->code == NULL_REG)
		return;
	check_pair(m, a);
	if (w->spoison[a->code] || (a->width == 2 && w->spoison[a->code + 1]))
		gfx_fail(m, "writes scalar register %u while a load to it is in flight", a->code);
	w->s[a->code] = (uint32_t)value;
	if (a->width == 2)
		w->s[a->code + 1] = (uint32_t)(value >> 32);
}

static uint32_t mask_of(unsigned count)
{
	return count >= 32 ? ~0u : (1u << count) - 1;
}

/* Results whose SCC is "not zero". *known is false when the opcode is not among them. */
static uint64_t logic(unsigned id, uint64_t a, uint64_t b, bool *known)
{
	uint32_t offset = b & 31, width = b >> 16 & 127, far = b & 63;

	switch (id) {
	case OP_s_absdiff_i32: return (uint32_t)((int32_t)a > (int32_t)b ? a - b : b - a);
	case OP_s_lshl_b32: return (uint32_t)a << (b & 31);
	case OP_s_lshl_b64: return a << (b & 63);
	case OP_s_lshr_b32: return (uint32_t)a >> (b & 31);
	case OP_s_lshr_b64: return a >> (b & 63);
	case OP_s_ashr_i32: return (uint32_t)((int32_t)a >> (b & 31));
	case OP_s_ashr_i64: return (uint64_t)((int64_t)a >> (b & 63));
	case OP_s_and_b32: case OP_s_and_b64: return a & b;
	case OP_s_or_b32: case OP_s_or_b64: return a | b;
	case OP_s_xor_b32: case OP_s_xor_b64: return a ^ b;
	case OP_s_nand_b32: return (uint32_t)~(a & b);
	case OP_s_nand_b64: return ~(a & b);
	case OP_s_nor_b32: return (uint32_t)~(a | b);
	case OP_s_nor_b64: return ~(a | b);
	case OP_s_xnor_b32: return (uint32_t)~(a ^ b);
	case OP_s_xnor_b64: return ~(a ^ b);
	case OP_s_and_not1_b32: case OP_s_and_not1_b64: return a & ~b;
	case OP_s_or_not1_b32: return (uint32_t)(a | ~b);
	case OP_s_or_not1_b64: return a | ~b;
	case OP_s_bfe_u32: return (uint32_t)a >> offset & mask_of(width);
	case OP_s_bfe_i32:
		if (!width)
			return 0;
		if (width >= 32 - offset)
			return (uint32_t)((int32_t)a >> offset);
		return (uint32_t)((int32_t)((uint32_t)a << (32 - offset - width)) >> (32 - width));
	case OP_s_bfe_u64: return width >= 64 ? a >> far : a >> far & ((1ull << width) - 1);
	case OP_s_bfe_i64:
		if (!width)
			return 0;
		if (width >= 64 - far)
			return (uint64_t)((int64_t)a >> far);
		return (uint64_t)((int64_t)(a << (64 - far - width)) >> (64 - width));
	case OP_s_not_b32: return (uint32_t)~a;
	case OP_s_not_b64: return ~a;
	case OP_s_bcnt1_i32_b32: case OP_s_bcnt1_i32_b64: return (uint64_t)__builtin_popcountll(a);
	case OP_s_abs_i32: return (int32_t)a < 0 ? (uint32_t)-a : a;
	}
	*known = false;
	return 0;
}

static uint64_t plain_unary(unsigned id, uint64_t a, uint64_t old, bool *known)
{
	uint32_t i, r = 0;

	switch (id) {
	case OP_s_mov_b32: case OP_s_mov_b64: return a;
	case OP_s_brev_b32:
		for (i = 0; i < 32; i++)
			r |= ((uint32_t)a >> i & 1) << (31 - i);
		return r;
	case OP_s_ctz_i32_b32: case OP_s_ctz_i32_b64: return a ? (uint64_t)__builtin_ctzll(a) : ~0u;
	case OP_s_clz_i32_u32: return a ? (uint64_t)__builtin_clz((uint32_t)a) : ~0u;
	case OP_s_clz_i32_u64: return a ? (uint64_t)__builtin_clzll(a) : ~0u;
	case OP_s_sext_i32_i8: return (uint32_t)(int8_t)a;
	case OP_s_sext_i32_i16: return (uint32_t)(int16_t)a;
	case OP_s_bitset0_b32: case OP_s_bitset0_b64: return old & ~(1ull << (a & (id == OP_s_bitset0_b32 ? 31 : 63)));
	case OP_s_bitset1_b32: case OP_s_bitset1_b64: return old | 1ull << (a & (id == OP_s_bitset1_b32 ? 31 : 63));
	}
	*known = false;
	return 0;
}

/* What touches SCC in its own way, or not at all. */
static uint64_t arithmetic(struct gfx_wave *w, unsigned id, uint64_t a, uint64_t b, bool *known)
{
	uint64_t sum;
	bool first;

	switch (id) {
	case OP_s_add_u32: case OP_s_addc_u32:
		sum = a + b + (id == OP_s_addc_u32 && w->scc);
		w->scc = sum >> 32 != 0;
		return sum;
	case OP_s_sub_u32: case OP_s_subb_u32:
		sum = a - b - (id == OP_s_subb_u32 && w->scc);
		w->scc = sum >> 32 != 0;
		return sum;
	case OP_s_add_i32:
		sum = a + b;
		w->scc = (~(a ^ b) & (a ^ sum)) >> 31 & 1;
		return sum;
	case OP_s_sub_i32:
		sum = a - b;
		w->scc = ((a ^ b) & (a ^ sum)) >> 31 & 1;
		return sum;
	case OP_s_lshl1_add_u32: case OP_s_lshl2_add_u32: case OP_s_lshl3_add_u32: case OP_s_lshl4_add_u32:
		sum = (a << (id - OP_s_lshl1_add_u32 + 1)) + b;
		w->scc = sum >> 32 != 0;
		return sum;
	case OP_s_min_i32: case OP_s_max_i32:
		first = id == OP_s_min_i32 ? (int32_t)a < (int32_t)b : (int32_t)a > (int32_t)b;
		w->scc = first;
		return first ? a : b;
	case OP_s_min_u32: case OP_s_max_u32:
		first = id == OP_s_min_u32 ? a < b : a > b;
		w->scc = first;
		return first ? a : b;
	case OP_s_mul_i32: return a * b;
	case OP_s_mul_hi_u32: return a * b >> 32;
	case OP_s_mul_hi_i32: return (uint64_t)((int64_t)(int32_t)a * (int32_t)b) >> 32;
	case OP_s_cselect_b32: case OP_s_cselect_b64: return w->scc ? a : b;
	case OP_s_add_nc_u64: return a + b;
	case OP_s_sub_nc_u64: return a - b;
	case OP_s_mul_u64: return a * b;
	case OP_s_bfm_b32: return (uint64_t)mask_of(a & 31) << (b & 31);
	}
	*known = false;
	return 0;
}

static bool compare(unsigned id, uint64_t a, uint64_t b, bool is_signed)
{
	int64_t x = is_signed ? (int64_t)(int32_t)a : (int64_t)(uint32_t)a, y = is_signed ? (int64_t)(int32_t)b : (int64_t)(uint32_t)b;

	switch (id) {
	case 0: return x == y;
	case 1: return x != y;
	case 2: return x > y;
	case 3: return x >= y;
	case 4: return x < y;
	default: return x <= y;
	}
}

/* From now on an index moves registers of vector instructions; what would be the second source says which. */
static void index_registers(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	w->indexed = in->word[0] >> 8 & 15;
	w->s[GFX_M0] = (w->s[GFX_M0] & 0xffff0f00) | (uint32_t)w->indexed << 12 | (gfx_read_scalar(m, w, in, &in->x.arg[0]) & 255);
}

static void compare_scalar(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	uint64_t a = gfx_read_scalar(m, w, in, &in->x.arg[0]), b = gfx_read_scalar(m, w, in, &in->x.arg[1]);
	unsigned code = in->x.op->code; /* gfx11's, whatever the set */
	struct gfx_inst real = { .vopc = (uint8_t)(0x10 | (code & 15)) };

	if (code >= 0x40)
		w->scc = gfx_compare(&real, &a, &b, 1);
	else if (code < 12)
		w->scc = compare(code % 6, a, b, code < 6);
	else if (code < 16)
		w->scc = (a >> (b & (code < 14 ? 31 : 63)) & 1) == (code & 1);
	else
		w->scc = (a == b) == (code == 16);
}

/* A wait that does not end yet: the wave comes back to it. */
static bool stall(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	if (!gfx_stalls(m, w))
		return false;
	w->pc -= in->len;
	w->yield = true;
	return true;
}

static void immediate(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	unsigned code = in->x.op->code;
	uint64_t old, sum;

	if (in->x.op->id == OP_s_waitcnt_vscnt) {
		if (!stall(m, w, in))
			gfx_wait(m, w, C_VS, (unsigned)in->imm & 63);
		return;
	}
	if (code == 0) {
		gfx_write_scalar(m, w, &in->x.arg[0], (uint32_t)in->imm);
		return;
	}
	old = gfx_read_scalar(m, w, in, &in->x.arg[0]);
	if (code <= 14) {
		w->scc = compare((code - 3) % 6, old, code <= 8 ? (uint32_t)in->imm : (uint16_t)in->imm, code <= 8);
		return;
	}
	sum = code == 15 ? old + (uint32_t)in->imm : old * (uint32_t)in->imm;
	if (code == 15)
		w->scc = (~(old ^ (uint32_t)in->imm) & (old ^ sum)) >> 31 & 1;
	gfx_write_scalar(m, w, &in->x.arg[0], (uint32_t)sum);
}

/* gfx12's waits, which name a counter, or two; nothing here has the other counters. */
static void wait12(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	unsigned low = (unsigned)in->imm & 63, high = (unsigned)in->imm >> 8 & 63;

	switch (in->x.op->id) {
	case OP_s_wait_loadcnt: gfx_wait(m, w, C_VM, low); break;
	case OP_s_wait_storecnt: gfx_wait(m, w, C_VS, low); break;
	case OP_s_wait_dscnt: gfx_wait(m, w, C_LGKM, low); break;
	case OP_s_wait_kmcnt: gfx_wait(m, w, C_KM, low); break;
	case OP_s_wait_loadcnt_dscnt: gfx_wait(m, w, C_VM, high); gfx_wait(m, w, C_LGKM, low); break;
	case OP_s_wait_storecnt_dscnt: gfx_wait(m, w, C_VS, high); gfx_wait(m, w, C_LGKM, low); break;
	case OP_s_wait_idle:
		for (low = C_VM; low <= C_KM; low++)
			gfx_wait(m, w, (enum gfx_counter)low, 0);
	}
}

static void program(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	bool taken = false;

	switch (in->x.op->id) {
	case OP_s_branch: taken = true; break;
	case OP_s_cbranch_scc0: taken = !w->scc; break;
	case OP_s_cbranch_scc1: taken = w->scc; break;
	case OP_s_cbranch_vccz: taken = !gfx_mask(m, w, GFX_VCC); break;
	case OP_s_cbranch_vccnz: taken = gfx_mask(m, w, GFX_VCC) != 0; break;
	case OP_s_cbranch_execz: taken = !gfx_mask(m, w, GFX_EXEC); break;
	case OP_s_cbranch_execnz: taken = gfx_mask(m, w, GFX_EXEC) != 0; break;
	case OP_s_waitcnt:
		if (stall(m, w, in))
			break;
		if (gfx_wait_vm(in) != 63)
			gfx_wait(m, w, C_VM, gfx_wait_vm(in));
		if (gfx_wait_lgkm(in) != (in->isa == ISA_9 ? 15 : 63))
			gfx_wait(m, w, C_LGKM, gfx_wait_lgkm(in));
		break;
	case OP_s_endpgm:
		w->state = W_DONE;
		break;
	case OP_s_barrier:
		w->signals++;
		w->state = W_BARRIER;
		break;
	case OP_s_barrier_wait:
		w->state = W_BARRIER;
		break;
	case OP_s_sleep:
		w->yield = true;
		break;
	case OP_s_set_gpr_idx_off:
		w->indexed = 0;
		break;
	default:
		if (in->isa == ISA_12 && w->count && !strncmp(in->x.op->name, "s_wait_", 7) && !stall(m, w, in))
			wait12(m, w, in);
	}
	if (taken)
		w->pc += (uint64_t)((int64_t)in->imm * 4);
}

/* EXEC saved, and combined with the source. */
static bool save_exec(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	uint64_t old, a, v;

	if (!in->x.op->saves)
		return false;
	old = gfx_mask(m, w, GFX_EXEC);
	a = gfx_read_scalar(m, w, in, &in->x.arg[1]);
	switch (in->x.op->id) {
	case OP_s_and_saveexec_b32: case OP_s_and_saveexec_b64: v = a & old; break;
	case OP_s_or_saveexec_b32: case OP_s_or_saveexec_b64: v = a | old; break;
	case OP_s_xor_saveexec_b32: case OP_s_xor_saveexec_b64: v = a ^ old; break;
	case OP_s_xnor_saveexec_b32: case OP_s_xnor_saveexec_b64: v = ~(a ^ old); break;
	case OP_s_and_not0_saveexec_b32: case OP_s_and_not0_saveexec_b64: v = ~a & old; break;
	case OP_s_and_not1_saveexec_b32: case OP_s_and_not1_saveexec_b64: v = a & ~old; break;
	default: v = a | ~old; break;
	}
	if (in->x.arg[0].width != m->lanes / 32)
		gfx_fail(m, "%s in a wave of %u lanes", in->x.op->name, m->lanes);
	gfx_write_scalar(m, w, &in->x.arg[0], old);
	v &= m->lanes == 64 ? ~0ull : 0xffffffff;
	gfx_set_exec(m, w, v);
	w->scc = v != 0;
	return true;
}

/* Jumps and what else is no function of its operands. */
static bool special(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	struct gfx_arg to = in->x.arg[0], from = in->x.arg[1];
	uint64_t target;

	switch (in->x.op->id) {
	case OP_s_barrier_signal:
		if (to.code != 193) /* -1: all of the group */
			gfx_fail(m, "barrier %u is not supported", to.code);
		w->signals++;
		return true;
	case OP_s_getpc_b64:
		gfx_write_scalar(m, w, &to, w->pc);
		return true;
	case OP_s_setpc_b64:
		w->pc = gfx_read_scalar(m, w, in, &to);
		return true;
	case OP_s_swappc_b64:
		target = gfx_read_scalar(m, w, in, &in->x.arg[1]);
		gfx_write_scalar(m, w, &to, w->pc);
		w->pc = target;
		return true;
	case OP_s_sendmsg_rtn_b32:
	case OP_s_sendmsg_rtn_b64:
		if ((in->word[0] & 255) != 0x83)
			gfx_fail(m, "message %u is not supported", in->word[0] & 255);
		gfx_ready(m, w, in, m->clock);
		return true;
	case OP_s_movreld_b32: case OP_s_movreld_b64:
		to.code = (uint16_t)((to.code + w->s[GFX_M0]) & 127);
		gfx_write_scalar(m, w, &to, gfx_read_scalar(m, w, in, &in->x.arg[1]));
		return true;
	case OP_s_movrels_b32: case OP_s_movrels_b64:
		from.code = (uint16_t)((from.code + w->s[GFX_M0]) & 127);
		gfx_write_scalar(m, w, &to, gfx_read_scalar(m, w, in, &from));
		return true;
	default:
		return save_exec(m, w, in);
	}
}

/* gfx12 has the real operations of vectors for scalars, too. */
static uint64_t real(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	struct gfx_lanes v = { .count = 1 };
	unsigned i;

	for (i = 1; i < in->x.count; i++) {
		const struct gfx_arg *a = &in->x.arg[i];

		*(a->role == 'a' ? v.a : a->role == 'b' ? v.b : v.c) = gfx_read_scalar(m, w, in, a);
	}
	if (in->x.op->id == OP_v_fmac_f32)
		v.c[0] = gfx_read_scalar(m, w, in, &in->x.arg[0]);
	if (!gfx_compute(&v, in->x.op->id, v.c))
		gfx_fail(m, "%s has no meaning here", in->x.op->name);
	return v.r[0];
}

static void compute(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	uint64_t a = gfx_read_scalar(m, w, in, &in->x.arg[1]), b = 0, r;
	bool known = true, old_known = true;
	unsigned id = in->x.op->id;

	if (in->x.count > 2)
		b = gfx_read_scalar(m, w, in, &in->x.arg[2]);
	r = logic(id, a, b, &known);
	if (known) {
		w->scc = r != 0;
	} else {
		bool old = id == OP_s_bitset0_b32 || id == OP_s_bitset0_b64 || id == OP_s_bitset1_b32 || id == OP_s_bitset1_b64;

		r = arithmetic(w, id, a, b, &old_known);
		if (!old_known) {
			known = true;
			r = plain_unary(id, a, old ? gfx_read_scalar(m, w, in, &in->x.arg[0]) : 0, &known);
			if (!known)
				r = real(m, w, in);
		}
	}
	gfx_write_scalar(m, w, &in->x.arg[0], r);
}

static void load(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	uint64_t addr = gfx_read_scalar(m, w, in, &in->x.arg[1]) + (uint64_t)(int64_t)in->imm;

	if (in->has_saddr)
		addr += gfx_read_scalar(m, w, in, &in->x.arg[2]);
	gfx_scalar_load(m, w, in, in->x.op->code < 8 ? addr & ~3ull : addr);
}

static void memory(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	if (in->x.op->id == OP_s_memtime || in->x.op->id == OP_s_memrealtime)
		gfx_ready(m, w, in, m->clock);
	else
		load(m, w, in);
}

void gfx_scalar(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	if (in->format == F_SOPP)
		program(m, w, in);
	else if (in->x.op->id == OP_s_set_gpr_idx_on)
		index_registers(m, w, in);
	else if (in->format == F_SOPC)
		compare_scalar(m, w, in);
	else if (in->format == F_SOPK)
		immediate(m, w, in);
	else if (in->format == F_SMEM)
		memory(m, w, in);
	else if (in->format == F_SOP2 || !special(m, w, in))
		compute(m, w, in);
}
