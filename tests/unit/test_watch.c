/* SPDX-License-Identifier: MIT */
/* The alarms of a VFIO device, rung through the eventfds that the library armed at a kernel that is played (fake_kernel.h). */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/vfio.h>
#include <cmocka.h>

#include "fake_kernel.h"
#include "port/vfio_device.h"
#include "util/clock.h"
#include "util/mmio.h"

static const struct gnv_pci pci = { .bdf = "0000:04:00.0", .cdev = FAKE_NODE, .class_code = GNV_CLASS_NVME, .driver = "vfio-pci" };
static const struct gnv_log silent;

struct heard {
	unsigned release, error; /* atomic */
};

static void hear(void *ctx, bool must_release)
{
	struct heard *heard = ctx;

	__atomic_fetch_add(must_release ? &heard->release : &heard->error, 1, __ATOMIC_RELAXED);
}

static void ring(int eventfd)
{
	const uint64_t one = 1;

	assert_int_equal(write(eventfd, &one, sizeof(one)), sizeof(one));
}

static void becomes(const unsigned *word, unsigned value)
{
	struct gnv_deadline deadline = gnv_deadline_in(10000);

	while (__atomic_load_n(word, __ATOMIC_RELAXED) != value)
		assert_true(gnv_deadline_poll_again(&deadline));
}

static void start(struct gnv_vfio_watch *watch, struct heard *heard)
{
	struct gnv_vfio vfio = { .fd = fake_kernel.device };

	*heard = (struct heard){ 0, 0 };
	fake_kernel.calls = 0;
	assert_int_equal(gnv_vfio_watch_start(watch, &vfio, hear, heard), 0);
}

static int setup(void **state)
{
	(void)state;
	fake_kernel_reset();
	return 0;
}

static void test_alarms(void **state)
{
	struct gnv_vfio_watch watch;
	struct heard heard;

	(void)state;
	start(&watch, &heard);
	ring(fake_kernel.err);
	becomes(&heard.error, 1);
	ring(fake_kernel.err); /* said once */
	ring(fake_kernel.req);
	becomes(&heard.release, 1);
	ring(fake_kernel.req); /* as the kernel does every ten seconds */
	gnv_vfio_watch_stop(&watch);
	assert_int_equal(heard.error, 1);
	assert_int_equal(heard.release, 1);
	ring(fake_kernel.req); /* nobody listens, nothing happens */
}

/* Stopping at any moment, also while an alarm rings. */
static void test_stop(void **state)
{
	struct gnv_vfio_watch watch;
	struct heard heard;

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		start(&watch, &heard);
		if (i & 1)
			ring(fake_kernel.err);
		if (i & 2)
			ring(fake_kernel.req);
		gnv_vfio_watch_stop(&watch);
		assert_true(heard.error <= (i & 1) && heard.release <= (i >> 1 & 1));
	}
}

static void test_refused(void **state)
{
	struct gnv_vfio vfio = { .fd = fake_kernel.device };
	struct gnv_vfio_watch watch;
	unsigned before = fake_open_files();

	(void)state;
	fake_kernel.fail_request = VFIO_DEVICE_SET_IRQS;
	fake_kernel.fail_errno = EINVAL;
	assert_int_equal(gnv_vfio_watch_start(&watch, &vfio, hear, NULL), -EINVAL);
	assert_int_equal(fake_open_files(), before);
}

static void count_lost(void *ctx)
{
	__atomic_fetch_add((unsigned *)ctx, 1, __ATOMIC_RELAXED);
}

static void *use_port(void *arg)
{
	struct gnv_port *port = arg;
	int fd;

	for (unsigned i = 0; i < 100; i++) {
		port->ops->export_bar0(port, 4096, 4096, &fd);
		gnv_mmio_read32((char *)port->bar0->cpu + 0x1c);
	}
	return NULL;
}

/* The whole way: the kernel wants the device back while another thread uses it. Registers then read as gone, the file is closed. */
static void test_device_goes(void **state)
{
	unsigned lost, before = fake_open_files();
	struct gnv_port *port;
	pthread_t thread;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		struct gnv_deadline deadline = gnv_deadline_in(10000);

		fake_kernel.calls = lost = 0;
		assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), 0);
		port->ops->watch(port, count_lost, &lost);
		assert_int_equal(pthread_create(&thread, NULL, use_port, port), 0);
		ring(fake_kernel.req);
		becomes(&lost, 1);
		while (gnv_mmio_read32((char *)port->bar0->cpu + 0x1c) != ~0u)
			assert_true(gnv_deadline_poll_again(&deadline));
		pthread_join(thread, NULL);
		assert_int_equal(port->ops->halt(port), 0);
		port->ops->close(port);
		assert_non_null(fake_kernel_call(VFIO_DEVICE_RESET, 0));
	}
	close(fake_kernel.req);
	close(fake_kernel.err);
	fake_kernel.req = fake_kernel.err = -1;
	assert_int_equal(fake_open_files(), before);
}

/* A port that was lost before anybody asked says so at once. */
static void test_asked_late(void **state)
{
	struct gnv_deadline deadline = gnv_deadline_in(10000);
	struct gnv_port *port;
	unsigned lost = 0;

	(void)state;
	assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), 0);
	ring(fake_kernel.req);
	while (gnv_mmio_read32((char *)port->bar0->cpu + 0x1c) != ~0u)
		assert_true(gnv_deadline_poll_again(&deadline));
	port->ops->watch(port, count_lost, &lost);
	assert_int_equal(lost, 1);
	port->ops->close(port);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_alarms, setup),	 cmocka_unit_test_setup(test_stop, setup),
		cmocka_unit_test_setup(test_refused, setup),	 cmocka_unit_test_setup(test_device_goes, setup),
		cmocka_unit_test_setup(test_asked_late, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
