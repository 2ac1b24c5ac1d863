/* SPDX-License-Identifier: MIT */
/* Asynchronous events, Abort, injected faults, queue deletion with commands in flight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/rawhost.h"

/* ---- Fault hook: the action of the test, for commands on block `lba` only ---- */

struct action {
	enum gnv_soft_action what;
	uint16_t status;
	uint32_t delay_us;
	uint32_t lba;
	unsigned asked;
};

static enum gnv_soft_action decide(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	struct action *v = ctx;

	(void)sqid;
	__atomic_fetch_add(&v->asked, 1, __ATOMIC_RELAXED);
	if (cmd->cdw10 != v->lba)
		return GNV_SOFT_GO;
	*status = v->status;
	*delay_us = v->delay_us;
	return v->what;
}

/* Commands are judged for as long as the controller lives, which is longer than a test does: nothing of its own may be looked at. */
static struct action injected;

static void inject(struct action v)
{
	const struct gnv_soft_fault fault = { decide, &injected };

	gnv_soft_set_fault(host.soft, NULL);
	injected = v;
	gnv_soft_set_fault(host.soft, &fault);
}

static unsigned judged(void)
{
	return __atomic_load_n(&injected.asked, __ATOMIC_RELAXED);
}

static void injected_failure_has_the_status_asked_for(void **state)
{
	struct action v = { .what = GNV_SOFT_FAIL, .status = GPUNVME_SC_WRITE_FAULT };

	(void)state;
	inject(v);
	assert_int_equal(rawhost_read_block(), GPUNVME_SC_WRITE_FAULT);
	gnv_soft_set_fault(host.soft, NULL);
	assert_int_equal(rawhost_read_block(), 0);
	assert_int_equal(judged(), 1);
}

static void skipped_commands_touch_nothing(void **state)
{
	struct action v = { .what = GNV_SOFT_SKIP };

	(void)state;
	rawhost_fill(&host, 0, 512, 1);
	inject(v);
	assert_int_equal(rawhost_read_block(), 0);
	assert_true(rawhost_is_filled(&host, 0, 512, 1));
}

static void bad_commands_never_reach_the_fault_hook(void **state)
{
	struct action v = { .what = GNV_SOFT_SKIP };
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, ~0ull, 1, 0);

	(void)state;
	inject(v);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_LBA_RANGE);
	assert_int_equal(judged(), 0);
}

static void delayed_commands_are_overtaken_and_complete_in_time(void **state)
{
	struct action v = { .what = GNV_SOFT_DELAY, .delay_us = 50000, .lba = 0 };
	struct gpunvme_sqe slow = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct gpunvme_sqe fast = rawhost_rw(&host, GPUNVME_IO_READ, 1, 1, 4096);
	struct timespec a, b;
	struct gpunvme_cqe cqe;
	uint16_t first;

	(void)state;
	inject(v);
	clock_gettime(CLOCK_MONOTONIC, &a);
	first = rawhost_submit(&host, &host.io, &slow);
	rawhost_submit(&host, &host.io, &fast);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_not_equal(cqe.cid, first);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, first);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_true((b.tv_sec - a.tv_sec) * 1000000000ll + b.tv_nsec - a.tv_nsec >= 50000000);
}

/* ---- Abort ---- */

static uint32_t abort_cid(uint16_t sqid, uint16_t cid)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_ABORT, .cdw10 = (uint32_t)cid << 16 | sqid };
	uint16_t me = rawhost_submit(&host, &host.admin, &sqe);
	struct gpunvme_cqe cqe;

	do
		assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	while (cqe.cid != me);
	assert_int_equal(cqe.status >> 1, 0);
	return cqe.dw0;
}

static void parked_command_is_aborted(enum gnv_soft_action what)
{
	struct action v = { .what = what, .delay_us = 4000000 };
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct gpunvme_cqe cqe;
	uint16_t cid;

	inject(v);
	cid = rawhost_submit(&host, &host.io, &sqe);
	assert_false(rawhost_reap(&host, &host.io, &cqe, 100, true));
	assert_int_equal(abort_cid(1, cid), 0);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, cid);
	assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, GPUNVME_SC_ABORT_REQUESTED);
}

static void dropped_command_can_be_aborted(void **state)
{
	(void)state;
	parked_command_is_aborted(GNV_SOFT_DROP);
}

static void delayed_command_can_be_aborted(void **state)
{
	(void)state;
	parked_command_is_aborted(GNV_SOFT_DELAY);
}

static void abort_of_nothing_says_not_aborted(void **state)
{
	(void)state;
	assert_int_equal(abort_cid(1, 77), 1);
}

#define TRIES 100000u

/* More dropped commands than a server thread has room for. */
static void stuck_commands_leave_room_for_abort(void **state)
{
	struct action v = { .what = GNV_SOFT_DROP };
	struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_FLUSH, .nsid = 1 };
	struct gpunvme_cqe cqe;
	struct rawhost_queue q;
	unsigned i, n, tries;

	(void)state;
	inject(v);
	for (n = 0; n < 6; n++) {
		assert_int_equal(rawhost_create_pair(&host, &q, (uint16_t)(2 + n), 256, 256), 0);
		for (i = 0; i < 255; i++)
			rawhost_put(&q, &sqe);
		rawhost_ring_sq(&host, &q, q.tail);
	}
	for (tries = 0; tries < TRIES && abort_cid(2, 0); tries++) /* one that comes before the command is fetched finds nothing */
		;
	assert_true(tries < TRIES);
	q = (struct rawhost_queue){ .qid = 2, .cq_size = 256, .phase = 1, .cq = (void *)(host.cpu + 2 * 0x8000 + 0x4000) };
	assert_true(rawhost_reap(&host, &q, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, 0);
}

static void deleting_a_queue_ends_its_commands(void **state)
{
	struct action v = { .what = GNV_SOFT_DROP };
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct gpunvme_cqe cqe;

	(void)state;
	inject(v);
	rawhost_submit(&host, &host.io, &sqe);
	assert_false(rawhost_reap(&host, &host.io, &cqe, 50, true));
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 0, .cdw10 = 1 }, NULL), 0);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.status >> 1, GPUNVME_SC_ABORT_SQ_DELETED);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 4, .cdw10 = 1 }, NULL), 0);
}

static void queue_with_a_full_completion_queue_can_be_deleted(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct rawhost_queue q;
	unsigned i;

	(void)state;
	assert_int_equal(rawhost_create_pair(&host, &q, 2, 16, 2), 0);
	for (i = 0; i < 10; i++)
		rawhost_put(&q, &sqe);
	rawhost_ring_sq(&host, &q, q.tail);
	assert_true(rawhost_reap(&host, &q, NULL, RAWHOST_SOON, false));
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 0, .cdw10 = 2 }, NULL), 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 4, .cdw10 = 2 }, NULL), 0);
}

/* ---- Events ---- */

static uint16_t request_event(void)
{
	return rawhost_submit(&host, &host.admin, &(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_ASYNC_EVENT_REQUEST });
}

static void event_requests_stay_outstanding_up_to_the_limit(void **state)
{
	struct gpunvme_cqe cqe;
	uint16_t fifth;
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++)
		request_event();
	assert_false(rawhost_reap(&host, &host.admin, &cqe, 50, true));
	fifth = request_event();
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, fifth);
	assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, GPUNVME_SC_AER_LIMIT);
}

static void event_request_can_be_aborted(void **state)
{
	uint16_t cid = request_event();
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_ABORT, .cdw10 = (uint32_t)cid << 16 };
	struct gpunvme_cqe cqe;

	(void)state;
	rawhost_submit(&host, &host.admin, &sqe);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, cid);
	assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, GPUNVME_SC_ABORT_REQUESTED);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.dw0, 0);
}

static uint16_t get_log(uint8_t lid, uint32_t bytes, uint32_t offset, bool retain)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_GET_LOG_PAGE,
				   .nsid = GPUNVME_NSID_ALL,
				   .prp1 = rawhost_iova(&host, 0),
				   .cdw10 = (bytes / 4 - 1) << 16 | (retain ? 0x8000u : 0) | lid,
				   .cdw12 = offset };

	return rawhost_admin(&sqe, NULL);
}

static void event_comes_again_only_after_its_log_was_read(void **state)
{
	struct gpunvme_cqe cqe;

	(void)state;
	request_event();
	rawhost_ring_sq(&host, &host.io, 1000);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.dw0, 0x00010100);
	rawhost_ring_sq(&host, &host.io, 1001);
	assert_int_equal(get_log(GPUNVME_LID_ERROR, 64, 0, true), 0);
	request_event();
	assert_false(rawhost_reap(&host, &host.admin, &cqe, 50, true));
	/* the request is outstanding, so this completion is the log's and the next the event's */
	rawhost_submit(&host, &host.admin,
		       &(struct gpunvme_sqe){ .opc = 2, .prp1 = rawhost_iova(&host, 0), .cdw10 = 15u << 16 | 1 });
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.dw0, 0);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.dw0, 0x00010100);
}

/* Of those that wait the oldest is answered, up to the last, and one in between that is aborted leaves the others as they were. */
static void event_requests_are_answered_in_order(void **state)
{
	const uint16_t cid[4] = { request_event(), request_event(), request_event(), request_event() };
	struct gpunvme_sqe abort = { .opc = GPUNVME_ADMIN_ABORT, .cdw10 = (uint32_t)cid[1] << 16 };
	struct gpunvme_sqe threshold = { .opc = 9, .cdw10 = 4, .cdw11 = 300 };
	struct gpunvme_cqe cqe;
	uint16_t set;

	(void)state;
	rawhost_submit(&host, &host.admin, &abort);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, cid[1]);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true)); /* of the abort */
	rawhost_ring_sq(&host, &host.io, 1000);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, cid[0]);
	assert_int_equal(cqe.dw0, 0x00010100);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 9, .cdw10 = 0x0b, .cdw11 = 2 }, NULL), 0);
	set = rawhost_submit(&host, &host.admin, &threshold);
	for (unsigned i = 0; i < 2; i++) { /* of the threshold, and of the request, in any order */
		assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
		assert_int_equal(cqe.cid, cqe.dw0 ? cid[2] : set);
	}
	assert_int_equal(get_log(GPUNVME_LID_ERROR, 64, 0, false), 0); /* the other event may come again */
	rawhost_ring_sq(&host, &host.io, 1001);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, cid[3]);
	assert_int_equal(cqe.dw0, 0x00010100);
	assert_false(rawhost_reap(&host, &host.admin, &cqe, 50, true));
}

/* After its beginning a log page is what it is there when it is read whole; the error log has as many entries as Identify says. */
static void log_pages_are_read_in_parts(void **state)
{
	struct gpunvme_sqe identify = { .opc = GPUNVME_ADMIN_IDENTIFY, .prp1 = rawhost_iova(&host, 0), .cdw10 = GPUNVME_CNS_CTRL };
	const void *page = rawhost_data(&host, 0);
	uint8_t whole[32];
	uint32_t entries;

	(void)state;
	assert_int_equal(get_log(GPUNVME_LID_SMART, 512, 0, false), 0);
	memcpy(whole, page, sizeof(whole));
	assert_true(whole[4]); /* the threshold of spare blocks */
	assert_int_equal(get_log(GPUNVME_LID_SMART, 508, 4, false), 0);
	assert_memory_equal(page, whole + 4, sizeof(whole) - 4);
	assert_int_equal(rawhost_admin(&identify, NULL), 0);
	entries = ((const struct gpunvme_id_ctrl *)page)->elpe_0b + 1u;
	assert_int_equal(get_log(GPUNVME_LID_ERROR, 64, 64 * (entries - 1), true), 0);
	assert_int_not_equal(get_log(GPUNVME_LID_ERROR, 64, 64 * (entries + 1), true), 0);
}

static void deleting_queues_is_no_event(void **state)
{
	struct gpunvme_cqe cqe;

	(void)state;
	assert_int_equal(rawhost_read_block(), 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 0, .cdw10 = 1 }, NULL), 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 4, .cdw10 = 1 }, NULL), 0);
	request_event();
	assert_false(rawhost_reap(&host, &host.admin, &cqe, 500, true)); /* long enough to look at every doorbell */
}

static void temperature_over_the_threshold_is_an_event(void **state)
{
	struct gpunvme_cqe cqe;

	(void)state;
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 9, .cdw10 = 0x0b, .cdw11 = 2 }, NULL), 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 9, .cdw10 = 4, .cdw11 = 300 }, NULL), 0);
	request_event();
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.dw0, 0x00020101);
	assert_int_equal(get_log(GPUNVME_LID_SMART, 512, 0, false), 0);
	assert_int_equal(*(uint8_t *)rawhost_data(&host, 0), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RAWHOST_TEST(injected_failure_has_the_status_asked_for),
		RAWHOST_TEST(skipped_commands_touch_nothing),
		RAWHOST_TEST(bad_commands_never_reach_the_fault_hook),
		RAWHOST_TEST(delayed_commands_are_overtaken_and_complete_in_time),
		RAWHOST_TEST(dropped_command_can_be_aborted),
		RAWHOST_TEST(delayed_command_can_be_aborted),
		RAWHOST_TEST(abort_of_nothing_says_not_aborted),
		RAWHOST_TEST(stuck_commands_leave_room_for_abort),
		RAWHOST_TEST(deleting_a_queue_ends_its_commands),
		RAWHOST_TEST(queue_with_a_full_completion_queue_can_be_deleted),
		RAWHOST_TEST(event_requests_stay_outstanding_up_to_the_limit),
		RAWHOST_TEST(event_request_can_be_aborted),
		RAWHOST_TEST(event_comes_again_only_after_its_log_was_read),
		RAWHOST_TEST(event_requests_are_answered_in_order),
		RAWHOST_TEST(log_pages_are_read_in_parts),
		RAWHOST_TEST(deleting_queues_is_no_event),
		RAWHOST_TEST(temperature_over_the_threshold_is_an_event),
	};

	return cmocka_run_group_tests_name("controller_events", tests, NULL, NULL);
}
