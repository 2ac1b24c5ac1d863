/* SPDX-License-Identifier: MIT */
#include "virtual.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#define LOOK_NS 1000ull

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

static struct {
	bool on; /* atomic, as are the clocks: a thread may have ended that looked at them */
	void (*turn)(void *ctx);
	void *ctx;
	uint64_t now;	/* while it is on */
	uint64_t ahead; /* of the machine's clock, while it is off */
} virtual;

static _Thread_local bool turns;

static uint64_t machine_ns(void)
{
	struct timespec t;

	__real_clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static bool is_on(void)
{
	return __atomic_load_n(&virtual.on, __ATOMIC_ACQUIRE);
}

void virtual_begin(void (*turn)(void *ctx), void *ctx)
{
	if (is_on()) /* a test that failed has left it */
		virtual_end();
	virtual.turn = turn;
	virtual.ctx = ctx;
	virtual.now = machine_ns() + virtual.ahead;
	__atomic_store_n(&virtual.on, true, __ATOMIC_RELEASE);
}

uint64_t virtual_ns(void)
{
	return __atomic_load_n(&virtual.now, __ATOMIC_RELAXED);
}

void virtual_end(void)
{
	const uint64_t at = machine_ns(), was = __atomic_load_n(&virtual.now, __ATOMIC_RELAXED);

	assert_true(is_on());
	virtual.ahead = was > at ? was - at : 0;
	__atomic_store_n(&virtual.on, false, __ATOMIC_RELEASE);
}

static uint64_t pass(uint64_t ns)
{
	if (virtual.turn && !turns) {
		turns = true;
		virtual.turn(virtual.ctx);
		turns = false;
	}
	return __atomic_add_fetch(&virtual.now, ns, __ATOMIC_RELAXED);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t ns;

	if (id != CLOCK_MONOTONIC)
		return __real_clock_gettime(id, t);
	ns = is_on() ? pass(LOOK_NS) : machine_ns() + virtual.ahead;
	*t = (struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	if (!is_on())
		return __real_nanosleep(time, left);
	pass((uint64_t)time->tv_sec * 1000000000ull + (uint64_t)time->tv_nsec);
	return 0;
}
