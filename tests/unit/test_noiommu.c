/* SPDX-License-Identifier: MIT */
/*
 * A device without IOMMU over a kernel that is emulated (fake_kernel.h), as no kernel that has this was at hand: layout and order
 * of the calls, physical addresses piece by piece, what is refused, and that every failure leaves nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "mocks/kernel/fake_kernel.h"
#include "mem/space_vfio.h"
#include "mem/arena.h"
#include "os/vfio/iommufd.h"
#include "os/vfio/type1.h"
#include "os/vfio/uapi/iommufd.h"
#include "os/vfio/uapi/vfio.h"
#include "port/refusals.h"
#include "port/vfio_device.h"
#include "util/bits.h"

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
	assert_int_equal(command, PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE);
	assert_int_equal(port->ops->allow_dma(port), 0);
	assert_int_equal(pread(fake_kernel.device, &command, 2, FAKE_CONFIG + PCI_COMMAND), 2);
	assert_int_equal(command, PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE | PCI_COMMAND_MASTER);
	assert_string_equal(port->ops->name, "vfio-noiommu");
	assert_true(port->space->one_piece && port->space->bare);
	assert_true(fake_kernel.req >= 0 && fake_kernel.err >= 0);
}

/* Until there are no more. Return: how many bytes. */
static uint64_t take_all(struct gnv_space *space)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	uint64_t sum = 0, iova;

	for (size_t len = 1ull << 42; len >= 1 << 20; len /= 2)
		while (!gnv_space_vfio_take(sv, len, &iova)) {
			assert_true(iova >= PAGE && iova < 1ull << 48 && len <= (1ull << 48) - iova);
			sum += len;
		}
	return sum;
}

/*
 * Whatever the IOMMU can do, and wherever it begins: drives exist that have only 48 bits of an address. Rings, lists, mappings and
 * memory for a drive to work in have theirs from here, by IOMMUFD and by type 1.
 */
static void test_48_bits(void **state)
{
	static const unsigned first[] = { 0, 1, 16, 31 }; /* the last begins at 2^48 - 2^43 */
	static int (*const create[])(const struct gnv_vfio *, struct gnv_space **) = { gnv_space_iommufd_create, gnv_space_type1_create };
	struct gnv_vfio vfio = { .bdf = "0000:04:00.0", .as = { .ioas = FAKE_IOAS } };
	struct gnv_space *space;

	(void)state;
	fake_kernel_reset();
	for (size_t way = 0; way < 2; way++) {
		vfio.as.fd = open(way ? GNV_TYPE1_NODE : GNV_IOMMUFD_NODE, O_RDWR);
		for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
			fake_kernel.first_range = first[i];
			assert_int_equal(create[way](&vfio, &space), 0);
			assert_true(take_all(space) > (uint64_t)(32 - first[i]) * 7 << 40);
			gnv_space_put(space);
		}
		fake_kernel.first_range = 32;
		assert_int_equal(create[way](&vfio, &space), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), "no address below 2^48"));
		close(vfio.as.fd);
	}
}

/* Where nothing translates, memory has the address that it has; and so has memory in a drive, as its BAR says. */
static void test_48_bits_of_others(void **state)
{
	static const struct {
		uint64_t at;
		bool good;
	} cases[] = { { (1ull << 48) - BYTES, true }, { (1ull << 48) - PAGE, false }, { 1ull << 48, false }, { 1ull << 51, false } };
	const struct gnv_port_cmb where = { 0, 0, BYTES };
	struct gpunvme_mem *cmb;
	uint64_t iova;

	(void)state;
	_Static_assert(FAKE_BAR0_BYTES <= BYTES, "");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint64_t bar = cases[i].good ? cases[i].at + BYTES - FAKE_BAR0_BYTES : cases[i].at;
		const uint32_t words[] = { (uint32_t)bar | PCI_BASE_ADDRESS_MEM_TYPE_64, (uint32_t)(bar >> 32) };

		fake_kernel.phys = cases[i].at;
		fake_kernel.piece = i ? PAGE : 0;
		assert_int_equal(port->space->ops->map(port->space, mem, &iova), cases[i].good ? 0 : -EOPNOTSUPP);
		if (cases[i].good)
			assert_int_equal(port->space->ops->unmap(port->space, iova, BYTES), 0);
		else
			assert_non_null(strstr(gpunvme_errmsg(), "48 bits of an address"));
		assert_int_equal(fake_kernel.maps, 0);
		assert_int_equal(pwrite(fake_kernel.device, words, 8, FAKE_CONFIG + PCI_BASE_ADDRESS_0), 8);
		assert_int_equal(port->ops->cmb(port, &where, &cmb, &iova), cases[i].good ? 0 : -EOPNOTSUPP);
		if (cases[i].good)
			gnv_mem_release(cmb);
		else
			assert_non_null(strstr(gpunvme_errmsg(), "48 bits of an address"));
	}
}

static uint64_t free_addresses(const struct gnv_iova *iova)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < iova->count; i++)
		sum += iova->free[i].last - iova->free[i].start + 1;
	return sum;
}

/* Memory in a drive that says to have more than its BAR takes of the addresses, which others may share, no more than the BAR has. */
static void test_memory_inside(void **state)
{
	const struct gnv_port_cmb where = { 0, PAGE, 1ull << 50 };
	const struct gnv_iova *iova = &gnv_space_vfio_of(port->space)->iova;
	const uint64_t bar = gnv_align_up(iova->free[iova->count - 1].start, PAGE) + PAGE, before = free_addresses(iova);
	const uint32_t words[] = { (uint32_t)bar | PCI_BASE_ADDRESS_MEM_TYPE_64, (uint32_t)(bar >> 32) };
	struct gpunvme_mem *cmb;
	uint64_t address;

	(void)state;
	assert_int_equal(pwrite(fake_kernel.device, words, 8, FAKE_CONFIG + PCI_BASE_ADDRESS_0), 8);
	port->space->bare = false; /* where nothing translates there is nothing to share */
	assert_int_equal(port->ops->cmb(port, &where, &cmb, &address), 0);
	port->space->bare = true;
	assert_int_equal(address, bar + PAGE);
	assert_int_equal(cmb->len, FAKE_BAR0_BYTES - PAGE);
	assert_int_equal(before - free_addresses(iova), cmb->len);
	gnv_mem_release(cmb);
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

/* What the kernel does not let go of today it may let go of tomorrow. */
static void test_unmap_again(void **state)
{
	uint64_t iova;

	(void)state;
	assert_int_equal(port->space->ops->map(port->space, mem, &iova), 0);
	fake_kernel.fail_request = GNV_IOMMUFD_UNMAP;
	fake_kernel.fail_errno = EBUSY;
	assert_true(port->space->ops->unmap(port->space, iova, BYTES) < 0);
	assert_int_equal(fake_kernel.maps, 1);
	fake_kernel.fail_request = 0;
	assert_int_equal(port->space->ops->unmap(port->space, iova, BYTES), 0);
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
		      { ENOENT, -ENOENT, "does not report" } };

	(void)state;
	fake_kernel.fail_request = GNV_IOMMUFD_NOIOMMU_GET_PA;
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		fake_kernel.fail_errno = table[i].err;
		refused(table[i].ret, table[i].says);
	}
	fake_kernel.fail_request = 0;
	fake_kernel.piece = 2 * BYTES;
	refused(-EPROTO, "bytes, but");
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
		TEST(test_open),	   TEST(test_48_bits),	       TEST(test_addresses),
		TEST(test_memory_inside),  TEST(test_48_bits_of_others),
		TEST(test_unmap_again),	   TEST(test_pieces),	       TEST(test_kernel_refuses),
		TEST(test_arena),	   TEST(test_failing_open),    TEST(test_close_with_mapping),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
