/* SPDX-License-Identifier: MIT */
/*
 * Striped volumes: 1 to 4 controllers, stripes of 1 to 2^31 blocks, ranges anywhere in the first RANGE blocks, and as long (with
 * three controllers in the first 256): divisions cost a solver much.
 */
#include "proofs.h"

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
