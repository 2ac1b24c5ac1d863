/* SPDX-License-Identifier: MIT */
/*
 * The queue algorithm: many threads share one submission and one completion ring. Each step has a file of its own. This file has
 * what they share: addresses, the data that one step gives to the next, the end of a queue, and counters.
 *
 * Two resources limit a queue. An SQ position is free when the controller has fetched its command (the SQ head in a completion
 * shows that). A CID is free when its owner has consumed the result. So a slow command holds one CID, not the ring.
 * The controller sees a CID with bits of its command's generation (dq.h). A completion without them is refused.
 *
 *   reserve.h   the leader takes k CIDs and k positions for the lanes that want to submit, or nothing
 *   write.h     each lane writes its SQE and marks its result word SUBMITTED
 *   gate.h      the thread that finds the gate open rings for all. Each other thread leaves a READY word for it
 *   drain.h     a thread that waits tries the drain lock. Its holder turns completions into result words,
 *   deliver.h   or gives them at once to the lanes of its own wave
 *   wait.h      each lane sees its own result word, acquires, frees its CID
 *
 * Between reserving positions and READY a lane never waits for the device. So a holder waits only for other running holders.
 * Every lane of the wave runs every collective: a ballot ends each loop, and `if (w->rank == 0)` blocks contain no collective.
 */
#ifndef GPUNVME_DEVICE_QUEUE_H
#define GPUNVME_DEVICE_QUEUE_H

#include <gpunvme/device/platform.h>

#define GNVD_STATE(dq, field) ((dq)->state + offsetof(struct gpunvme_dq_state, field))
#define GNVD_GEN_ONE (1ull << GPUNVME_RES_GEN_SHIFT)

/* A command without CID, as its lane built it. */
struct gnvd_cmd {
	uint32_t dw0; /* opcode and flags */
	uint32_t cdw12;
	uint64_t prp1;
	uint64_t prp2;
	uint64_t slba;
};

/* What the leader got for its wave. A new one for each attempt, because compilers would keep the last one. */
struct gnvd_grant {
	uint64_t pos;  /* first position */
	uint64_t cids; /* set bits of one CID map word */
	uint32_t base; /* CID of bit 0 of that word */
	uint32_t count;
	uint32_t mine; /* of these, the one for this lane */
};

/*
 * Does the range of `len` from `pos` lie within `limit`? Nothing wraps, whatever the values are. gnv_within() does the same on the
 * host. It is a macro, because compilers keep the result of a function in a register.
 */
#define GNVD_WITHIN(pos, len, limit) ((pos) <= (limit) && (len) <= (limit) - (pos))

GNVD_FN uint64_t gnvd_result_at(const struct gpunvme_dq *dq, uint32_t cid)
{
	return dq->result + 8u * cid;
}

/* The CID that dword 3 of a completion names. */
GNVD_FN uint32_t gnvd_cid_of(const struct gpunvme_dq *dq, uint32_t dw3)
{
	return dw3 & (GPUNVME_CQE_DW3_CID ^ dq->cid_gens);
}

/* The generation, as on the wire, of the command of a result word. */
GNVD_FN uint32_t gnvd_gen_of(const struct gpunvme_dq *dq, uint64_t word)
{
	return GPUNVME_CID_GEN(dq->cid_gens, word >> GPUNVME_RES_GEN_SHIFT);
}

/* What dword 3 of a completion adds to a result word. */
GNVD_FN uint64_t gnvd_outcome(const struct gpunvme_dq *dq, uint32_t dw3)
{
	return GPUNVME_RES_DONE_BIT | dw3 >> 17 << GPUNVME_RES_STATUS_SHIFT | GPUNVME_RES_NAMES(dq->cid_gens, dw3 & dq->cid_gens);
}

/* Has the command of a result word ended? Not by a completion of another generation, which ends the queue. */
GNVD_FN int gnvd_is_over(const struct gpunvme_dq *dq, uint64_t word)
{
	uint32_t over = GPUNVME_RES_DONE | GPUNVME_RES_NAMES(dq->cid_gens, gnvd_gen_of(dq, word));

	return ((uint32_t)word & (GPUNVME_RES_NAMED | (uint32_t)GPUNVME_RES_STATE)) == over;
}

GNVD_FN uint64_t gnvd_ready_at(const struct gpunvme_dq *dq, uint64_t pos)
{
	return dq->ready + 8u * ((uint32_t)pos & ((1u << dq->sq_shift) - 1));
}

/* Free CIDs, after their owners' last accesses to the result words. */
GNVD_FN void gnvd_free_cids(const struct gpunvme_dq *dq, uint32_t base, uint64_t bits)
{
	gnvd_or64(dq->cid_map + base / 8, bits);
}

/* End the queue. The first cause is kept. */
GNVD_FN void gnvd_poison(const struct gpunvme_dq *dq, uint32_t cause)
{
	gnvd_cas32(GNVD_STATE(dq, poison), 0, cause);
}

/* Is the copy of the host's word too old? A time slightly before the copy is not old. */
GNVD_FN int gnvd_control_old(const struct gpunvme_dq *dq, uint64_t copy, uint64_t now)
{
	uint32_t holds = dq->ticks_per_ms >> (copy & GPUNVME_CONTROL_WORD ? GPUNVME_CONTROL_SAID_SHIFT : GPUNVME_CONTROL_SHIFT);

	return now - (copy & ~GPUNVME_CONTROL_WORD) + holds > 2ull * holds;
}

/*
 * Return what the host asks for: 0 to continue, 1 to stop, else the GPUNVME_E* with which the queue ends, for all its threads.
 * *now: the time, read after that.
 *
 * Loads of one word of the host by many threads run one after the other, a microsecond each. So threads read a copy. If it is old,
 * one thread stores its time in the copy and loads the host's word. The other threads continue as if the word were 0, and see it at
 * their next look: a word that is not 0 is valid for longer than threads take between two looks. A thread that never returns from
 * this load blocks no other, because its time gets old, too. A thread that returns late stores the time at which it began. So no
 * thread uses a word that the host may have cleared.
 */
GNVD_FN uint32_t gnvd_control(const struct gpunvme_dq *dq, uint64_t *now)
{
	uint64_t at = GNVD_STATE(dq, control), copy = gnvd_same64(gnvd_ld_after64(at)), asked;
	uint32_t word = (uint32_t)(copy & GPUNVME_CONTROL_WORD);

	*now = gnvd_clock();
	if (gnvd_control_old(dq, copy, *now)) {
		word = 0;
		asked = *now & ~GPUNVME_CONTROL_WORD;
		if (gnvd_first() && gnvd_cas64(at, copy, asked) == copy) {
			word = gnvd_load_ring32(dq->stop);
			if (word) {
				gnvd_acquire_ring32(dq->stop); /* the host's earlier stores, from here on for all lanes */
				gnvd_st_release64(at, asked | (word & GPUNVME_CONTROL_WORD));
			}
		}
		word = gnvd_same32(word);
		*now = gnvd_clock();
	}
	if (word > 1)
		gnvd_poison(dq, word);
	return word;
}

/* ---- Counters ---- */

/* Kept for queues that request them. 0 leaves them out. All kernels that use a queue must be compiled alike. */
#if !defined(GPUNVME_COUNTERS)
#define GPUNVME_COUNTERS 1
#endif
#define GNVD_KEEPS(dq, what) (GPUNVME_COUNTERS && (dq)->flags & (what))

GNVD_FN uint64_t gnvd_written_at(const struct gpunvme_dq *dq, uint32_t cid)
{
	return gnvd_result_at(dq, dq->cids + cid);
}

/* The number of the bucket of a time. */
GNVD_FN uint32_t gnvd_bucket(uint64_t ticks)
{
	uint32_t shift = gnvd_highest(ticks | GPUNVME_LATENCY_STEPS) - 3;

	return GPUNVME_LATENCY_STEPS * shift + (uint32_t)(ticks >> shift);
}

#endif
