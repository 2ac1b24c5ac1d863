/* SPDX-License-Identifier: MIT */
/*
 * Threads as coroutines of one thread, and a scheduler that decides before every access to shared memory which of them goes on. The
 * decisions come from a seed, so a run can be repeated. Included instead of <gpunvme/device.h>, by one source file of a program.
 *
 * The primitives of device/cpu.h stay as they are: between its inclusion and that of the queue algorithm their names become macros
 * that take a step first. Waiting (pause, yield) always lets another thread go on, and the clock counts steps.
 *
 * Under the thread sanitizer each coroutine is a thread whose order with others comes from atomics only: races are found although
 * nothing runs in parallel.
 */
#ifndef TESTS_DEVICE_SCHEDULE_H
#define TESTS_DEVICE_SCHEDULE_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>

#define SCHEDULE_STACK 65536u

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define NO_TSAN __attribute__((no_sanitize("thread"), noinline))
#else
#define NO_TSAN
#define __tsan_create_fiber(flags) NULL
#define __tsan_get_current_fiber() NULL
#define __tsan_destroy_fiber(fiber) ((void)(fiber))
#define __tsan_switch_to_fiber(fiber, flags) ((void)(fiber))
#endif
#define TSAN_UNORDERED 1u

struct coroutine {
	ucontext_t context;
	char *stack;
	void *tsan;
	void *self; /* gnvd_cpu_self of this thread */
	int64_t ahead; /* its clock */
	void (*run)(unsigned number);
	bool over;
};

static struct {
	struct coroutine *co;
	unsigned count, alive, current;
	bool active;
	ucontext_t main;
	void *tsan_main;
	uint64_t random, steps, limit, now;
	uint32_t stay; /* one step in so many lets another go on */
	void (*check)(void); /* before each step */
	void (*stuck)(void); /* more than `limit` steps; must not return */
	void (*load)(uint64_t at, bool done); /* before and after each load of one ring word, or NULL */
} schedule;

static void **schedule_self(void); /* where gnvd_cpu_self is */

/* Of a run: what the decisions come from, how rarely they change, and what looks at it. */
static inline void schedule_start(uint64_t seed, uint32_t stay, uint64_t limit, void (*check)(void), void (*stuck)(void))
{
	schedule.random = seed ^ 0x5851f42d4c957f2du;
	schedule.stay = stay;
	schedule.steps = schedule.now = 0;
	schedule.limit = limit;
	schedule.check = check;
	schedule.stuck = stuck;
}

NO_TSAN static uint32_t schedule_draw(uint64_t *random, uint32_t below)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return below ? (uint32_t)((*random >> 33) % below) : 0;
}

NO_TSAN static void schedule_switch(void)
{
	struct coroutine *from = &schedule.co[schedule.current], *to;
	unsigned n = schedule_draw(&schedule.random, schedule.alive), i;

	for (i = 0; schedule.co[i].over || n; i++)
		n -= !schedule.co[i].over;
	to = &schedule.co[i];
	if (to == from)
		return;
	from->self = *schedule_self();
	*schedule_self() = to->self;
	schedule.current = i;
	__tsan_switch_to_fiber(to->tsan, TSAN_UNORDERED);
	swapcontext(&from->context, &to->context);
}

NO_TSAN static void schedule_step(void)
{
	if (!schedule.active)
		return;
	schedule.now += 10;
	if (++schedule.steps > schedule.limit)
		schedule.stuck();
	schedule.check();
	if (!schedule_draw(&schedule.random, schedule.stay))
		schedule_switch();
}

NO_TSAN static int schedule_yield(void)
{
	if (schedule.active) {
		schedule_step();
		schedule.now += 1000;
		schedule_switch();
	}
	return 0;
}

NO_TSAN static uint64_t schedule_clock(void)
{
	return schedule.now + (schedule.active ? (uint64_t)schedule.co[schedule.current].ahead : 0);
}

NO_TSAN static void schedule_main(void)
{
	struct coroutine *co = &schedule.co[schedule.current];

	co->run(schedule.current);
	co->over = true;
	if (--schedule.alive)
		schedule_switch();
	schedule.active = false;
	__tsan_switch_to_fiber(schedule.tsan_main, TSAN_UNORDERED);
	setcontext(&schedule.main);
}

NO_TSAN static void schedule_add(unsigned i, void (*run)(unsigned number), void *self)
{
	struct coroutine *co = &schedule.co[i];

	*co = (struct coroutine){ .run = run, .self = self, .ahead = co->ahead, .stack = malloc(SCHEDULE_STACK), .tsan = __tsan_create_fiber(0) };
	if (!co->stack || getcontext(&co->context))
		abort();
	co->context.uc_stack.ss_sp = co->stack;
	co->context.uc_stack.ss_size = SCHEDULE_STACK;
	makecontext(&co->context, schedule_main, 0);
	__tsan_switch_to_fiber(co->tsan, 0); /* what happened so far is before all it does */
	__tsan_switch_to_fiber(schedule.tsan_main, TSAN_UNORDERED);
}

/* Run all until all have returned. */
NO_TSAN static void schedule_run(void)
{
	unsigned i;

	schedule.alive = schedule.count;
	schedule.active = true;
	schedule.current = 0;
	*schedule_self() = schedule.co[0].self;
	__tsan_switch_to_fiber(schedule.co[0].tsan, TSAN_UNORDERED);
	swapcontext(&schedule.main, &schedule.co[0].context);
	*schedule_self() = NULL;
	for (i = 0; i < schedule.count; i++) {
		__tsan_switch_to_fiber(schedule.co[i].tsan, TSAN_UNORDERED);
		__tsan_switch_to_fiber(schedule.tsan_main, 0);
		__tsan_destroy_fiber(schedule.co[i].tsan);
		free(schedule.co[i].stack);
	}
}

#define GNVD_CPU_WIDTH 64u
#define sched_yield schedule_yield
#include <gpunvme/device/platform.h>

static void **schedule_self(void)
{
	return (void **)(void *)&gnvd_cpu_self;
}

NO_TSAN static uint32_t schedule_load(uint64_t at)
{
	uint32_t word;

	if (schedule.load)
		schedule.load(at, false);
	word = gnvd_load_ring32(at);
	if (schedule.load)
		schedule.load(at, true);
	return word;
}

#define STEP1(f, a) (schedule_step(), f(a))
#define STEP2(f, a, b) (schedule_step(), f(a, b))
#define STEP3(f, a, b, c) (schedule_step(), f(a, b, c))
#define gnvd_ld32(a) STEP1(gnvd_ld32, a)
#define gnvd_ld64(a) STEP1(gnvd_ld64, a)
#define gnvd_ld_after64(a) STEP1(gnvd_ld_after64, a)
#define gnvd_ld_acquire64(a) STEP1(gnvd_ld_acquire64, a)
#define gnvd_st32(a, v) STEP2(gnvd_st32, a, v)
#define gnvd_st64(a, v) STEP2(gnvd_st64, a, v)
#define gnvd_st_release64(a, v) STEP2(gnvd_st_release64, a, v)
#define gnvd_xchg64(a, v) STEP2(gnvd_xchg64, a, v)
#define gnvd_cas32(a, e, v) STEP3(gnvd_cas32, a, e, v)
#define gnvd_cas64(a, e, v) STEP3(gnvd_cas64, a, e, v)
#define gnvd_and64(a, v) STEP2(gnvd_and64, a, v)
#define gnvd_or64(a, v) STEP2(gnvd_or64, a, v)
#define gnvd_or_after64(a, v) STEP2(gnvd_or_after64, a, v)
#define gnvd_add64(a, v) STEP2(gnvd_add64, a, v)
#define gnvd_fetch_add64(a, v) STEP2(gnvd_fetch_add64, a, v)
#define gnvd_fetch_add_acquire64(a, v) STEP2(gnvd_fetch_add_acquire64, a, v)
#define gnvd_add_release64(a, v) STEP2(gnvd_add_release64, a, v)
#define gnvd_take64(a, v) STEP2(gnvd_take64, a, v)
#define gnvd_load_ring32(a) STEP1(schedule_load, a)
#define gnvd_polled_in_vain() schedule_step() /* its counter is a thread's, and coroutines share theirs */
#define gnvd_store_sqe(a, w, cid) STEP3(gnvd_store_sqe, a, w, cid)
#define gnvd_release_to64(w, a, v) STEP3(gnvd_release_to64, w, a, v)
#define gnvd_doorbell(a, v) (schedule_step(), schedule_doorbell(a, v), gnvd_doorbell(a, v))
#define gnvd_clock() schedule_clock()
#define gnvd_pause(turn) ((void)(turn), (void)schedule_yield())

static void schedule_doorbell(uint64_t at, uint32_t value); /* the program's: before each doorbell */

#include <gpunvme/device.h>

#endif
