/* SPDX-License-Identifier: MIT */
/* Handles: consumed once, refused when old or foreign, abandoned; time-outs, poison, stop, and devices that break the protocol. */
#include "rig.h"

static enum mini_fate hold_below_100(uint64_t stamp)
{
	return stamp < 100 ? MINI_HOLD : MINI_COMPLETE;
}

static uint16_t fail_all(uint64_t stamp)
{
	(void)stamp;
	return GPUNVME_SC_LBA_RANGE;
}

static int submit(struct rig *r, uint64_t stamp, struct gpunvme_req *req)
{
	return gpunvme_submit_read(&r->dq, &r->dbuf, 0, (uint64_t)stamp * 512, 512, req);
}

static void handle_is_consumed_once(void **state)
{
	struct rig *r = rig_new(3, 0);
	struct gpunvme_req req, copy;

	(void)state;
	rig_start(r);
	assert_int_equal(submit(r, 1, &req), 0);
	copy = req;
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), -GPUNVME_ESTALE);
	assert_int_equal(gpunvme_poll(&r->dq, &copy), -GPUNVME_ESTALE);
	assert_int_equal(gpunvme_detach(&r->dq, &copy), -GPUNVME_ESTALE);
	assert_int_equal(submit(r, 2, &req), 0); /* takes the same CID again */
	assert_int_equal(gpunvme_poll(&r->dq, &copy), -GPUNVME_ESTALE);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	rig_end(r, true);
}

static void foreign_and_outdated_handles_are_refused(void **state)
{
	struct rig *r = rig_new(3, 0);
	struct gpunvme_dq other = r->dq, reborn = r->dq;
	struct gpunvme_req req;

	(void)state;
	other.tag = 1u << 16 | 8;
	reborn.tag = 2u << 16 | RIG_QID;
	rig_start(r);
	assert_int_equal(submit(r, 1, &req), 0);
	assert_int_equal(gpunvme_poll(&other, &req), -GPUNVME_EXDEV);
	assert_int_equal(gpunvme_wait(&reborn, &req, 0), -GPUNVME_ESTALE);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	rig_end(r, true);
}

/* Abandoned before or after the completion, the CID comes back and nobody else's result is disturbed. */
static void abandoned_handles_give_their_cid_back(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req req[10];
	uint64_t until = gnvd_clock() + rig_ms(20000);
	unsigned i;

	(void)state;
	r->ctrl.opts.fate = hold_below_100;
	rig_start(r);
	for (i = 0; i < 10; i++)
		assert_int_equal(submit(r, i < 5 ? i : 100 + i, &req[i]), 0);
	while (__atomic_load_n(&r->ctrl.completed, __ATOMIC_RELAXED) < 5 && gnvd_clock() < until)
		sched_yield();
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 200 * 512, 512), 0); /* takes the five in */
	for (i = 0; i < 10; i++)
		assert_int_equal(gpunvme_detach(&r->dq, &req[i]), 0);
	assert_int_equal(rig_free_cids(r), r->dq.cids - 5);
	mini_release(&r->ctrl);
	while (rig_free_cids(r) < r->dq.cids && gnvd_clock() < until)
		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 200 * 512, 512), 0);
	for (i = 0; i < 10; i++)
		assert_int_equal(gpunvme_poll(&r->dq, &req[i]), -GPUNVME_ESTALE);
	rig_end(r, true);
}

static void errors_of_detached_commands_are_counted(void **state)
{
	struct rig *r = rig_new(4, 0);
	uint64_t until = gnvd_clock() + rig_ms(20000);
	unsigned i;

	(void)state;
	r->ctrl.opts.status = fail_all;
	rig_start(r);
	for (i = 0; i < 5; i++)
		assert_int_equal(submit(r, i, NULL), 0);
	while (r->state->detached_errors < 5 && gnvd_clock() < until)
		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 9 * 512, 512), GPUNVME_SC_LBA_RANGE);
	assert_int_equal(r->state->detached_errors, 5);
	rig_end(r, true);
}

/* The queue's own time-out poisons: no new commands, but what still completes is delivered. */
static void silent_command_poisons_the_queue(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req early, late;

	(void)state;
	r->ctrl.opts.fate = hold_below_100;
	r->dq.cmd_timeout = rig_ms(30);
	rig_start(r);
	assert_int_equal(submit(r, 1, &early), 0);
	assert_int_equal(submit(r, 2, &late), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &early, 0), -GPUNVME_ETIMEDOUT);
	assert_int_equal(r->state->poison, GPUNVME_ETIMEDOUT);
	assert_int_equal(submit(r, 3, &early), -GPUNVME_ESHUTDOWN);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 101 * 512, 512), -GPUNVME_ESHUTDOWN);
	r->dq.cmd_timeout = rig_ms(20000); /* the controller may be kept from running */
	mini_release(&r->ctrl);
	assert_int_equal(gpunvme_wait(&r->dq, &late, 0), 0);
	rig_end(r, false);
}

static void blocking_read_ends_at_the_time_out(void **state)
{
	struct rig *r = rig_new(4, 0);
	uint64_t began = gnvd_clock();

	(void)state;
	r->ctrl.opts.fate = hold_below_100;
	r->dq.cmd_timeout = rig_ms(50);
	rig_start(r);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 512, 512), -GPUNVME_ETIMEDOUT);
	assert_in_range(gnvd_clock() - began, rig_ms(50), rig_ms(20000));
	assert_int_equal(r->state->poison, GPUNVME_ETIMEDOUT);
	rig_end(r, false);
}

static void poll_notices_the_time_out(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req req;
	int ret;

	(void)state;
	r->ctrl.opts.fate = hold_below_100;
	r->dq.cmd_timeout = rig_ms(30);
	rig_start(r);
	assert_int_equal(submit(r, 1, &req), 0);
	do
		ret = gpunvme_poll(&r->dq, &req);
	while (ret == -GPUNVME_EAGAIN);
	assert_int_equal(ret, -GPUNVME_ETIMEDOUT);
	assert_int_equal(r->state->poison, GPUNVME_ETIMEDOUT);
	rig_end(r, false);
}

/* A full ring that does not move bounds the wait for room too, without blaming the device for a command. */
static void wait_for_room_is_bounded(void **state)
{
	struct rig *r = rig_new(1, 0);
	struct gpunvme_req req;

	(void)state;
	r->ctrl.opts.fate = hold_below_100;
	r->dq.cmd_timeout = rig_ms(30);
	rig_start(r);
	assert_int_equal(submit(r, 1, &req), 0);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 101 * 512, 512), -GPUNVME_ETIMEDOUT);
	assert_int_equal(r->state->poison, 0);
	r->dq.cmd_timeout = rig_ms(20000); /* the controller may be kept from running */
	mini_release(&r->ctrl);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	rig_end(r, true);
}

static uint64_t due[3];	   /* when the command with that stamp completes */
static uint64_t let_go[3]; /* when it did, atomic */

static enum mini_fate hold_until_due(uint64_t stamp)
{
	static bool asking; /* on the executor a thread that reads the clock gives the controller a turn */
	uint64_t now;

	if (asking)
		return MINI_HOLD;
	asking = true;
	now = gnvd_clock();
	asking = false;
	if (now < due[stamp])
		return MINI_HOLD;
	__atomic_store_n(&let_go[stamp], now, __ATOMIC_RELEASE);
	return MINI_COMPLETE;
}

static bool was_late(unsigned stamp)
{
	const uint64_t at = __atomic_load_n(&let_go[stamp], __ATOMIC_ACQUIRE), now = gnvd_clock();

	return (at ? at : now) > due[stamp] + rig_ms(500);
}

/* False: the machine was late. A command whose time began with the wait for room would have timed out before it was due. */
static bool leaves_a_command_its_time(void)
{
	struct rig *r = rig_new(1, 0);
	struct gpunvme_req req;
	bool late;
	int ret;

	let_go[1] = let_go[2] = 0;
	r->ctrl.opts.fate = hold_until_due;
	r->dq.cmd_timeout = rig_ms(1800);
	due[1] = gnvd_clock() + rig_ms(1000);
	due[2] = due[1] + rig_ms(1000);
	rig_start(r);
	assert_int_equal(submit(r, 1, &req), 0);
	ret = gpunvme_read(&r->dq, &r->dbuf, 0, 2 * 512, 512);
	late = ret && (was_late(1) || was_late(2));
	if (!late) {
		assert_true(gnvd_clock() >= due[2]);
		assert_int_equal(ret, 0);
		assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	}
	rig_end(r, !late);
	return !late;
}

/* Time spent waiting for room is not the command's: together they take longer than the time-out, each alone does not. */
static void wait_for_room_leaves_a_command_its_time(void **state)
{
	unsigned tries = 5;

	(void)state;
	while (!leaves_a_command_its_time())
		assert_true(--tries);
}

static void stop_word_ends_waits(void **state)
{
	struct rig *r = rig_new(1, 0);
	struct gpunvme_req req;

	(void)state;
	r->ctrl.opts.fate = hold_below_100;
	rig_start(r);
	assert_int_equal(submit(r, 1, &req), 0);
	rig_stop(r, 1);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), -GPUNVME_ECANCELED);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 101 * 512, 512), -GPUNVME_ECANCELED); /* no room either */
	rig_stop(r, 0);
	mini_release(&r->ctrl);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	rig_end(r, true);
}

/* A device that breaks the protocol ends the queue for all, with the evidence kept. */
static void crime(enum mini_crime crime, uint64_t stamp)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req bystander;
	int ret;

	r->ctrl.opts.fate = hold_below_100;
	r->ctrl.opts.crime = crime;
	r->ctrl.opts.crime_stamp = stamp;
	rig_start(r);
	assert_int_equal(submit(r, 1, &bystander), 0);
	ret = gpunvme_read(&r->dq, &r->dbuf, 0, (uint64_t)stamp * 512, 512);
	assert_true(ret == -GPUNVME_EPROTO || (crime == MINI_TWICE && ret == 0));
	assert_int_equal(gpunvme_wait(&r->dq, &bystander, 0), -GPUNVME_EPROTO);
	assert_int_equal(r->state->poison, GPUNVME_EPROTO);
	assert_int_not_equal(r->state->poison_cqe[2], 0);
	assert_int_equal(submit(r, 200, &bystander), -GPUNVME_ESHUTDOWN);
	rig_end(r, false);
}

#define CRIME(name)                              \
	static void device_with_##name(void **state) \
	{                                        \
		(void)state;                     \
		crime(name, 100);                \
	}
CRIME(MINI_BAD_CID)
CRIME(MINI_TWICE)
CRIME(MINI_BAD_SQID)
CRIME(MINI_SQHD_AHEAD)
CRIME(MINI_SQHD_BIG)

/*
 * The copy of a completion that comes when the next command has its CID, which a thread on its own uses again: no thread gets that
 * one as ended, and it keeps its CID, as the device is still at it.
 */
static struct rig *late_copy(void)
{
	struct rig *r = rig_new(4, 0);

	r->ctrl.opts.fate = hold_below_100;
	r->ctrl.opts.crime = MINI_LATE;
	r->ctrl.opts.crime_stamp = 100;
	r->dq.cmd_timeout = rig_ms(20000);
	rig_start(r);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 100 * 512, 512), 0);
	return r;
}

static void end_late_copy(struct rig *r)
{
	assert_int_equal(r->state->poison, GPUNVME_EPROTO);
	assert_int_not_equal(r->state->poison_cqe[2], 0);
	assert_int_equal(rig_free_cids(r), r->dq.cids - 1);
	rig_end(r, false);
}

static void late_copy_is_no_result_of_a_transfer(void **state)
{
	struct rig *r = late_copy();

	(void)state;
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 512, 512), -GPUNVME_EPROTO);
	end_late_copy(r);
}

static void late_copy_is_no_result_of_a_handle(void **state)
{
	struct rig *r = late_copy();
	struct gpunvme_req req;

	(void)state;
	assert_int_equal(submit(r, 1, &req), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), -GPUNVME_EPROTO);
	assert_int_equal(gpunvme_detach(&r->dq, &req), 0);
	end_late_copy(r);
}

static void late_copy_frees_no_command_that_nobody_asks_for(void **state)
{
	struct rig *r = late_copy();
	struct gpunvme_req req;

	(void)state;
	assert_int_equal(submit(r, 1, NULL), 0);
	assert_int_equal(submit(r, 2, &req), 0);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), -GPUNVME_EPROTO);
	assert_int_equal(r->state->poison, GPUNVME_EPROTO);
	assert_int_equal(rig_free_cids(r), r->dq.cids - 2);
	rig_end(r, false);
}

/* Where a thread looks at several completions at once each is checked by its own words, whichever of them it is. */
static void each_of_several_is_checked(void **state)
{
	struct gpunvme_req req[8];
	uint64_t bad;
	unsigned i;

	(void)state;
	for (bad = 1; bad <= 8; bad++) {
		struct rig *r = rig_new(4, 0);

		r->ctrl.opts.fate = hold_below_100;
		r->ctrl.opts.crime = MINI_BAD_SQID;
		r->ctrl.opts.crime_stamp = bad;
		rig_start(r);
		for (i = 0; i < 8; i++)
			assert_int_equal(submit(r, i + 1, &req[i]), 0);
		mini_release(&r->ctrl);
		while (__atomic_load_n(&r->ctrl.completed, __ATOMIC_ACQUIRE) < 8)
			sched_yield();
		for (i = 0; i + 1 < bad; i++)
			gpunvme_wait(&r->dq, &req[i], 0);
		assert_int_equal(gpunvme_wait(&r->dq, &req[bad - 1], 0), -GPUNVME_EPROTO);
		assert_int_equal(r->state->poison, GPUNVME_EPROTO);
		rig_end(r, false);
	}
}

/* A CID that nobody uses: with 23 CIDs and hint 0, the first command has CID 0 and CID 1 is idle. */
static void device_with_idle_cid(void **state)
{
	struct rig *r = rig_new(4, 0);

	(void)state;
	r->ctrl.opts.crime = MINI_IDLE_CID;
	r->ctrl.opts.crime_stamp = 100;
	rig_start(r);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 100 * 512, 512), -GPUNVME_EPROTO);
	assert_int_equal(r->state->poison, GPUNVME_EPROTO);
	rig_end(r, false);
}

/*
 * An entry whose phase is there before its dword 2, as no single write of 16 bytes comes, though what a bridge or a cache makes of one
 * might. In a ring's first lap there is no queue's number. In later laps only an SQ head that is impossible tells.
 */
static void device_with_torn_entry(void **state)
{
	struct rig *r = rig_new(4, 0);

	(void)state;
	r->ctrl.opts.crime = MINI_TORN;
	r->ctrl.opts.crime_stamp = 100;
	rig_start(r);
	assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, 100 * 512, 512), -GPUNVME_EPROTO);
	assert_int_equal(r->state->poison, GPUNVME_EPROTO);
	assert_int_equal(r->state->poison_cqe[2], 0);
	rig_end(r, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(handle_is_consumed_once),
		cmocka_unit_test(foreign_and_outdated_handles_are_refused),
		cmocka_unit_test(abandoned_handles_give_their_cid_back),
		cmocka_unit_test(errors_of_detached_commands_are_counted),
		cmocka_unit_test(silent_command_poisons_the_queue),
		cmocka_unit_test(blocking_read_ends_at_the_time_out),
		cmocka_unit_test(poll_notices_the_time_out),
		cmocka_unit_test(wait_for_room_is_bounded),
		cmocka_unit_test(wait_for_room_leaves_a_command_its_time),
		cmocka_unit_test(stop_word_ends_waits),
		cmocka_unit_test(device_with_MINI_BAD_CID),
		cmocka_unit_test(device_with_MINI_TWICE),
		cmocka_unit_test(device_with_MINI_BAD_SQID),
		cmocka_unit_test(device_with_MINI_SQHD_AHEAD),
		cmocka_unit_test(device_with_MINI_SQHD_BIG),
		cmocka_unit_test(each_of_several_is_checked),
		cmocka_unit_test(late_copy_is_no_result_of_a_transfer),
		cmocka_unit_test(late_copy_is_no_result_of_a_handle),
		cmocka_unit_test(late_copy_frees_no_command_that_nobody_asks_for),
		cmocka_unit_test(device_with_idle_cid),
		cmocka_unit_test(device_with_torn_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
