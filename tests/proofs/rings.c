/* SPDX-License-Identifier: MIT */
/*
 * Positions and rings, for one lane at a time. The phase, the gate and what is believed of a completion: any 64-bit position, rings of
 * 2 to 65536 entries. Reserving and draining: positions below 2^44, rings of ENTRIES entries, whose words may hold anything. The search
 * for READY commands: the same below position 64. How lanes meet is the model's (tests/spin) and the schedules' to check.
 */
#include "proofs.h"

#include <gpunvme/device/drain.h>
#include <gpunvme/device/gate.h>
#include <gpunvme/device/reserve.h>

#define ENTRIES 4u
#define SHIFT 2
#ifndef POSITIONS
#define POSITIONS (1ull << 44)
#endif

static struct gpunvme_dq_state state;
static uint64_t ready[ENTRIES], result[ENTRIES], map[1];
static uint32_t sq_db, cq_db, cq[4 * ENTRIES], sq[16 * ENTRIES];

/* Time passes whenever somebody looks. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
	static int64_t now;

	(void)clock;
	t->tv_sec = ++now;
	t->tv_nsec = 0;
	return 0;
}

static const struct gnvd_wave alone = { 1, 1, 0, 0, 0 };

/* A queue in any state that dq.h allows. */
static struct gpunvme_dq any_queue(void)
{
	struct gpunvme_dq dq;

	dq.sq_shift = dq.cq_shift = SHIFT;
	dq.cids = ENTRIES - 1;
	dq.ticks_per_ms = 1000000;
	dq.flags = 0;
	dq.state = (uint64_t)(uintptr_t)&state;
	dq.ready = (uint64_t)(uintptr_t)ready;
	dq.result = (uint64_t)(uintptr_t)result;
	dq.cid_map = (uint64_t)(uintptr_t)map;
	dq.sq = (uint64_t)(uintptr_t)sq;
	dq.cq = (uint64_t)(uintptr_t)cq;
	dq.sq_db = (uint64_t)(uintptr_t)&sq_db;
	dq.cq_db = (uint64_t)(uintptr_t)&cq_db;
	state.fetched = nondet_64();
	state.pub = nondet_64();
	state.resv = nondet_64();
	state.poison = nondet_32();
	TAKE(state.resv < POSITIONS && state.fetched <= state.pub && state.pub <= state.resv);
	TAKE(state.resv - state.fetched <= ENTRIES - 1);
	return dq;
}

/* A lane gets places that are free, and no more of them than identifiers; or nothing, and nothing has changed. */
void prove_reserve(void)
{
	const struct gpunvme_dq dq = any_queue();
	const uint64_t resv = state.resv, fetched = state.fetched, before = nondet_64();
	struct gnvd_grant grant = { 0, 0, 0, 0, 0 };
	struct gnvd_wave w = alone;
	uint32_t k = nondet_32();

	w.hint = nondet_32();
	w.count = nondet_bit() ? 1 : 2;
	map[0] = before;
	TAKE(before < 1u << dq.cids && k >= 1 && k <= gnvd_widest(&dq));
	gnvd_reserve(&dq, &w, k, &grant);
	PROVE(state.fetched == fetched && state.resv - fetched <= ENTRIES - 1);
	PROVE(!(grant.cids & ~before) && map[0] == (before & ~grant.cids));
	PROVE(state.resv == resv + gnvd_popc(grant.cids) && gnvd_popc(grant.cids) <= k);
	PROVE(!grant.cids || (grant.pos == resv && !grant.base));
	PROVE(grant.cids || !before || resv + k - fetched > ENTRIES - 1 || state.poison);
}

/* The position in the gate is found again from one that is near, however many commands there were. */
void prove_gate(void)
{
	struct gpunvme_dq dq;
	uint64_t pub = nondet_64(), own = nondet_64(), got;
	uint32_t came = nondet_32() & (uint32_t)GPUNVME_GATE_CAME;

	dq.state = (uint64_t)(uintptr_t)&state;
	TAKE(own - pub <= 65535 || pub - own <= 65535);
	TAKE(came < GPUNVME_GATE_CAME);
	state.pub_gate = pub << GPUNVME_GATE_SHIFT | came;
	PROVE(gnvd_come(&dq, &alone, own, &got) == came);
	PROVE(got == pub && state.pub_gate >> GPUNVME_GATE_SHIFT == (pub << GPUNVME_GATE_SHIFT >> GPUNVME_GATE_SHIFT));
}

/* Whatever the READY words hold, the search ends, after a run of commands that are READY. */
void prove_scan(void)
{
	const struct gpunvme_dq dq = any_queue();
	uint64_t own = nondet_64(), end, word, i;
	uint32_t count = nondet_32();

	for (i = 0; i < ENTRIES; i++)
		ready[i] = nondet_64();
	TAKE(own >= state.pub && own <= state.resv && count >= 1 && count <= ENTRIES / 2 && count <= state.resv - own);
	for (i = 0; i < ENTRIES; i++) /* runs that are READY lie in what is reserved, and before or after our own */
		TAKE(ready[i] >> GPUNVME_READY_POS_SHIFT < state.pub || (ready[i] & GPUNVME_READY_COUNT) == 0 ||
		     ((ready[i] >> GPUNVME_READY_POS_SHIFT) + (ready[i] & GPUNVME_READY_COUNT) <=
		      (ready[i] >> GPUNVME_READY_POS_SHIFT < own ? own : state.resv)));
	end = gnvd_scan_ready(&dq, &alone, state.pub, own, count);
	PROVE(end >= state.pub && end <= state.resv && (end <= own || end >= own + count));
	PROVE(end != own);
	word = ready[end % ENTRIES];
	PROVE(word >> GPUNVME_READY_POS_SHIFT != end || !(word & GPUNVME_READY_COUNT));
}

/* The controller inverts the phase each round: an entry is new in its round, and not in the one before or after. */
void prove_phase(void)
{
	struct gpunvme_dq dq;
	uint64_t posted = nondet_64(), depth;
	uint32_t dw3;

	TAKE(dq.cq_shift >= 1 && dq.cq_shift <= 16);
	depth = 1ull << dq.cq_shift;
	dw3 = (nondet_32() & ~(1u << 16)) | (uint32_t)(1 - ((posted >> dq.cq_shift) & 1)) << 16;
	PROVE(gnvd_is_new(&dq, (uint32_t)posted, dw3));
	PROVE(!gnvd_is_new(&dq, (uint32_t)(posted + depth), dw3) && !gnvd_is_new(&dq, (uint32_t)(posted - depth), dw3));
}

/* Of what a device can say exactly that is believed which names this queue, an identifier of it, and a head from fetched to pub. */
void prove_check(void)
{
	struct gpunvme_dq dq;
	struct gnvd_drain d = { nondet_64(), nondet_64(), 0, 0 };
	struct gnvd_batch b = { { nondet_32() }, { nondet_32() }, 1, 1, 0, 0, 1, 0 };
	uint64_t pub = nondet_64(), delta;

	TAKE(dq.sq_shift >= 1 && dq.sq_shift <= 16 && dq.ticks_per_ms == 1000000 && dq.qid <= 65535);
	TAKE(pub - d.fetched < 1ull << dq.sq_shift);
	dq.state = (uint64_t)(uintptr_t)&state;
	state.pub = pub;
	d.pub = nondet_bit() ? (uint32_t)pub : (uint32_t)d.fetched; /* or what it was before */
	gnvd_check_cqes(&dq, &d, &b, 1);
	delta = ((b.dw2[0] & 0xffff) - d.fetched) & ((1u << dq.sq_shift) - 1);
	PROVE(!b.wrong == (b.dw2[0] >> 16 == dq.qid && (b.dw2[0] & 0xffff) < 1u << dq.sq_shift && delta <= pub - d.fetched &&
			   gnvd_cid_of(&dq, b.dw3[0]) < dq.cids));
	PROVE(b.wrong || (((uint32_t)d.fetched + b.delta) & ((1u << dq.sq_shift) - 1)) == (b.dw2[0] & 0xffff));
}

/* Whatever lies in the completion ring and in the result words, nothing next to them is touched, and positions stay in order. */
void prove_drain(void)
{
	struct gpunvme_dq dq = any_queue();
	const uint64_t fetched = state.fetched, pos = nondet_64();
	uint32_t i;

	TAKE(pos < 1ull << 44 && dq.qid <= 65535);
	dq.cid_gens = nondet_32() & 0xfe00;
	for (i = 0; i < 4 * ENTRIES; i++)
		cq[i] = nondet_32();
	for (i = 0; i < ENTRIES; i++)
		result[i] = nondet_64();
	map[0] = nondet_64();
	state.poison = 0;
	gnvd_drain_on(&dq, &alone, pos, 1, 2, 1, NULL);
	PROVE(state.fetched >= fetched && state.fetched <= state.pub);
	PROVE(!(state.drain & 1) && state.drain >> 1 >= pos && state.drain >> 1 <= pos + 2);
	PROVE(!state.poison || state.poison == GPUNVME_EPROTO);
	PROVE(cq_db < ENTRIES);
}
