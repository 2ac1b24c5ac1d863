/* SPDX-License-Identifier: MIT */
/*
 * Single instructions: every ALU opcode of ops.def against the hand-written cases of cases.def, comparisons, and what is refused. And
 * a line that the caches fetch ahead.
 */
#include "gfx/memory.h"
#include "gfx/valu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


struct test_case {
	const char *name;
	uint64_t a, b, c;
	unsigned flag;
	uint64_t want;
	unsigned out, lanes; /* lanes: 0: any */
};

static const struct test_case cases[] = {
#define ROW(lanes, name, a, b, c, flag, want, out) \
	{ #name, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), flag, (uint64_t)(want), out, lanes },
#define CASE(...) ROW(0, __VA_ARGS__)
#define CASE32(...) ROW(32, __VA_ARGS__)
#define CASE64(...) ROW(64, __VA_ARGS__)
#include "gfx/cases.def"
#undef CASE
#undef CASE32
#undef CASE64
#undef ROW
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

static struct gfx machine = { .lanes = 32 };
static struct gfx_wave wave;

/* The one where vector results are looked at. */
static unsigned lane_of_interest(void)
{
	return machine.lanes - 29;
}

static void set(const struct gfx_arg *a, uint64_t value, bool ramp)
{
	unsigned lane;

	if (a->code < 256) {
		wave.s[a->code] = (uint32_t)value;
		wave.s[a->code + 1] = (uint32_t)(value >> 32);
		return;
	}
	for (lane = 0; lane < GFX_LANES; lane++) {
		wave.v[a->code - 256][lane] = (a->part == P_HIGH ? (uint32_t)value << 16 | 0x5a5a : (uint32_t)value) + (ramp ? lane : 0);
		wave.v[a->code - 255][lane] = (uint32_t)(value >> 32);
	}
}

static uint64_t get(const struct gfx_arg *a)
{
	unsigned base = a->code < 256 ? a->code : a->code - 256u;
	uint64_t low = a->code < 256 ? wave.s[base] : wave.v[base][lane_of_interest()];
	uint64_t high = a->code < 256 ? wave.s[base + 1] : wave.v[base + 1][lane_of_interest()];

	return a->width == 2 ? low | high << 32 : low;
}

/* Operands in registers of their own; sources of a lane move that must be scalar are scalar. */
static void place(struct gfx_inst *in, const struct test_case *t, bool high)
{
	static const char roles[] = "abcdstkL";
	static const uint16_t scalars[] = { 2, 4, 6, 20, 20, 30, GFX_VCC, 255 };
	const char *spec = in->x.op->spec;
	bool ramp = strstr(t->name, "lane_b32") != NULL && t->name[2] == 'r';

	for (; *spec && *spec != 'n'; spec += 2) {
		unsigned role = (unsigned)(strchr(roles, *spec) - roles);
		bool scalar = in->format <= F_SMEM || *spec == 's' || *spec == 't' || *spec == 'k' || *spec == 'L' ||
			      (strstr(t->name, "readlane") && *spec == 'b') || strstr(t->name, "writelane");
		struct gfx_arg *a = &in->x.arg[in->x.count++];

		*a = gfx_operand(spec, scalar ? scalars[role] : scalars[role] + 256u, machine.lanes);
		if (a->part && high)
			a->part = P_HIGH;
		if (*spec == 'd' && strstr(t->name, "writelane"))
			a->code = 256 + 20;
		if (strstr(t->name, "movrels") && role == 0)
			set(&(struct gfx_arg){ .code = (uint16_t)(a->code + t->c) }, t->a, false);
		else if (role < 3)
			set(a, role == 0 ? t->a : role == 1 ? t->b : t->c, ramp && role == 0);
		else if (*spec == 'd')
			set(a, in->format == F_SOPK ? t->a : t->c, false);
	}
	in->literal = (uint32_t)t->c;
	in->imm = (int32_t)t->b;
}

static bool check(const struct test_case *t, const struct gfx_inst *in)
{
	bool vector = in->format > F_SMEM, saves = strstr(t->name, "saveexec") != NULL;
	unsigned mask = in->x.count > 1 && in->x.arg[1].role == 't' ? 30 : GFX_VCC;
	unsigned flag = vector ? gfx_mask(&machine, &wave, mask) >> lane_of_interest() & 1 : wave.scc;
	struct gfx_arg result = in->x.arg[0];
	uint64_t got;

	if (strstr(t->name, "movreld"))
		result.code = (uint16_t)(result.code + t->c);
	got = saves ? gfx_mask(&machine, &wave, GFX_EXEC) : strstr(t->name, "setpc") || strstr(t->name, "swappc") ? wave.pc : get(&result);
	if (result.part)
		got = result.part == P_HIGH ? got >> 16 : got & 0xffff;
	if (in->format == F_SOPC)
		got = 0;
	if (result.part == P_HIGH && (get(&result) & 0xffff) != 0x5a5a) {
		printf("%s writes to the other half\n", t->name);
		return false;
	}
	if ((t->out != 2 && flag != t->out) || got != t->want || (saves && gfx_mask(&machine, &wave, 20) != t->c) ||
	    (strstr(t->name, "swappc") && wave.s[20] != 0x1000)) {
		printf("%s of %#llx, %#llx, %#llx, %u in %u lanes: %#llx, flag %u; wanted %#llx, %u\n", t->name, (unsigned long long)t->a,
		       (unsigned long long)t->b, (unsigned long long)t->c, t->flag, machine.lanes, (unsigned long long)got, flag,
		       (unsigned long long)t->want, t->out);
		return false;
	}
	return true;
}

static bool run(const struct test_case *t, const struct gfx_op *op, bool high)
{
	struct gfx_inst in = { .format = op->format, .len = 4, .opsel_hi = 7, .x = { .op = op } };
	bool vector = op->format > F_SMEM;

	memset(&wave, 0, sizeof(wave));
	place(&in, t, high);
	wave.pc = 0x1000;
	gfx_set_exec(&machine, &wave, strstr(t->name, "saveexec") ? t->c : strstr(t->name, "readfirst") ? ~0ull << lane_of_interest() : ~0ull);
	wave.s[GFX_VCC] = wave.s[GFX_VCC + 1] = vector && t->flag ? ~0u : 0;
	wave.s[GFX_M0] = strstr(t->name, "movrel") ? (uint32_t)t->c : 0;
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

/* DPP: the second word, a lane, and the lane its source comes from; 32: it reads zero, 33: it is left out. Lane 9 is not in EXEC. */
static const struct {
	uint32_t word;
	unsigned lane, from;
} moves[] = {
	{ 0xff00b101, 4, 5 }, { 0xff00b101, 7, 6 }, { 0xff001b01, 20, 23 }, { 0xff010101, 4, 5 }, { 0xff010301, 14, 33 },
	{ 0xff090301, 14, 32 }, { 0xff010301, 30, 33 }, { 0xff011201, 18, 16 }, { 0xff011201, 17, 33 }, { 0xff012301, 17, 30 },
	{ 0xff014001, 18, 29 }, { 0xff014101, 9, 33 }, { 0xff014101, 10, 13 }, { 0xff015301, 25, 19 }, { 0xff016601, 9, 33 },
	{ 0xff016601, 15, 33 }, { 0xff096601, 15, 32 }, { 0xff056601, 15, 9 }, { 0xff016601, 21, 19 },
};

static unsigned run_moves(const struct gfx_op *mov)
{
	struct gfx_inst in = { .format = F_VOP1, .dpp = true, .x = { mov, 2, { gfx_operand("d1", 257, 32), gfx_operand("a1", 256, 32) } } };
	unsigned i, lane, bad = 0;

	for (i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		uint32_t want = moves[i].from == 33 ? 77 : moves[i].from == 32 ? 0 : 100 + moves[i].from;

		for (lane = 0; lane < GFX_LANES; lane++) {
			wave.v[0][lane] = 100 + lane;
			wave.v[1][lane] = 77;
		}
		wave.s[GFX_EXEC] = ~(1u << 9);
		in.word[1] = moves[i].word;
		if (setjmp(machine.stop) || (gfx_vector(&machine, &wave, &in), wave.v[1][moves[i].lane] != want)) {
			printf("DPP %08x: lane %u gets %u, wanted %u. %s\n", in.word[1], moves[i].lane, wave.v[1][moves[i].lane], want,
			       machine.error);
			bad++;
		}
	}
	return bad;
}

/* Registers that there are not, named by the instruction or reached by way of M0: the operands, and what is said. */
static const struct {
	const char *name;
	uint16_t to, from;
	uint32_t m0;
	const char *want;
} refusals[] = {
	{ "v_movreld_b32", 256, 257, 0xffffffff, "v4294967295 does not exist" },
	{ "v_movreld_b32", 257, 257, 255, "v256 does not exist" },
	{ "v_movrels_b32", 256, 257, 0xfffffffe, "v4294967295 does not exist" },
	{ "v_movrels_b32", 256, 257, 255, "v256 does not exist" },
	{ "s_movreld_b64", 4, 2, 123, "s128 does not exist" },
	{ "s_movrels_b64", 4, 2, 125, "s128 does not exist" },
	{ "s_mov_b64", 127, 2, 0, "s128 does not exist" },
	{ "s_mov_b64", 4, 127, 0, "s128 does not exist" },
};

static bool refuses(const struct gfx_op *op, unsigned i)
{
	struct gfx_inst in = { .format = op->format, .x = { op, 2, { gfx_operand(op->spec, refusals[i].to, 32),
								     gfx_operand(op->spec + 2, refusals[i].from, 32) } } };

	memset(&wave, 0, sizeof(wave));
	gfx_set_exec(&machine, &wave, ~0ull);
	wave.s[GFX_M0] = refusals[i].m0;
	if (setjmp(machine.stop)) {
		if (strcmp(machine.error, refusals[i].want))
			printf("%s says '%s', wanted '%s'\n", op->name, machine.error, refusals[i].want);
		return !strcmp(machine.error, refusals[i].want);
	}
	(op->format > F_SMEM ? gfx_vector : gfx_scalar)(&machine, &wave, &in);
	printf("%s was not refused, wanted '%s'\n", op->name, refusals[i].want);
	return false;
}

static unsigned run_refusals(void)
{
	unsigned i, j, count, bad = 0;
	const struct gfx_op *op = gfx_op_table(ISA_11, &count);

	for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		for (j = 0; j < count && strcmp(op[j].name, refusals[i].name);)
			j++;
		bad += j == count || !refuses(&op[j], i);
	}
	return bad;
}

static unsigned run_comparisons(void)
{
	uint64_t a[GFX_LANES] = { 0 }, b[GFX_LANES] = { 0 };
	unsigned i, bad = 0;

	for (i = 0; i < sizeof(comparisons) / sizeof(comparisons[0]); i++) {
		struct gfx_inst in = { .format = F_VOPC, .vopc = comparisons[i].code };

		a[35] = comparisons[i].a;
		b[35] = comparisons[i].b;
		if ((gfx_compare(&in, a, b, 64) >> 35 & 1) == comparisons[i].want)
			continue;
		printf("comparison %#x is wrong\n", comparisons[i].code);
		bad++;
	}
	return bad;
}

/* Atomics: the name without its prefix and without _rtn, what memory held, the operands, what it holds then. */
static const struct {
	const char *name;
	uint64_t old, value, compare, want;
} atomics[] = {
	{ "swap_b32", 5, 9, 0, 9 }, { "swap_b64", 5, 1ull << 40, 0, 1ull << 40 }, { "storexchg_b32", 5, 9, 0, 9 },
	{ "storexchg_b64", 5, 9, 0, 9 }, { "cmpswap_b32", 5, 9, 5, 9 }, { "cmpswap_b64", 5, 9, 1ull << 32 | 5, 5 },
	{ "cmpstore_b32", 5, 9, 4, 5 }, { "cmpstore_b64", 5, 9, 5, 9 }, { "add_u32", 0xffffffff, 2, 0, 1 },
	{ "add_u64", 0xffffffff, 2, 0, 0x100000001 }, { "sub_u32", 1, 2, 0, 0xffffffff }, { "sub_u64", 1, 2, 0, ~0ull },
	{ "min_i32", 0xffffffff, 1, 0, 0xffffffff }, { "max_i32", 0xffffffff, 1, 0, 1 }, { "min_u32", 0xffffffff, 1, 0, 1 },
	{ "max_u32", 0xffffffff, 1, 0, 0xffffffff }, { "min_i64", ~0ull, 1, 0, ~0ull }, { "max_i64", ~0ull, 1, 0, 1 },
	{ "min_u64", ~0ull, 1, 0, 1 }, { "max_u64", 1, 1ull << 63, 0, 1ull << 63 }, { "and_b32", 12, 10, 0, 8 },
	{ "and_b64", ~0ull, 1ull << 40, 0, 1ull << 40 }, { "or_b32", 12, 10, 0, 14 }, { "or_b64", 1, 1ull << 40, 0, 1ull << 40 | 1 },
	{ "xor_b32", 12, 10, 0, 6 }, { "xor_b64", ~0ull, 1, 0, ~1ull },
};

static bool run_atomic(const struct gfx_op *op)
{
	const char *name = strchr(op->name, '_') + 1, *rtn = strstr(name, "_rtn");
	unsigned i, size = name[strlen(name) - 1] == '4' ? 8 : 4;
	char plain[32];

	snprintf(plain, sizeof(plain), "%.*s%s", rtn ? (int)(rtn - name) : (int)strlen(name), name, rtn ? rtn + 4 : "");
	for (i = 0; i < sizeof(atomics) / sizeof(atomics[0]); i++) {
		uint64_t got, mask = size == 8 ? ~0ull : 0xffffffff;

		if (strcmp(atomics[i].name, plain))
			continue;
		got = gfx_atomic(&machine, op, atomics[i].old, atomics[i].value, atomics[i].compare, size) & mask;
		if (got != atomics[i].want)
			printf("%s: %#llx\n", op->name, (unsigned long long)got);
		return got == atomics[i].want;
	}
	printf("%s has no case\n", op->name);
	return false;
}

/* All cases of an opcode, in waves of both sizes (of 64 where there are no others). Returns how many failed. */
static unsigned run_cases(enum gfx_isa isa, const struct gfx_op *op, unsigned *seen)
{
	unsigned j, bad = 0;

	for (j = *seen = 0; j < sizeof(cases) / sizeof(cases[0]); j++) {
		if (strcmp(cases[j].name, op->name))
			continue;
		++*seen;
		for (machine.lanes = isa == ISA_9 ? 64 : 32; machine.lanes <= 64; machine.lanes += 32) {
			if (cases[j].lanes && cases[j].lanes != machine.lanes)
				continue;
			bad += !run(&cases[j], op, false);
			bad += strchr(op->spec, 'h') && !run(&cases[j], op, true);
		}
		machine.lanes = 32;
	}
	return bad;
}

/* Every opcode of a set. */
static unsigned run_isa(enum gfx_isa isa)
{
	unsigned i, count, seen, bad = 0, opcodes = 0;
	const struct gfx_op *op = gfx_op_table(isa, &count);

	for (i = 0; i < count; i++) {
		bool alu = (op[i].format <= F_SOPK && op[i].format != F_SOPP) || (op[i].format >= F_VOP1 && op[i].format <= F_VOP3P);

		if ((op[i].format == F_FLAT && op[i].code >= 0x33) ||
		    (op[i].format == F_DS && !strstr(op[i].name, "load") && strncmp(op[i].name, "ds_store_", 9) && !strstr(op[i].name, "permute")))
			bad += !run_atomic(&op[i]);
		bad += run_cases(isa, &op[i], &seen);
		opcodes += alu && seen;
		bad += isa == ISA_11 && op[i].id == OP_v_mov_b32 ? run_moves(&op[i]) : 0;
		if (alu && !seen && op[i].id != OP_s_waitcnt_vscnt && op[i].id != OP_s_barrier_signal && op[i].id != OP_s_set_gpr_idx_on && !strstr(op[i].text, "accvgpr") && op[i].id != OP_s_sendmsg_rtn_b32 && op[i].id != OP_s_sendmsg_rtn_b64) {
			printf("%s has no case\n", op[i].text);
			bad++;
		}
	}
	printf("%s: %u opcodes\n", isa == ISA_9 ? "gfx942" : isa == ISA_12 ? "gfx1200, where it differs" : "gfx1100", opcodes);
	return bad;
}

/* A line that is fetched ahead has what the L2 keeps of it, also where its region lies within a wider one that the L2 does not cache. */
static unsigned run_ahead(void)
{
	static struct gfx m = { .cached_count = 1 };
	static struct gfx_wave w;
	_Alignas(GFX_LINE) uint64_t line[GFX_LINE / 8] = { 1 }, got = 0;
	const uint64_t at = (uintptr_t)line, kept = 2;

	w.l0 = gfx_cache_new();
	m.l1 = gfx_cache_new();
	m.near = gfx_cache_new();
	gfx_register(&m, "allocation", line, sizeof(line), GFX_DEVICE);
	gfx_register(&m, "its pages", line, sizeof(line), GFX_DEVICE | GFX_NC);
	m.cached[0] = at;
	gfx_near_write(&m, at, 8, &kept);
	gfx_fetch_ahead(&m, &w);
	gfx_cached_read(&m, w.l0, m.l1, gfx_region_of(&m, at, 8, false), at, 8, &got);
	if (got != kept)
		printf("a line that is fetched ahead has %llu, and the L2 has %llu\n", (unsigned long long)got, (unsigned long long)kept);
	gfx_cache_free(m.near);
	gfx_cache_free(m.l1);
	gfx_cache_free(w.l0);
	return got != kept;
}

int main(void)
{
	unsigned bad = run_comparisons() + run_refusals() + run_isa(ISA_11) + run_isa(ISA_9) + run_isa(ISA_12) + run_ahead();

	printf("%u cases, %u comparisons, %u refusals, %u wrong\n", (unsigned)(sizeof(cases) / sizeof(cases[0])),
	       (unsigned)(sizeof(comparisons) / sizeof(comparisons[0])), (unsigned)(sizeof(refusals) / sizeof(refusals[0])), bad);
	return bad != 0;
}
