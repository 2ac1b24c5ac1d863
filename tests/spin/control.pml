/* SPDX-License-Identifier: MIT */
/*
 * The control word of device/gpunvme/device/queue.h, for a model checker: a word of the host's, its mirror in the state of the queue,
 * lanes of which one at a time asks the host. docs/verification.md says what is proved; tests/spin/check runs it.
 *
 * The host says stop, takes it back, waits until no reply from before is believed, and returns; what begins then must know nothing
 * of it. At last it says a cause. A lane looks until it knows the cause. It may be gone without limit after any step of asking, and
 * as long as it likes between any two. One shared access is one step.
 *
 * A lane that would look in vain sleeps until its look changes something, and when all sleep time passes, so that a lane that can
 * never know the cause is a deadlock the checker reports.
 */
#ifndef PLANT
#define PLANT 0
#endif
#define LANES 3
#define SPAN(answer) ((answer) -> SAID : 1) /* ticks for which a reply is believed, and keeps others from asking */
#define SAID 2
#define TICKS 3 /* that pass when they like */
#define MORE (2 * LANES * (SAID + 1))
#define STOP 1
#define CAUSE 2

byte clock = SAID + 1, ticks, more;
byte word;                /* the host's */
byte asked, answer;       /* the mirror, one word: when the host was asked last, and what it said */
bit taken_back;           /* gpunvme_queue_stop(0) has returned */
byte gone;                /* lanes that never come back */

#if PLANT == 4
#define OLD (clock - asked > SPAN(answer) && !busy)
bit busy;
#else
#define OLD (clock - asked > SPAN(answer))
#endif

/* gnvd_control(). */
inline look()
{
	late = taken_back;
	atomic { was = asked; said = answer }
	now = clock;
#if PLANT == 1
	heard = said;
#else
	heard = (now - was <= SPAN(said) -> said : 0);
#endif
	if
	:: now - was > SPAN(said) ->
		atomic {
			if
#if PLANT == 4
			:: asked == was && answer == said && !busy -> busy = 1;
#else
			:: asked == was && answer == said ->
#endif
			   mine = 1;
			   asked = now;
#if PLANT != 2
			   answer = 0
#endif
			:: else
			fi
		}
		if
		:: mine ->
			if
			:: gone < LANES - 1 -> atomic { gone++; goto out } /* and has not answered */
			:: true
			fi;
			heard = word;
			if
#if PLANT == 3
			:: heard -> atomic { asked = clock; answer = heard }
#else
			:: heard -> atomic { asked = now; answer = heard }
#endif
			:: else
			fi;
#if PLANT == 4
			busy = 0;
#endif
			mine = 0
		:: else
		fi
	:: else
	fi;
	assert(!(late && heard == STOP));
	atomic { was = 0; said = 0; now = 0; late = 0 }
}

proctype lane()
{
	byte was, said, now, heard;
	bit mine, late;

	do
	:: heard == CAUSE -> break
	:: heard != CAUSE && (OLD || answer) -> look()
	od;
out:	skip
}

proctype host()
{
	byte since;

	word = STOP;
	atomic { word = 0; since = clock }
#if PLANT != 5
	clock - since > SAID;
#endif
	taken_back = 1;
	word = CAUSE
}

proctype time()
{
end:	do
	:: atomic { ticks < TICKS -> ticks++; clock++ }
	:: atomic { timeout && more < MORE -> more++; clock++ }
	od
}

init
{
	byte i;

	atomic {
		run host();
		run time();
		do
		:: i < LANES -> run lane(); i++
		:: else -> break
		od
	}
}
