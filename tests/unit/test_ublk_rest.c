/* SPDX-License-Identifier: MIT */
/* When the thread of a ublk queue sleeps, and how often it looks at the clock for that: a mock one counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "ublk/ublk.h"

#define IDLE 250000u

static uint64_t now;
static unsigned looks;

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	(void)id;
	looks++;
	t->tv_sec = (time_t)(now / 1000000000u);
	t->tv_nsec = (long)(now % 1000000000u);
	return 0;
}

/* A reply, and a request so much later: with one at a time, the thread being asleep. */
static void one(struct gnv_ublk_worker *l, uint64_t later)
{
	now += 50000;
	gnv_ublk_rest(l, false, true);
	assert_int_equal(gnv_ublk_rest(l, false, false), IDLE);
	now += later;
	l->ready = 1;
	assert_int_equal(gnv_ublk_rest(l, true, false), 0);
	l->ready = 0;
}

static void test_sleeps(void **state)
{
	struct gnv_ublk_worker l = { 0 };

	(void)state;
	now = 1000000000;
	for (unsigned i = 0; i < 10; i++)
		one(&l, 250000); /* it would be awake in vain each time */
	looks = 0;
	assert_int_equal(gnv_ublk_rest(&l, false, false), IDLE);
	assert_int_equal(looks, 0);
}

static void test_stays_awake(void **state)
{
	struct gnv_ublk_worker l = { 0 };
	unsigned i;

	(void)state;
	now = 1000000000;
	one(&l, 60000);
	now += 10000;
	assert_int_equal(gnv_ublk_rest(&l, false, true), 0); /* completed */
	looks = 0;
	for (i = 0; i < 160; i++)
		assert_int_equal(gnv_ublk_rest(&l, false, false), 0);
	assert_int_equal(looks, 10);
	now += 90000; /* found by looking: the next is looked for as well */
	assert_int_equal(gnv_ublk_rest(&l, true, false), 0);
	assert_int_equal(gnv_ublk_rest(&l, false, true), 0);
	now += 120000; /* none has come: it sleeps, and a late one does not keep it awake */
	for (i = 0; i < 16 && !gnv_ublk_rest(&l, false, false);)
		i++;
	assert_in_range(i, 0, 15);
	now += 1000000;
	gnv_ublk_rest(&l, true, false);
	gnv_ublk_rest(&l, false, true);
	assert_int_equal(gnv_ublk_rest(&l, false, false), IDLE);
}

/* While the controller has a command; long after anything has come back it naps. */
static void test_spins(void **state)
{
	struct gnv_ublk_worker l = { .sent = 1 };

	(void)state;
	now = 1000000000;
	gnv_ublk_rest(&l, false, true);
	now += 900000;
	assert_int_equal(gnv_ublk_rest(&l, false, false), 0);
	now += 200000;
	assert_in_range(gnv_ublk_rest(&l, false, false), 1, IDLE - 1);
	l.sent = 2; /* a request in parallel with a command that takes long may take short */
	assert_int_equal(gnv_ublk_rest(&l, true, false), 0);
	now += 900000;
	assert_int_equal(gnv_ublk_rest(&l, false, false), 0);
	now += 200000;
	assert_in_range(gnv_ublk_rest(&l, false, false), 1, IDLE - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sleeps),
		cmocka_unit_test(test_stays_awake),
		cmocka_unit_test(test_spins),
	};

	return cmocka_run_group_tests_name("ublk_rest", tests, NULL, NULL);
}
