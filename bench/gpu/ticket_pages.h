/* SPDX-License-Identifier: MIT */
/*
 * A page cache over ticket queues, for comparison: our own program of an algorithm as its authors describe it (Z. Qureshi et al.,
 * "GPU-Initiated On-Demand High-Throughput Storage Access in the BaM System Architecture", ASPLOS 2023, the section on the cache).
 *
 * Each page has a word: references, whether it is there, whether a thread works on it. Threads of a warp that want the same page
 * elect one. It adds a reference for each and gives them the place. References are given back with one subtraction. The thread
 * that finds a page that is not there and gets the mark "busy" reads it, all others look until it is there. For a place a counter
 * is moved on for all threads: the thread that gets a place whose page has no reference empties it.
 *
 * In its favour: a page's place is found without a second table, a counter of 64 bits never runs out, a thread that waits sleeps a
 * little longer each time. As published it has no statuses, no time-out and no end of looking for a place.
 */
#ifndef GPUNVME_BENCH_TICKET_PAGES_H
#define GPUNVME_BENCH_TICKET_PAGES_H

#include "ticket.h"

#define TICKET_PAGE 4096u
#define TICKET_VALID 0x80000000u
#define TICKET_BUSY 0x40000000u
#define TICKET_TAKEN 0xffffffffu

struct ticket_pages {
	uint32_t *word;	 /* of each page of the drive */
	uint32_t *place; /* and where it is */
	uint32_t *owner; /* of each place: its page and 1, 0, or TICKET_TAKEN */
	unsigned long long *hand;
	uint32_t places;
	uint64_t base; /* thread address of the first place */
	uint64_t iova;
};

__device__ static inline uint32_t ticket_look(const uint32_t *word)
{
	return *(const volatile uint32_t *)word;
}

__device__ static inline uint32_t ticket_find_place(const struct ticket_pages *c)
{
	for (;;) {
		uint32_t at = (uint32_t)(atomicAdd(c->hand, 1ull) % c->places), owner = ticket_look(&c->owner[at]);

		if (owner == TICKET_TAKEN || atomicCAS(&c->owner[at], owner, TICKET_TAKEN) != owner)
			continue;
		if (!owner || atomicCAS(&c->word[owner - 1], TICKET_VALID, 0) == TICKET_VALID)
			return at;
		atomicExch(&c->owner[at], owner);
	}
}

/* By the thread that has the mark. */
__device__ static inline void ticket_fetch(const struct ticket_pages *c, const struct gpunvme_dq *dq, const struct ticket_queue *q,
					   uint64_t page)
{
	uint32_t at = ticket_find_place(c), cid = ticket_claim_cid(dq, q);
	struct gpunvme_dbuf buf = { c->base, 0, c->iova + (uint64_t)at * TICKET_PAGE, 0, 0 };

	ticket_submit(dq, q, &buf, cid, page * (TICKET_PAGE >> dq->lba_shift));
	if (ticket_complete(dq, q, cid))
		__trap(); /* a figure of reads that failed is none */
	c->place[page] = at;
	atomicExch(&c->owner[at], (uint32_t)page + 1);
	__threadfence();
	atomicXor(&c->word[page], TICKET_BUSY | TICKET_VALID);
}

/* Adds `refs` and returns where the page lies. */
__device__ static inline uint64_t ticket_acquire(const struct ticket_pages *c, const struct gpunvme_dq *dq, const struct ticket_queue *q,
						 uint64_t page, uint32_t refs)
{
	uint32_t word = atomicAdd(&c->word[page], refs), turn = 0;

	while (!(word & TICKET_VALID)) {
		if (!(word & TICKET_BUSY) && !((word = atomicOr(&c->word[page], TICKET_BUSY)) & TICKET_BUSY)) {
			if (!(word & TICKET_VALID))
				ticket_fetch(c, dq, q, page);
			else
				atomicAnd(&c->word[page], ~TICKET_BUSY);
			break;
		}
		ticket_pause(turn++);
		word = ticket_look(&c->word[page]);
	}
	__threadfence();
	return c->base + (uint64_t)*(volatile uint32_t *)&c->place[page] * TICKET_PAGE;
}

/* For all threads of a warp that come: *refs is what ticket_put() gives back, 0 where another of *mates does. */
__device__ static inline uint64_t ticket_get(const struct ticket_pages *c, const struct gpunvme_dq *dq, const struct ticket_queue *q,
					     uint64_t page, uint32_t *refs, uint32_t *mates)
{
	uint32_t same = *mates = __match_any_sync(__activemask(), page), first = (uint32_t)__ffs((int)same) - 1;
	uint64_t at = 0;

	*refs = threadIdx.x % 32 == first ? (uint32_t)__popc(same) : 0;
	if (*refs)
		at = ticket_acquire(c, dq, q, page, *refs);
	return __shfl_sync(same, at, (int)first);
}

__device__ static inline void ticket_put(const struct ticket_pages *c, uint64_t page, uint32_t refs, uint32_t mates)
{
	__syncwarp(mates);
	if (refs) {
		__threadfence();
		atomicSub(&c->word[page], refs);
	}
}

#endif
