/* SPDX-License-Identifier: MIT */
/* What vector instructions compute, all lanes at once and without regard to EXEC. */
#include "gfx/valu.h"

#include <math.h>
#include <string.h>

#define EACH(expression)                                \
	do {                                            \
		for (l = 0; l < v->count; l++)          \
			v->r[l] = (uint64_t)(expression); \
		return true;                            \
	} while (0)
#define A ((uint32_t)v->a[l])
#define B ((uint32_t)v->b[l])
#define C ((uint32_t)v->c[l])
#define SA ((int32_t)v->a[l])
#define SB ((int32_t)v->b[l])
#define SC ((int32_t)v->c[l])
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define MAX(x, y) ((x) > (y) ? (x) : (y))

static float f(uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	float x;

	memcpy(&x, &low, 4);
	return x;
}

static uint32_t u(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, 4);
	return bits;
}

static uint32_t to_u32(float x)
{
	return !(x > 0) ? 0 : x >= 4294967296.0f ? ~0u : (uint32_t)x;
}

static uint32_t to_i32(float x)
{
	return x != x ? 0 : x >= 2147483648.0f ? 0x7fffffff : x <= -2147483648.0f ? 0x80000000 : (uint32_t)(int32_t)x;
}

static bool real_ops(struct gfx_lanes *v, unsigned id, const uint64_t *old)
{
	unsigned l;

	switch (id) {
	case OP_v_add_f32: EACH(u(f(A) + f(B)));
	case OP_v_sub_f32: EACH(u(f(A) - f(B)));
	case OP_v_subrev_f32: EACH(u(f(B) - f(A)));
	case OP_v_mul_f32: EACH(u(f(A) * f(B)));
	case OP_v_min_f32: EACH(u(fminf(f(A), f(B))));
	case OP_v_max_f32: EACH(u(fmaxf(f(A), f(B))));
	case OP_v_fma_f32: EACH(u(fmaf(f(A), f(B), f(C))));
	case OP_v_fmamk_f32: EACH(u(fmaf(f(A), f(C), f(B))));
	case OP_v_fmaak_f32: EACH(u(fmaf(f(A), f(B), f(C))));
	case OP_v_fmac_f32: EACH(u(fmaf(f(A), f(B), f(old[l]))));
	case OP_v_cvt_f32_i32: EACH(u((float)SA));
	case OP_v_cvt_f32_u32: EACH(u((float)A));
	case OP_v_cvt_f32_ubyte0: EACH(u((float)(A & 255)));
	case OP_v_cvt_u32_f32: EACH(to_u32(f(A)));
	case OP_v_cvt_i32_f32: EACH(to_i32(f(A)));
	case OP_v_ldexp_f32: EACH(u(ldexpf(f(A), (int)SB)));
	case OP_v_trunc_f32: EACH(u(truncf(f(A))));
	case OP_v_ceil_f32: EACH(u(ceilf(f(A))));
	case OP_v_rndne_f32: EACH(u(rintf(f(A))));
	case OP_v_floor_f32: EACH(u(floorf(f(A))));
	case OP_v_rcp_f32: case OP_v_rcp_iflag_f32: EACH(u(1.0f / f(A)));
	}
	return false;
}

static uint32_t reverse(uint32_t x)
{
	uint32_t r = 0;
	unsigned i;

	for (i = 0; i < 32; i++)
		r |= (x >> i & 1) << (31 - i);
	return r;
}

static int64_t low24(uint32_t x)
{
	return (int32_t)(x << 8) >> 8;
}

static bool two_ops(struct gfx_lanes *v, unsigned id)
{
	unsigned l;

	switch (id) {
	case OP_v_cndmask_b32: case OP_v_cndmask_b16: EACH(v->c[l] >> l & 1 ? B : A);
	case OP_v_min_i32: EACH((uint32_t)MIN(SA, SB));
	case OP_v_max_i32: EACH((uint32_t)MAX(SA, SB));
	case OP_v_min_u32: EACH(MIN(A, B));
	case OP_v_max_u32: EACH(MAX(A, B));
	case OP_v_lshlrev_b32: EACH(B << (A & 31));
	case OP_v_lshrrev_b32: EACH(B >> (A & 31));
	case OP_v_ashrrev_i32: EACH((uint32_t)(SB >> (A & 31)));
	case OP_v_and_b32: case OP_v_and_b16: EACH(A & B);
	case OP_v_or_b32: case OP_v_or_b16: EACH(A | B);
	case OP_v_xor_b32: case OP_v_xor_b16: EACH(A ^ B);
	case OP_v_xnor_b32: EACH(~(A ^ B));
	case OP_v_add_nc_u32: case OP_v_add_nc_i32: case OP_v_add_nc_u16: EACH(A + B);
	case OP_v_sub_nc_u32: case OP_v_sub_nc_i32: case OP_v_sub_nc_u16: EACH(A - B);
	case OP_v_subrev_nc_u32: EACH(B - A);
	case OP_v_mul_u32_u24: EACH((A & 0xffffff) * (B & 0xffffff));
	case OP_v_mul_hi_u32_u24: EACH((uint64_t)(A & 0xffffff) * (B & 0xffffff) >> 32);
	case OP_v_mul_i32_i24: EACH((uint32_t)(low24(A) * low24(B)));
	case OP_v_mul_hi_i32_i24: EACH((uint32_t)(low24(A) * low24(B) >> 32));
	case OP_v_mov_b32: case OP_v_mov_b16: case OP_v_movreld_b32: case OP_v_movrels_b32: EACH(A);
	case OP_v_mov_b64: EACH(v->a[l]);
	case OP_v_not_b32: case OP_v_not_b16: EACH(~A);
	case OP_v_bfrev_b32: EACH(reverse(A));
	case OP_v_clz_i32_u32: EACH(A ? (uint32_t)__builtin_clz(A) : ~0u);
	case OP_v_ctz_i32_b32: EACH(A ? (uint32_t)__builtin_ctz(A) : ~0u);
	case OP_v_cvt_i32_i16: EACH((uint32_t)(int16_t)A);
	case OP_v_cvt_u32_u16: EACH((uint16_t)A);
	case OP_v_bfm_b32: EACH(((1u << (A & 31)) - 1) << (B & 31));
	case OP_v_bcnt_u32_b32: EACH((uint32_t)__builtin_popcount(A) + B);
	case OP_v_mbcnt_lo_u32_b32: EACH((uint32_t)__builtin_popcount(l < 32 ? A & ((1u << l) - 1) : A) + B);
	case OP_v_mbcnt_hi_u32_b32: EACH((uint32_t)__builtin_popcount(l < 32 ? 0 : A & ((1u << (l - 32)) - 1)) + B);
	case OP_v_mul_lo_u32: case OP_v_mul_lo_u16: EACH(A * B);
	case OP_v_mul_hi_u32: EACH((uint64_t)A * B >> 32);
	case OP_v_mul_hi_i32: EACH((uint64_t)((int64_t)SA * SB) >> 32);
	case OP_v_lshlrev_b64: EACH(v->b[l] << (A & 63));
	case OP_v_lshrrev_b64: EACH(v->b[l] >> (A & 63));
	case OP_v_ashrrev_i64: EACH((int64_t)v->b[l] >> (A & 63));
	case OP_v_lshlrev_b16: EACH(B << (A & 15));
	case OP_v_lshrrev_b16: EACH((uint16_t)B >> (A & 15));
	case OP_v_ashrrev_i16: EACH((uint16_t)((int16_t)B >> (A & 15)));
	case OP_v_min_u16: EACH(MIN((uint16_t)A, (uint16_t)B));
	case OP_v_max_u16: EACH(MAX((uint16_t)A, (uint16_t)B));
	case OP_v_min_i16: EACH((uint16_t)MIN((int16_t)A, (int16_t)B));
	case OP_v_max_i16: EACH((uint16_t)MAX((int16_t)A, (int16_t)B));
	}
	return false;
}

/* Selector bytes 0 to 7 pick from b (low) and a, 8 to 11 repeat a sign, 12 is zero, more are 0xff. */
static uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
	uint64_t both = (uint64_t)a << 32 | b;
	uint32_t r = 0, i, s, byte;

	for (i = 0; i < 4; i++) {
		s = selector >> (8 * i) & 255;
		if (s < 8)
			byte = both >> (8 * s) & 255;
		else
			byte = s > 12 ? 255 : s == 12 ? 0 : (both >> (16 * (s - 8) + 15) & 1) * 255;
		r |= byte << (8 * i);
	}
	return r;
}

static uint32_t extract_signed(uint32_t a, uint32_t offset, uint32_t width)
{
	if (!width)
		return 0;
	if (offset + width >= 32)
		return (uint32_t)((int32_t)a >> offset);
	return (uint32_t)((int32_t)(a << (32 - offset - width)) >> (32 - width));
}

static bool three_ops(struct gfx_lanes *v, unsigned id)
{
	unsigned l;

	switch (id) {
	case OP_v_mad_u16: EACH(A * B + C);
	case OP_v_mad_i32_i24: EACH((uint32_t)(low24(A) * low24(B)) + C);
	case OP_v_mad_u32_u24: EACH((uint32_t)((A & 0xffffff) * (B & 0xffffff) + C));
	case OP_v_bfe_u32: EACH(A >> (B & 31) & ((1u << (C & 31)) - 1));
	case OP_v_bfe_i32: EACH(extract_signed(A, B & 31, C & 31));
	case OP_v_bfi_b32: EACH((A & B) | (~A & C));
	case OP_v_alignbit_b32: EACH((uint32_t)(((uint64_t)A << 32 | B) >> (C & 31)));
	case OP_v_min3_i32: EACH((uint32_t)MIN(MIN(SA, SB), SC));
	case OP_v_max3_i32: EACH((uint32_t)MAX(MAX(SA, SB), SC));
	case OP_v_min3_u32: EACH(MIN(MIN(A, B), C));
	case OP_v_max3_u32: EACH(MAX(MAX(A, B), C));
	case OP_v_maxmin_u32: EACH(MIN(MAX(A, B), C));
	case OP_v_minmax_u32: EACH(MAX(MIN(A, B), C));
	case OP_v_maxmin_i32: EACH((uint32_t)MIN(MAX(SA, SB), SC));
	case OP_v_minmax_i32: EACH((uint32_t)MAX(MIN(SA, SB), SC));
	case OP_v_med3_i32: EACH((uint32_t)MAX(MIN(SA, SB), MIN(MAX(SA, SB), SC)));
	case OP_v_med3_u32: EACH(MAX(MIN(A, B), MIN(MAX(A, B), C)));
	case OP_v_xor3_b32: EACH(A ^ B ^ C);
	case OP_v_perm_b32: EACH(permute(A, B, C));
	case OP_v_xad_u32: EACH((A ^ B) + C);
	case OP_v_lshl_add_u32: EACH((A << (B & 31)) + C);
	case OP_v_lshl_add_u64: EACH((v->a[l] << (B & 7)) + v->c[l]);
	case OP_v_add_lshl_u32: EACH((A + B) << (C & 31));
	case OP_v_add3_u32: EACH(A + B + C);
	case OP_v_lshl_or_b32: EACH(A << (B & 31) | C);
	case OP_v_and_or_b32: EACH((A & B) | C);
	case OP_v_or3_b32: EACH(A | B | C);
	}
	return false;
}

static bool carry_ops(struct gfx_lanes *v, unsigned id)
{
	uint64_t x, y, sum, in;
	unsigned l;

	if (id != OP_v_add_co_u32 && id != OP_v_sub_co_u32 && id != OP_v_subrev_co_u32 && id != OP_v_add_co_ci_u32 &&
	    id != OP_v_sub_co_ci_u32 && id != OP_v_subrev_co_ci_u32 && id != OP_v_mad_u64_u32 && id != OP_v_mad_i64_i32)
		return false;
	for (l = 0; l < v->count; l++) {
		bool reversed = id == OP_v_subrev_co_u32 || id == OP_v_subrev_co_ci_u32;

		in = id == OP_v_add_co_ci_u32 || id == OP_v_sub_co_ci_u32 || id == OP_v_subrev_co_ci_u32 ? v->c[l] >> l & 1 : 0;
		x = reversed ? B : A;
		y = reversed ? A : B;
		if (id == OP_v_mad_u64_u32 || id == OP_v_mad_i64_i32) {
			x = id == OP_v_mad_u64_u32 ? x * y : (uint64_t)((int64_t)SA * SB);
			sum = x + v->c[l];
			v->carry |= (uint64_t)(sum < x) << l;
		} else {
			sum = id == OP_v_add_co_u32 || id == OP_v_add_co_ci_u32 ? x + y + in : x - y - in;
			v->carry |= (sum >> 32 & 1) << l;
		}
		v->r[l] = sum;
	}
	return true;
}

bool gfx_compute(struct gfx_lanes *v, unsigned id, const uint64_t *old)
{
	return two_ops(v, id) || three_ops(v, id) || carry_ops(v, id) || real_ops(v, id, old);
}

static bool holds(unsigned condition, bool less, bool equal)
{
	switch (condition) {
	case 0: return false;
	case 1: return less;
	case 2: return equal;
	case 3: return less || equal;
	case 4: return !less && !equal;
	case 5: return !equal;
	case 6: return !less;
	default: return true;
	}
}

static bool holds_real(unsigned condition, float x, float y)
{
	bool unordered = x != x || y != y;

	if (condition >= 8)
		return !holds_real(15 - condition, x, y);
	if (condition == 5)
		return x < y || x > y;
	if (condition == 7)
		return !unordered;
	return !unordered && holds(condition, x < y, x == y);
}

uint64_t gfx_compare(const struct gfx_inst *in, const uint64_t *a, const uint64_t *b, unsigned lanes)
{
	unsigned type = in->vopc >> 3 & 15, condition = in->vopc & 7, l;
	uint64_t mask = 0;

	for (l = 0; l < lanes; l++) {
		uint64_t x = a[l], y = b[l];
		int64_t sx, sy;

		if (type < 6) {
			mask |= (uint64_t)holds_real(in->vopc & 15, f(x), f(y)) << l;
			continue;
		}
		x = type < 8 ? (uint16_t)x : type < 10 ? (uint32_t)x : x;
		y = type < 8 ? (uint16_t)y : type < 10 ? (uint32_t)y : y;
		sx = type < 8 ? (int16_t)x : type < 10 ? (int32_t)x : (int64_t)x;
		sy = type < 8 ? (int16_t)y : type < 10 ? (int32_t)y : (int64_t)y;
		mask |= (uint64_t)holds(condition, type & 1 ? x < y : sx < sy, x == y) << l;
	}
	return mask;
}
