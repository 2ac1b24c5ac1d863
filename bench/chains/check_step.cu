/* SPDX-License-Identifier: MIT */
/* The lists of a search (step.h) against sorted sets of the C++ library, with keys at random. A test: bench.step. */
#include "step.h"

#include <cstdio>
#include <cstdlib>
#include <set>

#define TURNS 2000u

static uint64_t seed = 1;

static uint64_t dice(uint64_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % below;
}

static void expect(bool yes, const char *what)
{
	if (yes)
		return;
	fprintf(stderr, "check_step: %s\n", what);
	exit(1);
}

/* A list, and the same as a set. */
template <uint32_t LENGTH> static void check_list(uint32_t length)
{
	static struct step s;
	uint64_t list[STEP_LIST];
	std::set<uint64_t> all;

	for (uint64_t &key : list)
		key = STEP_NOBODY;
	s.count = 0;
	for (uint32_t turn = 0; turn < 40; turn++) {
		for (uint64_t i = dice(STEP_BEAM * SEARCH_DEGREE + 1); i; i--) {
			uint64_t key = STEP_KEY(dice(60), dice(30)); /* many are there already, or twice */

			all.insert(key);
			step_offer(&s, list, length, key);
		}
		step_merge<LENGTH>(&s, list, length);
		expect(!s.count, "what was found is not forgotten");
		auto next = all.begin();
		for (uint32_t i = 0; i < length; i++, next = next == all.end() ? next : std::next(next))
			expect((list[i] & ~1ull) == (next == all.end() ? STEP_NOBODY & ~1ull : *next), "a list is not the nearest keys in order");
		if (list[0] != STEP_NOBODY)
			list[dice(length)] |= 1; /* wanted: it is the same node still */
	}
}

/* Each place is wanted once, the nearest first. */
static void check_choice(uint32_t length)
{
	static struct step s;
	uint64_t want[STEP_BEAM];
	uint32_t next = 0, n;

	for (uint32_t i = 0; i < STEP_LIST; i++)
		s.list[i] = i < length ? STEP_KEY(i, i) : STEP_NOBODY;
	while ((n = step_choose(&s, length, want)))
		for (uint32_t b = 0; b < STEP_BEAM; b++)
			expect(want[b] == (b < n ? next++ : STEP_NONE), "a node is wanted twice, or out of turn");
	expect(next == length, "a node is never wanted");
}

int main(void)
{
	expect(wave_square(0x00ff8001, 0xff00017f, 0) == 255 * 255 + 255 * 255 + 127 * 127 + 126 * 126, "the distance of four bytes");
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		check_list<STEP_LIST>((uint32_t)dice(STEP_LIST) + 1);
		check_list<SEARCH_TOP>(SEARCH_TOP);
		check_choice((uint32_t)dice(STEP_LIST) + 1);
	}
	printf("%u turns\n", TURNS);
	return 0;
}
