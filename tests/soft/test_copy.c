/* SPDX-License-Identifier: MIT */
/* gpunvme_run_copy() on CPU threads of every width, or on the threads that GPUNVME_TEST_GPU names: data, results, refusals. */
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

#include "common/image.h"
#include "dev/dev.h"
#include "gpu/kernels/kernels.h"
#include "soft/soft.h"

#define BYTES (1u << 20)
#define BLOCK 512u

static int make_image(void **state)
{
	return image_make_disk(state, BYTES);
}

static int no_launch(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	(void)gpu;
	(void)launch;
	return -EIO;
}

static const struct gnv_gpu_ops *works;

/* The kernel of a host that let a range through which wraps: its parts after 2^64 lie in the view. */
static int launch_wrapped(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	struct gnv_copy_args args = *(const struct gnv_copy_args *)launch->args;
	struct gnv_launch wrapped = *launch;

	args.lba = 0 - (uint64_t)args.step; /* all but the first part */
	wrapped.args = &args;
	return works->launch(gpu, &wrapped);
}

static void round_trip(struct gpunvme_gpu *gpu, struct gpunvme_dq *dq, struct gpunvme_mem *mem, const struct gpunvme_dbuf *dbuf)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	static uint8_t want[BYTES];
	struct gnv_gpu_ops broken = *gpu->ops;
	uint8_t *p = gpunvme_mem_ptr(mem);
	uint32_t lanes, i;

	for (lanes = 0; lanes <= 40; lanes += lanes ? 31 : 9) {
		for (i = 0; i < BYTES; i++)
			want[i] = p[i] = (uint8_t)((i * 2654435761u >> 10) + lanes);
		copy.flags = GPUNVME_COPY_WRITE;
		copy.threads = lanes;
		copy.step = lanes ? 5 : 0;
		copy.nblocks = BYTES / BLOCK;
		assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), 0);
		copy.flags = GPUNVME_COPY_FLUSH;
		assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), 0);
		memset(p, 0, BYTES);
		copy.flags = 0;
		copy.lba = 7;
		copy.nblocks -= 7;
		assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), 0);
		assert_memory_equal(p, want + 7 * BLOCK, BYTES - 7 * BLOCK);
		copy.lba = 0;
	}
	copy.nblocks = 10;
	copy.lba = BYTES / BLOCK - 4;
	copy.step = 2;
	assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), -ERANGE);
	assert_int_equal(copy.failed_nblocks, 0);
	copy.lba = 0;
	dq[1].head.kind ^= 1; /* of the views that are named, and of no other */
	assert_int_equal(gpunvme_run_copy(gpu, dq, 1, dbuf, &copy), 0);
	assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "another kind"));
	dq[1].head.kind ^= 1;
	dq[1].head.version++;
	assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), -EPROTONOSUPPORT);
	assert_non_null(strstr(gpunvme_errmsg(), "another version"));
	dq[1].head.version--;
	works = gpu->ops;
	broken.launch = no_launch;
	gpu->ops = &broken;
	assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), -EIO); /* nothing ran, and no result says so */
	gpu->ops = works;
	copy.threads = 65537;
	assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), -EINVAL);
	copy.threads = 1;
	assert_int_equal(gpunvme_run_copy(gpu, dq, 0, dbuf, &copy), -EINVAL);
	assert_int_equal(gpunvme_run_copy(NULL, dq, 1, dbuf, &copy), -EINVAL);
	copy.reserved = 1;
	assert_int_equal(gpunvme_run_copy(gpu, dq, 1, dbuf, &copy), -EINVAL);
}

/* Ranges that end where 64 bits do, or begin after the view, or that no buffer holds: refused whole, and no block is touched. */
static void ranges_are_checked_whole(struct gpunvme_gpu *gpu, const struct gpunvme_dq *views, struct gpunvme_mem *mem,
				     const struct gpunvme_dbuf *dbuf)
{
	const uint64_t all = BYTES / BLOCK;
	const struct {
		uint64_t lba, nblocks;
	} bad[] = { { 0 - 512ull, 2048 }, { 0 - 1ull, 2 }, { all - 4, 10 }, { all, 1 }, { all + 1, 1 }, { 0, all + 1 }, { 1, all },
		    { 0, 1ull << 55 }, { 0, (1ull << 55) + 1 }, { 0, UINT64_MAX }, { 5, UINT64_MAX - 4 }, { UINT64_MAX, UINT64_MAX } };
	static uint8_t was[BYTES], is[BYTES];
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct gpunvme_dq dq[2] = { views[0], views[1] };
	FILE *f = fopen(image_path("disk.img"), "rb");
	size_t i;

	assert_non_null(f);
	assert_int_equal(fread(was, 1, BYTES, f), BYTES);
	memset(gpunvme_mem_ptr(mem), 'X', BYTES);
	copy.flags = GPUNVME_COPY_WRITE;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		copy.lba = bad[i].lba;
		copy.nblocks = bad[i].nblocks;
		copy.failed_nblocks = 7; /* of a call before */
		assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), -ERANGE);
		assert_int_equal(copy.failed_nblocks, 0);
		assert_non_null(strstr(gpunvme_errmsg(), "not within view 0"));
	}
	copy.lba = 0; /* the second view is the smaller one, and half of the copy would go by it */
	copy.nblocks = all;
	dq[1].lba_count = all - 1;
	assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), -ERANGE);
	dq[1].lba_count = dq[0].lba_count = UINT64_MAX >> 9;
	copy.nblocks = all + 1;
	assert_int_equal(gpunvme_run_copy(gpu, dq, 2, dbuf, &copy), -ERANGE);
	assert_non_null(strstr(gpunvme_errmsg(), "of the buffer"));
	rewind(f);
	assert_int_equal(fread(is, 1, BYTES, f), BYTES);
	fclose(f);
	assert_memory_equal(is, was, BYTES);
}

/* The kernel checks the whole range, too. Otherwise all threads but the first send commands. */
static void the_kernel_checks_the_whole_range(struct gpunvme_gpu *gpu, struct gpunvme_queue *qp, const struct gpunvme_dq *dq,
					      const struct gpunvme_dbuf *dbuf)
{
	struct gnv_gpu_ops wraps = *gpu->ops;
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;
	int ret;

	works = gpu->ops;
	wraps.launch = launch_wrapped;
	copy.flags = GPUNVME_COPY_WRITE;
	copy.nblocks = BYTES / BLOCK;
	copy.threads = 8;
	copy.step = 16;
	assert_int_equal(gpunvme_queue_get_info(qp, &before), 0);
	gpu->ops = &wraps;
	ret = gpunvme_run_copy(gpu, dq, 1, dbuf, &copy);
	gpu->ops = works;
	assert_int_equal(ret, -ERANGE);
	assert_int_equal(gpunvme_queue_get_info(qp, &after), 0);
	assert_int_equal(after.submitted, before.submitted);
}

/* A failure of the controller is reported by its status, and in words. The image ends before the namespace does. */
static void status_of_a_command(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	int ret;

	assert_int_equal(truncate(image_path("disk.img"), 0), 0);
	copy.nblocks = 3;
	copy.lba = 5;
	ret = gpunvme_run_copy(gpu, dq, 2, dbuf, &copy);
	assert_true(ret > 0);
	assert_int_equal(copy.failed_lba, 5);
	assert_non_null(strstr(gpunvme_errmsg(), "block 5"));
	assert_non_null(strstr(gpunvme_errmsg(), gpunvme_strerror(ret)));
	assert_int_equal(truncate(image_path("disk.img"), BYTES), 0);
}

static void copies_on(const char *spec)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp[2];
	struct gpunvme_mem *mem;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_dq dq[2];
	char uri[512];
	unsigned k;

	snprintf(uri, sizeof(uri), "soft:%s?lba=512", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open(spec, NULL, &gpu), 0);
	for (k = 0; k < 2; k++) {
		assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp[k]), 0);
		assert_int_equal(gpunvme_queue_view(qp[k], &view, &dq[k]), 0);
	}
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, BYTES, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	round_trip(gpu, dq, mem, &dbuf);
	ranges_are_checked_whole(gpu, dq, mem, &dbuf);
	the_kernel_checks_the_whole_range(gpu, qp[0], dq, &dbuf);
	status_of_a_command(gpu, dq, &dbuf);
	gpunvme_queue_destroy(qp[0]);
	gpunvme_queue_destroy(qp[1]);
	gpunvme_mem_free(mem);
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
}

static void copies(void **state)
{
	(void)state;
	if (getenv("GPUNVME_TEST_GPU")) {
		copies_on(getenv("GPUNVME_TEST_GPU"));
		return;
	}
	copies_on("cpu");
	copies_on("cpu:4");
	copies_on("cpu:32");
}

/* The commands that a queue was given, and those of them that want the media. */
struct seen {
	uint32_t all, forced;
};

static enum gnv_soft_action count_forced(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	struct seen *seen = ctx;

	(void)status;
	(void)delay_us;
	__atomic_fetch_add(&seen->all, sqid != 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&seen->forced, sqid && cmd->opc == GPUNVME_IO_WRITE && cmd->cdw12 & GPUNVME_RW_FUA, __ATOMIC_RELAXED);
	return GNV_SOFT_GO;
}

/* Without a step of the caller's a copy is one command where the drive writes so much whole. */
static void whole_writes_stay_one_command_and_forced_ones_say_so(void **state)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_dq dq;
	struct seen seen = { 0, 0 };
	const struct gnv_soft_fault fault = { count_forced, &seen };
	char uri[512];

	(void)state;
	snprintf(uri, sizeof(uri), "soft:%s?lba=512", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, BYTES, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	dq.atomic = 1024; /* 512 KiB */
	copy.flags = GPUNVME_COPY_WRITE;
	copy.nblocks = 1024;
	assert_int_equal(gpunvme_queue_get_info(qp, &before), 0);
	assert_int_equal(gpunvme_run_copy(gpu, &dq, 1, &dbuf, &copy), 0);
	assert_int_equal(gpunvme_queue_get_info(qp, &after), 0);
	assert_int_equal(after.submitted - before.submitted, 1);
	copy.nblocks++;
	assert_int_equal(gpunvme_run_copy(gpu, &dq, 1, &dbuf, &copy), 0);
	assert_int_equal(gpunvme_queue_get_info(qp, &before), 0);
	assert_int_equal(before.submitted - after.submitted, 3);
	gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
	assert_int_equal(gpunvme_run_copy(gpu, &dq, 1, &dbuf, &copy), 0);
	assert_int_equal(__atomic_load_n(&seen.all, __ATOMIC_RELAXED), 3);
	assert_int_equal(__atomic_load_n(&seen.forced, __ATOMIC_RELAXED), 0);
	copy.flags |= GPUNVME_COPY_FUA;
	assert_int_equal(gpunvme_run_copy(gpu, &dq, 1, &dbuf, &copy), 0);
	assert_int_equal(__atomic_load_n(&seen.forced, __ATOMIC_RELAXED), 3);
	copy.flags = GPUNVME_COPY_FUA;
	assert_int_equal(gpunvme_run_copy(gpu, &dq, 1, &dbuf, &copy), -EINVAL);
	gpunvme_queue_destroy(qp);
	gpunvme_mem_free(mem);
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies),
		cmocka_unit_test(whole_writes_stay_one_command_and_forced_ones_say_so),
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
