/* SPDX-License-Identifier: MIT */
/*
 * How a server thread rests.
 *
 * A thread without work first spins, then yields its CPU, then sleeps, longer and longer, up to a millisecond. If that alone takes
 * more than 1/64 of a CPU (on some virtual machines a thousand sleeps a second are 3 %), it measures that and sleeps up to four.
 * While I/O is outstanding it sleeps in the store (io_uring). Before that it does not yield its CPU, except if a command is due
 * within 100 us, because a busy machine would not give it back when the I/O ends. Its sleeps are so short that a doorbell does not
 * wait: nothing can wake a thread for one. If no doorbell was written for several sleeps, as with one command at a time, it sleeps
 * a little longer, but less than without I/O: a sleep that the I/O does not end costs a timer, a system call and a turn. If it
 * wakes up late, the machine is so busy that short sleeps only cost turns, so it sleeps longer. The same goes for I/O of more than
 * a second. With a timing model it does not sleep while commands are to be timed. A thread without queues sleeps until it has one.
 */
#include "soft/engine/threads.h"

#include <sched.h>
#include <time.h>

#include "util/bits.h"
#include "util/thread.h"

#define SPIN_NS 20000u
#define YIELD_NS 100000u
#define SLEEP_MIN_US 20u
#define SLEEP_MAX_US 1000u
#define IO_WAIT_US 20u
#define IO_WAIT_BUSY_US 500u
#define IO_WAIT_CALM_US 150u
#define CALM_SLEEPS 64u /* during I/O, since a command came while another was outstanding */
#define LATE_NS 200000u /* a sleep that takes so much longer than requested */
#define IO_HOPE_NS 1000000000u /* so long I/O is expected to end any moment */
#define SLEEP_COSTLY_US 4000u
#define COST_SLEEPS 128u /* sleeps after which their cost is looked at */
#define COST_SHARE 64u   /* of a CPU that sleeping may take */
#define DUE_NS 100000u   /* before a time to keep a thread does not sleep, as it would wake up late */
#define DUE_SPIN_NS 20000u
#define TIMED_HOPE_NS 50000000u /* with a timing model: commands are expected for so long */
#define TIDY_SLEEPS 256u /* sleeps between looks at registered memory */
#define LOOKS 16u	 /* of a thread that spins for each look at the clock, which may be a device */

/* Microseconds until shortly before the deadline, at most `most`, at least 1. */
static unsigned until(const struct gnv_soft_pace *pace, uint64_t now, unsigned most)
{
	uint64_t left = pace->deadline - now > DUE_NS ? (pace->deadline - now - DUE_NS) / 1000 : 0;

	return (unsigned)gnv_min(left + 1, most);
}

/* No sleep now: something is due soon, or a command that is to be timed may come. */
static bool keeps_awake(const struct gnv_soft_server *server, const struct gnv_soft_pace *pace, uint64_t now, uint64_t idle)
{
	const uint64_t left = pace->deadline > now ? pace->deadline - now : 0;

	if (left < DUE_SPIN_NS)
		gnv_cpu_pause();
	else if (left < DUE_NS || (server->soft->timing.on && server->sqs && idle < TIMED_HOPE_NS))
		sched_yield();
	else
		return false;
	return true;
}

static void sleep_us(unsigned us)
{
	const struct timespec t = { .tv_nsec = (long)us * 1000 };

	nanosleep(&t, NULL);
}

static void begin_idle(struct gnv_soft_pace *pace, uint64_t now)
{
	pace->idle_since = now;
	pace->sleep_us = SLEEP_MIN_US;
	pace->sleeps = 0;
	pace->max_us = SLEEP_MAX_US;
	pace->wall = 0;
}

static uint64_t thread_cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Sleep longer if the sleeps since the last look were too dear. */
static void weigh_sleeping(struct gnv_soft_pace *pace, uint64_t now)
{
	uint64_t cpu = thread_cpu();

	if (pace->wall && (cpu - pace->cpu) * COST_SHARE > now - pace->wall)
		pace->max_us = (unsigned)gnv_min(2 * pace->max_us, SLEEP_COSTLY_US);
	pace->wall = now;
	pace->cpu = cpu;
}

/* In the store, which may end it. */
static void wait_for_io(struct gnv_soft_server *server, struct gnv_soft_pace *pace, uint64_t now, uint64_t idle)
{
	const unsigned least = pace->calm < CALM_SLEEPS ? IO_WAIT_US : IO_WAIT_CALM_US;
	const unsigned usec = until(pace, now, idle < IO_HOPE_NS ? (unsigned)gnv_max(pace->io_us, least) : pace->max_us);

	gnv_soft_wait(server, usec);
	pace->calm += pace->calm < CALM_SLEEPS;
	if (gnv_soft_now() - now > usec * 1000ull + LATE_NS)
		pace->io_us = (unsigned)gnv_min(2 * gnv_max(pace->io_us, IO_WAIT_US), IO_WAIT_BUSY_US);
	else
		pace->io_us = IO_WAIT_US;
}

/* It spins, and nothing is due. */
static bool spins_on(struct gnv_soft_pace *pace)
{
	if (!pace->spins || pace->deadline != UINT64_MAX || ++pace->looks % LOOKS == 0)
		return false;
	gnv_cpu_pause();
	return true;
}

void gnv_soft_rest(struct gnv_soft_server *server, struct gnv_soft_pace *pace)
{
	uint64_t now, idle;

	if (spins_on(pace))
		return;
	now = gnv_soft_now();
	if (!pace->idle_since)
		begin_idle(pace, now);
	idle = now - pace->idle_since;
	pace->spins = idle < SPIN_NS;
	if (pace->spins) {
		gnv_cpu_pause();
		return;
	}
	if (keeps_awake(server, pace, now, idle))
		return;
	if (!server->in_store && idle < YIELD_NS) {
		sched_yield();
		return;
	}
	if (server->in_store)
		wait_for_io(server, pace, now, idle);
	else
		sleep_us(until(pace, now, pace->sleep_us));
	pace->sleep_us = (unsigned)gnv_min(2 * pace->sleep_us, pace->max_us);
	if (++pace->sleeps % COST_SLEEPS == 0)
		weigh_sleeping(pace, now);
	if (pace->sleeps % TIDY_SLEEPS == 0)
		gnv_soft_tidy(server);
	server->now = gnv_soft_now();
}
