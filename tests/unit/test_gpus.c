/* SPDX-License-Identifier: MIT */
/* The list of GPUs over made-up machines: what KFD lists, what it does not, other makers, and what the runtimes number them by. */
#include <errno.h>
#include <gpunvme/gpunvme.h>

#include "common/gpu_tree.h"
#include "gpu/kernels/code_object.h"
#include "machine/gpu_list.h"

#define VGA 0x030000u
#define ACCELERATOR 0x120000u

static int begin(void **state)
{
	unsetenv("ROCR_VISIBLE_DEVICES");
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("CUDA_DEVICE_ORDER");
	return tree_make(state);
}

static void put_driver(const char *place, const char *driver)
{
	char text[256];

	snprintf(text, sizeof(text), ">../../../bus/pci/drivers/%s", driver);
	put(text, "devices/%s/driver", place);
}

static void test_amd(void **state)
{
	struct gpunvme_gpu_entry gpu;

	(void)state;
	assert_int_equal(gnv_gpus_nth(root, 0, &gpu), -ENOENT);
	put_pci("pci0000:00/0000:00:01.0/0000:03:00.0", VGA, 0x1002, 1);
	put_driver("pci0000:00/0000:00:01.0/0000:03:00.0", "amdgpu");
	put_pci("pci0000:00/0000:00:02.0/0000:04:00.0", ACCELERATOR, 0x1002, -1);
	put_driver("pci0000:00/0000:00:02.0/0000:04:00.0", "vfio-pci");
	put_pci("pci0000:00/0000:00:03.0", VGA, 0x8086, 0);
	put_node(0, 0, 0, 0, 0, 0);
	put_node(1, 77, 0x300, 110000, 1, 24 * GIB);
	assert_int_equal(gnv_gpus_nth(root, 0, &gpu), 0);
	assert_string_equal(gpu.spec, "hsa:0");
	assert_string_equal(gpu.address, "0000:03:00.0");
	assert_string_equal(gpu.gfx, "gfx1100");
	assert_string_equal(gpu.driver, "amdgpu");
	assert_int_equal(gpu.kind, GPUNVME_GPU_HSA);
	assert_int_equal(gpu.vendor, 0x1002);
	assert_int_equal(gpu.numa, 1);
	assert_int_equal(gpu.node, 1);
	assert_true(gpu.vram == 24 * GIB && gpu.visible == gpu.vram && !gpu.asleep);
	assert_int_equal(gnv_gpus_nth(root, 1, &gpu), 0); /* the compute driver does not have it */
	assert_string_equal(gpu.spec, "");
	assert_string_equal(gpu.gfx, "");
	assert_string_equal(gpu.address, "0000:04:00.0");
	assert_string_equal(gpu.driver, "vfio-pci");
	assert_int_equal(gnv_gpus_nth(root, 2, &gpu), -ENOENT); /* Intel's is none */
	setenv("ROCR_VISIBLE_DEVICES", "1", 1);
	assert_int_equal(gnv_gpus_nth(root, 0, &gpu), 0);
	assert_string_equal(gpu.spec, "hsa:0000:03:00.0");
}

/* Partitions of one card: each has an address of its own for the runtimes, and the card's driver and place. */
static void test_partitions(void **state)
{
	struct gpunvme_gpu_entry gpu;

	(void)state;
	put_pci("pci0000:00/0000:00:01.0/0000:05:00.0", ACCELERATOR, 0x1002, 1);
	put_driver("pci0000:00/0000:00:01.0/0000:05:00.0", "amdgpu");
	for (unsigned i = 0; i < 8; i++)
		put_partition(1 + i, 100 + i, 0x500 + i, 128 + i, GIB);
	setenv("ROCR_VISIBLE_DEVICES", "0", 1);
	for (unsigned i = 0; i < 8; i++) {
		char spec[32];

		snprintf(spec, sizeof(spec), "hsa:0000:05:00.%u", i);
		assert_int_equal(gnv_gpus_nth(root, i, &gpu), 0);
		assert_string_equal(gpu.spec, spec);
		assert_string_equal(gpu.driver, "amdgpu");
		assert_int_equal(gpu.vendor, 0x1002);
		assert_int_equal(gpu.numa, 1);
	}
	assert_int_equal(gnv_gpus_nth(root, 8, &gpu), -ENOENT); /* the card itself is one of them */
}

/* Code for what this build was made for, and nothing else. */
static void test_code(void **state)
{
	struct gnv_code_object first;
	struct gpunvme_gpu_entry gpu;

	(void)state;
	put_node(1, 77, 0x300, 110000, 1, GIB);
	put_node(2, 78, 0x400, 80003, 1, GIB);
	assert_int_equal(gnv_gpus_nth(root, 0, &gpu), 0);
	assert_int_equal(gpu.has_code, !gnv_code_object_find("gfx1100", &first));
	assert_int_equal(gnv_gpus_nth(root, 1, &gpu), 0);
	assert_string_equal(gpu.gfx, "gfx803");
	assert_false(gpu.has_code);
}

static const char *spec_of(unsigned n)
{
	static struct gpunvme_gpu_entry gpu;

	assert_int_equal(gnv_gpus_nth(root, n, &gpu), 0);
	assert_int_equal(gpu.kind, GPUNVME_GPU_CUDA);
	return gpu.spec;
}

static void test_nvidia(void **state)
{
	struct gpunvme_gpu_entry gpu;

	(void)state;
	put_pci("pci0000:00/0000:00:01.0/0000:03:00.0", 0x030200, 0x10de, 0);
	assert_string_equal(spec_of(0), ""); /* without its driver */
	put_driver("pci0000:00/0000:00:01.0/0000:03:00.0", "nvidia");
	assert_string_equal(spec_of(0), "cuda:0");
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	assert_string_equal(spec_of(0), "");
	unsetenv("CUDA_VISIBLE_DEVICES");
	put_pci("pci0000:00/0000:00:02.0/0000:04:00.0", 0x030200, 0x10de, 0);
	put_driver("pci0000:00/0000:00:02.0/0000:04:00.0", "nvidia");
	assert_string_equal(spec_of(0), ""); /* the faster one is CUDA's first */
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	assert_string_equal(spec_of(0), "cuda:0");
	assert_string_equal(spec_of(1), "cuda:1");
	assert_int_equal(gnv_gpus_nth(root, 2, &gpu), -ENOENT);
}

static void test_public(void **state)
{
	struct gpunvme_gpu_entry gpu;
	struct gpunvme_check check;
	uint32_t count = 0, all = 0;

	(void)state;
	while (!gnv_gpus_nth("/sys", all, &gpu))
		all++;
	assert_int_equal(gpunvme_gpu_list(NULL, &count), 0);
	assert_int_equal(count, all);
	count = 1;
	assert_int_equal(gpunvme_gpu_list(&gpu, &count), 0);
	assert_int_equal(count, all); /* which may be more than one */
	assert_int_equal(gpunvme_gpu_list(&gpu, NULL), -EINVAL);
	count = 1;
	assert_int_equal(gpunvme_gpu_list(NULL, &count), -EINVAL);
	assert_int_equal(gpunvme_gpu_list_v(&gpu, &count, sizeof(gpu) - 1), -EINVAL);
	assert_int_equal(gpunvme_doctor_gpu(1000000, NULL, &check, &count), -ENOENT);
	assert_int_equal(gpunvme_doctor_gpu(0, NULL, NULL, &count), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, tree_remove)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_amd), TEST(test_partitions), TEST(test_code), TEST(test_nvidia), TEST(test_public) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
