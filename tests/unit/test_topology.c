/* SPDX-License-Identifier: MIT */
/* GPUs as KFD lists them and what lies between two devices, over made-up machines. */
#include <errno.h>
#include <gpunvme/gpunvme.h>

#include "common/gpu_tree.h"
#include "machine/topology.h"
#include "os/amd/nodes.h"

#define NVME 0x010802u
#define BRIDGE 0x060400u
#define VGA 0x030000u

static void test_gpus(void **state)
{
	struct gnv_gpu_node gpu;

	(void)state;
	assert_int_equal(gnv_kfd_gpu(root, 0, &gpu), -ENOENT); /* no KFD */
	assert_int_equal(gnv_kfd_id(root, "0000:03:00.0", 1), 0);
	put("0\n", "class/kfd/kfd/topology/nodes/0/gpu_id");
	put_node(1, 4711, 0x300, 110000, 1, 24 * GIB);
	put_node(2, 4712, 0x8508, 90010, 2, 64 * GIB);
	put("268435456\n", "bus/pci/devices/0000:85:01.0/mem_info_vis_vram_total");
	put("suspended\n", "bus/pci/devices/0000:85:01.0/power/runtime_status");
	put("io_links_count 3\ngfx_target_version 90402\nlocation_id 0\ndomain 1\n", "class/kfd/kfd/topology/nodes/7/properties");
	put("99\n", "class/kfd/kfd/topology/nodes/7/gpu_id");
	put("type 2\n", "class/kfd/kfd/topology/nodes/7/io_links/0/properties");
	put("type 11\n", "class/kfd/kfd/topology/nodes/7/io_links/1/properties");
	put("type 11\n", "class/kfd/kfd/topology/nodes/7/io_links/2/properties");

	assert_int_equal(gnv_kfd_gpu(root, 0, &gpu), 0);
	assert_string_equal(gpu.bdf, "0000:03:00.0");
	assert_string_equal(gpu.gfx, "gfx1100");
	assert_int_equal(gpu.node, 1);
	assert_int_equal(gpu.kfd_id, 4711);
	assert_true(gpu.vram == 24 * GIB && gpu.visible == 24 * GIB && !gpu.asleep && !gpu.xgmi);
	assert_int_equal(gnv_kfd_gpu(root, 1, &gpu), 0);
	assert_string_equal(gpu.bdf, "0000:85:01.0");
	assert_string_equal(gpu.gfx, "gfx90a");
	assert_true(gpu.vram == 64 * GIB && gpu.visible == 256u << 20 && gpu.asleep);
	assert_int_equal(gnv_kfd_gpu(root, 2, &gpu), 0);
	assert_string_equal(gpu.bdf, "0001:00:00.0");
	assert_string_equal(gpu.gfx, "gfx942");
	assert_int_equal(gpu.xgmi, 2);
	assert_int_equal(gnv_kfd_gpu(root, 3, &gpu), -ENOENT);
}

/* Where GPUs are hidden the runtime counts nodes by itself: the address decides. */
static void test_kfd_id(void **state)
{
	(void)state;
	put("0\n", "class/kfd/kfd/topology/nodes/0/gpu_id");
	put("", "class/kfd/kfd/topology/nodes/1/gpu_id"); /* reading fails for those the process may not see */
	put_node(2, 20, 0x300, 110000, 1, GIB);
	put_node(3, 30, 0x400, 110000, 1, GIB);
	put_node(4, 40, 0x500, 90402, 1, GIB); /* two partitions of one GPU */
	put_node(5, 50, 0x500, 90402, 1, GIB);
	assert_int_equal(gnv_kfd_id(root, "0000:03:00.0", 1), 20);
	assert_int_equal(gnv_kfd_id(root, "0000:04:00.0", 2), 30);
	assert_int_equal(gnv_kfd_id(root, "0000:04:00.0", 3), 30);
	assert_int_equal(gnv_kfd_id(root, "0000:05:00.0", 4), 40);
	assert_int_equal(gnv_kfd_id(root, "0000:05:00.0", 5), 50);
	assert_int_equal(gnv_kfd_id(root, "0000:05:00.0", 3), 0); /* either */
	assert_int_equal(gnv_kfd_id(root, "0000:09:00.0", 2), 0);
}

/*
 * One card as eight partitions (CPX): KFD adds their numbers to the card's address and gives each a render node (Linux
 * kfd_topology.c, kfd_topology_add_device: location_id, drm_render_minor), and PCI knows function 0 only.
 */
static void test_partitions(void **state)
{
	struct gpunvme_pci_path path;
	struct gnv_gpu_node gpu;
	char bdf[GNV_BDF_BYTES], card[GNV_BDF_BYTES], long_card[GNV_BDF_BYTES + 1];
	unsigned i;

	(void)state;
	put_pci("pci0000:00/0000:00:01.0", BRIDGE, 0x1022, 0);
	put_pci("pci0000:00/0000:00:01.0/0000:05:00.0", 0x120000, 0x1002, 0);
	put_pci("pci0000:00/0000:00:02.0", BRIDGE, 0x1022, 0);
	put_pci("pci0000:00/0000:00:02.0/0000:06:00.0", NVME, 0x144d, 0);
	put("68719476736\n", "bus/pci/devices/0000:05:00.0/mem_info_vis_vram_total");
	put("suspended\n", "bus/pci/devices/0000:05:00.0/power/runtime_status");
	for (i = 0; i < 8; i++)
		put_partition(1 + i, 100 + i, 0x500 + i, 128 + i, 24 * GIB);
	for (i = 0; i < 8; i++) {
		snprintf(bdf, sizeof(bdf), "0000:05:00.%u", i);
		assert_int_equal(gnv_kfd_gpu(root, i, &gpu), 0);
		assert_string_equal(gpu.bdf, bdf);
		assert_int_equal(gpu.render, 128 + i);
		assert_true(gpu.visible == 24 * GIB && gpu.asleep);
		assert_int_equal(gnv_kfd_render(root, bdf), 128 + i);
		assert_int_equal(gnv_kfd_id(root, bdf, 1 + i), 100 + i);
		gnv_kfd_card(root, bdf, card);
		assert_string_equal(card, "0000:05:00.0");
		assert_int_equal(gnv_topology_path(root, bdf, "0000:06:00.0", &path), 0);
		assert_int_equal(path.distance, GPUNVME_SAME_ROOT);
	}
	gnv_kfd_card(root, "0000:06:00.0", card);
	assert_string_equal(card, "0000:06:00.0");
	memset(long_card, 'x', sizeof(long_card));
	gnv_kfd_card(root, "ffffffff:00:00.0", long_card); /* longer than an address, and no device */
	assert_int_equal(strnlen(long_card, GNV_BDF_BYTES), GNV_BDF_BYTES - 1);
	assert_int_equal(long_card[GNV_BDF_BYTES], 'x');
	put_node(9, 109, 0x500, 90402, 2, GIB); /* without a render node, at an address that a partition has */
	assert_int_equal(gnv_kfd_render(root, "0000:05:00.0"), 0);
	assert_int_equal(gnv_kfd_render(root, "0000:07:00.0"), 0);
}

/* Whatever the files hold: a result, and it ends. */
static void test_garbage(void **state)
{
	static const char *const junk[] = { "",
					    "\n\n\n",
					    "gpu",
					    "-1",
					    "99999999999999999999999",
					    "0x1f",
					    "size_in_bytes",
					    "size_in_bytes x\nheap_type 1\n",
					    "a b c d e f" };
	static char line[70000];
	struct gnv_gpu_node gpu;
	size_t i;

	(void)state;
	memset(line, 'x', sizeof(line) - 1);
	for (i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
		put(junk[i], "class/kfd/kfd/topology/nodes/%zu/gpu_id", i);
		put(junk[i], "class/kfd/kfd/topology/nodes/%zu/properties", i + 20);
		put("7\n", "class/kfd/kfd/topology/nodes/%zu/gpu_id", i + 20);
		put(junk[i], "class/kfd/kfd/topology/nodes/%zu/mem_banks/0/properties", i + 20);
	}
	put("8\n", "class/kfd/kfd/topology/nodes/40/gpu_id");
	put(line, "class/kfd/kfd/topology/nodes/40/properties");
	put("9\n", "class/kfd/kfd/topology/nodes/41/gpu_id");
	put("io_links_count 18446744073709551615\nlocation_id 4294967295\ndomain 4294967295\ngfx_target_version 4294967295\n",
	    "class/kfd/kfd/topology/nodes/41/properties");
	put("", "class/kfd/kfd/topology/nodes/42/gpu_id/is_a_folder");
	for (i = 0; !gnv_kfd_gpu(root, (unsigned)i, &gpu); i++)
		assert_true(gpu.kfd_id && strlen(gpu.bdf) == 12 && strlen(gpu.gfx) < sizeof(gpu.gfx));
	assert_true(i >= 11);
	assert_string_equal(gpu.bdf, "ffff:ff:1f.7");
}

static void path_is(const char *a, const char *b, enum gpunvme_distance distance, int redirect)
{
	struct gpunvme_pci_path path;

	assert_int_equal(gnv_topology_path(root, a, b, &path), 0);
	assert_int_equal(path.distance, distance);
	assert_int_equal(path.redirect, redirect);
	assert_int_equal(gnv_topology_path(root, b, a, &path), 0);
	assert_int_equal(path.distance, distance);
	assert_int_equal(path.redirect, redirect);
}

/* The configuration of a bridge: capabilities at 256 (AER) and after it, where ACS may be. @next: of the second. */
static void put_config(const char *bdf, int control, unsigned next)
{
	unsigned char config[4096] = { 0 };
	char full[300];
	FILE *f;

	config[256] = 1;
	config[258] = 1;
	config[259] = 0x20; /* the next at 0x200 */
	config[0x200] = control < 0 ? 3 : 0xd;
	config[0x202] = 1 | (unsigned char)(next << 4);
	config[0x203] = (unsigned char)(next >> 4);
	if (control >= 0)
		config[0x206] = (unsigned char)control;
	snprintf(full, sizeof(full), "%s/bus/pci/devices/%s/config", root, bdf);
	f = fopen(full, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(config, sizeof(config), 1, f), 1);
	fclose(f);
}

/* A GPU, whose card has a switch of its own, and drives in every distance from it. */
static void put_machine(void)
{
	put_pci("pci0000:00/0000:00:01.0", BRIDGE, 0x1022, 0);
	put_pci("pci0000:00/0000:00:01.0/0000:01:00.0", BRIDGE, 0x1002, 0);		 /* a switch: its upper port, */
	put_pci("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", BRIDGE, 0x1002, 0); /* and lower ones */
	put_pci("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0", BRIDGE, 0x1002, 0);
	put_pci("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", VGA, 0x1002, 0);
	put_pci("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", NVME, 0x144d, 0);
	put_pci("pci0000:00/0000:00:02.0", BRIDGE, 0x1022, 0);
	put_pci("pci0000:00/0000:00:02.0/0000:05:00.0", NVME, 0x144d, 0);
	put_pci("pci0000:40/0000:40:01.0", BRIDGE, 0x1022, 1);
	put_pci("pci0000:40/0000:40:01.0/0000:41:00.0", NVME, 0x144d, 1);
	put_pci("pci0000:80/0000:80:01.0", BRIDGE, 0x1022, 2);
	put_pci("pci0000:80/0000:80:01.0/0000:81:00.0", NVME, 0x144d, 2);
	put_pci("pci0000:c0/0000:c0:01.0/0000:c1:00.0", NVME, 0x144d, -1);
	put("0-7\n", "devices/system/node/node0/cpulist");
	put("8-15\n", "devices/system/node/node1/cpulist");
	put("16-23\n", "devices/system/node/node2/cpulist");
	put("0\n", "devices/system/cpu/cpu0/topology/physical_package_id");
	put("0\n", "devices/system/cpu/cpu8/topology/physical_package_id"); /* two nodes of one processor */
	put("1\n", "devices/system/cpu/cpu16/topology/physical_package_id");
}

static void test_distance(void **state)
{
	static const char gpu[] = "0000:03:00.0";
	struct gpunvme_pci_path path;

	(void)state;
	put_machine();
	path_is(gpu, "0000:04:00.0", GPUNVME_SAME_SWITCH, -1); /* no configuration is readable */
	path_is(gpu, "0000:05:00.0", GPUNVME_SAME_ROOT, -1);
	path_is(gpu, "0000:41:00.0", GPUNVME_SAME_SOCKET, -1);
	path_is(gpu, "0000:81:00.0", GPUNVME_ACROSS_SOCKETS, -1);
	path_is(gpu, "0000:c1:00.0", GPUNVME_SAME_SOCKET, -1); /* the firmware does not tell */
	path_is(gpu, gpu, GPUNVME_SAME_SWITCH, 0);
	assert_int_equal(gnv_topology_path(root, gpu, "0000:09:00.0", &path), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "0000:09:00.0"));
	assert_int_equal(gnv_topology_path(root, "nonsense", gpu, &path), -ENODEV);
	put("0x010802\n", "bus/pci/devices/0000:0a:00.0/class"); /* not below /devices */
	assert_int_equal(gnv_topology_path(root, gpu, "0000:0a:00.0", &path), -ENODEV);
}

static void test_acs(void **state)
{
	static const char *const bridges[] = { "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0", "0000:00:02.0" };
	size_t i;

	(void)state;
	put_machine();
	for (i = 0; i < sizeof(bridges) / sizeof(bridges[0]); i++)
		put_config(bridges[i], -1, 0);
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, 0);
	path_is("0000:03:00.0", "0000:05:00.0", GPUNVME_SAME_ROOT, 0);
	put_config("0000:00:01.0", 0x1d, 0); /* above both: it does not see what they exchange below the switch */
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, 0);
	path_is("0000:03:00.0", "0000:05:00.0", GPUNVME_SAME_ROOT, 1);
	put_config("0000:02:01.0", 0x11, 0); /* source validation, no redirection */
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, 0);
	put_config("0000:02:01.0", 0x04, 0);
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, 1);
	put_config("0000:02:01.0", -1, 0x200); /* a list that goes in a circle */
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, -1);
	put_config("0000:02:01.0", -1, 0x203);
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, -1);
	put_config("0000:02:01.0", -1, 0x100); /* backwards, and so round */
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, -1);
	put_config("0000:02:01.0", -1, 0xffc);
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, 0);
	put("short", "bus/pci/devices/0000:02:01.0/config");
	path_is("0000:03:00.0", "0000:04:00.0", GPUNVME_SAME_SWITCH, -1);
}

/* The public function, on the machine there is. */
static void test_public(void **state)
{
	struct gpunvme_pci_path path = { .size = sizeof(path) };

	(void)state;
	assert_int_equal(gpunvme_pci_get_path(NULL, "0000:00:00.0", &path), -EINVAL);
	assert_int_equal(gpunvme_pci_get_path("disk.img", "0000:00:00.0", &path), -EINVAL);
	assert_int_equal(gpunvme_pci_get_path("fffe:00:00.0", "fffe:00:01.0", &path), -ENODEV);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_make, tree_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_gpus), TEST(test_kfd_id), TEST(test_partitions), TEST(test_garbage), TEST(test_distance), TEST(test_acs), TEST(test_public),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
