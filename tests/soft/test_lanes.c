/* SPDX-License-Identifier: MIT */
/*
 * The whole way: public API, threads through the device header, the software controller, a file. Every thread owns a stripe of
 * blocks, writes a pattern of its own there in pieces of changing size and reads it back into another buffer.
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
#include "dev/dev.h"
#include "soft/soft.h"

#define MAX_QUEUES 4u
#define STRIPE 48u /* blocks of one thread */
#define IMAGE_MIB 16

struct stage {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp[MAX_QUEUES];
	struct gpunvme_dq dq[MAX_QUEUES];
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	uint32_t queues, lanes, width, lba_size, rounds;
	uint32_t wrong, failed;
	bool forward;
};

static int make_image(void **state)
{
	return image_make_disk(state, (long long)IMAGE_MIB << 20);
}

static void open_stage(struct stage *s, const char *keys, uint32_t depth, uint32_t flags)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	char uri[512], spec[16];
	uint32_t i;

	view.flags = GPUNVME_VIEW_WRITE;
	opts.depth = depth;
	opts.flags = flags;
	s->forward = flags & GPUNVME_QUEUE_FORWARD;
	snprintf(uri, sizeof(uri), "soft:%s%s", image_path("disk.img"), keys);
	snprintf(spec, sizeof(spec), "cpu:%u", s->width);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev), 0);
	assert_int_equal(gpunvme_gpu_open(spec, NULL, &s->gpu), 0);
	assert_int_equal(gpunvme_ns_get_info(s->dev, 0, &ns), 0);
	s->lba_size = ns.lba_size;
	for (i = 0; i < s->queues; i++) {
		assert_int_equal(gpunvme_queue_create(s->dev, s->gpu, &opts, &s->qp[i]), 0);
		assert_int_equal(gpunvme_queue_view(s->qp[i], &view, &s->dq[i]), 0);
	}
	assert_int_equal(gpunvme_mem_alloc(s->gpu, NULL, 2ull * s->lanes * STRIPE * s->lba_size, NULL, &s->mem), 0);
	assert_int_equal(gpunvme_mem_map(s->mem, s->dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(s->mem, s->dev, &s->dbuf), 0);
}

/* One queue, made after the hook was set, as the hook demands; without the self-test, which the hook would fail. */
static void open_faulty_stage(struct stage *s, const struct gnv_soft_fault *fault, uint32_t depth)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;

	open_stage(s, "", 0, 0);
	gnv_soft_set_fault(gnv_dev_soft(s->dev), fault);
	view.flags = GPUNVME_VIEW_WRITE;
	opts.depth = depth;
	opts.flags = GPUNVME_QUEUE_NO_SELFTEST;
	s->queues = 1;
	assert_int_equal(gpunvme_queue_create(s->dev, s->gpu, &opts, &s->qp[0]), 0);
	assert_int_equal(gpunvme_queue_view(s->qp[0], &view, &s->dq[0]), 0);
}

static void close_stage(struct stage *s)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	uint32_t i;

	for (i = 0; i < s->queues; i++) {
		assert_int_equal(gpunvme_queue_get_info(s->qp[i], &info), 0);
		assert_int_equal(info.poison, 0);
		assert_int_equal(info.in_flight, 0);
		assert_string_equal(info.placement, s->forward ? "soft+fwd" : "soft");
		gpunvme_queue_destroy(s->qp[i]);
	}
	assert_int_equal(gpunvme_mem_unmap(s->mem, s->dev), 0);
	gpunvme_mem_free(s->mem);
	gpunvme_gpu_close(s->gpu);
	gpunvme_dev_close(s->dev);
}

static void fill(uint8_t *p, size_t bytes, uint32_t seed)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		p[i] = (uint8_t)((i * 2654435761u >> 13) + seed * 37u);
}

/* Move a stripe in pieces of 1 to 9 blocks. */
static int move_stripe(const struct stage *s, const struct gpunvme_dq *dq, int writing, uint64_t offset, uint64_t lba, uint32_t round)
{
	uint32_t done, n;
	int ret = 0;

	for (done = 0; done < STRIPE && !ret; done += n) {
		n = 1 + (round * 5 + done) % 9;
		n = n < STRIPE - done ? n : STRIPE - done;
		ret = writing ? gpunvme_write(dq, &s->dbuf, offset + (uint64_t)done * s->lba_size,
					      (uint64_t)(lba + done) << dq->lba_shift, (uint64_t)n << dq->lba_shift, 0)
			      : gpunvme_read(dq, &s->dbuf, offset + (uint64_t)done * s->lba_size,
					     (uint64_t)(lba + done) << dq->lba_shift, (uint64_t)n << dq->lba_shift);
	}
	return ret;
}

static void stripe_kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t lane = gpunvme_thread_id(), round;
	size_t bytes = (size_t)STRIPE * s->lba_size;
	uint64_t out = lane * bytes, in = ((uint64_t)s->lanes + lane) * bytes;
	uint8_t *base = (uint8_t *)(uintptr_t)s->dbuf.base;
	const struct gpunvme_dq *dq;

	for (round = 0; round < s->rounds; round++) {
		dq = &s->dq[(lane + round) % s->queues];
		fill(base + out, bytes, lane * 101 + round);
		memset(base + in, 0xee, bytes);
		if (move_stripe(s, dq, 1, out, (uint64_t)lane * STRIPE, round) ||
		    move_stripe(s, dq, 0, in, (uint64_t)lane * STRIPE, round + 3) || gpunvme_flush(dq))
			__atomic_fetch_add(&s->failed, 1, __ATOMIC_RELAXED);
		else if (memcmp(base + out, base + in, bytes))
			__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
	}
}

static void run(const char *keys, uint32_t depth, uint32_t flags, struct stage s)
{
	open_stage(&s, keys, depth, flags);
	assert_int_equal(gpunvme_cpu_launch(s.lanes, s.width, stripe_kernel, &s), 0);
	assert_int_equal(s.failed, 0);
	assert_int_equal(s.wrong, 0);
	close_stage(&s);
}

static void every_depth_works(void **state)
{
	uint32_t depth;

	(void)state;
	for (depth = 2; depth <= 65536; depth *= depth < 8 ? 2 : 4)
		run("?depth=65536", depth, 0, (struct stage){ .queues = 1, .lanes = 3, .width = 1, .rounds = 2 });
	run("?depth=65536", 65536, 0, (struct stage){ .queues = 1, .lanes = 3, .width = 1, .rounds = 2 });
}

static void every_width_works(void **state)
{
	(void)state;
	run("?lba=512", 32, 0, (struct stage){ .queues = 2, .lanes = 6, .width = 1, .rounds = 4 });
	run("?lba=512", 32, 0, (struct stage){ .queues = 2, .lanes = 6, .width = 4, .rounds = 4 });
	run("?lba=512", 4, 0, (struct stage){ .queues = 1, .lanes = 32, .width = 32, .rounds = 1 });
}

static void blocks_of_4096_bytes_work(void **state)
{
	(void)state;
	run("?lba=4096", 64, 0, (struct stage){ .queues = 2, .lanes = 4, .width = 4, .rounds = 3 });
}

static void wide_doorbell_stride_works(void **state)
{
	(void)state;
	run("?dstrd=3", 16, 0, (struct stage){ .queues = 4, .lanes = 4, .width = 1, .rounds = 3 });
}

static void sgl_data_works(void **state)
{
	(void)state;
	run("", 16, GPUNVME_QUEUE_SGL, (struct stage){ .queues = 1, .lanes = 4, .width = 1, .rounds = 3 });
}

static void small_mdts_splits(void **state)
{
	(void)state;
	run("?lba=4096&mdts=1", 16, 0, (struct stage){ .queues = 2, .lanes = 4, .width = 1, .rounds = 3 });
}

static void several_server_threads_work(void **state)
{
	(void)state;
	run("?threads=3", 16, GPUNVME_QUEUE_STATS, (struct stage){ .queues = 4, .lanes = 8, .width = 1, .rounds = 3 });
}

/* A thread copies the doorbells: every width, the smallest ring, and threads that leave and come back after it slept. */
static void forwarded_doorbells_work(void **state)
{
	const uint32_t flags = GPUNVME_QUEUE_FORWARD | GPUNVME_QUEUE_STATS;

	(void)state;
	run("", 2, flags, (struct stage){ .queues = 1, .lanes = 3, .width = 1, .rounds = 2 });
	run("", 32, flags, (struct stage){ .queues = 2, .lanes = 6, .width = 4, .rounds = 4 });
	run("?threads=2&dstrd=3", 4, flags, (struct stage){ .queues = 4, .lanes = 32, .width = 32, .rounds = 1 });
}

/* A tenth of the commands late by up to 3 ms. */
static enum gnv_soft_action dawdle(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	uint32_t *random = ctx;

	(void)sqid;
	(void)cmd;
	(void)status;
	*random = *random * 1664525u + 1013904223u;
	*delay_us = (*random >> 16) % 3000;
	return *random >> 28 < 2 ? GNV_SOFT_DELAY : GNV_SOFT_GO;
}

static void many_lanes_share_a_dawdling_queue(void **state)
{
	struct stage s = { .lanes = 12, .width = 4, .rounds = 2 };
	uint32_t random = 7;
	struct gnv_soft_fault fault = { dawdle, &random };

	(void)state;
	open_faulty_stage(&s, &fault, 8);
	assert_int_equal(gpunvme_cpu_launch(s.lanes, s.width, stripe_kernel, &s), 0);
	assert_int_equal(s.failed, 0);
	assert_int_equal(s.wrong, 0);
	close_stage(&s);
}

/* Each command's own status to its own thread. */
static enum gnv_soft_action fail_by_lba(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)delay_us;
	*status = (uint16_t)(GPUNVME_SC_LBA_RANGE + cmd->cdw10 % 5);
	return cmd->cdw10 % 3 ? GNV_SOFT_FAIL : GNV_SOFT_GO;
}

static void status_kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t i, lba;
	int ret, expect;

	for (i = 0; i < 200; i++) {
		lba = gpunvme_thread_id() * 200 + i;
		expect = lba % 3 ? (int)(GPUNVME_SC_LBA_RANGE + lba % 5) : 0;
		ret = gpunvme_read(&s->dq[0], &s->dbuf, gpunvme_thread_id() * 512ull, (uint64_t)lba << s->dq[0].lba_shift,
				   1ull << s->dq[0].lba_shift);
		if ((ret & (int)GPUNVME_ST_CODE) != expect || ret < 0)
			__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
	}
}

static void every_lane_gets_its_own_status(void **state)
{
	struct stage s = { .lanes = 8, .width = 4 };
	struct gnv_soft_fault fault = { fail_by_lba, NULL };

	(void)state;
	open_faulty_stage(&s, &fault, 0);
	assert_int_equal(gpunvme_cpu_launch(s.lanes, s.width, status_kernel, &s), 0);
	assert_int_equal(s.wrong, 0);
	close_stage(&s);
}

/* Threads that submit and go away: the completion thread frees what they left, and other threads' reads end as ever. */
static void leaving_kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t i;
	int ret;

	for (i = 0; i < 200; i++) {
		do
			ret = gpunvme_submit_read(&s->dq[i & 1], &s->dbuf, 0, (uint64_t)i << s->dq[i & 1].lba_shift,
						  1ull << s->dq[i & 1].lba_shift, NULL);
		while (ret == -GPUNVME_EAGAIN);
		if (ret)
			__atomic_fetch_add(&s->failed, 1, __ATOMIC_RELAXED);
	}
	if (gpunvme_read(&s->dq[0], &s->dbuf, 512, 3ull << s->dq[0].lba_shift, 1ull << s->dq[0].lba_shift))
		__atomic_fetch_add(&s->failed, 1, __ATOMIC_RELAXED);
}

/* Nobody but the completion thread takes the rest. */
static void wait_until_quiet(const struct stage *s)
{
	struct gpunvme_queue_info one = { .size = sizeof(one) }, other = one;

	do {
		usleep(1000);
		assert_int_equal(gpunvme_queue_get_info(s->qp[0], &one), 0);
		assert_int_equal(gpunvme_queue_get_info(s->qp[1], &other), 0);
	} while (one.in_flight + other.in_flight);
}

static void leave_commands(struct stage *s)
{
	assert_int_equal(gpunvme_cpu_launch(s->lanes, s->width, leaving_kernel, s), 0);
	assert_int_equal(s->failed, 0);
	wait_until_quiet(s);
}

static void recover_both(struct stage *s, bool retire)
{
	for (uint32_t i = 0; i < s->queues; i++) {
		assert_int_equal(gpunvme_queue_recover(s->qp[i]), 0);
		assert_int_equal(retire ? gpunvme_queue_retire(s->qp[i]) : 0, 0);
		assert_int_equal(gpunvme_queue_view(s->qp[i], NULL, &s->dq[i]), 0);
	}
}

static void a_thread_takes_completions(void **state)
{
	struct stage s = { .queues = 2, .lanes = 4, .width = 1 };

	(void)state;
	open_stage(&s, "", 16, GPUNVME_QUEUE_COMPLETION_THREAD);
	leave_commands(&s);
	recover_both(&s, false);
	leave_commands(&s);
	assert_int_equal(gpunvme_dev_reset(s.dev), 0);
	recover_both(&s, true);
	leave_commands(&s);
	close_stage(&s);
}

/* It rests while the queue is stopped, takes what was in flight, and goes on after that. */
static void a_thread_outlives_a_stop(void **state)
{
	struct stage s = { .queues = 2, .lanes = 4, .width = 1 };
	struct gpunvme_req req[2];

	(void)state;
	open_stage(&s, "?fault=delay:20000:op=read", 16, GPUNVME_QUEUE_COMPLETION_THREAD);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(gpunvme_submit_read(&s.dq[i], &s.dbuf, 0, 0, 1ull << s.dq[i].lba_shift, &req[i]), 0);
		assert_int_equal(gpunvme_queue_stop(s.qp[i], 1), 0);
	}
	wait_until_quiet(&s);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(gpunvme_queue_stop(s.qp[i], 0), 0);
		assert_int_equal(gpunvme_wait(&s.dq[i], &req[i], 0), 0);
	}
	leave_commands(&s);
	close_stage(&s);
}

/* Several pairs, and a device that is closed before its queue. */
static void a_thread_ends_with_its_device(void **state)
{
	struct stage s = { .queues = 1, .lanes = 4, .width = 1 };
	const struct gpunvme_queue_opts opts = { .size = sizeof(opts), .flags = GPUNVME_QUEUE_COMPLETION_THREAD, .queues = 3 };
	struct gpunvme_queue *queue;

	(void)state;
	open_stage(&s, "", 16, 0);
	assert_int_equal(gpunvme_queue_create(s.dev, s.gpu, &opts, &queue), 0);
	assert_int_equal(gpunvme_queue_recover(queue), 0);
	close_stage(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_depth_works),
		cmocka_unit_test(every_width_works),
		cmocka_unit_test(blocks_of_4096_bytes_work),
		cmocka_unit_test(wide_doorbell_stride_works),
		cmocka_unit_test(sgl_data_works),
		cmocka_unit_test(small_mdts_splits),
		cmocka_unit_test(several_server_threads_work),
		cmocka_unit_test(forwarded_doorbells_work),
		cmocka_unit_test(many_lanes_share_a_dawdling_queue),
		cmocka_unit_test(every_lane_gets_its_own_status),
		cmocka_unit_test(a_thread_takes_completions),
		cmocka_unit_test(a_thread_outlives_a_stop),
		cmocka_unit_test(a_thread_ends_with_its_device),
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
