/* SPDX-License-Identifier: MIT */
/* The rings: full, wrapping, flipping their phase; and what a slow command may and may not hold up. */
#include "rig.h"

static enum mini_fate hold_stamp_1(uint64_t stamp)
{
	return stamp == 1 ? MINI_HOLD : MINI_COMPLETE;
}

static enum mini_fate hold_all(uint64_t stamp)
{
	(void)stamp;
	return MINI_HOLD;
}

/* Nothing is fetched: exactly depth - 1 commands fit, the next gets -EAGAIN, and after that all complete. */
static void full_ring(unsigned shift)
{
	struct rig *r = rig_new(shift, 0);
	uint32_t depth = 1u << shift, i;
	struct gpunvme_req *req = rig_zeroed(depth * sizeof(*req));

	mini_freeze(&r->ctrl, true);
	rig_start(r);
	for (i = 0; i + 1 < depth; i++)
		assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512, &req[i]), 0);
	assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512, &req[i]), -GPUNVME_EAGAIN);
	assert_int_equal(r->state->resv, depth - 1);
	assert_int_equal(rig_free_cids(r), r->dq.cids - (depth - 1));
	mini_freeze(&r->ctrl, false);
	for (i = 0; i + 1 < depth; i++)
		assert_int_equal(gpunvme_wait(&r->dq, &req[i], 0), 0);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512), 0);
	rig_end(r, true);
	free(req);
}

static void full_ring_of_2_says_again(void **state)
{
	(void)state;
	full_ring(1);
}

static void full_ring_of_64_says_again(void **state)
{
	(void)state;
	full_ring(6);
}

/* The controller fetches but completes nothing: no SQ head comes back, so the ring stays full though its slots are empty. */
static void ring_is_freed_by_sq_head_only(void **state)
{
	struct rig *r = rig_new(3, 0);
	struct gpunvme_req req[8];
	unsigned i;

	(void)state;
	r->ctrl.opts.fate = hold_all;
	rig_start(r);
	for (i = 0; i < 7; i++)
		assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512, &req[i]), 0);
	assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, 7 * 512, 512, &req[7]), -GPUNVME_EAGAIN);
	mini_release(&r->ctrl);
	for (i = 0; i < 7; i++)
		assert_int_equal(gpunvme_wait(&r->dq, &req[i], 0), 0);
	rig_end(r, true);
}

/* More than 65,536 commands through four slots: CQ phase and every 16-bit count go round many times. */
static void phase_flips_over_70000_commands(void **state)
{
	struct rig *r = rig_new(2, 0);
	uint32_t i, bad = 0, total = RIG_COUNT(70000, 1000);

	(void)state;
	rig_start(r);
	for (i = 0; i < total; i++)
		bad += gpunvme_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512) != 0;
	assert_int_equal(bad, 0);
	assert_int_equal(r->state->drain, 2 * total);
	rig_end(r, true);
}

static void run_from(uint64_t start)
{
	struct rig *r = rig_new(2, start);
	unsigned i;

	r->dq.cmd_timeout = rig_ms(5000);
	rig_start(r);
	for (i = 0; i < 20; i++)
		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512), 0);
	assert_int_equal(r->state->resv, start + 20);
	rig_end(r, true);
}

static void each_start_lap(void **state)
{
	uint64_t start;

	(void)state;
	for (start = 0; start < 40; start++)
		run_from(start);
}

static void positions_cross_16_32_and_48_bits(void **state)
{
	(void)state;
	run_from((1ull << 16) - 10);
	run_from((1ull << 32) - 10);
	run_from((1ull << 48) - 10);
}

/* The generation in a result word wraps after 2^32 commands; a handle must still find its command, and an old one nothing. */
static void generation_wraps(void **state)
{
	struct rig *r = rig_new(1, (1ull << 32) - 1);
	struct gpunvme_req req, old;
	unsigned i;

	(void)state;
	rig_start(r);
	assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, 0, 512, &req), 0);
	old = req;
	assert_int_equal(req.gen, ~0ull << GPUNVME_RES_GEN_SHIFT);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	assert_int_equal(gpunvme_poll(&r->dq, &old), -GPUNVME_ESTALE);
	assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, 0, 512, &req), 0);
	assert_int_equal(req.gen, 0);
	assert_int_equal(gpunvme_poll(&r->dq, &old), -GPUNVME_ESTALE);
	old = req;
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	assert_int_equal(gpunvme_poll(&r->dq, &old), -GPUNVME_ESTALE);
	for (i = 0; i < 10; i++)
		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512), 0);
	rig_end(r, true);
}

/* One command never completes while a thousand do: it costs one CID, not the ring. */
static void slow_command_holds_one_cid(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req slow;
	unsigned i;

	(void)state;
	r->ctrl.opts.fate = hold_stamp_1;
	rig_start(r);
	assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, 512, 512, &slow), 0);
	for (i = 0; i < 1000; i++)
		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, (uint64_t)(1000 + i) * 512, 512), 0);
	assert_int_equal(rig_free_cids(r), r->dq.cids - 1);
	assert_int_equal(gpunvme_poll(&r->dq, &slow), -GPUNVME_EAGAIN);
	assert_int_equal(gpunvme_wait(&r->dq, &slow, rig_ms(20)), -GPUNVME_ETIMEDOUT);
	assert_int_equal(r->state->poison, 0);
	mini_release(&r->ctrl);
	assert_int_equal(gpunvme_wait(&r->dq, &slow, 0), 0);
	rig_end(r, true);
}

#ifndef READS_EACH
#define READS_EACH 300
#endif

struct many {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	uint32_t wrong;
};

static GPUNVME_DEVICE void read_many(void *arg)
{
	struct many *many = (struct many *)arg;
	unsigned i;

	for (i = 0; i < READS_EACH; i++)
		if (gpunvme_read(many->dq, many->dbuf, 0, (uint64_t)(5 + i) * 512, 512))
			__atomic_fetch_add(&many->wrong, 1, __ATOMIC_RELAXED);
}

/* Threads that start together publish through each other; what one rings for another must not be lost. */
static void nothing_stays_unrung(void **state)
{
	struct rig *r = rig_new(6, 0);
	struct many many = { &r->dq, &r->dbuf, 0 };

	(void)state;
	r->dq.cmd_timeout = rig_ms(10000);
	r->ctrl.opts.naps = 5;
	rig_start(r);
	assert_int_equal(gpunvme_cpu_launch(8, 1, read_many, &many), 0);
	assert_int_equal(many.wrong, 0);
	assert_int_equal(r->state->resv, 8 * READS_EACH);
	rig_end(r, true);
}

/*
 * Four threads together, a ring of two and as many CIDs: the thread that got through must be waited for before the others try
 * again.
 */
static void wave_wider_than_the_ring_gets_through(void **state)
{
	struct rig *r = rig_new(1, 0);
	struct many many = { &r->dq, &r->dbuf, 0 };

	(void)state;
	r->dq.cmd_timeout = rig_ms(5000);
	rig_start(r);
	assert_int_equal(gpunvme_cpu_launch(4, 4, read_many, &many), 0);
	assert_int_equal(many.wrong, 0);
	rig_end(r, true);
}

static GPUNVME_DEVICE void submit_detached(void *arg)
{
	struct many *many = (struct many *)arg;
	unsigned i;
	int ret;

	for (i = 0; i < 200; i++) {
		do
			ret = gpunvme_submit_write(many->dq, many->dbuf, 0, (uint64_t)(5 + i) * 512, 512, 0, NULL);
		while (ret == -GPUNVME_EAGAIN);
		if (ret)
			__atomic_fetch_add(&many->wrong, 1, __ATOMIC_RELAXED);
	}
}

/* Fire and forget: nobody polls, so a command that was not rung would never be. */
static void detached_commands_are_rung_and_freed(void **state)
{
	struct rig *r = rig_new(5, 0);
	struct many many = { &r->dq, &r->dbuf, 0 };
	uint64_t until;

	(void)state;
	rig_start(r);
	assert_int_equal(gpunvme_cpu_launch(4, 1, submit_detached, &many), 0);
	assert_int_equal(many.wrong, 0);
	until = gnvd_clock() + rig_ms(20000);
	while (__atomic_load_n(&r->ctrl.fetched, __ATOMIC_RELAXED) < 800 && gnvd_clock() < until)
		sched_yield();
	assert_int_equal(__atomic_load_n(&r->ctrl.fetched, __ATOMIC_RELAXED), 800);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 0, 512), 0);
	while (rig_free_cids(r) < r->dq.cids && gnvd_clock() < until)
		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 0, 512), 0);
	rig_end(r, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_ring_of_2_says_again),
		cmocka_unit_test(full_ring_of_64_says_again),
		cmocka_unit_test(ring_is_freed_by_sq_head_only),
		cmocka_unit_test(phase_flips_over_70000_commands),
		cmocka_unit_test(each_start_lap),
		cmocka_unit_test(positions_cross_16_32_and_48_bits),
		cmocka_unit_test(generation_wraps),
		cmocka_unit_test(slow_command_holds_one_cid),
		cmocka_unit_test(nothing_stays_unrung),
		cmocka_unit_test(wave_wider_than_the_ring_gets_through),
		cmocka_unit_test(detached_commands_are_rung_and_freed),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
