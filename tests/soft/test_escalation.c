/* SPDX-License-Identifier: MIT */
/*
 * The table of docs/reliability.md, row by row, on a controller that is worse each time; what was set is set afterwards; how long each
 * step takes, and that a thousand recoveries lose nothing. GPUNVME_RECOVERIES=N in the environment: so many of each kind.
 */
#include <gpunvme/device.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
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
#include <gpunvme/unstable.h>

#include "common/image.h"
#include "dev/dev.h"
#include "soft/soft.h"
#include "util/clock.h"
#include "util/mmio.h"

#define QUEUES 2u
#define BLOCK 512u
#define FEW 5u
#define VAIN_MS 300u   /* where nothing comes */
#define LONG_MS 60000u /* where something does, on a machine that has other work */

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp[QUEUES];
	struct gpunvme_dq dq[QUEUES];
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	uint32_t queues;
	uint32_t lose;	   /* atomic: reads and writes vanish */
	uint32_t lost;	   /* atomic: how many have */
	uint32_t deletion; /* atomic: enum gnv_soft_action */
	uint32_t setting;  /* atomic: of Set Features but the number of queues, while it is not GO */
	uint32_t asking;   /* atomic: of Get Features */
	uint32_t dropped;  /* atomic: such commands that vanished */
	uint32_t notes;	   /* atomic: see __wrap_gnv_settings_end() */
	uint32_t second;   /* atomic: the second Set Features of a test was answered */
	uint32_t taken;	   /* atomic: somebody takes it away when the next queue is made */
	bool for_ever;	   /* it is beyond help */
	uint8_t seed;
} t;

static int make_image(void **state)
{
	return image_make_disk(state, 1 << 20);
}

static enum gnv_soft_action decide(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)cmd;
	(void)status;
	(void)delay_us;
	if (!__atomic_load_n(&t.lose, __ATOMIC_RELAXED))
		return GNV_SOFT_GO;
	__atomic_fetch_add(&t.lost, 1, __ATOMIC_RELAXED);
	return GNV_SOFT_DROP;
}

static enum gnv_soft_action decide_admin(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	(void)ctx;
	*status = GPUNVME_SC_INTERNAL;
	if (cmd->opc == GPUNVME_ADMIN_CREATE_CQ && __atomic_load_n(&t.taken, __ATOMIC_RELAXED))
		gnv_ctrl_take(&t.dev->nvme.ctrl, "it was unplugged");
	if (cmd->opc == GPUNVME_ADMIN_DELETE_SQ)
		return __atomic_load_n(&t.deletion, __ATOMIC_RELAXED);
	if (cmd->opc == GPUNVME_ADMIN_SET_FEATURES && (cmd->cdw10 & 0xff) != GPUNVME_FID_NUM_QUEUES)
		return __atomic_load_n(&t.setting, __ATOMIC_RELAXED);
	if (cmd->opc != GPUNVME_ADMIN_GET_FEATURES || __atomic_load_n(&t.asking, __ATOMIC_RELAXED) == GNV_SOFT_GO)
		return GNV_SOFT_GO;
	__atomic_fetch_add(&t.dropped, 1, __ATOMIC_RELEASE);
	return GNV_SOFT_DROP;
}

int __real_gnv_soft_function_reset(struct gnv_soft *soft);
int __wrap_gnv_soft_function_reset(struct gnv_soft *soft);

/* What enabling the controller waits for before a function reset does not come; after it does. */
int __wrap_gnv_soft_function_reset(struct gnv_soft *soft)
{
	if (!t.for_ever)
		t.dev->nvme.ctrl.disable_ms = t.dev->nvme.ctrl.ready_ms = LONG_MS;
	return __real_gnv_soft_function_reset(soft);
}

static void be_stubborn(enum gnv_soft_stubborn how, bool for_ever)
{
	t.for_ever = for_ever;
	t.dev->nvme.ctrl.disable_ms = t.dev->nvme.ctrl.ready_ms = VAIN_MS;
	gnv_soft_set_stubborn(gnv_dev_soft(t.dev), how, for_ever);
}

static void take_views(void)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = GPUNVME_VIEW_WRITE;
	for (uint32_t q = 0; q < t.queues; q++) {
		assert_int_equal(gpunvme_queue_retire(t.qp[q]), 0);
		assert_int_equal(gpunvme_queue_view(t.qp[q], &view, &t.dq[q]), 0);
	}
}

/* The thread that reads events may send a command now. */
static void set_admin_timeout(uint32_t ms)
{
	pthread_mutex_lock(&t.dev->nvme.admin.lock);
	t.dev->nvme.admin.timeout_ms = ms;
	pthread_mutex_unlock(&t.dev->nvme.admin.lock);
}

static void open_all(const char *keys, uint32_t queues)
{
	static const struct gnv_soft_fault fault = { decide, NULL };
	static const struct gnv_soft_admin_fault admin = { decide_admin, NULL };
	struct gpunvme_dev_opts dev_opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	char uri[512];

	memset(&t, 0, sizeof(t));
	t.deletion = t.setting = t.asking = GNV_SOFT_GO;
	t.queues = queues;
	dev_opts.admin_timeout_ms = LONG_MS;
	opts.depth = 16;
	snprintf(uri, sizeof(uri), "soft:%s%s", image_path("disk.img"), keys);
	assert_int_equal(gpunvme_dev_open(uri, &dev_opts, &t.dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &t.gpu), 0);
	gnv_soft_set_fault(gnv_dev_soft(t.dev), &fault);
	gnv_soft_set_admin_fault(gnv_dev_soft(t.dev), &admin);
	for (uint32_t q = 0; q < queues; q++)
		assert_int_equal(gpunvme_queue_create(t.dev, t.gpu, &opts, &t.qp[q]), 0);
	take_views();
	assert_int_equal(gpunvme_mem_alloc(t.gpu, NULL, 16 * BLOCK, NULL, &t.mem), 0);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf), 0);
}

static void close_all(void)
{
	for (uint32_t q = 0; q < t.queues; q++)
		assert_int_equal(gpunvme_queue_destroy(t.qp[q]), 0);
	assert_int_equal(gpunvme_mem_free(t.mem), 0);
	gpunvme_gpu_close(t.gpu);
	assert_int_equal(gpunvme_dev_close(t.dev), 0);
}

static char *bytes(void)
{
	return (char *)(uintptr_t)t.dbuf.base;
}

/* Block q carries what was written last, and takes something new. */
static void check_work(void)
{
	for (uint32_t q = 0; q < t.queues; q++) {
		memset(bytes(), 0xee, BLOCK);
		assert_int_equal(gpunvme_read(&t.dq[q], &t.dbuf, 0, (uint64_t)q * BLOCK, BLOCK), 0);
		for (uint32_t i = 0; t.seed && i < BLOCK; i++)
			assert_int_equal((uint8_t)bytes()[i], (uint8_t)(t.seed + q));
	}
	t.seed = t.seed == 200 ? 1 : t.seed + 1;
	for (uint32_t q = 0; q < t.queues; q++) {
		memset(bytes(), t.seed + (int)q, BLOCK);
		assert_int_equal(gpunvme_write(&t.dq[q], &t.dbuf, 0, (uint64_t)q * BLOCK, BLOCK, 0), 0);
	}
}

/* A write that the controller loses, nobody waiting for it. */
static void lose_one(void)
{
	const uint32_t before = __atomic_load_n(&t.lost, __ATOMIC_RELAXED);
	unsigned ms;

	__atomic_store_n(&t.lose, 1, __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_submit_write(&t.dq[0], &t.dbuf, 8 * BLOCK, 100 * BLOCK, BLOCK, 0, NULL), 0);
	for (ms = 0; __atomic_load_n(&t.lost, __ATOMIC_RELAXED) == before && ms < LONG_MS; ms++)
		usleep(1000);
	assert_int_not_equal(__atomic_load_n(&t.lost, __ATOMIC_RELAXED), before);
	__atomic_store_n(&t.lose, 0, __ATOMIC_RELAXED);
}

static unsigned rounds(unsigned otherwise)
{
	const char *n = getenv("GPUNVME_RECOVERIES");

	return n ? (unsigned)atoi(n) : otherwise;
}

enum bad { NOTHING, REFUSES, DEAF, NOT_READY, FAILS };

/* Recover queue 0 of a controller in that state, and work on. Return: microseconds. */
static uint64_t recover(enum bad bad)
{
	static const enum gnv_soft_stubborn how[] = {
		[DEAF] = GNV_SOFT_DEAF, [NOT_READY] = GNV_SOFT_NOT_READY, [FAILS] = GNV_SOFT_FAILS
	};
	uint64_t start;

	lose_one();
	if (bad != NOTHING)
		__atomic_store_n(&t.deletion, GNV_SOFT_FAIL, __ATOMIC_RELAXED);
	if (bad > REFUSES)
		be_stubborn(how[bad], false);
	start = gnv_clock_ns();
	assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
	start = (gnv_clock_ns() - start) / 1000;
	__atomic_store_n(&t.deletion, GNV_SOFT_GO, __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_write(&t.dq[0], &t.dbuf, 0, 0, BLOCK, 0), -GPUNVME_ESHUTDOWN);
	take_views();
	check_work();
	return start;
}

static void many(const char *step, enum bad bad, unsigned n)
{
	uint64_t worst = 0, took;

	for (unsigned i = 0; i < n; i++) {
		took = recover(bad);
		worst = took > worst ? took : worst;
	}
	print_message("%s: worst of %u: %llu us\n", step, n, (unsigned long long)worst);
}

static void steps_of_the_escalation(void **state)
{
	(void)state;
	open_all("", 2);
	many("abort and deletion", NOTHING, rounds(200));
	many("controller reset", REFUSES, rounds(50));
	many("function reset after a fatal start", FAILS, rounds(FEW));
	many("function reset after 300 ms that do not enable", NOT_READY, rounds(FEW));
	many("function reset after 300 ms that do not disable", DEAF, rounds(FEW));
	close_all();
}

/* The controller has no other queue pair. */
static void one_queue_pair(void **state)
{
	(void)state;
	open_all("?queues=1", 1);
	many("abort and deletion, one queue pair", NOTHING, rounds(50));
	many("controller reset, one queue pair", REFUSES, rounds(20));
	close_all();
}

/* The other queue goes on where deletion was enough, and comes back with a new view where it was not. */
static void the_other_queue(void **state)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	(void)state;
	open_all("", 2);
	lose_one();
	assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
	assert_int_equal(gpunvme_read(&t.dq[1], &t.dbuf, 0, BLOCK, BLOCK), 0);
	take_views();
	lose_one();
	assert_int_equal(gpunvme_dev_reset(t.dev), 0);
	assert_int_equal(gpunvme_read(&t.dq[1], &t.dbuf, 0, BLOCK, BLOCK), -GPUNVME_ESHUTDOWN);
	assert_int_equal(gpunvme_queue_get_info(t.qp[1], &info), 0);
	assert_int_equal(info.recoveries, 1);
	take_views();
	check_work();
	close_all();
}

static uint32_t feature(uint8_t fid)
{
	uint32_t value = ~0u;

	assert_int_equal(gpunvme_dev_get_feature(t.dev, fid, &value), 0);
	return value;
}

static void settings_come_back(enum bad bad)
{
	struct gpunvme_sqe under = { .opc = GPUNVME_ADMIN_SET_FEATURES,
				     .cdw10 = GPUNVME_FID_TEMP_THRESHOLD,
				     .cdw11 = 1u << 20 | 300 };
	struct gpunvme_sqe ask = { .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = GPUNVME_FID_TEMP_THRESHOLD, .cdw11 = 1u << 20 };
	uint32_t value;

	open_all("", 2);
	assert_int_equal(feature(GPUNVME_FID_VWC), 1);
	assert_int_equal(gpunvme_dev_set_feature(t.dev, GPUNVME_FID_VWC, 1), 0);
	assert_int_equal(gpunvme_dev_set_feature(t.dev, GPUNVME_FID_VWC, 0), 0);
	assert_int_equal(gpunvme_dev_set_feature(t.dev, GPUNVME_FID_TEMP_THRESHOLD, 340), 0);
	assert_int_equal(gpunvme_dev_admin(t.dev, &under, NULL, 0, 0, NULL), 0);
	recover(bad);
	assert_int_equal(feature(GPUNVME_FID_VWC), 0);
	assert_int_equal(feature(GPUNVME_FID_TEMP_THRESHOLD), 340);
	assert_int_equal(gpunvme_dev_admin(t.dev, &ask, NULL, 0, 0, &value), 0);
	assert_int_equal(value, 300);
	close_all();
}

static void settings_come_back_after_a_controller_reset(void **state)
{
	(void)state;
	settings_come_back(REFUSES);
}

static void settings_come_back_after_a_function_reset(void **state)
{
	(void)state;
	settings_come_back(FAILS);
}

static int ring_admin(void *ctx, uint32_t tail)
{
	(void)ctx;
	gnv_mmio_write32(t.dev->nvme.ctrl.bar + GPUNVME_REG_DOORBELLS, tail);
	return 0;
}

static void set_by_doorbell(uint8_t fid, uint32_t value, const struct gpunvme_dbuf *page)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = fid, .cdw11 = value };

	assert_int_equal(gpunvme_dev_admin_doorbell(t.dev, &cmd, page, ring_admin, NULL, NULL), 0);
}

/* Those that somebody else rang for come back, too; of one with data in somebody's page the older value does not. */
static void settings_by_own_doorbell(void **state)
{
	(void)state;
	open_all("", 1);
	set_by_doorbell(GPUNVME_FID_VWC, 0, NULL);
	assert_int_equal(gpunvme_dev_set_feature(t.dev, GPUNVME_FID_TEMP_THRESHOLD, 340), 0);
	set_by_doorbell(GPUNVME_FID_TEMP_THRESHOLD, 350, &t.dbuf);
	recover(REFUSES);
	assert_int_equal(feature(GPUNVME_FID_VWC), 0);
	assert_int_not_equal(feature(GPUNVME_FID_TEMP_THRESHOLD), 340);
	close_all();
}

/* The first note of a test is written when the other Set Features was answered, or has had time enough for that. */
void __real_gnv_settings_end(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, const void *data, size_t len, int ret);
void __wrap_gnv_settings_end(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, const void *data, size_t len, int ret);

void __wrap_gnv_settings_end(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, const void *data, size_t len, int ret)
{
	struct gnv_deadline deadline = gnv_deadline_in(300);

	if (cmd->cdw11 == 301 && !__atomic_fetch_add(&t.notes, 1, __ATOMIC_ACQ_REL))
		while (!__atomic_load_n(&t.second, __ATOMIC_ACQUIRE) && gnv_deadline_poll_again(&deadline))
			;
	__real_gnv_settings_end(dev, cmd, data, len, ret);
}

static void *set_301(void *ret)
{
	*(int *)ret = gpunvme_dev_set_feature(t.dev, GPUNVME_FID_TEMP_THRESHOLD, 301);
	return NULL;
}

/* Two threads set the same: what the controller has last is what it gets back. */
static void settings_in_the_controllers_order(void **state)
{
	pthread_t thread;
	int ret = -1;

	(void)state;
	open_all("", 1);
	assert_int_equal(pthread_create(&thread, NULL, set_301, &ret), 0);
	while (!__atomic_load_n(&t.notes, __ATOMIC_ACQUIRE))
		usleep(100);
	assert_int_equal(gpunvme_dev_set_feature(t.dev, GPUNVME_FID_TEMP_THRESHOLD, 302), 0);
	__atomic_store_n(&t.second, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	assert_int_equal(ret, 0);
	assert_int_equal(feature(GPUNVME_FID_TEMP_THRESHOLD), 302);
	recover(REFUSES);
	assert_int_equal(feature(GPUNVME_FID_TEMP_THRESHOLD), 302);
	close_all();
}

static void *ask_in_vain(void *ret)
{
	uint32_t value;

	*(int *)ret = gpunvme_dev_get_feature(t.dev, GPUNVME_FID_VWC, &value);
	return NULL;
}

/* A reset does not wait for an admin command that the controller has and does not complete. */
static void reset_beside_an_admin_command(void **state)
{
	pthread_t thread;
	int ret = 0;

	(void)state;
	open_all("", 2);
	set_admin_timeout(3600u * 1000);
	__atomic_store_n(&t.asking, GNV_SOFT_DROP, __ATOMIC_RELAXED);
	assert_int_equal(pthread_create(&thread, NULL, ask_in_vain, &ret), 0);
	while (!__atomic_load_n(&t.dropped, __ATOMIC_ACQUIRE))
		usleep(100);
	assert_int_equal(gpunvme_dev_reset(t.dev), 0);
	pthread_join(thread, NULL);
	assert_int_equal(ret, -ESHUTDOWN);
	__atomic_store_n(&t.asking, GNV_SOFT_GO, __ATOMIC_RELAXED);
	assert_int_equal(feature(GPUNVME_FID_VWC), 1);
	take_views();
	check_work();
	close_all();
}

/* The cache is on again and cannot be switched off: that is no controller to go on with. */
static void settings_are_refused(void **state)
{
	(void)state;
	open_all("", 1);
	assert_int_equal(gpunvme_dev_set_feature(t.dev, GPUNVME_FID_VWC, 0), 0);
	__atomic_store_n(&t.setting, GNV_SOFT_FAIL, __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_dev_reset(t.dev), GPUNVME_SC_INTERNAL);
	assert_non_null(strstr(gpunvme_errmsg(), "does not take feature 0x06 back"));
	assert_true(gpunvme_write(&t.dq[0], &t.dbuf, 0, 0, BLOCK, 0) < 0);
	__atomic_store_n(&t.setting, GNV_SOFT_GO, __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_dev_reset(t.dev), 0); /* it lives again */
	assert_int_equal(feature(GPUNVME_FID_VWC), 0);
	close_all();
}

/* The end of the line: threads get an error, nothing is the caller's before the device is closed, which stops it by force. */
static void nothing_helps(enum gnv_soft_stubborn how)
{
	open_all("", 1);
	lose_one();
	be_stubborn(how, true);
	__atomic_store_n(&t.deletion, GNV_SOFT_FAIL, __ATOMIC_RELAXED);
	assert_true(gpunvme_queue_recover(t.qp[0]) < 0);
	assert_non_null(strstr(gpunvme_errmsg(), "function reset"));
	assert_true(gpunvme_write(&t.dq[0], &t.dbuf, 0, 0, BLOCK, 0) < 0);
	gpunvme_queue_destroy(t.qp[0]);
	t.queues = 0;
	assert_int_equal(gpunvme_dev_close(t.dev), 0);
	t.dev = NULL;
	close_all();
}

static void dead(void **state)
{
	(void)state;
	nothing_helps(GNV_SOFT_NOT_READY);
	nothing_helps(GNV_SOFT_FAILS);
}

static uint32_t state_now(uint64_t generation)
{
	struct gpunvme_dev_info status = { .size = sizeof(status) };

	assert_int_equal(gpunvme_dev_get_info(t.dev, &status), 0);
	assert_int_equal(status.generation, generation);
	return status.state;
}

/*
 * The next event, but for the controller's own: a thread that rings late for a queue that is no more is reported by one (invalid
 * doorbell register), whenever the thread that asks for them comes to it.
 */
static int take_event(int fd, struct gpunvme_event *event)
{
	struct pollfd ready = { fd, POLLIN, 0 };
	int ret;

	do {
		const int readable = poll(&ready, 1, 0);

		ret = gpunvme_dev_next_event(t.dev, event);
		assert_true(!readable || !ret);
	} while (!ret && event->type == GPUNVME_EVENT_CONTROLLER);
	return ret;
}

static void next_is(int fd, enum gpunvme_event_type type, const struct gpunvme_queue *qp, uint64_t generation)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct pollfd ready = { fd, POLLIN, 0 };

	assert_int_equal(poll(&ready, 1, 0), 1);
	assert_int_equal(take_event(fd, &event), 0);
	assert_int_equal(event.type, type);
	assert_ptr_equal(event.queue, qp);
	assert_int_equal(event.generation, generation);
	assert_int_equal(event.missed, 0);
}

static void none_waits(int fd)
{
	struct gpunvme_event event = { .size = sizeof(event) };

	assert_int_equal(take_event(fd, &event), -EAGAIN);
}

/* Each step tells, and the state says what it has come to. */
static void events_and_state(void **state)
{
	uint32_t value;
	int fd, again;

	(void)state;
	open_all("", 2);
	assert_int_equal(gpunvme_dev_reset(t.dev), 0); /* nobody has asked for events */
	take_views();
	assert_int_equal(gpunvme_dev_event_fd(t.dev, &fd), 0);
	assert_int_equal(gpunvme_dev_event_fd(t.dev, &again), 0);
	assert_int_equal(fd, again);
	none_waits(fd);
	recover(NOTHING);
	next_is(fd, GPUNVME_EVENT_RECOVERED, t.qp[0], 1);
	recover(FAILS);
	next_is(fd, GPUNVME_EVENT_RESET, NULL, 2);
	none_waits(fd);
	assert_int_equal(state_now(2), GPUNVME_STATE_ALIVE);

	__atomic_store_n(&t.setting, GNV_SOFT_DROP, __ATOMIC_RELAXED); /* a command that is not answered */
	set_admin_timeout(VAIN_MS);
	assert_int_equal(gpunvme_dev_set_feature(t.dev, GPUNVME_FID_VWC, 0), -ETIMEDOUT);
	set_admin_timeout(LONG_MS);
	next_is(fd, GPUNVME_EVENT_LOST, NULL, 2);
	assert_int_equal(state_now(2), GPUNVME_STATE_DEAD);
	assert_int_equal(gpunvme_dev_get_feature(t.dev, GPUNVME_FID_VWC, &value), -ESHUTDOWN);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), -ESHUTDOWN);
	__atomic_store_n(&t.setting, GNV_SOFT_GO, __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_dev_reset(t.dev), 0);
	next_is(fd, GPUNVME_EVENT_RESET, NULL, 3);
	assert_int_equal(state_now(3), GPUNVME_STATE_ALIVE);
	take_views();
	check_work();
	none_waits(fd);
	close_all();
}

/* Its reset has succeeded, and of its end nobody was told so far. */
static void taken_away_behind_its_reset(void **state)
{
	int fd;

	(void)state;
	open_all("", 2);
	assert_int_equal(gpunvme_dev_event_fd(t.dev, &fd), 0);
	__atomic_store_n(&t.taken, 1, __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_dev_reset(t.dev), -ENODEV);
	next_is(fd, GPUNVME_EVENT_RESET, NULL, 1);
	next_is(fd, GPUNVME_EVENT_LOST, NULL, 1);
	assert_int_equal(state_now(1), GPUNVME_STATE_REMOVED);
	close_all();
}

/* Nobody takes them: the first are kept, and the number of the others is reported. */
static void events_overflow(void **state)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	int fd;

	(void)state;
	open_all("", 1);
	assert_int_equal(gpunvme_dev_event_fd(t.dev, &fd), 0);
	for (uint32_t i = 0; i < 70; i++) {
		assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
		take_views();
	}
	assert_int_equal(gpunvme_dev_next_event(t.dev, &event), 0);
	assert_int_equal(event.missed, 0);
	assert_int_equal(gpunvme_queue_recover(t.qp[0]), 0);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(gpunvme_dev_next_event(t.dev, &event), 0);
	assert_int_equal(event.missed, 6);
	none_waits(fd);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_of_the_escalation),
		cmocka_unit_test(one_queue_pair),
		cmocka_unit_test(the_other_queue),
		cmocka_unit_test(settings_come_back_after_a_controller_reset),
		cmocka_unit_test(settings_come_back_after_a_function_reset),
		cmocka_unit_test(settings_by_own_doorbell),
		cmocka_unit_test(settings_in_the_controllers_order),
		cmocka_unit_test(reset_beside_an_admin_command),
		cmocka_unit_test(settings_are_refused),
		cmocka_unit_test(dead),
		cmocka_unit_test(events_and_state),
		cmocka_unit_test(taken_away_behind_its_reset),
		cmocka_unit_test(events_overflow),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
