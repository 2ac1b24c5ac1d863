/* SPDX-License-Identifier: MIT */
/*
 * Queues, lists and data in the memory of the drive itself (CMB). For the guest of tests/vm: GPUNVME_TEST_URI names a controller that
 * has GPUNVME_TEST_MIB MiB, GPUNVME_TEST_OLD is set where they are of the kind before NVMe 1.4. At the addresses of that memory
 * nothing is mapped, so a command that comes back was fetched inside the drive.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "nvme/cmb.h"
#include "nvme/reset.h"
#include "queue/queue.h"
#include "util/clock.h"

#define LANES 4u
#define ROUNDS 64u
#define BYTES (LANES * 4096u)
#define READS 300u
#define DATA (256u << 10) /* each access costs a turn of the emulator */

static struct gpunvme_gpu *gpu;
static struct gpunvme_dev *dev;
static struct gpunvme_mem *mem;
static struct gpunvme_dbuf dbuf;
static struct gpunvme_dev_info info = { .size = sizeof(info) };
static struct gpunvme_ns_info ns = { .size = sizeof(ns) };

static void say(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	printf("log: %d %s\n", (int)level, text);
}

static int setup(void **state)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;

	(void)state;
	opts.log = say;
	good(gpunvme_dev_open(getenv("GPUNVME_TEST_URI"), &opts, &dev));
	dev->nvme.cmb.place[GPUNVME_GPU_CPU - 1] = GNV_CMB_ABOVE; /* an emulated drive's time decides nothing here */
	good(gpunvme_dev_get_info(dev, &info));
	good(gpunvme_ns_get_info(dev, 0, &ns));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_mem_alloc(gpu, NULL, BYTES, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	good(gpunvme_mem_free(mem));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	return 0;
}

static void open_queue(uint32_t flags, struct gpunvme_queue **qp)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;

	opts.flags = flags;
	opts.depth = 16; /* so that the ring is gone round often */
	good(gpunvme_queue_create(dev, gpu, &opts, qp));
}

struct job {
	struct gpunvme_dq dq;
	unsigned seed;
	int status[LANES];
};

/* Each thread has 4096 bytes of the buffer and of the medium for itself. */
static void lane(void *arg)
{
	struct job *j = arg;
	const uint32_t me = (uint32_t)gpunvme_thread_id(), blocks = 4096u / ns.lba_size;
	unsigned char *bytes = (unsigned char *)gpunvme_mem_ptr(mem) + me * 4096u;
	int ret = 0;

	for (unsigned i = 0; i < ROUNDS && !ret; i++) {
		const unsigned char mark = (unsigned char)(j->seed + i + 16 * me);

		memset(bytes, mark, 4096);
		ret = gpunvme_write(&j->dq, &dbuf, me * 4096u, (uint64_t)(me * blocks) << j->dq.lba_shift,
				    (uint64_t)blocks << j->dq.lba_shift, 0);
		memset(bytes, 0, 4096);
		if (!ret)
			ret = gpunvme_read(&j->dq, &dbuf, me * 4096u, (uint64_t)(me * blocks) << j->dq.lba_shift,
					   (uint64_t)blocks << j->dq.lba_shift);
		for (unsigned b = 0; b < 4096 && !ret; b++)
			if (bytes[b] != mark)
				ret = 1000;
	}
	j->status[me] = ret;
}

static void work(struct gpunvme_queue *qp, unsigned seed)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	struct job job = { .seed = seed };

	good(gpunvme_queue_view(qp, &view, &job.dq));
	good(gpunvme_cpu_launch(1, LANES, lane, &job));
	for (unsigned i = 0; i < LANES; i++)
		assert_int_equal(job.status[i], 0);
}

static void test_queue(void **state)
{
	struct gpunvme_queue_info qi = { .size = sizeof(qi) };
	struct gpunvme_queue *qp, *other;
	uint64_t base;

	(void)state;
	assert_int_equal(info.cmb, strtoull(getenv("GPUNVME_TEST_MIB"), NULL, 10) << 20);
	assert_int_equal(info.cmb_holds, GPUNVME_CMB_QUEUES | GPUNVME_CMB_LISTS | GPUNVME_CMB_DATA);
	open_queue(GPUNVME_QUEUE_CMB, &qp);
	good(gpunvme_queue_get_info(qp, &qi));
	assert_string_equal(qi.placement, "cmb");
	base = dev->nvme.ctrl.cmb_base;
	assert_true(qp->qp[0]->sq.iova > base && qp->qp[0]->sq.iova < base + info.cmb);
	work(qp, 1);
	good(gpunvme_dev_reset(dev));
	good(gpunvme_queue_retire(qp));
	assert_true(qp->qp[0]->sq.iova > base && qp->qp[0]->sq.iova < base + info.cmb);
	work(qp, 2);
	open_queue(GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_FORWARD, &other);
	work(other, 3);
	good(gpunvme_queue_recover(qp));
	good(gpunvme_queue_retire(qp));
	work(qp, 4);
	good(gpunvme_queue_destroy(other));
	good(gpunvme_queue_destroy(qp));
}

static int move(struct gpunvme_queue *qp, struct gpunvme_mem *what, uint32_t flags)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct gpunvme_dbuf at;
	struct gpunvme_dq dq;

	good(gpunvme_queue_view(qp, &view, &dq));
	good(gpunvme_mem_dbuf(what, dev, &at));
	copy.flags = flags;
	copy.nblocks = DATA / ns.lba_size;
	return gpunvme_run_copy(gpu, &dq, 1, &at, &copy);
}

/* Out of one memory onto the blocks and into the other. */
static void there_and_back(struct gpunvme_queue *qp, struct gpunvme_mem *from, struct gpunvme_mem *to, uint32_t seed)
{
	uint32_t *a = gpunvme_mem_ptr(from);

	for (uint32_t i = 0; i < DATA / 4; i++)
		a[i] = seed ^ i * 0x9e3779b9u;
	good(move(qp, from, GPUNVME_COPY_WRITE));
	good(move(qp, to, 0));
	assert_memory_equal(a, gpunvme_mem_ptr(to), DATA);
}

static bool inside(uint64_t iova)
{
	return iova > dev->nvme.ctrl.cmb_base && iova < dev->nvme.ctrl.cmb_base + info.cmb;
}

static void test_data(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct gpunvme_mem_opts opts = { sizeof(opts), i & 1 ? GPUNVME_MEM_CMB_LISTS : 0, 0 };
		struct gpunvme_mem *host, *drive;
		struct gpunvme_dbuf in, out;
		struct gpunvme_queue *qp;

		good(gpunvme_mem_cmb(gpu, dev, DATA, &opts, &drive));
		good(gpunvme_mem_alloc(gpu, NULL, DATA, &opts, &host));
		good(gpunvme_mem_map(host, dev));
		good(gpunvme_mem_dbuf(drive, dev, &in));
		good(gpunvme_mem_dbuf(host, dev, &out));
		assert_true(inside(in.iova) && !inside(out.iova));
		assert_int_equal(inside(in.prp_a), i & 1);
		assert_int_equal(inside(out.prp_b), i & 1);
		open_queue(i & 2 ? GPUNVME_QUEUE_CMB : 0, &qp);
		there_and_back(qp, drive, host, i);
		there_and_back(qp, host, drive, i + 100);
		if (i == 3) {
			good(gpunvme_dev_reset(dev));
			good(gpunvme_queue_retire(qp));
			there_and_back(qp, drive, host, i + 200);
		}
		good(gpunvme_queue_destroy(qp));
		good(gpunvme_mem_free(host));
		assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
		good(gpunvme_mem_free(drive));
	}
}

static void let_go(void *device)
{
	(void)device;
}

/* A function reset takes what the drive was told of its addresses. */
static void test_function_reset(void **state)
{
	struct gpunvme_queue *qp;

	(void)state;
	good(dev->nvme.port->ops->reset(dev->nvme.port));
	dev->nvme.ctrl.enabled = false;
	good(gnv_reset(&dev->nvme, let_go, dev));
	open_queue(GPUNVME_QUEUE_CMB, &qp);
	work(qp, 5);
	good(gpunvme_queue_destroy(qp));
}

/* The drive takes all 64 bits of its address at once. */
static void test_high_address(void **state)
{
	const uint64_t high = dev->nvme.ctrl.cmb_base | 1ull << 40;
	const struct gnv_port_cmb where = { 2, 0, info.cmb };
	struct gpunvme_mem *bytes;
	struct gpunvme_queue *qp;
	uint64_t iova;

	(void)state;
	if (getenv("GPUNVME_TEST_OLD"))
		return; /* QEMU's knows it by its BAR only, whatever address it gets (nvme_addr_is_cmb() of its hw/nvme/ctrl.c) */
	gnv_cmb_close(&dev->nvme);
	good(dev->nvme.port->ops->cmb(dev->nvme.port, &where, &bytes, &iova));
	good(gnv_arena_over(bytes, high, dev->nvme.ctrl.page_size, &dev->nvme.log, &dev->nvme.cmb.arena));
	dev->nvme.ctrl.cmb_base = high;
	good(dev->nvme.port->ops->reset(dev->nvme.port));
	dev->nvme.ctrl.enabled = false;
	good(gnv_reset(&dev->nvme, let_go, dev));
	open_queue(GPUNVME_QUEUE_CMB, &qp);
	assert_true(qp->qp[0]->sq.iova > high);
	work(qp, 6);
	good(gpunvme_queue_destroy(qp));
}

static void read_often(void *arg)
{
	struct job *j = arg;

	for (unsigned i = 0; i < READS && !j->status[0]; i++)
		j->status[0] = gpunvme_read(&j->dq, &dbuf, 0, (uint64_t)i << j->dq.lba_shift, 1ull << j->dq.lba_shift);
}

/* What an emulated drive takes says nothing of a real one; that both ways go to the end does. */
static void test_time(void **state)
{
	static const uint32_t flags[] = { 0, GPUNVME_QUEUE_CMB };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct job job = { .seed = 0 };
		struct gpunvme_queue *qp;
		uint64_t start;

		open_queue(flags[i], &qp);
		good(gpunvme_queue_view(qp, NULL, &job.dq));
		start = gnv_clock_ns();
		good(gpunvme_cpu_launch(1, 1, read_often, &job));
		printf("figure: a read, submission queue in %s: %.1f us\n", i ? "the drive" : "host memory",
		       (double)(gnv_clock_ns() - start) / 1000 / READS);
		assert_int_equal(job.status[0], 0);
		good(gpunvme_queue_destroy(qp));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_function_reset),
		cmocka_unit_test(test_high_address),
		cmocka_unit_test(test_time),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
