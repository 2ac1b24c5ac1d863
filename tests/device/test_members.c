/* SPDX-License-Identifier: MIT */
/*
 * Waves on a volume whose controllers have no thread: they take a turn in each pause of the first thread. The clock goes on by 10
 * us at each look, so nothing here depends on the machine.
 */
#include <gpunvme/device/platform.h>

static uint64_t test_clock(void);
static void test_turn(uint32_t turn);

#define gnvd_clock() test_clock()
#define gnvd_pause(turn) test_turn(turn)

#include "rig.h"

#define MEMBERS 2u
#define STRIPE_SHIFT 3
#define STRIPE (512ull << STRIPE_SHIFT)

static struct {
	struct rig *rig[MEMBERS];
	struct gpunvme_dq dq[MEMBERS];
	struct gpunvme_dbuf dbuf[MEMBERS];
	struct gpunvme_dvol v;
	struct gpunvme_dvbuf buf;
	uint32_t stop_at; /* after so many commands the host says stop; 0: never */
	uint32_t rest;    /* turns in which no controller works */
	uint64_t dies_at; /* after so many commands the first member dies; 0: never */
	uint32_t longest; /* of the turns that pauses were for */
	uint64_t clock;
	int status[2];
} t;

static _Thread_local bool drives;

static uint64_t test_clock(void)
{
	return __atomic_add_fetch(&t.clock, 10000, __ATOMIC_RELAXED);
}

static void test_turn(uint32_t turn)
{
	uint32_t i;

	if (!drives) {
		sched_yield();
		return;
	}
	t.longest = turn > t.longest ? turn : t.longest;
	if (t.rest && t.rest--)
		return;
	for (i = 0; i < MEMBERS; i++) {
		mini_turn(&t.rig[i]->ctrl);
		if (t.stop_at && t.rig[i]->ctrl.fetched >= t.stop_at)
			rig_stop(t.rig[i], 1);
	}
	if (t.dies_at && t.rig[0]->ctrl.completed == t.dies_at)
		__atomic_store_n(&t.rig[0]->state->poison, GPUNVME_ENODEV, __ATOMIC_RELEASE);
	/* What the first member holds ends only when the second one was found silent. */
	if (__atomic_load_n(&t.rig[1]->state->poison, __ATOMIC_ACQUIRE))
		mini_release(&t.rig[0]->ctrl);
}

static void members_new(void)
{
	uint32_t i;

	memset(&t, 0, sizeof(t));
	for (i = 0; i < MEMBERS; i++) {
		t.rig[i] = rig_new(4, 0);
		t.rig[i]->dq.cmd_timeout = 100000000; /* ticks, of which a look takes 10,000 */
	}
	t.v = (struct gpunvme_dvol){ .head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, t.v), .flags = GPUNVME_DQ_WRITE, .members = MEMBERS,
				     .queues = 1, .lba_shift = 9, .stripe_shift = STRIPE_SHIFT, .dq = (uintptr_t)t.dq,
				     .lba_count = 1 << 20 };
	t.buf = (struct gpunvme_dvbuf){ .len = RIG_BUFFER, .member = (uintptr_t)t.dbuf };
}

static void members_start(void)
{
	uint32_t i;

	for (i = 0; i < MEMBERS; i++) {
		t.dq[i] = t.rig[i]->dq;
		t.dbuf[i] = t.rig[i]->dbuf;
		mini_begin(&t.rig[i]->ctrl);
	}
}

static void members_free(void)
{
	uint32_t i;

	for (i = 0; i < MEMBERS; i++)
		rig_free(t.rig[i]);
}

/* ---- Time-outs ---- */

static enum mini_fate hold_second_stripe(uint64_t stamp)
{
	return stamp >> STRIPE_SHIFT == 1 ? MINI_HOLD : MINI_COMPLETE;
}

static enum mini_fate hold(uint64_t stamp)
{
	(void)stamp;
	return MINI_HOLD;
}

/* Thread 0 reads stripe 2, which the first member holds. Thread 1 reads stripes 0 and 1, and the second member is silent. */
static void two_kernel(void *arg)
{
	uint32_t lane = gpunvme_thread_id();

	(void)arg;
	drives = lane == 0;
	t.status[lane] = gpunvme_wave_read(&t.v, &t.buf, 0, lane ? 0 : 2 * STRIPE, lane ? 2 * STRIPE : STRIPE);
	drives = false;
}

static void no_lane_waits_for_the_device_of_another(void **state)
{
	(void)state;
	members_new();
	t.rig[0]->ctrl.opts.fate = hold_second_stripe;
	t.rig[1]->ctrl.opts.fate = hold;
	t.rig[1]->dq.cmd_timeout = 20000;
	members_start();
	assert_int_equal(gpunvme_cpu_launch(2, 2, two_kernel, NULL), 0);
	assert_int_equal(t.status[0], 0);
	assert_int_equal(t.status[1], -GPUNVME_ETIMEDOUT);
	assert_int_equal(t.rig[0]->state->poison, 0);
	assert_int_equal(t.rig[1]->state->poison, GPUNVME_ETIMEDOUT);
	members_free();
}

/* ---- Stop ---- */

#define BLOCKS 2000ull

static void long_kernel(void *arg)
{
	(void)arg;
	drives = true;
	t.status[0] = gpunvme_wave_read(&t.v, &t.buf, 0, 0, BLOCKS * 512);
	drives = false;
}

/* Each command is one block, and it has ended when the wave looks for the third time. */
static void stop_is_seen_however_fast_drives_are(void **state)
{
	uint64_t commands;
	uint32_t i;

	(void)state;
	members_new();
	t.stop_at = 20;
	for (i = 0; i < MEMBERS; i++)
		t.rig[i]->dq.max_blocks = 1;
	members_start();
	long_kernel(NULL);
	commands = t.rig[0]->state->pub + t.rig[1]->state->pub;
	assert_int_equal(t.status[0], -GPUNVME_ECANCELED);
	assert_in_range(commands, t.stop_at, 200);
	for (i = 0; i < MEMBERS; i++)
		assert_int_equal(rig_free_cids(t.rig[i]), t.dq[i].cids);
	members_free();
}

/* ---- The end of a member ---- */

static void two_stripes_kernel(void *arg)
{
	(void)arg;
	drives = true;
	t.status[0] = gpunvme_wave_read(&t.v, &t.buf, 0, 0, 2 * STRIPE);
	drives = false;
}

/* The second stripe is not on the first member, which may die in any turn, also in one in which the wave looks at it. */
static void a_lane_outlives_a_member_that_it_does_not_need(void **state)
{
	uint32_t rest;

	(void)state;
	for (rest = 0; rest < 16; rest++) {
		members_new();
		t.rest = rest;
		t.dies_at = 1;
		members_start();
		two_stripes_kernel(NULL);
		assert_int_equal(t.rig[0]->state->poison, GPUNVME_ENODEV);
		assert_int_equal(t.status[0], 0);
		members_free();
	}
}

/* ---- Pauses ---- */

/* A CPU thread sleeps when it has waited long for one command, not because its transfer is long. */
static void pauses_are_short_in_long_transfers(void **state)
{
	(void)state;
	members_new();
	t.rig[0]->dq.max_blocks = t.rig[1]->dq.max_blocks = 1;
	members_start();
	long_kernel(NULL);
	assert_int_equal(t.status[0], 0);
	assert_in_range(t.longest, 1, 8);
	t.longest = 0;
	drives = true;
	assert_int_equal(gpunvme_read(&t.dq[0], &t.dbuf[0], 0, 0, BLOCKS * 512), 0);
	drives = false;
	assert_in_range(t.longest, 1, 8);
	members_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_lane_waits_for_the_device_of_another),
		cmocka_unit_test(stop_is_seen_however_fast_drives_are),
		cmocka_unit_test(a_lane_outlives_a_member_that_it_does_not_need),
		cmocka_unit_test(pauses_are_short_in_long_transfers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
