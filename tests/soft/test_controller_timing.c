/* SPDX-License-Identifier: MIT */
/*
 * The timing model at work: no command ends before its time, rates and latencies are within 5 % of what was asked, and a machine
 * that is too slow for them is reported in the log. A machine that does other things meanwhile is late, so the best of all counts;
 * what a quiet machine makes of medians and tails is printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/image.h"
#include "common/rawhost.h"
#include "soft/engine/threads.h"
#include "vdrive/vdrive.h"

#define TURNS 60u
#define MOST 4000u /* commands of a turn */
#define ENTRIES 64u
#define MOST_AWAY 1300000u /* ns: what the model makes up for, and a command */

static uint32_t complaints; /* atomic */
static uint64_t began[65536], took[MOST];

static bool on_vram(void)
{
	return getenv("GPUNVME_TEST_VRAM");
}

static void on_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	if (level == GPUNVME_LOG_WARN && strstr(text, "is too slow for the configured times"))
		__atomic_fetch_add(&complaints, 1, __ATOMIC_RELAXED);
}

static void start(struct gnv_soft_model model, const char *path, struct gnv_log *log)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	c.path = path;
	c.model = model;
	if (on_vram()) {
		c.path = "vram:8M";
		c.engine = &gnv_vdrive_engine;
	}
	complaints = 0;
	log->fn = on_log;
	assert_int_equal(rawhost_open(&host, &c), 0);
	host.soft->log = log;
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, ENTRIES, ENTRIES), 0);
}

/* So many reads, so many of them in flight, of so many blocks. Return: nanoseconds; each one's in `took`. */
static uint64_t run(unsigned count, unsigned depth, unsigned blocks)
{
	const struct gpunvme_sqe read = rawhost_rw(&host, GPUNVME_IO_READ, 0, blocks, 0);
	const uint64_t since = gnv_soft_now();
	struct gpunvme_cqe cqe;
	unsigned i, sent = 0;

	for (i = 0; i < count; i++) {
		for (; sent < count && sent - i < depth; sent++) {
			began[host.io.next_cid] = gnv_soft_now();
			rawhost_submit(&host, &host.io, &read);
		}
		assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
		assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, 0);
		took[i] = gnv_soft_now() - began[cqe.cid];
	}
	return gnv_soft_now() - since;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t quantile(unsigned count, unsigned percent)
{
	qsort(took, count, sizeof(took[0]), by_size);
	return took[count * percent / 100];
}

/* Never less than asked, but for what a rate may make up for a thread that was away; and not more in the best of turns. */
static void expect(const char *what, uint64_t asked, uint64_t credit, uint64_t (*measure)(void))
{
	uint64_t best = UINT64_MAX, got;
	unsigned i;

	for (i = 0; i < TURNS && best > asked * 105 / 100; i++) {
		got = measure();
		assert_true(got + credit >= asked);
		if (got < best)
			best = got;
	}
	printf("figure: %s: %.1f us asked, %.1f us measured (%+.1f %%), turn %u\n", what, (double)asked / 1e3, (double)best / 1e3,
	       ((double)best / (double)asked - 1) * 100, i);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* whose runtime takes the time */
	assert_true(best <= asked * 105 / 100);
#endif
}

static uint64_t shortest_alone(void)
{
	run(30, 1, 8);
	return quantile(30, 0);
}

static uint64_t shortest_of_many(void)
{
	run(400, 16, 8);
	return quantile(400, 0);
}

static uint64_t hundred(void)
{
	return run(100, 60, 8);
}

static void latency_is_as_asked(void **state)
{
	struct gnv_log log = { 0 };

	(void)state;
	start((struct gnv_soft_model){ .lat_us = 1000 }, "ram:8M", &log);
	expect("latency, one command at a time", 1000000, 0, shortest_alone);
	printf("figure: its median: %.1f us\n", (double)quantile(30, 50) / 1e3);
	expect("latency, 16 at a time", 1000000, 0, shortest_of_many);
	printf("figure: its median: %.1f us\n", (double)quantile(400, 50) / 1e3);
	rawhost_close(&host);
}

static void tail_is_as_asked(void **state)
{
	struct gnv_log log = { 0 };
	uint64_t least, median, tail;

	(void)state;
	start((struct gnv_soft_model){ .lat_us = 100, .p99_us = 1000, .seed = 3 }, "ram:8M", &log);
	run(3000, 16, 8);
	least = quantile(3000, 0);
	median = quantile(3000, 50);
	tail = quantile(3000, 99);
	printf("figure: of 100 us with 1 in 100 above 1000 us: median %.1f us, 99 of 100 %.1f us\n", (double)median / 1e3, (double)tail / 1e3);
	assert_true(least >= 100000);
	assert_true(quantile(3000, 45) >= 100000);
	assert_true(tail >= 800000); /* of 30 commands above it */
	rawhost_close(&host);
}

static void rates_are_as_asked(void **state)
{
	struct gnv_log log = { 0 };

	(void)state;
	start((struct gnv_soft_model){ .iops = 5000, .lat_us = 50 }, "ram:8M", &log);
	expect("100 commands at 5,000 a second", 20000000, MOST_AWAY, hundred);
	rawhost_close(&host);
	start((struct gnv_soft_model){ .bw = 20000000 }, "ram:8M", &log);
	expect("100 commands of 4 KiB at 20 MB/s", 20480000, MOST_AWAY, hundred);
	rawhost_close(&host);
}

static uint64_t shortest_of_few(void)
{
	run(10, 1, 8);
	return quantile(10, 0);
}

static void files_have_it_too(void **state)
{
	struct gnv_log log = { 0 };

	(void)state;
	start((struct gnv_soft_model){ .lat_us = 2000 }, NULL, &log);
	expect("latency on a file", 2000000, 0, shortest_of_few);
	rawhost_close(&host);
}

/* Times that no machine can keep are reported, once. */
static void a_slow_machine_says_so(void **state)
{
	struct gnv_log log = { 0 };
	unsigned i;

	(void)state;
	start((struct gnv_soft_model){ .iops = 1000000000 }, "ram:8M", &log);
	for (i = 0; i < 10000 && !__atomic_load_n(&complaints, __ATOMIC_RELAXED); i++)
		run(MOST, 60, 16);
	run(MOST, 60, 16);
	rawhost_close(&host);
	assert_int_equal(complaints, 1);
}

/* Commands that wait for their time can be aborted, go with their queue, and do not keep a reset waiting. */
static void waiting_commands_let_go(void **state)
{
	struct gpunvme_sqe read = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0), abort = { .opc = GPUNVME_ADMIN_ABORT };
	struct gpunvme_sqe delete = { .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = 1 };
	struct gnv_log log = { 0 };
	struct gpunvme_cqe cqe;
	uint16_t cid[5];
	unsigned i, seen = 0;

	(void)state;
	start((struct gnv_soft_model){ .lat_us = 10000000 }, "ram:8M", &log);
	read = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	for (i = 0; i < 5; i++)
		cid[i] = rawhost_submit(&host, &host.io, &read);
	assert_false(rawhost_reap(&host, &host.io, &cqe, 100, true));
	abort.cdw10 = 1 | (uint32_t)cid[2] << 16;
	assert_int_equal(rawhost_admin(&abort, &cqe), 0);
	assert_int_equal(cqe.dw0 & 1, 0);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, cid[2]);
	assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, GPUNVME_SC_ABORT_REQUESTED);
	assert_int_equal(rawhost_admin(&delete, NULL), 0);
	for (i = 0; i < 4; i++) {
		assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
		assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, 0); /* their data was there */
		seen |= 1u << (cqe.cid - cid[0]);
	}
	assert_int_equal(seen, 0x1b);
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, ENTRIES, ENTRIES), 0);
	rawhost_submit(&host, &host.io, &read);
	assert_false(rawhost_reap(&host, &host.io, &cqe, 50, true));
	assert_true(rawhost_disable(&host));
	rawhost_close(&host);
}

/* What a drive had not begun when it was reset it does not do any more. */
static void a_reset_forgets_what_was_to_do(void **state)
{
	struct gnv_log log = { 0 };
	struct gpunvme_sqe read;
	struct gpunvme_cqe cqe;
	uint64_t since;
	unsigned i;

	(void)state;
	start((struct gnv_soft_model){ .iops = 1 }, "ram:8M", &log);
	read = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	for (i = 0; i < ENTRIES - 1; i++)
		rawhost_put(&host.io, &read);
	rawhost_ring_sq(&host, &host.io, host.io.tail);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, ENTRIES, ENTRIES), 0);
	since = gnv_soft_now();
	rawhost_submit(&host, &host.io, &read);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_true(gnv_soft_now() - since < 40000000000u); /* it takes one second, after the others it would be sixty */
	rawhost_close(&host);
}

/* Threads that run the kernel for GPUs sleep, so they keep no latency: what they say of that, and what a reset leaves. */
static int run_on_vram(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_machine_says_so),
		cmocka_unit_test(waiting_commands_let_go),
		cmocka_unit_test(a_reset_forgets_what_was_to_do),
	};

	return cmocka_run_group_tests_name("controller_timing_vram", tests, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(latency_is_as_asked),	  cmocka_unit_test(tail_is_as_asked),
		cmocka_unit_test(rates_are_as_asked),	  cmocka_unit_test(files_have_it_too),
		cmocka_unit_test(a_slow_machine_says_so), cmocka_unit_test(waiting_commands_let_go),
		cmocka_unit_test(a_reset_forgets_what_was_to_do),
	};

	return on_vram() ? run_on_vram() : cmocka_run_group_tests_name("controller_timing", tests, NULL, NULL);
}
