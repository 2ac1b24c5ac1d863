/* SPDX-License-Identifier: MIT */
/* Single instructions: every ALU opcode of ops.def against the hand-written cases of cases.def, and comparisons. */
#include "gfx/valu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANE 3 /* where vector results are looked at */
#define VCC 106
#define EXEC 126

struct test_case {
	const char *name;
	uint64_t a, b, c;
	unsigned flag;
	uint64_t want;
	unsigned out;
};

static const struct test_case cases[] = {
#define CASE(name, a, b, c, flag, want, out) { #name, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), flag, (uint64_t)(want), out },
#include "gfx/cases.def"
#undef CASE
};

/* Type and condition of a comparison as in its opcode, and what it says of a and b. */
static const struct {
	uint8_t code;
	uint64_t a, b;
	bool want;
} comparisons[] = {
	{ 0x11, 0xbf800000, 0x3f800000, true }, { 0x12, 0x80000000, 0, true }, { 0x13, 0x7fc00000, 0, false },
	{ 0x14, 1, 0x80000001, true }, { 0x15, 0x7fc00000, 0, false }, { 0x16, 0x3f800000, 0x3f800000, true },
	{ 0x17, 0x7fc00000, 0, false }, { 0x18, 0x7fc00000, 0, true }, { 0x19, 0x7fc00000, 0, true },
	{ 0x1d, 0x7fc00000, 0x7fc00000, true }, { 0x31, 0xffff, 1, true }, { 0x34, 0x8000, 0x17fff, false },
	{ 0x39, 0xffff, 1, false }, { 0x3a, 0x10001, 1, true }, { 0x3d, 0x10001, 1, false },
	{ 0x3e, 0xffff, 1, true }, { 0x41, 0xffffffff, 1, true }, { 0x42, 1ull << 32 | 7, 7, true },
	{ 0x43, 2, 1, false }, { 0x44, 1, 0xffffffff, true }, { 0x45, 1, 2, true },
	{ 0x46, 0xffffffff, 0, false }, { 0x48, 1, 1, false }, { 0x49, 0xffffffff, 1, false },
	{ 0x4b, 1, 1, true }, { 0x4c, 0xffffffff, 1, true }, { 0x4f, 1, 2, true },
	{ 0x51, 1ull << 63, 0, true }, { 0x54, 1ull << 63, 0, false }, { 0x56, 5, 5, true },
	{ 0x59, 1ull << 63, 0, false }, { 0x5a, 1ull << 32, 0, false }, { 0x5c, 1ull << 63, 1, true },
	{ 0x5d, 1ull << 32, 0, true }, { 0x5e, 0, 1ull << 40, false },
};

static struct gfx machine;
static struct gfx_wave wave;

static void set(const struct gfx_arg *a, uint64_t value, bool ramp)
{
	unsigned lane;

	if (a->code < 256) {
		wave.s[a->code] = (uint32_t)value;
		wave.s[a->code + 1] = (uint32_t)(value >> 32);
		return;
	}
	for (lane = 0; lane < GFX_LANES; lane++) {
		wave.v[a->code - 256][lane] = (uint32_t)value + (ramp ? lane : 0);
		wave.v[a->code - 255][lane] = (uint32_t)(value >> 32);
	}
}

static uint64_t get(const struct gfx_arg *a)
{
	unsigned base = a->code < 256 ? a->code : a->code - 256u;
	uint64_t low = a->code < 256 ? wave.s[base] : wave.v[base][LANE], high = a->code < 256 ? wave.s[base + 1] : wave.v[base + 1][LANE];

	return a->width == 2 ? low | high << 32 : low;
}

/* Operands in registers of their own; sources of a lane move that must be scalar are scalar. */
static void place(struct gfx_inst *in, const struct test_case *t)
{
	static const char roles[] = "abcdstkL";
	static const uint16_t scalars[] = { 2, 4, 6, 20, 20, 30, VCC, 255 };
	const char *spec = in->x.op->spec;
	bool ramp = strstr(t->name, "lane_b32") != NULL && t->name[2] == 'r';

	for (; *spec && *spec != 'n'; spec += 2) {
		unsigned role = (unsigned)(strchr(roles, *spec) - roles);
		bool scalar = t->name[0] == 's' || *spec == 's' || *spec == 't' || *spec == 'k' || *spec == 'L' ||
			      (strstr(t->name, "readlane") && *spec == 'b') || strstr(t->name, "writelane");
		struct gfx_arg *a = &in->x.arg[in->x.count++];

		*a = (struct gfx_arg){ *spec, (uint8_t)(spec[1] - '0'), (uint16_t)(scalar ? scalars[role] : scalars[role] + 256) };
		if (*spec == 'd' && strstr(t->name, "writelane"))
			a->code = 256 + 20;
		if (role < 3)
			set(a, role == 0 ? t->a : role == 1 ? t->b : t->c, ramp && role == 0);
		else if (*spec == 'd')
			set(a, in->format == F_SOPK ? t->a : t->c, false);
	}
	in->literal = (uint32_t)t->c;
	in->imm = (int32_t)t->b;
}

static bool check(const struct test_case *t, const struct gfx_inst *in)
{
	bool vector = t->name[0] == 'v', saves = strstr(t->name, "saveexec") != NULL;
	unsigned flag = vector ? wave.s[in->x.count > 1 && in->x.arg[1].role == 't' ? 30 : VCC] >> LANE & 1 : wave.scc;
	struct gfx_arg result = in->x.arg[0];
	uint64_t got;

	if (strstr(t->name, "movreld"))
		result.code = (uint16_t)(result.code + t->c);
	got = saves ? wave.s[EXEC] : strstr(t->name, "setpc") || strstr(t->name, "swappc") ? wave.pc : get(&result);
	if (strstr(t->name, "16") && vector && !strstr(t->name, "cvt"))
		got &= 0xffff;
	if (in->format == F_SOPC)
		got = 0;
	if ((t->out != 2 && flag != t->out) || got != t->want || (saves && wave.s[20] != t->c) ||
	    (strstr(t->name, "swappc") && wave.s[20] != 0x1000)) {
		printf("%s of %#llx, %#llx, %#llx, %u: %#llx, flag %u; wanted %#llx, %u\n", t->name, (unsigned long long)t->a,
		       (unsigned long long)t->b, (unsigned long long)t->c, t->flag, (unsigned long long)got, flag,
		       (unsigned long long)t->want, t->out);
		return false;
	}
	return true;
}

static bool run(const struct test_case *t, const struct gfx_op *op)
{
	struct gfx_inst in = { .format = op->format, .len = 4, .x = { .op = op } };
	bool vector = t->name[0] == 'v';

	memset(&wave, 0, sizeof(wave));
	place(&in, t);
	wave.pc = 0x1000;
	wave.s[EXEC] = strstr(t->name, "saveexec") ? (uint32_t)t->c : strstr(t->name, "readfirst") ? ~7u : ~0u;
	wave.s[VCC] = vector && t->flag ? ~0u : 0;
	wave.s[125] = strstr(t->name, "movreld") ? (uint32_t)t->c : 0;
	wave.scc = !vector && t->flag;
	if (setjmp(machine.stop)) {
		printf("%s: %s\n", t->name, machine.error);
		return false;
	}
	if (vector)
		gfx_vector(&machine, &wave, &in);
	else
		gfx_scalar(&machine, &wave, &in);
	return check(t, &in);
}

static unsigned run_comparisons(void)
{
	uint64_t a[GFX_LANES] = { 0 }, b[GFX_LANES] = { 0 };
	unsigned i, bad = 0;

	for (i = 0; i < sizeof(comparisons) / sizeof(comparisons[0]); i++) {
		struct gfx_inst in = { .format = F_VOPC, .vopc = comparisons[i].code };

		a[LANE] = comparisons[i].a;
		b[LANE] = comparisons[i].b;
		if ((gfx_compare(&in, a, b) >> LANE & 1) == comparisons[i].want)
			continue;
		printf("comparison %#x is wrong\n", comparisons[i].code);
		bad++;
	}
	return bad;
}

int main(void)
{
	unsigned i, j, count, seen, bad = run_comparisons(), opcodes = 0;
	const struct gfx_op *op = gfx_op_table(&count);

	for (i = 0; i < count; i++) {
		bool alu = (op[i].format <= F_SOPK && op[i].format != F_SOPP) || (op[i].format >= F_VOP1 && op[i].format <= F_VOP3);

		for (j = seen = 0; j < sizeof(cases) / sizeof(cases[0]); j++) {
			if (strcmp(cases[j].name, op[i].name))
				continue;
			seen++;
			bad += !run(&cases[j], &op[i]);
		}
		opcodes += alu && seen;
		if (alu && !seen && op[i].id != OP_s_waitcnt_vscnt && op[i].id != OP_s_sendmsg_rtn_b32 && op[i].id != OP_s_sendmsg_rtn_b64) {
			printf("%s has no case\n", op[i].name);
			bad++;
		}
	}
	printf("%u opcodes, %u cases, %u comparisons, %u wrong\n", opcodes, (unsigned)(sizeof(cases) / sizeof(cases[0])),
	       (unsigned)(sizeof(comparisons) / sizeof(comparisons[0])), bad);
	return bad != 0;
}
