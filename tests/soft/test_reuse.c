/* SPDX-License-Identifier: MIT */
/*
 * A drive has a command that nobody waits for, whose buffer is unmapped: the IOMMU keeps it from the buffer. It may still fetch the
 * command's PRP list, so that is nobody else's until the drive has let go of the command.
 */
#include <gpunvme/device.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "dma/mapping.h"
#include "soft/soft.h"

#define BYTES 65536u /* a list of 15 pages */
#define QUEUES 2u
#define LATER 600u /* more than fit into the memory of the first */

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp[QUEUES];
} t;

static int make_image(void **state)
{
	return image_make_disk(state, 1 << 20);
}

static enum gnv_soft_action lose(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *number)
{
	(void)ctx;
	(void)sqid;
	(void)status;
	(void)number;
	return cmd->opc == GPUNVME_IO_READ ? GNV_SOFT_DROP : GNV_SOFT_GO;
}

static void open_all(void)
{
	static const struct gnv_soft_fault fault = { lose, NULL };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	char uri[512];
	unsigned i;

	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &t.dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &t.gpu), 0);
	opts.flags = GPUNVME_QUEUE_NO_SELFTEST;
	for (i = 0; i < QUEUES; i++)
		assert_int_equal(gpunvme_queue_create(t.dev, t.gpu, &opts, &t.qp[i]), 0);
	gnv_soft_set_fault(gnv_dev_soft(t.dev), &fault);
}

static void close_all(void)
{
	unsigned i;

	for (i = 0; i < QUEUES; i++)
		assert_int_equal(gpunvme_queue_destroy(t.qp[i]), 0);
	assert_int_equal(gpunvme_dev_close(t.dev), 0);
	gpunvme_gpu_close(t.gpu);
}

static struct gpunvme_mem *map(struct gpunvme_dbuf *dbuf)
{
	struct gpunvme_mem *mem;

	assert_int_equal(gpunvme_mem_alloc(t.gpu, NULL, BYTES, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, t.dev, dbuf), 0);
	return mem;
}

/* Where the lists of a buffer lie that is mapped and freed. */
static uint64_t lists_of_next(void)
{
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem = map(&dbuf);

	assert_int_equal(gpunvme_mem_free(mem), 0);
	return dbuf.prp_a;
}

/* A read that the drive takes, and never ends; its buffer is freed. Return: where its list lies. */
static uint64_t leave_read(unsigned queue)
{
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem = map(&dbuf);
	struct gpunvme_req req;
	struct gpunvme_dq dq;

	assert_int_equal(gpunvme_queue_view(t.qp[queue], NULL, &dq), 0);
	assert_int_equal(gpunvme_submit_read(&dq, &dbuf, 0, 0, BYTES, &req), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	return dbuf.prp_a;
}

/* How many lists wait for commands. */
static unsigned waiting(void)
{
	const struct gnv_mapping *map;
	unsigned n = 0;

	for (map = t.dev->dma.late.marked; map; map = map->next_of_dev)
		n++;
	for (map = t.dev->dma.late.fresh; map; map = map->next_of_dev)
		n++;
	return n;
}

/* A list comes back when its own command has ended, though others have not; all do with a reset. */
static void test_left(void **state)
{
	uint64_t first, second;
	unsigned i;

	(void)state;
	open_all();
	first = leave_read(0);
	for (i = 0; i < LATER; i++)
		assert_int_not_equal(lists_of_next(), first);
	assert_int_equal(waiting(), LATER + 1);
	second = leave_read(1);
	assert_int_not_equal(second, first);
	assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
	assert_int_equal(waiting(), LATER + 1);
	for (i = 0; i < LATER; i++)
		assert_int_not_equal(lists_of_next(), second);
	assert_int_equal(gpunvme_dev_reset(t.dev), 0);
	assert_int_equal(waiting(), 0);
	close_all();
}

/* A program that leaves nothing does not pay for it: the same lists over and over, although another queue has had many commands. */
static void test_none_left(void **state)
{
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	uint64_t first;
	unsigned i;

	(void)state;
	open_all();
	first = lists_of_next();
	assert_int_equal(gpunvme_queue_view(t.qp[0], NULL, &dq), 0);
	for (i = 0; i < 100; i++) {
		mem = map(&dbuf);
		assert_int_equal(dbuf.prp_a, first);
		assert_int_equal(gpunvme_flush(&dq), 0);
		assert_int_equal(gpunvme_mem_free(mem), 0);
	}
	close_all();
}

/* What waits for commands goes with the device. */
static void test_close(void **state)
{
	(void)state;
	open_all();
	leave_read(0);
	lists_of_next();
	leave_read(1);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_none_left),
		cmocka_unit_test(test_close),
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
