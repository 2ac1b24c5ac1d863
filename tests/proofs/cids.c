/* SPDX-License-Identifier: MIT */
/*
 * Bits of the CID map: any 64-bit word and any number of bits; maps of 1 to 128 identifiers in any state, wherever a lane begins to
 * look, and whatever it asks for. One lane at a time: how lanes meet is the model's (tests/spin) and the schedules' to check.
 */
#include "proofs.h"

/*
 * A solver cannot search with counts of 64 bits. So a count is any function of which is known what TAKE() says, and prove_counts
 * holds that to be true of the real one.
 */
#ifdef REAL_COUNTS
#define COUNT(v) ((uint32_t)__builtin_popcountll(v))
#else
uint32_t __CPROVER_uninterpreted_count(uint64_t v);
#define COUNT(v) __CPROVER_uninterpreted_count(v)
#define __builtin_popcountll COUNT
#endif

#include <gpunvme/device/reserve.h>
#include <gpunvme/device/write.h>

#define WORDS 2

static uint64_t below(uint64_t v, uint32_t at)
{
	return at < 64 ? v & ((1ull << at) - 1) : v;
}

/* One bit more is counted as one. */
static _Bool counts(uint64_t v, uint32_t at)
{
	return gnvd_popc(below(v, at + 1)) == gnvd_popc(below(v, at)) + (v >> at & 1);
}

void prove_counts(void)
{
	uint32_t at = nondet_32();

	TAKE(at < 64);
	PROVE(counts(nondet_64(), at));
}

/* The k lowest of them and no other. */
void prove_lowest_bits(void)
{
	uint64_t v = nondet_64(), got, more;
	uint32_t k = nondet_32();

	TAKE(k >= 1 && k <= 64);
	got = gnvd_lowest_bits(v, k);
	more = v & ~got;
	TAKE(!more || counts(v, gnvd_lowest(more)));
	PROVE(!(got & ~v) && (!more || (more & (~more + 1)) > got));
	PROVE(gnvd_popc(got) <= k);
	PROVE(!more || gnvd_popc(got) == k);
}

/* The one that has n below it; in a word with gaps, */
void prove_nth_bit(void)
{
	uint64_t v = nondet_64(), gap;
	uint32_t n = nondet_32(), at;

	TAKE(v && n && n < gnvd_popc(v));
	gap = v >> gnvd_lowest(v);
	TAKE(gap & (gap + 1));
	at = gnvd_nth_bit(v, n);
	PROVE(at < 64);
	TAKE(counts(v, at));
	PROVE(v >> at & 1 && gnvd_popc(below(v, at)) == n);
}

/* and where bits stand side by side, or the first is asked for. */
void prove_nth_of_run(void)
{
	uint32_t first = nondet_32(), bits = nondet_32(), n = nondet_32();
	uint64_t v = nondet_64();

	TAKE(first < 64 && bits >= 1 && bits <= 64 - first && n < bits);
	PROVE(gnvd_nth_bit((bits < 64 ? (1ull << bits) - 1 : ~0ull) << first, n) == first + n);
	TAKE(v);
	PROVE(gnvd_nth_bit(v, 0) == gnvd_lowest(v));
}

/* What is claimed was free, is so no more, and nothing else has changed; given back, the map is what it was. */
void prove_map(void)
{
	static uint64_t map[WORDS];
	uint64_t before[WORDS], got;
	uint32_t base = nondet_32(), k = nondet_32(), at = nondet_32(), i;
	struct gpunvme_dq dq;

	TAKE(dq.cids >= 1 && dq.cids <= 64 * WORDS);
	dq.cid_map = (uint64_t)(uintptr_t)map;
	for (i = 0; i < WORDS; i++) {
		map[i] = before[i] = nondet_64();
		TAKE(dq.cids >= 64 * (i + 1) || !(dq.cids > 64 * i ? before[i] >> (dq.cids & 63) : before[i]));
	}
	TAKE(k >= 1 && k <= 64 && at < (dq.cids + 63) / 64);
	got = gnvd_claim_cids(&dq, at, map[at], k, &base);
	PROVE(base < dq.cids && !(base & 63) && !(got & ~before[base / 64]));
	PROVE(got || !(before[0] | before[1]));
	PROVE(!got || base + gnvd_highest(got) < dq.cids);
	for (i = 0; i < WORDS; i++)
		PROVE(map[i] == (i == base / 64 ? before[i] & ~got : before[i]));
	gnvd_free_cids(&dq, base, got);
	for (i = 0; i < WORDS; i++)
		PROVE(map[i] == before[i]);
}
