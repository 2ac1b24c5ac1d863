/* SPDX-License-Identifier: MIT */
/*
 * Memory in a drive (`cmb=MIB`): queues, lists and data lie there and do what they do in memory of the host; a drive that errs with
 * them is refused and goes on without; what a reset takes comes back.
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

#include "common/good.h"
#include "common/image.h"
#include "dev/dev.h"
#include "queue/queue.h"
#include "soft/soft.h"

#define MIB ((size_t)1 << 20)
#define BLOCK 512u
#define CODE 0x7ff /* of a status, without what it says of trying again */
#define LARGE (3 * MIB) /* more than what host memory is given out of */

static char image[128];
static struct gpunvme_gpu *gpu;

static struct gpunvme_dev *open_drive(const char *keys)
{
	struct gpunvme_dev *dev;
	char uri[320];

	snprintf(uri, sizeof(uri), "soft:%s?%s", image, keys);
	good(gpunvme_dev_open(uri, NULL, &dev));
	dev->nvme.cmb.place[GPUNVME_GPU_CPU - 1] = GNV_CMB_ABOVE; /* whatever would be measured on a machine with other work */
	return dev;
}

static struct gpunvme_queue *open_queue(struct gpunvme_dev *dev, uint32_t flags)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue *qp;

	opts.flags = flags;
	opts.depth = 16;
	good(gpunvme_queue_create(dev, gpu, &opts, &qp));
	return qp;
}

static bool inside(const struct gpunvme_dev *dev, uint64_t iova)
{
	return iova >= dev->nvme.ctrl.cmb_base && iova < dev->nvme.ctrl.cmb_base + dev->nvme.info.cmb;
}

static int move(struct gpunvme_queue *qp, struct gpunvme_dev *dev, struct gpunvme_mem *mem, size_t bytes, uint32_t flags)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;

	good(gpunvme_queue_view(qp, &view, &dq));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	copy.flags = flags;
	copy.nblocks = bytes / BLOCK;
	return gpunvme_run_copy(gpu, &dq, 1, &dbuf, &copy);
}

static void fill(void *to, size_t bytes, uint32_t seed)
{
	uint32_t *at = to;

	for (size_t i = 0; i < bytes / 4; i++)
		at[i] = seed ^ (uint32_t)i * 0x9e3779b9u;
}

/* Out of one memory onto the blocks, and from there into the other. */
static void there_and_back(struct gpunvme_queue *qp, struct gpunvme_dev *dev, struct gpunvme_mem *a, struct gpunvme_mem *b, uint32_t seed)
{
	const size_t bytes = gpunvme_mem_len(a);

	fill(gpunvme_mem_ptr(a), bytes, seed);
	memset(gpunvme_mem_ptr(b), 0x11, bytes);
	good(move(qp, dev, a, bytes, GPUNVME_COPY_WRITE));
	good(move(qp, dev, b, bytes, 0));
	assert_memory_equal(gpunvme_mem_ptr(a), gpunvme_mem_ptr(b), bytes);
}

static struct gpunvme_mem *take(struct gpunvme_dev *dev, size_t bytes, uint32_t flags)
{
	struct gpunvme_mem_opts opts = { sizeof(opts), flags, 0 };
	struct gpunvme_mem *mem;

	good(gpunvme_mem_cmb(gpu, dev, bytes, &opts, &mem));
	assert_int_equal(gpunvme_mem_len(mem), bytes);
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(((unsigned char *)gpunvme_mem_ptr(mem))[i], 0);
	return mem;
}

static struct gpunvme_mem *take_host(struct gpunvme_dev *dev, size_t bytes, uint32_t flags)
{
	struct gpunvme_mem_opts opts = { sizeof(opts), flags, 0 };
	struct gpunvme_mem *mem;

	good(gpunvme_mem_alloc(gpu, NULL, bytes, &opts, &mem));
	good(gpunvme_mem_map(mem, dev));
	return mem;
}

static void test_all_places(void **state)
{
	static const uint32_t queues[] = { 0, GPUNVME_QUEUE_CMB }, lists[] = { 0, GPUNVME_MEM_CMB_LISTS };
	struct gpunvme_dev *dev = open_drive("cmb=16");

	(void)state;
	assert_int_equal(dev->nvme.info.cmb, 16 * MIB);
	assert_int_equal(dev->nvme.info.cmb_holds, GPUNVME_CMB_QUEUES | GPUNVME_CMB_LISTS | GPUNVME_CMB_DATA);
	for (uint32_t i = 0; i < 4; i++) {
		struct gpunvme_mem *mem = take(dev, LARGE, lists[i % 2]), *host = take_host(dev, LARGE, lists[i % 2]);
		struct gpunvme_queue *qp = open_queue(dev, queues[i / 2]);
		struct gpunvme_dbuf in, out;

		good(gpunvme_mem_dbuf(mem, dev, &in));
		good(gpunvme_mem_dbuf(host, dev, &out));
		assert_true(inside(dev, in.iova) && !inside(dev, out.iova));
		assert_int_equal(inside(dev, in.prp_a) + inside(dev, in.prp_b), i % 2 ? 2 : 0);
		assert_int_equal(inside(dev, out.prp_a) + inside(dev, out.prp_b), i % 2 ? 2 : 0);
		there_and_back(qp, dev, mem, host, i);
		there_and_back(qp, dev, host, mem, i + 100);
		good(gpunvme_queue_destroy(qp));
		good(gpunvme_mem_free(host));
		good(gpunvme_mem_free(mem));
	}
	good(gpunvme_dev_close(dev));
}

/* Reads through one queue take long. */
static enum gnv_soft_action slow_queue(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)cmd;
	(void)status;
	*delay_us = 5000;
	return sqid == *(const uint16_t *)ctx ? GNV_SOFT_STALL : GNV_SOFT_GO;
}

/* A queue lies where reads take less, and the first one decides for the next; what is not to be tested lies where it was asked for. */
static void test_measured(void **state)
{
	uint16_t slow; /* of the two that are compared: 1 lies in the drive */
	const struct gnv_soft_fault fault = { slow_queue, &slow }, none = { NULL, NULL };
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue *qp[3];

	(void)state;
	for (slow = 1; slow <= 2; slow++) {
		struct gpunvme_dev *dev = open_drive("cmb=8");

		dev->nvme.cmb.place[GPUNVME_GPU_CPU - 1] = 0;
		gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
		qp[0] = open_queue(dev, GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_LATENCY | GPUNVME_QUEUE_STATS);
		gnv_soft_set_fault(gnv_dev_soft(dev), &none);
		qp[1] = open_queue(dev, GPUNVME_QUEUE_CMB);
		qp[2] = open_queue(dev, GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_NO_SELFTEST);
		for (unsigned i = 0; i < 3; i++) {
			good(gpunvme_queue_get_info(qp[i], &info));
			assert_int_equal(inside(dev, qp[i]->qp[0]->sq.iova), i == 2 || slow == 2);
			assert_int_equal(!strcmp(info.placement, "cmb"), i == 2 || slow == 2);
			assert_int_equal(info.submitted, 0);
			good(gpunvme_queue_destroy(qp[i]));
		}
		good(gpunvme_dev_close(dev));
	}
}

/* Create a queue as a GPU of that kind does. Return: does it lie in the drive's memory? */
static bool lies_inside(struct gpunvme_dev *dev, enum gpunvme_gpu_kind kind)
{
	struct gpunvme_queue *qp;
	bool is_inside;

	gpu->info.kind = kind;
	qp = open_queue(dev, GPUNVME_QUEUE_CMB);
	is_inside = inside(dev, qp->qp[0]->sq.iova);
	good(gpunvme_queue_destroy(qp));
	gpu->info.kind = GPUNVME_GPU_CPU;
	return is_inside;
}

/* Each kind of GPU has its own place, is measured once, and changes nothing of the others. */
static void test_each_kind_has_its_place(void **state)
{
	static const enum gpunvme_gpu_kind kinds[] = { GPUNVME_GPU_CPU, GPUNVME_GPU_HSA, GPUNVME_GPU_CUDA };
	struct gpunvme_dev *dev = open_drive("cmb=8");
	uint32_t *place = dev->nvme.cmb.place;
	bool is_inside;

	(void)state;
	assert_int_equal(sizeof(dev->nvme.cmb.place), sizeof(kinds) / sizeof(kinds[0]) * sizeof(*place));
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned k = 0; k < 3; k++)
			place[k] = k == i ? GNV_CMB_BELOW : GNV_CMB_ABOVE;
		for (unsigned k = 0; k < 3; k++)
			assert_int_equal(lies_inside(dev, kinds[k]), k != i);
		for (unsigned k = 0; k < 3; k++)
			place[k] = k == i ? 0 : GNV_CMB_OPEN;
		is_inside = lies_inside(dev, kinds[i]);
		assert_int_equal(place[i], is_inside ? GNV_CMB_ABOVE : GNV_CMB_BELOW);
		for (unsigned k = 0; k < 3; k++)
			assert_true(k == i || place[k] == GNV_CMB_OPEN);
		assert_false(dev->nvme.cmb.lists_proven); /* the member after place[] */
	}
	good(gpunvme_dev_close(dev));
}

/* With one queue there is nothing to compare. */
static void test_not_measured(void **state)
{
	struct gpunvme_dev *dev = open_drive("cmb=8&queues=1");
	struct gpunvme_queue *qp;

	(void)state;
	dev->nvme.cmb.place[GPUNVME_GPU_CPU - 1] = 0;
	qp = open_queue(dev, GPUNVME_QUEUE_CMB);
	assert_true(inside(dev, qp->qp[0]->sq.iova));
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_dev_close(dev));
}

/* All of it can be had, in any sizes, and is there again when it was freed. */
static void test_room(void **state)
{
	struct gpunvme_dev *dev = open_drive("cmb=8&queues=2"), *other;
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_mem *mem, *more;
	struct gpunvme_queue *qp[2];
	char uri[200];

	(void)state;
	mem = take(dev, 7 * MIB, 0);
	assert_int_equal(gpunvme_mem_cmb(gpu, dev, MIB, NULL, &more), -ENOSPC); /* a page is the library's */
	assert_int_equal(gpunvme_mem_cmb(gpu, dev, SIZE_MAX / 4, NULL, &more), -ENOSPC);
	assert_int_equal(gpunvme_mem_cmb(gpu, dev, SIZE_MAX, NULL, &more), -ENOMEM);
	assert_int_equal(gpunvme_mem_cmb(gpu, dev, 0, NULL, &more), -EINVAL);
	image_make(image_path("other"), 1 << 20);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("other"));
	for (unsigned i = 0; i < 2; i++, opts.share = dev) {
		good(gpunvme_dev_open(uri, &opts, &other));
		assert_int_equal(gpunvme_mem_cmb(gpu, other, 4096, NULL, &more), -EOPNOTSUPP);
		assert_int_equal(gpunvme_mem_map(mem, other), -EXDEV);
		good(gpunvme_dev_close(other));
	}
	remove(image_path("other"));
	more = take(dev, MIB - 4096, 0);
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "2 memories"));
	good(gpunvme_mem_free(mem));
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	qp[0] = open_queue(dev, 0); /* it is as open as it was */
	qp[1] = open_queue(dev, 0);
	assert_int_equal(gpunvme_mem_cmb(gpu, dev, MIB, NULL, &mem), -ENOSPC); /* no queue for the test */
	assert_non_null(strstr(gpunvme_errmsg(), "queue"));
	good(gpunvme_queue_destroy(qp[1]));
	mem = take(dev, 7 * MIB, 0);
	good(gpunvme_mem_free(mem));
	good(gpunvme_mem_free(more));
	good(gpunvme_dev_close(dev));
}

/* It is refused by the test, and nothing of it is left. */
static void test_drives_that_err(void **state)
{
	struct gpunvme_mem_opts listed = { sizeof(listed), GPUNVME_MEM_CMB_LISTS, 0 };
	struct gpunvme_dev *dev = open_drive("cmb=8&fault=cmb-data");
	struct gpunvme_mem *mem, *host;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_mem_cmb(gpu, dev, MIB, NULL, &mem), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "self-test"));
	host = take_host(dev, MIB, GPUNVME_MEM_CMB_LISTS);
	qp = open_queue(dev, GPUNVME_QUEUE_CMB);
	good(move(qp, dev, host, MIB, 0));
	good(gpunvme_mem_free(host));
	good(gpunvme_dev_close(dev));

	dev = open_drive("cmb=8&fault=cmb-lists");
	good(gpunvme_mem_alloc(gpu, NULL, MIB, &listed, &host));
	assert_int_equal(gpunvme_mem_map(host, dev) & CODE, GPUNVME_SC_INVALID_CMB_USE);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_MEM_CMB_LISTS"));
	assert_int_equal(gpunvme_mem_cmb(gpu, dev, MIB, &listed, &mem) & CODE, GPUNVME_SC_INVALID_CMB_USE);
	good(gpunvme_mem_free(host));
	mem = take(dev, MIB, 0);
	qp = open_queue(dev, 0);
	good(move(qp, dev, mem, MIB, 0));
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(mem));
	good(gpunvme_dev_close(dev));
}

/* A function reset takes what lies in the drive: lists are written anew before a queue can use them, data is its owner's. */
static void test_reset(void **state)
{
	struct gpunvme_dev *dev = open_drive("cmb=8");
	struct gpunvme_mem *host = take_host(dev, MIB, GPUNVME_MEM_CMB_LISTS), *mem = take(dev, MIB, GPUNVME_MEM_CMB_LISTS);
	struct gpunvme_queue *qp = open_queue(dev, GPUNVME_QUEUE_CMB);
	unsigned char *bytes = gpunvme_mem_ptr(mem);

	(void)state;
	there_and_back(qp, dev, host, mem, 1);
	memset(bytes, 1, MIB);
	gnv_soft_set_stubborn(gnv_dev_soft(dev), GNV_SOFT_FAILS, false);
	good(gpunvme_dev_reset(dev));
	good(gpunvme_queue_retire(qp));
	assert_int_not_equal(bytes[MIB / 2], 1);
	there_and_back(qp, dev, host, mem, 2);
	there_and_back(qp, dev, mem, host, 3);
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(host));
	good(gpunvme_mem_free(mem));
	good(gpunvme_dev_close(dev));
}

/* The controller reaches its memory by the address that it was told, and only then. */
static void test_address(void **state)
{
	struct gpunvme_dev *dev = open_drive("cmb=8");
	struct gpunvme_mem *mem = take(dev, MIB, 0);
	const uint64_t base = dev->nvme.ctrl.cmb_base;
	struct gpunvme_queue *qp = open_queue(dev, 0);

	(void)state;
	gnv_ctrl_cmb_off(&dev->nvme.ctrl);
	good(gpunvme_dev_reset(dev));
	good(gpunvme_queue_retire(qp));
	assert_int_equal(move(qp, dev, mem, MIB, 0) & CODE, GPUNVME_SC_DATA_TRANSFER);
	dev->nvme.ctrl.cmb_base = base;
	good(gpunvme_dev_reset(dev));
	good(gpunvme_queue_retire(qp));
	good(move(qp, dev, mem, MIB, 0));
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(mem));
	good(gpunvme_dev_close(dev));
}

static enum gnv_soft_action stall_first(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status,
					 uint32_t *delay_us)
{
	(void)sqid;
	(void)cmd;
	(void)status;
	*delay_us = 300000;
	return __atomic_fetch_add((unsigned *)ctx, 1, __ATOMIC_RELAXED) ? GNV_SOFT_GO : GNV_SOFT_STALL;
}

/* A read of one block that begins late. It is in flight until somebody waits for it. */
static void begin_read(struct gpunvme_queue *qp, struct gpunvme_dev *dev, struct gpunvme_mem *mem, struct gpunvme_dq *dq,
		       struct gpunvme_req *req)
{
	struct gpunvme_dbuf dbuf;

	good(gpunvme_queue_view(qp, NULL, dq));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	good(gpunvme_submit_read(dq, &dbuf, 0, 0, BLOCK, req));
}

/* Nothing would keep the late read from what is put into the drive next: its memory and its lists stay until the read has ended. */
static void test_late_read(void **state)
{
	struct gpunvme_dev *dev = open_drive("cmb=8");
	struct gpunvme_mem *mem = take(dev, MIB, 0), *listed = take_host(dev, MIB, GPUNVME_MEM_CMB_LISTS), *host = take_host(dev, MIB, 0);
	struct gpunvme_queue *qp = open_queue(dev, 0);
	unsigned seen = 0;
	const struct gnv_soft_fault fault = { stall_first, &seen }, none = { NULL, NULL };
	struct gpunvme_req req;
	struct gpunvme_dq dq;

	(void)state;
	gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
	begin_read(qp, dev, mem, &dq, &req);
	assert_int_equal(gpunvme_mem_free(mem), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "in flight"));
	assert_int_equal(gpunvme_mem_unmap(mem, dev), -EBUSY);
	assert_int_equal(gpunvme_mem_unmap(listed, dev), -EBUSY);
	assert_int_equal(gpunvme_mem_free(listed), -EBUSY);
	good(gpunvme_mem_free(host)); /* that the address space sees to */
	good(gpunvme_wait(&dq, &req, 0));
	good(gpunvme_mem_free(mem));
	good(gpunvme_mem_free(listed));
	gnv_soft_set_fault(gnv_dev_soft(dev), &none);
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_dev_close(dev));
}

/* What fails its test was nobody's yet: a read of another does not keep it. */
static void test_failed_beside_read(void **state)
{
	struct gpunvme_dev *dev = open_drive("cmb=8&fault=cmb-data");
	struct gpunvme_mem *host = take_host(dev, MIB, 0), *mem;
	struct gpunvme_queue *qp = open_queue(dev, 0);
	unsigned seen = 0;
	const struct gnv_soft_fault fault = { stall_first, &seen };
	struct gpunvme_req req;
	struct gpunvme_dq dq;

	(void)state;
	gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
	begin_read(qp, dev, host, &dq, &req);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(gpunvme_mem_cmb(gpu, dev, 7 * MIB, NULL, &mem), -EIO);
	good(gpunvme_wait(&dq, &req, 0));
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(host));
	good(gpunvme_dev_close(dev));
}

static void *free_it(void *mem)
{
	return gpunvme_mem_free(mem) ? mem : NULL;
}

/* Closing the drive again and again succeeds when the memory is back in it, not before. */
static void test_freed_before_closed(void **state)
{
	struct gpunvme_dev *dev = open_drive("cmb=8");
	struct gpunvme_mem *mem = take(dev, MIB, 0);
	pthread_mutex_t *lock = (pthread_mutex_t *)(void *)dev->nvme.cmb.arena; /* its first member */
	pthread_t thread;
	unsigned given = 1;
	void *bad;

	(void)state;
	pthread_mutex_lock(lock);
	assert_int_equal(pthread_create(&thread, NULL, free_it, mem), 0);
	for (unsigned i = 0; i < 100 && given; i++, usleep(1000))
		given = __atomic_load_n(&dev->dma.cmb_given, __ATOMIC_ACQUIRE);
	pthread_mutex_unlock(lock);
	pthread_join(thread, &bad);
	assert_null(bad);
	assert_int_equal(given, 1);
	good(gpunvme_dev_close(dev));
}

static int setup(void **state)
{
	if (image_make_dir(state))
		return -1;
	snprintf(image, sizeof(image), "%s", image_path("drive"));
	image_make(image, 16 << 20);
	return gpunvme_gpu_open("cpu", NULL, &gpu);
}

static int teardown(void **state)
{
	gpunvme_gpu_close(gpu);
	remove(image);
	return image_remove_dir(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_places),
		cmocka_unit_test(test_measured),
		cmocka_unit_test(test_not_measured),
		cmocka_unit_test(test_each_kind_has_its_place),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_drives_that_err),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_address),
		cmocka_unit_test(test_late_read),
		cmocka_unit_test(test_failed_beside_read),
		cmocka_unit_test(test_freed_before_closed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
