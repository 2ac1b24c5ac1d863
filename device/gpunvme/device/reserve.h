/* SPDX-License-Identifier: MIT */
/* Reserve: the leader takes identifiers and positions for the lanes that want to submit, or nothing. It never waits. */
#ifndef GPUNVME_DEVICE_RESERVE_H
#define GPUNVME_DEVICE_RESERVE_H

#include <gpunvme/device/queue.h>

/* The k lowest set bits of v, or all if there are fewer. */
GNVD_FN uint64_t gnvd_lowest_bits(uint64_t v, uint32_t k)
{
	uint32_t at = 0, step;

	if (GNVD_SHORT_LOWEST && k == 1)
		return v & (~v + 1);
	if (gnvd_popc(v) <= k)
		return v;
	if (gnvd_popc((uint32_t)v) == k)
		return (uint32_t)v;
	for (step = 32; step; step >>= 1)
		if (gnvd_popc(v & ((1ull << (at + step)) - 1)) <= k)
			at += step;
	return v & ((1ull << at) - 1);
}

/* Claim up to k CIDs of one word, beginning with word `at`, whose bits are `word`. Return their bits. 0: none is free. */
GNVD_FN uint64_t gnvd_claim_cids(const struct gpunvme_dq *dq, uint32_t at, uint64_t word, uint32_t k, uint32_t *base)
{
	uint32_t words = (dq->cids + 63) / 64, i;
	uint64_t bits, got;

	for (i = 0; i < words; i++) {
		bits = gnvd_lowest_bits(word, k);
		got = bits ? gnvd_same64(gnvd_and64(dq->cid_map + 8u * at, ~bits)) & bits : 0;
		*base = 64 * at;
		if (got)
			return got;
		at = at + 1 == words ? 0 : at + 1;
		word = gnvd_same64(gnvd_ld64(dq->cid_map + 8u * at));
	}
	return 0;
}

/*
 * The k CIDs of one word that a lane on its own, or a wave of 32, requests without a look at the map. 0: none. Most CIDs are free,
 * and these were its own the last time.
 */
GNVD_FN uint64_t gnvd_guess(const struct gnvd_wave *w, uint32_t k)
{
	uint32_t at = w->hint * 0x9e3779b1u;

	if (GNVD_ALONE(w))
		return 1ull << (at & 63);
	return GNVD_OWNS(w) && k == 32 ? 0xffffffffull << (at & 32) : 0;
}

/* The leader takes up to k CIDs and as many positions. Or it takes nothing, and cids is 0. */
GNVD_FN void gnvd_reserve(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint32_t k, struct gnvd_grant *grant)
{
	uint64_t room = (1ull << dq->sq_shift) - 1, seen;
	uint64_t resv = gnvd_ld64(GNVD_STATE(dq, resv)), fetched = gnvd_ld_after64(GNVD_STATE(dq, fetched));
	uint32_t poison = gnvd_ld32(GNVD_STATE(dq, poison)), at;
	uint64_t word, cids, guess = gnvd_guess(w, k);

	at = (uint32_t)((uint64_t)(w->hint * 0x9e3779b1u) * ((dq->cids + 63) / 64) >> 32); /* spread, without a division */
	word = dq->cid_map + 8u * at; /* with the other loads: one round trip */
	word = guess ? gnvd_and64(word, ~guess) : gnvd_ld64(word);
	resv = gnvd_same64(resv);
	fetched = gnvd_same64(fetched);
	poison = gnvd_same32(poison);
	word = gnvd_same64(word);
	grant->base = 64 * at;
	guess &= word; /* the CIDs that it got */
	if (poison || resv + k - fetched > room) {
		if (guess)
			gnvd_free_cids(dq, grant->base, guess);
		return;
	}
	if (guess && gnvd_popc(guess) < k) {
		gnvd_free_cids(dq, grant->base, guess);
		guess = 0;
	}
	cids = guess ? guess : gnvd_claim_cids(dq, at, word, k, &grant->base);
	k = gnvd_popc(cids);
	while (cids && resv + k - fetched <= room) {
		seen = gnvd_same64(gnvd_cas64(GNVD_STATE(dq, resv), resv, resv + k));
		if (seen == resv) {
			grant->pos = resv;
			grant->cids = cids;
			return;
		}
		resv = seen;
		fetched = gnvd_same64(gnvd_ld_after64(GNVD_STATE(dq, fetched)));
	}
	if (cids)
		gnvd_free_cids(dq, grant->base, cids);
}

/* The largest reservation of one wave: half a ring, and the CIDs of one word. */
GNVD_FN uint32_t gnvd_widest(const struct gpunvme_dq *dq)
{
	return dq->sq_shift > 6 ? 64 : dq->sq_shift ? 1u << (dq->sq_shift - 1) : 1;
}

/* Return why a command that found no room is not submitted. */
GNVD_FN int gnvd_full(const struct gpunvme_dq *dq)
{
	uint64_t now;
	uint32_t control = gnvd_control(dq, &now);

	return control > 1 ? -GPUNVME_ESHUTDOWN : control ? -GPUNVME_ECANCELED : -GPUNVME_EAGAIN;
}

/*
 * Find places for the lanes with `want` set, at most `most` of them and as many as there is room for. The other lanes of the wave
 * only help. *grant is empty before. Return the result of each lane, -GPUNVME_EAGAIN without room. Then lanes store their commands,
 * and the wave publishes as many as *grant counts.
 */
GNVD_FN int gnvd_find_places(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int want, uint32_t most,
			     struct gnvd_grant *grant)
{
	uint64_t pending = gnvd_ballot(w, want);
	uint32_t k = gnvd_popc(pending);

	if (w->rank == 0)
		gnvd_reserve(dq, w, k < most ? k : most, grant);
	grant->cids = gnvd_bcast64(w, grant->cids);
	grant->count = gnvd_popc(grant->cids);
	if (!grant->count)
		return gnvd_same32(gnvd_ld32(GNVD_STATE(dq, poison))) ? -GPUNVME_ESHUTDOWN : -GPUNVME_EAGAIN;
	grant->pos = gnvd_bcast64(w, grant->pos);
	grant->base = gnvd_bcast32(w, grant->base);
	grant->mine = gnvd_below(w, pending);
	return want && grant->mine >= grant->count ? -GPUNVME_EAGAIN : 0;
}

#endif
