/* SPDX-License-Identifier: MIT */
/* What P2PDMA says of two devices, over made-up machines: the rules of calc_map_type_and_dist(), Linux 7.3 drivers/pci/p2pdma.c. */
#include <errno.h>

#include "common/gpu_tree.h"
#include "machine/p2pdma.h"

#define NVME 0x010802u
#define VGA 0x030000u
#define HOST 0x060000u
#define GPU "0000:03:00.0"
#define DRIVE "0000:05:00.0"
#define FAR_DRIVE "0000:85:00.0"
#define VMD_DRIVE "10000:e1:00.0"

static char fine[160];

static void put_cpu(unsigned vendor, unsigned family)
{
	char text[100];

	snprintf(text, sizeof(text), "cpu:type:x86,ven%04Xfam%04Xmod0021:feature:,0000,0001\n", vendor, family);
	put(text, "devices/system/cpu/modalias");
}

/* The first device of a root bus, by which the kernel knows its host bridge. */
static void put_host(const char *place, unsigned vendor, unsigned device)
{
	char text[16];

	put_pci(place, HOST, vendor, 0);
	snprintf(text, sizeof(text), "0x%04x\n", device);
	put(text, "devices/%s/device", place);
}

static void put_devices(void)
{
	put_pci("pci0000:00/0000:00:01.0", 0x060400, 0x8086, 0);
	put_pci("pci0000:00/0000:00:01.0/" GPU, VGA, 0x1002, 0);
	put_pci("pci0000:00/0000:00:02.0/" DRIVE, NVME, 0x144d, 0);
	put_pci("pci0000:80/0000:80:02.0/" FAR_DRIVE, NVME, 0x144d, 1);
	put_pci("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:02.0/" VMD_DRIVE, NVME, 0x144d, 0);
}

static int ask_redirected(const char *drive, int redirect)
{
	struct gpunvme_pci_path path = { .size = sizeof(path) };

	fine[0] = '\0';
	assert_int_equal(gnv_topology_path(root, GPU, drive, &path), 0);
	if (redirect != 2)
		path = (struct gpunvme_pci_path){ .distance = GPUNVME_SAME_SWITCH, .redirect = redirect };
	return gnv_p2pdma_ask(root, GPU, drive, &path, fine, sizeof(fine));
}

static int ask(const char *drive)
{
	return ask_redirected(drive, 2);
}

static void test_zen(void **state)
{
	(void)state;
	put_devices();
	put_cpu(2, 0x17); /* no host bridge is looked at */
	assert_int_equal(ask(DRIVE), 0);
	assert_non_null(strstr(fine, "through the host bridge"));
	assert_non_null(strstr(fine, "family 17h"));
	assert_int_equal(ask(FAR_DRIVE), 0);
	assert_int_equal(ask(VMD_DRIVE), 0);
	put_cpu(2, 0x16); /* older */
	put_host("pci0000:00/0000:00:00.0", 0x1022, 0x1566);
	assert_int_equal(ask(DRIVE), -EXDEV);
	put_cpu(9, 0x18); /* Hygon's are no AMD to the kernel */
	assert_int_equal(ask(DRIVE), -EXDEV);
	put_cpu(0, 6);
	assert_int_equal(ask(DRIVE), -EXDEV);
	assert_non_null(strstr(gpunvme_errmsg(), "1022:1566"));
	assert_non_null(strstr(gpunvme_errmsg(), ". Use slots below one switch"));
}

static void test_switch(void **state)
{
	(void)state;
	put_devices();
	put_cpu(0, 6);
	put_host("pci0000:00/0000:00:00.0", 0x8086, 0x4660);
	assert_int_equal(ask_redirected(DRIVE, 0), 0);
	assert_non_null(strstr(fine, "within the switch"));
	assert_int_equal(ask_redirected(DRIVE, 1), -EXDEV); /* up to a host bridge that is not known */
	assert_int_equal(ask_redirected(DRIVE, -1), -ENOENT);
	assert_non_null(strstr(gpunvme_errmsg(), "only root"));
	put_cpu(2, 0x19);
	assert_int_equal(ask_redirected(DRIVE, -1), 0);
	assert_int_equal(ask_redirected(DRIVE, 1), 0);
	assert_non_null(strstr(fine, "family 19h"));
}

/* Some count only where both devices are below the same one, others always, and both have to be known. */
static void test_list(void **state)
{
	(void)state;
	put_devices();
	put_cpu(0, 6);
	put_host("pci0000:00/0000:00:00.0", 0x8086, 0x2f00);
	assert_int_equal(ask(DRIVE), 0);
	assert_non_null(strstr(fine, "8086:2f00"));
	put_host("pci0000:80/0000:80:00.0", 0x8086, 0x09a2);
	assert_int_equal(ask(FAR_DRIVE), -EXDEV);
	assert_non_null(strstr(gpunvme_errmsg(), "8086:2f00"));
	put("0x2020\n", "devices/pci0000:00/0000:00:00.0/device");
	assert_int_equal(ask(FAR_DRIVE), 0);
	put("0x1234\n", "devices/pci0000:80/0000:80:00.0/device");
	assert_int_equal(ask(FAR_DRIVE), -EXDEV);
	assert_non_null(strstr(gpunvme_errmsg(), "8086:1234"));
	put("0x1ae0\n", "devices/pci0000:80/0000:80:00.0/vendor"); /* any of Google's */
	assert_int_equal(ask(FAR_DRIVE), 0);
	put("cpu:type:aarch64:feature:,0000,0001\n", "devices/system/cpu/modalias"); /* Grace */
	put("0x10de\n", "devices/pci0000:00/0000:00:00.0/vendor");
	put("0x2f95\n", "devices/pci0000:00/0000:00:00.0/device");
	assert_int_equal(ask(DRIVE), 0);
	assert_non_null(strstr(fine, "10de:2f95"));
}

/* The host bridge of a drive below VMD is VMD's; and where nothing is shown nothing is said. */
static void test_unknown(void **state)
{
	(void)state;
	put_devices();
	assert_int_equal(ask(DRIVE), -ENOENT);
	assert_non_null(strstr(gpunvme_errmsg(), "which processor"));
	put_cpu(0, 6);
	put_host("pci0000:00/0000:00:00.0", 0x8086, 0x09a2);
	assert_int_equal(ask(VMD_DRIVE), -ENOENT);
	assert_non_null(strstr(gpunvme_errmsg(), VMD_DRIVE));
	put_host("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:00.0", 0x8086, 0x09ab);
	assert_int_equal(ask(VMD_DRIVE), -EXDEV);
	assert_non_null(strstr(gpunvme_errmsg(), "8086:09ab"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_make, tree_remove)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_zen), TEST(test_switch), TEST(test_list), TEST(test_unknown) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
