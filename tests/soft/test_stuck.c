/* SPDX-License-Identifier: MIT */
/*
 * I/O of the software controller that the kernel does not finish (here: its completions are not seen): closing reports that bytes
 * are not the caller's yet, a function reset says that it failed and does not come true later, and both work when the I/O has
 * ended.
 */
#include <gpunvme/device.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "dev/dev.h"
#include "soft/engine/threads.h"
#include "soft/soft.h"

#define BYTES 4096u

static uint32_t held; /* atomic */
static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *qp;
static struct gpunvme_mem *mem;
static unsigned char *bytes;

unsigned __real_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);
unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);

unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max)
{
	return __atomic_load_n(&held, __ATOMIC_ACQUIRE) ? 0 : __real_gnv_uring_reap(ring, done, max);
}

static int make_image(void **state)
{
	return image_make_disk(state, 1 << 20);
}

/* Little time where nothing comes, and as much as a busy machine may take where something does. */
static void allow(uint32_t ms)
{
	dev->nvme.admin.timeout_ms = gnv_dev_soft(dev)->patience_ms = ms;
}

/* By its registers: it does not end so once it was halted. */
static void allow_to_end(uint32_t ms)
{
	dev->nvme.ctrl.disable_ms = dev->nvme.ctrl.shutdown_ms = ms;
}

/* With a read that the kernel does not finish. */
static void open_stuck(void)
{
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	char uri[512];

	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	bytes = aligned_alloc(4096, BYTES);
	assert_non_null(bytes);
	assert_int_equal(gpunvme_mem_register(gpu, bytes, BYTES, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	dq.cmd_timeout = 200 * dq.ticks_per_ms;
	allow(200);
	allow_to_end(200);
	__atomic_store_n(&held, 1, __ATOMIC_RELEASE);
	assert_int_equal(gpunvme_read(&dq, &dbuf, 0, 0, BYTES), -GPUNVME_ETIMEDOUT);
}

static void let_go(void)
{
	allow(60000);
	__atomic_store_n(&held, 0, __ATOMIC_RELEASE);
}

static void free_rest(void)
{
	assert_int_equal(gpunvme_mem_free(mem), 0);
	gpunvme_gpu_close(gpu);
	free(bytes);
}

static void closing_answers(void **state)
{
	(void)state;
	open_stuck();
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	assert_int_equal(gpunvme_mem_free(mem), -EBUSY);
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	let_go();
	assert_int_equal(gpunvme_dev_close(dev), 0);
	free_rest();
}

/* A reset that was given up stays so: the controller comes back as its registers say. */
static void reset_is_taken_back(void **state)
{
	struct gnv_soft *soft;
	uint32_t value;

	(void)state;
	open_stuck();
	soft = gnv_dev_soft(dev);
	assert_int_equal(gnv_soft_function_reset(soft), -EIO);
	assert_int_equal(__atomic_load_n(&soft->function_reset, __ATOMIC_ACQUIRE), GNV_SOFT_UNASKED);
	assert_int_equal(gnv_soft_function_reset(soft), -EIO);
	let_go();
	assert_int_equal(gnv_soft_function_reset(soft), 0);
	allow_to_end(60000);
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	assert_int_equal(gpunvme_dev_get_feature(dev, GPUNVME_FID_NUM_QUEUES, &value), 0);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	free_rest();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closing_answers),
		cmocka_unit_test(reset_is_taken_back),
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
