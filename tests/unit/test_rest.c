/* SPDX-License-Identifier: MIT */
/* How often a thread of the software controller looks at the clock, which on some machines is a device: a mock one counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "soft/engine/threads.h"

static uint64_t now;
static unsigned looks;

uint64_t __wrap_gnv_soft_now(void);
uint64_t __wrap_gnv_soft_now(void)
{
	looks++;
	return now;
}

static struct gnv_soft soft;
static struct gnv_soft_server server = { .soft = &soft };

/* As a thread that has just worked, and finds nothing @turns times. */
static unsigned looks_of(struct gnv_soft_pace *pace, unsigned turns)
{
	looks = 0;
	while (turns--)
		gnv_soft_rest(&server, pace);
	return looks;
}

static void test_spin(void **state)
{
	struct gnv_soft_pace pace = { .deadline = UINT64_MAX, .spins = true };

	(void)state;
	now = 1000000;
	assert_int_equal(looks_of(&pace, 800), 50);
	now += 19000;
	assert_int_equal(looks_of(&pace, 800), 50);
	now += 2000; /* seen at the sixteenth turn; then it gives its CPU away, and looks each time */
	assert_int_equal(looks_of(&pace, 16), 1);
	assert_int_equal(looks_of(&pace, 10), 10);
	assert_false(pace.spins);
}

/* Something is due: it may be at any turn. */
static void test_due(void **state)
{
	struct gnv_soft_pace pace = { .deadline = 2000000, .spins = true };

	(void)state;
	now = 1000000;
	assert_int_equal(looks_of(&pace, 100), 100);
}

/* A thread that sleeps looks at its work once between two sleeps, not sixteen times. */
static void test_sleep(void **state)
{
	struct gnv_soft_pace pace = { .deadline = UINT64_MAX, .idle_since = 1000000 };

	(void)state;
	now = 2000000;
	assert_int_equal(looks_of(&pace, 10), 20); /* before each sleep, and after it */
	assert_int_equal(pace.sleeps, 10);
}

/* Sleeps that take a good part of a CPU become longer, and those of a machine on which they cost nothing do not. */
static void test_cost(void **state)
{
	struct gnv_soft_pace pace = { .deadline = UINT64_MAX, .idle_since = 1, .sleep_us = 1, .max_us = 1 };

	(void)state;
	now = 1000000000000000;
	for (int i = 0; i < 2; i++) {
		looks_of(&pace, 128);
		assert_int_equal(pace.max_us, 1); /* nothing to compare with, then a second for each sleep */
		now += 128000000000;
	}
	looks_of(&pace, 128);
	assert_int_equal(pace.max_us, 1);
	looks_of(&pace, 128); /* no time has passed but that of its CPU */
	assert_int_equal(pace.max_us, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spin),
		cmocka_unit_test(test_due),
		cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests_name("rest", tests, NULL, NULL);
}
