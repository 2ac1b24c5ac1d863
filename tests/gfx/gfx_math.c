/* SPDX-License-Identifier: MIT */
/* Kernels of math.hip on the executor, against the same functions compiled for the CPU, on random numbers. */
#include "gfx/gfx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES 512u
#define WIDTH 256u

typedef uint64_t math_fn(uint64_t a, uint64_t b, uint64_t c);

#define MATH(name, ...) \
	static uint64_t f_##name(uint64_t a, uint64_t b, uint64_t c) { (void)a; (void)b; (void)c; __VA_ARGS__ }
#include "gfx/math.def"
#undef MATH

static const struct {
	const char *name;
	math_fn *fn;
} functions[] = {
#define MATH(name, ...) { #name, f_##name },
#include "gfx/math.def"
#undef MATH
};

static unsigned wave_lanes;
static uint64_t in[3 * LANES], out[LANES], want[LANES], seed = 1;

static uint64_t draw(void)
{
	uint64_t r;

	seed = seed * 6364136223846793005u + 1442695040888963407u;
	r = seed ^ seed >> 31;
	/* Small numbers and edges are as likely as any. */
	switch (seed >> 60) {
	case 0: return r & 15;
	case 1: return ~(r & 15);
	case 2: return (uint32_t)r;
	case 3: return 1ull << (r & 63);
	case 4: return (r & 1) << 63 | (r & 2) << 30;
	default: return r;
	}
}

static void expect_scan(void)
{
	unsigned i;

	for (i = 0; i < LANES; i++)
		want[i] = in[3 * i] + (i % WIDTH ? want[i - 1] : 0);
}

static void expect_atomics(void)
{
	uint32_t low[LANES / WIDTH], v;
	unsigned i;

	memset(low, 0xff, sizeof(low));
	for (i = 0; i < LANES; i++) {
		v = (uint32_t)in[3 * i];
		want[v & 15] += 1 + (v >> 28);
		want[16] = v > want[16] ? v : want[16];
		want[17] ^= v;
		low[i / WIDTH] = v < low[i / WIDTH] ? v : low[i / WIDTH];
	}
	for (i = 0; i < LANES / WIDTH; i++)
		want[18] |= low[i];
}

static void expect_ballot(void)
{
	unsigned i, lane, wave;

	for (wave = 0; wave < LANES; wave += wave_lanes) {
		uint32_t first = wave_lanes;
		uint64_t votes = 0;

		for (lane = 0; lane < wave_lanes; lane++) {
			uint32_t v = (uint32_t)in[3 * (wave + lane)];

			if (v % 5 && first == wave_lanes)
				first = lane;
			votes |= (uint64_t)(v % 5 ? v & 1 : 0) << lane;
		}
		for (lane = 0; lane < wave_lanes; lane++) {
			uint32_t other = (uint32_t)in[3 * (wave + (lane ^ 1))];

			i = wave + lane;
			if ((uint32_t)in[3 * i] % 5 == 0) {
				want[i] = 5;
				continue;
			}
			want[i] = votes * 0x10001 + (uint64_t)__builtin_popcountll(votes & ((1ull << lane) - 1)) +
				  ((in[3 * (wave + first)] & 0xff) << 40) + ((uint64_t)(other % 5 ? other & 0xff : 0) << 48);
		}
	}
}

static void expect_lock(void)
{
	unsigned i;

	for (i = 0; i < LANES; i++)
		want[1] += in[3 * i];
}

static const struct {
	const char *kernel;
	void (*expect)(void);
} wide[] = {
	{ "w_scan", expect_scan }, { "w_atomics", expect_atomics }, { "w_ballot", expect_ballot }, { "w_lock", expect_lock },
};

static uint64_t steps;
static unsigned threads;

static int run(struct gfx_code *code, const char *kernel, uint32_t rules, uint32_t groups)
{
	uint64_t args[2] = { (uintptr_t)in, (uintptr_t)out };
	struct gfx m = { .code = code, .rules = rules, .random = seed, .stir = 20, .stall = 40, .ahead = 1, .max_steps = 20000000, .threads = threads };
	unsigned i;

	memset(out, 0, sizeof(out));
	gfx_register(&m, "in", in, sizeof(in), GFX_READONLY);
	gfx_register(&m, "out", out, sizeof(out), 0);
	if (gfx_launch(&m, kernel, groups == 1 ? 1 : LANES, groups == 1 ? 1 : WIDTH, args, sizeof(args))) {
		printf("%s: %s\n", kernel, m.error);
		return 1;
	}
	steps += m.step;
	for (i = 0; i < (groups == 1 ? 1 : LANES); i++)
		if (out[i] != want[i]) {
			printf("%s, rules %u: lane %u of (%#llx, %#llx, %#llx) computes %#llx instead of %#llx\n", kernel, rules, i,
			       (unsigned long long)in[3 * i], (unsigned long long)in[3 * i + 1], (unsigned long long)in[3 * i + 2],
			       (unsigned long long)out[i], (unsigned long long)want[i]);
			return 1;
		}
	return 0;
}

static void new_input(void)
{
	unsigned i;

	for (i = 0; i < 3 * LANES; i++)
		in[i] = draw();
	memset(want, 0, sizeof(want));
}

static int run_function(struct gfx_code *code, unsigned n, uint32_t rules)
{
	char name[64];
	unsigned i;
	int bad;

	new_input();
	for (i = 0; i < LANES; i++)
		want[i] = functions[n].fn(in[3 * i], in[3 * i + 1], in[3 * i + 2]);
	snprintf(name, sizeof(name), "v_%s", functions[n].name);
	bad = run(code, name, rules, LANES / WIDTH);
	snprintf(name, sizeof(name), "u_%s", functions[n].name);
	for (i = 0; i < 12 && !bad; i++) {
		new_input();
		want[0] = functions[n].fn(in[0], in[1], in[2]);
		bad = run(code, name, rules, 1);
	}
	return bad;
}

int main(int argc, char **argv)
{
	unsigned i, round, bad = 0, runs = 0;
	struct gfx_code *code;
	char why[300];

	if (argc != 2) {
		fprintf(stderr, "usage: gfx_math CODE-OBJECT\n");
		return 2;
	}
	code = gfx_load(argv[1], why, sizeof(why));
	if (!code) {
		printf("%s\n", why);
		return 2;
	}
	wave_lanes = code->lanes;
	for (round = 0; round < 4; round++) {
		uint32_t rules = round & 1 ? GFX_NASTY : 0;

		threads = round & 2;
		for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++, runs++)
			bad += (unsigned)run_function(code, i, rules);
		for (i = 0; i < sizeof(wide) / sizeof(wide[0]); i++, runs++) {
			new_input();
			wide[i].expect();
			bad += (unsigned)run(code, wide[i].kernel, rules, LANES / WIDTH);
		}
	}
	printf("%u kernels, %llu instructions, %u wrong\n", runs, (unsigned long long)steps, bad);
	gfx_unload(code);
	return bad != 0;
}
