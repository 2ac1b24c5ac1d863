/* SPDX-License-Identifier: MIT */
/*
 * What the drive reports of the processor that runs its kernel: times that it does not keep, and launches that get no place there.
 * The test calls for each look, and its clock alone counts. Workers stand still when the test says so.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/exec_table.h"
#include "common/rawhost.h"
#include "dev/dev.h"
#include "vdrive/drive.h"
#include "vdrive/vdrive.h"

#define LOOK 10000000ull /* ns, from look to look */
#define SECOND 1000000000ull

static uint64_t clock_ns = SECOND; /* atomic */
static uint32_t stands, passes; /* no worker runs; workers that do (atomic) */
static bool queued; /* a launch waits */
static unsigned starved, slow; /* lines of the log */

uint64_t __wrap_gnv_soft_now(void);
uint64_t __wrap_gnv_soft_now(void)
{
	return __atomic_load_n(&clock_ns, __ATOMIC_ACQUIRE);
}

bool __real_gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index);
bool __wrap_gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index);
bool __wrap_gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index)
{
	bool worked = false;

	__atomic_fetch_add(&passes, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&stands, __ATOMIC_SEQ_CST))
		worked = __real_gnv_vd_kernel_cpu(args, index);
	__atomic_fetch_sub(&passes, 1, __ATOMIC_SEQ_CST);
	return worked;
}

/* The attendant's looks are the test's. */
void __real_gnv_vdrive_watch(struct gnv_vdrive *d);
void __wrap_gnv_vdrive_watch(struct gnv_vdrive *d);
void __wrap_gnv_vdrive_watch(struct gnv_vdrive *d)
{
	(void)d;
}

static bool is_queued(struct gnv_vd_exec *exec)
{
	(void)exec;
	return queued;
}

static void exec_change(struct gnv_vd_exec_ops *ops)
{
	ops->is_queued = is_queued;
}

static void on_log(void *ctx, enum gpunvme_log_level level, const char *line)
{
	(void)ctx;
	starved += level == GPUNVME_LOG_ERROR && strstr(line, "no multiprocessor for 100 ms") && strstr(line, "its 2 blocks");
	slow += level == GPUNVME_LOG_WARN && strstr(line, "is too slow for the configured times");
}

/* Two workers: the queue is the first one's. */
static struct gnv_vdrive *start(struct gnv_soft_model model)
{
	static struct gnv_log log = { .fn = on_log };
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

	config.path = RAWHOST_VRAM;
	config.engine = &gnv_vdrive_engine;
	config.model = model;
	config.threads = 2;
	rawhost_log = &log;
	starved = slow = 0;
	queued = true;
	rawhost_start(&host, &config);
	return gnv_vdrive_of(host.soft);
}

static void end(void)
{
	__atomic_store_n(&stands, false, __ATOMIC_SEQ_CST);
	rawhost_close(&host);
	rawhost_log = NULL;
}

/* So much later. Return: the drive has ended its queues. */
static bool look_after(struct gnv_vdrive *d, uint64_t ns)
{
	__atomic_fetch_add(&clock_ns, ns, __ATOMIC_ACQ_REL);
	__real_gnv_vdrive_watch(d);
	return __atomic_load_n(&d->t.soft.io.doom, __ATOMIC_RELAXED) ||
	       rawhost_read32(&host, GPUNVME_REG_CSTS) & GPUNVME_CSTS_CFS;
}

static bool look(struct gnv_vdrive *d)
{
	return look_after(d, LOOK);
}

static void stand(void)
{
	__atomic_store_n(&stands, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&passes, __ATOMIC_SEQ_CST))
		sched_yield();
}

static void submit_read(void)
{
	const struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);

	rawhost_submit(&host, &host.io, &sqe);
}

/* ---- No multiprocessor ---- */

static void a_starved_drive_ends_its_queues(void **state)
{
	struct gnv_vdrive *d = start((struct gnv_soft_model){ 0 });
	struct gpunvme_cqe cqe;
	unsigned i;

	(void)state;
	stand();
	submit_read();
	for (i = 0; i <= 9; i++) /* the first look begins the 100 ms */
		assert_false(look(d));
	assert_int_equal(starved, 0);
	assert_true(look(d));
	while (!(rawhost_read32(&host, GPUNVME_REG_CSTS) & GPUNVME_CSTS_CFS))
		sched_yield();
	for (i = 0; i < 30; i++)
		look(d);
	assert_int_equal(starved, 1);
	__atomic_store_n(&stands, false, __ATOMIC_SEQ_CST); /* there is a place again: a reset makes the drive well */
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
	submit_read();
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	end();
}

/* For a program: the command that waits ends at once, the device says why, and a reset makes it well. */
static void commands_of_a_starved_drive_end(void **state)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	struct gpunvme_req req;
	unsigned i;

	(void)state;
	queued = true;
	assert_int_equal(gpunvme_dev_open("soft:vram:4M?threads=2", NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	stand();
	assert_int_equal(gpunvme_submit_read(&dq, &dbuf, 0, 0, 512, &req), 0);
	for (i = 0; i < 12; i++) {
		__atomic_fetch_add(&clock_ns, LOOK, __ATOMIC_ACQ_REL);
		__real_gnv_vdrive_watch(gnv_vdrive_of(gnv_dev_soft(dev)));
	}
	assert_int_equal(gpunvme_wait(&dq, &req, 0), -GPUNVME_ENODEV);
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
	assert_non_null(strstr(info.why, "no multiprocessor for 100 ms: leave room for its 2 blocks"));
	__atomic_store_n(&stands, false, __ATOMIC_SEQ_CST);
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), 0);
	assert_int_equal(gpunvme_read(&dq, &dbuf, 0, 0, 512), 0);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_mem_unmap(mem, dev), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	gpunvme_gpu_close(gpu);
	assert_int_equal(gpunvme_dev_close(dev), 0);
}

static bool look_often(struct gnv_vdrive *d, unsigned looks)
{
	bool ended = false;

	while (looks-- && !ended)
		ended = look(d);
	return ended;
}

static uint64_t runs_of_first(struct gnv_vdrive *d)
{
	uint64_t runs;

	assert_int_equal(d->exec->ops->peek(d->exec, &runs, GNV_VD_AT(d, runs), sizeof(runs)), 0);
	return runs;
}

static void set_runs(struct gnv_vdrive *d, uint32_t worker, uint64_t runs)
{
	assert_int_equal(gnv_vdrive_poke64(d, GNV_VD_AT(d, runs) + worker * sizeof(runs), runs), 0);
}

/* No command waits; no launch does, as on a busy host; the kernel runs; or the drive itself is not scheduled: nobody starves. */
static void nothing_else_ends_them(void **state)
{
	struct gnv_vdrive *d = start((struct gnv_soft_model){ 0 });
	struct gpunvme_cqe cqe;
	uint64_t runs;
	unsigned i;

	(void)state;
	stand();
	runs = (runs_of_first(d) | 1) + 1;
	set_runs(d, 0, runs);
	set_runs(d, 1, runs);
	assert_false(look_often(d, 3000));
	submit_read();
	assert_false(look(d)); /* the 100 ms begin with the command */
	queued = false;
	assert_false(look_often(d, 3000));
	queued = true;
	for (i = 0; i < 30; i++) {
		if (i % 9 == 0)
			set_runs(d, 0, runs += 2);
		assert_false(look(d));
	}
	set_runs(d, 0, runs + 1); /* it runs: a pass may take long */
	assert_false(look_often(d, 3000));
	set_runs(d, 0, runs + 2); /* it has ended its pass, and the next launch waits for the other worker's */
	set_runs(d, 1, runs + 1);
	assert_false(look_often(d, 3000));
	set_runs(d, 1, runs + 2);
	for (i = 0; i < 30; i++)
		assert_false(look_after(d, SECOND)); /* the thread that looks is late */
	__atomic_store_n(&stands, false, __ATOMIC_SEQ_CST);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(starved, 0);
	end();
}

/* ---- Times ---- */

static struct gnv_vd_pace pace_of_first(struct gnv_vdrive *d)
{
	struct gnv_vd_pace pace;

	assert_int_equal(d->exec->ops->peek(d->exec, &pace, GNV_VD_AT(d, worker) + offsetof(struct gnv_vd_worker, pace), sizeof(pace)), 0);
	return pace;
}

static void set_pace(struct gnv_vdrive *d, struct gnv_vd_pace pace)
{
	assert_int_equal(d->exec->ops->poke(d->exec, GNV_VD_AT(d, worker) + offsetof(struct gnv_vd_worker, pace), &pace, sizeof(pace)), 0);
}

static void reap(unsigned n)
{
	struct gpunvme_cqe cqe;

	while (n--)
		assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
}

#define LATENCY_NS 200000000ull /* so long that this thread can stop the kernel in it; three of it fit tv_nsec */
#define COMMANDS 4u

/* Return: COMMANDS were taken, and the kernel stands still before their time. */
static bool stop_in_time(struct gnv_vdrive *d)
{
	const uint64_t taken = pace_of_first(d).commands;
	unsigned i;

	for (i = 0; i < COMMANDS; i++)
		submit_read();
	while (pace_of_first(d).commands - taken < COMMANDS)
		sched_yield();
	stand();
	return (__atomic_load_n(&host.io.cq[(size_t)host.io.head * 4 + 3], __ATOMIC_ACQUIRE) >> 16 & 1) != host.io.phase;
}

/* Of commands whose time passes while the kernel stands still. */
static void the_kernel_counts_how_late_it_is(void **state)
{
	struct gnv_vdrive *d = start((struct gnv_soft_model){ .lat_us = LATENCY_NS / 1000 });
	struct gnv_vd_pace before, after;

	(void)state;
	while (!stop_in_time(d)) { /* this thread was not scheduled */
		__atomic_store_n(&stands, false, __ATOMIC_SEQ_CST);
		reap(COMMANDS);
	}
	before = pace_of_first(d);
	nanosleep(&(const struct timespec){ 0, 3 * LATENCY_NS }, NULL);
	__atomic_store_n(&stands, false, __ATOMIC_SEQ_CST);
	reap(COMMANDS);
	stand();
	after = pace_of_first(d);
	assert_true(before.asked << GNV_VD_PACE_SHIFT >= COMMANDS * (LATENCY_NS - 1000));
	assert_int_equal(after.asked, before.asked);
	assert_true((after.late - before.late) << GNV_VD_PACE_SHIFT >= COMMANDS * (2 * LATENCY_NS - 1000));
	end();
}

static void late_times_are_reported_once(void **state)
{
	struct gnv_vd_pace pace = { .asked = 1000000, .late = 50000, .commands = 63, .turns = 100, .starved = 50 };
	struct gnv_vdrive *d = start((struct gnv_soft_model){ .lat_us = 10 });
	uint32_t late = 0;

	(void)state;
	host.soft->config.late = &late;
	stand();
	set_pace(d, pace);
	look_after(d, 2 * SECOND); /* too few commands */
	pace.commands = 64;
	set_pace(d, pace);
	look_after(d, 2 * SECOND); /* 5 % late, and half of the turns: no more */
	assert_int_equal(slow, 0);
	pace.asked += 1000000;
	pace.late += 50001;
	pace.commands += 64;
	set_pace(d, pace);
	look(d); /* too early */
	assert_int_equal(slow + late, 0);
	look_after(d, SECOND);
	assert_int_equal(slow, 1);
	assert_int_equal(late, 1);
	pace.late += 1000000;
	pace.commands += 64;
	set_pace(d, pace);
	look_after(d, 2 * SECOND);
	assert_int_equal(slow, 1);
	end();
}

/* The first commands of a drive are few, one at a time: what they cannot keep is no second of it. */
static void the_first_commands_do_not_count_alone(void **state)
{
	struct gnv_vd_pace pace = { .asked = 1000, .late = 1000, .commands = 100, .turns = 100 };
	struct gnv_vdrive *d = start((struct gnv_soft_model){ .iops = 1000000 });
	unsigned i;

	(void)state;
	stand();
	look_after(d, 2 * SECOND);
	set_pace(d, pace);
	look_after(d, SECOND / 10);
	for (i = 0; i < 20; i++) {
		pace.asked += 1000000;
		pace.commands += 1000;
		set_pace(d, pace);
		look_after(d, SECOND / 10);
	}
	assert_int_equal(slow, 0);
	end();
}

/* The host hears of a queue whose commands the drive would have begun. */
static void commands_that_find_no_place_are_reported(void **state)
{
	struct gnv_vd_pace pace = { .asked = 1000000, .commands = 64, .turns = 100, .starved = 51 };
	struct gnv_vdrive *d = start((struct gnv_soft_model){ .lat_us = 10 });

	(void)state;
	stand();
	set_pace(d, pace);
	look_after(d, 2 * SECOND);
	assert_int_equal(slow, 1);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_starved_drive_ends_its_queues),
		cmocka_unit_test(commands_of_a_starved_drive_end),
		cmocka_unit_test(nothing_else_ends_them),
		cmocka_unit_test(the_kernel_counts_how_late_it_is),
		cmocka_unit_test(late_times_are_reported_once),
		cmocka_unit_test(the_first_commands_do_not_count_alone),
		cmocka_unit_test(commands_that_find_no_place_are_reported),
	};

	return cmocka_run_group_tests_name("vdrive watch", tests, NULL, NULL);
}
