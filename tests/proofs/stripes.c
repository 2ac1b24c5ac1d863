/* SPDX-License-Identifier: MIT */
/*
 * Striped volumes: 1 to 4 controllers, stripes of 1 to 2^31 blocks, ranges anywhere in the first RANGE blocks, and as long (with
 * three controllers in the first 256): divisions cost a solver much. Workgroups of 1 to 1024 lanes in waves of WIDTH.
 */
#include "proofs.h"

#include <gpunvme/device/volume.h>

#ifndef WIDTH
#define WIDTH 32u
#endif

static uint32_t lane_is, lanes_are;

/* For what comes next: a lane of a workgroup of several waves, of which the last may be smaller, as CPU threads have none. */
#define gnvd_block_lane() lane_is
#define gnvd_block_lanes() lanes_are
#define gnvd_wave_lanes() WIDTH
#include <gpunvme/device.h>

#ifndef RANGE
#define RANGE (1ull << 12)
#endif

/* What a member has of a range: of any of its blocks exactly those that the range has, where they lie there. */
void prove_range(void)
{
	struct gpunvme_dvol v;
	struct gnvd_part p;
	uint64_t lba = nondet_64(), nblocks = nondet_64(), at = nondet_64(), stripe, there;
	int has;

	TAKE(v.stripe_shift <= 31);
	v.members = MEMBERS;
	stripe = at >> v.stripe_shift;
	TAKE(lba < RANGE && nblocks && nblocks < RANGE && at < 2 * RANGE && p.m < MEMBERS && stripe % MEMBERS == p.m);
	there = (stripe / MEMBERS << v.stripe_shift) + (at & ((1ull << v.stripe_shift) - 1));
	has = gnvd_member_range(&v, lba, nblocks, &p);
	PROVE((has && there >= p.begin && there < p.end) == (at >= lba && at - lba < nblocks));
	PROVE(!has || p.begin < p.end);
}

/* As gnvd_block_rw() has it. */
static int serves(uint32_t lane, uint32_t m)
{
	uint32_t waves = (lanes_are + WIDTH - 1) / WIDTH, first = lane / WIDTH % MEMBERS;

	return m >= first && (m - first) % waves == 0;
}

static struct gnvd_part share_of(uint32_t lane, uint32_t m)
{
	struct gpunvme_dvol v;
	struct gnvd_part p;

	v.members = MEMBERS;
	lane_is = lane;
	gnvd_share_out(&v, m, &p);
	return p;
}

/* Each slot of a member is of one lane, and no other: pieces that go round by slots are moved once. */
void prove_shares(void)
{
	uint32_t a = nondet_32(), b = nondet_32(), m = nondet_32(), slot = nondet_32(), waves, wave;
	struct gnvd_part first, second;

	lanes_are = nondet_32();
	TAKE(lanes_are && lanes_are <= 1024 && a < lanes_are && b < lanes_are && m < MEMBERS && serves(a, m));
	first = share_of(a, m);
	PROVE(first.m == m && first.slot < first.slots);
	if (a != b && serves(b, m)) {
		second = share_of(b, m);
		PROVE(second.slots == first.slots && second.slot != first.slot);
	}
	TAKE(slot < first.slots);
	waves = (lanes_are + WIDTH - 1) / WIDTH;
	wave = waves > MEMBERS ? slot / WIDTH * MEMBERS + m : m % waves;
	b = wave * WIDTH + slot % WIDTH;
	PROVE(b < lanes_are && serves(b, m));
	PROVE(share_of(b, m).slot == slot);
}
