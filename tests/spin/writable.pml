/* SPDX-License-Identifier: MIT */
/*
 * Pages that lanes change, for a model checker: device/gpunvme/device/changes.h. Lanes get a page, change it, or only read it, and
 * give it back; a lane that finds no frame writes what was changed; a lane flushes; writes succeed, fail, or are given up and come
 * to the drive later, or never; a host ends what was kept for those. How a page is read, waited for and referred to is
 * cache.pml's. docs/verification.md says what is proved; tests/spin/check runs it, also with each PLANT, which must be found.
 *
 * PAGES pages, FRAMES frames, LANES lanes, ROUNDS pages for each; with MANY a lane that changes a clean page may write one; with
 * FLUSHES one more lane flushes so often; with FAILS writes may fail, with LOSES be given up. What a page has is a number that each
 * change makes one more. One shared access is one step, but for those that only one lane can make. A lane that would look in vain
 * sleeps, so that a wait without limit is a deadlock that the checker reports.
 */
#ifndef PLANT
#define PLANT 0
#endif
#define EMPTY 0
#define READING 1
#define VALID 2
#define WRITING 3
#define FREE 0 /* of a frame's word, or its page and 1 */
#define TAKEN 254
#define NONE 255
#define KEPT 4
#define ERROR 100 /* where a page has its frame: why it failed */
#define OK 0
#define FAILED 1
#define GIVEN_UP 2

/* The words of the pages and of the frames. */
byte state[PAGES], refs[PAGES], fails[PAGES], value[PAGES];
byte owner[FRAMES];
bit dirty[FRAMES], kept[FRAMES];

/* Memory, the drive, and the device's writes that lanes gave up: of which page and 1, and what they have fetched. */
byte bytes[FRAMES], drive[PAGES];
byte late[FRAMES], fetched[FRAMES];

/* For the checks only: what a page has, the last change that was given back, which lane has it, whose bytes a frame has. */
byte newest[PAGES], back[PAGES], users[PAGES], holds[FRAMES];
byte running = LANES;

#define QUIET (!late[0] && !late[FRAMES - 1])
#define SAME(p) (state[p] == st && refs[p] == rf && fails[p] == fl && value[p] == vl)

inline load(p)
{
	atomic { st = state[p]; rf = refs[p]; fl = fails[p]; vl = value[p] }
}

inline forget()
{
	st = 0; rf = 0; fl = 0; vl = 0
}

/* gnvd_claim(): p is WRITING, by this lane alone; or NONE, and why in at: VALID, lanes have it; WRITING, another lane writes it; KEPT; or EMPTY */
inline claim(f)
{
	atomic { p = NONE; at = EMPTY }
	if
	:: dirty[f] ->
		if
		:: !kept[f] ->
			at = owner[f];
			if
			:: at != FREE && at != TAKEN ->
				load(at - 1);
				if
				:: vl == f && st == WRITING -> at = WRITING
#if PLANT == 10
				:: vl == f && st == VALID ->
#else
				:: vl == f && st == VALID && rf != 1 -> at = VALID
				:: vl == f && st == VALID && rf == 1 ->
#endif
					atomic { if :: SAME(at - 1) -> p = at - 1; state[p] = WRITING :: else fi; at = VALID }
				:: else -> at = EMPTY
				fi;
				forget()
			:: else -> at = EMPTY
			fi
		:: else -> at = KEPT
		fi
	:: else
	fi;
	if /* what was looked at before may have been another page's, or before its write was given up */
	:: p != NONE ->
#if PLANT == 1
		seen = true;
#else
		seen = dirty[f];
#endif
		if
#if PLANT != 9
		:: !seen || kept[f] -> atomic { state[p] = VALID; p = NONE; seen = false }
#else
		:: !seen -> atomic { state[p] = VALID; p = NONE; seen = false }
#endif
		:: else -> seen = false
		fi
	:: else
	fi
}

/* gnvd_write_back() and gnvd_end_writing(): the page p in frame f, which is VALID after it; what came of it in how */
inline write_back(f)
{
#if PLANT == 3
	atomic { dirty[f] = 0 }
#endif
	/* the device reads, and then writes, while the lane waits for both */
	atomic { how = OK; fetch = bytes[f]; assert(users[p] == 0 && !late[f]) }
	if
	:: atomic { drive[p] = fetch; assert(bytes[f] == fetch && users[p] == 0) }
#ifdef FAILS
	:: atomic { how = FAILED }
#endif
#ifdef LOSES
	:: atomic { late[f] = p + 1; fetched[f] = fetch; how = GIVEN_UP }
	:: atomic { late[f] = p + 1; fetched[f] = NONE; how = GIVEN_UP }
#endif
	fi;
	fetch = 0;
	if
#if PLANT == 4
	:: how != GIVEN_UP -> dirty[f] = 0; atomic { state[p] = VALID; refs[p]-- }
	:: how == GIVEN_UP -> kept[f] = 1; state[p] = VALID
#elif PLANT == 3
	:: how == OK -> atomic { state[p] = VALID; refs[p]-- }
	:: how != OK -> state[p] = VALID
#elif PLANT == 5
	:: how == OK -> dirty[f] = 0; atomic { state[p] = VALID; refs[p]-- }
	:: how != OK -> state[p] = VALID
#elif PLANT == 8
	:: how == OK -> atomic { state[p] = VALID; refs[p]-- }; dirty[f] = 0
	:: how == FAILED -> state[p] = VALID
	:: how == GIVEN_UP -> kept[f] = 1; state[p] = VALID
#elif PLANT == 12
	:: how == OK -> dirty[f] = 0; atomic { state[p] = VALID; refs[p]-- }
	:: how == FAILED -> state[p] = VALID
	:: how == GIVEN_UP -> state[p] = VALID; kept[f] = 1
#else
	:: how == OK -> dirty[f] = 0; atomic { state[p] = VALID; refs[p]-- }
	:: how == FAILED -> state[p] = VALID
	:: how == GIVEN_UP -> kept[f] = 1; state[p] = VALID
#endif
	fi;
	p = NONE
}

/* gnvd_find_frame(): g is this lane's, or NONE */
inline find_frame()
{
	atomic { g = NONE; i = 0; if :: f = 0 :: f = FRAMES - 1 fi }
	do
	:: g == NONE && i < FRAMES ->
		atomic { if :: owner[f] == FREE -> owner[f] = TAKEN; g = f :: else fi; at = owner[f] }
		if
		:: g == NONE && at != TAKEN && at != FREE ->
			load(at - 1);
			if
#if PLANT == 6
			:: st == VALID && vl == f && rf <= 1 ->
#else
			:: st == VALID && vl == f && rf == 0 ->
#endif
				atomic {
					if
					:: SAME(at - 1) -> state[at - 1] = EMPTY; value[at - 1] = 0; fails[at - 1]++; g = f
					:: else
					fi
				}
			:: else
			fi;
			forget()
		:: else
		fi;
		atomic { i++; f = (f + 1) % FRAMES; at = 0 }
	:: else -> break
	od;
	atomic { i = 0; f = 0 }
}

/* A reference, and the page: m, its frame h, or NONE: there is no room */
inline get()
{
	atomic { refs[m]++; fl2 = fails[m]; h = NONE; over = false }
	do
	:: !over ->
		load(m);
		if
		:: st == VALID -> atomic { h = vl; over = true; users[m]++ }
		:: st != VALID && fl != fl2 -> over = true /* a read has failed */
		:: st == EMPTY && fl == fl2 -> atomic { if :: SAME(m) -> state[m] = READING; mine = true :: else fi }
		:: else
		fi;
		forget();
		if
		:: mine ->
			find_frame();
			if
			:: g != NONE ->
				/* a reader of a page finds on the drive what it was last */
				atomic {
					assert(drive[m] == newest[m] && !dirty[g] && !kept[g] && !late[g]);
					bytes[g] = drive[m]; holds[g] = m + 1
				}
				owner[g] = m + 1;
				atomic { state[m] = VALID; value[m] = g }
			:: else -> atomic { state[m] = EMPTY; fails[m]++; value[m] = ERROR }
			fi;
			mine = false
		:: !over && !mine -> state[m] == VALID || state[m] == EMPTY || fails[m] != fl2
		:: else
		fi
	:: else -> break
	od;
	atomic { over = false; fl2 = 0; g = 0 }
}

/* gnvd_write_one() */
inline write_one()
{
	atomic { i = 0; if :: f = 0 :: f = FRAMES - 1 fi }
	do
	:: i < FRAMES ->
		claim(f);
		if
		:: p != NONE ->
			write_back(f);
			atomic { if :: how == OK -> i = FRAMES :: else -> i++ fi; how = OK }
		:: else -> i++
		fi;
		atomic { f = (f + 1) % FRAMES; at = 0 }
	:: else -> break
	od;
	atomic { i = 0; f = 0 }
}

/*
 * gnvd_put_changed(): said to be changed before it is given back; the first lane that says so leaves the reference, and may write a
 * page
 */
inline put_changed()
{
#if PLANT == 2
	atomic { users[m]--; refs[m]-- }
	atomic { was = dirty[h]; dirty[h] = 1; if :: !was -> refs[m]++ :: else fi; was = true }
#elif PLANT == 7
	atomic { users[m]--; dirty[h] = 1 }
	atomic { refs[m]--; was = true }
#elif PLANT == 13
	atomic { users[m]--; dirty[h] = 1 }
#else
	atomic { was = dirty[h]; dirty[h] = 1; users[m]--; if :: back[m] < mineat -> back[m] = mineat :: else fi }
	if
	:: was -> refs[m]--
	:: else
	fi;
#endif
#ifdef MANY
	if
	:: !was -> write_one()
	:: else
	fi;
#endif
	was = false
}

proctype lane()
{
	byte m, h, g, f, i, p = NONE, at, how, round, fetch, fl2, mineat, st, rf, fl, vl;
	bit mine, over, seen, was;

	do
	:: round < ROUNDS ->
		if :: m = 0 :: m = PAGES - 1 :: PAGES > 2 -> m = 1 fi;
		get();
		if
		:: h == NONE ->
			refs[m]--;
			write_one()
		:: h != NONE ->
			atomic { assert(holds[h] == m + 1 && bytes[h] == newest[m]) }
			if
			:: atomic { newest[m]++; bytes[h] = newest[m]; mineat = newest[m] }
				put_changed()
			:: atomic { users[m]--; refs[m]-- }
			fi
		fi;
		atomic { h = 0; m = 0; mineat = 0; round++ }
	:: else -> break
	od;
	running--
}

#ifdef FLUSHES
/* gpunvme_write_back() of all frames; what lanes have is passed by at once. */
proctype flush()
{
	byte f, p = NONE, at, how, fetch, round, st, rf, fl, vl, i;
	byte was[PAGES];
	bit clean, seen;

	do
	:: round < FLUSHES ->
		atomic {
			clean = true;
			do :: i < PAGES -> was[i] = back[i]; i++ :: else -> i = 0; break od
		}
		do
		:: f < FRAMES ->
			do
			:: claim(f);
				if
#if PLANT == 14
				:: p == NONE && at == WRITING -> break
#else
				:: p == NONE && at == WRITING -> i = owner[f]; i == FREE || i == TAKEN || state[i - 1] != WRITING; i = 0
#endif
				:: p == NONE && at == EMPTY -> break
				:: p == NONE && (at == VALID || at == KEPT) -> clean = false; break
				:: p != NONE -> write_back(f); if :: how != OK -> clean = false :: else fi; break
				fi
			od;
			atomic { how = OK; at = 0; i = 0 }
			f++
		:: else -> break
		od;
		atomic {
			f = 0;
			do
			:: i < PAGES -> assert(!clean || drive[i] >= was[i]); was[i] = 0; i++
			:: else -> i = 0; break
			od;
			round++
		}
	:: else -> break
	od;
	running--
}
#endif

#ifdef LOSES
/* Writes that were given up end when they like: they fetch what is there, if they have not, and come to the drive. */
inline end_late(f)
{
	atomic {
		late[f] ->
		if
		:: drive[late[f] - 1] = (fetched[f] == NONE -> bytes[f] : fetched[f]);
		   assert(fetched[f] != NONE || holds[f] == late[f]) /* not another page's bytes */
		:: true
		fi;
		late[f] = 0;
		fetched[f] = 0
	}
}

proctype device()
{
end:	do
	:: end_late(0)
#if FRAMES > 1
	:: end_late(FRAMES - 1)
#endif
	od
}

/* gnv_cache_give_back(): the words come first, and the device has no command when they are written. */
proctype host()
{
	byte f;

end:	do
	:: kept[0] -> f = 0; goto quiet
#if FRAMES > 1
	:: kept[FRAMES - 1] -> f = FRAMES - 1; goto quiet
#endif
	od;
quiet:
#if PLANT != 11
	if :: QUIET :: else -> f = 0; goto end fi;
#endif
	atomic { kept[f] = 0; f = 0 }
	goto end
}
#endif

init
{
	byte i;

	atomic {
#ifdef LOSES
		run device();
		run host();
#endif
#ifdef FLUSHES
		running++;
		run flush();
#endif
		do
		:: i < LANES -> run lane(); i++
		:: else -> i = 0; break
		od
	}
	running == 0;
	/* nothing that was changed is lost: it is on the drive, or in a frame that says so, which its page has, with a reference for it */
	d_step {
		do
		:: i < PAGES ->
			assert(state[i] == VALID && refs[i] == dirty[value[i]] && bytes[value[i]] == newest[i] &&
			       (dirty[value[i]] || drive[i] == newest[i]) ||
			       state[i] == EMPTY && refs[i] == 0 && drive[i] == newest[i]);
			i++
		:: else -> i = 0; break
		od;
		do
		:: i < FRAMES ->
			assert(owner[i] == FREE && !dirty[i] || !dirty[i] && state[owner[i] - 1] != VALID ||
			       owner[i] != FREE && state[owner[i] - 1] == VALID && value[owner[i] - 1] == i);
			i++
		:: else -> break
		od
	}
}
