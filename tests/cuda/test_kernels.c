/* SPDX-License-Identifier: MIT */
/*
 * The whole way with an NVIDIA GPU: public API, kernels that the driver compiles, the software controller, a file. Runs on the GPU of
 * this machine, or on what GPUNVME_CUDA_LIBRARY names; skips where there is none.
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

#include "common/image.h"
#include "fronts.h"
#include "gpu/gpu.h"
#include "dev/dev.h"
#include "os/nvidia/cuda.h"
#include "soft/soft.h"

extern const char fronts_ptx[];
__asm__(".pushsection .rodata\n\t.globl fronts_ptx\nfronts_ptx:\n\t.incbin \"" FRONTS_PTX "\"\n\t.byte 0\n\t.popsection\n");

#define NAME(name) #name,
static const char *const names[] = { FRONTS(NAME) };
#define NUMBER(name) name,
enum { FRONTS(NUMBER) FRONT_KERNELS };

#define HALF (8u << 20)
#define BLOCK 512u
#define LANES_MAX 8192u

struct stage {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *vol;
	struct gnv_cuda *cuda; /* the same GPU, with the kernels of the test */
	struct gnv_gpu_range out, words, table;
	struct front_args args;
	uint32_t lanes;
};

static bool real; /* the machine's own GPU */

static int make_image(void **state)
{
	struct gpunvme_gpu *gpu;
	int ret = gpunvme_gpu_open("cuda:0", NULL, &gpu);

	if (ret) {
		printf("skipped: %s\n", gpunvme_errmsg());
		exit(77);
	}
	gpunvme_gpu_close(gpu);
	real = !getenv("GPUNVME_CUDA_LIBRARY");
	if (image_make_dir(state))
		return -1;
	image_make(image_path("cuda.img"), 2 * HALF);
	return 0;
}

static int remove_image(void **state)
{
	unlink(image_path("cuda.img"));
	return image_remove_dir(state);
}

static void open_stage(struct stage *s, const char *keys, uint32_t depth, uint32_t flags)
{
	struct gpunvme_queue_opts vol_opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	char uri[512];

	view.flags = GPUNVME_VIEW_WRITE;
	opts.depth = depth;
	opts.flags = flags;
	vol_opts.queues = 3;
	snprintf(uri, sizeof(uri), "soft:%s?lba=512%s", image_path("cuda.img"), keys);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev), 0);
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &s->gpu), 0);
	assert_int_equal(gpunvme_queue_create(s->dev, s->gpu, &opts, &s->qp), 0); /* its self-test is a kernel */
	assert_int_equal(gpunvme_queue_view(s->qp, &view, &s->args.dq), 0);
	assert_int_equal(gpunvme_queue_create_striped(&s->dev, 1, s->gpu, &vol_opts, &s->vol), 0);
	assert_int_equal(gpunvme_queue_view(s->vol, &view, &s->args.vol), 0);
	assert_int_equal(gpunvme_mem_alloc(s->gpu, s->vol, 2 * HALF, NULL, &s->mem), 0);
	assert_int_equal(gpunvme_mem_map_queue(s->mem, s->vol, &s->args.vbuf), 0);
	assert_int_equal(gpunvme_mem_dbuf(s->mem, s->dev, &s->args.dbuf), 0);
	assert_int_equal(s->gpu->ops->local_alloc(s->gpu, 4 * LANES_MAX, &s->out), 0);
	assert_int_equal(s->gpu->ops->local_alloc(s->gpu, 128, &s->words), 0);
	assert_int_equal(s->gpu->ops->local_alloc(s->gpu, sizeof(s->args.dq), &s->table), 0);
	assert_int_equal(s->gpu->ops->poke(s->gpu, s->table.lane, &s->args.dq, sizeof(s->args.dq)), 0);
	s->args.out = s->out.lane;
	s->args.stop = s->words.lane;
	s->args.served = s->table.lane;
	s->args.half = HALF;
	const struct gnv_cuda_code code = { fronts_ptx, names, 0, FRONT_KERNELS };

	assert_int_equal(gnv_cuda_open(0, &s->cuda), 0);
	assert_int_equal(gnv_cuda_load(s->cuda, &code), 0);
}

static void close_stage(struct stage *s)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_queue_get_info(s->qp, &info), 0);
	assert_int_equal(info.poison, 0);
	assert_int_equal(info.in_flight, 0);
	gnv_cuda_close(s->cuda);
	s->gpu->ops->local_free(s->gpu, &s->table, sizeof(s->args.dq));
	s->gpu->ops->local_free(s->gpu, &s->words, 128);
	s->gpu->ops->local_free(s->gpu, &s->out, 4 * LANES_MAX);
	gpunvme_queue_destroy(s->qp);
	assert_int_equal(gpunvme_mem_unmap_queue(s->mem, s->vol), 0);
	gpunvme_queue_destroy(s->vol);
	gpunvme_mem_free(s->mem);
	gpunvme_gpu_close(s->gpu);
	gpunvme_dev_close(s->dev);
}

static void fill(uint8_t *p, size_t bytes, uint32_t seed)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		p[i] = (uint8_t)((i * 2654435761u >> 9) + seed * 83u);
}

static void check_answers(struct stage *s, int32_t expect)
{
	int32_t *status = calloc(s->lanes, 4);
	uint32_t i;

	assert_int_equal(s->gpu->ops->peek(s->gpu, status, s->out.lane, 4 * s->lanes), 0);
	for (i = 0; i < s->lanes; i++) {
		if (status[i] != expect)
			fail_msg("lane %u of %u answered %d: %s", i, s->lanes, status[i], gpunvme_strerror(status[i]));
	}
	free(status);
}

/* What threads from `first` on were to move has arrived, and is in the file from block `lba` on. */
static void check_bytes(struct stage *s, uint64_t from, uint64_t bytes, uint64_t lba)
{
	uint8_t *p = gpunvme_mem_ptr(s->mem), *file = malloc(bytes);
	FILE *f = fopen(image_path("cuda.img"), "rb");

	assert_memory_equal(p + HALF + from, p + from, bytes);
	assert_non_null(f);
	assert_int_equal(fseek(f, (long)(lba * BLOCK), SEEK_SET), 0);
	assert_int_equal(fread(file, 1, bytes, f), bytes);
	assert_memory_equal(file, p + from, bytes);
	fclose(f);
	free(file);
}

static void launch(struct stage *s, unsigned kernel, uint32_t groups, uint32_t group_lanes, uint64_t nblocks)
{
	static uint32_t seed;
	const uint64_t zero[2] = { 0, 0 };
	const struct gnv_cuda_job job = { kernel, &s->args, groups, group_lanes, 600000, NULL, NULL };
	uint8_t *p = gpunvme_mem_ptr(s->mem);

	fill(p, HALF, ++seed);
	memset(p + HALF, 0xee, HALF);
	s->lanes = groups * group_lanes;
	s->args.nblocks = nblocks;
	assert_int_equal(s->gpu->ops->poke(s->gpu, s->words.lane, zero, sizeof(zero)), 0);
	assert_int_equal(gnv_cuda_launch(s->cuda, &job), 0);
}

static void run(struct stage *s, unsigned kernel, uint32_t groups, uint32_t group_lanes, uint64_t nblocks)
{
	launch(s, kernel, groups, group_lanes, nblocks);
	check_answers(s, 0);
	check_bytes(s, 0, s->lanes * nblocks * BLOCK, kernel == front_volume ? 3 : 0);
}

static void every_front_moves_data(void **state)
{
	static const unsigned fronts[] = { front_lane, front_diverged, front_wave, front_any, front_volume };
	struct stage s = { .lanes = 0 };
	unsigned i;

	(void)state;
	open_stage(&s, "", 64, 0);
	for (i = 0; i < sizeof(fronts) / sizeof(fronts[0]); i++) {
		run(&s, fronts[i], 1, 1, 3);
		run(&s, fronts[i], 1, 7, 2);
		run(&s, fronts[i], 2, 32, 3);
		if (real) {
			run(&s, fronts[i], 8, 256, 4);
			run(&s, fronts[i], 128, 64, 2);
		}
	}
	close_stage(&s);
}

static void a_workgroup_moves_one_range(void **state)
{
	static const uint64_t sizes[] = { 1, 31, 32, 1000, 8191 };
	static const uint32_t lanes[] = { 1, 32, 24, 256, 96 };
	struct stage s = { .lanes = 0 };
	unsigned i, k;

	(void)state;
	open_stage(&s, "", 256, 0);
	for (k = 0; k < (real ? 5 : 3); k++) {
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			launch(&s, front_block, 1, lanes[k], sizes[i]);
			check_answers(&s, 0);
			check_bytes(&s, 0, sizes[i] * BLOCK, 5);
			assert_int_equal(((uint8_t *)gpunvme_mem_ptr(s.mem))[HALF + sizes[i] * BLOCK], 0xee);
		}
	}
	close_stage(&s);
}

static void a_group_serves_the_others(void **state)
{
	struct stage s = { .lanes = 0 };

	(void)state;
	open_stage(&s, "", 64, GPUNVME_QUEUE_POLLED | GPUNVME_QUEUE_STATS);
	s.args.rounds = 20;
	launch(&s, front_serve, real ? 5 : 2, 32, 2);
	check_answers(&s, 0);
	check_bytes(&s, 32 * 2 * BLOCK, (s.lanes - 32) * 2 * BLOCK, 64);
	close_stage(&s);
}

static void tiny_rings_and_small_transfers(void **state)
{
	struct stage s = { .lanes = 0 };

	(void)state;
	open_stage(&s, "&mdts=1", 2, 0);
	run(&s, front_lane, 2, 32, 20);
	run(&s, front_wave, 1, 32, 9);
	close_stage(&s);
	open_stage(&s, "", 16, GPUNVME_QUEUE_SGL);
	run(&s, front_lane, 2, 32, 5);
	close_stage(&s);
	open_stage(&s, "", 16, GPUNVME_QUEUE_FORWARD);
	run(&s, front_diverged, 2, 32, 2);
	close_stage(&s);
}

/* Every third read fails, with the block in the status. */
static enum gnv_soft_action fail_some(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	*delay_us = 10000;
	*status = (uint16_t)(GPUNVME_SC_LBA_RANGE + cmd->cdw10 % 5);
	if (cmd->opc == GPUNVME_IO_READ && cmd->cdw10 % 3 == 0)
		return GNV_SOFT_FAIL;
	return cmd->cdw10 % 100 == 1 ? GNV_SOFT_DELAY : GNV_SOFT_GO;
}

static void every_lane_gets_its_own_status(void **state)
{
	struct gnv_soft_fault fault = { fail_some, NULL };
	struct stage s = { .lanes = 0 };
	int32_t status[2048];
	uint32_t i;

	(void)state;
	open_stage(&s, "", 64, 0);
	gnv_soft_set_fault(gnv_dev_soft(s.dev), &fault);
	launch(&s, front_lane, real ? 16 : 2, real ? 128 : 32, 1);
	assert_int_equal(s.gpu->ops->peek(s.gpu, status, s.out.lane, 4 * s.lanes), 0);
	for (i = 0; i < s.lanes; i++)
		assert_int_equal(status[i] & (int)GPUNVME_ST_CODE, i % 3 ? 0 : GPUNVME_SC_LBA_RANGE + i % 5);
	gnv_soft_set_fault(gnv_dev_soft(s.dev), NULL);
	close_stage(&s);
}

static void stop_reaches_lanes(void **state)
{
	struct stage s = { .lanes = 0 };
	uint32_t i;
	int32_t status[64];

	(void)state;
	open_stage(&s, "", 2, 0);
	assert_int_equal(gpunvme_queue_stop(s.qp, 1), 0);
	launch(&s, front_lane, 2, 32, 1);
	assert_int_equal(s.gpu->ops->peek(s.gpu, status, s.out.lane, sizeof(status)), 0);
	for (i = 0; i < 64; i++)
		assert_true(status[i] == 0 || status[i] == -ECANCELED);
	assert_int_equal(gpunvme_queue_stop(s.qp, 0), 0);
	run(&s, front_lane, 2, 32, 1);
	close_stage(&s);
}

/* Copies without a kernel of one's own, in both directions, with the first failure named. */
static void library_kernel_copies(void **state)
{
	struct gnv_soft_fault fault = { fail_some, NULL };
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct stage s = { .lanes = 64 };
	uint8_t *p;

	(void)state;
	open_stage(&s, "", 0, 0);
	p = gpunvme_mem_ptr(s.mem);
	fill(p, 3000 * BLOCK, 5);
	memcpy(p + HALF, p, 3000 * BLOCK);
	copy.flags = GPUNVME_COPY_WRITE;
	copy.nblocks = 3000;
	copy.step = 7;
	assert_int_equal(gpunvme_run_copy(s.gpu, &s.args.dq, 1, &s.args.dbuf, &copy), 0);
	copy.flags = GPUNVME_COPY_FLUSH;
	assert_int_equal(gpunvme_run_copy(s.gpu, &s.args.dq, 1, &s.args.dbuf, &copy), 0);
	copy.flags = 0;
	memset(p, 0, 3000 * BLOCK);
	assert_int_equal(gpunvme_run_copy(s.gpu, &s.args.dq, 1, &s.args.dbuf, &copy), 0);
	check_bytes(&s, 0, 3000 * BLOCK, 0);
	gnv_soft_set_fault(gnv_dev_soft(s.dev), &fault);
	copy.step = 1;
	copy.lba = 31;
	copy.nblocks = 50;
	assert_int_equal(gpunvme_run_copy(s.gpu, &s.args.dq, 1, &s.args.dbuf, &copy) & (int)GPUNVME_ST_CODE, GPUNVME_SC_LBA_RANGE + 33 % 5);
	assert_int_equal(copy.failed_lba, 33);
	assert_int_equal(copy.failed_nblocks, 1);
	gnv_soft_set_fault(gnv_dev_soft(s.dev), NULL);
	copy.nblocks = 0;
	assert_int_equal(gpunvme_run_copy(s.gpu, &s.args.dq, 1, &s.args.dbuf, &copy), -EINVAL);
	copy.nblocks = 1u << 20;
	assert_int_equal(gpunvme_run_copy(s.gpu, &s.args.dq, 1, &s.args.dbuf, &copy), -ERANGE);
	copy.flags = 8;
	assert_int_equal(gpunvme_run_copy(s.gpu, &s.args.dq, 1, &s.args.dbuf, &copy), -EINVAL);
	close_stage(&s);
}

/* A kernel that waits for what never comes: the host gives up, and can go on. */
static void a_launch_is_bounded(void **state)
{
	struct gnv_ring_args args = { .timeout = 400u * 1000000u, .rings = 1 };
	struct gnv_launch l = { GNV_KERNEL_RING, &args, sizeof(args), 1, 60, NULL, NULL };
	struct stage s = { .lanes = 0 };
	uint32_t rung = 7, i;

	(void)state;
	open_stage(&s, "", 0, 0);
	args.doorbell = s.words.lane + 64;
	args.go = s.words.lane;
	args.rung = s.words.lane + 32;
	assert_int_equal(s.gpu->ops->poke(s.gpu, args.rung, &rung, 4), 0);
	assert_int_equal(s.gpu->ops->launch(s.gpu, &l), -ETIMEDOUT);
	for (i = 0; i < 3000 && rung; i++) { /* copies go on while the kernel runs */
		usleep(1000);
		assert_int_equal(s.gpu->ops->peek(s.gpu, &rung, args.rung, 4), 0);
	}
	assert_int_equal(rung, 0);
	usleep(50000);
	run(&s, front_lane, 1, 32, 1);
	close_stage(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_front_moves_data),
		cmocka_unit_test(a_workgroup_moves_one_range),
		cmocka_unit_test(a_group_serves_the_others),
		cmocka_unit_test(tiny_rings_and_small_transfers),
		cmocka_unit_test(every_lane_gets_its_own_status),
		cmocka_unit_test(stop_reaches_lanes),
		cmocka_unit_test(library_kernel_copies),
		cmocka_unit_test(a_launch_is_bounded),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_image, remove_image);
}
