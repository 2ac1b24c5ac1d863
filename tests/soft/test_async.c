/* SPDX-License-Identifier: MIT */
/* Events that the controller itself tells of: each kind, again and again, over resets, between admin commands, and refused. */
#include <gpunvme/gpunvme.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/image.h"
#include "dev/dev.h"
#include "soft/engine/threads.h"
#include "soft/soft.h"

#define NAMESPACE_TOLD 0x00040002u
#define FIRMWARE_TOLD 0x00030102u
#define TEMPERATURE_TOLD 0x00020101u
#define DOORBELL_TOLD 0x00010100u
#define NOTICES 0x300u

static struct gpunvme_dev *dev;
static int fd;
static uint32_t refused; /* opcode that fails, 0: none */

static int make_image(void **state)
{
	return image_make_disk(state, 1 << 20);
}

static enum gnv_soft_action decide(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	(void)ctx;
	*status = cmd->opc == GPUNVME_ADMIN_SET_FEATURES ? GPUNVME_SC_INVALID_FIELD : GPUNVME_SC_AER_LIMIT;
	return __atomic_load_n(&refused, __ATOMIC_RELAXED) == cmd->opc ? GNV_SOFT_FAIL : GNV_SOFT_GO;
}

static int open_dev(void **state)
{
	static const struct gnv_soft_admin_fault fault = { decide, NULL };
	char uri[160];

	(void)state;
	refused = 0;
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	if (gpunvme_dev_open(uri, NULL, &dev))
		return -1;
	gnv_soft_set_admin_fault(gnv_dev_soft(dev), &fault);
	return 0;
}

static int close_dev(void **state)
{
	(void)state;
	return gpunvme_dev_close(dev);
}

static void ask(void)
{
	assert_int_equal(gpunvme_dev_event_fd(dev, &fd), 0);
}

static void raise_event(enum gnv_soft_event event)
{
	gnv_soft_raise(gnv_dev_soft(dev), event);
}

static void is_told(enum gpunvme_event_type type, uint32_t detail)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct pollfd ready = { fd, POLLIN, 0 };

	assert_int_equal(poll(&ready, 1, 60000), 1);
	assert_int_equal(gpunvme_dev_next_event(dev, &event), 0);
	assert_int_equal(event.type, type);
	assert_int_equal(event.detail, detail);
	assert_int_equal(event.missed, 0);
	assert_null(event.queue);
	assert_null(event.mem);
}

static void nothing_is_told(void)
{
	struct pollfd ready = { fd, POLLIN, 0 };

	assert_int_equal(poll(&ready, 1, 500), 0);
}

static uint32_t wanted(void)
{
	uint32_t value = 0;

	assert_int_equal(gpunvme_dev_get_feature(dev, GPUNVME_FID_ASYNC_EVENT, &value), 0);
	return value;
}

/* More often than there are requests: each is sent again, and each log page is read. */
static void each_kind(void **state)
{
	(void)state;
	ask();
	for (unsigned i = 0; i < GNV_SOFT_AERS + 2; i++) {
		raise_event(GNV_SOFT_EVENT_NAMESPACE);
		is_told(GPUNVME_EVENT_NAMESPACE, NAMESPACE_TOLD);
		raise_event(GNV_SOFT_EVENT_FIRMWARE);
		is_told(GPUNVME_EVENT_FIRMWARE, FIRMWARE_TOLD);
		raise_event(GNV_SOFT_EVENT_DOORBELL_VALUE);
		is_told(GPUNVME_EVENT_CONTROLLER, DOORBELL_TOLD);
		assert_int_equal(gpunvme_dev_set_feature(dev, GPUNVME_FID_TEMP_THRESHOLD, 200), 0);
		is_told(GPUNVME_EVENT_HEALTH, TEMPERATURE_TOLD);
		assert_int_equal(gpunvme_dev_set_feature(dev, GPUNVME_FID_TEMP_THRESHOLD, 350), 0);
	}
	nothing_is_told();
}

/* A reset takes the requests and the configuration away. */
static void over_resets(void **state)
{
	(void)state;
	ask();
	for (unsigned i = 0; i < 5; i++) {
		if (i == 3)
			gnv_soft_set_stubborn(gnv_dev_soft(dev), GNV_SOFT_FAILS, false); /* so that the function is reset */
		assert_int_equal(gpunvme_dev_reset(dev), 0);
		is_told(GPUNVME_EVENT_RESET, 0);
		assert_int_equal(wanted() & NOTICES, NOTICES);
		raise_event(GNV_SOFT_EVENT_NAMESPACE);
		is_told(GPUNVME_EVENT_NAMESPACE, NAMESPACE_TOLD);
	}
}

/* Replies to requests come between those to commands. */
static void between_commands(void **state)
{
	struct gpunvme_ns_info info = { .size = sizeof(info) };
	struct gpunvme_event event = { .size = sizeof(event) };
	unsigned told = 0, asked = 0;

	(void)state;
	ask();
	raise_event(GNV_SOFT_EVENT_NAMESPACE);
	while (told < 10) {
		assert_int_equal(gpunvme_ns_get_info(dev, 1, &info), 0);
		assert_true(++asked < 10000000);
		if (gpunvme_dev_next_event(dev, &event))
			continue;
		assert_int_equal(event.detail, NAMESPACE_TOLD);
		told++;
		raise_event(GNV_SOFT_EVENT_NAMESPACE);
	}
}

static void what_the_program_sets_counts(void **state)
{
	(void)state;
	assert_int_equal(gpunvme_dev_set_feature(dev, GPUNVME_FID_ASYNC_EVENT, 0x40), 0);
	ask();
	assert_int_equal(wanted(), 0x40 | 0x1f | NOTICES);
	assert_int_equal(gpunvme_dev_set_feature(dev, GPUNVME_FID_ASYNC_EVENT, 0x200), 0);
	raise_event(GNV_SOFT_EVENT_NAMESPACE);
	nothing_is_told();
	raise_event(GNV_SOFT_EVENT_FIRMWARE);
	is_told(GPUNVME_EVENT_FIRMWARE, FIRMWARE_TOLD);
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	assert_int_equal(wanted(), 0x200);
}

/* Requests are not sent over and over; after a reset they are tried again. */
static void requests_refused(void **state)
{
	(void)state;
	__atomic_store_n(&refused, GPUNVME_ADMIN_ASYNC_EVENT_REQUEST, __ATOMIC_RELAXED);
	ask();
	raise_event(GNV_SOFT_EVENT_NAMESPACE);
	nothing_is_told();
	__atomic_store_n(&refused, 0, __ATOMIC_RELAXED);
	nothing_is_told();
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	is_told(GPUNVME_EVENT_RESET, 0);
	raise_event(GNV_SOFT_EVENT_NAMESPACE);
	is_told(GPUNVME_EVENT_NAMESPACE, NAMESPACE_TOLD);
}

/* Any controller reports errors. */
static void configuration_refused(void **state)
{
	(void)state;
	__atomic_store_n(&refused, GPUNVME_ADMIN_SET_FEATURES, __ATOMIC_RELAXED);
	ask();
	assert_int_equal(wanted(), 0);
	raise_event(GNV_SOFT_EVENT_DOORBELL_REGISTER);
	is_told(GPUNVME_EVENT_CONTROLLER, 0x00010000);
}

static unsigned count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void who_does_not_ask(void **state)
{
	unsigned before = count_threads();

	(void)state;
	raise_event(GNV_SOFT_EVENT_DOORBELL_VALUE);
	assert_int_equal(wanted(), 0);
	assert_int_equal(count_threads(), before);
	ask();
	assert_int_equal(count_threads(), before + 1);
	ask();
	assert_int_equal(count_threads(), before + 1);
	is_told(GPUNVME_EVENT_CONTROLLER, DOORBELL_TOLD);
}

/* A program that was compiled before there was a detail. */
static void older_programs(void **state)
{
	struct gpunvme_event event = { .size = offsetof(struct gpunvme_event, detail), .detail = 77 };
	struct pollfd ready = { -1, POLLIN, 0 };

	(void)state;
	ask();
	ready.fd = fd;
	raise_event(GNV_SOFT_EVENT_NAMESPACE);
	assert_int_equal(poll(&ready, 1, 60000), 1);
	assert_int_equal(gpunvme_dev_next_event(dev, &event), 0);
	assert_int_equal(event.type, GPUNVME_EVENT_NAMESPACE);
	assert_int_equal(event.detail, 77);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_dev, close_dev)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_kind),	TEST(over_resets),	     TEST(between_commands), TEST(what_the_program_sets_counts),
		TEST(requests_refused), TEST(configuration_refused), TEST(who_does_not_ask), TEST(older_programs),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
