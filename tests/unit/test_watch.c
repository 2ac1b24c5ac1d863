/* SPDX-License-Identifier: MIT */
/* The alarms of a VFIO device, rung through the eventfds that the library armed at a kernel that is emulated (fake_kernel.h). */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <cmocka.h>

#include "common/virtual.h"
#include "common/wait.h"
#include "mocks/kernel/fake_kernel.h"
#include "mem/mem_bar.h"
#include "os/linux/exclusive.h"
#include "os/vfio/uapi/iommufd.h"
#include "os/vfio/uapi/vfio.h"
#include "port/vfio_device.h"
#include "life/life.h"
#include "util/bits.h"
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
	wait_until(__atomic_load_n(word, __ATOMIC_RELAXED) == value);
}

static void start(struct gnv_vfio_watch *watch, struct heard *heard)
{
	struct gnv_vfio vfio = { .fd = fake_kernel.device };

	*heard = (struct heard){ 0, 0 };
	fake_kernel.calls = 0;
	fake_kernel.bound = true;
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

static unsigned resets; /* atomic */

/* Its DMA ends only after the news that it is lost. */
static void count_lost(void *ctx, enum gnv_port_loss loss, const char *why)
{
	assert_non_null(strstr(why, loss == GNV_PORT_ERROR ? "the PCI bus reported an error" : "the kernel wants the device back"));
	if (loss == GNV_PORT_LOST)
		__atomic_fetch_add((unsigned *)ctx, 1, __ATOMIC_RELAXED);
	else if (__atomic_load_n((unsigned *)ctx, __ATOMIC_RELAXED))
		__atomic_fetch_add(&resets, 1, __ATOMIC_RELAXED);
}

static void count_any(void *ctx, enum gnv_port_loss loss, const char *why)
{
	assert_true(why[0]);
	(void)loss;
	__atomic_fetch_add((unsigned *)ctx, 1, __ATOMIC_RELAXED);
}

static void *use_port(void *arg)
{
	struct gnv_port *port = arg;
	int fd;

	for (unsigned i = 0; i < 100; i++) {
		if (!port->ops->export_bar0(port, 4096, 4096, &fd))
			close(fd);
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
		fake_kernel.calls = lost = 0;
		assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), 0);
		port->ops->watch(port, count_lost, &lost);
		assert_int_equal(pthread_create(&thread, NULL, use_port, port), 0);
		ring(fake_kernel.req);
		becomes(&lost, 1);
		wait_until(gnv_mmio_read32((char *)port->bar0->cpu + 0x1c) == ~0u);
		pthread_join(thread, NULL);
		assert_int_equal(port->ops->halt(port), 0);
		port->ops->close(port);
		assert_non_null(fake_kernel_call(VFIO_DEVICE_RESET, 0));
	}
	assert_int_equal(resets, 20); /* told before the file was closed, when GPUs still can change what they map */
	close(fake_kernel.req);
	close(fake_kernel.err);
	fake_kernel.req = fake_kernel.err = -1;
	assert_int_equal(fake_open_files(), before);
}

/* A port that was lost before anybody asked says so at once. */
static void test_asked_late(void **state)
{
	struct gnv_port *port;
	unsigned lost = 0;

	(void)state;
	assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), 0);
	ring(fake_kernel.req);
	wait_until(gnv_mmio_read32((char *)port->bar0->cpu + 0x1c) == ~0u);
	port->ops->watch(port, count_lost, &lost);
	assert_int_equal(lost, 1);
	port->ops->close(port);
}

/* What was held with the device is let go with it, not when its owner wakes up and closes it. */
static void test_paths_left(void **state)
{
	const struct gnv_identity nobody = { .nth = NULL };
	char text[GNV_USERS_TEXT];
	struct gnv_port *port;

	(void)state;
	assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), 0);
	assert_int_equal(gnv_users_hold_paths("/nowhere", "/nowhere", &nobody, text, &port->paths), 0);
	assert_non_null(port->paths);
	ring(fake_kernel.req);
	wait_until(!__atomic_load_n(&port->paths, __ATOMIC_ACQUIRE));
	gnv_port_close(port);
}

/* After an error that a reset may mend the doorbells can still be exported; once the device is given back they cannot. */
static void test_export_after_error(void **state)
{
	struct gnv_port *port;
	unsigned lost = 0;
	int fd;

	(void)state;
	assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), 0);
	port->ops->watch(port, count_any, &lost);
	ring(fake_kernel.err);
	becomes(&lost, 1);
	assert_int_equal(port->ops->export_bar0(port, 4096, 4096, &fd), 0);
	close(fd);
	ring(fake_kernel.req);
	becomes(&lost, 3);
	assert_int_equal(port->ops->export_bar0(port, 4096, 4096, &fd), -ENODEV);
	port->ops->close(port);
}

/* Where BAR0 cannot be exported nobody knows which memory IOMMUFD takes. */
static void test_takes_foreign(void **state)
{
	static const struct {
		unsigned long fails;
		int err, ret;
		const char *says;
	} cases[] = { { GNV_IOMMUFD_MAP_FILE, EOPNOTSUPP, -EOPNOTSUPP, "takes device memory of vfio-pci only" },
		      { GNV_IOMMUFD_MAP_FILE, EREMOTEIO, -EREMOTEIO, "no path over PCIe from" },
		      { VFIO_DEVICE_FEATURE, EOPNOTSUPP, -ENOENT, "cannot export a BAR" } };
	struct gnv_port *port;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_kernel_reset();
		assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), 0);
		fake_kernel.fail_request = cases[i].fails;
		fake_kernel.fail_errno = cases[i].err;
		assert_int_equal(gnv_port_takes_foreign(port), cases[i].ret);
		if (!strstr(gpunvme_errmsg(), cases[i].says))
			fail_msg("%zu: %s", i, gpunvme_errmsg());
		port->ops->close(port);
	}
}

static uint16_t command_register(void)
{
	uint16_t command;

	assert_int_equal(pread(fake_kernel.device, &command, 2, FAKE_CONFIG + PCI_COMMAND), 2);
	return command;
}

static void poke(unsigned reg, uint64_t value, size_t bytes)
{
	assert_int_equal(pwrite(fake_kernel.device, &value, bytes, reg), bytes);
}

/* A controller that was left enabled. It stops when CC.EN is cleared, if it obeys, and dies when that is set. */
struct left {
	bool obeys, enabled;
	uint16_t at_end, at_start; /* the Command register when CC.EN was cleared for the first time, and when it was set */
};

static void play_left(void *arg)
{
	struct left *left = arg;
	bool now;
	uint32_t cc;

	assert_int_equal(pread(fake_kernel.device, &cc, 4, GPUNVME_REG_CC), 4);
	now = cc & GPUNVME_CC_EN;
	if (left->enabled && !now && !left->at_end)
		left->at_end = command_register();
	if (left->enabled && !now && left->obeys)
		poke(GPUNVME_REG_CSTS, 0, 4);
	if (!left->enabled && now) {
		left->at_start = command_register();
		poke(GPUNVME_REG_CSTS, GPUNVME_CSTS_CFS, 4);
	}
	left->enabled = now;
}

static int open_left(struct left *left, const struct gnv_port *share)
{
	const struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *dev;
	struct gnv_port *port;
	int ret;

	/* NVM commands, 64 entries, and one second where it is waited for in vain */
	poke(GPUNVME_REG_CAP, 1ull << 37 | (left->obeys ? 40ull : 2ull) << 24 | 63, 8);
	poke(GPUNVME_REG_VS, 0x10400, 4);
	poke(GPUNVME_REG_CC, GPUNVME_CC_EN, 4);
	poke(GPUNVME_REG_CSTS, GPUNVME_CSTS_RDY, 4);
	assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, share, &silent, &port), 0);
	assert_int_equal(command_register(), PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE);
	virtual_begin(play_left, left);
	ret = gnv_dev_create(port, &opts, 1, &dev);
	virtual_end();
	return ret;
}

/*
 * A device left enabled by a program that is gone, as are its queues: as long as it does not stop, they may be anywhere in the address
 * space, which may be that of another device, and it must not reach that. It is stopped or reset, and then may make DMA.
 */
static void test_found_enabled(void **state)
{
	static const struct {
		bool obeys, no_reset;
		unsigned slot;
		int ret; /* -EIO: it came to be enabled again */
	} cases[] = { { true, true, 0, -EIO }, { false, false, 0, -EIO }, { false, true, 1, -EIO }, { false, true, 0, -ETIMEDOUT } };
	const uint16_t still = PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE, master = still | PCI_COMMAND_MASTER;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct left left = { .obeys = cases[i / 2].obeys, .enabled = true };
		const uint16_t none = 0;
		struct gnv_port *first = NULL;

		fake_kernel_reset();
		fake_kernel.no_reset = cases[i / 2].no_reset;
		fake_kernel.slot = cases[i / 2].slot;
		if (i & 1) {
			assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &first), 0);
			assert_int_equal(pwrite(fake_kernel.device, &none, 2, FAKE_CONFIG + PCI_COMMAND), 2); /* the other has its own */
		}
		assert_int_equal(open_left(&left, first), cases[i / 2].ret);
		assert_int_equal(left.at_end, still);
		assert_int_equal(left.at_start, cases[i / 2].ret == -EIO ? master : 0);
		if (!left.obeys)
			assert_int_equal(fake_kernel.command_at_reset, cases[i / 2].ret == -EIO ? still : FAKE_NO_RESET);
		if (cases[i / 2].ret != -EIO)
			assert_int_equal(command_register(), still);
		if (first)
			first->ops->close(first);
	}
}

static char last_line[256];

static void keep_line(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	snprintf(last_line, sizeof(last_line), "%s", text);
}

/*
 * A device that the kernel cannot reset by its function: its slot is, if nothing else is in it; else only the end of its DMA is left.
 */
static void test_slot(void **state)
{
	static const struct {
		unsigned slot;
		const char *name;
		int reset;
	} cases[] = { { 1, "slot", 0 }, { 2, "none", -EOPNOTSUPP }, { 0, "none", -EOPNOTSUPP } };
	const struct gnv_log kept = { .fn = keep_line };
	const struct fake_call *call;
	struct gnv_port *port;
	uint32_t arg[3];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_kernel_reset();
		fake_kernel.no_reset = true;
		fake_kernel.slot = cases[i].slot;
		assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), 0);
		assert_string_equal(port->reset_name, cases[i].name);
		assert_int_equal(port->ops->allow_dma(port), 0);
		assert_int_equal(port->ops->reset(port), cases[i].reset);
		call = fake_kernel_call(VFIO_DEVICE_PCI_HOT_RESET, 0);
		assert_int_equal(!call, cases[i].reset != 0);
		if (call) {
			memcpy(arg, call->arg, sizeof(arg));
			assert_int_equal(arg[0], sizeof(arg));
			assert_int_equal(arg[1] | arg[2], 0); /* no flags, no groups */
		} else {
			assert_non_null(strstr(gpunvme_errmsg(), "not alone in its slot"));
		}
		assert_int_equal(port->ops->halt(port), 0);
		assert_int_equal(!fake_kernel_call(VFIO_DEVICE_PCI_HOT_RESET, 1), cases[i].reset != 0);
		assert_int_equal(!(command_register() & PCI_COMMAND_MASTER), cases[i].reset != 0);
		assert_null(fake_kernel_call(VFIO_DEVICE_RESET, 0));
		port->ops->close(port);
	}
	fake_kernel_reset();
	fake_kernel.no_reset = true;
	fake_kernel.slot = 1;
	assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &kept, &port), 0);
	assert_int_equal(port->ops->allow_dma(port), 0);
	fake_kernel.fail_request = VFIO_DEVICE_PCI_HOT_RESET;
	fake_kernel.fail_errno = EAGAIN;
	assert_int_equal(port->ops->reset(port), -EIO);
	assert_int_equal(port->ops->halt(port), 0);
	assert_false(command_register() & PCI_COMMAND_MASTER);
	assert_string_equal(last_line, "0000:04:00.0: its reset failed, so its bus mastering was switched off");
	port->ops->close(port);
}

/* As the owner of a controller: it stops it while it has registers. */
static void stop_it(void *ctx, enum gnv_port_loss loss, const char *why)
{
	char *bar = ((struct gnv_port *)ctx)->bar0->cpu;

	assert_true(why[0]);
	if (loss == GNV_PORT_LOST)
		gnv_mmio_write32(bar + GPUNVME_REG_CC, 0);
	else
		assert_int_equal(gnv_mmio_read32(bar + GPUNVME_REG_CC), ~0u);
}

/*
 * A device that the kernel wants back. The removal has the device's lock, so no reset succeeds: its owner stops the controller, and
 * its bus mastering ends. What ended its DMA is said, too.
 */
static void test_given_back_how(void **state)
{
	static const struct {
		bool no_reset;
		unsigned slot;
		bool gone;
		const char *how;
	} cases[] = { { false, 1, false, "by the end of its bus mastering," },
		      { true, 1, false, "by the end of its bus mastering," },
		      { true, 2, false, "by the end of its bus mastering, for want of a reset," },
		      { false, 1, true, "by its removal," } };
	const struct gnv_log kept = { .fn = keep_line };
	struct gnv_port *port;
	uint32_t cc;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct gnv_identity nobody = { .nth = NULL };
		char text[GNV_USERS_TEXT];

		fake_kernel_reset();
		fake_kernel.no_reset = cases[i].no_reset;
		fake_kernel.slot = cases[i].slot;
		assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &kept, &port), 0);
		assert_int_equal(gnv_users_hold_paths("/nowhere", "/nowhere", &nobody, text, &port->paths), 0);
		assert_int_equal(port->ops->allow_dma(port), 0);
		port->ops->watch(port, stop_it, port);
		poke(GPUNVME_REG_CC, GPUNVME_CC_EN, 4);
		if (cases[i].gone)
			poke(FAKE_CONFIG + PCI_COMMAND, 0xffff, 2);
		ring(fake_kernel.req);
		wait_until(!__atomic_load_n(&port->paths, __ATOMIC_ACQUIRE));
		port->ops->close(port); /* with the thread that spoke */
		if (!strstr(last_line, cases[i].how))
			fail_msg("%s: %s", cases[i].how, last_line);
		assert_int_equal(pread(fake_kernel.device, &cc, 4, GPUNVME_REG_CC), 4);
		assert_int_equal(cc, 0);
		assert_int_equal(fake_kernel.command_at_reset, FAKE_NO_RESET);
		assert_int_equal(command_register() & PCI_COMMAND_MASTER, cases[i].gone ? PCI_COMMAND_MASTER : 0);
	}
}

/* Interrupts that are not isolated: the sentence names the switch and what it gives up. */
static void test_not_isolated(void **state)
{
	struct gnv_port *port;

	(void)state;
	fake_kernel.fail_request = GNV_VFIO_BIND_IOMMUFD;
	fake_kernel.fail_errno = EPERM;
	assert_int_equal(gnv_port_vfio_open(&gnv_way_iommufd, &pci, NULL, &silent, &port), -EPERM);
	assert_non_null(strstr(gpunvme_errmsg(), "any interrupt of this machine"));
	assert_non_null(strstr(gpunvme_errmsg(), "iommufd/parameters/allow_unsafe_interrupts"));
}

static void count_line(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)level;
	(void)text;
	__atomic_fetch_add((unsigned *)ctx, 1, __ATOMIC_RELAXED);
}

struct lender {
	struct gpunvme_bar *bar;
	struct gpunvme_mem *mem;
	struct gnv_mem_watch watch;
	unsigned lost, lines;
};

static void mem_lost(struct gnv_mem_watch *watch)
{
	__atomic_fetch_add(&gnv_container_of(watch, struct lender, watch)->lost, 1, __ATOMIC_RELAXED);
}

static void lend(struct lender *l)
{
	struct gnv_log log = { .fn = count_line, .ctx = &l->lines };

	*l = (struct lender){ .watch.lost = mem_lost };
	assert_int_equal(gnv_bar_dev_open(gnv_way_iommufd.take, &pci, &log, &l->bar), 0);
	assert_int_equal(gnv_mem_bar(l->bar, NULL, 0, 0, 4096, &l->mem), 0);
	pthread_mutex_lock(&l->mem->lock);
	gnv_mem_watch(l->mem, &l->watch);
	pthread_mutex_unlock(&l->mem->lock);
}

static void take_back(struct lender *l)
{
	pthread_mutex_lock(&l->mem->lock);
	gnv_mem_unwatch(l->mem, &l->watch);
	pthread_mutex_unlock(&l->mem->lock);
	assert_int_equal(gpunvme_mem_free(l->mem), 0);
}

/* Success is said of a reset only, and a device that has none is left as it is. */
static void test_bar_reset(void **state)
{
	struct lender l;

	(void)state;
	lend(&l);
	assert_int_equal(gpunvme_bar_reset(l.bar), 0);
	assert_int_equal(l.lost, 1);
	fake_kernel.fail_request = VFIO_DEVICE_RESET;
	fake_kernel.fail_errno = EAGAIN;
	assert_int_equal(gpunvme_bar_reset(l.bar), -EIO);
	assert_int_equal(l.lost, 2);
	assert_int_equal(gpunvme_bar_close(l.bar), 0);
	assert_int_equal(gpunvme_bar_close(NULL), 0);
	take_back(&l);

	fake_kernel_reset();
	fake_kernel.no_reset = true;
	lend(&l);
	assert_int_equal(gpunvme_bar_reset(l.bar), -EOPNOTSUPP);
	assert_int_equal(l.lost, 0);
	assert_true(command_register() & PCI_COMMAND_MASTER);
	gpunvme_bar_close(l.bar);
	take_back(&l);
}

/* Memory keeps a closed device alive, but not its user's log. */
static void test_silent_after_close(void **state)
{
	struct lender l;

	(void)state;
	lend(&l);
	gpunvme_bar_close(l.bar);
	ring(fake_kernel.err);
	becomes(&l.lost, 1);
	ring(fake_kernel.req);
	becomes(&l.lost, 2);
	take_back(&l); /* waits for the watcher */
	assert_int_equal(l.lines, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_alarms, setup),
		cmocka_unit_test_setup(test_stop, setup),
		cmocka_unit_test_setup(test_refused, setup),
		cmocka_unit_test_setup(test_device_goes, setup),
		cmocka_unit_test_setup(test_asked_late, setup),
		cmocka_unit_test_setup(test_paths_left, setup),
		cmocka_unit_test_setup(test_export_after_error, setup),
		cmocka_unit_test_setup(test_takes_foreign, setup),
		cmocka_unit_test_setup(test_found_enabled, setup),
		cmocka_unit_test_setup(test_slot, setup),
		cmocka_unit_test_setup(test_not_isolated, setup),
		cmocka_unit_test_setup(test_bar_reset, setup),
		cmocka_unit_test_setup(test_given_back_how, setup),
		cmocka_unit_test_setup(test_silent_after_close, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
