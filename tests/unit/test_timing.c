/* SPDX-License-Identifier: MIT */
/* The timing model of the software controller by a clock that is only a number: rates, latencies and their tail. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "soft/core/timing.h"

#define START 123456789012345ull /* ns; any */
#define DRAWS 200000u
#define TAIL ((struct gnv_soft_model){ .lat_us = 80, .p99_us = 400, .seed = 7 })

static uint64_t drawn(uint64_t *x)
{
	uint64_t z = *x += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static struct gnv_soft_timing made(struct gnv_soft_model model)
{
	struct gnv_soft_timing timing;

	assert_int_equal(gnv_soft_timing_check(&model), 0);
	gnv_soft_timing_init(&timing, &model, START);
	return timing;
}

/* When a read of so many bytes ends. */
static uint64_t due_of(struct gnv_soft_timing *timing, uint64_t now, uint64_t looked, uint32_t bytes, uint64_t drawn)
{
	const struct gnv_soft_op op = { .opc = GPUNVME_IO_READ, .data_len = bytes, .len = bytes };

	return gnv_soft_timing_due(timing, now, looked, &op, drawn);
}

static void expect_about(uint64_t value, uint64_t asked, unsigned per_mille)
{
	if (value * 1000 < asked * (1000 - per_mille) || value * 1000 > asked * (1000 + per_mille))
		fail_msg("%llu instead of about %llu", (unsigned long long)value, (unsigned long long)asked);
}

static void nothing_asked_is_nothing_done(void **state)
{
	(void)state;
	assert_false(made((struct gnv_soft_model){ 0 }).on);
	assert_true(made((struct gnv_soft_model){ .iops = 1 }).on);
	assert_true(made((struct gnv_soft_model){ .bw = 1 }).on);
	assert_true(made((struct gnv_soft_model){ .lat_us = 1 }).on);
}

/* All at once: they end one after the other, at the rate. */
static void commands_have_a_rate(void **state)
{
	static const uint32_t rates[] = { 1, 1000, 333333, 3000000, 77777777 };
	struct gnv_soft_timing timing;
	uint64_t due = 0, last;
	unsigned i, j;

	(void)state;
	for (i = 0; i < 5; i++) {
		timing = made((struct gnv_soft_model){ .iops = rates[i] });
		for (j = 0, last = 0; j < 1000; j++, last = due) {
			due = due_of(&timing, START, START, 4096, 0);
			assert_true(due >= last);
		}
		expect_about(due - START, 1000 * 1000000000ull / rates[i], 5);
	}
}

static void bytes_have_a_rate(void **state)
{
	struct gnv_soft_timing timing = made((struct gnv_soft_model){ .bw = 7000000000u });
	uint64_t due = 0;
	unsigned i;

	(void)state;
	for (i = 0; i < 1000; i++)
		due = due_of(&timing, START, START, 131072, 0);
	expect_about(due - START, 131072ull * 1000 * 10 / 70, 1);
	assert_int_equal(due_of(&timing, START, START, 0, 0), START); /* moves nothing, waits for nothing */
	timing = made((struct gnv_soft_model){ .bw = 1 });
	due = due_of(&timing, START, START, 64, 0);
	assert_int_equal(due, START + 64000000000ull);
}

/* Whichever takes longest decides. */
static void the_slowest_decides(void **state)
{
	struct gnv_soft_timing timing = made((struct gnv_soft_model){ .iops = 100000, .lat_us = 80, .bw = 1000000000 });
	unsigned i;

	(void)state;
	for (i = 1; i <= 8; i++)
		assert_int_equal(due_of(&timing, START, START, 4096, i), START + 80000);
	assert_int_equal(due_of(&timing, START, START, 4096, 0), START + 90000);
	assert_int_equal(due_of(&timing, START, START, 1000000, 0), START + 1036864); /* 9 * 4096 and a million bytes */
}

/* As after a reset. */
static void what_was_to_do_is_forgotten(void **state)
{
	struct gnv_soft_timing timing = made((struct gnv_soft_model){ .iops = 10, .bw = 1000000 });
	unsigned i;

	(void)state;
	for (i = 0; i < 100; i++)
		due_of(&timing, START, START, 1000000, 0);
	assert_false(gnv_soft_timing_is_idle(&timing, START + 1000000000));
	gnv_soft_timing_forget(&timing);
	assert_true(gnv_soft_timing_is_idle(&timing, START));
	assert_int_equal(due_of(&timing, START, START, 1000000, 0), START + 1000000000);
}

/* Idle time is lost, but for what the machine was away; and a drive knows when it is idle. */
static void idle_time_is_not_caught_up(void **state)
{
	struct gnv_soft_timing timing = made((struct gnv_soft_model){ .iops = 1000000 });
	const uint64_t later = START + 1000000000;
	unsigned i;

	(void)state;
	assert_true(gnv_soft_timing_is_idle(&timing, START));
	assert_int_equal(due_of(&timing, START, START, 0, 0), START + 1000);
	assert_false(gnv_soft_timing_is_idle(&timing, START));
	assert_true(gnv_soft_timing_is_idle(&timing, later));
	assert_int_equal(due_of(&timing, later, later - 3000, 0, 0), later); /* it began when nobody looked */
	assert_int_equal(due_of(&timing, later, later - 3000, 0, 0), later);
	assert_int_equal(due_of(&timing, later, later - 3000, 0, 0), later);
	assert_int_equal(due_of(&timing, later, later - 3000, 0, 0), later + 1000);
	for (i = 0; i < 10; i++)
		due_of(&timing, later, later, 0, 0);
	assert_int_equal(due_of(&timing, later, later, 0, 0), later + 12000);
	assert_int_equal(due_of(&timing, START + 2000000000, 0, 0, 0), START + 2000000000); /* nobody looked for long: */
	for (i = 0; i < 999; i++)
		due_of(&timing, START + 2000000000, 0, 0, 0);
	assert_int_equal(due_of(&timing, START + 2000000000, 0, 0, 0), START + 2000001000); /* a thousand are made up for */
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void the_tail_is_as_asked(void **state)
{
	struct gnv_soft_timing timing = made(TAIL);
	uint64_t *took = calloc(DRAWS, sizeof(*took)), x = 1;
	unsigned i;

	(void)state;
	assert_non_null(took);
	for (i = 0; i < DRAWS; i++)
		took[i] = due_of(&timing, START, START, 0, drawn(&x)) - START;
	qsort(took, DRAWS, sizeof(*took), by_size);
	assert_int_equal(took[0], 80000);
	assert_int_equal(took[DRAWS / 10 * 4], 80000);
	expect_about(took[DRAWS / 2], 80000, 10);
	expect_about(took[DRAWS / 100 * 75], 80000 + 320000 * 10 / 56, 20); /* a halving of 5.64 */
	expect_about(took[DRAWS / 100 * 99], 400000, 20);
	expect_about(took[DRAWS / 1000 * 999], 80000 + 320000 * 159 / 100, 50);
	assert_true(took[DRAWS - 1] < 80000 + 320000 * 12);
	free(took);
}

/* The extremes of what can be drawn. */
static void any_draw_is_a_time(void **state)
{
	struct gnv_soft_timing timing = made(TAIL), flat = made((struct gnv_soft_model){ .lat_us = 80 });
	static const uint64_t draws[] = { 0, 1, 2, UINT64_MAX, 1ull << 63, (1ull << 63) - 1, 1ull << 62, (1ull << 62) - 1 };
	uint64_t due;
	unsigned i;

	(void)state;
	for (i = 0; i < 8; i++) {
		due = due_of(&timing, START, START, 0, draws[i]);
		assert_true(due >= START + 80000 && due < START + 80000 + 320000 * 12);
		assert_int_equal(due_of(&flat, START, START, 0, draws[i]), START + 80000);
	}
}

static void expect_refusal(struct gnv_soft_model model, const char *word)
{
	assert_int_equal(gnv_soft_timing_check(&model), -EINVAL);
	if (!strstr(gpunvme_errmsg(), word))
		fail_msg("\"%s\" does not say \"%s\"", gpunvme_errmsg(), word);
}

static void nonsense_is_refused(void **state)
{
	(void)state;
	expect_refusal((struct gnv_soft_model){ .lat_us = 80, .p99_us = 79 }, "Raise it");
	expect_refusal((struct gnv_soft_model){ .p99_us = 79 }, "needs lat_us");
	expect_refusal((struct gnv_soft_model){ .lat_us = 80, .seed = 1 }, "without p99_us");
	made((struct gnv_soft_model){ .lat_us = 80, .p99_us = 80, .seed = 1 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_asked_is_nothing_done), cmocka_unit_test(commands_have_a_rate),
		cmocka_unit_test(bytes_have_a_rate),		 cmocka_unit_test(the_slowest_decides),
		cmocka_unit_test(idle_time_is_not_caught_up),	 cmocka_unit_test(what_was_to_do_is_forgotten),
		cmocka_unit_test(the_tail_is_as_asked),		 cmocka_unit_test(any_draw_is_a_time),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests_name("timing", tests, NULL, NULL);
}
