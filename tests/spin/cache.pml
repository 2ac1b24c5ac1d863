/* SPDX-License-Identifier: MIT */
/*
 * The page cache of device/gpunvme/device/page.h, for a model checker: waves whose lanes get pages, read their bytes and put
 * them back, a device whose reads succeed, fail, or are given up and write later, and a host that gives lost frames back.
 * docs/verification.md says what is proved; tests/spin/check runs it, also with each PLANT, which must be found.
 *
 * PAGES pages, FRAMES frames, WAVES waves of LANES lanes, ROUNDS pages for each lane; with LOSES reads may be given up, with
 * GLANCES one more lane looks at that many elements without a reference; with AHEAD (device/coming.h) lanes may prefetch instead,
 * for which there may be no room in the queue, and end what is coming and nobody asked for. One shared access is one step; a word
 * is one access, whatever it says. The clock's hand points anywhere, and has one look. A lane that would look in vain sleeps until
 * its look changes something, so that a page for which somebody waits without limit is a deadlock the checker reports: the time-out
 * of gnvd_page_late() is never needed.
 */
#ifndef PLANT
#define PLANT 0
#endif
#define EMPTY 0
#define READING 1
#define VALID 2
#define COMING 3
#define FREE 0 /* of a frame's word, or its page and 1 */
#define TAKEN 254
#define LOST 255
#define ERROR 100 /* where a page has its frame: why it failed */
#define LOOKS 1 /* of the hand, which has more; then every frame once */
#define NONE 255

/* The words of the pages and of the frames. */
byte state[PAGES], refs[PAGES], fails[PAGES], value[PAGES];
bit used[PAGES];
byte owner[FRAMES];

/* With prefetch, device/coming.h: the command that reads into a frame. */
#define NOTHING 0
#define FLIES 1
#define OVER 2
#define BAD 3
byte command[FRAMES], whose[FRAMES];

/* Memory, and the device's reads that lanes gave up. */
byte bytes[FRAMES]; /* the page that lies there and 1; 0: anything */
bit late[FRAMES];

/* For the checks only. */
byte readers[PAGES], writers[FRAMES], users[FRAMES];
byte running = WAVES;

#define SAME(p) (state[p] == st && refs[p] == rf && fails[p] == fl && value[p] == vl && used[p] == us)
#define LOOK_CHANGES(l) (doing[l] == WAITS && (state[page[l]] != READING || fails[page[l]] != first[l] && value[page[l]] != 0))
#if LANES == 2
#define SOME_LOOK_CHANGES (LOOK_CHANGES(0) || LOOK_CHANGES(1))
#define SOME(what) (doing[0] == what || doing[1] == what)
#else
#define SOME_LOOK_CHANGES LOOK_CHANGES(0)
#define SOME(what) (doing[0] == what)
#endif

/* What a lane is about. */
#define DONE 0
#define WAITS 1 /* for its page, to which it has referred */
#define READS 2
#define HAS 3
#define FAILED 4
#define ENDS 5 /* what was prefetched */
#define SENDS 6

inline load(p)
{
	atomic { st = state[p]; rf = refs[p]; fl = fails[p]; vl = value[p]; us = used[p] }
}

inline forget()
{
	atomic { st = 0; rf = 0; fl = 0; vl = 0; us = 0 }
}

/* gnvd_refer(), and the hit. */
inline refer(l)
{
	atomic {
		if
		:: page[l] = 0
		:: page[l] = 1
#if PAGES > 2
		:: page[l] = 2
#endif
		fi
	}
#if PLANT == 1
	load(page[l]);
	refs[page[l]]++;
#else
	atomic { st = state[page[l]]; fl = fails[page[l]]; vl = value[page[l]]; us = used[page[l]]; refs[page[l]]++ }
#endif
	if
	:: st == VALID -> atomic { frame[l] = vl; doing[l] = HAS }
	:: else -> atomic { first[l] = fl; doing[l] = WAITS }
	fi;
	if
	:: doing[l] == HAS && !us -> used[page[l]] = 1
	:: else
	fi;
	forget()
}

/* gnvd_claim_coming(), of the word that was loaded */
inline claim(l)
{
	atomic {
		if
#if PLANT == 16
		:: true ->
#else
		:: SAME(page[l]) ->
#endif
		   state[page[l]] = READING;
#if PLANT != 21
		   value[page[l]] = 0;
#endif
		   used[page[l]] = 0;
		   assert(readers[page[l]] == 0);
		   readers[page[l]]++;
		   frame[l] = vl;
		   doing[l] = ENDS
		:: else
		fi
	}
}

/* gnvd_look_at_page(), gnvd_look_up_prefetched() */
inline look(l)
{
	load(page[l]);
	if
	:: st == VALID -> atomic { frame[l] = vl; doing[l] = HAS }
	:: st == COMING -> claim(l)
	:: st == EMPTY && fl != first[l] || st == READING && fl != first[l] && vl != 0 ->
		atomic { assert(vl == ERROR); doing[l] = FAILED } /* READING without is what was prefetched since: wait for that */
	:: st == EMPTY && fl == first[l] ->
		atomic {
			if
#if PLANT == 2
			:: true ->
#else
			:: SAME(page[l]) ->
#endif
			   state[page[l]] = READING;
			   assert(readers[page[l]] == 0); /* a reader reads a page alone */
			   readers[page[l]]++;
			   doing[l] = READS
			:: else
			fi
		}
	:: else
	fi;
	forget()
}

/* gnvd_take_frame(): f is this lane's, or stays as it was */
inline take(l, any)
{
	at = owner[f];
	if
	:: at == FREE ->
		atomic {
			if
#if PLANT == 3
			:: true ->
#else
			:: owner[f] == FREE ->
#endif
			   owner[f] = TAKEN; frame[l] = f
			:: else
			fi
		}
	:: at == TAKEN
#if PLANT == 4
	:: at == LOST -> frame[l] = f
#else
	:: at == LOST
#endif
	:: else ->
		load(at - 1);
		if
#ifdef AHEAD
#if PLANT == 17
		:: st == COMING && rf == 0 && vl == f ->
#elif PLANT == 18
		:: st == COMING && vl == f && command[f] > FLIES ->
#else
		:: st == COMING && rf == 0 && vl == f && command[f] > FLIES ->
#endif
			atomic {
				if
				:: SAME(at - 1) && (any || !us) ->
				   state[at - 1] = EMPTY; value[at - 1] = 0; used[at - 1] = 0; fails[at - 1]++; frame[l] = f;
				   writers[f]--;
#if PLANT == 17
				   late[f] = (command[f] == FLIES);
#endif
#if PLANT != 22
				   command[f] = NOTHING
#endif
				:: SAME(at - 1) && !any && us -> used[at - 1] = 0
				:: else
				fi
			}
#ifdef LOSES /* its queue has ended */
		:: st == COMING && rf == 0 && vl == f && command[f] != NOTHING ->
			atomic {
				if
				:: SAME(at - 1) ->
				   state[at - 1] = EMPTY; value[at - 1] = 0; used[at - 1] = 0; fails[at - 1]++;
				   writers[f]--; late[f] = (command[f] == FLIES); command[f] = NOTHING; frame[l] = f
				:: else
				fi
			}
			if
			:: frame[l] == f -> atomic { owner[f] = LOST; frame[l] = NONE }
			:: else
			fi
#endif
#endif
#if PLANT == 5
		:: st == VALID && vl == f ->
#elif PLANT == 6
		:: st == VALID && rf == 0 ->
#else
		:: st == VALID && rf == 0 && vl == f ->
#endif
			atomic {
				if
#if PLANT == 7
				:: any || !us ->
#else
				:: SAME(at - 1) && (any || !us) ->
#endif
				   state[at - 1] = EMPTY; value[at - 1] = 0; used[at - 1] = 0; frame[l] = f;
#if PLANT != 14
				   fails[at - 1]++
#endif
				:: SAME(at - 1) && !any && us -> used[at - 1] = 0
				:: else
				fi
			}
		:: else
		fi;
		forget()
	fi;
	at = 0
}

/* gnvd_find_frame() */
inline find(l)
{
	atomic { frame[l] = NONE; i = 0 }
	do
	:: frame[l] == NONE && i < LOOKS ->
		atomic { i++; if :: f = 0 :: f = FRAMES - 1 fi }
		take(l, false)
	:: frame[l] == NONE && i >= LOOKS && i < LOOKS + FRAMES ->
		atomic { i++; f = (f + 1) % FRAMES }
		take(l, true)
	:: else -> break
	od;
	atomic {
		i = 0;
		f = 0;
		if
		:: frame[l] != NONE ->
			writers[frame[l]]++;
			assert(writers[frame[l]] == 1 && users[frame[l]] == 0 && !late[frame[l]]); /* a frame is one lane's to fill */
			bytes[frame[l]] = 0
		:: else
		fi
	}
}

/* gnvd_begin_end(): whose command is it? Its queue may have ended. */
inline begin_end(l)
{
	if
	:: skip
#ifdef LOSES
	:: atomic { writers[frame[l]]--; late[frame[l]] = (command[frame[l]] == FLIES); command[frame[l]] = NOTHING }
	   atomic { owner[frame[l]] = LOST; frame[l] = NONE; doing[l] = READS }
#endif
	fi
}

/* gnvd_end_reading(), after the device's reply */
inline end_reading(l)
{
	if
	:: frame[l] == NONE -> how = ERROR
	:: frame[l] != NONE && doing[l] == ENDS ->
		atomic {
			if
			:: command[frame[l]] == OVER -> how = frame[l]
			:: command[frame[l]] == BAD -> how = ERROR
#ifdef LOSES
			:: command[frame[l]] == FLIES -> late[frame[l]] = 1; how = LOST
#endif
			fi;
			assert(whose[frame[l]] == page[l]);
			command[frame[l]] = NOTHING;
			writers[frame[l]]--
		}
		if
		:: how == frame[l] -> owner[how] = page[l] + 1
		:: how == LOST -> owner[frame[l]] = LOST
		:: how == ERROR -> owner[frame[l]] = FREE
		fi
	:: frame[l] != NONE && doing[l] == READS ->
		atomic {
			writers[frame[l]]--;
			if
			:: bytes[frame[l]] = page[l] + 1; how = frame[l]
			:: how = ERROR
#ifdef LOSES
			:: late[frame[l]] = 1; how = LOST
#endif
			fi
		}
		if
		:: how == frame[l] -> owner[how] = page[l] + 1
#if PLANT == 8
		:: how == LOST || how == ERROR -> owner[frame[l]] = FREE
#else
		:: how == LOST -> owner[frame[l]] = LOST
		:: how == ERROR -> owner[frame[l]] = FREE
#endif
		fi
	fi;
	atomic {
		readers[page[l]]--;
		if
		:: how < FRAMES -> state[page[l]] = VALID; used[page[l]] = 1; value[page[l]] = how; doing[l] = HAS
#if PLANT == 9
		:: how >= FRAMES -> fails[page[l]]++; value[page[l]] = ERROR; doing[l] = FAILED
#else
		:: how >= FRAMES -> state[page[l]] = EMPTY; fails[page[l]]++; value[page[l]] = ERROR; doing[l] = FAILED
#endif
		fi;
		how = 0
	}
}

#ifdef AHEAD
/* gnvd_prefetch_pages() */
inline prefetch(l)
{
	atomic {
		if
		:: page[l] = 0
		:: page[l] = 1
#if PAGES > 2
		:: page[l] = 2
#endif
		fi
	}
	load(page[l]);
	if
	:: st == EMPTY ->
		atomic {
			if
			:: SAME(page[l]) -> state[page[l]] = READING; assert(readers[page[l]] == 0); readers[page[l]]++; doing[l] = SENDS
			:: else
			fi
		}
	:: else
	fi;
	forget();
	if
	:: doing[l] == SENDS ->
		find(l);
		if
		:: frame[l] != NONE ->
			if
#if PLANT == 19
			:: atomic { readers[page[l]]--; state[page[l]] = COMING; value[page[l]] = frame[l]; used[page[l]] = 1 }
			   atomic { command[frame[l]] = FLIES; whose[frame[l]] = page[l] }
			   owner[frame[l]] = page[l] + 1
#else
			:: atomic { command[frame[l]] = FLIES; whose[frame[l]] = page[l] }
			   owner[frame[l]] = page[l] + 1;
			   atomic { readers[page[l]]--; state[page[l]] = COMING; value[page[l]] = frame[l]; used[page[l]] = 1 }
#endif
			:: atomic { writers[frame[l]]-- }
#if PLANT != 23
			   owner[frame[l]] = FREE;
#endif
			   frame[l] = NONE
			fi
		:: else
		fi;
		if
		:: frame[l] == NONE ->
#if PLANT == 20
			atomic { readers[page[l]]--; state[page[l]] = EMPTY; fails[page[l]]++ }
#else
			atomic { readers[page[l]]--; state[page[l]] = EMPTY }
#endif
		:: else
		fi
	:: else
	fi;
	atomic { doing[l] = DONE; page[l] = 0; frame[l] = 0 }
}

/* gnvd_claim_frame(), and the end of what it found: gnvd_book_all(), gnvd_finish_coming() */
inline sweep(l)
{
	atomic { if :: f = 0 :: f = FRAMES - 1 fi }
	at = owner[f];
	if
	:: at != FREE && at != TAKEN && at != LOST ->
		atomic { page[l] = at - 1; at = 0 }
		load(page[l]);
		if
		:: st == COMING && vl == f -> claim(l)
		:: else
		fi;
		forget()
	:: else
	fi;
	atomic { at = 0; f = 0 }
	if
	:: doing[l] == ENDS -> end_reading(l)
	:: else
	fi;
	atomic { doing[l] = DONE; page[l] = 0; frame[l] = 0 }
}
#endif

#define FOR_LANES(l) l = 0; do :: l < LANES ->
#define FOR_FRAMES(f) f = 0; do :: f < FRAMES ->
#define END_LANES(l) l++ :: else -> l = 0; break od
#define END_FRAMES(f) f++ :: else -> f = 0; break od

proctype wave()
{
	byte page[LANES], first[LANES], frame[LANES], doing[LANES];
	byte l, f, i, at, how, round, st, rf, fl, vl;
	bit us;

	do
	:: round < ROUNDS ->
#ifdef AHEAD
		FOR_LANES(l) if :: refer(l) :: prefetch(l) :: sweep(l) fi; END_LANES(l);
#else
		FOR_LANES(l) refer(l); END_LANES(l);
#endif
		do
		:: SOME(WAITS) ->
#if PLANT != 10
			FOR_LANES(l) if :: doing[l] == WAITS -> look(l) :: else fi; END_LANES(l);
#else
			FOR_LANES(l) if :: doing[l] == WAITS && !SOME(READS) -> look(l) :: else fi; END_LANES(l);
			if :: SOME(WAITS) && SOME(READS) -> SOME_LOOK_CHANGES :: else fi;
#endif
			if
			:: SOME(READS) || SOME(ENDS) ->
				FOR_LANES(l) if :: doing[l] == ENDS -> begin_end(l) :: else fi; END_LANES(l);
				FOR_LANES(l) if :: doing[l] == READS -> find(l) :: else fi; END_LANES(l);
				FOR_LANES(l) if :: doing[l] == READS || doing[l] == ENDS -> end_reading(l) :: else fi; END_LANES(l)
			:: !SOME(READS) && !SOME(ENDS) && SOME(WAITS) -> SOME_LOOK_CHANGES
			:: else
			fi
		:: else -> break
		od;
		FOR_LANES(l)
			if
#if PLANT == 11
			:: doing[l] == FAILED
#else
			:: doing[l] == FAILED -> refs[page[l]]--
#endif
			:: else
			fi;
		END_LANES(l);
		FOR_LANES(l)
			if
			:: doing[l] == HAS ->
#if PLANT == 12
				refs[page[l]]--;
#endif
				atomic { users[frame[l]]++; assert(bytes[frame[l]] == page[l] + 1 && writers[frame[l]] == 0) }
				atomic { users[frame[l]]--; assert(bytes[frame[l]] == page[l] + 1 && writers[frame[l]] == 0) }
#if PLANT != 12
				refs[page[l]]--
#endif
			:: else
			fi;
			atomic { doing[l] = DONE; page[l] = 0; first[l] = 0; frame[l] = 0 };
		END_LANES(l);
		round++
	:: else -> break
	od;
	running--
}

#ifdef GLANCES
/* gnvd_glance(), by a lane that has no reference. It may take as long as it likes: no count runs over here. */
proctype glance()
{
	byte p, seen, round, st, rf, fl, vl;
	bit us;

	do
	:: round < GLANCES ->
		if :: p = 0 :: p = 1 fi;
		load(p);
		if
		:: st == VALID ->
			seen = bytes[vl];
			if
#if PLANT == 15
			:: true ->
#else
			:: atomic { state[p] == st && fails[p] == fl && value[p] == vl -> rf = refs[p]; us = used[p] }
#endif
			   assert(seen == p + 1);
			   atomic { if :: SAME(p) -> used[p] = 1 :: else fi }
			:: else
			fi
		:: else
		fi;
		forget();
		atomic { seen = 0; p = 0; round++ }
	:: else -> break
	od;
	running--
}
#endif

#ifdef AHEAD
/* Commands that were prefetched end when they like, too. */
proctype controller()
{
end:	do
	:: atomic { command[0] == FLIES -> bytes[0] = whose[0] + 1; command[0] = OVER }
	:: atomic { command[0] == FLIES -> command[0] = BAD }
#if FRAMES > 1
	:: atomic { command[FRAMES - 1] == FLIES -> bytes[FRAMES - 1] = whose[FRAMES - 1] + 1; command[FRAMES - 1] = OVER }
	:: atomic { command[FRAMES - 1] == FLIES -> command[FRAMES - 1] = BAD }
#endif
	od
}
#endif

/* Reads that were given up end when they like, and have written something. */
proctype device()
{
	byte f;

end:	do
	:: atomic { late[0] -> late[0] = 0; bytes[0] = 0 }
	:: atomic { late[FRAMES - 1] -> late[FRAMES - 1] = 0; bytes[FRAMES - 1] = 0 }
	od
}

/* give_back(): the words come first, and the device has no command when they are written. */
proctype host()
{
	bit lost[FRAMES];
	byte f;

end:	do
	:: owner[0] == LOST || owner[FRAMES - 1] == LOST ->
		FOR_FRAMES(f) lost[f] = owner[f] == LOST; END_FRAMES(f);
#if PLANT != 13
		if :: !late[0] && !late[FRAMES - 1] :: else -> goto end fi;
#endif
		FOR_FRAMES(f) if :: lost[f] -> owner[f] = FREE :: else fi; END_FRAMES(f)
	od
}

init
{
	byte i;

	atomic {
#ifdef LOSES
		run device();
		run host();
#endif
#ifdef AHEAD
		run controller();
#endif
#ifdef GLANCES
		running++;
		run glance();
#endif
		do
		:: i < WAVES -> run wave(); i++
		:: else -> i = 0; break
		od
	}
	running == 0;
	d_step {
		do
		:: i < PAGES -> assert(refs[i] == 0 && state[i] != READING); i++
		:: else -> i = 0; break
		od;
		do /* no frame is forgotten */
		:: i < FRAMES ->
			assert(owner[i] == FREE || owner[i] == LOST || state[owner[i] - 1] == VALID && value[owner[i] - 1] == i ||
			       state[owner[i] - 1] == COMING && value[owner[i] - 1] == i && command[i] != NOTHING);
			assert(command[i] == NOTHING || state[owner[i] - 1] == COMING && value[owner[i] - 1] == i); /* no identifier, either */
			i++
		:: else -> break
		od
	}
}
