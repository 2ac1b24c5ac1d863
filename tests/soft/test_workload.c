/* SPDX-License-Identifier: MIT */
/*
 * gpunvme_workload_run() on CPU threads, or on the threads that GPUNVME_TEST_GPU names: every pattern and width, what is counted,
 * refusals.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>

#include "common/image.h"
#include "soft/queues.h"

#define BYTES (1u << 20)
#define BLOCK 512u
#define QUEUES 2u

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp[QUEUES];
	struct gpunvme_dq dq[QUEUES];
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
} t;

static int set_up(void **state)
{
	return image_make_dir(state);
}

static void begin(const char *lanes)
{
	static const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_STATS, 0, 0, 0, 0, 0 };
	const char *gpu = getenv("GPUNVME_TEST_GPU");
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	char uri[512];
	uint32_t i;

	image_make(image_path("disk.img"), BYTES);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_dev_open(uri, NULL, &t.dev), 0);
	assert_int_equal(gpunvme_gpu_open(gpu ? gpu : lanes, NULL, &t.gpu), 0);
	for (i = 0; i < QUEUES; i++) {
		assert_int_equal(gpunvme_queue_create(t.dev, t.gpu, &opts, &t.qp[i]), 0);
		assert_int_equal(gpunvme_queue_view(t.qp[i], &view, &t.dq[i]), 0);
	}
	assert_int_equal(gpunvme_mem_alloc(t.gpu, NULL, 16384, NULL, &t.mem), 0);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf), 0);
}

static void end(void)
{
	uint32_t i;

	for (i = 0; i < QUEUES; i++)
		gpunvme_queue_destroy(t.qp[i]);
	gpunvme_mem_free(t.mem);
	gpunvme_dev_close(t.dev);
	gpunvme_gpu_close(t.gpu);
}

/* What is said to have ended is what the queues had. */
static void counts(void **state)
{
	struct gpunvme_workload load = GPUNVME_WORKLOAD_INIT;
	uint64_t before, next;
	uint32_t flags;

	(void)state;
	begin("cpu:4");
	for (flags = 0; flags < 4; flags++) {
		before = submitted(t.qp, QUEUES);
		load.flags = flags;
		load.threads = 7;
		load.nblocks = 1 + 3 * flags;
		load.ms = 20;
		load.seed = next = 11 * flags;
		assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), 0);
		assert_true(load.commands >= load.threads);
		assert_int_equal(submitted(t.qp, QUEUES) - before, load.commands);
		assert_in_range(load.took_ns, 20000000, 20000000000);
		assert_int_not_equal(load.next, next);
	}
	end();
}

/* Writes go where the pattern says: in order from the first place on, all of them the buffer's. */
static void writes_in_order(void **state)
{
	struct gpunvme_workload load = GPUNVME_WORKLOAD_INIT;
	static uint8_t image[BYTES];
	uint64_t i;
	FILE *f;

	(void)state;
	begin("cpu");
	memset(gpunvme_mem_ptr(t.mem), 0x5a, 16384);
	load.flags = GPUNVME_WORKLOAD_WRITE;
	load.threads = 1;
	load.nblocks = 2;
	load.ms = 1;
	load.seed = 100;
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), 0);
	assert_int_equal(load.next, 100 + load.commands);
	end();
	f = fopen(image_path("disk.img"), "rb");
	assert_non_null(f);
	assert_int_equal(fread(image, 1, BYTES, f), BYTES);
	fclose(f);
	for (i = 0; i < load.commands && 100 + i < BYTES / BLOCK / 2; i++)
		assert_int_equal(image[(100 + i) * 2 * BLOCK], 0x5a);
}

static void refusals(void **state)
{
	struct gpunvme_workload load = GPUNVME_WORKLOAD_INIT;

	(void)state;
	begin("cpu");
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), -EINVAL); /* no blocks, no time */
	load.ms = 1;
	load.nblocks = 16384 / BLOCK + 1;
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), -ERANGE);
	t.dq[1].lba_shift = 12; /* a command of the second view would reach beyond the buffer */
	load.nblocks = 16384 / 4096 + 1;
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), -ERANGE);
	t.dq[1].lba_shift = t.dq[0].lba_shift;
	t.dq[1].lba_count = load.nblocks - 1;
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), -ERANGE);
	t.dq[1].lba_count = t.dq[0].lba_count;
	load.nblocks = 1;
	t.dq[1].head.kind ^= 1; /* of the views that are named, and of no other */
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, 1, &t.dbuf, &load), 0);
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "another kind"));
	t.dq[1].head.kind ^= 1;
	t.dq[1].head.version++;
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), -EPROTONOSUPPORT);
	t.dq[1].head.version--;
	load.flags = 4;
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), -EINVAL);
	load.flags = 0;
	load.threads = 65537;
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load), -EINVAL);
	load.threads = 1;
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, 0, &t.dbuf, &load), -EINVAL);
	assert_int_equal(gpunvme_workload_run(t.gpu, t.dq, QUEUES, NULL, &load), -EINVAL);
	assert_int_equal(truncate(image_path("disk.img"), 0), 0); /* and a failure of the controller's */
	assert_true(gpunvme_workload_run(t.gpu, t.dq, QUEUES, &t.dbuf, &load) > 0);
	assert_int_equal(load.commands, 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts),
		cmocka_unit_test(writes_in_order),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, set_up, image_remove_disk);
}
