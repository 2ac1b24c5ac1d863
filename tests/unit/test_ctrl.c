/* SPDX-License-Identifier: MIT */
/* Opening, identifying and administering controllers that misbehave: each fault has its error, and leaves nothing. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/virtual.h"
#include "fake.h"
#include "nvme/identify.h"
#include "life/life.h"
#include "util/clock.h"
#include "util/mmio.h"

static void test_open(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
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
	assert_int_equal(fake->enable_dma, 1);
	assert_int_equal(info.size, sizeof(info));
	info.size = 439; /* what the first release had, less one */
	assert_int_equal(gpunvme_dev_get_info(dev, &info), -EINVAL);
	assert_int_equal(gpunvme_dev_get_info(NULL, &info), -EINVAL);
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
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
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
		{ FAKE_FATAL, -ESHUTDOWN, GPUNVME_ADMIN_IDENTIFY },
		{ FAKE_STOPPED, -ESHUTDOWN, GPUNVME_ADMIN_IDENTIFY },
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
		fake->reset_ret = -EIO;
		if (table[i].ret == -ETIMEDOUT)
			fake_hurry(fake, NULL);
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

/* What CC.EN does not bring up, the function reset does. */
static void test_function_reset_at_open(void **state)
{
	static const enum fake_fault fault[] = { FAKE_NEVER_READY, FAKE_FATAL_AT_ENABLE };
	struct gpunvme_dev *dev;
	struct fake *fake;
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		fake = fake_new();
		if (fault[i] == FAKE_NEVER_READY)
			fake_hurry(fake, NULL);
		fake->fault = fault[i];
		assert_int_equal(fake_open(fake, &dev), 0);
		assert_int_equal(fake->resets, 1);
		assert_int_equal(gpunvme_dev_close(dev), 0);
		fake_delete(fake, false);
	}
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
		static const char *const says[4] = { "submission queue entries of 128 to 128 bytes", "entries of 32 to 32",
						     "completion queue entries of 32 to 32", "use another drive" };

		fake = fake_new();
		fake->id.sqes = sizes[i][0];
		fake->id.cqes = sizes[i][1];
		assert_int_equal(fake_open(fake, &dev), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), says[i]));
		fake_delete(fake, false);
	}
	fake = fake_new();
	memset(&fake->id, 0xff, sizeof(fake->id));
	fake->id.sqes = 0x66;
	fake->id.cqes = 0x44;
	fake->granted = 0xffffffff;
	fake->no_shutdown = false;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
	assert_int_equal(strlen(info.model), 40);
	assert_int_equal(info.model[0], '?');
	assert_int_equal(info.max_transfer, 1u << 31);
	assert_int_equal(info.queues, 128);
	assert_int_equal(info.sgl, 0); /* 3 is reserved */
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

static struct {
	unsigned lines; /* atomic */
	bool slow;	/* a call lasts 300 ms */
	bool inside;	/* atomic: one has begun */
} heard;

/* A drive gets a shutdown, once, before it is disabled: so it counts no unsafe shutdown. */
static void test_goodbye(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake;

	(void)state;
	fake = fake_new();
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(__atomic_load_n(&fake->shutdowns, __ATOMIC_RELAXED), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_int_equal(__atomic_load_n(&fake->shutdowns, __ATOMIC_RELAXED), 1);
	fake_delete(fake, false);
}

static void hear(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)level;
	(void)text;
	assert_ptr_equal(ctx, &heard);
	__atomic_store_n(&heard.inside, true, __ATOMIC_RELEASE);
	if (heard.slow)
		gnv_sleep_ms(300);
	__atomic_fetch_add(&heard.lines, 1, __ATOMIC_RELEASE);
}

/*
 * A device that fails to open, and whose controller nothing stops: its port lives on and has things to say, its user has gone. The
 * last line that is heard says that it could not be stopped.
 */
static void test_silent_after_failed_open(void **state)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev = NULL;
	unsigned lines;

	(void)state;
	memset(&heard, 0, sizeof(heard));
	opts.log = hear;
	opts.log_ctx = &heard;
	fake_hurry(fake, NULL); /* to be disabled */
	fake->port.log = (struct gnv_log){ .fn = hear, .ctx = &heard }; /* as gnv_port_open() has it */
	fake->fault = FAKE_NEVER_DISABLED;
	fake->halt_fails = true;
	fake->id.sqes = 0;
	leak_expected(true);
	assert_int_equal(gnv_dev_create(&fake->port, &opts, 1, &dev), -EOPNOTSUPP);
	leak_expected(false);
	assert_int_equal(fake->halted, 1);
	lines = heard.lines;
	assert_true(lines > 0);
	dev = fake->lost_ctx;
	gnv_log(&fake->port.log, GPUNVME_LOG_ERROR, "the kernel wants the device back");
	gnv_log(&dev->nvme.log, GPUNVME_LOG_ERROR, "a GPU faults");
	assert_int_equal(heard.lines, lines);
	fake_delete(fake, true);
}

static char log_text[1024];

static void keep(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	snprintf(log_text + strlen(log_text), sizeof(log_text) - strlen(log_text), "%s\n", text);
}

/* Which way a controller that does not stop was made harmless. */
static void test_says_by_what_force(void **state)
{
	static const char *const ways[][2] = { { "function", "Halting it by a reset of the function" },
					       { "slot", "Halting it by a reset of its slot" },
					       { "none", "Halting it by the end of its bus mastering" } };

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct fake *fake = fake_new();
		struct gpunvme_dev *dev;

		log_text[0] = 0;
		snprintf(fake->port.reset_name, sizeof(fake->port.reset_name), "%s", ways[i][0]);
		assert_int_equal(fake_open(fake, &dev), 0);
		dev->nvme.log = (struct gnv_log){ .fn = keep };
		fake_hurry(fake, dev);
		fake->fault = FAKE_NEVER_DISABLED;
		assert_int_equal(gpunvme_dev_close(dev), 0);
		assert_non_null(strstr(log_text, ways[i][1]));
		fake_delete(fake, false);
	}
}

/*
 * A controller that is taken away is stopped while it has registers, since its next driver lets it make DMA before it stops it. One
 * that does not stop is waited for as long as that driver may wait, and one whose registers are gone not at all.
 */
static void test_taken_away(void **state)
{
	static const struct {
		enum fake_fault fault;
		uint32_t cc, csts; /* as it is found; 0: as it was opened */
		bool server;	   /* its registers are memory that a server has left */
		uint32_t left;	   /* CC.EN */
	} cases[] = { { FAKE_WELL, 0, 0, false, 0 },
		      { FAKE_NEVER_DISABLED, 0, 0, false, 0 },
		      { FAKE_WELL, GPUNVME_CC_EN, 0, false, 0 }, /* it is being started, in vain */
		      { FAKE_WELL, ~0u, ~0u, false, GPUNVME_CC_EN },
		      { FAKE_WELL, 0, 0, true, GPUNVME_CC_EN } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake *fake = fake_new();
		struct gpunvme_dev *dev;

		assert_int_equal(fake_open(fake, &dev), 0);
		dev->nvme.ctrl.ready_ms = dev->nvme.ctrl.disable_ms = UINT32_MAX; /* even in virtual time more than a test has */
		log_text[0] = 0;
		dev->nvme.log = (struct gnv_log){ .fn = keep };
		fake->port.remote = !cases[i].server;
		fake->fault = cases[i].fault;
		fake->no_shutdown = true;
		if (cases[i].cc) {
			gnv_mmio_write32(fake->bar + GPUNVME_REG_CC, cases[i].cc);
			gnv_mmio_write32(fake->bar + GPUNVME_REG_CSTS, cases[i].csts);
		}
		fake->lost(fake->lost_ctx, GNV_PORT_LOST, "the kernel wants the device back");
		assert_int_equal(gnv_mmio_read32(fake->bar + GPUNVME_REG_CC) & GPUNVME_CC_EN, cases[i].left);
		assert_int_equal(!strstr(log_text, "did not stop (CSTS.RDY stays 1) within 10000 ms"),
				 cases[i].fault != FAKE_NEVER_DISABLED);
		assert_int_equal(gnv_ctrl_enable(&dev->nvme.ctrl, 0, 0, 2), -ENODEV); /* nor by a thread that resets it */
		assert_int_equal(gnv_ctrl_shutdown(&dev->nvme.ctrl), -ENODEV);
		assert_int_equal(gnv_mmio_read32(fake->bar + GPUNVME_REG_CC) & GPUNVME_CC_EN, cases[i].left);
		fake_hurry(fake, dev);
		assert_int_equal(gpunvme_dev_close(dev), 0);
		fake_delete(fake, false);
	}
}

static void *say_something(void *log)
{
	gnv_log(log, GPUNVME_LOG_INFO, "something");
	return NULL;
}

/* A call that is under way when the log ends has ended afterwards. */
static void test_log_end(void **state)
{
	struct gnv_log log = { .fn = hear, .ctx = &heard };
	pthread_t thread;

	(void)state;
	memset(&heard, 0, sizeof(heard));
	heard.slow = true;
	assert_int_equal(pthread_create(&thread, NULL, say_something, &log), 0);
	while (!__atomic_load_n(&heard.inside, __ATOMIC_ACQUIRE))
		sched_yield();
	gnv_log_end(&log);
	assert_int_equal(__atomic_load_n(&heard.lines, __ATOMIC_ACQUIRE), 1);
	pthread_join(thread, NULL);
	say_something(&log);
	assert_int_equal(heard.lines, 1);
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
	fake_set_cap(fake, (FAKE_CAP & ~GPUNVME_CAP_TO) | 1ull << 24 | 1ull << 59);
	assert_int_equal(gnv_ctrl_init(&ctrl, &fake->bar0), 0);
	assert_int_equal(ctrl.ready_ms, 3500);
	assert_int_equal(ctrl.disable_ms, 500);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CRTO, 0xffff);
	assert_int_equal(gnv_ctrl_init(&ctrl, &fake->bar0), 0);
	assert_int_equal(ctrl.ready_ms, 600000);
	fake->closed = 1;
	fake_delete(fake, false);
}

static struct {
	uint64_t cleared_ns; /* when CC.EN was cleared. 0: it was not, or the registers were touched since */
	unsigned clearings;
	uint64_t rest_ns; /* the least from there to the next access to a register */
} quiet;

static uint32_t quiet_read(const struct gpunvme_mem *bar, size_t offset)
{
	const uint64_t now = virtual_ns();

	if (quiet.cleared_ns && now - quiet.cleared_ns < quiet.rest_ns)
		quiet.rest_ns = now - quiet.cleared_ns;
	quiet.cleared_ns = 0;
	return gnv_mmio_read32(gnv_mem_regs(bar) + offset);
}

static void quiet_write(const struct gpunvme_mem *bar, size_t offset, uint32_t value)
{
	const bool was = gnv_mmio_read32(gnv_mem_regs(bar) + GPUNVME_REG_CC) & GPUNVME_CC_EN;

	quiet_read(bar, offset);
	gnv_mmio_write32(gnv_mem_regs(bar) + offset, value);
	if (offset != GPUNVME_REG_CC || !was || value & GPUNVME_CC_EN)
		return;
	quiet.cleared_ns = virtual_ns();
	quiet.clearings++;
}

/* A drive that must be left alone after CC.EN was cleared: also where the owner before left it enabled. */
static void test_slow_ready(void **state)
{
	static const struct gnv_mem_calls calls = { quiet_read, quiet_write };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	uint64_t start;

	(void)state;
	memset(&quiet, 0, sizeof(quiet));
	quiet.rest_ns = UINT64_MAX;
	fake->bar0.calls = &calls;
	fake->cc = GPUNVME_CC_EN;
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CC, GPUNVME_CC_EN);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CSTS, GPUNVME_CSTS_RDY);
	setenv("GPUNVME_QUIRKS", "slow-ready", 1);
	start = virtual_ns();
	assert_int_equal(fake_open(fake, &dev), 0);
	unsetenv("GPUNVME_QUIRKS");
	assert_int_equal(quiet.clearings, 1);
	assert_true(quiet.rest_ns >= 2300000000u);
	assert_true(virtual_ns() - start < 2 * 2300000000ull); /* it rested once */
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_int_equal(quiet.clearings, 3);
	assert_true(quiet.rest_ns >= 2300000000u);
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
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
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
	fake->ns_list[5] = fake->ns_list[4]; /* twice */
	count = 4;
	assert_int_equal(gpunvme_ns_list(dev, list, &count), -EPROTO);

	assert_int_equal(gpunvme_ns_get_info(dev, 0, &ns), 0);
	assert_int_equal(ns.nsid, 1);
	assert_int_equal(ns.lba_size, 512);
	assert_int_equal(ns.nblocks, 1000);
	assert_int_equal(ns.read_only, 0);
	fake->ns.nsattr = 1;
	assert_int_equal(gpunvme_ns_get_info(dev, 7, &ns), 0);
	assert_int_equal(ns.read_only, 1);
	assert_int_equal(gpunvme_ns_get_info(dev, FAKE_MAX_NS + 1, &ns), -ENOENT);
	assert_int_equal(gpunvme_ns_get_info(dev, GPUNVME_NSID_ALL, &ns), -ENOENT);
	assert_int_equal(gpunvme_ns_get_info(dev, 1, NULL), -EINVAL);
	assert_int_equal(gpunvme_ns_get_info(NULL, 1, &ns), -EINVAL);
	ns.size = 4;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EINVAL);
	gpunvme_dev_close(dev);
	free(fake->ns_list);
	fake_delete(fake, false);
}

/* Without a list they are asked for one by one: each in time, all of them together not. That is no reason to give the controller up. */
static void test_slow_namespaces(void **state)
{
	struct gpunvme_dev_info status = { .size = sizeof(status) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	uint32_t count = 0;

	(void)state;
	fake->id.nn = FAKE_MAX_NS;
	fake->no_list = true;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_ns_list(dev, NULL, &count), 0);
	assert_int_equal(count, FAKE_MAX_NS);
	fake->slow_us = 2000;
	dev->nvme.admin.timeout_ms = 3000;
	count = 0;
	assert_int_equal(gpunvme_ns_list(dev, NULL, &count), -ETIMEDOUT);
	assert_non_null(strstr(gpunvme_errmsg(), "namespaces"));
	assert_int_equal(gpunvme_dev_get_info(dev, &status), 0);
	assert_int_equal(status.state, GPUNVME_STATE_ALIVE);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	fake_delete(fake, false);
}

/* What a namespace says about itself, and a program that was built before the library told of it. */
static void test_hints(void **state)
{
	union {
		struct gpunvme_ns_info info;
		unsigned char bytes[sizeof(struct gpunvme_ns_info)];
	} old = { .bytes = { 0 } };
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	fake->id.awun_0b = 7;
	assert_int_equal(fake_open(fake, &dev), 0);
	fake->ns.noiob = 256;
	fake->ns.nawun_0b = 15; /* these do not count yet */
	fake->ns.npwg_0b = 7;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	assert_int_equal(ns.boundary, 256);
	assert_int_equal(ns.atomic, 8);
	assert_int_equal(ns.atomic_power, 1);
	assert_int_equal(ns.atomic_border, 0);
	assert_int_equal(ns.write_step, 0);
	fake->ns.nsfeat = GPUNVME_NSFEAT_ATOMICS | GPUNVME_NSFEAT_OPTIMAL;
	fake->ns.nabspf_0b = 63;
	fake->ns.nabsn_0b = 31;
	fake->ns.nabo = 5;
	fake->ns.npwa_0b = 3;
	fake->ns.nows_0b = 127;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	assert_int_equal(ns.atomic, 16);
	assert_int_equal(ns.atomic_power, 1);
	assert_int_equal(ns.atomic_border, 64);
	assert_int_equal(ns.atomic_seen_border, 32);
	assert_int_equal(ns.atomic_first, 5);
	assert_int_equal(ns.write_step, 8);
	assert_int_equal(ns.write_align, 4);
	assert_int_equal(ns.write_best, 128);
	memset(&old, 0xa5, sizeof(old));
	old.info.size = offsetof(struct gpunvme_ns_info, boundary);
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &old.info), 0);
	assert_int_equal(old.info.nblocks, 1000);
	assert_int_equal(old.info.size, offsetof(struct gpunvme_ns_info, boundary));
	assert_int_equal(old.info.boundary, 0xa5a5a5a5);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

/* How much a drive deallocates by a range: what it says from NVMe 2.0 on. */
static void deallocates(uint32_t vs, uint16_t oncs, uint32_t dmrsl, uint64_t dmsl, bool no_limits, uint32_t want)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	gnv_mmio_write32(fake->bar + GPUNVME_REG_VS, vs);
	fake->id.oncs = oncs;
	fake->limits.dmrsl = dmrsl;
	fake->limits.dmsl = dmsl;
	fake->no_limits = no_limits;
	fake->ns.dlfeat = 0x19;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(dev->nvme.limits.deallocate, want);
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	assert_int_equal(ns.deallocated, GPUNVME_DEALLOCATED_ZEROES);
	fake->ns.dlfeat = 0x07;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	assert_int_equal(ns.deallocated, GPUNVME_DEALLOCATED_UNKNOWN);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

static void test_deallocate(void **state)
{
	(void)state;
	deallocates(0x10400, 0, 0, 0, false, 0);
	deallocates(0x10400, GPUNVME_ONCS_DSM, 5, 5, false, UINT32_MAX); /* not asked */
	deallocates(0x20000, 0, 5, 5, false, 0);
	deallocates(0x20000, GPUNVME_ONCS_DSM, 0, 0, false, UINT32_MAX);
	deallocates(0x20000, GPUNVME_ONCS_DSM, 5, 7, false, 5);
	deallocates(0x20100, GPUNVME_ONCS_DSM, 7, 5, false, 5);
	deallocates(0x20000, GPUNVME_ONCS_DSM, 0, 1ull << 40, false, UINT32_MAX);
	deallocates(0x20000, GPUNVME_ONCS_DSM, 5, 5, true, UINT32_MAX);
}

/* How much it sets to zero by one command: a power of two of its smallest pages (WZSL). */
static void test_limit_of_zeroes(void **state)
{
	static const struct {
		uint32_t vs;
		uint16_t oncs;
		uint8_t wzsl;
		bool no_limits;
		uint32_t want;
	} cases[] = {
		{ 0x10400, GPUNVME_ONCS_WRITE_ZEROES, 3, false, 0 }, /* not asked */
		{ 0x20000, GPUNVME_ONCS_WRITE_ZEROES, 3, false, 32768 },
		{ 0x20000, GPUNVME_ONCS_WRITE_ZEROES, 0, false, 0 },
		{ 0x20000, GPUNVME_ONCS_WRITE_ZEROES, 255, false, 1u << 31 },
		{ 0x20000, GPUNVME_ONCS_WRITE_ZEROES, 3, true, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake *fake = fake_new();
		struct gpunvme_dev *dev;

		gnv_mmio_write32(fake->bar + GPUNVME_REG_VS, cases[i].vs);
		fake->id.oncs = cases[i].oncs;
		fake->limits.wzsl = cases[i].wzsl;
		fake->limits.dmrsl = 7;
		fake->no_limits = cases[i].no_limits;
		assert_int_equal(fake_open(fake, &dev), 0);
		assert_int_equal(dev->nvme.limits.zeroes, cases[i].want);
		assert_int_equal(dev->nvme.limits.deallocate, 0); /* it has no such command */
		gpunvme_dev_close(dev);
		fake_delete(fake, false);
	}
}

static void is_refused(struct gpunvme_dev *dev, const char *word, const char *other)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };

	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), word));
	assert_non_null(strstr(gpunvme_errmsg(), other));
}

/* A format with metadata: what it carries, and which command ends that. */
static void test_metadata(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	fake->ns.lbaf[0].ms = 8;
	is_refused(dev, "8 bytes of metadata per block, which", "no format without");
	fake->ns.nlbaf_0b = 4;
	fake->ns.lbaf[1] = (struct gpunvme_lbaf){ .ms = 64, .lbads = 12 };
	fake->ns.lbaf[2] = (struct gpunvme_lbaf){ .lbads = 9, .rp = 2 };
	fake->ns.lbaf[3] = (struct gpunvme_lbaf){ .lbads = 12, .rp = 1 };
	fake->ns.lbaf[4] = (struct gpunvme_lbaf){ .lbads = 0 }; /* there is none */
	is_refused(dev, "nvme format --namespace-id=1 --lbaf=3 (which erases it)", "gpunvme unbind");
	fake->ns.dps = 2 | 8;
	is_refused(dev, "protection information of type 2", "--lbaf=3 --pi=0");
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

static void describe(struct fake *fake, uint8_t csi)
{
	static const uint8_t uuid_first[] = { 3, 16, 0, 0, [20] = GPUNVME_NIDT_CSI, 1, 0, 0 };

	memcpy(fake->desc, uuid_first, sizeof(uuid_first));
	fake->desc[24] = csi;
}

/* A zoned namespace next to a plain one: the plain one is meant where none is named. */
static void test_plain_namespace_is_default(void **state)
{
	static const uint8_t plain[4096] = { GPUNVME_NIDT_CSI, 1, 0, 0, GPUNVME_CSI_NVM };
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	uint32_t list[] = { 1, 2 };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	fake_set_cap(fake, FAKE_CAP | GPUNVME_CAP_CSS_IO);
	fake->id.nn = 2;
	fake->ns_list = list;
	fake->ns_count = 2;
	describe(fake, GPUNVME_CSI_ZONED);
	fake->plain = plain;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
	assert_int_equal(info.default_ns, 2);
	assert_int_equal(gpunvme_ns_get_info(dev, 0, &ns), 0);
	assert_int_equal(ns.nsid, 2);
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EOPNOTSUPP);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
	fake = fake_new(); /* all are zoned: the first one is refused, by name */
	fake_set_cap(fake, FAKE_CAP | GPUNVME_CAP_CSS_IO);
	fake->id.nn = 2;
	fake->ns_list = list;
	fake->ns_count = 2;
	describe(fake, GPUNVME_CSI_ZONED);
	assert_int_equal(fake_open(fake, &dev), 0);
	is_refused(dev, "namespace 1 is zoned", "ns=");
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

/* Command sets of namespaces are asked where there may be several. */
static void test_command_sets(void **state)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	fake_set_cap(fake, FAKE_CAP | GPUNVME_CAP_CSS_IO);
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0); /* an empty list */
	describe(fake, GPUNVME_CSI_NVM);
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	describe(fake, GPUNVME_CSI_ZONED);
	is_refused(dev, "namespace 1 is zoned", "ns=");
	describe(fake, GPUNVME_CSI_KEY_VALUE);
	is_refused(dev, "namespace 1 is a key-value store", "ns=");
	describe(fake, 7);
	is_refused(dev, "of another kind (command set 7)", "ns=");
	fake->no_desc = true;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	fake->no_desc = false;
	memset(fake->desc, 0xff, sizeof(fake->desc)); /* ends outside */
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
	fake = fake_new(); /* not asked: such drives are older than the list */
	describe(fake, GPUNVME_CSI_ZONED);
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

/* The vendor's byte, where a drive is known for its stripes; without it the largest transfer. Nonsense is far off. */
static void test_stripe(void **state)
{
	static const struct {
		const char *words;
		uint8_t said;
		uint32_t boundary; /* blocks of 512 */
	} cases[] = { { "stripe", 3, 64 }, { "stripe", 0, 256 }, { "stripe", 255, 1u << 22 }, { "none", 3, 0 } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpunvme_ns_info ns = { .size = sizeof(ns) };
		struct fake *fake = fake_new(); /* 128 KiB are the most */
		struct gpunvme_dev *dev;

		fake->id.vs[3] = cases[i].said;
		setenv("GPUNVME_QUIRKS", cases[i].words, 1);
		assert_int_equal(fake_open(fake, &dev), 0);
		unsetenv("GPUNVME_QUIRKS");
		assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
		assert_int_equal(ns.boundary, cases[i].boundary);
		assert_int_equal(gpunvme_dev_close(dev), 0);
		fake_delete(fake, false);
	}
}

/* No format is recommended that does not exist, or that this library could not use. */
static void test_insane_formats(void **state)
{
	static const uint8_t lbads[] = { 0, 8, 17, 63, 255 };
	struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
	struct fake *fake = fake_new();
	unsigned count, i, k, said;
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	fake->ns.nlbaf_0b = 1;
	fake->ns.lbaf[0].rp = 2;
	for (i = 0; i <= sizeof(lbads); i++) {
		fake->ns.lbaf[1].lbads = i < sizeof(lbads) ? lbads[i] : 12;
		count = GPUNVME_MAX_CHECKS;
		assert_int_equal(gpunvme_doctor_drive(dev, checks, &count), 0);
		for (k = said = 0; k < count; k++)
			said += !strcmp(checks[k].name, "format");
		assert_int_equal(said, i == sizeof(lbads));
	}
	gpunvme_dev_close(dev);
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
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EOPNOTSUPP);
	fake->ns.lbaf[0].lbads = 63;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EOPNOTSUPP);
	fake->ns.lbaf[0].lbads = 12;
	fake->ns.lbaf[0].ms = 8;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EOPNOTSUPP);
	fake->ns.lbaf[0].ms = 0;
	fake->ns.flbas = 1; /* of one format */
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EPROTO);
	fake->ns.flbas = 0x60; /* the high bits do not count */
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
	fake->ns.nlbaf_0b = 255;
	fake->ns.flbas = 0x6f;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EOPNOTSUPP); /* format 63 is empty */
	fake->ns.flbas = 0;
	fake->ns.nsze = ~0ull;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -EPROTO);
	fake->ns.nsze = 0;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -ENOENT);
	fake->fault_opc = GPUNVME_ADMIN_IDENTIFY;
	fake->status = GPUNVME_SC_INVALID_NS | GPUNVME_ST_DNR;
	fake->fault = FAKE_STATUS;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -ENOENT);
	fake->status = GPUNVME_SC_INTERNAL;
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), GPUNVME_SC_INTERNAL);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goodbye),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_capabilities),
		cmocka_unit_test(test_larger_pages),
		cmocka_unit_test(test_faults_at_open),
		cmocka_unit_test(test_function_reset_at_open),
		cmocka_unit_test(test_gone_from_the_start),
		cmocka_unit_test(test_insane_identify),
		cmocka_unit_test(test_slow_ready),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_silent_after_failed_open),
		cmocka_unit_test(test_log_end), cmocka_unit_test(test_says_by_what_force),
		cmocka_unit_test(test_taken_away),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_queue_count),
		cmocka_unit_test(test_namespaces),
		cmocka_unit_test(test_slow_namespaces),
		cmocka_unit_test(test_hints),
		cmocka_unit_test(test_deallocate),
		cmocka_unit_test(test_limit_of_zeroes),
		cmocka_unit_test(test_metadata),
		cmocka_unit_test(test_plain_namespace_is_default),
		cmocka_unit_test(test_command_sets),
		cmocka_unit_test(test_insane_namespace),
		cmocka_unit_test(test_stripe),	cmocka_unit_test(test_insane_formats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
