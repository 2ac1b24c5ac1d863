/* SPDX-License-Identifier: MIT */
/*
 * The control word, on coroutines with one seed for each run (schedule.h): threads wait on a controller that is silent, the host
 * says stop, takes it back, says a cause, or nothing, so that only time ends the waiting. Clocks of threads differ by up to 2 us. A
 * thread that asks the host may be gone for long, before its load or after it.
 *
 *   test_control           a fixed list of seeds
 *   test_control SEED      that one again
 *
 * What the host says reaches every thread within 3 ms of the simulated clock, a time-out comes no later; and it reaches all threads
 * that look together at their second look. A call that begins when the host has taken
 * a stop back hears nothing of it. And the host's word is loaded once in 1/32 ms, whatever the number of threads.
 */
#include "schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/rig.h"

#define SEEDS 400u
#define LANES 12u
#define MS 1000000ull /* ticks; the clock of schedule.h is one of nanoseconds */
#define LATE (3 * MS)
#define BEAT 300000 /* ticks from one look to the next, where all threads look together */
#define STEPS 10000000u
#define SKEW 2000

enum host { SAYS_NOTHING, SAYS_STOP, TAKES_IT_BACK, SAYS_CAUSE, HOSTS };

static struct {
	uint64_t seed, random;
	struct rig *rig;
	uint32_t lanes, begun, over;
	enum host host;
	bool steals; /* the thread that asks may be gone for long */
	bool beat; /* threads look together and seldom, as those of a wave do that is held up */
	bool calm; /* between stop and its end nobody looks */
	uint64_t said; /* when the host said what ends the waiting */
	uint32_t taken_back;
	uint64_t loads, first, last, stolen;
	uint32_t lost; /* threads that are gone until the others have returned */
	bool gone[LANES + 1];
} t;

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("[  FAILED  ] ");
	vprintf(format, args);
	va_end(args);
	printf("\n%u lanes, host %d, at %llu; replay: test_control %llu\n", t.lanes, t.host, (unsigned long long)schedule.now,
	       (unsigned long long)t.seed);
	fflush(stdout);
	_Exit(1);
}

static uint32_t draw(uint32_t below)
{
	return schedule_draw(&t.random, below);
}

NO_TSAN static void schedule_doorbell(uint64_t at, uint32_t value)
{
	(void)at;
	(void)value;
}

NO_TSAN static void nothing(void)
{
}

static void stuck(void)
{
	fail("no end in sight: %u of %u lanes have returned", t.over, t.lanes);
}

/* This thread is not scheduled: for a while, or until the others have returned. */
NO_TSAN static void away(void)
{
	uint64_t until = draw(4) ? schedule.now + draw(draw(2) ? 200000 : 3 * MS) : ~0ull;

	if (t.host == TAKES_IT_BACK && draw(2)) /* to reply when what he heard is not true any more */
		until = schedule.now + MS + draw(MS);

	t.gone[schedule.current] = true;
	t.stolen++;
	t.lost += until == ~0ull;
	while (schedule.now < until && __atomic_load_n(&t.over, __ATOMIC_RELAXED) + t.lost < t.lanes)
		schedule_yield();
}

NO_TSAN static void on_load(uint64_t at, bool done)
{
	if (at != t.rig->dq.stop)
		return;
	if (!done) {
		t.first = t.loads++ ? t.first : schedule.now;
		t.last = schedule.now;
	}
	if (t.steals && !draw(t.host == TAKES_IT_BACK ? 6 : 40))
		away();
}

static void nap(uint64_t ticks)
{
	uint64_t until = schedule.now + ticks;

	while (schedule.now < until)
		schedule_yield();
}

/* ---- The host ---- */

static void say(uint32_t word)
{
	__atomic_store_n(&t.rig->stop, word, __ATOMIC_RELEASE);
	t.said = schedule.now;
}

static void host(unsigned number)
{
	(void)number;
	while (__atomic_load_n(&t.begun, __ATOMIC_ACQUIRE) < t.lanes)
		schedule_yield();
	nap(draw(2 * MS));
	if (t.host == SAYS_STOP || t.host == TAKES_IT_BACK)
		say(1);
	if (t.host == TAKES_IT_BACK) { /* as gpunvme_queue_stop() */
		nap(draw(100000));
		say(0);
		nap(MS);
		__atomic_store_n(&t.taken_back, 1, __ATOMIC_RELEASE);
		nap(draw(MS));
	}
	if (t.host == TAKES_IT_BACK || t.host == SAYS_CAUSE)
		say(GPUNVME_ESHUTDOWN);
}

/* ---- The threads ---- */

static int one_call(struct gpunvme_req *req)
{
	bool taken_back = __atomic_load_n(&t.taken_back, __ATOMIC_ACQUIRE);
	int ret;

	if (t.beat)
		nap(BEAT - schedule.now % BEAT);
	if (!t.beat && draw(2))
		ret = gpunvme_wait(&t.rig->dq, req, draw(2) ? 0 : 1 + draw(MS));
	else
		ret = gpunvme_poll(&t.rig->dq, req);
	schedule_yield();
	while (ret == -GPUNVME_ECANCELED && t.host == TAKES_IT_BACK && t.calm && !__atomic_load_n(&t.taken_back, __ATOMIC_ACQUIRE))
		schedule_yield(); /* so that the threads' copy is that of before */
	if (ret == -GPUNVME_ECANCELED && (taken_back || t.host == SAYS_NOTHING || t.host == SAYS_CAUSE))
		fail("a call hears of a stop that was taken back before it began");
	return ret;
}

static void work(unsigned number)
{
	static const int ends[HOSTS] = { -GPUNVME_ETIMEDOUT, -GPUNVME_ECANCELED, -GPUNVME_ESHUTDOWN, -GPUNVME_ESHUTDOWN };
	uint64_t due;
	struct gpunvme_req req;
	int ret;

	do
		ret = gpunvme_submit_read(&t.rig->dq, &t.rig->dbuf, 0, (uint64_t)number * 512, 512, &req);
	while (ret == -GPUNVME_EAGAIN); /* others took the identifiers that it saw */
	if (ret)
		fail("submit: %d", ret);
	__atomic_fetch_add(&t.begun, 1, __ATOMIC_ACQ_REL);
	due = schedule.now + t.rig->dq.cmd_timeout;
	do
		ret = one_call(&req);
	while (ret == -GPUNVME_EAGAIN || (ret == -GPUNVME_ECANCELED && t.host == TAKES_IT_BACK) ||
	       (ret == -GPUNVME_ETIMEDOUT && (t.host != SAYS_NOTHING || schedule.now < due))); /* the call's own time */
	if (ret != ends[t.host])
		fail("a lane's waiting ends with %d instead of %d", ret, ends[t.host]);
	due = t.host == SAYS_NOTHING ? due : t.said;
	due += t.beat && !t.steals ? 5 * BEAT / 2 : LATE;
	if (!t.gone[number] && schedule.now > due)
		fail("a lane hears of it %llu ticks late", (unsigned long long)(schedule.now - due));
	__atomic_fetch_add(&t.over, 1, __ATOMIC_ACQ_REL);
}

/* ---- A run ---- */

static void run(uint64_t seed)
{
	uint64_t holds, most;
	uint32_t i;

	memset(&t, 0, sizeof(t));
	t.seed = seed;
	t.random = seed * 0x9e3779b97f4a7c15u;
	t.rig = rig_new(5, 0);
	t.lanes = 1 + draw(LANES);
	t.host = draw(HOSTS);
	t.steals = draw(2);
	t.calm = draw(2);
	t.beat = !draw(4);
	t.rig->dq.cmd_timeout = t.host == SAYS_NOTHING ? 5 * MS : 10000 * MS;
	schedule.random = seed ^ 0x5851f42d4c957f2du;
	schedule.stay = 1 + draw(20);
	schedule.steps = 0;
	schedule.now = 1000 * MS; /* no clock has just begun */
	schedule.limit = STEPS;
	schedule.check = nothing;
	schedule.stuck = stuck;
	schedule.load = on_load;
	schedule.tsan_main = __tsan_get_current_fiber();
	schedule.count = t.lanes + 1;
	schedule.co = calloc(schedule.count, sizeof(*schedule.co));
	for (i = 0; i <= t.lanes; i++) {
		schedule.co[i].ahead = (int64_t)draw(2 * SKEW) - SKEW;
		schedule_add(i, i < t.lanes ? work : host, NULL);
	}
	schedule_run();
	holds = (t.rig->dq.ticks_per_ms >> GPUNVME_CONTROL_SHIFT) - GPUNVME_CONTROL_WORD - 2 * SKEW;
	most = (t.last - t.first) / holds + 1 + 2 * t.stolen; /* a thread that was gone may put an older time over a newer one */
	if (t.loads > most)
		fail("the host's word was loaded %llu times in %llu ticks", (unsigned long long)t.loads,
		     (unsigned long long)(t.last - t.first));
	free(schedule.co);
	rig_free(t.rig);
}

int main(int argc, char **argv)
{
	uint64_t seed, loads = 0, ticks = 0;

#ifdef __SANITIZE_THREAD__
	puts("skipped: its coroutines share what the test notes; test_schedule has the thread sanitizer look at the same accesses");
	return 77;
#endif
	if (argc > 1) {
		run(strtoull(argv[1], NULL, 10));
		printf("seed %s: good\n", argv[1]);
		return 0;
	}
	for (seed = 1; seed <= SEEDS; seed++) {
		run(seed);
		loads += t.loads;
		ticks += t.last - t.first;
	}
	printf("%u schedules, %llu loads of the host's word in %llu ms: all good\n", SEEDS, (unsigned long long)loads,
	       (unsigned long long)(ticks / MS));
	return 0;
}
