/* SPDX-License-Identifier: MIT */
/* Memory that HIP or libdrm made, for the threads of the mock. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "common/mock.h"
#include "mocks/hsa/runtime.h"
#include "mem/mem.h"
#include "dev/dev.h"
#include "mocks/hip/fake_hip.h"

static struct fake_hip *hip;
static struct gpunvme_gpu *gpu;
static char uri[300];

static int setup(void **state)
{
	if (image_make_dir(state))
		return -1;
	image_make(image_path("i"), 1 << 20);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("i"));
	return 0;
}

static int teardown(void **state)
{
	remove(image_path("i"));
	return image_remove_dir(state);
}

/* HIP stands on the HSA runtime, which therefore knows its memory. */
static void granted(void *ptr, size_t size, bool yes)
{
	__typeof__(mock_range_add) *add;
	__typeof__(mock_range_remove) *take;

	*(void **)&add = mock_symbol("mock_range_add");
	*(void **)&take = mock_symbol("mock_range_remove");
	assert_true(yes ? add("hip", ptr, size, 1) : take(ptr));
}

static int begin(void **state)
{
	(void)state;
	hip = mock_state("GPUNVME_HIP_LIBRARY", FAKE_HIP_LIBRARY, "fake_hip");
	assert_non_null(hip);
	memset(hip, 0, sizeof(*hip));
	hip->version = 70000000;
	hip->granted = granted;
	hip->devices = 0x40 - 3 + 1; /* the last one is the mock's first */
	return gpunvme_gpu_open("hsa:0", NULL, &gpu);
}

static int end(void **state)
{
	(void)state;
	gpunvme_gpu_close(gpu);
	assert_int_equal(hip->handles + hip->ranges + hip->maps, 0);
	return 0;
}

static int alloc(struct gpunvme_gpu *of, uint32_t flags, struct gpunvme_mem **mem)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;

	opts.flags = flags;
	return gpunvme_mem_alloc(of, NULL, 5000, &opts, mem);
}

/* It is zeroed by a thread, which thereby shows that it reaches the memory. */
static void test_hip(void **state)
{
	struct gnv_gpu_range range = { 0 };
	struct gpunvme_mem *mem = NULL;
	uint64_t word = 0;

	(void)state;
	for (unsigned turn = 0; turn < 2; turn++) {
		assert_int_equal(alloc(gpu, GPUNVME_MEM_HIP, &mem), 0);
		assert_int_equal(gpunvme_mem_len(mem), FAKE_HIP_UNIT);
		assert_null(gpunvme_mem_ptr(mem));
		assert_true(mem->dmabuf >= 0);
		assert_int_equal(mem->ops->attach(mem, gpu, 0, mem->len, &range), 0);
		assert_int_equal(gpu->ops->peek(gpu, &word, range.lane + FAKE_HIP_UNIT - 8, 8), 0);
		assert_int_equal(word, 0);
		word = ~0ull;
		assert_int_equal(gpu->ops->poke(gpu, range.lane + FAKE_HIP_UNIT - 8, &word, 8), 0);
		gpunvme_mem_free(mem);
		assert_int_equal(hip->handles, 0);
	}
	hip->fails_at = hip->count + 2;
	hip->fails_with = 2; /* out of memory */
	assert_int_equal(alloc(gpu, GPUNVME_MEM_HIP, &mem), -ENOMEM);
	hip->version = 50000000;
	assert_int_equal(alloc(gpu, GPUNVME_MEM_HIP, &mem), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "ROCm 6"));
}

/*
 * The software controller has copies made where the CPU has no address, and the runtime makes none of what it has not allocated: it
 * takes that for the host's (ROCr 6.4, Runtime::CopyMemory).
 */
static void test_out_of_reach(void **state)
{
	struct gpunvme_mem *mem = NULL;
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(alloc(gpu, GPUNVME_MEM_HIP, &mem), 0);
	assert_null(gpunvme_mem_ptr(mem));
	assert_int_equal(gpunvme_mem_map(mem, dev), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "without GPUNVME_MEM_HIP and _DRM"));
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev);
}

/* What threads see of a controller in software is memory of the host, also when the device is given back or its function reset. */
static void test_given_back(void **state)
{
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gnv_mem_fence_off(dev->nvme.port->bar0, false), 0);
	assert_int_equal(gnv_mem_fence_off(dev->nvme.port->bar0, true), 0);
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
}

static void test_refusals(void **state)
{
	struct gpunvme_mem *mem = NULL;
	struct gpunvme_gpu *cpu;

	(void)state;
	assert_true(alloc(gpu, GPUNVME_MEM_DRM, &mem) < 0); /* no render node of that address here */
	assert_int_equal(alloc(gpu, GPUNVME_MEM_HIP | GPUNVME_MEM_DRM, &mem), -EINVAL);
	assert_int_equal(alloc(gpu, GPUNVME_MEM_HIP | GPUNVME_MEM_HOST, &mem), -EINVAL);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &cpu), 0);
	assert_int_equal(alloc(cpu, GPUNVME_MEM_HIP, &mem), -EOPNOTSUPP);
	assert_int_equal(alloc(cpu, GPUNVME_MEM_DRM, &mem), -EOPNOTSUPP);
	gpunvme_gpu_close(cpu);
	assert_null(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_hip, begin, end),
					    cmocka_unit_test_setup_teardown(test_out_of_reach, begin, end),
					    cmocka_unit_test_setup_teardown(test_given_back, begin, end),
					    cmocka_unit_test_setup_teardown(test_refusals, begin, end) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
