/* SPDX-License-Identifier: MIT */
/*
 * The queue algorithm: many lanes share one submission and one completion ring. Each step has a file of its own, this one holds
 * what they share: where things lie, what goes from one step to the next, how a queue ends, and what is counted.
 *
 * Two resources, freed by what really frees them. An SQ position is free when the controller has fetched it (the SQ head in a
 * completion says so). A CID is free when its owner has consumed the result. So a slow command holds one CID, not the ring.
 * The controller sees a CID with bits of its command's generation (dq.h): a completion without them is refused.
 *
 *   reserve.h   the leader takes k CIDs and k positions for the lanes that want to submit, or nothing
 *   write.h     each lane writes its SQE and marks its result word SUBMITTED
 *   gate.h      the thread that finds the gate open rings for all; each other thread leaves a READY word for it
 *   drain.h     a thread that waits tries the drain lock; its holder turns completions into result words,
 *   deliver.h   or gives them at once to the lanes of its own wave
 *   wait.h      each lane sees its own result word, acquires, frees its CID
 *
 * Between reserving positions and READY a lane never waits for the device, so a holder waits only for other running holders.
 * Every lane of the wave runs every collective: loops are left by ballot, and `if (w->rank == 0)` blocks contain none.
 */
#ifndef GPUNVME_DEVICE_QUEUE_H
#define GPUNVME_DEVICE_QUEUE_H

#include <gpunvme/device/platform.h>

#define GNVD_STATE(dq, field) ((dq)->state + offsetof(struct gpunvme_dq_state, field))
#define GNVD_GEN_ONE (1ull << GPUNVME_RES_GEN_SHIFT)

/* A command as its lane built it, without CID. */
struct gnvd_cmd {
	uint32_t dw0; /* opcode and flags */
	uint32_t cdw12;
	uint64_t prp1;
	uint64_t prp2;
	uint64_t slba;
};

/* What the leader got for its wave. Made anew for each attempt: else compilers keep the last one. */
struct gnvd_grant {
	uint64_t pos;  /* first position */
	uint64_t cids; /* set bits of one CID map word */
	uint32_t base; /* CID of bit 0 of that word */
	uint32_t count;
	uint32_t mine; /* of these, the one for this lane */
};

/*
 * Do `len` from `pos` on lie within `limit`? Whatever the three are, nothing wraps; gnv_within() is its twin on the host. A macro,
 * because as a function compilers keep its result in a register.
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

/* The generation on the wire of the command that a result word is of. */
GNVD_FN uint32_t gnvd_gen_of(const struct gpunvme_dq *dq, uint64_t word)
{
	return GPUNVME_CID_GEN(dq->cid_gens, word >> GPUNVME_RES_GEN_SHIFT);
}

/* What dword 3 of a completion adds to a result word. */
GNVD_FN uint64_t gnvd_outcome(const struct gpunvme_dq *dq, uint32_t dw3)
{
	return GPUNVME_RES_DONE_BIT | dw3 >> 17 << GPUNVME_RES_STATUS_SHIFT | GPUNVME_RES_NAMES(dq->cid_gens, dw3 & dq->cid_gens);
}

/* Is the command of a result word over? A completion of another generation, which ends the queue, does not make it so. */
GNVD_FN int gnvd_is_over(const struct gpunvme_dq *dq, uint64_t word)
{
	uint32_t over = GPUNVME_RES_DONE | GPUNVME_RES_NAMES(dq->cid_gens, gnvd_gen_of(dq, word));

	return ((uint32_t)word & (GPUNVME_RES_NAMED | (uint32_t)GPUNVME_RES_STATE)) == over;
}

GNVD_FN uint64_t gnvd_ready_at(const struct gpunvme_dq *dq, uint64_t pos)
{
	return dq->ready + 8u * ((uint32_t)pos & ((1u << dq->sq_shift) - 1));
}

/* Give the CIDs back: their owners' last accesses to the result words come before. */
GNVD_FN void gnvd_free_cids(const struct gpunvme_dq *dq, uint32_t base, uint64_t bits)
{
	gnvd_or64(dq->cid_map + base / 8, bits);
}

/* End the queue. The first cause stays. */
GNVD_FN void gnvd_poison(const struct gpunvme_dq *dq, uint32_t cause)
{
	gnvd_cas32(GNVD_STATE(dq, poison), 0, cause);
}

/* Is the copy of the host's word so old that it says nothing? A clock that is a little behind is not old. */
GNVD_FN int gnvd_control_old(const struct gpunvme_dq *dq, uint64_t copy, uint64_t now)
{
	uint32_t holds = dq->ticks_per_ms >> (copy & GPUNVME_CONTROL_WORD ? GPUNVME_CONTROL_SAID_SHIFT : GPUNVME_CONTROL_SHIFT);

	return now - (copy & ~GPUNVME_CONTROL_WORD) + holds > 2ull * holds;
}

/*
 * What the host asks for: 0 to go on, 1 to stop, else the GPUNVME_E* with which the queue ends, for all its lanes. *now: the
 * time, read behind that.
 *
 * Loads of one word of the host's by many lanes come one after another, a microsecond each. So lanes read a copy, and of those
 * that find it old one asks the host: who puts his time into it. The others go on, as if the host had said nothing, and know
 * what it said at their next look: what is not 0 holds longer than lanes take from one look to the next. One that never comes
 * back with an answer is in nobody's way, his time gets old, too; one that comes back late puts down the time at which he asked,
 * so that nothing is believed which the host may have taken back.
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
				gnvd_acquire_ring32(dq->stop); /* what the host did before, and from here on for all */
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

/* Kept for queues that ask for them. 0 compiles them out; all kernels that use a queue must be compiled alike. */
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
