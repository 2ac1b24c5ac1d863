/* SPDX-License-Identifier: MIT */
/*
 * Memory in a BAR of another device that is taken away while threads use it: by a reset, by the kernel, by an error on the bus. For
 * the guest of tests/vm: GPUNVME_TEST_URI names the controller, GPUNVME_TEST_VRAM the device with the BAR, GPUNVME_TEST_CMB a drive
 * with a memory buffer.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "mem/mem_bar.h"
#include "life/life.h"
#include "queue/queue.h"
#include "vm/lanes.h"

#define BAR 2u
#define MIB (1u << 20)
#define BAR_BYTES (64u * MIB)
#define SOON 20.0 /* seconds, on a busy machine; the time-out of a command is 30 */

static const char *uri, *vram;
static char bar_uri[64];
static struct gpunvme_gpu *gpu;
static struct gpunvme_dev *dev;
static struct gpunvme_bar *bar;
static unsigned said; /* atomic: lines of the device's log */

static void count_line(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	printf("log: %s\n", text);
	__atomic_fetch_add(&said, 1, __ATOMIC_RELAXED);
}

static void open_bar(void)
{
	struct gpunvme_bar_opts opts = GPUNVME_BAR_OPTS_INIT;

	opts.log = count_line;
	good(gpunvme_bar_open(bar_uri, &opts, &bar));
}

static int setup(void **state)
{
	(void)state;
	uri = getenv("GPUNVME_TEST_URI");
	vram = getenv("GPUNVME_TEST_VRAM");
	assert_true(uri && vram);
	snprintf(bar_uri, sizeof(bar_uri), "%s?port=%s", vram, strstr(uri, "type1") ? "type1" : "iommufd");
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_dev_open(uri, NULL, &dev));
	open_bar();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gpunvme_bar_close(bar);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return 0;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
	char line[300];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	assert_int_equal(system(line), 0);
}

struct rig {
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
};

static void open_queue(struct rig *r)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 1, 0, 0 };

	good(gpunvme_queue_create(dev, gpu, NULL, &r->qp));
	good(gpunvme_queue_view(r->qp, &view, &r->dq));
}

static void map(struct rig *r)
{
	good(gpunvme_mem_map(r->mem, dev));
	good(gpunvme_mem_dbuf(r->mem, dev, &r->dbuf));
}

static void open_rig(struct rig *r)
{
	open_queue(r);
	good(gpunvme_mem_bar(gpu, bar, BAR, 16 * MIB, MIB, &r->mem));
	map(r);
}

static void close_rig(struct rig *r)
{
	gpunvme_queue_destroy(r->qp);
	gpunvme_mem_free(r->mem);
}

/* Out of the first half of the buffer to the medium and back into the second one. */
static void compare(struct rig *r, unsigned seed)
{
	unsigned char *p = gpunvme_mem_ptr(r->mem);
	uint32_t blocks = MIB / 2 >> r->dq.lba_shift;

	for (unsigned i = 0; i < MIB / 2; i++)
		p[i] = (unsigned char)(rand_r(&seed) >> 7);
	memset(p + MIB / 2, 0, MIB / 2);
	good(gpunvme_write(&r->dq, &r->dbuf, 0, 2048ull << r->dq.lba_shift, (uint64_t)blocks << r->dq.lba_shift, 0));
	good(gpunvme_read(&r->dq, &r->dbuf, MIB / 2, 2048ull << r->dq.lba_shift, (uint64_t)blocks << r->dq.lba_shift));
	assert_memory_equal(p, p + MIB / 2, MIB / 2);
}

static void test_refusals(void **state)
{
	struct gpunvme_bar *second;
	struct gpunvme_mem *mem;

	(void)state;
	assert_int_equal(gpunvme_mem_bar(gpu, bar, 6, 0, 4096, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_bar(gpu, bar, BAR, 0, 100, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_bar(gpu, bar, BAR, 8, 4096, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_bar(gpu, bar, BAR, BAR_BYTES, 0, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_bar(gpu, bar, BAR, BAR_BYTES, 4096, &mem), -ERANGE);
	assert_int_equal(gpunvme_mem_bar(gpu, bar, 1, 0, 4096, &mem), -EOPNOTSUPP);
	good(gpunvme_mem_bar(gpu, bar, BAR, 0, 0, &mem));
	assert_int_equal(gpunvme_mem_len(mem), BAR_BYTES);
	gpunvme_mem_free(mem);
	assert_int_equal(gpunvme_bar_open(bar_uri, NULL, &second), -EBUSY);
	assert_int_equal(gpunvme_bar_open("soft:/etc/passwd", NULL, &second), -EINVAL);
	assert_int_equal(gpunvme_bar_open("0000:00:1f.7", NULL, &second), -ENODEV);
	assert_int_equal(gpunvme_bar_open(bar_uri, &(struct gpunvme_bar_opts){ 0, NULL, NULL }, &second), -EINVAL);
}

/* Memory keeps its device, and the other way round. */
static void test_closed_first(void **state)
{
	struct rig r;

	(void)state;
	open_rig(&r);
	gpunvme_bar_close(bar);
	compare(&r, 1);
	close_rig(&r);
	open_bar();
}

/* Threads at work, `event`, and all of them end with the right words and in time. */
static void during_io(struct rig *r, void (*event)(void))
{
	double start;

	lanes_begin(&r->dq, &r->dbuf);
	start = seconds();
	event();
	while (!lanes_all_ended() && seconds() - start < SOON)
		usleep(1000);
	printf("figure: threads got it after %.3f s\n", seconds() - start);
	lanes_end();
	for (unsigned i = 0; i < LANES; i++)
		assert_true(lanes.ret[i] == -GPUNVME_ENODEV || lanes.ret[i] == -GPUNVME_ESHUTDOWN);
}

static void reset(void)
{
	good(gpunvme_bar_reset(bar));
}

/* What was mapped stays dead; mapped again, by name or by taking it away first, it works. */
static void revive(struct rig *r, bool unmap)
{
	assert_int_equal(gpunvme_mem_dbuf(r->mem, dev, &r->dbuf), -ESTALE);
	gpunvme_queue_destroy(r->qp);
	if (unmap)
		good(gpunvme_mem_unmap(r->mem, dev));
	map(r);
	open_queue(r);
	compare(r, 7);
}

static void test_reset(void **state)
{
	unsigned char *p;
	struct rig r;

	(void)state;
	open_rig(&r);
	for (unsigned turn = 0; turn < 4; turn++) {
		compare(&r, turn);
		during_io(&r, reset);
		/* A command that is on its way in spite of it lands nowhere. */
		p = gpunvme_mem_ptr(r.mem);
		memset(p, 0x11, MIB);
		gpunvme_read(&r.dq, &r.dbuf, 0, 0, 8ull << r.dq.lba_shift);
		assert_int_equal(p[0] == 0x11 && !memcmp(p, p + 1, MIB - 1), 1);
		revive(&r, turn & 1);
	}
	close_rig(&r);
}

/* Rings there: the queue ends, and no later one is placed in the dead memory. */
static void test_reset_with_rings(void **state)
{
	struct gpunvme_mem *rings;
	char *start;
	struct rig r;

	(void)state;
	good(gnv_mem_bar(bar, NULL, BAR, 0, 4 * MIB, &rings));
	start = gpunvme_mem_ptr(rings);
	good(gnv_dev_lend(dev, rings));
	open_queue(&r);
	assert_true((char *)r.qp->qp[0]->sq.cpu >= start && (char *)r.qp->qp[0]->sq.cpu < start + 4 * MIB);
	assert_false((char *)r.qp->qp[0]->control.cpu >= start && (char *)r.qp->qp[0]->control.cpu < start + 4 * MIB);
	good(gpunvme_mem_alloc(gpu, NULL, MIB, NULL, &r.mem));
	map(&r);
	compare(&r, 3);
	during_io(&r, reset);
	close_rig(&r);
	/* A controller whose rings went may have stopped for good; a new one has its rings elsewhere. */
	gpunvme_dev_close(dev);
	good(gpunvme_dev_open(uri, NULL, &dev));
	open_queue(&r);
	good(gpunvme_mem_alloc(gpu, NULL, MIB, NULL, &r.mem));
	map(&r);
	compare(&r, 4);
	close_rig(&r);
}

static void test_dead_rings_are_not_reused(void **state)
{
	struct gpunvme_mem *rings;
	char *start;
	struct rig r;

	(void)state;
	good(gnv_mem_bar(bar, NULL, BAR, 0, 4 * MIB, &rings));
	start = gpunvme_mem_ptr(rings);
	good(gnv_dev_lend(dev, rings));
	reset();
	open_queue(&r);
	assert_false((char *)r.qp->qp[0]->sq.cpu >= start && (char *)r.qp->qp[0]->sq.cpu < start + 4 * MIB);
	good(gpunvme_mem_alloc(gpu, NULL, MIB, NULL, &r.mem));
	map(&r);
	compare(&r, 5);
	close_rig(&r);
}

static void unbind(void)
{
	double start = seconds();

	shell("echo %s >/sys/bus/pci/devices/%s/driver/unbind", vram, vram);
	printf("figure: unbind of the other device took %.3f s\n", seconds() - start);
	assert_true(seconds() - start < SOON);
}

/* An administrator takes the other device: that never waits for us, and the controller stays usable. */
static void test_unbind(void **state)
{
	struct gpunvme_mem *more;
	struct rig r;

	(void)state;
	open_rig(&r);
	compare(&r, 11);
	during_io(&r, unbind);
	assert_int_equal(gpunvme_mem_dbuf(r.mem, dev, &r.dbuf), -ESTALE);
	assert_int_equal(gpunvme_bar_reset(bar), -ENODEV);
	assert_int_equal(gpunvme_mem_bar(gpu, bar, BAR, 0, 4096, &more), -ENODEV);
	gpunvme_queue_destroy(r.qp);
	assert_true(gpunvme_mem_map(r.mem, dev) < 0);
	memset(gpunvme_mem_ptr(r.mem), 1, MIB); /* nobody's memory, but memory */
	gpunvme_mem_free(r.mem);
	gpunvme_bar_close(bar);
	shell("echo %s >/sys/bus/pci/drivers_probe", vram);
	open_bar();
	open_rig(&r);
	compare(&r, 12);
	close_rig(&r);
}

/* tests/vm/qmp hears this line, and QEMU's port above the second drive reports the error. */
static void bus_error(void)
{
	shell("echo 'guest: error second' >/dev/console");
}

/* The other device is a drive with a memory buffer: for ivshmem, which is no PCI Express device, kernels up to 7.2 tell of no error. */
static void test_bus_error(void **state)
{
	struct rig r;

	(void)state;
	gpunvme_bar_close(bar);
	snprintf(bar_uri, sizeof(bar_uri), "%s?port=%s", getenv("GPUNVME_TEST_CMB"), strstr(uri, "type1") ? "type1" : "iommufd");
	open_bar();
	open_queue(&r);
	good(gpunvme_mem_bar(gpu, bar, BAR, MIB, MIB, &r.mem));
	map(&r);
	compare(&r, 20);
	during_io(&r, bus_error);
	reset();
	revive(&r, false);
	close_rig(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_closed_first),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_reset_with_rings),
		cmocka_unit_test(test_dead_rings_are_not_reused),
		cmocka_unit_test(test_unbind),
		cmocka_unit_test(test_bus_error),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
