/* SPDX-License-Identifier: MIT */
/* Admin commands of the user: data, refusals, a controller that dies, many threads. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fake.h"

static void test_admin_data(void **state)
{
	static const size_t lens[] = { 1, 4095, 4096, 4097, 8192, 8193, 40000, 128 * 1024 };
	struct fake *fake = fake_new();
	unsigned char *buf = malloc(GNV_ADMIN_MAX_DATA), *back = malloc(GNV_ADMIN_MAX_DATA);
	struct gpunvme_dev *dev;
	size_t i, k;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct gpunvme_sqe cmd = { .opc = 0xc1, .cdw10 = (uint32_t)lens[i], .prp1 = 1, .prp2 = 2, .mptr = 3, .cid = 77 };

		for (k = 0; k < lens[i]; k++)
			buf[k] = (unsigned char)(k * 7 + i + k / 256);
		assert_int_equal(gpunvme_dev_admin(dev, &cmd, buf, lens[i], 1, NULL), 0);
		assert_memory_equal(fake->data, buf, lens[i]);
		assert_int_equal(fake->last.mptr, 0);
		cmd.opc = 0xc2;
		assert_int_equal(gpunvme_dev_admin(dev, &cmd, back, lens[i], 0, NULL), 0);
		assert_memory_equal(back, buf, lens[i]);
	}
	assert_int_equal(gpunvme_dev_log_page(dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, back, 512), 0);
	assert_int_equal(back[511], 0x77);
	assert_int_equal(fake->last.cdw10, GPUNVME_LID_SMART | 127u << 16);
	gpunvme_dev_close(dev);
	free(buf);
	free(back);
	fake_delete(fake, false);
}

static void test_admin_refusals(void **state)
{
	static const uint8_t refused[] = { 0x00, 0x01, 0x04, 0x05, 0x0c, 0x7c, 0x1c };
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = GPUNVME_FID_NUM_QUEUES };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	uint32_t value;
	char buf[8192];
	size_t i;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_admin(dev, &cmd, NULL, 0, 0, NULL), -EPERM);
	assert_int_equal(gpunvme_dev_set_feature(dev, GPUNVME_FID_NUM_QUEUES, 3), -EPERM);
	for (i = 0; i < sizeof(refused); i++) {
		cmd = (struct gpunvme_sqe){ .opc = refused[i] };
		assert_int_equal(gpunvme_dev_admin(dev, &cmd, NULL, 0, 0, NULL), -EPERM);
	}
	cmd = (struct gpunvme_sqe){ .opc = 0xc0, .flags = 1 };
	assert_int_equal(gpunvme_dev_admin(dev, &cmd, NULL, 0, 0, NULL), -EINVAL);
	cmd.flags = 0;
	assert_int_equal(gpunvme_dev_admin(dev, &cmd, NULL, 0, 0, NULL), GPUNVME_SC_INVALID_OPCODE);
	assert_int_equal(gpunvme_dev_admin(dev, &cmd, NULL, 4, 0, NULL), -EINVAL);
	assert_int_equal(gpunvme_dev_admin(dev, &cmd, buf, GNV_ADMIN_MAX_DATA + 1, 0, NULL), -EINVAL);
	assert_int_equal(gpunvme_dev_admin(NULL, &cmd, NULL, 0, 0, NULL), -EINVAL);
	assert_int_equal(gpunvme_dev_admin(dev, NULL, NULL, 0, 0, NULL), -EINVAL);
	assert_int_equal(gpunvme_dev_log_page(dev, 1, 0, buf, 0), -EINVAL);
	assert_int_equal(gpunvme_dev_log_page(dev, 1, 0, buf, 6), -EINVAL);
	assert_int_equal(gpunvme_dev_log_page(dev, 1, 0, buf, 4100), -EINVAL);
	assert_int_equal(gpunvme_dev_log_page(dev, 1, 0, NULL, 4), -EINVAL);
	assert_int_equal(gpunvme_dev_get_feature(dev, 6, NULL), -EINVAL);
	assert_int_equal(gpunvme_dev_get_feature(dev, 6, &value), 0);
	assert_int_equal(value, 6);
	assert_int_equal(gpunvme_dev_set_feature(dev, 6, 1), 0);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

static unsigned count_commands(struct fake *fake)
{
	unsigned count;

	pthread_mutex_lock(&fake->lock);
	count = fake->commands;
	pthread_mutex_unlock(&fake->lock);
	return count;
}

/* A namespace changes its blocks only when no view is left that has the old ones. */
static void test_format_with_queues(void **state)
{
	const struct gpunvme_sqe changes[] = { { .opc = GPUNVME_ADMIN_FORMAT_NVM, .nsid = 1 },
					       { .opc = GPUNVME_ADMIN_NS_MANAGEMENT, .nsid = 1, .cdw10 = 1 },
					       { .opc = GPUNVME_ADMIN_NS_ATTACHMENT, .nsid = 1, .cdw10 = 1 },
					       { .opc = GPUNVME_ADMIN_CAPACITY_MANAGEMENT, .cdw10 = 4 } };
	const struct gpunvme_sqe others[] = { { .opc = GPUNVME_ADMIN_NS_MANAGEMENT },
					      { .opc = GPUNVME_ADMIN_NS_ATTACHMENT },
					      { .opc = GPUNVME_ADMIN_CAPACITY_MANAGEMENT, .cdw10 = 3 } };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	unsigned before, i;

	(void)state;
	opts.flags = GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	before = count_commands(fake);
	for (i = 0; i < 4; i++) {
		assert_int_equal(gpunvme_dev_admin(dev, &changes[i], NULL, 0, 0, NULL), -EBUSY);
		assert_non_null(strstr(gpunvme_errmsg(), "Destroy all queues"));
	}
	assert_int_equal(count_commands(fake), before);
	for (i = 0; i < 3; i++)
		assert_int_equal(gpunvme_dev_admin(dev, &others[i], NULL, 0, 0, NULL), GPUNVME_SC_INVALID_OPCODE);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(gpunvme_dev_admin(dev, &changes[i], NULL, 0, 0, NULL), GPUNVME_SC_INVALID_OPCODE);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0); /* nothing is held */
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

static struct gpunvme_sqe last_command(struct fake *fake)
{
	struct gpunvme_sqe last;

	pthread_mutex_lock(&fake->lock);
	last = fake->last;
	pthread_mutex_unlock(&fake->lock);
	return last;
}

/* Features of namespaces name theirs, after a reset as well. */
static void test_namespace_features(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	uint32_t value;

	(void)state;
	fake->id.nn = 3;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_ns_get_feature(dev, 2, 5, &value), 0);
	assert_int_equal(value, 5);
	assert_int_equal(last_command(fake).nsid, 2);
	assert_int_equal(gpunvme_ns_get_feature(dev, 0, 5, &value), 0);
	assert_int_equal(last_command(fake).nsid, 1);
	assert_int_equal(gpunvme_dev_get_feature(dev, 5, &value), 0);
	assert_int_equal(last_command(fake).nsid, 0);
	assert_int_equal(gpunvme_ns_set_feature(dev, GPUNVME_NSID_ALL, 5, 8), 0);
	assert_int_equal(last_command(fake).nsid, GPUNVME_NSID_ALL);
	assert_int_equal(gpunvme_ns_set_feature(dev, 3, 5, 9), 0);
	assert_int_equal(last_command(fake).cdw11, 9);
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	assert_int_equal(last_command(fake).opc, GPUNVME_ADMIN_SET_FEATURES);
	assert_int_equal(last_command(fake).nsid, 3);
	assert_int_equal(last_command(fake).cdw11, 9);
	value = last_command(fake).cid;
	assert_int_equal(gpunvme_ns_get_feature(dev, 4, 5, &value), -ENOENT);
	assert_int_equal(gpunvme_ns_set_feature(dev, 4, 5, 9), -ENOENT);
	assert_int_equal(gpunvme_ns_get_feature(dev, 1, 5, NULL), -EINVAL);
	assert_int_equal(gpunvme_ns_get_feature(NULL, 1, 5, &value), -EINVAL);
	assert_int_equal(gpunvme_ns_set_feature(NULL, 1, 5, 9), -EINVAL);
	assert_int_equal(gpunvme_ns_set_feature(dev, 1, GPUNVME_FID_NUM_QUEUES, 9), -EPERM);
	assert_int_equal(last_command(fake).cid, value);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

/* Some have a structure next to the value: the drive finds a place for it that is not address 0, and zeroes are set nowhere. */
static void test_features_with_data(void **state)
{
	static const uint8_t with[] = { 0x03, GPUNVME_FID_APST, 0x0e, 0x13, 0x16, 0x1c, 0x1e, 0x1f, 0x78, 0x79, 0x7d, 0x7f, 0x81 };
	static const uint8_t without[] = { 0x01, 0x02, 0x04, 0x0b, 0x0f, 0x15, 0x17, 0x80, 0x82, 0x84 };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	uint32_t value;
	uint16_t cid;
	size_t i;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	for (i = 0; i < sizeof(without); i++) {
		assert_int_equal(gpunvme_dev_get_feature(dev, without[i], &value), 0);
		assert_int_equal(last_command(fake).prp1, 0);
	}
	assert_int_equal(gpunvme_dev_get_feature(dev, 0xc0, &value), 0);
	assert_true(last_command(fake).prp1 & FAKE_IOVA_TAG);
	for (i = 0; i < sizeof(with); i++) {
		assert_int_equal(gpunvme_dev_get_feature(dev, with[i], &value), 0);
		assert_true(last_command(fake).prp1 & FAKE_IOVA_TAG);
		cid = last_command(fake).cid;
		assert_int_equal(gpunvme_dev_set_feature(dev, with[i], 1), -EINVAL);
		assert_int_equal(last_command(fake).cid, cid);
	}
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

static void test_read_only(void **state)
{
	struct gpunvme_sqe format = { .opc = 0x80 }, vendor = { .opc = 0xc0 }, abort = { .opc = GPUNVME_ADMIN_ABORT };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	uint32_t value;

	(void)state;
	fake->port.read_only = true;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_admin(dev, &format, NULL, 0, 0, NULL), -EPERM);
	assert_int_equal(gpunvme_dev_admin(dev, &vendor, NULL, 0, 0, NULL), -EPERM);
	assert_int_equal(gpunvme_dev_admin(dev, &abort, NULL, 0, 0, NULL), GPUNVME_SC_INVALID_OPCODE); /* reached the controller */
	assert_int_equal(gpunvme_dev_get_feature(dev, 6, &value), 0);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

/* After a time-out the controller is dead for every later command, and still closes without a leak. */
static void test_dead_after_timeout(void **state)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	unsigned commands;
	uint32_t value;
	char *buf = calloc(1, 40000);

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	fake_hurry(fake, dev);
	fake->fault_opc = 0xc2;
	fake->fault = FAKE_SILENT;
	assert_int_equal(gpunvme_dev_admin(dev, &(struct gpunvme_sqe){ .opc = 0xc2, .cdw10 = 40000 }, buf, 40000, 0, NULL),
			 -ETIMEDOUT);
	commands = count_commands(fake);
	assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), -ESHUTDOWN);
	assert_int_equal(gpunvme_dev_get_feature(dev, 6, &value), -ESHUTDOWN);
	assert_int_equal(count_commands(fake), commands);
	gpunvme_dev_close(dev);
	free(buf);
	fake_delete(fake, false);
}

/* What a command that got no reply would still be written to is nobody's, until the controller was disabled: not without limit. */
static void test_data_after_reset(void **state)
{
	const struct gpunvme_sqe cmd = { .opc = 0xc2, .cdw10 = 40000 };
	struct fake *fake = fake_new();
	struct gnv_block other;
	struct gpunvme_dev *dev;
	uint64_t first = 0;
	unsigned i;
	char *buf = calloc(1, 40000);

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	fake_hurry(fake, dev);
	for (i = 0; i < 3; i++) {
		fake->fault_opc = cmd.opc;
		fake->fault = FAKE_SILENT;
		assert_int_equal(gpunvme_dev_admin(dev, &cmd, buf, 40000, 0, NULL), -ETIMEDOUT);
		assert_int_equal(last_command(fake).opc, cmd.opc);
		first = first ? first : last_command(fake).prp1;
		assert_int_equal(last_command(fake).prp1, first);
		assert_int_equal(gnv_arena_alloc(dev->nvme.arena, 40000, NULL, &other), 0);
		assert_int_not_equal(other.iova, first);
		gnv_arena_free(dev->nvme.arena, &other);
		fake->fault = FAKE_WELL;
		assert_int_equal(gpunvme_dev_reset(dev), 0);
	}
	assert_int_equal(gpunvme_dev_admin(dev, &cmd, buf, 40000, 0, NULL), 0);
	gpunvme_dev_close(dev);
	free(buf);
	fake_delete(fake, false);
}

struct hammer {
	struct gpunvme_dev *dev;
	uint32_t fid;
};

static void *hammer(void *arg)
{
	struct hammer *h = arg;
	uint32_t i, value;

	for (i = 0; i < 50; i++)
		if (gpunvme_dev_get_feature(h->dev, (uint8_t)h->fid, &value) || value != h->fid)
			return arg;
	return NULL;
}

/* Commands of many threads run one at a time, through more than one turn of the rings. */
static void test_threads(void **state)
{
	struct fake *fake = fake_new();
	struct hammer h[4];
	pthread_t thread[4];
	struct gpunvme_dev *dev;
	unsigned i;
	void *bad;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	for (i = 0; i < 4; i++) {
		h[i] = (struct hammer){ dev, i + 1 };
		assert_int_equal(pthread_create(&thread[i], NULL, hammer, &h[i]), 0);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], &bad);
		assert_null(bad);
	}
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

/* Nobody waits for the reply to a request for an event; a wrong one ends the controller all the same. */
static void answers_request_with(enum fake_fault fault)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct fake *fake = fake_new();
	struct pollfd ready = { -1, POLLIN, 0 };
	struct gpunvme_dev *dev;
	uint32_t value;

	assert_int_equal(fake_open(fake, &dev), 0);
	fake->fault_opc = GPUNVME_ADMIN_ASYNC_EVENT_REQUEST;
	fake->fault = fault;
	assert_int_equal(gpunvme_dev_event_fd(dev, &ready.fd), 0);
	assert_int_equal(poll(&ready, 1, 60000), 1);
	assert_int_equal(gpunvme_dev_next_event(dev, &event), 0);
	assert_int_equal(event.type, GPUNVME_EVENT_LOST);
	assert_int_equal(gpunvme_dev_get_feature(dev, 6, &value), -ESHUTDOWN);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

static void test_wrong_events(void **state)
{
	(void)state;
	answers_request_with(FAKE_WRONG_CID);
	answers_request_with(FAKE_WRONG_SQID);
	answers_request_with(FAKE_WRONG_SQHD);
}

/* A controller that does not know the command works on, and is not asked again. */
static void test_no_events(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	unsigned commands;
	uint32_t value;
	int fd;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_event_fd(dev, &fd), 0);
	assert_int_equal(gpunvme_dev_get_feature(dev, 6, &value), 0);
	commands = count_commands(fake);
	assert_int_equal(poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 300), 0);
	assert_int_equal(count_commands(fake), commands);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_admin_data),
		cmocka_unit_test(test_admin_refusals),
		cmocka_unit_test(test_format_with_queues),
		cmocka_unit_test(test_namespace_features),
		cmocka_unit_test(test_features_with_data),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_dead_after_timeout),
		cmocka_unit_test(test_data_after_reset),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_wrong_events),
		cmocka_unit_test(test_no_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
