/* SPDX-License-Identifier: MIT */
/* Why a device died: every cause is kept, and given by its info, its event and the error message of every later call. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/unstable.h>

#include "fake.h"

struct cause {
	enum fake_fault fault;	 /* at the next log page; FAKE_WELL: what follows */
	enum gnv_port_loss loss; /* that the port reports */
	int ret;		 /* of every later call */
	const char *why;
};

static const struct cause causes[] = {
	{ FAKE_FATAL, 0, -ESHUTDOWN, "it reports a fatal error (CSTS.CFS)" },
	{ FAKE_STOPPED, 0, -ESHUTDOWN, "it was stopped or reset by another (CSTS.RDY is 0)" },
	{ FAKE_SILENT, 0, -ESHUTDOWN, "the controller did not complete admin command 0x02 within 300 ms" },
	{ FAKE_WRONG_CID, 0, -ESHUTDOWN, "the controller broke the protocol: admin completion of command " },
	{ FAKE_GONE, 0, -ENODEV, "its registers read as all ones" },
	{ FAKE_WELL, GNV_PORT_ERROR, -ESHUTDOWN, "the PCI bus reported an error of the device" },
	{ FAKE_WELL, GNV_PORT_LOST, -ENODEV, "the kernel wants the device back" },
};

static const char *why_of(struct gpunvme_dev *dev)
{
	static struct gpunvme_dev_info info;

	info.size = sizeof(info);
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
	return info.why;
}

static int log_page(struct gpunvme_dev *dev)
{
	char page[512];

	return gpunvme_dev_log_page(dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, page, sizeof(page));
}

static void set_fault(struct fake *fake, enum fake_fault fault)
{
	pthread_mutex_lock(&fake->lock);
	fake->fault = fault;
	fake->fault_opc = GPUNVME_ADMIN_GET_LOG_PAGE;
	pthread_mutex_unlock(&fake->lock);
}

/* A thread sends admin commands for events. */
static void set_timeout(struct gpunvme_dev *dev, uint32_t ms)
{
	pthread_mutex_lock(&dev->nvme.admin.lock);
	dev->nvme.admin.timeout_ms = ms;
	pthread_mutex_unlock(&dev->nvme.admin.lock);
}

static void die(struct fake *fake, struct gpunvme_dev *dev, const struct cause *cause)
{
	const uint32_t patience = dev->nvme.admin.timeout_ms;

	if (!cause->fault) {
		fake->lost(fake->lost_ctx, cause->loss, cause->why);
		return;
	}
	set_fault(fake, cause->fault);
	set_timeout(dev, cause->fault == FAKE_SILENT ? 300 : patience);
	assert_true(log_page(dev) < 0);
	set_timeout(dev, patience);
}

static void says(int ret, const struct cause *cause)
{
	assert_int_equal(ret, cause->ret);
	assert_non_null(strstr(gpunvme_errmsg(), cause->why));
}

/* Calls of every kind: admin commands, namespaces, mapping, queues, state. */
static void check_calls(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_mem *mem, const struct cause *cause)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
	unsigned count = GPUNVME_MAX_CHECKS;
	struct gpunvme_mem *inside;
	struct gpunvme_mem_use use;
	struct gpunvme_queue *qp;
	uint64_t offset;
	size_t len;
	int fd;

	says(log_page(dev), cause);
	says(gpunvme_ns_get_info(dev, 1, &ns), cause);
	says(gpunvme_mem_map(mem, dev), cause);
	says(gpunvme_mem_cmb(gpu, dev, 4096, NULL, &inside), cause);
	says(gpunvme_mem_get(gpu, dev, gpunvme_mem_ptr(mem), 4096, 0, &use), cause);
	says(gpunvme_queue_create(dev, gpu, NULL, &qp), cause);
	says(gpunvme_dev_export_doorbells(dev, &fd, &offset, &len), cause);
	says(gpunvme_doctor_drive(dev, checks, &count), cause);
}

static void check_event(struct gpunvme_dev *dev, const struct cause *cause)
{
	struct gpunvme_event event = { .size = sizeof(event) };

	assert_int_equal(gpunvme_dev_next_event(dev, &event), 0);
	assert_int_equal(event.type, GPUNVME_EVENT_LOST);
	assert_non_null(strstr(event.why, cause->why));
}

/* One that died for a cause which a reset mends has none after it. */
static void check_reset(struct fake *fake, struct gpunvme_dev *dev, const struct cause *cause)
{
	set_fault(fake, FAKE_WELL);
	if (cause->ret == -ENODEV) {
		says(gpunvme_dev_reset(dev), cause);
		return;
	}
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	assert_string_equal(why_of(dev), "");
	assert_int_equal(log_page(dev), 0);
}

static void test_each(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
		struct fake *fake = fake_new();
		struct gpunvme_dev *dev;
		struct gpunvme_gpu *gpu;
		struct gpunvme_mem *mem;
		int fd;

		assert_int_equal(fake_open(fake, &dev), 0);
		assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
		assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem), 0);
		assert_int_equal(gpunvme_dev_event_fd(dev, &fd), 0);
		assert_string_equal(why_of(dev), "");
		die(fake, dev, &causes[i]);
		assert_non_null(strstr(why_of(dev), causes[i].why));
		check_event(dev, &causes[i]);
		check_calls(dev, gpu, mem, &causes[i]);
		check_reset(fake, dev, &causes[i]);
		assert_int_equal(gpunvme_mem_free(mem), 0);
		gpunvme_gpu_close(gpu);
		assert_int_equal(gpunvme_dev_close(dev), 0);
		fake_delete(fake, false);
	}
}

/* The first cause is the one; what follows from it is none. A removal is reported in its place. */
static void test_first(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	fake->lost(fake->lost_ctx, GNV_PORT_ERROR, "first");
	fake->lost(fake->lost_ctx, GNV_PORT_ERROR, "second");
	assert_string_equal(why_of(dev), "first");
	fake->lost(fake->lost_ctx, GNV_PORT_LOST, "removed");
	fake->lost(fake->lost_ctx, GNV_PORT_ERROR, "third");
	assert_string_equal(why_of(dev), "removed");
	assert_int_equal(gpunvme_dev_close(dev), 0);
	fake_delete(fake, false);
}

/* A reset that fails leaves its own cause where the controller was alive before. */
static void test_reset_fails(void **state)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	int fd;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_event_fd(dev, &fd), 0);
	dev->nvme.ctrl.ready_ms = 500;
	fake->reset_in_vain = true;
	set_fault(fake, FAKE_NEVER_READY);
	assert_true(gpunvme_dev_reset(dev) < 0);
	assert_non_null(strstr(gpunvme_errmsg(), "within 500 ms, also after a function reset. Switch its power off and on"));
	assert_int_equal(gpunvme_dev_next_event(dev, &event), 0);
	fake->reset_ret = -EIO;
	assert_true(gpunvme_dev_reset(dev) < 0);
	assert_non_null(strstr(gpunvme_errmsg(), "within 500 ms. A function reset did not help: the function reset failed"));
	assert_non_null(strstr(why_of(dev), "did not become ready (CSTS.RDY stays 0) within 500 ms"));
	assert_null(strstr(why_of(dev), ". "));
	assert_int_equal(gpunvme_dev_next_event(dev, &event), 0);
	assert_int_equal(event.type, GPUNVME_EVENT_LOST);
	assert_string_equal(event.why, why_of(dev));
	assert_int_equal(gpunvme_dev_close(dev), 0);
	fake_delete(fake, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_each), cmocka_unit_test(test_first), cmocka_unit_test(test_reset_fails) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
