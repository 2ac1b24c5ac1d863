/* SPDX-License-Identifier: MIT */
/* Host Memory Buffer: whose it is when the drive, its way or its address space does not do what is requested. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"
#include "nvme/hmb.h"
#include "nvme/reset.h"

#define MIB ((uint64_t)1 << 20)

/* A controller that asks for 8 MiB, at least 1, 64 KiB at one place or more, at three places at most. */
static struct fake *hungry(struct gpunvme_dev **dev)
{
	struct fake *fake = fake_new();

	fake->id.hmpre = 2048;
	fake->id.hmmin = 256;
	fake->id.hmminds = 16;
	fake->id.hmmaxd = 3;
	assert_int_equal(fake_open(fake, dev), 0);
	return fake;
}

static void close_all(struct fake *fake, struct gpunvme_dev *dev)
{
	assert_int_equal(gpunvme_dev_close(dev), 0);
	fake_delete(fake, false);
}

static void let_go(void *dev)
{
	(void)dev;
}

static void test_command(void **state)
{
	const struct gnv_hmb_entry *list;
	struct gpunvme_dev *dev;
	struct fake *fake = hungry(&dev);
	unsigned before = fake->maps;

	(void)state;
	assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), 0);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 8 * MIB);
	assert_int_equal(fake->maps, before + 1);
	assert_int_equal(fake->last.opc, GPUNVME_ADMIN_SET_FEATURES);
	assert_int_equal(fake->last.cdw10, GPUNVME_FID_HMB);
	assert_int_equal(fake->last.cdw11, 1);
	assert_int_equal(fake->last.cdw12, 2048);
	assert_int_equal(fake->last.cdw13 | (uint64_t)fake->last.cdw14 << 32, dev->nvme.hmb.list.iova);
	assert_int_equal(fake->last.cdw15, 1);
	assert_int_equal(fake->last.prp1 | fake->last.prp2, 0);
	list = dev->nvme.hmb.list.cpu;
	assert_int_equal(list[0].pages, 2048);
	assert_int_equal(list[0].iova % 4096, 0);
	assert_int_not_equal(list[0].iova, 0);
	gnv_hmb_take_back(&dev->nvme);
	assert_int_equal(fake->last.cdw10, GPUNVME_FID_HMB);
	assert_int_equal(fake->last.cdw11, 0);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 0);
	assert_int_equal(fake->maps, before + 1); /* it is not believed */
	close_all(fake, dev);
}

static void test_how_much(void **state)
{
	static const struct {
		uint32_t most; /* MiB */
		uint64_t used;
	} cases[] = { { 0, 0 }, { 1, MIB }, { 3, 3 * MIB }, { 4096, 8 * MIB } };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpunvme_dev *dev;
		struct fake *fake = hungry(&dev);

		assert_int_equal(gnv_hmb_give(&dev->nvme, cases[i].most, true), 0);
		assert_int_equal(gnv_hmb_used(&dev->nvme), cases[i].used);
		close_all(fake, dev);
	}
}

/* What the doctor would have the user do about it. */
static void assert_remedy(struct gpunvme_dev *dev, const char *words)
{
	struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
	unsigned count = GPUNVME_MAX_CHECKS, i;

	assert_int_equal(gpunvme_doctor_drive(dev, checks, &count), 0);
	for (i = 0; i < count && strcmp(checks[i].name, "host-memory"); i++)
		;
	assert_int_not_equal(i, count);
	assert_int_equal(checks[i].result, GPUNVME_CHECK_LIMIT);
	assert_non_null(strstr(checks[i].remedy, words));
}

/* None by hmb=0: only where it could have some is that the remedy. */
static void test_none(void **state)
{
	static const char *const words[] = { "hmb= in the URI", "Do not share", "It needs an IOMMU", "It needs an IOMMU" };
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++) {
		struct gpunvme_dev *dev;
		struct fake *fake = hungry(&dev);

		fake->space.bare = i & 2;
		assert_int_equal(gnv_hmb_give(&dev->nvme, 0, !(i & 1)), 0);
		assert_remedy(dev, words[i]);
		fake->space.bare = false;
		close_all(fake, dev);
	}
}

/* Without an IOMMU no memory is the drive's alone, and what a killed process leaves is somebody's before the drive is stopped. */
static void test_bare(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake = hungry(&dev);
	unsigned before = fake->maps;

	(void)state;
	fake->space.bare = true;
	assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "without an IOMMU"));
	assert_int_equal(gnv_hmb_give(&dev->nvme, GNV_HMB_UNSAID, true), 0);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 0);
	assert_int_equal(fake->maps, before);
	assert_remedy(dev, "It needs an IOMMU");
	assert_int_equal(gnv_reset(&dev->nvme, let_go, dev), 0);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 0);
	fake->space.bare = false;
	close_all(fake, dev);
}

/* What a drive says of itself makes no sense: it gets nothing, and works. */
static void test_nonsense(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake = fake_new();

	(void)state;
	fake->id.hmpre = 1;
	fake->id.hmmin = fake->id.hmminds = ~0u;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gnv_hmb_give(&dev->nvme, GNV_HMB_MAX_MIB, true), 0);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 0);
	close_all(fake, dev);
}

/* The address space has no room for 8 MiB, nor for 4. */
static void test_no_room(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake = hungry(&dev);

	(void)state;
	fake->map_fails_at = fake->mapped + 1;
	assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), 0);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 4 * MIB);
	close_all(fake, dev);
}

/* That it does not use it is its word only: the memory stays until it is stopped. It may want it after a reset, as new. */
static void test_refused(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake = hungry(&dev);
	unsigned before = fake->maps;

	(void)state;
	fake->fault = FAKE_STATUS;
	fake->fault_opc = GPUNVME_ADMIN_SET_FEATURES;
	fake->status = GPUNVME_SC_INVALID_FIELD;
	assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), 0);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 0);
	assert_int_equal(fake->maps, before + 1);
	fake->fault = FAKE_WELL;
	assert_int_equal(gnv_reset(&dev->nvme, let_go, dev), 0);
	assert_int_equal(fake->last.cdw10, GPUNVME_FID_HMB);
	assert_int_equal(fake->last.cdw11, 1);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 8 * MIB);
	close_all(fake, dev);
}

/* Nobody knows whether it took it. */
static void test_silent(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake = hungry(&dev);
	unsigned before = fake->maps;

	(void)state;
	fake_hurry(fake, dev);
	fake->fault = FAKE_SILENT;
	fake->fault_opc = GPUNVME_ADMIN_SET_FEATURES;
	assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), -ETIMEDOUT);
	assert_int_equal(fake->maps, before + 1);
	fake->fault = FAKE_WELL;
	close_all(fake, dev);
}

/* It does not give it back, and cannot be stopped: the memory is not freed before it can. */
static void test_unstoppable(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake = hungry(&dev);
	unsigned before = fake->maps;

	(void)state;
	assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), 0);
	fake_hurry(fake, dev);
	fake->fault = FAKE_NEVER_DISABLED;
	fake->halt_fails = true;
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	assert_int_equal(fake->maps, before + 1);
	fake->halt_fails = false;
	close_all(fake, dev);
}

/* Stopped, but the address space holds on to it. */
static void test_still_mapped(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake = hungry(&dev);

	(void)state;
	assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), 0);
	fake->unmap_busy = true;
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "hmb"));
	assert_non_null(dev->nvme.hmb.mem);
	fake->unmap_busy = false;
	close_all(fake, dev);
}

/* Removed, reported broken, or pulled out: nothing is asked of it any more, and the memory goes when its DMA is known to be over. */
static void test_lost(void **state)
{
	static const enum gnv_port_loss loss[] = { GNV_PORT_ERROR, GNV_PORT_LOST };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(loss) / sizeof(loss[0]); i++) {
		struct gpunvme_dev *dev;
		struct fake *fake = hungry(&dev);
		unsigned commands;

		assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), 0);
		fake->lost(fake->lost_ctx, loss[i], "it was unplugged");
		commands = fake->commands;
		assert_int_equal(gpunvme_dev_close(dev), 0);
		assert_int_equal(fake->commands, commands);
		fake_delete(fake, false);
	}
}

static void test_reset(void **state)
{
	struct gpunvme_dev *dev;
	struct fake *fake = hungry(&dev);

	(void)state;
	assert_int_equal(gnv_hmb_give(&dev->nvme, 64, true), 0);
	assert_int_equal(gnv_reset(&dev->nvme, let_go, dev), 0);
	assert_int_equal(fake->last.cdw10, GPUNVME_FID_HMB);
	assert_int_equal(fake->last.cdw11, 3); /* with what it had there */
	assert_int_equal(fake->last.cdw12, 2048);
	assert_int_equal(gnv_hmb_used(&dev->nvme), 8 * MIB);
	close_all(fake, dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_command),	    cmocka_unit_test(test_how_much),	cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_no_room),	    cmocka_unit_test(test_refused),	cmocka_unit_test(test_silent),
		cmocka_unit_test(test_unstoppable), cmocka_unit_test(test_still_mapped), cmocka_unit_test(test_lost),
		cmocka_unit_test(test_reset),	    cmocka_unit_test(test_bare),		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
