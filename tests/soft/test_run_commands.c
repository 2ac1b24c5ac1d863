/* SPDX-License-Identifier: MIT */
/*
 * gpunvme_run_commands() on CPU threads, or on the threads that GPUNVME_TEST_GPU names: each kind of command, each command's own
 * status, which of them end their thread, refusals.
 */
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
#include "soft/queues.h"

#define BYTES (1u << 20)
#define BLOCK 512u
#define BUFFER (256u << 10)
#define QUEUES 2u
#define LANES 8u
#define EACH 5u

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp[QUEUES];
	struct gpunvme_dq dq[QUEUES];
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	uint8_t *data;
	struct gpunvme_command cmd[LANES * EACH];
} t;

static struct gpunvme_command *cmd(uint32_t lane, uint32_t i)
{
	return &t.cmd[lane * EACH + i];
}

static int set_up(void **state)
{
	return image_make_dir(state);
}

static void begin(const char *lanes, const char *keys, uint32_t timeout_ms, uint32_t flags)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_STATS, 0, timeout_ms, 0, 0, 0 };
	const char *gpu = getenv("GPUNVME_TEST_GPU");
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	char uri[512];
	uint32_t i;

	image_make(image_path("disk.img"), BYTES);
	snprintf(uri, sizeof(uri), "soft:%s%s", image_path("disk.img"), keys);
	view.flags = flags;
	assert_int_equal(gpunvme_dev_open(uri, NULL, &t.dev), 0);
	assert_int_equal(gpunvme_gpu_open(gpu ? gpu : lanes, NULL, &t.gpu), 0);
	for (i = 0; i < QUEUES; i++) {
		assert_int_equal(gpunvme_queue_create(t.dev, t.gpu, &opts, &t.qp[i]), 0);
		assert_int_equal(gpunvme_queue_view(t.qp[i], &view, &t.dq[i]), 0);
	}
	assert_int_equal(gpunvme_mem_alloc(t.gpu, NULL, BUFFER, NULL, &t.mem), 0);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf), 0);
	t.data = gpunvme_mem_ptr(t.mem);
	assert_non_null(t.data);
}

static void end(void)
{
	uint32_t i;

	for (i = 0; i < QUEUES; i++)
		gpunvme_queue_destroy(t.qp[i]);
	while (gpunvme_mem_free(t.mem) == -EBUSY && t.dev) {
		gpunvme_dev_close(t.dev);
		t.dev = NULL;
	}
	gpunvme_dev_close(t.dev);
	gpunvme_gpu_close(t.gpu);
}

static int run(void)
{
	struct gpunvme_commands list = { sizeof(list), LANES, EACH, t.cmd };

	return gpunvme_run_commands(t.gpu, t.dq, QUEUES, &t.dbuf, &list);
}

/* Thread n has 16 blocks from 16 n on, and as much of the buffer. */
static struct gpunvme_command of(uint32_t lane, uint32_t op, uint32_t at, uint32_t nblocks)
{
	return (struct gpunvme_command){ 16 * lane + at, (16 * lane + at) * BLOCK, nblocks, op, lane % QUEUES, 99 };
}

static bool holds(uint32_t lane, uint32_t first, uint32_t last, uint8_t value)
{
	uint32_t i;

	for (i = (16 * lane + first) * BLOCK; i < (16 * lane + last + 1) * BLOCK; i++)
		if (t.data[i] != value)
			return false;
	return true;
}

/* Each kind of command, in an order that threads of a wave do not share; and all of it read back by others. */
static void every_kind(const char *lanes)
{
	uint32_t lane, i;

	begin(lanes, "", 0, GPUNVME_VIEW_WRITE);
	for (lane = 0; lane < LANES; lane++) {
		memset(t.data + 16 * lane * BLOCK, (int)lane + 1, 16 * BLOCK);
		*cmd(lane, 0) = of(lane, GPUNVME_IO_WRITE, 0, 16);
		*cmd(lane, 1 + (lane / QUEUES + 1) % 4) = of(lane, GPUNVME_IO_WRITE | GPUNVME_RW_FUA, 4, 2);
		*cmd(lane, 1 + (lane / QUEUES + 2) % 4) = of(lane, GPUNVME_IO_FLUSH, 0, 0);
		*cmd(lane, 1 + (lane / QUEUES + 3) % 4) = of(lane, GPUNVME_IO_WRITE_ZEROES, 8, 3);
		*cmd(lane, 1 + (lane / QUEUES + 4) % 4) = of(lane, GPUNVME_IO_DSM, 14, 2);
	}
	assert_int_equal(run(), 0);
	for (i = 0; i < LANES * EACH; i++)
		assert_int_equal(t.cmd[i].status, 0);
	memset(t.data, 0xa5, BUFFER);
	for (lane = 0; lane < LANES; lane++)
		for (i = 0; i < EACH; i++)
			*cmd(lane, i) = of(LANES - 1 - lane, GPUNVME_IO_READ, 3 * i, i == 4 ? 4 : 3);
	assert_int_equal(run(), 0);
	for (lane = 0; lane < LANES; lane++) {
		assert_true(holds(lane, 0, 7, (uint8_t)(lane + 1)));
		assert_true(holds(lane, 8, 10, 0));
		assert_true(holds(lane, 11, 13, (uint8_t)(lane + 1)));
		assert_true(holds(lane, 14, 15, 0));
	}
	assert_int_equal(t.data[16 * LANES * BLOCK], 0xa5);
	end();
}

static void kinds(void **state)
{
	(void)state;
	every_kind("cpu");
	every_kind("cpu:4"); /* threads of a wave have different queues, and differ in what they do */
}

static void all_read(void)
{
	uint32_t lane, i;

	for (lane = 0; lane < LANES; lane++)
		for (i = 0; i < EACH; i++)
			*cmd(lane, i) = of(lane, GPUNVME_IO_READ, i, 1);
}

/* A status, and what is refused before the queue has it, are their command's only. */
static void statuses(void **state)
{
	uint32_t lane;

	(void)state;
	begin("cpu", "?fault=status:0x281:op=read:lba=50-51", 0, 0);
	all_read();
	cmd(1, 0)->lba = BYTES / BLOCK;
	cmd(2, 1)->nblocks = 0;
	cmd(4, 2)->op = GPUNVME_IO_WRITE;
	cmd(5, 3)->offset = BUFFER;
	assert_int_equal(run(), 0);
	assert_int_equal(cmd(1, 0)->status, -ERANGE);
	assert_int_equal(cmd(2, 1)->status, -EINVAL);
	assert_int_equal(cmd(3, 2)->status & (int)GPUNVME_ST_CODE, 0x281);
	assert_int_equal(cmd(3, 3)->status & (int)GPUNVME_ST_CODE, 0x281);
	assert_int_equal(cmd(4, 2)->status, -EROFS);
	assert_int_equal(cmd(5, 3)->status, -ERANGE);
	for (lane = 0; lane < LANES; lane++)
		assert_int_equal(cmd(lane, 4)->status, 0);
	end();
}

/* A thread ends with a command that was given up; its queue has, too, and the other one goes on. */
static void given_up(void **state)
{
	uint32_t lane;

	(void)state;
	begin("cpu", "?fault=lose:op=read:lba=34", 2000, 0);
	all_read();
	assert_int_equal(run(), 0);
	assert_int_equal(cmd(2, 1)->status, 0);
	assert_int_equal(cmd(2, 2)->status, -ETIMEDOUT);
	assert_int_equal(cmd(2, 3)->status, -EAGAIN);
	assert_int_equal(cmd(2, 4)->status, -EAGAIN);
	for (lane = 1; lane < LANES; lane += 2)
		assert_int_equal(cmd(lane, 4)->status, 0);
	all_read();
	assert_int_equal(run(), 0);
	assert_int_equal(cmd(0, 0)->status, -ESHUTDOWN);
	assert_int_equal(cmd(0, 1)->status, -EAGAIN);
	assert_int_equal(cmd(1, 1)->status, 0);
	end();
}

/* Zeroes have no data: neither how much of that a command moves, nor the buffer, cuts them. */
static void zeroes_are_not_cut(void **state)
{
	uint64_t before;
	uint32_t lane, i;

	(void)state;
	begin("cpu", "?mdts=1", 0, GPUNVME_VIEW_WRITE);
	for (lane = 0; lane < LANES; lane++)
		for (i = 0; i < EACH; i++) {
			*cmd(lane, i) = of(lane, GPUNVME_IO_WRITE_ZEROES, 0, 100);
			cmd(lane, i)->offset = BUFFER;
		}
	before = submitted(t.qp, QUEUES);
	assert_int_equal(run(), 0);
	for (i = 0; i < LANES * EACH; i++)
		assert_int_equal(t.cmd[i].status, 0);
	assert_int_equal(submitted(t.qp, QUEUES) - before, LANES * EACH);
	end();
}

static void refuses(struct gpunvme_commands list, uint32_t queues)
{
	assert_int_equal(gpunvme_run_commands(t.gpu, t.dq, queues, &t.dbuf, &list), -EINVAL);
}

static void refusals(void **state)
{
	struct gpunvme_commands list = { sizeof(list), LANES, EACH, t.cmd };

	(void)state;
	begin("cpu", "", 0, 0);
	all_read();
	refuses(list, 0);
	refuses((struct gpunvme_commands){ sizeof(list), 0, EACH, t.cmd }, QUEUES);
	refuses((struct gpunvme_commands){ sizeof(list), LANES, 0, t.cmd }, QUEUES);
	refuses((struct gpunvme_commands){ sizeof(list), 65537, 1, t.cmd }, QUEUES);
	refuses((struct gpunvme_commands){ sizeof(list), 65536, 65536, t.cmd }, QUEUES);
	refuses((struct gpunvme_commands){ sizeof(list), LANES, EACH, NULL }, QUEUES);
	refuses((struct gpunvme_commands){ sizeof(list) - 1, LANES, EACH, t.cmd }, QUEUES);
	assert_int_equal(gpunvme_run_commands(t.gpu, t.dq, QUEUES, NULL, &list), -EINVAL);
	t.dq[QUEUES - 1].head.kind++;
	refuses(list, QUEUES);
	t.dq[QUEUES - 1].head.kind--;
	t.dq[QUEUES - 1].head.version++;
	assert_int_equal(gpunvme_run_commands(t.gpu, t.dq, QUEUES, &t.dbuf, &list), -EPROTONOSUPPORT);
	t.dq[QUEUES - 1].head.version--;
	cmd(7, 4)->queue = QUEUES;
	refuses(list, QUEUES);
	assert_non_null(strstr(gpunvme_errmsg(), "command 39 "));
	cmd(7, 4)->queue = 0;
	cmd(0, 0)->queue = QUEUES;
	refuses(list, QUEUES);
	assert_non_null(strstr(gpunvme_errmsg(), "command 0 "));
	cmd(0, 0)->queue = 0;
	cmd(0, 1)->op = GPUNVME_IO_COMPARE;
	refuses(list, QUEUES);
	assert_non_null(strstr(gpunvme_errmsg(), "command 1 "));
	assert_int_equal(cmd(0, 0)->status, 99); /* nothing was done */
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kinds),
		cmocka_unit_test(statuses),
		cmocka_unit_test(given_up),
		cmocka_unit_test(zeroes_are_not_cut),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, set_up, image_remove_disk);
}
