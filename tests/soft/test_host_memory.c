/* SPDX-License-Identifier: MIT */
/*
 * Drives that work in memory of the host (`fault=hmb:MIB`): they find there what they left, over a thousand resets, or are dead; and
 * a wild one (`hmb-wild`) that writes around that memory, and into it when it is not its own, hits nothing else.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/drive.h"
#include "common/good.h"
#include "common/image.h"
#include "dev/dev.h"
#include "nvme/hmb.h"
#include "nvme/reset.h"
#include "soft/soft.h"

#define MIB ((uint64_t)1 << 20)
#define BYTES (1u << 20)
#define BLOCK 512u

static struct gpunvme_dev_info info_of(const struct gpunvme_dev *dev)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };

	good(gpunvme_dev_get_info(dev, &info));
	return info;
}

/* What the drive says itself. */
static bool drive_has_it(struct gpunvme_dev *dev, uint32_t *pages)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = GPUNVME_FID_HMB };
	static uint32_t attributes[1024];
	uint32_t on;

	good(gpunvme_dev_admin(dev, &cmd, attributes, sizeof(attributes), 0, &on));
	*pages = attributes[0];
	return on;
}

static void test_given(void **state)
{
	static const struct {
		const char *keys;
		uint64_t asked, used;
	} cases[] = {
		{ "ro=0", 0, 0 },
		{ "fault=hmb:16", 16 * MIB, 16 * MIB },
		{ "fault=hmb:16&hmb=0", 16 * MIB, 0 },
		{ "fault=hmb:16&hmb=7", 16 * MIB, 7 * MIB },
		{ "fault=hmb:16&hmb=3", 16 * MIB, 0 }, /* it needs 4 */
		{ "fault=hmb:128", 128 * MIB, 64 * MIB },
		{ "fault=hmb:128&hmb=100", 128 * MIB, 100 * MIB },
		{ "fault=hmb:1&hmb=4096", 1 * MIB, 1 * MIB },
	};
	struct gpunvme_dev *dev;
	uint32_t pages;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		good(open_drive(cases[i].keys, &dev));
		assert_int_equal(info_of(dev).hmb_asked, cases[i].asked);
		assert_int_equal(info_of(dev).hmb, cases[i].used);
		if (cases[i].asked) {
			assert_int_equal(drive_has_it(dev, &pages), cases[i].used != 0);
			assert_int_equal(pages * 4096ull, cases[i].used);
		}
		assert_int_equal(has_logged("may be slow"), cases[i].asked && !cases[i].used && !strstr(cases[i].keys, "hmb=0"));
		good(gpunvme_dev_close(dev));
		assert_false(has_logged("host memory buffer"));
	}
	assert_int_equal(open_drive("hmb=4097", &dev), -EINVAL);
	assert_int_equal(open_drive("hmb=x", &dev), -EINVAL);
}

/* No program gives a drive memory by hand: it would write where it likes. */
static void test_by_hand(void **state)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = GPUNVME_FID_HMB, .cdw11 = 1 };
	struct gpunvme_dev *dev;

	(void)state;
	good(open_drive("fault=hmb:4", &dev));
	assert_int_equal(gpunvme_dev_admin(dev, &cmd, NULL, 0, 0, NULL), -EPERM);
	assert_non_null(strstr(gpunvme_errmsg(), "hmb="));
	assert_int_equal(gpunvme_dev_set_feature(dev, GPUNVME_FID_HMB, 0), -EPERM);
	good(gpunvme_dev_close(dev));
}

static void let_go(void *dev)
{
	(void)dev;
}

static struct {
	unsigned given, returned, taken; /* atomic: Set Features of it */
	bool refuse;			 /* atomic */
} seen;

static enum gnv_soft_action watch(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	(void)ctx;
	*status = GPUNVME_SC_INTERNAL;
	if (cmd->opc != GPUNVME_ADMIN_SET_FEATURES || (cmd->cdw10 & 0xff) != GPUNVME_FID_HMB)
		return GNV_SOFT_GO;
	__atomic_fetch_add(cmd->cdw11 == 1 ? &seen.given : cmd->cdw11 ? &seen.returned : &seen.taken, 1, __ATOMIC_RELAXED);
	return __atomic_load_n(&seen.refuse, __ATOMIC_RELAXED) ? GNV_SOFT_FAIL : GNV_SOFT_GO;
}

static void watch_features(struct gpunvme_dev *dev)
{
	static const struct gnv_soft_admin_fault fault = { watch, NULL };

	memset(&seen, 0, sizeof(seen));
	gnv_soft_set_admin_fault(gnv_dev_soft(dev), &fault);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* each reset takes ten times as long */
#define RESETS 50
#else
#define RESETS 1000
#endif

static void test_resets(void **state)
{
	struct gpunvme_dev *dev;
	uint32_t pages;

	(void)state;
	good(open_drive("fault=hmb:2", &dev));
	watch_features(dev);
	for (unsigned i = 0; i < RESETS; i++) {
		good(gnv_reset(&dev->nvme, let_go, dev));
		assert_int_equal(info_of(dev).hmb, 2 * MIB);
	}
	assert_true(drive_has_it(dev, &pages)); /* and finds its marks, or it would be dead */
	assert_int_equal(seen.returned, RESETS);
	assert_int_equal(seen.given, 0);
	gnv_soft_set_stubborn(gnv_dev_soft(dev), GNV_SOFT_FAILS, false);
	good(gnv_reset(&dev->nvme, let_go, dev)); /* by the function: it forgets */
	assert_int_equal(seen.given, 1);
	assert_int_equal(info_of(dev).hmb, 2 * MIB);
	assert_true(drive_has_it(dev, &pages));
	good(gpunvme_dev_close(dev));
	assert_int_equal(seen.taken, 1);
	assert_false(has_logged("host memory buffer"));
}

static void test_refused(void **state)
{
	struct gpunvme_dev *dev;
	uint32_t pages;

	(void)state;
	good(open_drive("fault=hmb:2", &dev));
	watch_features(dev);
	__atomic_store_n(&seen.refuse, true, __ATOMIC_RELAXED);
	good(gnv_reset(&dev->nvme, let_go, dev));
	assert_true(has_logged("does not take the memory that it asks for"));
	assert_int_equal(info_of(dev).hmb, 0);
	assert_false(drive_has_it(dev, &pages));
	__atomic_store_n(&seen.refuse, false, __ATOMIC_RELAXED);
	good(gnv_reset(&dev->nvme, let_go, dev));
	assert_int_equal(info_of(dev).hmb, 2 * MIB);
	__atomic_store_n(&seen.refuse, true, __ATOMIC_RELAXED);
	good(gpunvme_dev_close(dev)); /* it keeps it, and is stopped */
	assert_true(has_logged("does not leave the memory"));
}

static int join(struct gpunvme_dev *first, const char *keys, struct gpunvme_dev **dev)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	char uri[320];

	opts.share = first;
	snprintf(uri, sizeof(uri), "soft:%s?%s", image_path("other"), keys);
	return gpunvme_dev_open(uri, &opts, dev);
}

static void assert_without(struct gpunvme_dev *dev)
{
	struct gpunvme_check check[32];
	unsigned count = 32, i;
	uint32_t pages;

	assert_int_equal(info_of(dev).hmb, 0);
	assert_false(drive_has_it(dev, &pages));
	good(gpunvme_doctor_drive(dev, check, &count));
	for (i = 0; i < count && strcmp(check[i].name, "host-memory"); i++)
		;
	assert_true(i < count && check[i].result == GPUNVME_CHECK_LIMIT && strstr(check[i].remedy, "Do not share its address space"));
}

/* Where others reach the address space there is no such memory: the drive alone reaches it, or has none. */
static void test_shared(void **state)
{
	struct gpunvme_dev *a, *b;

	(void)state;
	image_make(image_path("other"), 1 << 20);
	good(open_drive("fault=hmb:4", &a));
	assert_int_equal(info_of(a).hmb, 4 * MIB);
	assert_int_equal(join(a, "fault=hmb:2&hmb=2", &b), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "Leave hmb= out"));
	good(join(a, "fault=hmb:2", &b));
	assert_true(has_logged("gives its host memory"));
	assert_without(a);
	assert_without(b);
	good(gnv_reset(&a->nvme, let_go, a));
	assert_without(a);
	good(gpunvme_dev_close(a));
	good(open_drive("ro=0", &a)); /* without a wish */
	good(gpunvme_dev_close(b));
	good(join(a, "hmb=2", &b)); /* nor this one */
	good(gpunvme_dev_close(b));
	good(gpunvme_dev_close(a));
	remove(image_path("other"));
}

/* A device that requested it by name, or does not release it, is not joined. */
static void test_not_joined(void **state)
{
	struct gpunvme_dev *a, *b;
	uint32_t pages;

	(void)state;
	image_make(image_path("other"), 1 << 20);
	good(open_drive("fault=hmb:4&hmb=4", &a));
	assert_int_equal(join(a, "ro=0", &b), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "Open it without hmb="));
	assert_int_equal(info_of(a).hmb, 4 * MIB);
	good(gpunvme_dev_close(a));
	good(open_drive("fault=hmb:4", &a));
	watch_features(a);
	__atomic_store_n(&seen.refuse, true, __ATOMIC_RELAXED);
	assert_int_equal(join(a, "ro=0", &b), -EBUSY);
	assert_int_equal(info_of(a).hmb, 4 * MIB);
	__atomic_store_n(&seen.refuse, false, __ATOMIC_RELAXED);
	good(gnv_reset(&a->nvme, let_go, a));
	assert_int_equal(seen.returned, 1);
	assert_true(drive_has_it(a, &pages));
	good(gpunvme_dev_close(a));
	remove(image_path("other"));
}

/* The emulated drive notices it when its memory is touched. */
static void test_touched(void **state)
{
	struct gpunvme_dev *dev;
	struct gpunvme_mem *mem;

	(void)state;
	good(open_drive("fault=hmb:1", &dev));
	mem = dev->nvme.hmb.mem;
	assert_int_equal(mem->len, MIB);
	__atomic_store_n((uint64_t *)mem->cpu, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 5000 && !has_logged("the host wrote"); i++)
		usleep(1000);
	assert_true(has_logged("the host wrote"));
	assert_int_equal(gpunvme_dev_get_feature(dev, GPUNVME_FID_VWC, &(uint32_t){ 0 }), -ESHUTDOWN);
	good(gpunvme_dev_close(dev));
}

/* ---- Wild ---- */

struct job {
	struct gpunvme_dq *dq;
	struct gpunvme_dbuf *dbuf;
	bool write;
	int status;
};

static void run_job(void *arg)
{
	struct job *j = arg;

	j->status = j->write ? gpunvme_write(j->dq, j->dbuf, 0, 0, BYTES, 0) : gpunvme_read(j->dq, j->dbuf, 0, 0, BYTES);
}

static void move(struct gpunvme_queue *qp, struct gpunvme_dbuf *dbuf, bool write)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	struct gpunvme_dq dq;
	struct job job = { &dq, dbuf, write, 0 };

	good(gpunvme_queue_view(qp, &view, &dq));
	good(gpunvme_cpu_launch(1, 1, run_job, &job));
	good(job.status);
}

static void fill(unsigned char *data, unsigned round)
{
	for (size_t i = 0; i < BYTES; i += 8)
		memcpy(data + i, &(uint64_t){ (i + 1) * 0x9e3779b97f4a7c15ull ^ round }, 8);
}

static void test_wild(void **state)
{
	static unsigned char expected[BYTES];
	struct gpunvme_mem *mem[2]; /* one after the other: mapped before and after the drive's own */
	struct gpunvme_dbuf dbuf[2];
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	good(open_drive("fault=hmb:4,hmb-wild", &dev));
	assert_int_equal(info_of(dev).hmb, 4 * MIB);
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	for (unsigned i = 0; i < 2; i++) {
		good(gpunvme_mem_alloc(gpu, NULL, BYTES, NULL, &mem[i]));
		good(gpunvme_mem_map(mem[i], dev));
		good(gpunvme_mem_dbuf(mem[i], dev, &dbuf[i]));
	}
	for (unsigned round = 0; round < 20; round++) {
		fill(expected, round);
		memcpy(gpunvme_mem_ptr(mem[0]), expected, BYTES);
		move(qp, &dbuf[0], true);
		assert_memory_equal(gpunvme_mem_ptr(mem[0]), expected, BYTES);
		good(gpunvme_dev_reset(dev));
		good(gpunvme_queue_retire(qp));
		memset(gpunvme_mem_ptr(mem[1]), 0, BYTES);
		move(qp, &dbuf[1], false);
		assert_memory_equal(gpunvme_mem_ptr(mem[1]), expected, BYTES);
	}
	for (unsigned i = 0; i < 2; i++)
		good(gpunvme_mem_free(mem[i]));
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
}

/* On the request to leave the memory it writes to all of it, at both ends of each page: freeing it too early is found. */
static void test_wild_when_off(void **state)
{
	const uint64_t garbage = 0xbad0bad0bad0bad0ull;
	struct gpunvme_dev *dev;
	uint64_t *page;
	unsigned found = 0;

	(void)state;
	good(open_drive("fault=hmb:1,hmb-wild", &dev));
	page = dev->nvme.hmb.mem->cpu;
	gnv_hmb_take_back(&dev->nvme);
	for (unsigned i = 0; i < 5000 && found < 2; i++) {
		usleep(1000);
		found = __atomic_load_n(&page[0], __ATOMIC_RELAXED) == garbage;
		found += __atomic_load_n(&page[MIB / 8 - 1], __ATOMIC_RELAXED) == garbage;
	}
	assert_int_equal(found, 2);
	good(gpunvme_dev_close(dev));
}

static int setup(void **state)
{
	if (image_make_dir(state))
		return -1;
	drive_make("hmb", 4 << 20);
	return 0;
}

static int teardown(void **state)
{
	drive_remove();
	return image_remove_dir(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_given),	cmocka_unit_test(test_by_hand), cmocka_unit_test(test_resets),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_touched), cmocka_unit_test(test_wild),
		cmocka_unit_test(test_wild_when_off),
		cmocka_unit_test(test_shared),	cmocka_unit_test(test_not_joined),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
