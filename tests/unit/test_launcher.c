/* SPDX-License-Identifier: MIT */
/* The thread that launches the kernel of a drive, over a processor that only counts: how many launches, what ends it, what cannot. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/wait.h"
#include "vdrive/launcher.h"

#define TEAMS 3u
#define SLICE_NS 100000u
#define VD 0x10000u /* an address of the processor, at which the host has nothing */

static struct {
	struct gnv_vd_exec exec;
	struct gnv_vd_exec_ops ops;
	struct gnv_log log;
	struct gnv_vd_launcher launcher;
	struct gnv_vd_args args;
	pthread_mutex_t driver; /* a launch waits here for a kernel of the program */
	uint64_t ended; /* atomic, as the next six */
	uint32_t tries, launches, looks, lines, peeks;
	int fails; /* what launches return */
	const char *says; /* part of each line in the log */
} it;

static int count_launch(struct gnv_vd_exec *exec)
{
	const int ret = __atomic_load_n(&it.fails, __ATOMIC_ACQUIRE);

	assert_ptr_equal(exec, &it.exec);
	__atomic_fetch_add(&it.tries, 1, __ATOMIC_RELEASE);
	pthread_mutex_lock(&it.driver);
	pthread_mutex_unlock(&it.driver);
	__atomic_fetch_add(&it.launches, !ret, __ATOMIC_RELEASE);
	return ret ? gnv_fail(ret, "no launch today") : 0;
}

static void look(void *ctx)
{
	assert_ptr_equal(ctx, &it);
	__atomic_fetch_add(&it.looks, 1, __ATOMIC_RELEASE);
}

static int peek(struct gnv_vd_exec *exec, void *to, uint64_t at, size_t len)
{
	const uint64_t ended = __atomic_load_n(&it.ended, __ATOMIC_ACQUIRE);

	(void)exec;
	__atomic_fetch_add(&it.peeks, 1, __ATOMIC_RELEASE);
	assert_int_equal(at, VD + offsetof(struct gnv_vd, ended));
	assert_int_equal(len, sizeof(ended));
	memcpy(to, &ended, sizeof(ended));
	return 0;
}

static void count_line(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	assert_int_equal(level, GPUNVME_LOG_ERROR);
	assert_non_null(strstr(text, it.says));
	__atomic_fetch_add(&it.lines, 1, __ATOMIC_RELEASE);
}

static int begin(void **state)
{
	const struct gnv_vd_wish wish = { .before_launch = look, .ctx = &it };

	(void)state;
	memset(&it, 0, sizeof(it));
	pthread_mutex_init(&it.driver, NULL);
	it.ops.peek = peek;
	it.exec.ops = &it.ops;
	it.log.fn = count_line;
	it.says = "stands still: no launch today";
	it.args = (struct gnv_vd_args){ .vd = VD, .slice_ns = SLICE_NS };
	it.launcher = gnv_vd_launcher_of(&it.exec, &wish, &it.log, TEAMS);
	return 0;
}

static void start(void)
{
	assert_int_equal(gnv_vd_launcher_start(&it.launcher, count_launch, &it.args), 0);
}

static uint32_t value_of(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Two launches ahead of the teams that have ended, and no third before all teams of one have. */
static void two_ahead(void **state)
{
	uint32_t done;

	(void)state;
	start();
	wait_until(value_of(&it.launches) == GNV_VD_AHEAD);
	__atomic_store_n(&it.ended, TEAMS - 1, __ATOMIC_RELEASE);
	assert_true(gnv_vd_launcher_is_queued(&it.launcher));
	done = value_of(&it.peeks) + 2;
	wait_until(value_of(&it.peeks) >= done); /* the thread has seen it */
	assert_int_equal(value_of(&it.launches), GNV_VD_AHEAD);
	for (done = 1; done <= 5; done++) {
		__atomic_store_n(&it.ended, done * TEAMS, __ATOMIC_RELEASE);
		wait_until(value_of(&it.launches) == done + GNV_VD_AHEAD);
	}
	assert_true(gnv_vd_launcher_stop(&it.launcher, 60000));
	assert_int_equal(it.launches, 5 + GNV_VD_AHEAD);
	assert_int_equal(it.looks, it.launches);
	assert_int_equal(it.lines, 0);
	it.ended = it.launches * TEAMS;
	assert_false(gnv_vd_launcher_is_queued(&it.launcher));
}

/* The driver may wait in a launch for a kernel that never ends. So stop() returns, and a later one succeeds. */
static void a_launch_that_waits(void **state)
{
	(void)state;
	it.says = "does not return from a launch";
	pthread_mutex_lock(&it.driver);
	start();
	wait_until(value_of(&it.tries) == 1);
	assert_false(gnv_vd_launcher_stop(&it.launcher, 1));
	assert_false(gnv_vd_launcher_stop(&it.launcher, 1));
	pthread_mutex_unlock(&it.driver);
	assert_true(gnv_vd_launcher_stop(&it.launcher, 60000));
	assert_true(gnv_vd_launcher_stop(&it.launcher, 0));
	assert_int_equal(it.launches, 1);
	assert_int_equal(it.looks, 1);
	assert_int_equal(it.lines, 2); /* of stop() */
}

static void an_error_that_passes(void **state)
{
	(void)state;
	it.fails = -ENOMEM;
	start();
	wait_until(value_of(&it.tries) >= 3);
	__atomic_store_n(&it.fails, 0, __ATOMIC_RELEASE);
	wait_until(value_of(&it.launches) == GNV_VD_AHEAD);
	assert_true(gnv_vd_launcher_stop(&it.launcher, 60000));
	assert_int_equal(it.lines, 1);
}

static void the_end_of_the_processor(void **state)
{
	(void)state;
	it.fails = -ENOTRECOVERABLE;
	start();
	wait_until(__atomic_load_n(&it.launcher.over, __ATOMIC_ACQUIRE));
	assert_true(gnv_vd_launcher_stop(&it.launcher, 60000));
	assert_int_equal(it.tries, 1);
	assert_int_equal(it.lines, 1);
}

/* The counter of ends is memory that other kernels can write to. */
static void an_impossible_count(void **state)
{
	(void)state;
	it.says = "stands still: its kernel has counted 18446744073709551615 ends of 6: another kernel has overwritten its memory";
	start();
	wait_until(value_of(&it.launches) == GNV_VD_AHEAD);
	__atomic_store_n(&it.ended, UINT64_MAX, __ATOMIC_RELEASE);
	wait_until(__atomic_load_n(&it.launcher.over, __ATOMIC_ACQUIRE));
	assert_true(gnv_vd_launcher_stop(&it.launcher, 60000));
	assert_int_equal(it.launches, GNV_VD_AHEAD);
	assert_int_equal(it.lines, 1);
}

static void never_started(void **state)
{
	(void)state;
	assert_false(gnv_vd_launcher_is_queued(&it.launcher));
	assert_true(gnv_vd_launcher_stop(&it.launcher, 0));
}

#define ONE(test) cmocka_unit_test_setup(test, begin)

int main(void)
{
	const struct CMUnitTest tests[] = { ONE(two_ahead), ONE(a_launch_that_waits), ONE(an_error_that_passes),
					    ONE(the_end_of_the_processor), ONE(an_impossible_count), ONE(never_started) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
