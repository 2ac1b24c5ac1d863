/* SPDX-License-Identifier: MIT */
/* Rings: phase, wrap, full completion queues, sharing, threads; and mappings after their commands. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/rawhost.h"

static void phase_flips_at_every_wrap(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct gpunvme_cqe cqe;
	unsigned i;

	(void)state;
	for (i = 0; i < 5 * RAWHOST_ENTRIES + 3; i++) {
		assert_int_equal(rawhost_run(&host, &host.io, &sqe, &cqe), 0);
		assert_int_equal(cqe.status & 1, !(i / RAWHOST_ENTRIES % 2));
		assert_int_equal(cqe.sqhd, (i + 1) % RAWHOST_ENTRIES);
	}
}

static void full_completion_queue_holds_completions_back(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct rawhost_queue q;
	uint32_t seen = 0;
	struct gpunvme_cqe cqe;
	unsigned i;

	(void)state;
	assert_int_equal(rawhost_create_pair(&host, &q, 2, 16, 4), 0);
	for (i = 0; i < 10; i++)
		rawhost_put(&q, &sqe);
	rawhost_ring_sq(&host, &q, q.tail);
	for (i = 0; i < 3; i++) {
		assert_true(rawhost_reap(&host, &q, &cqe, RAWHOST_SOON, false));
		seen |= 1u << cqe.cid;
	}
	assert_false(rawhost_reap(&host, &q, &cqe, 50, false)); /* three fit a queue of four */
	rawhost_ring_cq(&host, &q, q.head);
	for (i = 3; i < 10; i++) {
		assert_true(rawhost_reap(&host, &q, &cqe, RAWHOST_SOON, true));
		assert_int_equal(seen & 1u << cqe.cid, 0);
		seen |= 1u << cqe.cid;
	}
	assert_int_equal(seen, 0x3ff);
}

static void queues_of_two_entries_work(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct rawhost_queue q;
	unsigned i;

	(void)state;
	assert_int_equal(rawhost_create_pair(&host, &q, 2, 2, 2), 0);
	for (i = 0; i < 9; i++)
		assert_int_equal(rawhost_run(&host, &q, &sqe, NULL), 0);
}

static void two_submission_queues_share_a_completion_queue(void **state)
{
	struct gpunvme_sqe create = {
		.opc = 1, .prp1 = rawhost_iova(&host, 0x10000), .cdw10 = 3u << 16 | 2, .cdw11 = 1u << 16 | 1
	};
	struct gpunvme_sqe flush = { .opc = GPUNVME_IO_FLUSH, .nsid = 1 };
	struct rawhost_queue second = host.io;
	struct gpunvme_cqe cqe;

	(void)state;
	assert_int_equal(rawhost_admin(&create, NULL), 0);
	second.qid = 2;
	second.sq = (void *)rawhost_data(&host, 0x10000);
	rawhost_submit(&host, &second, &flush);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.sqid, 2);
	assert_int_equal(rawhost_io(&flush), 0);
}

static void every_queue_of_several_threads_is_served(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct rawhost_queue q[6];
	uint16_t i;

	(void)state;
	for (i = 2; i < 6; i++) {
		assert_int_equal(rawhost_create_pair(&host, &q[i], i, 8, 8), 0);
		assert_int_equal(rawhost_run(&host, &q[i], &sqe, NULL), 0);
	}
	for (i = 2; i < 6; i++)
		assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 0, .cdw10 = i }, NULL), 0);
	assert_int_equal(rawhost_io(&sqe), 0);
}

static void mapping_is_free_once_its_commands_completed(void **state)
{
	struct gpunvme_mem mem = host.mem;
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	unsigned i;

	(void)state;
	mem.cpu = rawhost_data(&host, 0x100000);
	mem.len = 4096;
	for (i = 0; i < 200; i++) { /* often enough for its registration with io_uring */
		if (!i || i == 100)
			assert_int_equal(host.space->ops->map(host.space, &mem, &sqe.prp1), 0);
		assert_int_equal(rawhost_io(&sqe), 0);
		if (i == 99 || i == 199)
			assert_int_equal(host.space->ops->unmap(host.space, sqe.prp1, 4096), 0);
	}
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_DATA_TRANSFER);
	assert_int_equal(host.space->ops->unmap(host.space, sqe.prp1, 4096), -ENOENT);
}

int main(void)
{
	struct gnv_soft_config threads = GNV_SOFT_CONFIG_INIT;
	const struct CMUnitTest tests[] = {
		RAWHOST_TEST(phase_flips_at_every_wrap),
		RAWHOST_TEST(full_completion_queue_holds_completions_back),
		RAWHOST_TEST(queues_of_two_entries_work),
		RAWHOST_TEST(two_submission_queues_share_a_completion_queue),
		RAWHOST_TEST_WITH(every_queue_of_several_threads_is_served, &threads),
		RAWHOST_TEST(mapping_is_free_once_its_commands_completed),
	};

	threads.threads = 3;
	return cmocka_run_group_tests_name("controller_queue", tests, NULL, NULL);
}
