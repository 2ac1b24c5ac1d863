/* SPDX-License-Identifier: MIT */
/* Counters and latencies as a program reads them: exact in the end, whole and growing while threads run. */
#include <gpunvme/device.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "dev/dev.h"
#include "soft/soft.h"

#define ALL (GPUNVME_QUEUE_STATS | GPUNVME_QUEUE_LATENCY)
#define READS 300u /* of each thread */
#define LATE_US 30000u

struct stage {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	uint64_t failed, looks, odd;
	bool over;
};

static int make_image(void **state)
{
	return image_make_disk(state, 4ll << 20);
}

static void open_stage(struct stage *s, const char *lanes, uint32_t flags, const struct gnv_soft_fault *fault)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	char uri[512];

	memset(s, 0, sizeof(*s));
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev), 0);
	assert_int_equal(gpunvme_gpu_open(lanes, NULL, &s->gpu), 0);
	if (fault)
		gnv_soft_set_fault(gnv_dev_soft(s->dev), fault);
	opts.flags = flags | (fault ? GPUNVME_QUEUE_NO_SELFTEST : 0);
	opts.depth = 16;
	assert_int_equal(gpunvme_queue_create(s->dev, s->gpu, &opts, &s->qp), 0);
	assert_int_equal(gpunvme_queue_view(s->qp, NULL, &s->dq), 0);
	assert_int_equal(gpunvme_mem_alloc(s->gpu, NULL, 64 * 512, NULL, &s->mem), 0);
	assert_int_equal(gpunvme_mem_map(s->mem, s->dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(s->mem, s->dev, &s->dbuf), 0);
}

static void close_stage(struct stage *s)
{
	assert_int_equal(gpunvme_mem_unmap(s->mem, s->dev), 0);
	gpunvme_mem_free(s->mem);
	gpunvme_queue_destroy(s->qp);
	gpunvme_gpu_close(s->gpu);
	gpunvme_dev_close(s->dev);
}

static void kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t i;

	for (i = 0; i < READS; i++)
		if (gpunvme_read(&s->dq, &s->dbuf, gpunvme_thread_id() * 512ull,
				 (uint64_t)(gpunvme_thread_id() * READS + i) << s->dq.lba_shift, 1ull << s->dq.lba_shift))
			__atomic_fetch_add(&s->failed, 1, __ATOMIC_RELAXED);
}

static uint64_t sum(const struct gpunvme_queue_latency *latency)
{
	uint64_t all = 0;
	uint32_t i;

	for (i = 0; i < GPUNVME_LATENCY_BUCKETS; i++)
		all += latency->bucket[i];
	return all;
}

static struct gpunvme_queue_latency latency_of(const struct stage *s)
{
	struct gpunvme_queue_latency latency = { .size = sizeof(latency) };

	assert_int_equal(gpunvme_queue_get_latency(s->qp, &latency), 0);
	return latency;
}

static struct gpunvme_queue_info info_of(const struct stage *s)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_queue_get_info(s->qp, &info), 0);
	return info;
}

static enum gnv_soft_action fail_fifth(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)delay_us;
	*status = GPUNVME_SC_LBA_RANGE;
	return cmd->cdw10 % 5 ? GNV_SOFT_GO : GNV_SOFT_FAIL;
}

static void every_command_is_counted(const char *lanes, uint32_t width, const struct gnv_soft_fault *fault)
{
	const uint32_t count = 8;
	struct gpunvme_queue_latency latency;
	struct gpunvme_queue_info info;
	struct stage s;

	open_stage(&s, lanes, ALL, fault);
	latency = latency_of(&s);
	assert_int_equal(sum(&latency), 0); /* without the self-test */
	assert_int_equal(info_of(&s).errors, 0);
	assert_int_equal(gpunvme_cpu_launch(count, width, kernel, &s), 0);
	latency = latency_of(&s);
	info = info_of(&s);
	assert_int_equal(info.submitted, count * READS);
	assert_int_equal(info.completions, count * READS);
	assert_int_equal(sum(&latency), count * READS);
	assert_int_equal(s.failed, fault ? count * READS / 5 : 0);
	assert_int_equal(info.errors, s.failed);
	close_stage(&s);
}

static void counts_are_exact(void **state)
{
	struct gnv_soft_fault fault = { fail_fifth, NULL };

	(void)state;
	every_command_is_counted("cpu", 1, NULL);
	every_command_is_counted("cpu:4", 4, NULL);
	every_command_is_counted("cpu", 1, &fault);
}

/* Every tenth command is late: the times show how many, and by how much at least. */
static enum gnv_soft_action delay_tenth(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)status;
	*delay_us = LATE_US;
	return cmd->cdw10 % 10 ? GNV_SOFT_GO : GNV_SOFT_DELAY;
}

static void late_commands_show(void **state)
{
	struct gnv_soft_fault fault = { delay_tenth, NULL };
	struct gpunvme_queue_latency latency;
	uint64_t longest, start;
	struct stage s;

	(void)state;
	open_stage(&s, "cpu", GPUNVME_QUEUE_LATENCY, &fault);
	start = gnvd_clock();
	assert_int_equal(gpunvme_cpu_launch(1, 1, kernel, &s), 0);
	longest = gnvd_clock() - start;
	latency = latency_of(&s);
	assert_int_equal(sum(&latency), READS);
	assert_true(gpunvme_latency_ns(&latency, 900001) > LATE_US * 1000ull);
	assert_true(gpunvme_latency_ns(&latency, 0) < LATE_US * 1000ull);
	assert_true(gpunvme_latency_ns(&latency, 1000000) <= longest + longest / 8);
	assert_int_equal(info_of(&s).completions, 0); /* not asked for */
	close_stage(&s);
}

/* Counts only grow, and no command is timed that was not submitted. */
static void *watch(void *arg)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) }, before = info;
	struct gpunvme_queue_latency latency = { .size = sizeof(latency) }, last = latency;
	struct stage *s = arg;
	uint32_t i;

	for (; !__atomic_load_n(&s->over, __ATOMIC_ACQUIRE); s->looks++) {
		s->odd += gpunvme_queue_get_latency(s->qp, &latency) || gpunvme_queue_get_info(s->qp, &info);
		for (i = 0; i < GPUNVME_LATENCY_BUCKETS; i++)
			s->odd += latency.bucket[i] < last.bucket[i];
		s->odd += sum(&latency) > info.submitted;
		s->odd += info.completions < before.completions || info.doorbells < before.doorbells || info.drains < before.drains;
		last = latency;
		before = info;
	}
	return NULL;
}

static void the_host_reads_while_lanes_run(void **state)
{
	struct gpunvme_queue_latency latency;
	pthread_t thread;
	struct stage s;

	(void)state;
	open_stage(&s, "cpu", ALL, NULL);
	assert_int_equal(pthread_create(&thread, NULL, watch, &s), 0);
	assert_int_equal(gpunvme_cpu_launch(4, 1, kernel, &s), 0);
	__atomic_store_n(&s.over, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	assert_true(s.looks > 1);
	assert_int_equal(s.odd, 0);
	latency = latency_of(&s);
	assert_int_equal(sum(&latency), 4 * READS);
	close_stage(&s);
}

static void a_queue_without_latencies_says_so(void **state)
{
	struct gpunvme_queue_latency latency = { .size = sizeof(latency) };
	struct stage s;

	(void)state;
	open_stage(&s, "cpu", GPUNVME_QUEUE_STATS, NULL);
	assert_int_equal(gpunvme_queue_get_latency(s.qp, &latency), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_QUEUE_LATENCY"));
	assert_int_equal(gpunvme_queue_get_latency(NULL, &latency), -EINVAL);
	close_stage(&s);
	open_stage(&s, "cpu", GPUNVME_QUEUE_LATENCY, NULL);
	latency.size--;
	assert_int_equal(gpunvme_queue_get_latency(s.qp, &latency), -EINVAL);
	assert_int_equal(gpunvme_queue_get_latency(s.qp, NULL), -EINVAL);
	close_stage(&s);
}

static void recovery_starts_to_count_anew(void **state)
{
	struct gpunvme_queue_latency latency;
	struct stage s;

	(void)state;
	open_stage(&s, "cpu", ALL, NULL);
	assert_int_equal(gpunvme_cpu_launch(1, 1, kernel, &s), 0);
	assert_int_equal(gpunvme_queue_recover(s.qp), 0);
	latency = latency_of(&s);
	assert_int_equal(sum(&latency), 0);
	assert_int_equal(gpunvme_queue_view(s.qp, NULL, &s.dq), 0);
	assert_int_equal(gpunvme_cpu_launch(1, 1, kernel, &s), 0);
	latency = latency_of(&s);
	assert_int_equal(sum(&latency), READS);
	close_stage(&s);
}

/* By hand: 10 commands of 5 ticks, 80 of 96 to 103, 10 of 960 to 1023. */
static void shares_are_ends_of_buckets(void **state)
{
	struct gpunvme_queue_latency latency = { .size = sizeof(latency), .ticks_per_ms = 1000000 };

	(void)state;
	assert_int_equal(gpunvme_latency_ns(NULL, 500000), 0);
	assert_int_equal(gpunvme_latency_ns(&latency, 500000), 0);
	latency.bucket[gnvd_bucket(5)] = 10;
	latency.bucket[gnvd_bucket(100)] = 80;
	latency.bucket[gnvd_bucket(1000)] = 10;
	assert_int_equal(gpunvme_latency_ns(&latency, 0), 6);
	assert_int_equal(gpunvme_latency_ns(&latency, 100000), 6);
	assert_int_equal(gpunvme_latency_ns(&latency, 100001), 104);
	assert_int_equal(gpunvme_latency_ns(&latency, 900000), 104);
	assert_int_equal(gpunvme_latency_ns(&latency, 900001), 1024);
	assert_int_equal(gpunvme_latency_ns(&latency, 2000000), 1024);
	latency.ticks_per_ms = 100000; /* 10 ns each */
	assert_int_equal(gpunvme_latency_ns(&latency, 500000), 1040);
	latency.bucket[GPUNVME_LATENCY_BUCKETS - 1] = 1ull << 62;
	assert_true(gpunvme_latency_ns(&latency, 500000) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_are_exact),
		cmocka_unit_test(late_commands_show),
		cmocka_unit_test(the_host_reads_while_lanes_run),
		cmocka_unit_test(a_queue_without_latencies_says_so),
		cmocka_unit_test(recovery_starts_to_count_anew),
		cmocka_unit_test(shares_are_ends_of_buckets),
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
