/* SPDX-License-Identifier: MIT */
/*
 * Recovery of a queue (lib/queue/qp_recover.c, gnv_qp_quiesce(), find_qid()), for a model checker: lanes with views of the old queue
 * and of the new one; a host that has the controller let go of the old one, by its deletion or, where that is not answered, by a
 * reset, tells its lanes, and goes on with a new one under another identifier, or under the same; a controller that completes when
 * it likes, also while it is asked to delete, and that may keep commands of a queue that is recovered without limit.
 * docs/verification.md says what is proved; tests/spin/check runs it, also with each PLANT, which must be found.
 *
 * Two lanes have ROUNDS commands each, with views that are as old as they like by the time they are used. QIDS identifiers, RECOVERIES at
 * any moment, at the latest when nothing else goes on, as by the watchdog. Each queue has memory and words of its own; the doorbells
 * are the controller's, one for each identifier. How lanes share a queue is queue.pml's: here the gate of the doorbell is a lock. One
 * shared access is one step. Blocking stands for polling.
 */
#ifndef PLANT
#define PLANT 0
#endif
#define LANES 2
#define QUEUES (RECOVERIES + 1)
#define SLOTS (LANES * ROUNDS) /* of a ring: positions do not wrap */
#define NO_QID 9
#if PLANT == 4
#define MEMORY(i) 0
#else
#define MEMORY(i) (i)
#endif
#define SLOT(i, at) (MEMORY(i) * SLOTS + (at))
#define RESULT(i, lane) (MEMORY(i) * LANES + (lane))

/* By incarnation. */
byte current;
byte qid_of[QUEUES];
byte sq[QUEUES * SLOTS]; /* lane + 1; 0: nothing that the controller may fetch */
byte tail[QUEUES];
bit gate[QUEUES]; /* its holder writes and rings */
bit told[QUEUES]; /* the control word says that the queue is over */
byte results[QUEUES * LANES]; /* commands of the lane that are over */
byte users[QUEUES]; /* lanes that have a view */

/* The controller, by identifier. */
bit exists[QIDS], taken[QIDS]; /* taken: the host's */
byte ring[QIDS], head[QIDS], db[QIDS];
bit leave[QIDS]; /* asked to delete it */
bit mute, reset;
byte works[LANES]; /* what may still write to the buffer of a lane: the queue of its command + 1 */
bit kept[LANES];   /* it is never completed, but for the queue's end */

byte running = LANES;

/* Base Specification 5.6: when a deletion is answered, no command of the queue is carried out any more. */
#define FORGET(q)                                                                                                                  \
	works[0] = (exists[q] && ring[q] + 1 == works[0] -> 0 : works[0]);                                                         \
	works[1] = (exists[q] && ring[q] + 1 == works[1] -> 0 : works[1]);                                                         \
	kept[0] = kept[0] && works[0];                                                                                             \
	kept[1] = kept[1] && works[1];                                                                                             \
	exists[q] = 0;                                                                                                             \
	leave[q] = 0

#define FETCH(q)                                                                                                                   \
	atomic {                                                                                                                   \
		exists[q] && head[q] < db[q] ->                                                                                    \
		l = sq[SLOT(ring[q], head[q])];                                                                                    \
		assert(l); /* of this queue, and not yet fetched */                                                                \
		sq[SLOT(ring[q], head[q])] = 0;                                                                                    \
		head[q]++;                                                                                                         \
		assert(!works[l - 1]);                                                                                             \
		works[l - 1] = ring[q] + 1;                                                                                        \
		l = 0                                                                                                              \
	}

/* Data, then a completion in the memory of the queue that the command came from. */
#define COMPLETE(lane) d_step { works[lane] && !kept[lane] -> results[RESULT(works[lane] - 1, lane)]++; works[lane] = 0 }

active proctype controller()
{
	byte l;

end:	do
	:: FETCH(0)
	:: COMPLETE(0)
	:: COMPLETE(1)
	:: d_step { works[0] && works[0] <= RECOVERIES && !kept[0] -> kept[0] = 1 }
	:: d_step { works[1] && works[1] <= RECOVERIES && !kept[1] -> kept[1] = 1 }
	:: d_step { leave[0] && !mute -> FORGET(0) }
#if QIDS > 1
	:: FETCH(1)
	:: d_step { leave[1] && !mute -> FORGET(1) }
	:: leave[0] + leave[1] && !mute -> mute = 1
#else
	:: leave[0] && !mute -> mute = 1 /* nothing is answered any more */
#endif
	:: d_step {
		reset ->
		FORGET(0);
#if QIDS > 1
		FORGET(1);
#endif
		mute = 0;
		reset = 0
	}
	od
}

proctype lane(byte me)
{
	byte view, before, round;

	do
	:: round < ROUNDS ->
		atomic { view = current; users[view]++ }
		/* Write and ring. The queue may be over by now, and its gate taken without limit. */
		if
		:: atomic { gate[view] == 0 -> gate[view] = 1 };
			assert(!works[me]);
			before = results[RESULT(view, me)];
			sq[SLOT(view, tail[view])] = me + 1;
			tail[view]++;
			db[qid_of[view]] = tail[view];
			gate[view] = 0;
			if
			:: results[RESULT(view, me)] != before -> assert(results[RESULT(view, me)] == before + 1)
			:: told[view]
			fi
		:: told[view]
		fi;
		assert(!works[me]); /* its buffer is its own again, whatever it was told */
		atomic { users[view]--; view = 0; before = 0; round++ }
	:: else -> break
	od;
	running--
}

/* Under another identifier; where there is none, under that of the old queue, whose lanes must never ring again. */
inline choose(old)
{
	if
	:: d_step { !taken[0] -> qid = 0 }
#if QIDS > 1
	:: d_step { taken[0] && !taken[1] -> qid = 1 }
	:: d_step { taken[0] && taken[1] -> qid = NO_QID }
#else
	:: d_step { taken[0] -> qid = NO_QID }
#endif
	fi;
#if PLANT == 2
	qid = qid_of[old];
#endif
	if
	:: qid == NO_QID ->
#if PLANT == 3
		gate[old] = 1;
#else
		atomic { gate[old] == 0 -> gate[old] = 1 }
#endif
		qid = qid_of[old]
	:: else
	fi;
	taken[qid] = 1
}

/* gpunvme_queue_retire(): their kernels have ended. */
inline release(old)
{
#if PLANT == 5
	taken[qid_of[old]] = 0
#else
	if
	:: atomic { users[old] == 0 && qid_of[old] != qid_of[current] -> taken[qid_of[old]] = 0 }
	:: true
	fi
#endif
}

proctype host()
{
	byte qid, n;

	do
	:: n < RECOVERIES && running ->
		leave[qid_of[n]] = 1;
#if PLANT == 1
		told[n] = 1;
#endif
		if
		:: !leave[qid_of[n]]
		:: mute ->
#if PLANT != 6
			reset = 1;
#if PLANT == 7
			told[n] = 1;
#endif
			!reset
#endif
		fi;
		told[n] = 1;
		choose(n);
		d_step { ring[qid] = n + 1; head[qid] = 0; db[qid] = 0; exists[qid] = 1; qid_of[n + 1] = qid }
		current = n + 1;
		release(n);
		n++;
		qid = 0
	:: running == 0 -> break
	od
}

init {
	atomic {
		exists[0] = 1;
		taken[0] = 1;
		run lane(0);
		run lane(1);
		run host()
	}
}
