/* SPDX-License-Identifier: MIT */
/*
 * Models of drives by a clock that is only a number: each named drive against what others measured of it, and each part of
 * model=generic by itself.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/closed_loop.h"
#include "common/published.h"

#define START CLOSED_LOOP_START
#define US 1000ull

static struct closed_loop_result run(const struct gnv_soft_model *model, unsigned depth, uint32_t bytes, unsigned writes)
{
	const struct closed_loop load = { .depth = depth, .bytes = bytes, .writes = writes, .count = published_count(bytes) };
	struct closed_loop_result result;

	assert_int_equal(gnv_soft_timing_check(model), 0);
	assert_int_equal(closed_loop_run(model, &load, &result), 0);
	return result;
}

static struct gnv_soft_model named(const char *name)
{
	const struct gnv_soft_named *found = gnv_soft_named_find(name);

	assert_non_null(found);
	return (struct gnv_soft_model){ .link = found->link, .parts = found->parts };
}

/* ---- Named drives ---- */

/* A model that is off by more than it should be is off by what the page says, to one per cent. */
static unsigned judge(const struct published *p, const char *what, double got, double said, double within, double off)
{
	const double error = said > 0 ? (got / said - 1) * 100 : 0;
	const bool good = off != 0 ? fabs(error - off) <= 1 && fabs(off) > within : fabs(error) <= within;

	if (said > 0)
		printf("%s %s, depth %u, %u bytes: %s %.1f, published %.1f: %+.1f %%\n", good ? "      " : "BAD   ", p->model, p->depth, p->bytes,
		       what, got, said, error);
	return !good;
}

static void each_is_as_published(void **state)
{
	struct closed_loop_result got;
	struct gnv_soft_model model;
	const struct published *p;
	unsigned bad = 0;

	(void)state;
	for (p = published; p < published + GNV_ARRAY_LEN(published); p++) {
		model = named(p->model);
		got = run(&model, p->depth, p->bytes, 0);
		bad += judge(p, "IOPS", got.iops, p->iops, PUBLISHED_IOPS, p->off[0]);
		bad += judge(p, "mean us", got.mean_us, p->mean_us, PUBLISHED_MEAN, p->off[1]);
		bad += judge(p, "p99 us", got.p99_us, p->p99_us, PUBLISHED_P99, p->off[2]);
	}
	assert_int_equal(bad, 0);
}

/* A name that is listed is found, and has been held against something. */
static void each_has_a_curve(void **state)
{
	const struct published *p;
	const char *name;
	unsigned i, points;

	(void)state;
	for (i = 0; (name = gnv_soft_named_nth(i)); i++) {
		assert_non_null(gnv_soft_named_find(name));
		for (points = 0, p = published; p < published + GNV_ARRAY_LEN(published); p++)
			points += strcmp(p->model, name) == 0 && p->mean_us > 0;
		assert_true(points >= 2);
	}
	assert_int_equal(i, 4);
	assert_null(gnv_soft_named_find("p3700"));
	assert_null(gnv_soft_named_find(""));
	assert_null(gnv_soft_named_find("generic"));
}

/* More in flight is never slower, and reads end at the link or at the units. */
static void more_in_flight_is_more(void **state)
{
	struct gnv_soft_model model;
	const char *name;
	double last, now;
	unsigned i, depth;

	(void)state;
	for (i = 0; (name = gnv_soft_named_nth(i)); i++) {
		model = named(name);
		for (last = 0, depth = 1; depth <= 256; depth *= 2, last = now) {
			now = run(&model, depth, 4096, 0).iops;
			assert_true(now >= last * 0.995);
		}
		assert_true(last * 4096 <= (double)model.link * 1.001);
	}
}

/* Sustained writes have the rate of the drain, whatever the depth. */
static void writes_have_the_rate_of_the_drain(void **state)
{
	struct gnv_soft_model model;
	const char *name;
	unsigned i;

	(void)state;
	for (i = 0; (name = gnv_soft_named_nth(i)); i++) {
		model = named(name);
		assert_true(run(&model, 256, 65536, 100).iops * 65536 <= (double)model.parts.drain * 1.03);
		assert_true(run(&model, 256, 65536, 100).iops * 65536 >= (double)model.parts.drain * 0.97);
	}
}

/* ---- The parts ---- */

#define GENERIC(...) ((struct gnv_soft_model){ .parts = { .units = 4, .page = 4096, .read_ns = 100 * US, __VA_ARGS__ } })

static struct gnv_soft_timing *made(struct gnv_soft_model model)
{
	struct gnv_soft_timing *timing = malloc(sizeof(*timing));

	assert_non_null(timing);
	assert_int_equal(gnv_soft_timing_check(&model), 0);
	gnv_soft_timing_init(timing, &model, START);
	return timing;
}

static uint64_t due(struct gnv_soft_timing *timing, uint8_t opc, uint64_t offset, uint32_t bytes)
{
	const struct gnv_soft_op op = { .opc = opc, .data_len = bytes, .len = bytes, .offset = offset };

	return gnv_soft_timing_due(timing, START, START, &op, UINT64_MAX) - START;
}

static void a_unit_has_one_page_at_a_time(void **state)
{
	struct gnv_soft_timing *t = made(GENERIC(0));
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++) /* neighbours are in different units */
		assert_int_equal(due(t, GPUNVME_IO_READ, i * 4096, 4096), 100 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 512), 200 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 2048, 512), 300 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 4 * 4096), 400 * US); /* one of the four has three */
	assert_int_equal(due(t, GPUNVME_IO_FLUSH, 0, 0), 0);
	free(t);
}

/* A command that is larger than all units takes each of them several times. */
static void a_large_command_goes_around(void **state)
{
	struct gnv_soft_timing *t = made(GENERIC(0));

	(void)state;
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 9 * 4096), 300 * US);
	gnv_soft_timing_forget(t);
	assert_int_equal(due(t, GPUNVME_IO_READ, 2048, 4096), 100 * US); /* two pages, two units */
	gnv_soft_timing_forget(t);
	assert_int_equal(due(t, GPUNVME_IO_COMPARE, 0, 1u << 28), 100 * US * (1u << 28) / 4096 / 4);
	free(t);
}

static void the_firmware_is_first_and_the_rest_is_added(void **state)
{
	struct gnv_soft_timing *t = made(GENERIC(.fw_ns = 2 * US, .fixed_ns = 5 * US));

	(void)state;
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 4096), 107 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 4096, 4096), 109 * US);
	assert_int_equal(due(t, GPUNVME_IO_DSM, 0, 16), 11 * US); /* moves no data of the drive */
	free(t);
}

static void channels_are_shared(void **state)
{
	struct gnv_soft_timing *t = made(GENERIC(.channels = 1, .channel_bw = 4096000000));

	(void)state;
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 4096), 101 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 4096, 4096), 101 * US); /* the channel is free meanwhile */
	free(t);
	t = made(GENERIC(.channels = 1, .channel_bw = 40960000));
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 4096), 200 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 4096, 4096), 200 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 8192, 4096), 300 * US);
	free(t);
}

/* Writes are as fast as the buffer until that is full. */
static void a_full_buffer_drains(void **state)
{
	struct gnv_soft_timing *t = made(GENERIC(.write_ns = 10 * US, .buffer = 1 << 20, .drain = 1 << 30));
	unsigned i;

	(void)state;
	for (i = 0; i < 10; i++)
		assert_int_equal(due(t, GPUNVME_IO_WRITE, 0, 1 << 16), 10 * US);
	for (; i < 32; i++)
		due(t, GPUNVME_IO_WRITE, 0, 1 << 16);
	assert_in_range(due(t, GPUNVME_IO_WRITE, 0, 1 << 16), 1037000, 1038000); /* 33 of 64 KiB, less 1 MiB, at 1 GiB/s */
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 4096), 100 * US);		 /* reads do not wait for it */
	free(t);
}

static void programs_keep_units_busy(void **state)
{
	struct gnv_soft_timing *t = made(GENERIC(.write_ns = 10 * US, .program_ns = 500 * US));

	(void)state;
	assert_int_equal(due(t, GPUNVME_IO_WRITE, 0, 4096), 10 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 4096), 600 * US);
	assert_int_equal(due(t, GPUNVME_IO_READ, 4096, 4096), 100 * US);
	free(t);
}

/* Each direction has a clock of its own; the link goes with every model, and by itself. */
static void the_link_has_two_directions(void **state)
{
	struct gnv_soft_timing *t = made((struct gnv_soft_model){ .link = 4096000000 });
	unsigned i;

	(void)state;
	assert_true(t->on);
	for (i = 1; i <= 10; i++) {
		assert_int_equal(due(t, GPUNVME_IO_READ, 0, 4096), i * US);
		assert_int_equal(due(t, GPUNVME_IO_WRITE, 0, 4096), i * US);
	}
	assert_int_equal(due(t, GPUNVME_IO_COMPARE, 0, 4096), 11 * US); /* its data comes from the host */
	assert_int_equal(due(t, GPUNVME_IO_FLUSH, 0, 0), 0);
	assert_false(gnv_soft_timing_is_idle(t, START));
	gnv_soft_timing_forget(t);
	assert_true(gnv_soft_timing_is_idle(t, START));
	free(t);
	t = made((struct gnv_soft_model){ .link = 4096000000, .lat_us = 50 });
	assert_int_equal(due(t, GPUNVME_IO_READ, 0, 4096), 51 * US);
	free(t);
}

/* A thread that was away makes up for rates, and never for what a command takes by itself. */
static void nothing_ends_before_its_own_time(void **state)
{
	struct gnv_soft_timing *t = made(GENERIC(.fixed_ns = 5 * US));
	const struct gnv_soft_op op = { .opc = GPUNVME_IO_READ, .data_len = 4096, .len = 4096 };
	const uint64_t now = START + 10000 * US;
	unsigned i;

	(void)state;
	for (i = 0; i < 9; i++) /* nine in one unit, of which the first came 900 us ago */
		assert_int_equal(gnv_soft_timing_due(t, now, now - 900 * US, &op, UINT64_MAX), now + 105 * US);
	assert_int_equal(gnv_soft_timing_due(t, now, now - 900 * US, &op, UINT64_MAX), now + 105 * US);
	assert_int_equal(gnv_soft_timing_due(t, now, now - 900 * US, &op, UINT64_MAX), now + 205 * US);
	free(t);
}

/* The largest that a URI can ask for. */
static void clocks_do_not_wrap(void **state)
{
	struct gnv_soft_timing *t = made((struct gnv_soft_model){
		.parts = { .units = 1, .page = 512, .read_ns = 1000000000, .read_p99_ns = 1000000000 } });
	uint64_t last = 0, now;
	unsigned i;

	(void)state;
	for (i = 0; i < 10000; i++, last = now) {
		now = due(t, GPUNVME_IO_READ, 0, 1u << 28);
		assert_true(now >= last);
	}
	free(t);
}

/* A drive whose units differ only by the address serves all of them alike. */
static void addresses_go_to_all_units(void **state)
{
	struct gnv_soft_model model = { .parts = { .units = 4096, .page = 4096, .read_ns = 40 * US } };

	(void)state;
	assert_in_range((uint64_t)run(&model, 1024, 4096, 0).iops, 20000000, 25600000);
}

static void expect_refusal(struct gnv_soft_model model, const char *word)
{
	assert_int_equal(gnv_soft_timing_check(&model), -EINVAL);
	if (!strstr(gpunvme_errmsg(), word))
		fail_msg("\"%s\" does not say \"%s\"", gpunvme_errmsg(), word);
}

static void contradictions_are_refused(void **state)
{
	struct gnv_soft_model model = GENERIC(0);

	(void)state;
	model.iops = 1;
	expect_refusal(model, "iops= contradicts model=");
	model = GENERIC(0);
	model.bw = 1;
	expect_refusal(model, "bw= contradicts");
	model = GENERIC(0);
	model.lat_us = 1;
	expect_refusal(model, "lat_us= contradicts");
	expect_refusal(GENERIC(.read_p99_ns = 99), "read_p99_us=");
	expect_refusal(GENERIC(.channels = 1), "channel_bw=");
	expect_refusal(GENERIC(.channel_bw = 1), "channels=");
	expect_refusal(GENERIC(.buffer = 1), "drain=");
	expect_refusal(GENERIC(.drain = 1), "buffer=");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_is_as_published),
		cmocka_unit_test(each_has_a_curve),
		cmocka_unit_test(more_in_flight_is_more),
		cmocka_unit_test(writes_have_the_rate_of_the_drain),
		cmocka_unit_test(a_unit_has_one_page_at_a_time),
		cmocka_unit_test(a_large_command_goes_around),
		cmocka_unit_test(the_firmware_is_first_and_the_rest_is_added),
		cmocka_unit_test(channels_are_shared),
		cmocka_unit_test(a_full_buffer_drains),
		cmocka_unit_test(programs_keep_units_busy),
		cmocka_unit_test(the_link_has_two_directions),
		cmocka_unit_test(nothing_ends_before_its_own_time),
		cmocka_unit_test(clocks_do_not_wrap),
		cmocka_unit_test(addresses_go_to_all_units),
		cmocka_unit_test(contradictions_are_refused),
	};

	return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
