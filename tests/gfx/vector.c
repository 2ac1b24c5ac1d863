/* SPDX-License-Identifier: MIT */
/* Vector ALU instructions: operands come from registers, all lanes are computed (valu.c), those of EXEC are written. */
#include "gfx/valu.h"

#include <string.h>

void gfx_check_vector(struct gfx *m, struct gfx_wave *w, unsigned reg, unsigned count, uint64_t lanes)
{
	unsigned i;

	for (i = reg; i - reg < count; i++) { /* M0 may have moved reg anywhere */
		if (i > 255)
			gfx_fail(m, "v%u does not exist", i);
		if (w->vpoison[i] & lanes)
			gfx_fail(m, "uses v%u before the wait for its load (lanes %llx)", i, (unsigned long long)(w->vpoison[i] & lanes));
	}
}

/* How far an index moves the registers of a vector instruction's source (bit 0) or destination (bit 3). */
static unsigned moved(const struct gfx_wave *w, const struct gfx_half *h, unsigned bit)
{
	if (h->op->id == (bit ? OP_v_movreld_b32 : OP_v_movrels_b32))
		return w->s[GFX_M0];
	return w->indexed >> bit & 1 ? w->s[GFX_M0] & 255 : 0;
}

static void fetch(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, const struct gfx_half *h, char role, uint64_t *out)
{
	unsigned i, l, reg, source = (unsigned)(role - 'a');
	const struct gfx_arg *a = NULL;
	uint64_t v;

	for (i = 0; i < h->count; i++)
		if (h->arg[i].role == role ||
		    (role == 'c' && (h->arg[i].role == 'L' || (h->arg[i].role == 'k' && i + 1u == h->count && i > 1))))
			a = &h->arg[i];
	if (!a)
		return;
	if (a->code < 256) {
		v = gfx_read_scalar(m, w, in, a);
		for (l = 0; l < m->lanes; l++)
			out[l] = v;
	} else {
		reg = a->code - 256u + moved(w, h, 0);
		gfx_check_vector(m, w, reg, a->width, gfx_mask(m, w, GFX_EXEC));
		for (l = 0; l < m->lanes; l++)
			out[l] = w->v[reg][l];
		for (l = 0; a->width == 2 && l < m->lanes; l++)
			out[l] |= (uint64_t)w->v[reg + 1][l] << 32;
	}
	for (l = 0; a->part == P_HIGH && l < m->lanes; l++)
		out[l] >>= 16;
	if (!h->op->real)
		return;
	for (l = 0; in->abs >> source & 1 && l < m->lanes; l++)
		out[l] &= 0x7fffffff;
	for (l = 0; in->neg >> source & 1 && l < m->lanes; l++)
		out[l] ^= 0x80000000;
}

/* Lane moves. */
static bool cross_lane(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	const struct gfx_arg *to = &in->x.arg[0], *from = &in->x.arg[1];
	unsigned id = in->x.op->id, lane;

	if (id == OP_v_s_rcp_f32) {
		struct gfx_lanes v = { .count = 1 };

		fetch(m, w, in, &in->x, 'a', v.a);
		gfx_compute(&v, OP_v_rcp_f32, NULL);
		gfx_write_scalar(m, w, to, v.r[0]);
		return true;
	}
	if (id != OP_v_readfirstlane_b32 && id != OP_v_readlane_b32 && id != OP_v_writelane_b32)
		return false;
	if (id == OP_v_readfirstlane_b32)
		lane = gfx_mask(m, w, GFX_EXEC) ? (unsigned)__builtin_ctzll(gfx_mask(m, w, GFX_EXEC)) : 0;
	else
		lane = gfx_read_scalar(m, w, in, &in->x.arg[2]) & (m->lanes - 1);
	if (id == OP_v_writelane_b32) {
		gfx_check_vector(m, w, to->code - 256u, 1, 1ull << lane);
		w->v[to->code - 256][lane] = (uint32_t)gfx_read_scalar(m, w, in, from);
		return true;
	}
	if (from->code < 256) {
		gfx_write_scalar(m, w, to, gfx_read_scalar(m, w, in, from));
		return true;
	}
	gfx_check_vector(m, w, from->code - 256u, 1, 1ull << lane);
	gfx_write_scalar(m, w, to, w->v[from->code - 256][lane]);
	return true;
}

/* Between the registers and gfx942's others. */
static bool other_registers(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	unsigned id = in->x.op->id, to = in->x.arg[0].code - 256u, l;
	uint64_t v[GFX_LANES], exec = gfx_mask(m, w, GFX_EXEC);

	if (id != OP_v_accvgpr_read_b32 && id != OP_v_accvgpr_write_b32)
		return false;
	if (id == OP_v_accvgpr_write_b32)
		fetch(m, w, in, &in->x, 'a', v);
	else
		gfx_check_vector(m, w, to, 1, exec);
	for (l = 0; l < m->lanes; l++) {
		if (!(exec >> l & 1))
			continue;
		if (id == OP_v_accvgpr_write_b32)
			w->acc[to][l] = (uint32_t)v[l];
		else
			w->v[to][l] = w->acc[(in->x.arg[1].code - 256u) & 255][l];
	}
	return true;
}

/* The lane that lane l of a DPP operand comes from, as the 9 bits of the control say; 32: none. */
static unsigned dpp_lane(unsigned control, unsigned l)
{
	unsigned row = l & ~15u, i = l & 15, n = control & 15;

	switch (control >> 4) {
	case 0x10: return i + n < 16 ? l + n : GFX_LANES;
	case 0x11: return i >= n ? l - n : GFX_LANES;
	case 0x12: return row | ((i - n) & 15);
	case 0x14: return n ? l ^ 7 : l ^ 15;
	case 0x15: return row | n;
	case 0x16: return l ^ n;
	default: return (l & ~3u) | (control >> 2 * (l & 3) & 3);
	}
}

/* Bits 16:8 of the second word are the control, 18 lets lanes be read that EXEC leaves out, 19 makes missing lanes zero. */
static void move_lanes(struct gfx *m, const struct gfx_wave *w, const struct gfx_inst *in, struct gfx_lanes *v)
{
	uint64_t from[GFX_LANES], readable = in->word[1] >> 18 & 1 ? ~0ull : gfx_mask(m, w, GFX_EXEC);
	uint32_t word = in->word[1];
	unsigned l, other;

	if (word >> 24 != 0xff || (word >> 8 & 0x1ff) >= 0x170 || (word >> 12 & 0x1f) == 0x13)
		gfx_fail(m, "DPP control %#x is not supported", word);
	memcpy(from, v->a, sizeof(from));
	for (l = 0; l < m->lanes; l++) {
		other = dpp_lane(word >> 8 & 0x1ff, l);
		if (other < GFX_LANES && readable >> other & 1)
			v->a[l] = from[other];
		else if (word >> 19 & 1)
			v->a[l] = 0;
		else
			v->skip |= 1ull << l;
	}
}

/* SDWA: a byte or word of a source, extended. */
static void choose_part(const struct gfx *m, const struct gfx_inst *in, unsigned source, uint64_t *v)
{
	unsigned sel = in->sel[source], shift = sel < 4 ? 8 * sel : 16 * (sel - 4), width = sel < 4 ? 8 : 16, l;

	for (l = 0; sel < 6 && l < m->lanes; l++) {
		v[l] = v[l] >> shift & ((1u << width) - 1);
		if (in->sext >> source & 1)
			v[l] = (uint32_t)((int32_t)((uint32_t)v[l] << (32 - width)) >> (32 - width));
	}
}

/* Both sources of one half of an instruction. */
static void fetch_two(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, const struct gfx_half *h, struct gfx_lanes *v)
{
	fetch(m, w, in, h, 'a', v->a);
	if (in->dpp)
		move_lanes(m, w, in, v);
	fetch(m, w, in, h, 'b', v->b);
	if (in->sdwa) {
		choose_part(m, in, 0, v->a);
		if (in->format != F_VOP1)
			choose_part(m, in, 1, v->b);
	}
}

static void evaluate(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, const struct gfx_half *h, struct gfx_lanes *v)
{
	uint64_t old[GFX_LANES] = { 0 };
	unsigned l;

	v->carry = v->skip = 0;
	fetch_two(m, w, in, h, v);
	fetch(m, w, in, h, 'c', v->c);
	for (l = 0; h->op->id == OP_v_pk_mov_b32 && l < m->lanes; l++)
		v->r[l] = (uint32_t)(v->a[l] >> 32 * (in->opsel & 1)) | (uint64_t)(uint32_t)(v->b[l] >> 32 * (in->opsel >> 1 & 1)) << 32;
	if (h->op->id == OP_v_pk_mov_b32)
		return;
	if (h->op->id == OP_v_fmac_f32) {
		gfx_check_vector(m, w, h->arg[0].code - 256u, 1, gfx_mask(m, w, GFX_EXEC));
		for (l = 0; l < m->lanes; l++)
			old[l] = w->v[h->arg[0].code - 256][l];
	}
	if (!gfx_compute(v, h->op->id, old))
		gfx_fail(m, "%s has no meaning here", h->op->name);
}

/* SDWA: the destination, of which the rest is cleared, sign-extended or kept. */
static uint32_t put_part(const struct gfx_inst *in, uint32_t old, uint32_t value)
{
	unsigned sel = in->sel[2], shift = sel < 4 ? 8 * sel : 16 * (sel - 4), width = sel < 4 ? 8 : 16;
	uint32_t mask = sel < 6 ? ((1u << width) - 1) << shift : ~0u, rest = in->unused == 2 ? old & ~mask : 0;

	if (sel >= 6)
		return value;
	value = value << shift & mask;
	if (in->unused == 1 && value >> (shift + width - 1) & 1)
		rest = ~mask & ~((1u << shift) - 1);
	return value | rest;
}

static void commit(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, const struct gfx_half *h, const struct gfx_lanes *v)
{
	uint64_t exec = gfx_mask(m, w, GFX_EXEC) & ~v->skip;
	uint32_t low = h->arg[0].part ? 0xffff : ~0u;
	unsigned reg = h->arg[0].code - 256u, l, shift = h->arg[0].part == P_HIGH ? 16 : 0;

	reg += moved(w, h, 3);
	gfx_check_vector(m, w, reg, h->arg[0].width, exec);
	if (h->op->spec[1] == 'z')
		low = 0xffff;
	for (l = 0; l < m->lanes; l++) {
		if (!(exec >> l & 1))
			continue;
		if (in->sdwa || h->op->spec[1] == 'z') {
			w->v[reg][l] = in->sdwa ? put_part(in, w->v[reg][l], (uint32_t)v->r[l] & low) : (uint32_t)v->r[l] & low;
			continue;
		}
		w->v[reg][l] = (w->v[reg][l] & ~(low << shift)) | ((uint32_t)v->r[l] & low) << shift;
		if (h->arg[0].width == 2)
			w->v[reg + 1][l] = (uint32_t)(v->r[l] >> 32);
	}
	if (h->count > 1 && (h->arg[1].role == 't' || h->arg[1].role == 'k'))
		gfx_write_scalar(m, w, &h->arg[1], v->carry & exec);
}

void gfx_vector(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	struct gfx_lanes x, y;
	uint64_t mask;

	x.count = y.count = m->lanes;
	if (in->omod || (in->clamp && in->x.op->id != OP_v_sub_nc_u32 && in->x.op->id != OP_v_add_nc_u32))
		gfx_fail(m, "output modifiers are not supported");
	if (w->indexed && in->x.op->id != OP_v_mov_b32)
		gfx_fail(m, "%s of registers that an index chooses is not supported", in->x.op->name);
	if (in->x.op->id == OP_v_cmp) {
		fetch_two(m, w, in, &in->x, &x);
		mask = gfx_compare(in, x.a, x.b, m->lanes) & gfx_mask(m, w, GFX_EXEC);
		if (in->vopc & 0x80)
			gfx_set_exec(m, w, mask);
		else
			gfx_write_scalar(m, w, &in->x.arg[0], mask);
		return;
	}
	if (cross_lane(m, w, in) || other_registers(m, w, in))
		return;
	evaluate(m, w, in, &in->x, &x);
	for (unsigned l = 0; in->clamp && l < m->lanes; l++) /* a difference below 0 is 0, a sum beyond 32 bits is the largest of them */
		if (in->x.op->id == OP_v_add_nc_u32)
			x.r[l] = (uint32_t)x.r[l] < (uint32_t)x.a[l] ? UINT32_MAX : x.r[l];
		else
			x.r[l] = (uint32_t)x.b[l] > (uint32_t)x.a[l] ? 0 : x.r[l];
	if (in->format == F_VOPD)
		evaluate(m, w, in, &in->y, &y);
	commit(m, w, in, &in->x, &x);
	if (in->format == F_VOPD)
		commit(m, w, in, &in->y, &y);
}
