/* SPDX-License-Identifier: MIT */
/*
 * Two GPUs on one controller (gnv_qp_recover(), gnv_qp_renew(), gpunvme_queue_retire() in lib/queue/qp_recover.c; find_qid() in
 * qp.c; gnv_dev_reset() in lib/dev/dev_reset.c), for a model checker: a queue of each, recovered by a host thread of each; what is
 * deleted is one GPU's, a reset ends the queues of both; a controller that completes when it likes, that may keep commands without
 * limit, and that may cease to reply. docs/verification.md says what is proved; tests/spin/check runs it, also with each PLANT,
 * which must be found.
 *
 * A lane of each GPU has ROUNDS commands, with views that are as old as they like by the time they are used: it may write to its ring
 * and ring its doorbell when both queues are made anew. Lanes of a GPU ring themselves and cannot be locked out, so a queue without
 * another identifier stays over until its kernel has ended. QIDS identifiers, RECOVERIES calls, at any moments, of which one is left
 * for each command that is kept, as by the watchdog. How lanes share a queue is queue.pml's, CPU threads that are locked out, recover.pml's.
 */
#ifndef PLANT
#define PLANT 0
#endif
#define GPUS 2
#define QUEUES (GPUS + GPUS * RECOVERIES) /* each call may make both anew */
#define NO_QID 9
#define OTHER(g) (1 - (g))
#define SLOT(q, at) (memory[q] * ROUNDS + (at))

/* Of the GPUs; of queues, of which each is made once. */
byte current[GPUS];
byte gpu_of[QUEUES], qid_of[QUEUES], memory[QUEUES];
bit live[QUEUES];  /* what the host knows: it exists on the controller */
bit gone[QUEUES];  /* it is over, and no kernel has a view of it */
bit old[QUEUES];   /* kept for its last lanes, with its identifier, */
bit passed_on[QUEUES]; /* unless another has that now */
bit told[QUEUES];  /* the control word says that it is over */
byte sq[QUEUES * ROUNDS]; /* GPU + 1; 0: nothing that the controller may fetch */
byte tail[QUEUES], results[QUEUES], users[QUEUES];
byte made;

/* The controller, by identifier. */
bit exists[QIDS], leave[QIDS], taken[QIDS]; /* leave: asked to delete it; taken: the host's */
byte ring[QIDS], head[QIDS], db[QIDS];
bit mute, reset;
byte works[GPUS]; /* what may still write to the buffer of the lane: the queue of its command + 1 */
bit kept[GPUS];   /* it is never completed, but for the queue's end */

bit lock; /* dev->queues_lock */
byte left = RECOVERIES, running = GPUS;

/* Base Specification 5.6: when a deletion is answered, no command of the queue is carried out any more. */
#define FORGET(q)                                                                                                                  \
	works[0] = (exists[q] && ring[q] + 1 == works[0] -> 0 : works[0]);                                                         \
	works[1] = (exists[q] && ring[q] + 1 == works[1] -> 0 : works[1]);                                                         \
	kept[0] = kept[0] && works[0];                                                                                             \
	kept[1] = kept[1] && works[1];                                                                                             \
	exists[q] = 0;                                                                                                             \
	leave[q] = 0

#define FETCH(q)                                                                                                                   \
	d_step {                                                                                                                   \
		exists[q] && head[q] < db[q] ->                                                                                    \
		g = gpu_of[ring[q]];                                                                                                   \
		assert(sq[SLOT(ring[q], head[q])] == g + 1); /* of this GPU, and not yet fetched */                                \
		sq[SLOT(ring[q], head[q])] = 0;                                                                                    \
		head[q]++;                                                                                                         \
		assert(!works[g]);                                                                                                 \
		works[g] = ring[q] + 1;                                                                                            \
		g = 0                                                                                                              \
	}

/* Data, then a completion in the memory of the queue that the command came from. */
#define COMPLETE(g) d_step { works[g] && !kept[g] -> results[works[g] - 1]++; works[g] = 0 }

#define DELETE(q) d_step { leave[q] && !mute -> FORGET(q) }

active proctype controller()
{
	byte g;

end:	do
	:: FETCH(0)
	:: FETCH(1)
	:: COMPLETE(0)
	:: COMPLETE(1)
	:: d_step { works[0] && !kept[0] && left > kept[1] -> kept[0] = 1 }
	:: d_step { works[1] && !kept[1] && left > kept[0] -> kept[1] = 1 }
	:: DELETE(0)
	:: DELETE(1)
#if QIDS > 2
	:: FETCH(2)
	:: DELETE(2)
#endif
#if QIDS > 3
	:: FETCH(3)
	:: DELETE(3)
#endif
	:: d_step {
		!mute && (leave[0] || leave[1]
#if QIDS > 2
		|| leave[2]
#endif
#if QIDS > 3
		|| leave[3]
#endif
		) -> mute = 1 /* nothing is answered any more */
	}
	:: d_step {
		reset ->
		FORGET(0);
		FORGET(1);
#if QIDS > 2
		FORGET(2);
#endif
#if QIDS > 3
		FORGET(3);
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
		if
#if PLANT == 9
		:: atomic { view = current[me]; users[view]++ };
#else
		:: atomic { !told[current[me]] -> view = current[me]; users[view]++ };
#endif
			/* It looks at the control word now and then only: it may send to what is over. */
			d_step {
				assert(!works[me]);
				before = results[view];
				sq[SLOT(view, tail[view])] = me + 1;
				tail[view]++
			}
			d_step {
				/* A doorbell of a queue that is over reaches none that lives. */
				assert(!exists[qid_of[view]] || ring[qid_of[view]] == view);
				db[qid_of[view]] = tail[view]
			}
			if
			:: results[view] != before -> assert(results[view] == before + 1)
			:: told[view]
			fi;
			assert(!works[me]); /* its buffer is its own again, whatever it was told */
			atomic { users[view]--; view = 0; before = 0 }
		:: told[current[me]] /* gpunvme_queue_view() is refused, or a lane that looks sends nothing */
		fi;
		round++
	:: else -> break
	od;
	running--
}

/* Another identifier, its own where nobody can ring for it any more, or none: then the queue stays over. */
inline replace(g)
{
	d_step {
		qid = NO_QID;
		if
		:: !taken[0] -> qid = 0
		:: taken[0] && !taken[1] -> qid = 1
#if QIDS > 2
		:: taken[0] && taken[1] && !taken[2] -> qid = 2
#endif
#if QIDS > 3
		:: taken[0] && taken[1] && taken[2] && !taken[3] -> qid = 3
#endif
		:: else -> skip
		fi;
		if
#if PLANT == 8
		:: qid == NO_QID ->
#else
		:: qid == NO_QID && gone[current[g]] ->
#endif
			qid = qid_of[current[g]];
			passed_on[current[g]] = 1
		:: else -> skip
		fi
	}
	if
	:: qid != NO_QID ->
		d_step {
			gpu_of[made] = g;
			qid_of[made] = qid;
			taken[qid] = 1;
#if PLANT == 4
			memory[made] = current[OTHER(g)];
#else
			memory[made] = made;
#endif
			ring[qid] = made;
			head[qid] = 0;
			db[qid] = 0;
			exists[qid] = 1;
			live[made] = 1
		}
		d_step {
			old[current[g]] = 1;
			current[g] = made;
			made++
		}
	:: else
	fi
}

/* gnv_qp_drop_old(): what was kept for lanes that have gone. */
inline release(g)
{
	d_step {
		n = 0;
		do
		:: n < made && old[n] && gpu_of[n] == g ->
			old[n] = 0;
			if
			:: !passed_on[n] -> taken[qid_of[n]] = 0
			:: else -> skip
			fi;
			n++
		:: n < made && !(old[n] && gpu_of[n] == g) -> n++
		:: else -> break
		od;
		n = 0;
		gone[current[g]] = !live[current[g]]
	}
}

#define AWAY(q, g) (gpu_of[q] != g || !users[q])
#define AWAY_OLD(q, g) (AWAY(q, g) || q == current[g])
#if RECOVERIES > 1
#define ALL(f, g) (f(0, g) && f(1, g) && f(2, g) && f(3, g) && f(4, g) && f(5, g))
#else
#define ALL(f, g) (f(0, g) && f(1, g) && f(2, g) && f(3, g))
#endif

/* There is something to give back. */
#define NO_OLD(q, g) !(old[q] && gpu_of[q] == g)
#define RELEASES(g) (!ALL(NO_OLD, g) || (!live[current[g]] && !gone[current[g]]))

/* The controller was disabled: it knows of no queue. */
inline end_all(g)
{
	d_step { live[current[0]] = 0; live[current[1]] = 0 }
	told[current[g]] = 1;
#if PLANT != 1
	told[current[OTHER(g)]] = 1;
#endif
#if PLANT == 3
	d_step {
		n = 0;
		do
		:: n < QIDS -> taken[n] = 0; n++
		:: else -> break
		od;
		n = 0
	}
#endif
}

inline recover(g)
{
	if
	:: live[current[g]] ->
		leave[qid_of[current[g]]] = 1;
		if
		:: !leave[qid_of[current[g]]] ->
			live[current[g]] = 0;
			told[current[g]] = 1;
#if PLANT == 7
			told[current[OTHER(g)]] = 1;
#endif
			replace(g)
		:: mute ->
#if PLANT == 2
			told[current[OTHER(g)]] = 1;
#endif
			reset = 1;
			!reset;
			end_all(g);
			replace(0);
			replace(1)
		fi
	:: else -> replace(g)
	fi
}

proctype host(byte g)
{
	byte qid, n;
	bit seen;

	do
#if PLANT == 6
	:: d_step { running && left > kept[OTHER(g)] -> left-- };
#else
	:: d_step { !lock && running && left > kept[OTHER(g)] -> lock = 1; left-- };
#endif
		recover(g);
		d_step { qid = 0; lock = 0 }
	/* No kernel has a view of this queue, and none is taken before this has returned. */
#if PLANT == 5
	:: d_step { !seen && running && ALL(AWAY_OLD, g) -> seen = 1 }
	:: d_step { seen && !lock -> lock = 1; seen = 0 };
		release(g);
		lock = 0
#else
	:: atomic { !lock && running && ALL(AWAY, g) && RELEASES(g) -> release(g) }
#endif
	:: running == 0 -> break
	od
}

init {
	atomic {
		current[1] = 1;
		gpu_of[1] = 1;
		memory[1] = 1;
		qid_of[1] = 1;
		ring[1] = 1;
		made = 2;
		live[0] = 1; live[1] = 1;
		exists[0] = 1; exists[1] = 1;
		taken[0] = 1; taken[1] = 1;
		run lane(0);
		run lane(1);
		run host(0);
		run host(1)
	}
}
