/* SPDX-License-Identifier: MIT */
/*
 * What the drainer counts, compared with counts of the test's own. Built twice: with GPUNVME_COUNTERS 0 the same runs must leave all
 * of it untouched.
 */
#include "rig.h"

#define ON (GPUNVME_COUNTERS != 0)
#define COMMANDS 2000u /* of each thread */
#define HELD 5u

/* A third of the commands fail. */
static uint16_t third(uint64_t stamp)
{
	return stamp % 3 ? 0 : GPUNVME_SC_LBA_RANGE;
}

/* The shortest time of a bucket, as dq.h has it. */
static uint64_t bucket_start(uint32_t i)
{
	return i < 8 ? i : (uint64_t)(8 + i % 8) << (i / 8 - 1);
}

static uint64_t timed(const struct rig *r)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < GPUNVME_LATENCY_BUCKETS; i++)
		sum += r->buckets[i];
	return sum;
}

/* The place of the n-th shortest time. */
static uint32_t nth(const struct rig *r, uint64_t n)
{
	uint32_t i;

	for (i = 0; r->buckets[i] <= n; n -= r->buckets[i++])
		;
	return i;
}

static uint64_t fetched(struct rig *r)
{
	return __atomic_load_n(&r->ctrl.fetched, __ATOMIC_RELAXED);
}

static struct rig *counting(unsigned sq_shift)
{
	struct rig *r = rig_new(sq_shift, 0);

	r->dq.flags |= GPUNVME_DQ_LATENCY;
	r->ctrl.opts.status = third;
	return r;
}

struct lanes {
	struct rig *rig;
	uint64_t failed;
};

static void read_many(void *arg)
{
	struct lanes *l = arg;
	uint64_t i, failed = 0;

	for (i = 0; i < COMMANDS; i++)
		failed += gpunvme_read(&l->rig->dq, &l->rig->dbuf, 0, (uint64_t)(gpunvme_thread_id() * COMMANDS + i) * 512, 512) != 0;
	__atomic_fetch_add(&l->failed, failed, __ATOMIC_RELAXED);
}

static void count_with(uint32_t lanes, uint32_t width, uint32_t window)
{
	struct lanes l = { counting(4), 0 };
	uint64_t all = (uint64_t)lanes * COMMANDS;

	l.rig->ctrl.opts.window = window;
	rig_start(l.rig);
	assert_int_equal(gpunvme_cpu_launch(lanes, width, read_many, &l), 0);
	assert_int_equal(l.failed, (all + 2) / 3);
	assert_int_equal(fetched(l.rig), all);
	assert_int_equal(l.rig->state->completions, ON * all);
	assert_int_equal(l.rig->state->errors, ON * l.failed);
	assert_int_equal(timed(l.rig), ON * all);
	assert_in_range(l.rig->state->doorbells, ON, ON * all);
	assert_true(ON ? l.rig->state->drains > 0 : !l.rig->state->drains);
	rig_end(l.rig, true);
}

static void every_command_is_counted_once(void **state)
{
	(void)state;
	count_with(1, 1, 0);
	count_with(3, 1, 8);
	count_with(8, 4, 8);
}

static void a_lane_alone_rings_for_each_command(void **state)
{
	struct lanes l = { counting(4), 0 };

	(void)state;
	rig_start(l.rig);
	assert_int_equal(gpunvme_cpu_launch(1, 1, read_many, &l), 0);
	assert_int_equal(l.rig->state->doorbells, ON * COMMANDS);
	rig_end(l.rig, true);
}

static void detached_commands_are_counted(void **state)
{
	struct rig *r = counting(4);
	uint32_t i;

	(void)state;
	rig_start(r);
	for (i = 0; i < 100; i++)
		while (gpunvme_submit_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512, NULL))
			;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 512, 512), 0);
	while (rig_free_cids(r) < r->dq.cids)
		(void)gpunvme_read(&r->dq, &r->dbuf, 0, 512, 512);
	assert_int_equal(r->state->detached_errors, 34);
	assert_int_equal(r->state->errors, ON * 34);
	assert_int_equal(timed(r), ON * fetched(r));
	rig_end(r, true);
}

/* Without the flags nothing is counted, and nothing after the results is touched: most queues end there. */
static void nothing_is_kept_that_nobody_asked_for(void **state)
{
	struct lanes l = { counting(4), 0 };
	uint32_t i;

	(void)state;
	memset(l.rig->result + l.rig->dq.cids, 0xff, 8 * (l.rig->dq.cids + GPUNVME_LATENCY_BUCKETS));
	l.rig->dq.flags &= ~(uint32_t)(GPUNVME_DQ_STATS | GPUNVME_DQ_LATENCY);
	rig_start(l.rig);
	assert_int_equal(gpunvme_cpu_launch(2, 1, read_many, &l), 0);
	for (i = 0; i < l.rig->dq.cids + GPUNVME_LATENCY_BUCKETS; i++)
		assert_true(l.rig->result[l.rig->dq.cids + i] == ~0ull);
	assert_int_equal(l.rig->state->completions + l.rig->state->errors + l.rig->state->drains + l.rig->state->doorbells, 0);
	rig_end(l.rig, true);
}

/* ---- Times ---- */

static enum mini_fate hold_first(uint64_t stamp)
{
	return stamp < HELD ? MINI_HOLD : MINI_COMPLETE;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * The thread times its own calls. Each command's time is within its call's, so the n-th shortest of one is at most the n-th
 * shortest of the other; and those that the controller held back took at least that long.
 */
static void times_are_within_the_callers(void **state)
{
	enum { QUICK = 500, ALL = QUICK + HELD };
	struct gpunvme_req req[HELD];
	struct rig *r = counting(4);
	uint64_t took[ALL], start = gnvd_clock(), held_ns;
	uint32_t i, counted;

	(void)state;
	r->ctrl.opts.status = NULL;
	r->ctrl.opts.fate = hold_first;
	rig_start(r);
	for (i = 0; i < HELD; i++)
		assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512, &req[i]), 0);
	held_ns = gnvd_clock();
	RIG_NAP_US(20000);
	held_ns = gnvd_clock() - held_ns;
	mini_release(&r->ctrl);
	for (i = 0; i < HELD; i++) {
		assert_int_equal(gpunvme_wait(&r->dq, &req[i], 0), 0);
		took[i] = gnvd_clock() - start;
	}
	for (i = HELD; i < ALL; i++) {
		start = gnvd_clock();
		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512), 0);
		took[i] = gnvd_clock() - start;
	}
	qsort(took, ALL, sizeof(*took), by_size);
	counted = (uint32_t)timed(r);
	assert_int_equal(counted, ON * ALL);
	for (i = 0; i < counted; i++)
		assert_true(bucket_start(nth(r, i)) <= took[i]);
	for (i = ALL - HELD; i < counted; i++)
		assert_true(bucket_start(nth(r, i) + 1) > held_ns);
	rig_end(r, true);
}

static void buckets_are_an_eighth_wide(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < GPUNVME_LATENCY_BUCKETS; i++) {
		uint64_t last = i + 1 < GPUNVME_LATENCY_BUCKETS ? bucket_start(i + 1) - 1 : ~0ull;

		assert_int_equal(gnvd_bucket(bucket_start(i)), i);
		assert_int_equal(gnvd_bucket(last), i);
		assert_true(last - bucket_start(i) <= bucket_start(i) / 8);
	}
}

/* The drainer may run on a clock that is slightly slower than the submitter's. */
static void a_clock_that_is_behind_counts_as_no_time(void **state)
{
	struct rig *r = counting(4);
	struct gpunvme_req req;

	(void)state;
	rig_start(r);
	assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, 512, 512, &req), 0);
	if (ON)
		__atomic_store_n(&r->result[r->dq.cids + req.cid], gnvd_clock() + rig_ms(1000000), __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	assert_int_equal(r->buckets[0], ON);
	assert_int_equal(timed(r), ON);
	rig_end(r, true);
}

/* Of two completions of one command, one is wrong, and only one is counted. */
static void a_time_is_counted_once(void **state)
{
	struct rig *r = counting(4);
	struct gnvd_batch b = { .mine = 1 };

	(void)state;
	b.dw3[0] = GPUNVME_CQE_DW3_PHASE | 3;
	gnvd_count(&r->dq, &b, GNVD_BATCH);
	assert_int_equal(timed(r), 0);
	r->result[r->dq.cids + 3] = gnvd_clock();
	gnvd_count(&r->dq, &b, GNVD_BATCH);
	gnvd_count(&r->dq, &b, GNVD_BATCH);
	assert_int_equal(timed(r), ON);
	b.wrong = 1;
	r->result[r->dq.cids + 3] = gnvd_clock();
	gnvd_count(&r->dq, &b, GNVD_BATCH);
	assert_int_equal(timed(r), ON);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_command_is_counted_once),
		cmocka_unit_test(a_lane_alone_rings_for_each_command),
		cmocka_unit_test(detached_commands_are_counted),
		cmocka_unit_test(nothing_is_kept_that_nobody_asked_for),
		cmocka_unit_test(times_are_within_the_callers),
		cmocka_unit_test(buckets_are_an_eighth_wide),
		cmocka_unit_test(a_clock_that_is_behind_counts_as_no_time),
		cmocka_unit_test(a_time_is_counted_once),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
