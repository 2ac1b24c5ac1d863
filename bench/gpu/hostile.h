/* SPDX-License-Identifier: MIT */
/*
 * A controller that does what a broken or malicious drive may do. It completes out of order, with statuses made from the stamps, and
 * plays its trick when TRICK_EACH of them have gone well, then with one of TRICK_EACH, or with all. Only controller.h includes this.
 */
#ifndef GPUNVME_BENCH_HOSTILE_H
#define GPUNVME_BENCH_HOSTILE_H

enum trick {
	TRICK_NONE,       /* disorder and errors, which are no mistake */
	TRICK_PAUSE,      /* says nothing for half of the time-out, once */
	TRICK_SILENCE,    /* never says anything */
	TRICK_FALL_SILENT,
	TRICK_LATE,       /* falls silent for twice the time-out */
	TRICK_LOSE,       /* a command is never completed */
	TRICK_OLD_PHASE,  /* an entry with the phase of the round before */
	TRICK_TWICE,      /* the same completion again */
	TRICK_AGAIN,      /* the same, when so many others were posted that the identifier may have a command again */
	TRICK_NOBODYS,    /* an identifier that no command has which the controller knows */
	TRICK_FAR_CID,    /* an identifier that there is not; from here on all completions are so, once one was */
	TRICK_AHEAD,      /* an SQ head beyond what was announced */
	TRICK_FAR_HEAD,   /* an SQ head that the ring does not have */
	TRICK_OTHER_QUEUE,
	TRICK_GARBAGE,    /* but for the phase */
	TRICK_COUNT
};

#define TRICK_EACH 64u
#define TRICK_LANES 4u /* a queue has at most a fourth of its depth in flight: what is further than that is ahead of all */
#define TRICK_BETWEEN 20u
#define TRICK_TIMEOUT 0.1 /* seconds; of the queue, where a trick ends in one */

static inline uint32_t no_command(struct ring *q)
{
	uint32_t cid = next_random(q) % q->depth, i;

	for (i = 0; i < q->held_count; i++) {
		if (q->held[i][0] == cid) {
			cid = (cid + 1) % q->depth;
			i = ~0u; /* from the start again: at most HELD_MOST are held */
		}
	}
	return cid;
}

static inline quad tampered(struct ring *q, quad cqe, enum trick trick)
{
	uint32_t phase = cqe[3] & 1u << 16;

	if (trick == TRICK_OLD_PHASE)
		cqe[3] ^= 1u << 16;
	else if (trick == TRICK_NOBODYS)
		cqe[3] = (cqe[3] & ~0xffffu) | no_command(q);
	else if (trick == TRICK_FAR_CID)
		cqe[3] |= 0xc000;
	else if (trick == TRICK_AHEAD)
		cqe[2] = q->qid << 16 | ((q->head + q->depth / TRICK_LANES + 1) & (q->depth - 1));
	else if (trick == TRICK_FAR_HEAD)
		cqe[2] |= q->depth;
	else if (trick == TRICK_OTHER_QUEUE)
		cqe[2] ^= 1u << 16;
	if (trick == TRICK_GARBAGE) {
		cqe[2] = next_random(q) << 1;
		cqe[3] = (next_random(q) << 1 & ~(1u << 16)) | phase;
	}
	return cqe;
}

/* Complete a command, with the trick. */
static inline void complete_hostile(struct ring *q, uint32_t cid, uint32_t status, enum trick trick)
{
	if (q->done++ < TRICK_EACH || (q->tricked && trick < TRICK_FAR_CID && next_random(q) % TRICK_EACH)) {
		post_entry(q, completion(q, cid, status));
		return;
	}
	if (trick == TRICK_PAUSE && !q->tricked)
		q->quiet_until = now_seconds() + TRICK_TIMEOUT / 2;
	else if (trick == TRICK_FALL_SILENT || trick == TRICK_LATE)
		q->quiet_until = now_seconds() + (trick == TRICK_LATE ? 2 * TRICK_TIMEOUT : 1e9);
	q->tricked = true;
	if (trick == TRICK_LOSE)
		return;
	post_entry(q, tampered(q, completion(q, cid, status), trick));
	if (trick == TRICK_AGAIN && !q->again_at) {
		q->again_at = q->done + TRICK_BETWEEN;
		q->again[0] = cid;
		q->again[1] = status;
	}
	if (trick == TRICK_TWICE && !cq_full(q))
		post_entry(q, completion(q, cid, status));
}

static inline bool serve_hostile(struct ring *q, struct stamps *s, enum trick trick)
{
	uint32_t tail = __atomic_load_n(q->sq_db, __ATOMIC_ACQUIRE), at, held[2];

	if (trick == TRICK_SILENCE || (q->quiet_until > 0 && now_seconds() < q->quiet_until))
		return false;
	while (q->head != tail && q->held_count < HELD_MOST)
		fetch_checked(q, s);
	if (!q->held_count || cq_full(q))
		return false;
	if (q->again_at && q->done >= q->again_at) {
		post_entry(q, completion(q, q->again[0], q->again[1]));
		q->again_at = 0;
		return true;
	}
	at = next_random(q) % q->held_count;
	held[0] = q->held[at][0];
	held[1] = q->held[at][1];
	drop_held(q, at);
	complete_hostile(q, held[0], status_of(held[1]), trick);
	return true;
}

#endif
