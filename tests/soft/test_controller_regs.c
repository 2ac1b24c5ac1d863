/* SPDX-License-Identifier: MIT */
/* Registers, enable, reset, shutdown, doorbells. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/rawhost.h"
#include "soft/engine/threads.h"
#include "util/clock.h"

static void version_is_1_4(void **state)
{
	(void)state;
	assert_int_equal(rawhost_read32(&host, GPUNVME_REG_VS), 0x00010400);
}

static void cap_says_what_was_configured(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	uint64_t cap;

	(void)state;
	c.depth = 256;
	c.dstrd = 3;
	assert_int_equal(rawhost_open(&host, &c), 0);
	cap = rawhost_read64(&host, GPUNVME_REG_CAP);
	rawhost_close(&host);
	assert_int_equal(GPUNVME_FIELD_GET(GPUNVME_CAP_MQES_0B, cap), 255);
	assert_int_equal(GPUNVME_FIELD_GET(GPUNVME_CAP_DSTRD, cap), 3);
	assert_int_equal(GPUNVME_FIELD_GET(GPUNVME_CAP_MPSMIN, cap), 0);
	assert_true(cap & GPUNVME_CAP_CQR);
	assert_true(cap & GPUNVME_CAP_CSS_NVM);
	assert_true(GPUNVME_FIELD_GET(GPUNVME_CAP_TO, cap) > 0);
}

static void read_only_registers_keep_their_values(void **state)
{
	static const unsigned zero[] = { GPUNVME_REG_INTMS,  GPUNVME_REG_INTMC, GPUNVME_REG_NSSR, GPUNVME_REG_CMBSTS,
					 GPUNVME_REG_CMBLOC, GPUNVME_REG_CMBSZ, GPUNVME_REG_CRTO };
	uint64_t cap = rawhost_read64(&host, GPUNVME_REG_CAP);

	(void)state;
	rawhost_write32(&host, GPUNVME_REG_VS, 0xdeadbeef);
	rawhost_write32(&host, GPUNVME_REG_CSTS, 1);
	rawhost_write64(&host, GPUNVME_REG_CAP, 0);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_VS, ~0u, 0x00010400));
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, ~0u, 0));
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CAP, ~0u, (uint32_t)cap));
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CAP + 4, ~0u, (uint32_t)(cap >> 32)));
	for (unsigned i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
		rawhost_write32(&host, zero[i], 0xdeadbeef);
	for (unsigned i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
		assert_true(rawhost_wait32(&host, zero[i], ~0u, 0));
}

static void enabling_makes_ready_and_disabling_unready(void **state)
{
	(void)state;
	assert_int_equal(rawhost_read32(&host, GPUNVME_REG_CSTS), 0);
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
}

struct bad_enable {
	const char *what;
	uint32_t cc, aqa;
	uint64_t asq_add, acq_add;
};

static void illegal_enabling_is_fatal_until_reset(void **state)
{
	static const struct bad_enable bad[] = {
		{ "command set 1", 0x00460011, 0x000f000f, 0, 0 },
		{ "page size beyond MPSMAX", 0x00460281, 0x000f000f, 0, 0 },
		{ "arbitration", 0x00460801, 0x000f000f, 0, 0 },
		{ "IOSQES 5", 0x00450001, 0x000f000f, 0, 0 },
		{ "IOCQES 3", 0x00360001, 0x000f000f, 0, 0 },
		{ "submission queue of one", 0x00460001, 0x000f0000, 0, 0 },
		{ "completion queue of one", 0x00460001, 0x0000000f, 0, 0 },
		{ "ASQ not page aligned", 0x00460001, 0x000f000f, 64, 0 },
		{ "ACQ not page aligned", 0x00460001, 0x000f000f, 0, 64 },
		{ "ASQ not mapped", 0x00460001, 0x000f000f, 1ull << 40, 0 },
		{ "ACQ not mapped", 0x00460001, 0x000f000f, 0, 1ull << 40 },
	};
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		rawhost_write32(&host, GPUNVME_REG_AQA, bad[i].aqa);
		rawhost_write64(&host, GPUNVME_REG_ASQ, host.admin.sq_iova + bad[i].asq_add);
		rawhost_write64(&host, GPUNVME_REG_ACQ, host.admin.cq_iova + bad[i].acq_add);
		rawhost_write32(&host, GPUNVME_REG_CC, bad[i].cc);
		if (!rawhost_wait32(&host, GPUNVME_REG_CSTS, ~0u, GPUNVME_CSTS_CFS))
			fail_msg("%s: CSTS is 0x%x", bad[i].what, rawhost_read32(&host, GPUNVME_REG_CSTS));
		rawhost_write32(&host, GPUNVME_REG_CC, 0);
		assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, ~0u, 0));
	}
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
}

static void reset_forgets_queues(void **state)
{
	(void)state;
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, 4, 4), 0);
}

static void reset_clears_doorbells(void **state)
{
	(void)state;
	rawhost_ring_sq(&host, &host.io, 3);
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_read32(&host, 0x1000 + 8), 0);
}

static enum gnv_soft_action drop_all(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)cmd;
	(void)status;
	(void)delay_us;
	return GNV_SOFT_DROP;
}

static void reset_drops_commands_without_completion(void **state)
{
	struct gnv_soft_fault fault = { drop_all, NULL };
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);

	(void)state;
	gnv_soft_set_fault(host.soft, &fault);
	rawhost_submit(&host, &host.io, &sqe);
	assert_false(rawhost_reap(&host, &host.io, NULL, 20, true));
	assert_true(rawhost_disable(&host));
	assert_false(rawhost_reap(&host, &host.io, NULL, 20, true));
	/* nothing refers to the memory any more */
	assert_int_equal(host.space->ops->unmap(host.space, host.iova, RAWHOST_MEM), 0);
	assert_int_equal(host.space->ops->map(host.space, &host.mem, &host.iova), 0);
}

static void mapped_queue_memory_cannot_be_unmapped(void **state)
{
	(void)state;
	assert_int_equal(host.space->ops->unmap(host.space, host.iova, RAWHOST_MEM), -16);
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 }), 0);
}

static void shutdown_is_reported_done(void **state)
{
	(void)state;
	rawhost_write32(&host, GPUNVME_REG_CC, RAWHOST_CC_ENABLE | GPUNVME_CC_SHN_NORMAL);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_DONE));
	assert_int_equal(rawhost_read32(&host, GPUNVME_REG_CSTS), GPUNVME_CSTS_RDY | GPUNVME_CSTS_SHST_DONE);
}

static void abrupt_shutdown_is_reported_done(void **state)
{
	(void)state;
	rawhost_write32(&host, GPUNVME_REG_CC, RAWHOST_CC_ENABLE | GPUNVME_CC_SHN_ABRUPT);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_DONE));
}

static void shutdown_stops_commands_until_reset(void **state)
{
	struct gpunvme_sqe flush = { .opc = GPUNVME_IO_FLUSH, .nsid = 1 };

	(void)state;
	shutdown_is_reported_done(state);
	rawhost_submit(&host, &host.io, &flush);
	assert_false(rawhost_reap(&host, &host.io, NULL, 50, true));
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, 4, 4), 0);
	assert_int_equal(rawhost_io(&flush), 0);
}

static void shutdown_of_a_disabled_controller_is_reported_done(void **state)
{
	(void)state;
	rawhost_write32(&host, GPUNVME_REG_CC, GPUNVME_CC_SHN_NORMAL);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, ~0u, GPUNVME_CSTS_SHST_DONE));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
}

/* A thread of the controller that has begun with it, and takes longer than anybody waits for one that has not. */
static void *reset_slowly(void *arg)
{
	uint32_t *reset = &host.soft->function_reset, asked = GNV_SOFT_ASKED;

	while (!__atomic_compare_exchange_n(reset, &asked, GNV_SOFT_BEING_DONE, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		asked = GNV_SOFT_ASKED;
		sched_yield();
	}
	gnv_sleep_ms(200);
	*(bool *)arg = true;
	__atomic_store_n(reset, GNV_SOFT_UNASKED, __ATOMIC_RELEASE);
	return NULL;
}

static void a_reset_of_the_function_that_has_begun_is_waited_for(void **state)
{
	const uint32_t patience = host.soft->patience_ms;
	bool over = false, waited;
	pthread_t thread;
	int ret;

	(void)state;
	gnv_soft_server_lock(gnv_soft_threads(host.soft)->server[0]); /* the real one */
	host.soft->patience_ms = 50;
	assert_int_equal(pthread_create(&thread, NULL, reset_slowly, &over), 0);
	do { /* where the thread begins late it was taken back */
		ret = gnv_soft_function_reset(host.soft);
	} while (ret == -EIO);
	waited = over;
	pthread_join(thread, NULL);
	host.soft->patience_ms = patience;
	gnv_soft_server_unlock(gnv_soft_threads(host.soft)->server[0]);
	assert_int_equal(ret, 0);
	assert_true(waited);
}

static void doorbells_follow_the_stride(void **state)
{
	static const uint32_t strides[] = { 0, 3, 8 };
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(strides) / sizeof(strides[0]); i++) {
		c.dstrd = strides[i];
		rawhost_start(&host, &c);
		assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 }), 0);
		rawhost_close(&host);
	}
}

/* The event that a garbage doorbell causes: dword 0 of the completion. */
static uint32_t next_event(void)
{
	struct gpunvme_sqe aer = { .opc = GPUNVME_ADMIN_ASYNC_EVENT_REQUEST };
	struct gpunvme_cqe cqe;

	rawhost_submit(&host, &host.admin, &aer);
	assert_true(rawhost_reap(&host, &host.admin, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.status >> 1, 0);
	return cqe.dw0;
}

static void bad_sq_tail_is_ignored_and_reported(void **state)
{
	(void)state;
	rawhost_ring_sq(&host, &host.io, 0xffffffff);
	assert_int_equal(next_event(), 0x00010100);
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 }), 0);
}

static void sq_tail_of_exactly_the_size_is_refused(void **state)
{
	(void)state;
	rawhost_ring_sq(&host, &host.io, RAWHOST_ENTRIES);
	assert_int_equal(next_event(), 0x00010100);
}

static void cq_head_beyond_what_was_posted_is_refused(void **state)
{
	(void)state;
	rawhost_ring_cq(&host, &host.io, 5);
	assert_int_equal(next_event(), 0x00010100);
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 }), 0);
}

static void doorbell_of_no_queue_is_reported(void **state)
{
	struct rawhost_queue none = { .qid = 7 };

	(void)state;
	rawhost_ring_sq(&host, &none, 1);
	assert_int_equal(next_event(), 0x00010000);
}

#define TEST_DISABLED(f) cmocka_unit_test_setup_teardown(f, rawhost_setup_disabled, rawhost_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_DISABLED(version_is_1_4),
		cmocka_unit_test(cap_says_what_was_configured),
		TEST_DISABLED(read_only_registers_keep_their_values),
		TEST_DISABLED(enabling_makes_ready_and_disabling_unready),
		TEST_DISABLED(illegal_enabling_is_fatal_until_reset),
		RAWHOST_TEST(reset_forgets_queues),
		RAWHOST_TEST(reset_clears_doorbells),
		RAWHOST_TEST(reset_drops_commands_without_completion),
		RAWHOST_TEST(mapped_queue_memory_cannot_be_unmapped),
		RAWHOST_TEST(shutdown_is_reported_done),
		RAWHOST_TEST(abrupt_shutdown_is_reported_done),
		RAWHOST_TEST(shutdown_stops_commands_until_reset),
		TEST_DISABLED(shutdown_of_a_disabled_controller_is_reported_done),
		RAWHOST_TEST(a_reset_of_the_function_that_has_begun_is_waited_for),
		cmocka_unit_test(doorbells_follow_the_stride),
		RAWHOST_TEST(bad_sq_tail_is_ignored_and_reported),
		RAWHOST_TEST(sq_tail_of_exactly_the_size_is_refused),
		RAWHOST_TEST(cq_head_beyond_what_was_posted_is_refused),
		RAWHOST_TEST(doorbell_of_no_queue_is_reported),
	};

	return cmocka_run_group_tests_name("controller_regs", tests, NULL, NULL);
}
