/* SPDX-License-Identifier: MIT */
/* Opening, identifying and administering controllers that misbehave: each fault has its error, and leaves nothing behind. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fake.h"
#include "nvme/identify.h"
#include "util/mmio.h"

static void test_open(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_info(dev, &info), 0);
	assert_string_equal(info.model, "Fake Drive");
	assert_string_equal(info.serial, "S?N");
	assert_string_equal(info.firmware, "1.0");
	assert_string_equal(info.transport, "fake");
	assert_string_equal(info.address, "fake0");
	assert_int_equal(info.queues, 16);
	assert_int_equal(info.max_depth, 1024);
	assert_int_equal(info.max_transfer, 4096 << 5);
	assert_int_equal(info.page_size, 4096);
	assert_int_equal(info.vs, 0x10400);
	assert_int_equal(info.size, sizeof(info));
	info.size--;
	assert_int_equal(gpunvme_dev_info(dev, &info), -EINVAL);
	assert_int_equal(gpunvme_dev_info(NULL, &info), -EINVAL);
	assert_null(gnv_dev_soft(dev));
	gpunvme_dev_close(dev);
	gpunvme_dev_close(NULL);
	assert_int_equal(fake->maps, 0);
	assert_int_equal(fake->halted, 0);
	assert_int_equal(gnv_mmio_read32(fake->bar + GPUNVME_REG_CC) & GPUNVME_CC_EN, 0);
	fake_delete(fake, false);
}

/* Capabilities that cannot be used, each refused before anything is written. */
static void test_capabilities(void **state)
{
	static const struct {
		uint64_t cap;
		int ret;
	} table[] = {
		{ FAKE_CAP & ~GPUNVME_CAP_CSS_NVM, -EOPNOTSUPP }, /* no NVM command set */
		{ FAKE_CAP | 2ull << 48, -EOPNOTSUPP },		  /* MPSMIN above MPSMAX */
		{ FAKE_CAP & ~GPUNVME_CAP_MQES_0B, -EOPNOTSUPP }, /* queues of one entry */
		{ FAKE_CAP | 15ull << 32, -EOPNOTSUPP },	  /* doorbells outside BAR0 */
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct fake *fake = fake_new();
		struct gpunvme_dev *dev;

		fake_set_cap(fake, table[i].cap);
		assert_int_equal(fake_open(fake, &dev), table[i].ret);
		assert_int_equal(gnv_mmio_read32(fake->bar + GPUNVME_REG_CC), 0);
		fake_delete(fake, false);
	}
}

static void test_larger_pages(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	int ret;

	(void)state;
	fake_set_cap(fake, FAKE_CAP | 1ull << 48 | 4ull << 52); /* 8 KiB to 64 KiB */
	ret = fake_open(fake, &dev);
	if (ret == -EOPNOTSUPP) { /* the chunk happened to lie at an odd page */
		fake_delete(fake, false);
		return;
	}
	assert_int_equal(ret, 0);
	assert_int_equal(gpunvme_dev_info(dev, &info), 0);
	assert_int_equal(info.page_size, 8192);
	assert_int_equal(info.max_transfer, 8192 << 5);
	assert_int_equal(gnv_mmio_read32(fake->bar + GPUNVME_REG_CC) & GPUNVME_CC_MPS, 1 << 7);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

static void test_faults_at_open(void **state)
{
	static const struct {
		enum fake_fault fault;
		int ret;
		uint8_t opc;
	} table[] = {
		{ FAKE_NEVER_READY, -ETIMEDOUT, 0 },
		{ FAKE_FATAL_AT_ENABLE, -EIO, 0 },
		{ FAKE_GONE_AT_ENABLE, -ENODEV, 0 },
		{ FAKE_SILENT, -ETIMEDOUT, GPUNVME_ADMIN_IDENTIFY },
		{ FAKE_WRONG_CID, -EPROTO, GPUNVME_ADMIN_IDENTIFY },
		{ FAKE_WRONG_SQID, -EPROTO, GPUNVME_ADMIN_IDENTIFY },
		{ FAKE_WRONG_SQHD, -EPROTO, GPUNVME_ADMIN_IDENTIFY },
		{ FAKE_FATAL, -ENODEV, GPUNVME_ADMIN_IDENTIFY },
		{ FAKE_GONE, -ENODEV, GPUNVME_ADMIN_IDENTIFY },
		{ FAKE_STATUS, GPUNVME_SC_INTERNAL | GPUNVME_ST_DNR, GPUNVME_ADMIN_IDENTIFY },
		{ FAKE_STATUS, GPUNVME_SC_INTERNAL | GPUNVME_ST_DNR, GPUNVME_ADMIN_SET_FEATURES },
		{ FAKE_SILENT, -ETIMEDOUT, GPUNVME_ADMIN_SET_FEATURES },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct fake *fake = fake_new();
		struct gpunvme_dev *dev = NULL;

		fake->fault = table[i].fault;
		fake->fault_opc = table[i].opc;
		fake->status = GPUNVME_SC_INTERNAL | GPUNVME_ST_DNR;
		if (fake_open(fake, &dev) != table[i].ret)
			fail_msg("case %zu: %s", i, gpunvme_errmsg());
		assert_null(dev);
		assert_true(strlen(gpunvme_errmsg()) > 20);
		fake_delete(fake, false);
	}
}

static void test_gone_from_the_start(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	pthread_mutex_lock(&fake->lock);
	memset(fake->bar, 0xff, 0x40);
	fake->cc = ~0u; /* its thread must not take that for a command to start */
	pthread_mutex_unlock(&fake->lock);
	assert_int_equal(fake_open(fake, &dev), -ENODEV);
	fake_delete(fake, false);
}

/* Insane Identify data ends in an error or is cut to size, never in a broken device. */
static void test_insane_identify(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct fake *fake;
	struct gpunvme_dev *dev;
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++) {
		static const uint8_t sizes[4][2] = { { 0x77, 0x44 }, { 0x55, 0x44 }, { 0x66, 0x55 }, { 0x00, 0x00 } };

		fake = fake_new();
		fake->id.sqes = sizes[i][0];
		fake->id.cqes = sizes[i][1];
		assert_int_equal(fake_open(fake, &dev), -EOPNOTSUPP);
		fake_delete(fake, false);
	}
	fake = fake_new();
	memset(&fake->id, 0xff, sizeof(fake->id));
	fake->id.sqes = 0x66;
	fake->id.cqes = 0x44;
	fake->granted = 0xffffffff;
	fake->no_shutdown = false;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_info(dev, &info), 0);
	assert_int_equal(strlen(info.model), 40);
	assert_int_equal(info.model[0], '?');
	assert_int_equal(info.max_transfer, 1u << 31);
	assert_int_equal(info.queues, 128);
	assert_int_equal(info.sgl, 0); /* 3 is reserved */
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

/* Deadlines come from the controller, but no longer than a man waits. */
static void test_deadlines(void **state)
{
	struct fake *fake = fake_new();
	struct gnv_ctrl ctrl;

	(void)state;
	fake_set_cap(fake, FAKE_CAP & ~GPUNVME_CAP_TO);
	assert_int_equal(gnv_ctrl_init(&ctrl, &fake->bar0), 0);
	assert_int_equal(ctrl.ready_ms, 500);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CRTO, 7);
	assert_int_equal(gnv_ctrl_init(&ctrl, &fake->bar0), 0);
	assert_int_equal(ctrl.ready_ms, 500); /* CRTO does not count */
	fake_set_cap(fake, FAKE_CAP | 1ull << 59);
	assert_int_equal(gnv_ctrl_init(&ctrl, &fake->bar0), 0);
	assert_int_equal(ctrl.ready_ms, 3500);
	assert_int_equal(ctrl.disable_ms, 500);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CRTO, 0xffff);
	assert_int_equal(gnv_ctrl_init(&ctrl, &fake->bar0), 0);
	assert_int_equal(ctrl.ready_ms, 600000);
	fake->closed = 1;
	fake_delete(fake, false);
}

static void test_strings(void **state)
{
	char out[9];

	(void)state;
	gnv_identify_string("        ", 8, out);
	assert_string_equal(out, "");
	gnv_identify_string("ab\0c  \0\0", 8, out);
	assert_string_equal(out, "ab?c");
	gnv_identify_string("\x80\xff\x7f%n%s~", 8, out);
	assert_string_equal(out, "???%n%s~");
}

static void test_queue_count(void **state)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	fake->granted = 2 | 9 << 16; /* 3 SQs, 10 CQs */
	opts.queues = 8;
	assert_int_equal(gnv_dev_create(&fake->port, &opts, 1, &dev), 0);
	assert_int_equal(fake->last.cdw11, 7 | 7 << 16);
	assert_int_equal(gpunvme_dev_info(dev, &info), 0);
	assert_int_equal(info.queues, 3);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
	opts.queues = 70000;
	assert_int_equal(gpunvme_dev_open("soft:/nonexistent", &opts, &dev), -EINVAL);
	assert_int_equal(gpunvme_dev_open(NULL, NULL, &dev), -EINVAL);
	assert_int_equal(gpunvme_dev_open("soft:x", NULL, NULL), -EINVAL);
}

static void test_namespaces(void **state)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	uint32_t list[4] = { 0 }, count = 4, i;
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	fake->id.nn = FAKE_MAX_NS;
	fake->ns_list = calloc(FAKE_MAX_NS, sizeof(*fake->ns_list));
	fake->ns_count = 2050; /* three pages of the list */
	for (i = 0; i < fake->ns_count; i++)
		fake->ns_list[i] = i + 1 + (i > 1);
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_ns_list(dev, list, &count), 0);
	assert_int_equal(count, 2050);
	assert_int_equal(list[1], 2);
	assert_int_equal(list[2], 4);
	count = 0;
	assert_int_equal(gpunvme_ns_list(dev, NULL, &count), 0);
	assert_int_equal(count, 2050);
	assert_int_equal(gpunvme_ns_list(dev, NULL, &count), -EINVAL);
	count = 4;
	assert_int_equal(gpunvme_ns_list(dev, list, NULL), -EINVAL);
	assert_int_equal(gpunvme_ns_list(NULL, list, &count), -EINVAL);
	fake->ns_list[5] = 3; /* not in order */
	count = 4;
	assert_int_equal(gpunvme_ns_list(dev, list, &count), -EPROTO);

	assert_int_equal(gpunvme_ns_info(dev, 0, &ns), 0);
	assert_int_equal(ns.nsid, 1);
	assert_int_equal(ns.lba_size, 512);
	assert_int_equal(ns.nblocks, 1000);
	assert_int_equal(ns.read_only, 0);
	fake->ns.nsattr = 1;
	assert_int_equal(gpunvme_ns_info(dev, 7, &ns), 0);
	assert_int_equal(ns.read_only, 1);
	assert_int_equal(gpunvme_ns_info(dev, FAKE_MAX_NS + 1, &ns), -ENOENT);
	assert_int_equal(gpunvme_ns_info(dev, GPUNVME_NSID_ALL, &ns), -ENOENT);
	assert_int_equal(gpunvme_ns_info(dev, 1, NULL), -EINVAL);
	assert_int_equal(gpunvme_ns_info(NULL, 1, &ns), -EINVAL);
	ns.size = 4;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -EINVAL);
	gpunvme_dev_close(dev);
	free(fake->ns_list);
	fake_delete(fake, false);
}

static void test_insane_namespace(void **state)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	fake->ns.lbaf[0].lbads = 8;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -EOPNOTSUPP);
	fake->ns.lbaf[0].lbads = 63;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -EOPNOTSUPP);
	fake->ns.lbaf[0].lbads = 12;
	fake->ns.lbaf[0].ms = 8;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -EOPNOTSUPP);
	fake->ns.lbaf[0].ms = 0;
	fake->ns.flbas = 1; /* of one format */
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -EPROTO);
	fake->ns.flbas = 0x60; /* the high bits do not count */
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), 0);
	fake->ns.nlbaf_0b = 255;
	fake->ns.flbas = 0x6f;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -EOPNOTSUPP); /* format 63 is empty */
	fake->ns.flbas = 0;
	fake->ns.nsze = ~0ull;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -EPROTO);
	fake->ns.nsze = 0;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -ENOENT);
	fake->fault_opc = GPUNVME_ADMIN_IDENTIFY;
	fake->status = GPUNVME_SC_INVALID_NS | GPUNVME_ST_DNR;
	fake->fault = FAKE_STATUS;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), -ENOENT);
	fake->status = GPUNVME_SC_INTERNAL;
	assert_int_equal(gpunvme_ns_info(dev, 1, &ns), GPUNVME_SC_INTERNAL);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_capabilities),
		cmocka_unit_test(test_larger_pages),
		cmocka_unit_test(test_faults_at_open),
		cmocka_unit_test(test_gone_from_the_start),
		cmocka_unit_test(test_insane_identify),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_queue_count),
		cmocka_unit_test(test_namespaces),
		cmocka_unit_test(test_insane_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
