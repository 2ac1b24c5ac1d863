/* SPDX-License-Identifier: MIT */
/* What is believed of a completion, checked on the function that decides, and of a descriptor. */
#include "device/rig.h"

#include <pthread.h>
#include <time.h>

/* Is a completion with this SQ head wrong, for a drainer that knows of `fetched` and read `pub`? */
static bool is_wrong(struct rig *r, uint64_t fetched, uint64_t pub, uint32_t sq_head)
{
	struct gnvd_drain d = { .pos = fetched, .fetched = fetched, .pub = pub, .rung = 0 };
	struct gnvd_batch b = { .mine = 1 };

	b.dw2[0] = RIG_QID << 16 | sq_head;
	b.dw3[0] = GPUNVME_CQE_DW3_PHASE;
	gnvd_check_cqes(&r->dq, &d, &b, GNVD_BATCH);
	return b.wrong != 0;
}

static void sq_head_stays_within_what_was_rung(void **state)
{
	struct rig *r = rig_new(4, 0);

	(void)state;
	r->state->resv = r->state->pub = 6;
	assert_false(is_wrong(r, 4, 6, 4));
	assert_false(is_wrong(r, 4, 6, 6));
	assert_true(is_wrong(r, 4, 6, 7));
	assert_true(is_wrong(r, 4, 6, 3));
	rig_free(r);
}

/* The drainer may have read pub before it moved, and moved fetched past what it read. */
static void an_old_pub_does_not_open_the_ring(void **state)
{
	struct rig *r = rig_new(4, 0);

	(void)state;
	r->state->resv = r->state->pub = 6;
	assert_false(is_wrong(r, 4, 5, 6));
	assert_true(is_wrong(r, 4, 5, 7));
	assert_false(is_wrong(r, 6, 5, 6));
	assert_true(is_wrong(r, 6, 5, 12));
	rig_free(r);
}

static void *ring_later(void *arg)
{
	const struct timespec pause = { 0, 2000000 };
	struct rig *r = arg;

	nanosleep(&pause, NULL);
	__atomic_store_n(&r->state->pub, 7, __ATOMIC_RELEASE);
	return NULL;
}

/* What pub is seen to be may still lie below fetched: that, too, is waited for. */
static void a_pub_behind_fetched_is_waited_for(void **state)
{
	struct rig *r = rig_new(4, 0);
	pthread_t thread;

	(void)state;
	r->state->resv = 7;
	r->state->pub = 5;
	r->dq.ticks_per_ms *= 1000; /* ten seconds, for a thread that gets no core soon */
	assert_int_equal(pthread_create(&thread, NULL, ring_later, r), 0);
	assert_false(is_wrong(r, 6, 5, 7));
	pthread_join(thread, NULL);
	r->dq.ticks_per_ms /= 1000;
	assert_true(is_wrong(r, 6, 7, 9));
	rig_free(r);
}

static void count(void *ctx, const struct gpunvme_sqe *cmd)
{
	unsigned *commands = ctx;

	assert_int_equal(cmd->cdw12 & 0xffff, 0);
	++*commands;
}

/* As a_limit_of_nothing_is_one_block() of test_commands.c, through a volume. */
static void a_member_of_no_blocks_gets_one(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_dvol v = { .head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, v), .flags = GPUNVME_DQ_WRITE,
				  .members = 1, .queues = 1, .lba_shift = 9, .dq = (uintptr_t)&r->dq, .lba_count = 1 << 20 };
	struct gpunvme_dvbuf buf = { .len = r->dbuf.len, .member = (uintptr_t)&r->dbuf };
	unsigned commands = 0;

	(void)state;
	r->dq.max_blocks = 0;
	r->ctrl.seen = count;
	r->ctrl.seen_ctx = &commands;
	rig_start(r);
	assert_int_equal(gpunvme_write(&v, &buf, 0, 6 * 512, 2 * 512, 0), 0);
	assert_int_equal(gpunvme_block_read(&v, &buf, 0, 8 * 512, 2 * 512), 0);
	rig_end(r, true);
	assert_int_equal(commands, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sq_head_stays_within_what_was_rung),
		cmocka_unit_test(an_old_pub_does_not_open_the_ring),
		cmocka_unit_test(a_pub_behind_fetched_is_waited_for),
		cmocka_unit_test(a_member_of_no_blocks_gets_one),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
