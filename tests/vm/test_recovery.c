/* SPDX-License-Identifier: MIT */
/*
 * The steps of docs/reliability.md through VFIO: how long each takes, that a queue works afterwards, and which events tell of it. No
 * command is in flight meanwhile: QEMU 7.2 crashed when a step came with reads in flight. For the guest of tests/vm:
 * GPUNVME_TEST_URI names the controller, which loses what it has; GPUNVME_TEST_PULL is a line for the console by which the host
 * pulls it.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "dev/dev.h"
#include "util/clock.h"

#define TIMES 20u
#define BLOCK 512u
#define HOT 0x00020101u /* dword 0: a temperature, told in log page 02h */

static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *qp[2];
static struct gpunvme_dq dq[2];
static struct gpunvme_mem *mem;
static struct gpunvme_dbuf dbuf;
static unsigned char seed;
static bool never_ready; /* the controller is not waited for, once */

int __real_gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries);
int __wrap_gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries);

int __wrap_gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries)
{
	int ret = __real_gnv_ctrl_enable(ctrl, asq, acq, entries);

	if (ret || !never_ready)
		return ret;
	never_ready = false;
	return gnv_fail(-ETIMEDOUT, "the controller is said not to have become ready");
}

static void take_views(void)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = GPUNVME_VIEW_WRITE;
	for (unsigned q = 0; q < 2; q++) {
		good(gpunvme_queue_retire(qp[q]));
		good(gpunvme_queue_view(qp[q], &view, &dq[q]));
	}
}

static int setup(void **state)
{
	const char *uri = getenv("GPUNVME_TEST_URI");

	(void)state;
	assert_non_null(uri);
	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	for (unsigned q = 0; q < 2; q++)
		good(gpunvme_queue_create(dev, gpu, NULL, &qp[q]));
	take_views();
	good(gpunvme_mem_alloc(gpu, NULL, BLOCK, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	good(gpunvme_dev_close(dev));
	good(gpunvme_mem_free(mem));
	gpunvme_gpu_close(gpu);
	return 0;
}

static void write_and_read(void)
{
	unsigned char *bytes = gpunvme_mem_ptr(mem);

	seed++;
	for (unsigned q = 0; q < 2; q++) {
		memset(bytes, seed + (int)q, BLOCK);
		good(gpunvme_write(&dq[q], &dbuf, 0, (uint64_t)q * BLOCK, BLOCK, 0));
		memset(bytes, 0, BLOCK);
		good(gpunvme_read(&dq[q], &dbuf, 0, (uint64_t)q * BLOCK, BLOCK));
		for (unsigned i = 0; i < BLOCK; i++)
			assert_int_equal(bytes[i], (unsigned char)(seed + q));
	}
}

static int recover_queue(void)
{
	return gpunvme_queue_recover(qp[0]);
}

static int reset_controller(void)
{
	return gpunvme_dev_reset(dev);
}

static int reset_function(void)
{
	never_ready = true;
	return gpunvme_dev_reset(dev);
}

static void many(const char *what, int (*step)(void))
{
	uint64_t worst = 0, took;

	for (unsigned i = 0; i < TIMES; i++) {
		took = gnv_clock_ns();
		good(step());
		took = gnv_clock_ns() - took;
		worst = took > worst ? took : worst;
		assert_false(never_ready);
		assert_int_equal(gpunvme_read(&dq[0], &dbuf, 0, 0, BLOCK), -GPUNVME_ESHUTDOWN);
		take_views();
		write_and_read();
	}
	printf("figure: %s: worst of %u: %llu us\n", what, TIMES, (unsigned long long)worst / 1000);
}

static void test_steps(void **state)
{
	(void)state;
	many("abort and deletion", recover_queue);
	many("controller reset", reset_controller);
	many("controller reset that fails, and function reset", reset_function);
}

static uint32_t state_now(uint64_t *generation)
{
	struct gpunvme_dev_info status = { .size = sizeof(status) };

	good(gpunvme_dev_get_info(dev, &status));
	*generation = status.generation;
	return status.state;
}

static struct gpunvme_event next_event(int fd)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct pollfd ready = { fd, POLLIN, 0 };

	assert_int_equal(poll(&ready, 1, 60000), 1);
	good(gpunvme_dev_next_event(dev, &event));
	assert_int_equal(event.missed, 0);
	return event;
}

/* QEMU's controller is warm enough for a threshold of 200 K. */
static void test_events(void **state)
{
	uint64_t before, after;
	struct gpunvme_event event;
	int fd;

	(void)state;
	assert_int_equal(state_now(&before), GPUNVME_STATE_ALIVE);
	good(gpunvme_dev_event_fd(dev, &fd));
	good(gpunvme_dev_reset(dev));
	event = next_event(fd);
	assert_int_equal(event.type, GPUNVME_EVENT_RESET);
	assert_int_equal(state_now(&after), GPUNVME_STATE_ALIVE);
	assert_int_equal(after, before + 1);
	assert_int_equal(event.generation, after);
	take_views();
	good(gpunvme_queue_recover(qp[1]));
	event = next_event(fd);
	assert_int_equal(event.type, GPUNVME_EVENT_RECOVERED);
	assert_ptr_equal(event.queue, qp[1]);
	take_views();
	for (unsigned i = 0; i < 6; i++) { /* more than there are requests */
		good(gpunvme_dev_set_feature(dev, GPUNVME_FID_TEMP_THRESHOLD, 200));
		event = next_event(fd);
		assert_int_equal(event.type, GPUNVME_EVENT_HEALTH);
		assert_int_equal(event.detail, HOT);
		good(gpunvme_dev_set_feature(dev, GPUNVME_FID_TEMP_THRESHOLD, 350));
	}
	write_and_read();
}

static void test_pulled(void **state)
{
	const char *line = getenv("GPUNVME_TEST_PULL");
	uint64_t generation;
	FILE *console;
	int fd, ret, tries;

	(void)state;
	if (!line)
		skip();
	good(gpunvme_dev_event_fd(dev, &fd));
	console = fopen("/dev/console", "w");
	assert_non_null(console);
	fprintf(console, "\n%s\n", line);
	fclose(console);
	assert_int_equal(next_event(fd).type, GPUNVME_EVENT_LOST);
	assert_int_equal(state_now(&generation), GPUNVME_STATE_REMOVED);
	for (tries = 0; !(ret = gpunvme_read(&dq[0], &dbuf, 0, 0, BLOCK)) && tries < 10000; tries++)
		usleep(1000); /* it serves what it gets until QEMU has taken it away, and threads look at the word when they wait */
	assert_true(ret == -GPUNVME_ENODEV || ret == -GPUNVME_ESHUTDOWN); /* the latter: a read before that found out, and was answered */
	assert_int_equal(gpunvme_dev_reset(dev), -ENODEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_pulled), /* last */
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
