/* SPDX-License-Identifier: MIT */
/*
 * The queue algorithm of device/gpunvme/device/ (queue.h), for a model checker: waves that reserve, write, publish, drain and take, a
 * controller that fetches in order and completes in any order. One shared access is one step. docs/verification.md says what is
 * proved; tests/spin/check runs it, also with each PLANT, which must be found.
 *
 * D entries, WAVES waves of LANES lanes, ROUNDS commands for each lane. With FATES a command may also be detached from the start,
 * or abandoned by its owner at any moment.
 *
 * Blocking stands for polling: a lane that would look in vain sleeps until its look changes something, so that a queue in which
 * nobody can go on is a deadlock the checker reports. Memory keeps order, but for the two words whose order nothing else provides: a
 * READY word lies in a store buffer until that drains by itself or its lane orders, and pub comes as late as it may, after the
 * doorbell.
 *
 * A lane on its own asks for an identifier before it knows of room. A drainer takes completions of its own wave where it finds
 * them, or not: they may be in no order, and lone lanes of CUDA never do. With LOOKS neither is done, as on AMD GPUs.
 */
#ifndef PLANT
#define PLANT 0
#endif
#define CQ (2 * D)
#ifndef CIDS
#define CIDS (D == 2 -> 2 : 5) /* gnv_qp_cids() */
#endif
#define ALL_CIDS ((1 << CIDS) - 1)
#define BATCH 2
#define TURNS 2
#define LIMIT (D / 2 < LANES -> D / 2 : LANES) /* of one reservation */
#define STAMPS (WAVES * LANES * ROUNDS)
#if PLANT == 6
#define ROOM D
#else
#define ROOM (D - 1)
#endif

#if LANES == 1 && !defined(LOOKS)
#define GUESS
#endif
#ifdef LOOKS
#define OWN(c) false
#elif LANES == 1
#define OWN(c) (mine[0] == (c) + 1)
#else
#define OWN(c) (mine[0] == (c) + 1 || mine[1] == (c) + 1)
#endif

#define FREE 0
#define SUBMITTED 1
#define DONE 3

/* struct gpunvme_dq_state, READY words, result words, CID map. Positions do not wrap: nor do the real ones. */
byte resv, fetched, pub, cq_rung;
byte gate_pos, gate_came; /* one word */
byte drain_pos; /* one word with */
bit drain_lock;
byte ready_pos[D], ready_count[D];
byte res_state[5], res_status[5];
bit res_detached[5];
byte map;

/* Rings and doorbells. */
byte sq_cid[D], sq_stamp[D];
byte cq_cid[CQ], cq_status[CQ], cq_sqhd[CQ];
bit cq_phase[CQ];
byte sq_db, cq_db;

/* The store buffers of the waves. */
bit kept[WAVES];
byte kept_pos[WAVES], kept_count[WAVES];

/* The controller. */
byte got, posted;        /* commands fetched, completions posted */
byte has, has_stamp[5];  /* what it works on, by CID */

/* For the checks only. */
byte rung;               /* position that the doorbell stands for */
byte ringers;            /* waves between finding the gate open and opening it again */
byte written[D];         /* position + 1 of the command in each slot; 0: none, or fetched */
byte running = WAVES;
int ended;               /* stamps whose command is over */

#define ORDERED assert(fetched <= pub && pub <= resv && resv - fetched <= D - 1)
#define IS_NEW(pos) (cq_phase[(pos) % CQ] == 1 - ((pos) / CQ) % 2)
#define IS_READY(pos) (ready_pos[(pos) % D] == pos && ready_count[(pos) % D])
#define CAN_DRAIN (drain_lock == 0 && IS_NEW(drain_pos))
#define CAN_RESERVE (resv + 1 - fetched <= ROOM && map != 0)
#define OVER(stamp) assert((ended & (1 << (stamp))) == 0); ended = ended | (1 << (stamp))

/* The position of the lowest set bit. */
inline lowest(bits, at)
{
	at = 0;
	do
	:: (bits & (1 << at)) == 0 -> at++
	:: else -> break
	od
}

inline free_cid(cid)
{
	map = map | (1 << cid)
}

inline flush(w)
{
	if
	:: kept[w] -> ready_pos[kept_pos[w] % D] = kept_pos[w]; ready_count[kept_pos[w] % D] = kept_count[w]; kept[w] = 0;
	   kept_pos[w] = 0; kept_count[w] = 0
	:: else
	fi
}

#define DELTA(at) ((cq_sqhd[at] + D - f % D) % D)
#if PLANT == 3
#define MAY_DELIVER(at) true
#else
#define MAY_DELIVER(at) (DELTA(at) <= pub - f) /* gnvd_wait_pub(); pub only grows, so it is the same when it was read long before */
#endif

/* gnvd_check_cqes() and gnvd_deliver() of one entry; own: identifiers that were taken, and are free with the lock held. */
inline deliver(at)
{
	atomic {
		MAY_DELIVER(at);
		delta = DELTA(at);
#if PLANT == 3
		assert(delta <= p - f); /* else an honest controller poisons the queue */
#endif
		cid = cq_cid[at];
		assert(cid < CIDS && res_state[cid] == SUBMITTED);
		if
		:: OWN(cid) ->
			turn = turn | (mine[0] == cid + 1 -> 0 : 128);
			assert(cq_status[at] == my_stamp[turn / 128]);
			OVER(my_stamp[turn / 128]);
#if PLANT != 20
			res_state[cid] = FREE;
#endif
			own = own | 1 << cid;
			mine[turn / 128] = 0;
			my_stamp[turn / 128] = 0;
			turn = turn & 127
		:: true ->
			res_state[cid] = DONE;
			res_status[cid] = cq_status[at];
			bits = bits | res_detached[cid] << i
		fi;
		cid = 0;
		i++
	}
}

/* gnvd_check_old() of a batch: what was detached when it was delivered is over. */
inline finish_batch()
{
#if PLANT == 9
	bits = 0;
#endif
	do
	:: bits ->
		d_step {
			lowest(bits, i);
			bits = bits & (bits - 1);
			cid = cq_cid[(q + i) % CQ];
			OVER(res_status[cid]);
			res_state[cid] = FREE;
			res_detached[cid] = 0;
			res_status[cid] = 0
		}
		atomic { free_cid(cid); cid = 0 }
	:: else -> break
	od
}

/* How many entries of a batch are new, from the one `ahead` of q on. They come in order, so one step is as good as many. */
inline look(ahead, count)
{
	d_step {
		do
		:: count < BATCH && IS_NEW(q + ahead + count) -> count++
		:: else -> break
		od
	}
}

/* gnvd_drain(): the word that takes the lock tells the position. Each batch is looked at before the one before it is delivered. */
inline drain()
{
#if PLANT == 16
	q = drain_pos;
#endif
	atomic {
		if
#if PLANT == 13
		:: true ->
#else
		:: drain_lock == 0 ->
#endif
		   drain_lock = 1; r = cq_rung; f = fetched; turn = 1;
#if PLANT != 16
		   q = drain_pos
#endif
		:: else -> turn = 0
		fi
	}
	if
	:: turn ->
#if PLANT == 3
		p = pub;
#endif
		look(0, n);
		do
		:: n ->
			if :: n == BATCH && turn < TURNS -> look(n, k) :: else fi;
			do
			:: i < n -> deliver((q + i) % CQ)
			:: else -> break
			od;
#if PLANT == 7
			delta = n - 1;
#endif
			atomic { f = f + delta; fetched = f; ORDERED; delta = 0 }
			finish_batch();
			atomic {
				i = 0; /* what was consumed is cleared, but for the phases: fewer states */
				do
				:: i < n -> cq_cid[(q + i) % CQ] = 0; cq_status[(q + i) % CQ] = 0; cq_sqhd[(q + i) % CQ] = 0; i++
				:: else -> break
				od;
				i = 0; q = q + n; n = k; k = 0; turn++
			}
			if
#if PLANT == 12
			:: q - r > CQ ->
#else
			:: q - r > CQ / 4 ->
#endif
			   r = q; cq_db = q % CQ; cq_rung = q
			:: else
			fi
		:: else -> break
		od;
		atomic { drain_pos = q; drain_lock = 0; q = 0; r = 0; f = 0; p = 0; turn = 0 }
	:: else -> q = 0
	fi;
#if PLANT != 21
	if
	:: own -> map = map | own
	:: else
	fi;
#endif
	own = 0
}

/* gnvd_come(): old is how many came since the gate was open, q what is announced. */
inline come()
{
	atomic {
		old = gate_came;
		q = gate_pos;
		gate_came++;
#if PLANT == 5
		old = 0;
#endif
		if :: old == 0 -> ringers++ :: else fi
	}
}

/* gnvd_publish() of the n commands at p. */
inline publish()
{
	come();
	if
	:: old || q != p ->
#if PLANT != 4
		atomic { kept[me] = 1; kept_pos[me] = p; kept_count[me] = n }
#endif
#if PLANT != 14
		atomic { flush(me) }
#endif
#if PLANT != 15
		if :: old -> come() :: else fi
#endif
	:: else
	fi;
	do
	:: old -> break
	:: else ->
#if PLANT == 2
		f = resv;
#elif PLANT == 17
		f = (q <= p -> p : q);
#else
		f = q;
#endif
		d_step { /* words are READY until they are rung, so one step is as good as many */
			do
			:: f == p -> f = f + n
			:: f != p && IS_READY(f) -> f = f + ready_count[f % D]
			:: else -> break
			od
		}
		if
		:: f != q ->
			atomic { assert(ringers == 1 && f >= rung); rung = f; sq_db = f % D }
			atomic { pub = f; ORDERED } /* stored before it, but seen late at worst; leaving the gate orders it */
		:: else
		fi;
#if PLANT == 18
		k = IS_READY(f);
#endif
		atomic { old = gate_came; gate_pos = f; gate_came = 0; ringers-- }
#if PLANT == 1
		old = 0;
#endif
#if PLANT == 18
		old = old > 1 && k;
		k = 0;
#else
		old = old > 1 && IS_READY(f);
#endif
		if :: old -> come() :: else -> break fi
	od;
	atomic { old = 0; q = 0; f = 0; p = 0; n = 0 }
}

/* gnvd_reserve() of at most k: n positions from p on, and their CIDs in bits; n == 0: nothing. */
inline reserve()
{
	n = 0;
	bits = 0;
#ifdef GUESS
	atomic {
		if
		:: bits = 1
		:: bits = 2
		fi;
		bits = bits & map;
		map = map & ~bits
	}
#endif
	r = resv;
	f = fetched;
	if
#if PLANT == 19
	:: r + k - f > ROOM -> bits = 0
#else
	:: r + k - f > ROOM -> map = map | bits; bits = 0
#endif
	:: r + k - f <= ROOM && bits -> n = 1
	:: r + k - f <= ROOM && !bits ->
		q = map;
		atomic { /* the k lowest bits of what was seen, as far as they are still free */
			i = 0;
			do
			:: q && n < k -> lowest(q, i); q = q & ~(1 << i); bits = bits | (map & (1 << i)); n++
			:: else -> break
			od;
			map = map & ~bits;
			q = bits;
			n = 0;
			do
			:: q -> q = q & (q - 1); n++
			:: else -> break
			od;
			i = 0
		}
	fi;
	if
	:: bits == 0
	:: else ->
		do
		:: r + n - f <= ROOM ->
			atomic {
				if
				:: resv == r -> resv = r + n; ORDERED; p = r; break
				:: else -> r = resv
				fi
			}
			f = fetched
		:: else -> map = map | bits; n = 0; bits = 0; break
		od
	fi;
	q = 0;
	r = 0;
	f = 0;
	k = 0
}

/* gnvd_write_command() of the n commands from p on. */
inline write_commands()
{
	i = 0;
#if PLANT == 4
	atomic { kept[me] = 1; kept_pos[me] = p; kept_count[me] = n }
#endif
	do
	:: i < n ->
		atomic {
			lowest(bits, cid);
			bits = bits & ~(1 << cid);
			assert(res_state[cid] == FREE && !(has & (1 << cid))); /* no CID is used twice at a time */
			res_state[cid] = SUBMITTED;
			if
#ifdef FATES
			:: res_detached[cid] = 1
#endif
			:: k = (mine[0] -> LANES - 1 : 0); mine[k] = cid + 1; my_stamp[k] = stamp; k = 0
			fi
		}
		atomic {
			assert(written[(p + i) % D] == 0); /* no slot is written before it was fetched */
			sq_cid[(p + i) % D] = cid;
			sq_stamp[(p + i) % D] = stamp;
			written[(p + i) % D] = p + i + 1;
			cid = 0;
			stamp++;
			i++
		}
	:: else -> i = 0; break
	od;
	want = want - n;
	publish()
}

/* gnvd_take() of the lane `j`, whose command is DONE. */
inline take(j)
{
	cid = mine[j] - 1;
#if PLANT == 11
	free_cid(cid);
	res_state[cid] = FREE;
	assert(res_status[cid] == my_stamp[j]);
	OVER(my_stamp[j]);
#else
	d_step { assert(res_status[cid] == my_stamp[j]); OVER(my_stamp[j]); res_status[cid] = 0; res_state[cid] = FREE }
	free_cid(cid);
#endif
	atomic { mine[j] = 0; my_stamp[j] = 0; cid = 0 }
}

/* gnvd_detach() by the owner. */
inline abandon(j)
{
	atomic { cid = mine[j] - 1; res_detached[cid] = 1; old = res_state[cid] == DONE }
	if
#if PLANT == 10
	:: false
#else
	:: old -> d_step { OVER(my_stamp[j]); res_state[cid] = FREE; res_detached[cid] = 0; res_status[cid] = 0 }
	          free_cid(cid)
#endif
	:: else
	fi;
	atomic { mine[j] = 0; my_stamp[j] = 0; cid = 0; old = 0 }
}

#define IS_DONE(j) (mine[j] && res_state[mine[j] - 1] == DONE)
#if LANES == 1
#define HOLDS mine[0]
#else
#define HOLDS (mine[0] || mine[1])
#endif

#if PLANT == 8
#define MAY_TAKE (want == 0)
#else
#define MAY_TAKE true
#endif

proctype wave(byte me)
{
	byte stamp = me * LANES * ROUNDS, round, want, k;
	byte mine[LANES], my_stamp[LANES]; /* CID + 1 of each lane's command, 0: none */
	byte p, q, r, f, n, i, cid, delta, turn, bits, old, own;

	do
	:: round < ROUNDS ->
		round++;
		want = LANES;
		do /* submit, drain and take, what can be done */
		:: want && CAN_RESERVE ->
			if
			:: k = (want < LIMIT -> want : LIMIT)
			:: want > 1 && LIMIT > 1 -> k = 1 /* it tried long enough */
			fi;
			reserve();
			if :: n -> write_commands() :: else fi
		:: MAY_TAKE && IS_DONE(0) -> take(0)
#if LANES > 1
		:: MAY_TAKE && IS_DONE(1) -> take(1)
#endif
		:: (want || HOLDS) && CAN_DRAIN -> drain()
#ifdef FATES
		:: mine[0] -> abandon(0)
#endif
		:: want == 0 && !(HOLDS) -> break
		od
	:: else -> break
	od;
	running--
}

/* Memory takes the READY words in when it likes. */
proctype memory()
{
	byte w;

end:	do
	:: atomic { kept[0] -> flush(0) }
#if WAVES > 1
	:: atomic { kept[1] -> flush(1) }
#endif
#if WAVES > 2
	:: atomic { kept[2] -> flush(2) }
#endif
	od
}

proctype controller()
{
	byte cid, i;

end:	do
	:: atomic {
		sq_db != got % D ->
		i = got % D;
		assert(written[i] == got + 1); /* never a stale or half-written entry */
		cid = sq_cid[i];
		assert(!(has & (1 << cid)));
		has = has | (1 << cid);
		has_stamp[cid] = sq_stamp[i];
		written[i] = 0;
		sq_cid[i] = 0;
		sq_stamp[i] = 0;
		got++;
		cid = 0;
		i = 0
	}
	:: atomic {
		has && (posted + 1) % CQ != cq_db ->
		if
		:: has & 1 -> cid = 0
		:: has & 2 -> cid = 1
		:: has & 4 -> cid = 2
		:: has & 8 -> cid = 3
		:: has & 16 -> cid = 4
		fi;
		i = posted % CQ;
		has = has & ~(1 << cid);
		cq_cid[i] = cid;
		cq_status[i] = has_stamp[cid];
		cq_sqhd[i] = got % D;
		cq_phase[i] = 1 - (posted / CQ) % 2;
		has_stamp[cid] = 0;
		posted++;
		cid = 0;
		i = 0
	}
	od
}

init
{
	byte p, q, r, f, n, i, k, cid, delta, turn, bits, old, own, mine[LANES], my_stamp[LANES];

	atomic {
		map = ALL_CIDS;
		run controller();
		run memory();
		run wave(0);
#if WAVES > 1
		run wave(1);
#endif
#if WAVES > 2
		run wave(2);
#endif
	}
	running == 0;
	assert(pub == resv && rung == resv && gate_pos == resv && gate_came == 0); /* whatever was READY was rung, by somebody */
	do
	:: map == ALL_CIDS -> break
	:: map != ALL_CIDS && CAN_DRAIN -> drain() /* commands that nobody asked for */
	od;
	assert(ended == (1 << STAMPS) - 1 && has == 0 && drain_lock == 0)
}
