/* SPDX-License-Identifier: MIT */
/* What is read from sysfs, and the predicates of opening through VFIO, over a made-up tree. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/tree.h"
#include "os/sys.h"
#include "os/sysfs.h"
#include "port/vfio_checks.h"
#include "port/vfio_device.h"

static void put_device(const char *bdf, const char *class_code, const char *driver, int group)
{
	char text[64];

	put(class_code, "bus/pci/devices/%s/class", bdf);
	put("0x1b36\n", "bus/pci/devices/%s/vendor", bdf);
	put("0x0010\n", "bus/pci/devices/%s/device", bdf);
	put("0\n", "bus/pci/devices/%s/numa_node", bdf);
	put("8.0 GT/s PCIe\n", "bus/pci/devices/%s/current_link_speed", bdf);
	put("4\n", "bus/pci/devices/%s/current_link_width", bdf);
	if (driver) {
		snprintf(text, sizeof(text), ">../../../bus/pci/drivers/%s", driver);
		put(text, "bus/pci/devices/%s/driver", bdf);
	}
	if (group < 0)
		return;
	snprintf(text, sizeof(text), ">../../../../groups/%d", group);
	put(text, "bus/pci/devices/%s/iommu_group", bdf);
	put("", "groups/%d/devices/%s", group, bdf);
}

static int make_tree(void **state)
{
	assert_int_equal(tree_make(state), 0);
	put_device("0000:01:00.0", "0x010802\n", "vfio-pci", 5);
	put("", "bus/pci/devices/0000:01:00.0/vfio-dev/vfio3/dev");
	put("0x00000000febf0000 0x00000000febf3fff 0x0000000000140204\n0x0 0x0 0x0\n"
	    "0x000000000000c000 0x000000000000c01f 0x0000000000040101\n",
	    "bus/pci/devices/0000:01:00.0/resource");
	put_device("0000:02:00.0", "0x010802\n", "nvme", 6);
	put("QEMU NVMe Ctrl   \n", "bus/pci/devices/0000:02:00.0/nvme/nvme1/model");
	put("", "bus/pci/devices/0000:02:00.0/nvme/nvme1/nvme0c1n1/size");
	put("", "bus/pci/devices/0000:02:00.0/nvme/nvme1/nvme1n2/size");
	put("16\n", "class/block/nvme1n2/size");
	put_device("0000:03:00.0", "0x010802\n", "vfio-pci", 7);
	put_device("0000:03:00.1", "0x020000\n", "e1000e", 7);
	put_device("0000:00:1c.0", "0x060400\n", "pcieport", 7);
	put_device("0000:04:00.0", "0x010802\n", NULL, -1);
	return 0;
}

static void test_address(void **state)
{
	static const char *const bad[] = { "", "1:2:3", "0000:01:00.8", "0000:01:20.0", "0000:01:00", "0000:01:00.0x", "-1:00.0",
					   "00000:01:00.0", " 01:00.0", "0000:01:00.0 " };
	char bdf[GNV_BDF_BYTES];

	(void)state;
	assert_int_equal(gnv_pci_parse("01:00.0", bdf), 0);
	assert_string_equal(bdf, "0000:01:00.0");
	assert_int_equal(gnv_pci_parse("00aB:Cd:1f.7", bdf), 0);
	assert_string_equal(bdf, "00ab:cd:1f.7");
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(gnv_pci_parse(bad[i], bdf), -EINVAL);
}

static void test_device(void **state)
{
	struct gnv_pci pci;

	(void)state;
	assert_int_equal(gnv_sysfs_pci(root, "0000:09:00.0", &pci), -ENODEV);
	assert_int_equal(gnv_sysfs_pci(root, "0000:01:00.0", &pci), 0);
	assert_int_equal(pci.class_code, GNV_CLASS_NVME);
	assert_int_equal(pci.vendor, 0x1b36);
	assert_int_equal(pci.group, 5);
	assert_int_equal(pci.numa, 0);
	assert_int_equal(pci.link_width, 4);
	assert_string_equal(pci.link_speed, "8.0 GT/s PCIe");
	assert_string_equal(pci.driver, "vfio-pci");
	assert_string_equal(pci.cdev, "vfio3");
	assert_int_equal(gnv_sysfs_nth(root, GNV_CLASS_NVME, 3, &pci), 0);
	assert_string_equal(pci.bdf, "0000:04:00.0");
	assert_int_equal(pci.group, -1);
	assert_string_equal(pci.driver, "");
	assert_int_equal(gnv_sysfs_nth(root, GNV_CLASS_NVME, 4, &pci), -ENOENT);
}

static void test_namespaces(void **state)
{
	struct gnv_pci pci;
	char text[64];

	(void)state;
	assert_int_equal(gnv_sysfs_pci(root, "0000:02:00.0", &pci), 0);
	assert_int_equal(gnv_sysfs_namespace(root, &pci, 0, text, sizeof(text)), 0);
	assert_string_equal(text, "nvme0n1");
	assert_int_equal(gnv_sysfs_namespace(root, &pci, 1, text, sizeof(text)), 0);
	assert_string_equal(text, "nvme1n2");
	assert_int_equal(gnv_sysfs_block_size(root, text), 8192);
	assert_int_equal(gnv_sysfs_namespace(root, &pci, 2, text, sizeof(text)), -ENOENT);
	assert_int_equal(gnv_sysfs_nvme_text(root, &pci, "model", text, sizeof(text)), 0);
	assert_string_equal(text, "QEMU NVMe Ctrl");
}

static void test_windows(void **state)
{
	struct gnv_range range[4];

	(void)state;
	assert_int_equal(gnv_sysfs_mmio(root, range, 4), 1);
	assert_int_equal(range[0].start, 0xfebf0000);
	assert_int_equal(range[0].last, 0xfebf3fff);
}

/* Each device of the tree fails one predicate, and the sentence says what to do. */
static void test_checks(void **state)
{
	static const struct {
		const char *bdf;
		int ret;
		const char *says;
	} table[] = { { "0000:01:00.0", 0, NULL },
		      { "0000:02:00.0", -EBUSY, "gpunvme bind 0000:02:00.0" },
		      { "0000:03:00.0", -EPERM, "0000:03:00.1" },
		      { "0000:03:00.1", -ENODEV, "gpunvme list" },
		      { "0000:04:00.0", -EOPNOTSUPP, "IOMMU" } };
	const struct gnv_vfio_way *way;
	struct gnv_pci pci;

	(void)state;
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		assert_int_equal(gnv_sysfs_pci(root, table[i].bdf, &pci), 0);
		assert_int_equal(gnv_vfio_check_all(root, &pci), table[i].ret);
		if (table[i].says)
			assert_non_null(strstr(gpunvme_errmsg(), table[i].says));
	}
	assert_int_equal(gnv_vfio_choose("fast", &pci, &way), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "noiommu"));
	assert_non_null(strstr(gpunvme_errmsg(), "type1"));
}

static void noiommu(const char *bdf, int ret, const char *says)
{
	struct gnv_pci pci;

	assert_int_equal(gnv_sysfs_pci(root, bdf, &pci), 0);
	assert_int_equal(gnv_vfio_check_noiommu.run(root, &pci), ret);
	assert_non_null(strstr(gpunvme_errmsg(), says));
}

/* Step by step to a device without IOMMU; the node and the capability are this machine's. Never by itself. */
static void test_noiommu(void **state)
{
	const struct gnv_vfio_way *way;
	struct gnv_pci pci;

	(void)state;
	noiommu("0000:01:00.0", -EINVAL, "behind an IOMMU");
	noiommu("0000:04:00.0", -EOPNOTSUPP, "Linux 7.3");
	put("N\n", "module/vfio/parameters/enable_unsafe_noiommu_mode");
	noiommu("0000:04:00.0", -EPERM, "echo 1");
	put("Y\n", "module/vfio/parameters/enable_unsafe_noiommu_mode");
	noiommu("0000:04:00.0", -ENODEV, "gpunvme bind 0000:04:00.0");
	put(">../../../bus/pci/drivers/vfio-pci", "bus/pci/devices/0000:04:00.0/driver");
	noiommu("0000:04:00.0", -EOPNOTSUPP, "no device node");
	put("", "bus/pci/devices/0000:04:00.0/vfio-dev/noiommu-vfio9/dev");
	assert_int_equal(gnv_sysfs_pci(root, "0000:04:00.0", &pci), 0);
	assert_string_equal(pci.cdev, "noiommu-vfio9");
	if (gnv_sys_may_rawio())
		noiommu("0000:04:00.0", -ENODEV, "noiommu-vfio9 does not exist");
	else
		noiommu("0000:04:00.0", -EPERM, "CAP_SYS_RAWIO");
	pci.group = 3; /* the kernel makes one of its own: still no IOMMU, and no other way */
	assert_int_equal(gnv_vfio_check_all(root, &pci), -EOPNOTSUPP);
	assert_int_equal(gnv_vfio_check_noiommu.run(root, &pci), gnv_sys_may_rawio() ? -ENODEV : -EPERM);
	assert_true(gnv_vfio_choose(NULL, &pci, &way) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address),	   cmocka_unit_test(test_device), cmocka_unit_test(test_namespaces),
		cmocka_unit_test(test_windows), cmocka_unit_test(test_checks), cmocka_unit_test(test_noiommu),
	};

	return cmocka_run_group_tests(tests, make_tree, tree_remove);
}
