/* SPDX-License-Identifier: MIT */
/*
 * A device without IOMMU over a kernel that is played (fake_kernel.h), as no kernel that has this was at hand: layout and order of the
 * calls, physical addresses piece by piece, what is refused, and that every failure leaves nothing behind.
 */
#include <errno.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "fake_kernel.h"
#include "mem/arena.h"
#include "os/uapi/iommufd.h"
#include "os/uapi/vfio.h"
#include "port/vfio_checks.h"
#include "port/vfio_device.h"

#define PAGE 4096u
#define BYTES (8 * PAGE)

static const struct gnv_log silent;
static const struct gnv_pci pci = { .bdf = "0000:04:00.0", .cdev = FAKE_NODE, .class_code = GNV_CLASS_NVME, .driver = "vfio-pci" };
static struct gnv_port *port;
static struct gpunvme_mem *mem;

static int setup(void **state)
{
	(void)state;
	fake_kernel_reset();
	assert_int_equal(gnv_port_vfio_open(&gnv_way_noiommu, &pci, NULL, &silent, &port), 0);
	assert_int_equal(gnv_mem_host_alloc(BYTES, 0, &silent, &mem), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gnv_mem_release(mem);
	port->ops->close(port);
	return 0;
}

static uint32_t word(const struct fake_call *call, unsigned at)
{
	uint32_t value;

	memcpy(&value, call->arg + at, sizeof(value));
	return value;
}

static uint64_t quad(const struct fake_call *call, unsigned at)
{
	uint64_t value;

	memcpy(&value, call->arg + at, sizeof(value));
	return value;
}

static void test_open(void **state)
{
	static const unsigned long order[] = { GNV_VFIO_BIND_IOMMUFD, GNV_IOMMUFD_IOAS_ALLOC, GNV_VFIO_ATTACH_PT,
					       VFIO_DEVICE_GET_INFO, GNV_IOMMUFD_IOVA_RANGES, VFIO_DEVICE_SET_IRQS };
	const struct fake_call *last = NULL, *call;
	uint16_t command;

	(void)state;
	for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++, last = call) {
		call = fake_kernel_call(order[i], 0);
		assert_non_null(call);
		assert_true(call > last);
	}
	assert_int_equal(word(fake_kernel_call(GNV_VFIO_ATTACH_PT, 0), 8), FAKE_IOAS);
	assert_int_equal(pread(fake_kernel.device, &command, 2, FAKE_CONFIG + PCI_COMMAND), 2);
	assert_int_equal(command, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	assert_string_equal(port->ops->name, "vfio-noiommu");
	assert_true(port->space->one_piece);
	assert_true(fake_kernel.req >= 0 && fake_kernel.err >= 0);
}

/* The kernel may tell page by page: one address is made of them, and every call asks for the rest. */
static void test_addresses(void **state)
{
	const struct fake_call *call;
	uint64_t iova, label;

	(void)state;
	fake_kernel.piece = PAGE;
	assert_int_equal(port->space->ops->map(port->space, mem, &iova), 0);
	assert_int_equal(iova, fake_kernel.phys);
	label = quad(fake_kernel_call(GNV_IOMMUFD_MAP, 0), 32);
	assert_int_not_equal(label, iova);
	for (unsigned i = 0; i < BYTES / PAGE; i++) {
		call = fake_kernel_call(GNV_IOMMUFD_NOIOMMU_GET_PA, i);
		assert_non_null(call);
		assert_int_equal(word(call, 0), 40);
		assert_int_equal(word(call, 4), 0);
		assert_int_equal(word(call, 8), FAKE_IOAS);
		assert_int_equal(word(call, 12), 0);
		assert_int_equal(quad(call, 16), label + i * PAGE);
		assert_int_equal(quad(call, 24), BYTES - i * PAGE);
	}
	assert_null(fake_kernel_call(GNV_IOMMUFD_NOIOMMU_GET_PA, BYTES / PAGE));
	assert_int_equal(port->space->ops->unmap(port->space, iova, BYTES / 2), -ENOENT);
	assert_int_equal(port->space->ops->unmap(port->space, iova, BYTES), 0);
	call = fake_kernel_call(GNV_IOMMUFD_UNMAP, 0);
	assert_int_equal(quad(call, 8), label);
	assert_int_equal(quad(call, 16), BYTES);
	assert_int_equal(port->space->ops->unmap(port->space, iova, BYTES), -ENOENT);
	assert_int_equal(fake_kernel.maps, 0);
}

static void refused(int ret, const char *says)
{
	uint64_t iova = 7;

	assert_int_equal(port->space->ops->map(port->space, mem, &iova), ret);
	assert_non_null(strstr(gpunvme_errmsg(), says));
	assert_int_equal(iova, 7);
	assert_int_equal(fake_kernel.maps, 0);
}

/* Memory in pieces cannot be used, whether the kernel tells of it at once or page by page. */
static void test_pieces(void **state)
{
	(void)state;
	for (size_t hole = PAGE; hole < BYTES; hole += PAGE) {
		fake_kernel.calls = 0;
		fake_kernel.hole_at = hole;
		fake_kernel.piece = hole & PAGE ? PAGE : 0;
		refused(-EOPNOTSUPP, "GPUNVME_MEM_HUGE");
	}
}

static void test_kernel_refuses(void **state)
{
	static const struct {
		int err, ret;
		const char *says;
	} table[] = { { EPERM, -EPERM, "CAP_SYS_RAWIO" },
		      { ENOTTY, -EOPNOTSUPP, "7.3" },
		      { EOPNOTSUPP, -EOPNOTSUPP, "7.3" },
		      { EINVAL, -ENODEV, "revoked" },
		      { ENOENT, -ENOENT, "does not tell" } };

	(void)state;
	fake_kernel.fail_request = GNV_IOMMUFD_NOIOMMU_GET_PA;
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		fake_kernel.fail_errno = table[i].err;
		refused(table[i].ret, table[i].says);
	}
	fake_kernel.fail_request = 0;
	fake_kernel.piece = 2 * BYTES;
	refused(-EPROTO, "bytes where");
}

/* Rings and tables come in chunks of 2 MiB, each one piece. */
static void test_arena(void **state)
{
	struct gnv_arena *arena;
	struct gnv_block block[3];

	(void)state;
	assert_int_equal(gnv_arena_create(port->space, PAGE, NULL, &silent, &arena), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(gnv_arena_alloc(arena, 3 * PAGE, NULL, &block[i]), 0);
		assert_int_equal(block[i].iova, fake_kernel.phys + (uint64_t)i * 3 * PAGE);
	}
	for (unsigned i = 0; i < 3; i++)
		gnv_arena_free(arena, &block[i]);
	gnv_arena_destroy(arena);
	assert_int_equal(fake_kernel.maps, 0);
}

/* Every call of opening fails once: an error each time, and no descriptor stays. */
static void test_failing_open(void **state)
{
	struct gnv_port *made;
	unsigned calls, before, tolerated = 0;

	(void)state;
	calls = fake_kernel.calls;
	for (unsigned n = 1; n <= calls; n++) {
		int ret;

		fake_kernel_reset();
		before = fake_open_files();
		fake_kernel.fail_at = n;
		fake_kernel.fail_errno = EIO;
		ret = gnv_port_vfio_open(&gnv_way_noiommu, &pci, NULL, &silent, &made);
		if (!ret) { /* an absent region or alarm is none */
			tolerated++;
			made->ops->close(made);
		}
		if (fake_kernel.req >= 0)
			close(fake_kernel.req);
		if (fake_kernel.err >= 0)
			close(fake_kernel.err);
		fake_kernel.req = fake_kernel.err = -1;
		assert_int_equal(fake_open_files(), before);
	}
	assert_true(tolerated < calls / 2 + 2);
	assert_int_equal(calls - tolerated >= 7, 1);
}

/* Memory that is still mapped when the port goes is forgotten with it. */
static void test_close_with_mapping(void **state)
{
	struct gnv_port *made;
	uint64_t iova;

	(void)state;
	assert_int_equal(gnv_port_vfio_open(&gnv_way_noiommu, &pci, NULL, &silent, &made), 0);
	assert_int_equal(made->space->ops->map(made->space, mem, &iova), 0);
	made->ops->close(made);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_open),	TEST(test_addresses),	TEST(test_pieces),	       TEST(test_kernel_refuses),
		TEST(test_arena),	TEST(test_failing_open), TEST(test_close_with_mapping),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
