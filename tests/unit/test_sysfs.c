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
#include "os/linux/sys.h"
#include "machine/doctor.h"
#include "machine/link.h"
#include "os/linux/sysfs.h"
#include "port/refusals.h"
#include "port/vfio_device.h"

/* As in a locale with a decimal comma, where a point ends the number. */
double strtod(const char *restrict text, char **restrict end)
{
	return (double)strtol(text, end, 10);
}

static void put_device(const char *bdf, const char *class_code, const char *driver, int group)
{
	char text[64];

	put(class_code, "bus/pci/devices/%s/class", bdf);
	put("0x1b36\n", "bus/pci/devices/%s/vendor", bdf);
	put("0x0010\n", "bus/pci/devices/%s/device", bdf);
	put("0\n", "bus/pci/devices/%s/numa_node", bdf);
	put("8.0 GT/s PCIe\n", "bus/pci/devices/%s/current_link_speed", bdf);
	put("4\n", "bus/pci/devices/%s/current_link_width", bdf);
	put("16.0 GT/s PCIe\n", "bus/pci/devices/%s/max_link_speed", bdf);
	put("4\n", "bus/pci/devices/%s/max_link_width", bdf);
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
	put_device("0000:00:17.0", "0x010400\n", "ahci", 8); /* Intel RST */
	put_device("0000:00:1f.2", "0x010601\n", "ahci", 9);
	put("2\n", "bus/pci/devices/0000:00:1f.2/remapped_nvme");
	put_device("0000:00:1f.3", "0x010601\n", "ahci", 9);
	put("0\n", "bus/pci/devices/0000:00:1f.3/remapped_nvme");
	put_device("0000:00:0e.0", "0x010400\n", "vmd", 10);
	put(">../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0", "bus/pci/devices/10000:e1:00.0");
	put("", "devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/resource");
	put_device("10000:e1:00.0", "0x010802\n", "nvme", 10);
	put_device("0000:05:00.1", "0x010802\n", "vfio-pci", 11);
	put(">../../../0000:05:00.0", "bus/pci/devices/0000:05:00.1/physfn");
	put("", "bus/0000:05:00.0/class");
	put("removable\n", "bus/pci/devices/0000:02:00.0/removable");
	put("fixed\n", "bus/pci/devices/0000:03:00.0/removable");
	return 0;
}

static void test_address(void **state)
{
	static const char *const bad[] = { "", "1:2:3", "0000:01:00.8", "0000:01:20.0", "0000:01:00", "0000:01:00.0x", "-1:00.0",
					   "00000:01:00.0", " 01:00.0", "0000:01:00.0 ", "0000:-1:00.0", "0000: 1:00.0", "0000:+1:00.0" };
	char bdf[GNV_BDF_BYTES];

	(void)state;
	assert_int_equal(gnv_pci_parse("01:00.0", bdf), 0);
	assert_string_equal(bdf, "0000:01:00.0");
	assert_int_equal(gnv_pci_parse("00aB:Cd:1f.7", bdf), 0);
	assert_string_equal(bdf, "00ab:cd:1f.7");
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(gnv_pci_parse(bad[i], bdf), -EINVAL);
}

/* x4 at half the speed is the most common disappointment. */
static void test_link(void **state)
{
	static const struct {
		unsigned width, max_width;
		const char *speed, *max_speed;
		int result;
	} cases[] = {
		{ 4, 4, "16.0 GT/s PCIe", "16.0 GT/s PCIe", GPUNVME_CHECK_OK },
		{ 4, 4, "8.0 GT/s PCIe", "16.0 GT/s PCIe", GPUNVME_CHECK_LIMIT },
		{ 4, 4, "2.0 GT/s PCIe", "2.5 GT/s PCIe", GPUNVME_CHECK_LIMIT }, /* also with a decimal comma */
		{ 2, 4, "16.0 GT/s PCIe", "16.0 GT/s PCIe", GPUNVME_CHECK_LIMIT },
		{ 4, 4, "8.0 GT/s PCIe", "Unknown", GPUNVME_CHECK_SKIPPED },
		{ 0, 4, "", "16.0 GT/s PCIe", GPUNVME_CHECK_SKIPPED },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gnv_pci pci = { .link_width = cases[i].width, .max_width = cases[i].max_width };
		struct gnv_report report = { .count = 0 };
		const struct gpunvme_check *check = report.check;

		strcpy(pci.link_speed, cases[i].speed);
		strcpy(pci.max_speed, cases[i].max_speed);
		gnv_doctor_link(&report, &pci);
		assert_int_equal(report.count, 1);
		assert_int_equal(check->result, cases[i].result);
		assert_int_equal(!*check->remedy, check->result != GPUNVME_CHECK_LIMIT);
	}
}

/* In the machine, in an external case, a virtual function. */
static void test_seat(void **state)
{
	static const struct {
		const char *bdf, *reason, *remedy;
		int result;
	} cases[] = {
		{ "0000:01:00.0", "it sits in this machine", "", GPUNVME_CHECK_OK },
		{ "0000:02:00.0", "in an external case", "into a slot", GPUNVME_CHECK_LIMIT },
		{ "0000:03:00.0", "it sits in this machine", "", GPUNVME_CHECK_OK },
		{ "0000:05:00.1", "a virtual function of 0000:05:00.0,", "nvme virt-mgmt", GPUNVME_CHECK_LIMIT },
	};
	struct gnv_pci pci;

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gnv_report report = { .count = 0 };

		assert_int_equal(gnv_sysfs_pci(root, cases[i].bdf, &pci), 0);
		gnv_doctor_iommu_group(&report, root, &pci);
		assert_int_equal(report.count, 1);
		assert_int_equal(report.check[0].result, cases[i].result);
		assert_non_null(strstr(report.check[0].reason, cases[i].reason));
		assert_non_null(strstr(report.check[0].remedy, cases[i].remedy));
	}
}

#define PORT "0000:20:01.0"
#define DRIVE "0000:21:00.0"

/* A configuration space of `len` bytes with a PCI Express capability: what it can do, device control, link control. */
static void put_config(const char *place, size_t len, unsigned can, unsigned control, unsigned link)
{
	unsigned char config[256] = { [0x34] = 0x40, [0x40] = 0x05, [0x41] = 0x80, [0x80] = 0x10 };
	char path[512];
	FILE *f;

	config[0x84] = (unsigned char)can;
	config[0x88] = (unsigned char)control;
	config[0x89] = (unsigned char)(control >> 8);
	config[0x90] = (unsigned char)link;
	put("", "%s/config", place);
	snprintf(path, sizeof(path), "%s/%s/config", root, place);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(config, 1, len, f), len);
	fclose(f);
}

static void test_transfers(void **state)
{
	static const struct {
		size_t len;
		unsigned can, port_can, control, link;
		uint32_t payload, most, request;
		int aspm;
		const char *says[3]; /* of packets, reads and sleep; only the first: why nothing is known */
		unsigned limits;     /* bits: which of them are */
	} cases[] = {
		{ 256, 2, 2, 2 << 5 | 2 << 12, 0, 512, 512, 512, 0, { "packets of 512 bytes, all", "up to 512", "does not sleep" }, 0 },
		{ 256, 2, 1, 1 << 5 | 2 << 12, 0, 256, 256, 512, 0, { "packets of 256 bytes, all", "512", "not" }, 0 }, /* the port's most */
		{ 256, 2, 1, 0 << 5 | 2 << 12, 0, 128, 256, 512, 0, { "packets of 128 bytes where drive and port can do 256", "512", "not" }, 1 },
		{ 256, 1, 1, 1 << 5 | 0 << 12, 0, 256, 256, 128, 0, { "256", "at most 128 bytes", "not" }, 2 },
		{ 256, 1, 1, 1 << 5 | 5 << 12, 2, 256, 256, 4096, 2, { "256", "4096", "ASPM L1" }, 4 },
		{ 256, 1, 1, 0 << 5 | 1 << 12, 3, 128, 256, 256, 3, { "packets of 128", "at most 256", "L0s and L1" }, 7 },
		{ 64, 2, 2, 2 << 5 | 2 << 12, 3, 0, 0, 0, -1, { "only root", NULL, NULL }, 0 }, /* as others see it */
		{ 0x90, 2, 2, 2 << 5 | 2 << 12, 3, 0, 0, 0, -1, { "no PCI Express link", NULL, NULL }, 0 }, /* cut off */
	};
	const struct gnv_pci pci = { .bdf = DRIVE };

	(void)state;
	put(">../../../devices/pci0000:00/" PORT, "bus/pci/devices/" PORT);
	put(">../../../devices/pci0000:00/" PORT "/" DRIVE, "bus/pci/devices/" DRIVE);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gnv_report report = { .count = 0 };
		struct gnv_link link;

		put_config("devices/pci0000:00/" PORT, 256, cases[i].port_can, 0, 0);
		put_config("devices/pci0000:00/" PORT "/" DRIVE, cases[i].len, cases[i].can, cases[i].control, cases[i].link);
		gnv_link_read(root, DRIVE, &link);
		assert_int_equal(link.payload, cases[i].payload);
		assert_int_equal(link.payload_most, cases[i].most);
		assert_int_equal(link.read_request, cases[i].request);
		assert_int_equal(link.aspm, cases[i].aspm);
		gnv_doctor_transfers(&report, root, &pci);
		assert_int_equal(report.count, cases[i].says[1] ? 3 : 1);
		assert_non_null(strstr(report.check[0].reason, cases[i].says[0]));
		if (!cases[i].says[1])
			assert_int_equal(report.check[0].result, GPUNVME_CHECK_SKIPPED);
		for (unsigned k = 0; k < 3 && cases[i].says[1]; k++) {
			const bool limit = cases[i].limits >> k & 1;

			assert_non_null(strstr(report.check[k].reason, cases[i].says[k]));
			assert_int_equal(report.check[k].result, limit ? GPUNVME_CHECK_LIMIT : GPUNVME_CHECK_OK);
			assert_int_equal(*report.check[k].remedy != 0, limit);
		}
	}
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
	assert_int_equal(pci.max_width, 4);
	assert_string_equal(pci.max_speed, "16.0 GT/s PCIe");
	assert_string_equal(pci.driver, "vfio-pci");
	assert_string_equal(pci.cdev, "vfio3");
	assert_int_equal(gnv_sysfs_nth(root, GNV_CLASS_NVME, 3, &pci), 0);
	assert_string_equal(pci.bdf, "0000:04:00.0");
	assert_int_equal(pci.group, -1);
	assert_string_equal(pci.driver, "");
	assert_int_equal(gnv_sysfs_nth(root, GNV_CLASS_NVME, 6, &pci), -ENOENT);
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
		      { "0000:00:17.0", -ENODEV, "hides its drives, as Intel RST" },
		      { "0000:00:1f.2", -ENODEV, "switch it to AHCI" },
		      { "0000:00:1f.3", -ENODEV, "gpunvme list" },
		      { "10000:e1:00.0", -EPERM, "below the RAID function 0000:00:0e.0 (Intel VMD)" },
		      { "0000:05:00.1", 0, NULL },
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
	noiommu("0000:01:00.0", -EINVAL, "an IOMMU translates");
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
		cmocka_unit_test(test_address),	   cmocka_unit_test(test_link), cmocka_unit_test(test_seat), cmocka_unit_test(test_device), cmocka_unit_test(test_namespaces),
		cmocka_unit_test(test_windows), cmocka_unit_test(test_checks), cmocka_unit_test(test_noiommu),
		cmocka_unit_test(test_transfers),
	};

	return cmocka_run_group_tests(tests, make_tree, tree_remove);
}
