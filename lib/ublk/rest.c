/* SPDX-License-Identifier: MIT */
/*
 * How the thread of a queue rests. It spins while the controller has commands, and naps where that takes long. Without any it
 * sleeps in the driver until a request comes. If the last request came soon after a completion, the thread polls for a while first:
 * a program with one request at a time waits for each, and waking a thread takes longer than all other steps.
 */
#include <sched.h>

#include "ublk/ublk.h"
#include "util/clock.h"
#include "util/thread.h"

#define SPIN_NS 1000000 /* since anything came or completed: then it naps between two looks, for milliseconds without fine timers */
#define SOON_NS 200000	/* after a completion */
#define LOOKS 16u	/* for a request, without the clock, which may be a device */
#define NAP_US 50
#define IDLE_US 250000 /* a thread that has to end may be asleep for so long */

/* The work that it waits for may need this core. */
static bool stays_awake(struct gnv_ublk_worker *w)
{
	if (!w->awake_ns)
		return false;
	if (++w->looks % LOOKS) {
		gnv_cpu_pause();
		return true;
	}
	sched_yield();
	if (gnv_clock_ns() - w->moved >= w->awake_ns)
		w->awake_ns = 0;
	return w->awake_ns;
}

/* A request ends a sleep. If staying awake would have been better, wait twice as long for the next. */
static void note_time(struct gnv_ublk_worker *w, bool came, bool ended)
{
	uint64_t now;

	if (!ended && !(came && w->slept))
		return;
	now = gnv_clock_ns();
	if (came && w->slept)
		w->awake_ns = now - w->moved < SOON_NS ? 2 * (now - w->moved) : 0;
	w->slept = false;
	w->moved = now;
}

/* A command that was just sent may be over soon, however long others take. */
static unsigned watch(struct gnv_ublk_worker *w, bool came)
{
	const uint64_t now = gnv_clock_ns();

	if (came)
		w->moved = now;
	return now - w->moved > SPIN_NS ? NAP_US : 0;
}

unsigned gnv_ublk_rest(struct gnv_ublk_worker *w, bool came, bool ended)
{
	note_time(w, came, ended);
	if (w->sent || w->ready)
		return watch(w, came);
	if (stays_awake(w))
		return 0;
	w->slept = true;
	return IDLE_US;
}
