/* SPDX-License-Identifier: MIT */
/*
 * Recovering queues whose controller loses commands, completes late, refuses to delete queues or does not reply at all: by hand and
 * by the watchdog. The results of threads, that nothing old reaches anything new, and that work goes on.
 */
#include <gpunvme/device.h>
#include <errno.h>
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

#define QUEUES 2u
#define LANES 8u
#define BLOCK 512u
#define TIMEOUT_MS 400u /* of what is lost or late */
#define ADMIN_MS 1000u	/* where there is no reply */
#define LONG_MS 60000u	/* of all else: a busy machine may hold up anything */
#define TRIES 20u

enum mood { WELL, LOSE, LATE, GONE }; /* what happens to reads and writes */

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp[QUEUES];
	struct gpunvme_dq dq[QUEUES];
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	uint32_t mood;    /* atomic */
	uint32_t left;    /* atomic: commands that meet it, then all is well again */
	uint32_t deletion; /* atomic: enum gnv_soft_action */
	bool watched;
	int result[LANES];
	uint32_t started; /* atomic */
	uint32_t done, recovered, attempts; /* atomic */
} t;

static int make_image(void **state)
{
	return image_make_disk(state, 4 << 20);
}

static enum gnv_soft_action decide(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	uint32_t mood = __atomic_load_n(&t.mood, __ATOMIC_RELAXED), left = __atomic_load_n(&t.left, __ATOMIC_RELAXED);

	(void)ctx;
	(void)sqid;
	(void)cmd;
	(void)status;
	while (left && !__atomic_compare_exchange_n(&t.left, &left, left - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	*delay_us = 1200000;
	if (mood == GONE)
		return GNV_SOFT_ONES;
	return mood == WELL || !left ? GNV_SOFT_GO : mood == LOSE ? GNV_SOFT_DROP : GNV_SOFT_DELAY;
}

static enum gnv_soft_action decide_admin(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	(void)ctx;
	*status = GPUNVME_SC_INTERNAL;
	return cmd->opc == GPUNVME_ADMIN_DELETE_SQ ? __atomic_load_n(&t.deletion, __ATOMIC_RELAXED) : GNV_SOFT_GO;
}

static void look(uint32_t q)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	int ret, tries = 0;

	view.flags = GPUNVME_VIEW_WRITE;
	while ((ret = gpunvme_queue_view(t.qp[q], &view, &t.dq[q])) == -ESHUTDOWN && tries++ < 60000)
		usleep(1000); /* the watchdog is at it */
	assert_int_equal(ret, 0);
	t.dq[q].cmd_timeout = (uint64_t)LONG_MS * t.dq[q].ticks_per_ms;
}

/* How often the watchdog has set out to recover a queue. */
static void count_attempts(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	if (strstr(text, ". Recovering it"))
		__atomic_fetch_add(&t.attempts, 1, __ATOMIC_RELAXED);
}

static void open_all(uint32_t width, uint32_t queues, uint32_t timeout_ms, uint32_t watchdog_ms, uint32_t flags)
{
	static const struct gnv_soft_fault fault = { decide, NULL };
	static const struct gnv_soft_admin_fault admin = { decide_admin, NULL };
	struct gpunvme_dev_opts dev_opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	char uri[512], spec[16];
	uint32_t q;

	memset(&t, 0, sizeof(t));
	t.deletion = GNV_SOFT_GO;
	t.left = ~0u;
	t.watched = watchdog_ms != 0;
	dev_opts.watchdog_ms = watchdog_ms;
	dev_opts.log = count_attempts;
	dev_opts.admin_timeout_ms = LONG_MS;
	opts.depth = 16;
	opts.cmd_timeout_ms = timeout_ms;
	opts.flags = flags;
	snprintf(uri, sizeof(uri), "soft:%s?queues=%u", image_path("disk.img"), queues);
	snprintf(spec, sizeof(spec), "cpu:%u", width);
	assert_int_equal(gpunvme_dev_open(uri, &dev_opts, &t.dev), 0);
	assert_int_equal(gpunvme_gpu_open(spec, NULL, &t.gpu), 0);
	gnv_soft_set_fault(gnv_dev_soft(t.dev), &fault);
	gnv_soft_set_admin_fault(gnv_dev_soft(t.dev), &admin);
	for (q = 0; q < QUEUES; q++) {
		assert_int_equal(gpunvme_queue_create(t.dev, t.gpu, &opts, &t.qp[q]), 0);
		look(q);
	}
	assert_int_equal(gpunvme_mem_alloc(t.gpu, NULL, 2 * LANES * BLOCK, NULL, &t.mem), 0);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf), 0);
}

static void close_all(void)
{
	uint32_t q;

	for (q = 0; q < QUEUES; q++)
		gpunvme_queue_destroy(t.qp[q]);
	assert_int_equal(gpunvme_mem_unmap(t.mem, t.dev), 0);
	gpunvme_mem_free(t.mem);
	gpunvme_gpu_close(t.gpu);
	gpunvme_dev_close(t.dev);
}

static void set_mood(enum mood mood)
{
	__atomic_store_n(&t.mood, mood, __ATOMIC_RELAXED);
}

static struct gpunvme_queue_info info_of(uint32_t q)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_queue_get_info(t.qp[q], &info), 0);
	return info;
}

/* Each thread writes a block of its own, by thread number modulo queues. */
static void write_one(void *arg)
{
	uint32_t lane = gpunvme_thread_id();

	(void)arg;
	memset((char *)(uintptr_t)t.dbuf.base + lane * BLOCK, (int)(lane + 1), BLOCK);
	__atomic_fetch_add(&t.started, 1, __ATOMIC_RELEASE);
	t.result[lane] = gpunvme_write(&t.dq[lane % QUEUES], &t.dbuf, lane * BLOCK, (uint64_t)lane * BLOCK, BLOCK, 0);
}

static void read_one(void *arg)
{
	uint32_t lane = gpunvme_thread_id();

	(void)arg;
	t.result[lane] = gpunvme_read(&t.dq[lane % QUEUES], &t.dbuf, (LANES + lane) * BLOCK, (uint64_t)lane * BLOCK, BLOCK);
}

static void *launch_writes(void *width)
{
	assert_int_equal(gpunvme_cpu_launch(LANES, *(uint32_t *)width, write_one, NULL), 0);
	return NULL;
}

/* A watchdog takes a controller that a busy machine holds up for a silent one, and threads go on with a new view. */
static void run_well(uint32_t width, void (*kernel)(void *))
{
	uint32_t lane, tries = 0, ended;

	do {
		for (uint32_t q = 0; q < QUEUES; q++)
			look(q);
		assert_int_equal(gpunvme_cpu_launch(LANES, width, kernel, NULL), 0);
		ended = 0;
		for (lane = 0; lane < LANES; lane++)
			ended += t.result[lane] == -GPUNVME_ESHUTDOWN;
	} while (t.watched && ended && ++tries < TRIES);
	for (lane = 0; lane < LANES; lane++)
		assert_int_equal(t.result[lane], 0);
}

/* All is well: blocks are written and read back. */
static void check_work(uint32_t width)
{
	const char *base = (const char *)(uintptr_t)t.dbuf.base;

	run_well(width, write_one);
	memset((char *)(uintptr_t)t.dbuf.base + LANES * BLOCK, 0xee, LANES * BLOCK);
	run_well(width, read_one);
	assert_memory_equal(base, base + LANES * BLOCK, LANES * BLOCK);
}

static void wait_until(const uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
		usleep(1000);
}

/* Threads wait for commands that were lost; recovered from another thread, each gets an error long before its own time-out. */
static void waiting_lanes(uint32_t width, uint32_t flags)
{
	pthread_t lanes;
	uint32_t lane, q;

	open_all(width, 8, LONG_MS, 0, flags);
	set_mood(LOSE);
	assert_int_equal(pthread_create(&lanes, NULL, launch_writes, &width), 0);
	wait_until(&t.started, LANES);
	while (info_of(0).in_flight + info_of(1).in_flight < LANES)
		usleep(1000);
	for (q = 0; q < QUEUES; q++)
		assert_int_equal(gpunvme_queue_recover(t.qp[q]), 0);
	pthread_join(lanes, NULL);
	for (lane = 0; lane < LANES; lane++)
		assert_true(t.result[lane] == GPUNVME_SC_ABORT_REQUESTED || t.result[lane] == GPUNVME_SC_ABORT_SQ_DELETED ||
			    t.result[lane] == -GPUNVME_ESHUTDOWN);
	set_mood(WELL);
	assert_int_equal(gpunvme_write(&t.dq[0], &t.dbuf, 0, 0, BLOCK, 0), -GPUNVME_ESHUTDOWN); /* a view of the old queue */
	assert_int_equal(info_of(0).recoveries, 1);
	assert_int_equal(info_of(0).in_flight, 0);
	assert_int_equal(gpunvme_queue_retire(t.qp[0]), 0);
	check_work(width);
	close_all();
}

static void lost_commands_width_1(void **state)
{
	(void)state;
	waiting_lanes(1, 0);
}

static void lost_commands_width_4(void **state)
{
	(void)state;
	waiting_lanes(4, 0);
}

static void lost_commands_of_a_forwarded_queue(void **state)
{
	(void)state;
	waiting_lanes(4, GPUNVME_QUEUE_FORWARD);
}

/* A buffer of a command that timed out is the device's until the queue is recovered, and nothing of the old queue moves then. */
static void late_completions_touch_nothing(void **state)
{
	uint8_t before[32 * 16], *old_cq;
	unsigned tries = 0;
	struct gpunvme_dq old;
	int ret;

	(void)state;
	open_all(1, 8, LONG_MS, 0, 0);
	set_mood(LATE);
	t.dq[0].cmd_timeout = TIMEOUT_MS * t.dq[0].ticks_per_ms;
	old = t.dq[0];
	old_cq = (uint8_t *)(uintptr_t)old.cq;
	do /* a thread that is held up until it comes takes it */
		ret = gpunvme_read(&t.dq[0], &t.dbuf, 0, 0, BLOCK);
	while (!ret && ++tries < TRIES);
	assert_int_equal(ret, -GPUNVME_ETIMEDOUT);
	assert_int_equal(gpunvme_mem_unmap(t.mem, t.dev), -EBUSY);
	set_mood(WELL);
	assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
	assert_int_equal(gpunvme_mem_unmap(t.mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf), 0);
	memset((void *)(uintptr_t)t.dbuf.base, 0x5a, 2 * LANES * BLOCK);
	memcpy(before, old_cq, sizeof(before));
	look(0);
	assert_true(t.dq[0].cq != old.cq && t.dq[0].state != old.state && t.dq[0].tag != old.tag && t.dq[0].sq_db != old.sq_db);
	usleep(1800000); /* the late completion would be due */
	assert_memory_equal(before, old_cq, sizeof(before));
	for (uint32_t i = 0; i < 2 * LANES * BLOCK; i++)
		assert_int_equal(((uint8_t *)(uintptr_t)t.dbuf.base)[i], 0x5a);
	check_work(1);
	assert_int_equal(info_of(0).submitted, 2 * LANES / QUEUES);
	close_all();
}

/* A handle of the old queue is not one of the new. */
static void old_handles_are_refused(void **state)
{
	struct gpunvme_req req;
	int ret;

	(void)state;
	open_all(1, 8, LONG_MS, 0, 0);
	set_mood(LOSE);
	assert_int_equal(gpunvme_submit_read(&t.dq[0], &t.dbuf, 0, 0, BLOCK, &req), 0);
	set_mood(WELL);
	while (!info_of(0).in_flight)
		usleep(1000);
	usleep(100000); /* the controller has it */
	assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
	look(0);
	ret = gpunvme_poll(&t.dq[0], &req);
	assert_true(ret == -GPUNVME_ESTALE || ret == -GPUNVME_EXDEV);
	check_work(1);
	close_all();
}

/*
 * The controller will not delete the queue, or does not even complete the command: it is reset, and all its queues are made anew.
 */
static void deletion_fails(enum gnv_soft_action action, uint32_t width)
{
	pthread_t lanes;
	uint32_t lane;

	open_all(width, 8, LONG_MS, 0, 0);
	set_mood(LOSE);
	assert_int_equal(pthread_create(&lanes, NULL, launch_writes, &width), 0);
	while (info_of(0).in_flight + info_of(1).in_flight < LANES)
		usleep(1000);
	__atomic_store_n(&t.deletion, action, __ATOMIC_RELAXED);
	if (action == GNV_SOFT_DROP)
		t.dev->nvme.admin.timeout_ms = ADMIN_MS;
	assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
	__atomic_store_n(&t.deletion, GNV_SOFT_GO, __ATOMIC_RELAXED);
	t.dev->nvme.admin.timeout_ms = LONG_MS;
	pthread_join(lanes, NULL);
	for (lane = 0; lane < LANES; lane++)
		assert_true(t.result[lane] == GPUNVME_SC_ABORT_REQUESTED || t.result[lane] == -GPUNVME_ESHUTDOWN);
	assert_int_equal(t.result[1], -GPUNVME_ESHUTDOWN); /* of the other queue, whose commands nobody aborted */
	assert_int_equal(info_of(1).recoveries, 1);
	set_mood(WELL);
	check_work(width);
	close_all();
}

static void deletion_is_refused(void **state)
{
	(void)state;
	deletion_fails(GNV_SOFT_FAIL, 1);
	deletion_fails(GNV_SOFT_FAIL, 4);
}

static void deletion_is_not_answered(void **state)
{
	(void)state;
	deletion_fails(GNV_SOFT_DROP, 1);
	deletion_fails(GNV_SOFT_DROP, 4);
}

struct writer {
	struct gpunvme_dq dq; /* old most of the time */
	uint32_t stop;	      /* atomic */
};

static void *write_for_ever(void *arg)
{
	struct writer *w = arg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED))
		gpunvme_write(&w->dq, &t.dbuf, 0, 100 * BLOCK, BLOCK, 0);
	return NULL;
}

/*
 * A thread that had looked at the poison before there was any. Others that wait on the same old view may bring it back meanwhile.
 */
static void submit_late(const struct gpunvme_dq *old)
{
	uint32_t *poison = &((struct gpunvme_dq_state *)(uintptr_t)old->state)->poison;
	int ret = -GPUNVME_ESHUTDOWN;

	for (uint32_t tries = 0; ret == -GPUNVME_ESHUTDOWN && tries < 1000; tries++) {
		__atomic_store_n(poison, 0, __ATOMIC_RELAXED);
		ret = gpunvme_submit_write(old, &t.dbuf, 0, 100 * BLOCK, BLOCK, 0, NULL);
	}
	assert_int_equal(ret, 0);
}

/* Where no other identifier is free a queue keeps its own, and threads that go on with an old view ring nothing. */
static void identifiers_run_out(uint32_t queues, uint32_t flags)
{
	struct writer writer = { .stop = 0 };
	struct gpunvme_dq old;
	pthread_t lane;
	uint32_t i;

	open_all(1, queues, LONG_MS, 0, flags);
	writer.dq = t.dq[0];
	assert_int_equal(pthread_create(&lane, NULL, write_for_ever, &writer), 0);
	for (i = 0; i < 50; i++) {
		old = t.dq[0];
		assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
		submit_late(&old);
		check_work(1);
	}
	__atomic_store_n(&writer.stop, 1, __ATOMIC_RELAXED);
	pthread_join(lane, NULL);
	assert_int_equal(info_of(0).recoveries, 50);
	assert_int_equal(info_of(0).poison, 0);
	assert_int_equal(gpunvme_queue_retire(t.qp[0]), 0);
	assert_int_equal(gpunvme_queue_recover(t.qp[1]), 0);
	check_work(1);
	close_all();
}

static void every_identifier_in_use(void **state)
{
	(void)state;
	identifiers_run_out(QUEUES, 0);
	identifiers_run_out(QUEUES, GPUNVME_QUEUE_FORWARD);
}

static void one_identifier_left(void **state)
{
	(void)state;
	identifiers_run_out(QUEUES + 1, 0);
}

/* ---- The watchdog ---- */

/* A program that takes a new view when its queue has ended, and does its work again. */
static void persist(void *arg)
{
	uint32_t lane = gpunvme_thread_id(), tries;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dq dq = t.dq[lane % QUEUES];
	int ret = -1;

	(void)arg;
	view.flags = GPUNVME_VIEW_WRITE;
	dq.cmd_timeout = TIMEOUT_MS * dq.ticks_per_ms;
	for (tries = 0; ret && tries < 10000; tries++) {
		ret = gpunvme_write(&dq, &t.dbuf, lane * BLOCK, (uint64_t)lane * BLOCK, BLOCK, 0);
		if (!ret)
			break;
		__atomic_fetch_add(&t.recovered, 1, __ATOMIC_RELAXED);
		while (gpunvme_queue_view(t.qp[lane % QUEUES], &view, &dq))
			usleep(1000);
	}
	t.result[lane] = ret;
}

static void watched_lanes(uint32_t width, enum mood mood)
{
	uint32_t lane, tries = 0;

	open_all(width, 32, TIMEOUT_MS, 20, 0);
	do { /* again where all was held up until the late ones came */
		__atomic_store_n(&t.left, 3, __ATOMIC_RELAXED);
		set_mood(mood);
		assert_int_equal(gpunvme_cpu_launch(LANES, width, persist, NULL), 0);
		for (lane = 0; lane < LANES; lane++)
			assert_int_equal(t.result[lane], 0);
	} while (mood == LATE && !t.recovered && ++tries < TRIES);
	assert_true(info_of(0).recoveries + info_of(1).recoveries > 0);
	assert_true(t.recovered > 0);
	set_mood(WELL);
	check_work(width);
	close_all();
}

static void watchdog_recovers_poisoned_queues(void **state)
{
	(void)state;
	watched_lanes(1, LOSE);
	watched_lanes(4, LOSE);
	watched_lanes(1, LATE);
	watched_lanes(4, LATE);
}

/* A thread that waits shortly for a command that never ends. */
static void lose_one(uint32_t q)
{
	int ret;

	__atomic_store_n(&t.left, 1, __ATOMIC_RELAXED);
	set_mood(LOSE);
	t.dq[q].cmd_timeout = 50ull * t.dq[q].ticks_per_ms;
	ret = gpunvme_read(&t.dq[q], &t.dbuf, 0, 0, BLOCK);
	assert_true(ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_ENODEV);
	set_mood(WELL);
}

/* A queue that was recovered is looked after as one that never was. */
static void watchdog_recovers_again(void **state)
{
	uint32_t n, tries;

	(void)state;
	open_all(1, 32, TIMEOUT_MS, 20, 0);
	for (n = 1; n <= 3; n++) {
		lose_one(0);
		for (tries = 0; info_of(0).recoveries < n; tries++) {
			assert_true(tries < LONG_MS);
			usleep(1000);
		}
		look(0);
	}
	check_work(1);
	close_all();
}

/* What cannot be recovered is tried once, not again and again: each time may take as long as the controller takes to be silent. */
static void watchdog_gives_up_once(void **state)
{
	uint32_t tries, attempts;

	(void)state;
	open_all(1, 32, TIMEOUT_MS, 20, 0);
	t.dq[0].cmd_timeout = 50ull * t.dq[0].ticks_per_ms;
	set_mood(GONE);
	assert_true(gpunvme_read(&t.dq[0], &t.dbuf, 0, 0, BLOCK) < 0);
	for (tries = 0; !__atomic_load_n(&t.attempts, __ATOMIC_RELAXED); tries++) {
		assert_true(tries < LONG_MS);
		usleep(1000);
	}
	usleep(300000);
	attempts = __atomic_load_n(&t.attempts, __ATOMIC_RELAXED);
	assert_true(attempts <= QUEUES);
	assert_int_equal(info_of(0).recoveries, 0);
	assert_int_equal(gpunvme_dev_close(t.dev), 0); /* and only then is the memory free */
	assert_int_equal(gpunvme_mem_free(t.mem), 0);
	gpunvme_gpu_close(t.gpu);
}

/* Commands that nobody waits for fill a queue, and no thread ever notices that the controller has lost them. */
static void watchdog_notices_silence(void **state)
{
	uint32_t n = 0;
	int ret;

	(void)state;
	open_all(1, 8, TIMEOUT_MS, 20, 0);
	set_mood(LOSE);
	do {
		ret = gpunvme_submit_write(&t.dq[0], &t.dbuf, 0, 0, BLOCK, 0, NULL);
		n += !ret;
	} while (!ret || ret == -GPUNVME_EAGAIN);
	assert_int_equal(ret, -GPUNVME_ESHUTDOWN);
	assert_true(n > 0);
	set_mood(WELL);
	check_work(1);
	assert_true(info_of(0).recoveries > 0);
	close_all();
}

/* Return: the queues were left alone. */
static bool quiet_queues(void)
{
	struct gpunvme_req req[4];
	uint32_t i, recoveries;

	open_all(1, 8, TIMEOUT_MS, 10, 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(gpunvme_submit_read(&t.dq[0], &t.dbuf, i * BLOCK, (uint64_t)i * BLOCK, BLOCK, &req[i]), 0);
	usleep(3 * TIMEOUT_MS * 1000);
	recoveries = info_of(0).recoveries + info_of(1).recoveries;
	for (i = 0; i < 4 && !recoveries; i++)
		assert_int_equal(gpunvme_poll(&t.dq[0], &req[i]), 0);
	close_all();
	return !recoveries;
}

/*
 * A program that computes for longer than a command may take and leaves its completions in the ring has done nothing wrong. (A
 * controller that a busy machine holds up for as long has: that does not happen every time.)
 */
static void watchdog_leaves_quiet_queues_alone(void **state)
{
	uint32_t tries = 0;

	(void)state;
	while (!quiet_queues())
		assert_true(++tries < TRIES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_commands_width_1),
		cmocka_unit_test(lost_commands_width_4),
		cmocka_unit_test(lost_commands_of_a_forwarded_queue),
		cmocka_unit_test(late_completions_touch_nothing),
		cmocka_unit_test(old_handles_are_refused),
		cmocka_unit_test(deletion_is_refused),
		cmocka_unit_test(deletion_is_not_answered),
		cmocka_unit_test(every_identifier_in_use),
		cmocka_unit_test(one_identifier_left),
		cmocka_unit_test(watchdog_recovers_poisoned_queues),
		cmocka_unit_test(watchdog_recovers_again),
		cmocka_unit_test(watchdog_gives_up_once),
		cmocka_unit_test(watchdog_notices_silence),
		cmocka_unit_test(watchdog_leaves_quiet_queues_alone),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
