/* SPDX-License-Identifier: MIT */
/*
 * Controllers that do not take what others do (fault=sqe-128, one-command, shared-tags, few-cids, addr-48): up to there they are
 * like any other, beyond it they err as they say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/status.h>

#include "common/rawhost.h"

static struct rawhost h;

static void start(const char *text)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

	if (gnv_soft_fault_parse(text, &config.quirks, &config.rules))
		fail_msg("%s: %s", text, gpunvme_errmsg());
	rawhost_start(&h, &config);
}

static struct gpunvme_sqe read_block(uint64_t lba)
{
	return rawhost_rw(&h, GPUNVME_IO_READ, lba, 1, 0);
}

static void put(struct rawhost_queue *q, uint16_t cid, struct gpunvme_sqe sqe)
{
	q->next_cid = cid;
	rawhost_put(q, &sqe);
}

static bool is_dead(void)
{
	return rawhost_read32(&h, GPUNVME_REG_CSTS) & GPUNVME_CSTS_CFS;
}

static void wait_for_death(void)
{
	rawhost_wait32(&h, GPUNVME_REG_CSTS, GPUNVME_CSTS_CFS, GPUNVME_CSTS_CFS);
	assert_true(is_dead());
}

static void dies(void)
{
	wait_for_death();
	rawhost_close(&h);
}

static void serves(void)
{
	struct gpunvme_sqe sqe = read_block(0);

	h.io.next_cid = 0;
	assert_int_equal(rawhost_run(&h, &h.io, &sqe, NULL), 0);
	assert_false(is_dead());
	rawhost_close(&h);
}

/* Of three entries it takes the first and the third for one and two; what stands between is never run. */
static void entries_are_twice_as_long(void **state)
{
	struct gpunvme_cqe cqe;

	(void)state;
	start("sqe-128");
	rawhost_fill(&h, 0, 512, 1);
	h.io.sq[0] = read_block(0);
	h.io.sq[1] = rawhost_rw(&h, GPUNVME_IO_WRITE, 5, 1, 0);
	h.io.sq[2] = read_block(1);
	h.io.sq[0].cid = 70;
	h.io.sq[1].cid = 71;
	h.io.sq[2].cid = 72;
	rawhost_ring_sq(&h, &h.io, 2);
	assert_true(rawhost_reap(&h, &h.io, &cqe, RAWHOST_SOON, true));
	assert_true(cqe.cid == 70 || cqe.cid == 72);
	assert_true(rawhost_reap(&h, &h.io, &cqe, RAWHOST_SOON, true));
	assert_true(cqe.cid == 70 || cqe.cid == 72);
	assert_int_equal(cqe.sqhd, 2);
	assert_int_equal(rawhost_run(&h, &h.admin, &(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = 7 }, NULL), 0);
	rawhost_close(&h);
}

/* A ring that ends before such entries do is none: the controller reads no memory that it was not given. */
static void a_ring_that_is_too_short(void **state)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_CREATE_CQ, .cdw10 = 2 | 15u << 16, .cdw11 = GPUNVME_QUEUE_PC };

	(void)state;
	start("sqe-128");
	sqe.prp1 = rawhost_iova(&h, RAWHOST_MEM - RAWHOST_DATA - 8192);
	assert_int_equal(rawhost_run(&h, &h.admin, &sqe, NULL), 0);
	sqe.opc = GPUNVME_ADMIN_CREATE_SQ;
	sqe.cdw10 = 2 | 63u << 16; /* 4 KiB of entries, 8 as it takes them */
	sqe.cdw11 |= 2u << 16;
	sqe.prp1 = rawhost_iova(&h, RAWHOST_MEM - RAWHOST_DATA - 4096);
	assert_int_equal(rawhost_run(&h, &h.admin, &sqe, NULL), GPUNVME_SC_DATA_TRANSFER);
	serves();
}

static void one_at_a_time(void **state)
{
	(void)state;
	start("one-command");
	for (unsigned i = 0; i < 40; i++) {
		struct gpunvme_sqe sqe = read_block(i);

		assert_int_equal(rawhost_run(&h, &h.io, &sqe, NULL), 0);
	}
	serves();
	start("one-command");
	put(&h.io, 1, read_block(0));
	put(&h.io, 2, read_block(1));
	rawhost_ring_sq(&h, &h.io, h.io.tail);
	dies();
}

/* The same identifier in two queues, one of them the admin queue, where a request for events stays. */
static void start_shared(void)
{
	start("shared-tags");
	put(&h.admin, 9, (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_ASYNC_EVENT_REQUEST });
	/* The end of the next one says that it was fetched. */
	assert_int_equal(rawhost_run(&h, &h.admin, &(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = 7 }, NULL), 0);
}

static void identifiers_of_all_queues(void **state)
{
	(void)state;
	start_shared();
	serves();
	start_shared();
	put(&h.io, 9, read_block(0));
	rawhost_ring_sq(&h, &h.io, h.io.tail);
	dies();
}

static void identifiers_below_a_limit(void **state)
{
	struct gpunvme_sqe sqe;

	(void)state;
	start("few-cids:16");
	sqe = read_block(3);
	h.io.next_cid = 15;
	assert_int_equal(rawhost_run(&h, &h.io, &sqe, NULL), 0);
	h.admin.next_cid = 0x8000; /* it is the I/O queues' */
	assert_int_equal(rawhost_run(&h, &h.admin, &(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = 7 }, NULL), 0);
	serves();
	start("few-cids:16");
	put(&h.io, 16, read_block(3));
	rawhost_ring_sq(&h, &h.io, h.io.tail);
	dies();
}

/* A reset ends what was counted with what was in flight. */
static void a_reset_forgets(void **state)
{
	(void)state;
	start("one-command,shared-tags");
	put(&h.io, 1, read_block(0));
	put(&h.io, 2, read_block(1));
	rawhost_ring_sq(&h, &h.io, h.io.tail);
	wait_for_death();
	assert_true(rawhost_disable(&h));
	assert_int_equal(rawhost_enable(&h) & (GPUNVME_CSTS_RDY | GPUNVME_CSTS_CFS), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&h, &h.io, 1, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
	serves();
}

/* Bits that it has not are no bits: memory above 2^48 is elsewhere for it, where nothing is mapped. */
static void addresses_of_48_bits(void **state)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

	(void)state;
	assert_int_equal(gnv_soft_fault_parse("addr-48", &config.quirks, &config.rules), 0);
	assert_int_equal(rawhost_open(&h, &config), 0);
	assert_true(h.iova >= 1ull << 48);
	assert_true(rawhost_enable(&h) & GPUNVME_CSTS_CFS);
	rawhost_close(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_are_twice_as_long), cmocka_unit_test(a_ring_that_is_too_short),
		cmocka_unit_test(one_at_a_time),	     cmocka_unit_test(identifiers_of_all_queues),
		cmocka_unit_test(identifiers_below_a_limit), cmocka_unit_test(a_reset_forgets),
		cmocka_unit_test(addresses_of_48_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
