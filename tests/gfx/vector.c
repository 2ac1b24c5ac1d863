/* SPDX-License-Identifier: MIT */
/* Vector ALU instructions: operands come from registers, all lanes are computed (valu.c), those of EXEC are written. */
#include "gfx/valu.h"

#include <string.h>

#define EXEC 126

void gfx_check_vector(struct gfx *m, struct gfx_wave *w, unsigned reg, unsigned count, uint32_t lanes)
{
	unsigned i;

	for (i = reg; i < reg + count; i++) {
		if (i > 255)
			gfx_fail(m, "v%u does not exist", i);
		if (w->vpoison[i] & lanes)
			gfx_fail(m, "uses v%u before the wait for its load (lanes %08x)", i, w->vpoison[i] & lanes);
	}
}

static bool is_real(const struct gfx_op *op)
{
	return strstr(op->name, "_f32") != NULL;
}

static void fetch(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, const struct gfx_half *h, char role, uint64_t *out)
{
	static const char order[] = "abc";
	unsigned i, l, source = (unsigned)(strchr(order, role) - order);
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
		for (l = 0; l < GFX_LANES; l++)
			out[l] = v;
	} else {
		gfx_check_vector(m, w, a->code - 256u, a->width, w->s[EXEC]);
		for (l = 0; l < GFX_LANES; l++)
			out[l] = w->v[a->code - 256][l];
		for (l = 0; a->width == 2 && l < GFX_LANES; l++)
			out[l] |= (uint64_t)w->v[a->code - 255][l] << 32;
	}
	for (l = 0; a->part == P_HIGH && l < GFX_LANES; l++)
		out[l] >>= 16;
	if (!is_real(h->op))
		return;
	for (l = 0; in->abs >> source & 1 && l < GFX_LANES; l++)
		out[l] &= 0x7fffffff;
	for (l = 0; in->neg >> source & 1 && l < GFX_LANES; l++)
		out[l] ^= 0x80000000;
}

/* Lane moves. */
static bool cross_lane(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	const struct gfx_arg *to = &in->x.arg[0], *from = &in->x.arg[1];
	unsigned id = in->x.op->id, lane;

	if (id != OP_v_readfirstlane_b32 && id != OP_v_readlane_b32 && id != OP_v_writelane_b32)
		return false;
	if (id == OP_v_readfirstlane_b32)
		lane = w->s[EXEC] ? (unsigned)__builtin_ctz(w->s[EXEC]) : 0;
	else
		lane = gfx_read_scalar(m, w, in, &in->x.arg[2]) & 31;
	if (id == OP_v_writelane_b32) {
		gfx_check_vector(m, w, to->code - 256u, 1, 1u << lane);
		w->v[to->code - 256][lane] = (uint32_t)gfx_read_scalar(m, w, in, from);
		return true;
	}
	if (from->code < 256) {
		gfx_write_scalar(m, w, to, gfx_read_scalar(m, w, in, from));
		return true;
	}
	gfx_check_vector(m, w, from->code - 256u, 1, 1u << lane);
	gfx_write_scalar(m, w, to, w->v[from->code - 256][lane]);
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
	uint32_t word = in->word[1], readable = word >> 18 & 1 ? ~0u : w->s[EXEC];
	uint64_t from[GFX_LANES];
	unsigned l, other;

	if (word >> 24 != 0xff || (word >> 8 & 0x1ff) >= 0x170 || (word >> 12 & 0x1f) == 0x13)
		gfx_fail(m, "DPP control %#x is not supported", word);
	memcpy(from, v->a, sizeof(from));
	for (l = 0; l < GFX_LANES; l++) {
		other = dpp_lane(word >> 8 & 0x1ff, l);
		if (other < GFX_LANES && readable >> other & 1)
			v->a[l] = from[other];
		else if (word >> 19 & 1)
			v->a[l] = 0;
		else
			v->skip |= 1u << l;
	}
}

static void evaluate(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, const struct gfx_half *h, struct gfx_lanes *v)
{
	uint64_t old[GFX_LANES] = { 0 };
	unsigned l;

	v->carry = v->skip = 0;
	fetch(m, w, in, h, 'a', v->a);
	if (in->dpp)
		move_lanes(m, w, in, v);
	fetch(m, w, in, h, 'b', v->b);
	fetch(m, w, in, h, 'c', v->c);
	if (h->op->id == OP_v_fmac_f32) {
		gfx_check_vector(m, w, h->arg[0].code - 256u, 1, w->s[EXEC]);
		for (l = 0; l < GFX_LANES; l++)
			old[l] = w->v[h->arg[0].code - 256][l];
	}
	if (!gfx_compute(v, h->op->id, old))
		gfx_fail(m, "%s has no meaning here", h->op->name);
}

static void commit(struct gfx *m, struct gfx_wave *w, const struct gfx_half *h, const struct gfx_lanes *v)
{
	uint32_t exec = w->s[EXEC] & ~v->skip, low = h->arg[0].part ? 0xffff : ~0u;
	unsigned reg = h->arg[0].code - 256u, l, shift = h->arg[0].part == P_HIGH ? 16 : 0;

	if (h->op->id == OP_v_movreld_b32)
		reg += w->s[125];
	gfx_check_vector(m, w, reg, h->arg[0].width, exec);
	for (l = 0; l < GFX_LANES; l++) {
		if (!(exec >> l & 1))
			continue;
		w->v[reg][l] = (w->v[reg][l] & ~(low << shift)) | ((uint32_t)v->r[l] & low) << shift;
		if (h->arg[0].width == 2)
			w->v[reg + 1][l] = (uint32_t)(v->r[l] >> 32);
	}
	if (h->count > 1 && (h->arg[1].role == 't' || (h->arg[1].role == 'k' && h->count > 4)))
		gfx_write_scalar(m, w, &h->arg[1], v->carry & exec);
}

void gfx_vector(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	struct gfx_lanes x, y;
	uint32_t mask;

	if (in->clamp || in->omod)
		gfx_fail(m, "output modifiers are not supported");
	if (in->x.op->id == OP_v_cmp) {
		fetch(m, w, in, &in->x, 'a', x.a);
		fetch(m, w, in, &in->x, 'b', x.b);
		mask = gfx_compare(in, x.a, x.b) & w->s[EXEC];
		if (in->vopc & 0x80)
			w->s[EXEC] = mask;
		else
			gfx_write_scalar(m, w, &in->x.arg[0], mask);
		return;
	}
	if (cross_lane(m, w, in))
		return;
	if (in->x.op->id == OP_v_movreld_b32) {
		fetch(m, w, in, &in->x, 'a', x.a);
		memcpy(x.r, x.a, sizeof(x.r));
		x.skip = x.carry = 0;
	} else {
		evaluate(m, w, in, &in->x, &x);
	}
	if (in->format == F_VOPD)
		evaluate(m, w, in, &in->y, &y);
	commit(m, w, &in->x, &x);
	if (in->format == F_VOPD)
		commit(m, w, &in->y, &y);
}
