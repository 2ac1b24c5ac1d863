/* SPDX-License-Identifier: MIT */
/* From gpunvme_dev_open() to gpunvme_dev_close() over the software controller, with I/O by CPU threads. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>

#include "dev/dev.h"
#include "soft/soft.h"
#include "util/mmio.h"

#define IMAGE_BYTES (16u << 20)

static char path[64];

static int make_image(void **state)
{
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "test_soft_dev-%d.img", (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, IMAGE_BYTES))
		return -1;
	return close(fd);
}

static int remove_image(void **state)
{
	(void)state;
	return unlink(path);
}

static int open_soft(const char *keys, struct gpunvme_dev **dev)
{
	char uri[512];
	int ret;

	snprintf(uri, sizeof(uri), "soft:%s%s", path, keys);
	ret = gpunvme_dev_open(uri, NULL, dev);
	if (ret == -EOPNOTSUPP) {
		print_message("skipped: %s\n", gpunvme_errmsg());
		skip();
	}
	return ret;
}

static void test_info(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	uint32_t list[4], count = 4, value = 0;
	struct gpunvme_smart_log smart;
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(open_soft("?queues=8&depth=256&lba=4096&dstrd=2", &dev), 0);
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
	assert_string_equal(info.transport, "soft");
	assert_string_equal(info.address, path);
	assert_int_equal(info.queues, 8);
	assert_int_equal(info.max_depth, 256);
	assert_int_equal(info.dstrd, 2);
	assert_int_equal(info.read_only, 0);
	assert_true(strlen(info.model) > 0);
	assert_int_equal(gpunvme_ns_get_info(dev, 0, &ns), 0);
	assert_int_equal(ns.lba_size, 4096);
	assert_int_equal(ns.nblocks, IMAGE_BYTES / 4096);
	assert_int_equal(gpunvme_ns_get_info(dev, 2, &ns), -ENOENT);
	assert_int_equal(gpunvme_ns_list(dev, list, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(list[0], 1);
	assert_int_equal(gpunvme_dev_log_page(dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, &smart, sizeof(smart)), 0);
	assert_int_equal(gpunvme_dev_get_feature(dev, GPUNVME_FID_NUM_QUEUES, &value), 0);
	assert_int_equal(value, 7 | 7 << 16);
	assert_non_null(gnv_dev_soft(dev));
	gpunvme_dev_close(dev);
}

/* Write, read back and compare through one queue at several offsets and lengths, deep enough to be split and to need lists. */
static void exercise(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, uint32_t depth, uint32_t flags)
{
	struct gpunvme_queue_opts opts = { sizeof(opts), flags | GPUNVME_QUEUE_STATS, depth, 5000, 0, 0, 0 };
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	uint32_t n, shift;
	unsigned char *p;
	size_t i;

	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	assert_int_equal(info.submitted + info.doorbells + info.completions + info.in_flight, 0); /* without the self-test */
	assert_string_equal(info.placement, "soft");
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8 << 20, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	p = gpunvme_mem_ptr(mem);
	shift = dq.lba_shift;
	for (n = 1; n << shift <= 4u << 20; n = n * 3 + 1) {
		size_t bytes = (size_t)n << shift;

		for (i = 0; i < bytes; i++)
			p[i] = (unsigned char)(i * 31 + n + i / 4096);
		assert_int_equal(gpunvme_write(&dq, &dbuf, 0, (uint64_t)(n % 100) << dq.lba_shift, (uint64_t)n << dq.lba_shift, 0),
				 0);
		assert_int_equal(gpunvme_read(&dq, &dbuf, (4u << 20) - 512, (uint64_t)(n % 100) << dq.lba_shift,
					      (uint64_t)n << dq.lba_shift),
				 0);
		assert_memory_equal(p, p + (4u << 20) - 512, bytes < (4u << 20) - 512 ? bytes : (4u << 20) - 512);
	}
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	assert_true(info.submitted > 0);
	assert_int_equal(info.completions, info.submitted);
	assert_int_equal(info.in_flight, 0);
	assert_int_equal(info.poison, 0);
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp);
}

static void test_io(void **state)
{
	static const char *const keys[] = { "", "?lba=4096&threads=2", "?mdts=1&depth=64&dstrd=1", "?mdts=0",
					    "?iops=1000000&bw=20G&lat_us=5&p99_us=50&seed=1",
					    "?model=P4800X&seed=1&link=0",
					    "?model=generic&units=64&page=16K&fw_us=0.1&fixed_us=1.25&read_us=9&read_p99_us=20&write_us=0"
					    "&program_us=3&channels=8&channel_bw=1G&buffer=1M&drain=4G&link=6G" };
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	size_t i;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		assert_int_equal(open_soft(keys[i], &dev), 0);
		assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
		exercise(dev, gpu, 2, 0);
		exercise(dev, gpu, 4, 0);
		exercise(dev, gpu, 0, 0);
		if (info.sgl)
			exercise(dev, gpu, 32, GPUNVME_QUEUE_SGL);
		gpunvme_dev_close(dev);
	}
	gpunvme_gpu_close(gpu);
}

static void test_read_only(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(open_soft("?ro=1", &dev), 0);
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
	assert_int_equal(info.read_only, 1);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), -EROFS);
	gpunvme_dev_close(dev); /* with the queue */
	gpunvme_gpu_close(gpu);
}

/* A drive without a link (link=0) differs from one whose link is not known. */
static void test_link(void **state)
{
	static const struct {
		const char *keys;
		uint64_t link;
		uint32_t no_link;
	} cases[] = { { "", 0, 0 }, { "?link=7000000000", 7000000000, 0 }, { "?model=P3700", 2800000000, 0 },
		      { "?model=P3700&link=0", 0, 1 }, { "?link=0", 0, 1 } };
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(open_soft(cases[i].keys, &dev), 0);
		assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
		assert_int_equal(info.link, cases[i].link);
		assert_int_equal(info.no_link, cases[i].no_link);
		gpunvme_dev_close(dev);
	}
}

static enum gnv_soft_action drop_reads(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status,
					uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)status;
	(void)delay_us;
	return cmd->opc == GPUNVME_IO_READ ? GNV_SOFT_DROP : GNV_SOFT_GO;
}

/* A command without a reply poisons the queue; its buffer is the device's until the queue is destroyed. */
static void test_dropped_command(void **state)
{
	static const struct gnv_soft_fault fault = { drop_reads, NULL };
	struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_NO_SELFTEST, 8, 100, 0, 0, 0 };
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem, *freed;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(open_soft("", &dev), 0);
	gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 65536, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 65536, NULL, &freed), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_map(freed, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	assert_int_equal(gpunvme_read(&dq, &dbuf, 0, 0, 8ull << dq.lba_shift), -GPUNVME_ETIMEDOUT);
	assert_int_equal(gpunvme_read(&dq, &dbuf, 0, 0, 8ull << dq.lba_shift), -GPUNVME_ESHUTDOWN);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), -ESHUTDOWN);
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	assert_int_equal(info.poison, ETIMEDOUT);
	assert_int_equal(info.in_flight, 1);
	assert_int_equal(gpunvme_mem_unmap(mem, dev), -EBUSY);
	assert_int_equal(gpunvme_mem_free(freed), -EBUSY);
	gpunvme_queue_destroy(qp);
	assert_int_equal(gpunvme_mem_unmap(mem, dev), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	assert_int_equal(gpunvme_mem_free(freed), 0);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

struct worker {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
};

static void *work(void *arg)
{
	struct gpunvme_queue_opts opts = { sizeof(opts), 0, 16, 0, 0, 0, 0 };
	struct worker *w = arg;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	int i;

	for (i = 0; i < 8; i++) {
		if (gpunvme_queue_create(w->dev, w->gpu, &opts, &qp) || gpunvme_queue_view(qp, NULL, &dq) ||
		    gpunvme_mem_alloc(w->gpu, NULL, 100000, NULL, &mem) || gpunvme_mem_map(mem, w->dev) ||
		    gpunvme_mem_dbuf(mem, w->dev, &dbuf) ||
		    gpunvme_read(&dq, &dbuf, 0, 5ull << dq.lba_shift, 100ull << dq.lba_shift))
			return arg;
		gpunvme_mem_free(mem);
		gpunvme_queue_destroy(qp);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct worker w;
	pthread_t thread[4];
	unsigned i;
	void *bad;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &w.gpu), 0);
	assert_int_equal(open_soft("?threads=2", &w.dev), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, work, &w), 0);
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], &bad);
		assert_null(bad);
	}
	gpunvme_dev_close(w.dev);
	gpunvme_gpu_close(w.gpu);
}

static void test_many(void **state)
{
	struct gpunvme_queue *qp[9];
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	unsigned i, round;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(open_soft("?queues=8&threads=2", &dev), 0);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 8; i++)
			assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp[i]), 0);
		assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp[8]), -ENOSPC);
		for (i = 0; i < 8; i++)
			gpunvme_queue_destroy(qp[round & 1 ? i : 7 - i]);
	}
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

static int ring_admin(void *ctx, uint32_t tail)
{
	struct gpunvme_dev *dev = ctx;

	if (!dev)
		return -EIO;
	gnv_mmio_write32(dev->nvme.ctrl.bar + gnv_ctrl_sq_doorbell(&dev->nvme.ctrl, 0), tail);
	return 0;
}

/* A command whose doorbell somebody else rings, and one for which nobody does. */
static void test_admin_doorbell(void **state)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = 1 };
	struct gpunvme_sqe wrong = { .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = 1 };
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	const char *model;

	(void)state;
	assert_int_equal(open_soft("", &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	model = (const char *)gpunvme_mem_ptr(mem) + 24;
	assert_int_equal(gpunvme_dev_admin_doorbell(dev, &cmd, &dbuf, ring_admin, NULL, NULL), -EIO);
	assert_int_equal(model[0], 0);
	assert_int_equal(gpunvme_dev_admin_doorbell(dev, &cmd, &dbuf, ring_admin, dev, NULL), 0);
	assert_memory_equal(model, "libgpunvme", 10);
	assert_int_equal(gpunvme_dev_admin_doorbell(dev, &wrong, NULL, ring_admin, dev, NULL), -EPERM);
	dbuf.iova += 8;
	assert_int_equal(gpunvme_dev_admin_doorbell(dev, &cmd, &dbuf, ring_admin, dev, NULL), -EINVAL);
	gpunvme_mem_free(mem);
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_link),
		cmocka_unit_test(test_admin_doorbell),
		cmocka_unit_test(test_io),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_dropped_command),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, make_image, remove_image);
}
