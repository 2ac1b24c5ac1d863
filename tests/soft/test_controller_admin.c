/* SPDX-License-Identifier: MIT */
/* Admin commands: queues, Identify, features. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/rawhost.h"

struct admin_case {
	const char *what;
	struct gpunvme_sqe sqe;
	uint16_t status;
	uint64_t prp_add; /* PRP1 = data + this; UINT64_MAX: an unmapped address */
};

#define UNMAPPED UINT64_MAX
#define SIZE(n) ((n)-1u) << 16

static void run_table(const struct admin_case *c, size_t n)
{
	struct gpunvme_sqe sqe;
	uint16_t status;

	for (; n; n--, c++) {
		sqe = c->sqe;
		sqe.prp1 = c->prp_add == UNMAPPED ? 0x1000 : rawhost_iova(&host, 0) + c->prp_add;
		status = rawhost_admin(&sqe, NULL);
		if (status != c->status)
			fail_msg("%s: status 0x%x instead of 0x%x", c->what, status, c->status);
	}
}

static void bad_queue_commands_get_their_status(void **state)
{
	/* 8 queues of at most 64 entries are offered; 2 exists as completion queue, 1 as a pair */
	static const struct admin_case cases[] = {
		{ "CQ 0", { .opc = 5, .cdw10 = SIZE(4) | 0, .cdw11 = 1 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "CQ 9 of 8", { .opc = 5, .cdw10 = SIZE(4) | 9, .cdw11 = 1 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "CQ 65535", { .opc = 5, .cdw10 = SIZE(4) | 0xffff, .cdw11 = 1 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "CQ 1 again", { .opc = 5, .cdw10 = SIZE(4) | 1, .cdw11 = 1 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "CQ of one entry", { .opc = 5, .cdw10 = SIZE(1) | 3, .cdw11 = 1 }, GPUNVME_SC_INVALID_QUEUE_SIZE, 0 },
		{ "CQ beyond MQES", { .opc = 5, .cdw10 = SIZE(65) | 3, .cdw11 = 1 }, GPUNVME_SC_INVALID_QUEUE_SIZE, 0 },
		{ "CQ in pieces", { .opc = 5, .cdw10 = SIZE(4) | 3, .cdw11 = 0 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "CQ with interrupt vector", { .opc = 5, .cdw10 = SIZE(4) | 3, .cdw11 = 0x10003 }, GPUNVME_SC_INVALID_VECTOR, 0 },
		{ "CQ with an offset", { .opc = 5, .cdw10 = SIZE(4) | 3, .cdw11 = 1 }, GPUNVME_SC_INVALID_PRP_OFFSET, 16 },
		{ "CQ nowhere", { .opc = 5, .cdw10 = SIZE(4) | 3, .cdw11 = 1 }, GPUNVME_SC_DATA_TRANSFER, UNMAPPED },
		{ "CQ over the end",
		  { .opc = 5, .cdw10 = SIZE(64) | 3, .cdw11 = 1 },
		  GPUNVME_SC_DATA_TRANSFER,
		  RAWHOST_MEM - RAWHOST_DATA },
		{ "SQ 0", { .opc = 1, .cdw10 = SIZE(4) | 0, .cdw11 = 0x20001 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "SQ 9 of 8", { .opc = 1, .cdw10 = SIZE(4) | 9, .cdw11 = 0x20001 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "SQ 1 again", { .opc = 1, .cdw10 = SIZE(4) | 1, .cdw11 = 0x20001 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "SQ on CQ 0", { .opc = 1, .cdw10 = SIZE(4) | 2, .cdw11 = 0x00001 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "SQ on CQ 9 of 8", { .opc = 1, .cdw10 = SIZE(4) | 2, .cdw11 = 0x90001 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "SQ on no CQ", { .opc = 1, .cdw10 = SIZE(4) | 2, .cdw11 = 0x50001 }, GPUNVME_SC_CQ_INVALID, 0 },
		{ "SQ of one entry", { .opc = 1, .cdw10 = SIZE(1) | 2, .cdw11 = 0x20001 }, GPUNVME_SC_INVALID_QUEUE_SIZE, 0 },
		{ "SQ beyond MQES", { .opc = 1, .cdw10 = SIZE(65) | 2, .cdw11 = 0x20001 }, GPUNVME_SC_INVALID_QUEUE_SIZE, 0 },
		{ "SQ in pieces", { .opc = 1, .cdw10 = SIZE(4) | 2, .cdw11 = 0x20000 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "SQ with an offset", { .opc = 1, .cdw10 = SIZE(4) | 2, .cdw11 = 0x20001 }, GPUNVME_SC_INVALID_PRP_OFFSET, 512 },
		{ "SQ nowhere", { .opc = 1, .cdw10 = SIZE(4) | 2, .cdw11 = 0x20001 }, GPUNVME_SC_DATA_TRANSFER, UNMAPPED },
		{ "delete CQ in use", { .opc = 4, .cdw10 = 1 }, GPUNVME_SC_INVALID_QUEUE_DELETION, 0 },
		{ "delete CQ 0", { .opc = 4, .cdw10 = 0 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "delete no CQ", { .opc = 4, .cdw10 = 5 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "delete CQ 65535", { .opc = 4, .cdw10 = 0xffff }, GPUNVME_SC_INVALID_QID, 0 },
		{ "delete SQ 0", { .opc = 0, .cdw10 = 0 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "delete no SQ", { .opc = 0, .cdw10 = 2 }, GPUNVME_SC_INVALID_QID, 0 },
		{ "delete SQ 65535", { .opc = 0, .cdw10 = 0xffff }, GPUNVME_SC_INVALID_QID, 0 },
		{ "delete SQ", { .opc = 0, .cdw10 = 1 }, 0, 0 },
		{ "delete CQ", { .opc = 4, .cdw10 = 1 }, 0, 0 },
		{ "delete CQ again", { .opc = 4, .cdw10 = 1 }, GPUNVME_SC_INVALID_QID, 0 },
	};
	struct gpunvme_sqe cq2 = { .opc = 5, .prp1 = rawhost_iova(&host, 0x8000), .cdw10 = SIZE(4) | 2, .cdw11 = 1 };

	(void)state;
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, 4, 4), 0);
	assert_int_equal(rawhost_admin(&cq2, NULL), 0);
	run_table(cases, sizeof(cases) / sizeof(cases[0]));
}

static void bad_admin_commands_get_their_status(void **state)
{
	static const struct admin_case cases[] = {
		{ "unknown opcode", { .opc = 0x7f }, GPUNVME_SC_INVALID_OPCODE, 0 },
		{ "fused", { .opc = 6, .flags = 1, .cdw10 = 1 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "SGL", { .opc = 6, .flags = 0x40, .cdw10 = 1 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "CNS 0x55", { .opc = 6, .cdw10 = 0x55 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "namespace 0", { .opc = 6, .nsid = 0, .cdw10 = 0 }, GPUNVME_SC_INVALID_NS, 0 },
		{ "namespace 2", { .opc = 6, .nsid = 2, .cdw10 = 0 }, GPUNVME_SC_INVALID_NS, 0 },
		{ "descriptors of 2", { .opc = 6, .nsid = 2, .cdw10 = 3 }, GPUNVME_SC_INVALID_NS, 0 },
		{ "list from all", { .opc = 6, .nsid = 0xffffffff, .cdw10 = 2 }, GPUNVME_SC_INVALID_NS, 0 },
		{ "identify nowhere", { .opc = 6, .cdw10 = 1 }, GPUNVME_SC_DATA_TRANSFER, UNMAPPED },
		{ "identify misaligned", { .opc = 6, .cdw10 = 1 }, GPUNVME_SC_INVALID_PRP_OFFSET, 2 },
		{ "log 0x77", { .opc = 2, .cdw10 = 0x007f0077 }, GPUNVME_SC_INVALID_LOG_PAGE, 0 },
		{ "log of a namespace", { .opc = 2, .nsid = 1, .cdw10 = 0x007f0002 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "log offset odd", { .opc = 2, .cdw10 = 0x007f0002, .cdw12 = 2 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "log offset beyond", { .opc = 2, .cdw10 = 0x007f0002, .cdw12 = 516 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "log of 16 GiB", { .opc = 2, .cdw10 = 0xffff0002, .cdw11 = 0xffff }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "abort on no queue", { .opc = 8, .cdw10 = 5 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "set feature 0x7e", { .opc = 9, .cdw10 = 0x7e }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "get feature 0x7e", { .opc = 10, .cdw10 = 0x7e }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "get with SEL 5", { .opc = 10, .cdw10 = 0x506 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "save a feature", { .opc = 9, .cdw10 = 0x80000006 }, GPUNVME_SC_FEATURE_NOT_SAVEABLE, 0 },
		{ "feature of a namespace", { .opc = 9, .nsid = 1, .cdw10 = 6 }, GPUNVME_SC_FEATURE_NOT_NS, 0 },
		{ "power state 1", { .opc = 9, .cdw10 = 2, .cdw11 = 1 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "write cache 2", { .opc = 9, .cdw10 = 6, .cdw11 = 2 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "temperature of sensor 3", { .opc = 9, .cdw10 = 4, .cdw11 = 0x30000 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "unwritten-block errors", { .opc = 9, .cdw10 = 5, .cdw11 = 0x10000 }, GPUNVME_SC_INVALID_FIELD, 0 },
		{ "65536 queues", { .opc = 9, .cdw10 = 7, .cdw11 = 0xffff }, GPUNVME_SC_INVALID_FIELD, 0 },
	};

	(void)state;
	run_table(cases, sizeof(cases) / sizeof(cases[0]));
}

static void identify_controller_says_what_it_can(void **state)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = 1, .prp1 = rawhost_iova(&host, 0) };
	const struct gpunvme_id_ctrl *id = (const void *)rawhost_data(&host, 0);

	(void)state;
	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	assert_memory_equal(id->mn, "libgpunvme soft controller ", 27);
	assert_int_equal(id->mdts, 8);
	assert_int_equal(id->sqes, 0x66);
	assert_int_equal(id->cqes, 0x44);
	assert_int_equal(id->nn, 1);
	assert_int_equal(id->ver, 0x00010400);
	assert_int_equal(id->oncs & 0xd, 0xd);
	assert_int_equal(id->vwc & 1, 1);
	assert_int_equal(id->sgls & 3, 2);
	assert_int_equal(id->sgls >> 18 & 1, 1); /* one may be longer than the data */
	assert_int_equal(id->lpa & 6, 6);
	assert_int_equal(id->vid, 0x1b36);
	assert_int_equal(id->ssvid, 0x1b36);
}

static void identify_over_two_pages_lands_in_both(void **state)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY,
				   .cdw10 = 1,
				   .prp1 = rawhost_iova(&host, 4096 - 64),
				   .prp2 = rawhost_iova(&host, 16384) };

	(void)state;
	rawhost_fill(&host, 0, 32768, 1);
	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	assert_memory_equal(rawhost_data(&host, 4096 - 64 + 24), "libgpunvme soft controller", 26);
	assert_int_equal(*(uint8_t *)rawhost_data(&host, 16384 + 512 - 64), 0x66);
	assert_true(rawhost_is_filled(&host, 0, 4096 - 64, 1)); /* and nowhere else */
}

static void identify_namespace_has_size_and_format(void **state)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = 1, .prp1 = rawhost_iova(&host, 0) };
	const struct gpunvme_id_ns *id = (const void *)rawhost_data(&host, 0);

	(void)state;
	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	assert_int_equal(id->nsze, RAWHOST_IMAGE / 512);
	assert_int_equal(id->nlbaf_0b, 0);
	assert_int_equal(id->lbaf[0].lbads, 9);
	assert_int_equal(id->nsattr, 0);
}

static void active_namespaces_are_one(void **state)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = 2, .prp1 = rawhost_iova(&host, 0) };
	uint32_t *list = (void *)rawhost_data(&host, 0);

	(void)state;
	rawhost_fill(&host, 0, 4096, 3);
	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	assert_int_equal(list[0], 1);
	assert_int_equal(list[1], 0);
	sqe.nsid = 1;
	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	assert_int_equal(list[0], 0);
}

static void descriptors_repeat_the_names_of_the_namespace(void **state)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = 1, .cdw10 = 3, .prp1 = rawhost_iova(&host, 0) };
	const struct gpunvme_id_ns *id = (const void *)rawhost_data(&host, 4096);
	const uint8_t *list = (const void *)rawhost_data(&host, 0);

	(void)state;
	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	sqe.cdw10 = 0;
	sqe.prp1 = rawhost_iova(&host, 4096);
	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	assert_int_equal(list[0], 1);
	assert_memory_equal(list + 4, id->eui64, 8);
	assert_int_equal(list[12], 2);
	assert_memory_equal(list + 16, id->nguid, 16);
	assert_int_equal(list[32], 0);
}

static uint32_t get_feature(uint32_t cdw10, uint32_t cdw11)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = cdw10, .cdw11 = cdw11 };
	struct gpunvme_cqe cqe;

	assert_int_equal(rawhost_admin(&sqe, &cqe), 0);
	return cqe.dw0;
}

static uint16_t set_feature(uint32_t fid, uint32_t value, uint32_t *dw0)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = fid, .cdw11 = value };
	struct gpunvme_cqe cqe;
	uint16_t status = rawhost_admin(&sqe, &cqe);

	if (dw0)
		*dw0 = cqe.dw0;
	return status;
}

static void queue_numbers_are_granted_up_to_the_offer(void **state)
{
	uint32_t dw0;

	(void)state;
	assert_int_equal(set_feature(7, 2u << 16 | 3, &dw0), 0);
	assert_int_equal(dw0, 2u << 16 | 3);
	assert_int_equal(set_feature(7, 100u << 16 | 100, &dw0), 0);
	assert_int_equal(dw0, 7u << 16 | 7);
	assert_int_equal(get_feature(7, 0), 7u << 16 | 7);
}

static void queue_identifiers_beyond_the_grant_are_refused(void **state)
{
	(void)state;
	assert_int_equal(set_feature(7, 1u << 16 | 1, NULL), 0);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 3, 4, 4), GPUNVME_SC_INVALID_QID);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 2, 4, 4), 0);
}

static void queue_numbers_are_fixed_once_queues_exist(void **state)
{
	(void)state;
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, 4, 4), 0);
	assert_int_equal(set_feature(7, 0, NULL), GPUNVME_SC_COMMAND_SEQUENCE);
}

static void features_are_kept_and_defaults_remembered(void **state)
{
	(void)state;
	assert_int_equal(get_feature(6, 0), 1);
	assert_int_equal(set_feature(6, 0, NULL), 0);
	assert_int_equal(get_feature(6, 0), 0);
	assert_int_equal(get_feature(6 | 1 << 8, 0), 1); /* default */
	assert_int_equal(get_feature(6 | 2 << 8, 0), 1); /* saved: cannot be, so the default */
	assert_int_equal(get_feature(6 | 3 << 8, 0), 4); /* changeable, not saveable, not of a namespace */
	assert_int_equal(set_feature(4, 330, NULL), 0);
	assert_int_equal(set_feature(4, 0x100000 | 270, NULL), 0);
	assert_int_equal(get_feature(4, 0), 330);
	assert_int_equal(get_feature(4, 0x100000), 270);
	assert_int_equal(set_feature(5, 7, NULL), 0);
	assert_int_equal(get_feature(5, 0), 7);
}

/* Base Specification 1.4: figure of feature identifiers, of an I/O controller. */
static void mandatory_features_are_there(void **state)
{
	static const uint8_t fids[] = { 1, 2, 4, 5, 7, 8, 10, 11 };
	uint32_t value;
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(fids); i++) {
		value = get_feature(fids[i], 0);
		assert_int_equal(set_feature(fids[i], value, NULL), 0);
		assert_int_equal(get_feature(fids[i], 0), value);
	}
	assert_int_equal(get_feature(9 | 3 << 8, 0), 4); /* of a vector, which exists with interrupts */
	assert_int_equal(set_feature(10, 1, NULL), 0);
	assert_int_equal(get_feature(10, 0), 1);
	assert_int_equal(get_feature(10 | 1 << 8, 0), 0);
	assert_int_equal(set_feature(10, 2, NULL), GPUNVME_SC_INVALID_FIELD);
}

static void reset_restores_features(void **state)
{
	(void)state;
	assert_int_equal(set_feature(6, 0, NULL), 0);
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(get_feature(6, 0), 1);
}

static void new_queues_start_with_cleared_doorbells(void **state)
{
	struct gpunvme_sqe flush = { .opc = GPUNVME_IO_FLUSH, .nsid = 1 };
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		assert_int_equal(rawhost_create_pair(&host, &host.io, 1, 4, 4), 0);
		assert_int_equal(rawhost_io(&flush), 0);
		assert_int_equal(rawhost_io(&flush), 0);
		assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 0, .cdw10 = 1 }, NULL), 0);
		assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = 4, .cdw10 = 1 }, NULL), 0);
	}
}

#define TEST_ENABLED(f) cmocka_unit_test_prestate_setup_teardown(f, rawhost_setup_enabled, rawhost_teardown, &eight)

int main(void)
{
	struct gnv_soft_config eight = GNV_SOFT_CONFIG_INIT;
	const struct CMUnitTest tests[] = {
		TEST_ENABLED(bad_queue_commands_get_their_status),
		TEST_ENABLED(bad_admin_commands_get_their_status),
		TEST_ENABLED(identify_controller_says_what_it_can),
		TEST_ENABLED(identify_over_two_pages_lands_in_both),
		TEST_ENABLED(identify_namespace_has_size_and_format),
		TEST_ENABLED(active_namespaces_are_one),
		TEST_ENABLED(descriptors_repeat_the_names_of_the_namespace),
		TEST_ENABLED(queue_numbers_are_granted_up_to_the_offer),
		TEST_ENABLED(queue_identifiers_beyond_the_grant_are_refused),
		TEST_ENABLED(queue_numbers_are_fixed_once_queues_exist),
		TEST_ENABLED(features_are_kept_and_defaults_remembered),
		TEST_ENABLED(mandatory_features_are_there),
		TEST_ENABLED(reset_restores_features),
		TEST_ENABLED(new_queues_start_with_cleared_doorbells),
	};

	eight.queues = 8;
	eight.vendor = 0x1b36;
	eight.depth = 64;
	return cmocka_run_group_tests_name("controller_admin", tests, NULL, NULL);
}
