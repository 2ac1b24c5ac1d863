/* SPDX-License-Identifier: MIT */
/* A completion that comes again, when another command has its identifier: that one's thread is not told that its data is there. */
#include <gpunvme/device.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "dev/dev.h"
#include "soft/soft.h"

#define BLOCK 512u
#define COPY_US 50000u /* long enough for a thread to submit again; a thread that is slower finds the queue ended */

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	uint32_t reads;		/* atomic: from 1 on they meet with something */
	uint32_t lost, aborted; /* atomic: 1 + the identifier of the command that is lost, and of the first that is aborted */
} t;

static int make_image(void **state)
{
	return image_make_disk(state, 1 << 20);
}

/* The first read completes twice, the second one never begins. */
static enum gnv_soft_action decide(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *number)
{
	uint32_t *reads = ctx, n = __atomic_load_n(reads, __ATOMIC_RELAXED);

	(void)sqid;
	(void)status;
	if (!n || cmd->opc != GPUNVME_IO_READ)
		return GNV_SOFT_GO;
	__atomic_store_n(reads, n + 1, __ATOMIC_RELAXED);
	if (n == 2)
		__atomic_store_n(&t.lost, 1u + cmd->cid, __ATOMIC_RELAXED);
	*number = COPY_US;
	return n == 1 ? GNV_SOFT_TWICE : n == 2 ? GNV_SOFT_DROP : GNV_SOFT_GO;
}

static enum gnv_soft_action decide_admin(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	(void)ctx;
	(void)status;
	if (cmd->opc == GPUNVME_ADMIN_ABORT && !t.aborted)
		__atomic_store_n(&t.aborted, 1u + (cmd->cdw10 >> 16), __ATOMIC_RELAXED);
	return GNV_SOFT_GO;
}

static void open_all(uint32_t depth)
{
	static const struct gnv_soft_fault fault = { decide, &t.reads };
	static const struct gnv_soft_admin_fault admin = { decide_admin, NULL };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	char uri[512];

	memset(&t, 0, sizeof(t));
	opts.depth = depth;
	view.flags = GPUNVME_VIEW_WRITE;
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &t.dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &t.gpu), 0);
	gnv_soft_set_fault(gnv_dev_soft(t.dev), &fault);
	gnv_soft_set_admin_fault(gnv_dev_soft(t.dev), &admin);
	assert_int_equal(gpunvme_queue_create(t.dev, t.gpu, &opts, &t.qp), 0);
	assert_int_equal(gpunvme_queue_view(t.qp, &view, &t.dq), 0);
	assert_int_equal(gpunvme_mem_alloc(t.gpu, NULL, 2 * BLOCK, NULL, &t.mem), 0);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf), 0);
}

static void close_all(void)
{
	assert_int_equal(gpunvme_queue_destroy(t.qp), 0);
	assert_int_equal(gpunvme_mem_unmap(t.mem, t.dev), 0);
	gpunvme_mem_free(t.mem);
	gpunvme_gpu_close(t.gpu);
	assert_int_equal(gpunvme_dev_close(t.dev), 0);
}

static char *data(void)
{
	return (char *)(uintptr_t)t.dbuf.base;
}

static void fill(void)
{
	uint32_t lba;

	for (lba = 1; lba <= 2; lba++) {
		memset(data(), 0x40 + (int)lba, BLOCK);
		assert_int_equal(gpunvme_write(&t.dq, &t.dbuf, 0, (uint64_t)lba * BLOCK, BLOCK, 0), 0);
	}
}

/* Blocks 1 and 2 are read into the same place: by the copy of the first completion the data of block 1 would pass for block 2's. */
static void read_both(uint32_t depth, bool handles)
{
	struct gpunvme_req req;
	int ret;

	open_all(depth);
	fill();
	__atomic_store_n(&t.reads, 1, __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_read(&t.dq, &t.dbuf, 0, BLOCK, BLOCK), 0);
	assert_int_equal(data()[0], 0x41);
	if (handles) {
		ret = gpunvme_submit_read(&t.dq, &t.dbuf, 0, 2 * BLOCK, BLOCK, &req);
		ret = ret ? ret : gpunvme_wait(&t.dq, &req, 0);
	} else {
		ret = gpunvme_read(&t.dq, &t.dbuf, 0, 2 * BLOCK, BLOCK);
	}
	assert_true(ret == -GPUNVME_EPROTO || ret == -GPUNVME_ESHUTDOWN);
	assert_int_equal(gpunvme_queue_recover(t.qp), 0);
	assert_int_equal(t.aborted, t.lost);
	assert_int_equal(gpunvme_queue_view(t.qp, NULL, &t.dq), 0);
	assert_int_equal(gpunvme_read(&t.dq, &t.dbuf, 0, 2 * BLOCK, BLOCK), 0);
	assert_int_equal(data()[0], 0x42);
	close_all();
}

static void copy_is_no_result_of_a_transfer(void **state)
{
	(void)state;
	read_both(4, false);
	read_both(1024, false);
}

static void copy_is_no_result_of_a_handle(void **state)
{
	(void)state;
	read_both(16, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_is_no_result_of_a_transfer),
		cmocka_unit_test(copy_is_no_result_of_a_handle),
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
