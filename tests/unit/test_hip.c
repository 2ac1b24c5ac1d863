/* SPDX-License-Identifier: MIT */
/* HIP: what is asked of it, what its refusals say, and that nothing is left whichever call fails. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>
#include <hip/hip_runtime_api.h>

#include "common/mock.h"
#include "mocks/hip/fake_hip.h"
#include "os/amd/hip.h"
#include "os/amd/hip_module.h"
#include "os/amd/uapi/hip.h"

static struct fake_hip *fake;

static int begin(void **state)
{
	(void)state;
	fake = mock_state("GPUNVME_HIP_LIBRARY", FAKE_HIP_LIBRARY, "fake_hip");
	assert_non_null(fake);
	memset(fake, 0, sizeof(*fake));
	fake->version = 60443484;
	fake->devices = 2;
	return 0;
}

static int end(void **state)
{
	(void)state;
	assert_int_equal(fake->handles + fake->ranges + fake->maps + fake->buffers + fake->modules, 0);
	assert_int_equal(fake->capture_mode + fake->last_error, 0); /* the program's */
	if (fake->broke)
		fail_msg("%s", fake->broke);
	return 0;
}

static void test_device(void **state)
{
	int device = -1;

	(void)state;
	assert_int_equal(gnv_hip_device("0000:04:00.0", &device), 0);
	assert_int_equal(device, 1);
	assert_int_equal(gnv_hip_device("0000:05:00.0", &device), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "HIP_VISIBLE_DEVICES"));
	fake->count_error = hipErrorNoDevice;
	assert_int_equal(gnv_hip_device("0000:04:00.0", &device), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "no AMD GPU"));
	fake->count_error = hipErrorInvalidDevice;
	assert_int_equal(gnv_hip_device("0000:04:00.0", &device), -ENODEV);
	fake->count_error = 999;
	assert_int_equal(gnv_hip_device("0000:04:00.0", &device), -EIO);
	fake->version = 50220730;
	assert_int_equal(gnv_hip_device("0000:04:00.0", &device), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "HIP 5 is too old"));
	setenv("GPUNVME_HIP_LIBRARY", "/nonexistent.so", 1);
	assert_int_equal(gnv_hip_device("0000:04:00.0", &device), -ENODEV);
	assert_int_equal(device, 1);
}

static void test_alloc(void **state)
{
	struct gnv_hip_bytes bytes;

	(void)state;
	assert_int_equal(gnv_hip_alloc(1, 4096, &bytes), 0);
	assert_int_equal(bytes.len, FAKE_HIP_UNIT);
	assert_int_equal(fake->type, GNV_HIP_UNCACHED);
	gnv_hip_free(&bytes);
	fake->no_uncached = true;
	assert_int_equal(gnv_hip_alloc(1, FAKE_HIP_UNIT + 1, &bytes), 0);
	assert_int_equal(bytes.len, 2 * FAKE_HIP_UNIT);
	assert_int_equal(fake->type, GNV_HIP_PINNED);
	gnv_hip_free(&bytes);
	assert_int_equal(gnv_hip_alloc(1, SIZE_MAX, &bytes), -EIO);
}

static void test_every_step(void **state)
{
	struct gnv_hip_bytes bytes;
	unsigned n;
	int ret = -1;

	(void)state;
	fake->fails_with = hipErrorOutOfMemory;
	for (n = 0; ret; n++) {
		fake->count = 0;
		fake->fails_at = n + 1;
		ret = gnv_hip_alloc(0, 1, &bytes);
		assert_true(!ret || ret == -ENOMEM);
		assert_true(n < 20);
		if (ret)
			end(state);
	}
	assert_int_equal(n, 7);
	assert_int_equal(fake->files, 1);
	gnv_hip_free(&bytes);
}

/* To the GPU at that address and back; the device that the thread had is its own again. */
static void test_copy(void **state)
{
	char data[8192], same[8192];
	unsigned n;
	int ret = -1;

	(void)state;
	memset(data, 0x5c, sizeof(data));
	memcpy(same, data, sizeof(data));
	fake->fails_with = hipErrorOutOfMemory;
	for (n = 0; ret; n++) {
		fake->count = 0;
		fake->fails_at = n + 1;
		ret = gnv_hip_copy("0000:04:00.0", data, sizeof(data));
		assert_true(!ret || ret == -ENOMEM);
		assert_true(n < 20);
		assert_memory_equal(data, same, sizeof(data));
		assert_true(!ret || !fake->current);
		end(state);
	}
	assert_int_equal(n, 6); /* hipGetDevice(), hipSetDevice(), hipMalloc(), two copies; that of the last hipSetDevice() is not looked at */
	fake->fails_at = 0;
	fake->current = 0;
	assert_int_equal(gnv_hip_copy("0000:04:00.0", data, sizeof(data)), 0);
	assert_int_equal(fake->current, 0);
	assert_true(fake->copies[0] && fake->copies[1]);
	assert_int_equal(gnv_hip_copy("0000:05:00.0", data, sizeof(data)), -ENODEV);
	setenv("GPUNVME_HIP_LIBRARY", "libc.so.6", 1);
	assert_int_equal(gnv_hip_copy("0000:04:00.0", data, sizeof(data)), -EOPNOTSUPP);
}

/* ---- Kernels in streams ---- */

static const char *const kernels[] = { "one", "two" };

static int enqueue(const struct gnv_hip_module *module, uintptr_t stream)
{
	const int ret = gnv_hip_module_enqueue(module, (void *)stream, 1, 3, 32, "arguments");

	assert_int_equal(fake->current, 0); /* what the thread had chosen */
	return ret;
}

static void test_module(void **state)
{
	struct gnv_hip_module *module = NULL;
	unsigned n;
	int ret = -1;

	(void)state;
	fake->stream_device = 1;
	fake->fails_with = hipErrorOutOfMemory;
	for (n = 0; ret; n++) {
		fake->count = 0;
		fake->fails_at = n + 1;
		ret = gnv_hip_module_open("0000:04:00.0", "code", kernels, 2, &module);
		assert_true(!ret || ret == -ENOMEM);
		assert_true(n < 20);
		assert_int_equal(fake->modules, !ret);
		assert_int_equal(fake->last_error, 0);
		fake->current = 0;
	}
	assert_int_equal(n, 6); /* hipGetDevice(), hipSetDevice(), the code, two kernels, hipSetDevice() back, which is not looked at */
	for (n = 0, ret = -1; ret; n++) {
		fake->count = 0;
		fake->fails_at = n + 1;
		ret = gnv_hip_module_enqueue(module, &fake->stream_device, 0, 1, 64, "arguments");
		assert_true(!ret || ret == -ENOMEM);
		assert_true(n < 20);
		assert_int_equal(fake->launches, !ret);
		fake->current = 0;
	}
	fake->fails_at = 0;
	gnv_hip_module_close(module);
	gnv_hip_module_close(NULL);
	assert_int_equal(fake->modules, 0);
	assert_int_equal(gnv_hip_module_open("0000:05:00.0", "code", kernels, 2, &module), -ENODEV);
	fake->fails_with = hipErrorNoBinaryForGpu;
	fake->count = 0;
	fake->fails_at = 3;
	assert_int_equal(gnv_hip_module_open("0000:04:00.0", "code", kernels, 2, &module), -EOPNOTSUPP);
	fake->version = 50220730;
	assert_int_equal(gnv_hip_module_open("0000:04:00.0", "code", kernels, 2, &module), -EOPNOTSUPP);
	setenv("GPUNVME_HIP_LIBRARY", "libc.so.6", 1);
	assert_int_equal(gnv_hip_module_open("0000:04:00.0", "code", kernels, 2, &module), -EOPNOTSUPP);
}

static void test_streams(void **state)
{
	struct gnv_hip_module *module;

	(void)state;
	assert_int_equal(gnv_hip_module_open("0000:04:00.0", "code", kernels, 2, &module), 0);
	assert_int_equal(enqueue(module, 0), 0);
	assert_int_equal(enqueue(module, 1), 0); /* hipStreamLegacy */
	fake->stream_device = 1;
	assert_int_equal(enqueue(module, 2), 0); /* hipStreamPerThread */
	assert_int_equal(enqueue(module, 4096), 0);
	fake->stream_device = 0;
	assert_int_equal(enqueue(module, 4096), -EXDEV);
	assert_non_null(strstr(gpunvme_errmsg(), "another GPU"));
	fake->no_stream = true;
	assert_int_equal(enqueue(module, 4096), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "destroyed"));
	assert_int_equal(fake->launches, 4);
	gnv_hip_module_close(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_device, begin, end),
		cmocka_unit_test_setup_teardown(test_alloc, begin, end),
		cmocka_unit_test_setup_teardown(test_every_step, begin, end),
		cmocka_unit_test_setup_teardown(test_copy, begin, end),
		cmocka_unit_test_setup_teardown(test_module, begin, end),
		cmocka_unit_test_setup_teardown(test_streams, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
