/* SPDX-License-Identifier: MIT */
/* The CUDA driver: what is asked of it, what its refusals say, and that nothing is left behind whichever call fails. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "gpu/gpu.h"
#include "mem/mem.h"
#include "os/cuda.h"
#include "os/uapi/cuda.h"
#include "stand_in.h"

#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
/* Our names for the driver's interface against the installed header. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), "CUDA")
SAME(GNV_CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(GNV_CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(GNV_CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(GNV_CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(GNV_CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(GNV_CUDA_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(GNV_CUDA_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(GNV_CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(GNV_CUDA_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(GNV_CUDA_REGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(GNV_CUDA_REGISTER_IOMEMORY, CU_MEMHOSTREGISTER_IOMEMORY);
SAME(GNV_CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(GNV_CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(GNV_CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(GNV_CUDA_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(GNV_CUDA_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(GNV_CUDA_MEMORY_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
SAME(GNV_CUDA_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME(GNV_CUDA_JIT_ERROR_LOG_SIZE, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(sizeof(gnv_cuda_ptr), sizeof(CUdeviceptr));
#endif
#endif

static struct stand_in *driver;
static char *path; /* of the stand-in */

static int begin(void **state)
{
	struct stand_in *(*get)(void);
	void *handle = dlopen(getenv("GPUNVME_CUDA_LIBRARY") ? getenv("GPUNVME_CUDA_LIBRARY") : "", RTLD_NOW);

	(void)state;
	assert_non_null(handle);
	*(void **)&get = dlsym(handle, "stand_in");
	driver = get();
	path = strdup(getenv("GPUNVME_CUDA_LIBRARY"));
	return 0;
}

static int finish(void **state)
{
	(void)state;
	free(path);
	return 0;
}

static int reset(void **state)
{
	(void)state;
	driver->fail = NULL;
	driver->skip = 0;
	driver->devices = 1;
	driver->major = 9;
	driver->minor = 0;
	driver->pools = 1;
	driver->device_memory = NULL;
	return 0;
}

/* Nothing is left, and no rule was broken. */
static int check(void **state)
{
	(void)state;
	assert_int_equal(driver->contexts, 0);
	assert_int_equal(driver->streams, 0);
	assert_int_equal(driver->modules, 0);
	assert_int_equal(driver->registrations, 0);
	assert_int_equal(driver->allocations, 0);
	if (driver->broke)
		fail_msg("%s", driver->broke);
	return 0;
}

static void refused(const char *spec, int expect, const char *text)
{
	struct gpunvme_gpu *gpu = NULL;

	assert_int_equal(gpunvme_gpu_open(spec, NULL, &gpu), expect);
	assert_null(gpu);
	if (!strstr(gpunvme_errmsg(), text))
		fail_msg("'%s' is not in: %s", text, gpunvme_errmsg());
}

static void open_says_what_it_is(void **state)
{
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	struct gpunvme_gpu *gpu;

	(void)state;
	driver->devices = 3;
	assert_int_equal(gpunvme_gpu_open("cuda:2", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_info(gpu, &info), 0);
	assert_int_equal(info.kind, GPUNVME_GPU_CUDA);
	assert_int_equal(info.width, 32);
	assert_int_equal(info.ticks_per_ms, 1000000);
	assert_string_equal(info.name, "stand-in 2");
	gpunvme_gpu_close(gpu);
}

static void bad_specs_are_refused(void **state)
{
	(void)state;
	refused("cuda", -EINVAL, "a number must follow");
	refused("cuda:", -EINVAL, "a number must follow");
	refused("cuda:-1", -EINVAL, "a number must follow");
	refused("cuda:x", -EINVAL, "a number must follow");
	refused("cuda:0x1", -EINVAL, "not the number");
	refused("cuda:99999999999999999999", -EINVAL, "not the number");
	refused("cuda:1", -ENODEV, "CUDA has 1 GPUs");
}

static void machines_without_are_refused(void **state)
{
	(void)state;
	driver->fail = "cuInit";
	driver->error = GNV_CUDA_NO_DEVICE;
	refused("cuda:0", -ENODEV, "no GPU can be used");
	driver->fail = NULL;
	driver->devices = 0;
	refused("cuda:0", -ENODEV, "CUDA has 0 GPUs");
	driver->devices = 1;
	driver->major = 7;
	refused("cuda:0", -EOPNOTSUPP, "compute capability 7.0");
	driver->minor = 5;
	driver->pools = 0;
	refused("cuda:0", -EOPNOTSUPP, "memory pools");
	driver->pools = 1;
	driver->fail = "cuModuleLoadDataEx";
	driver->error = 222;
	refused("cuda:0", -EOPNOTSUPP, "cannot use the library's kernels (CUDA error 222): line 1: not for me");
	setenv("GPUNVME_CUDA_LIBRARY", "/nonexistent.so", 1);
	refused("cuda:0", -ENODEV, "GPUNVME_CUDA_LIBRARY names it");
	setenv("GPUNVME_CUDA_LIBRARY", "libc.so.6", 1);
	refused("cuda:0", -EOPNOTSUPP, "has no cuInit()");
	setenv("GPUNVME_CUDA_LIBRARY", path, 1);
}

static void every_failing_step_of_open_leaves_nothing(void **state)
{
	static const char *const calls[] = { "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
					     "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuStreamCreate",
					     "cuModuleLoadDataEx", "cuModuleGetFunction" };
	struct gpunvme_gpu *gpu;
	unsigned i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		driver->fail = calls[i];
		driver->error = GNV_CUDA_OUT_OF_MEMORY;
		assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), -ENOMEM);
		driver->fail = NULL; /* the context can be entered again */
		assert_int_equal(driver->contexts + driver->streams + driver->modules, 0);
	}
	driver->fail = "cuDeviceGetAttribute";
	for (driver->skip = i = 0; i < 3; driver->skip = ++i)
		refused("cuda:0", -ENOMEM, "out of memory");
	check(state);
}

/* Runs `act` with each of the calls failing, and then with none. */
static void with_failures(const char *const *calls, unsigned count, struct gpunvme_gpu *gpu, int (*act)(struct gpunvme_gpu *gpu))
{
	int allocations = driver->allocations, registrations = driver->registrations, streams = driver->streams;
	unsigned i;

	for (i = 0; i < count; i++) {
		driver->fail = calls[i];
		driver->error = 999;
		assert_int_equal(act(gpu), -EIO);
		assert_non_null(strstr(gpunvme_errmsg(), "some error (999)"));
		driver->fail = NULL;
		assert_int_equal(driver->allocations, allocations);
		assert_int_equal(driver->registrations, registrations);
		assert_int_equal(driver->streams, streams);
	}
	assert_int_equal(act(gpu), 0);
}

static int use_local(struct gpunvme_gpu *gpu)
{
	struct gnv_gpu_range range;
	uint64_t word = 1, back = 0;
	int ret = gpu->ops->local_alloc(gpu, 4096, &range);

	if (ret)
		return ret;
	ret = gpu->ops->peek(gpu, &back, range.lane + 64, 8);
	assert_int_equal(back, 0); /* zeroed, and untouched by a failure */
	if (!ret)
		ret = gpu->ops->poke(gpu, range.lane + 64, &word, 8);
	if (!ret)
		ret = gpu->ops->peek(gpu, &back, range.lane + 64, 8);
	assert_true(ret || back == 1);
	gpu->ops->local_free(gpu, &range, 4096);
	return ret;
}

static int use_kernel(struct gpunvme_gpu *gpu)
{
	static uint32_t memory[100];
	struct gnv_fill_args args = { (uintptr_t)memory, 100, 0x5a5a5a5a, 0 };
	struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 300, 10000, NULL, NULL };
	int ret;

	memset(memory, 0, sizeof(memory));
	ret = gpu->ops->launch(gpu, &launch);
	assert_true(ret || (memory[0] == 0x5a5a5a5a && memory[99] == 0x5a5a5a5a));
	return ret;
}

static int use_host(struct gpunvme_gpu *gpu)
{
	static char memory[4096] __attribute__((aligned(4096)));
	struct gnv_gpu_range range, again;
	int ret = gpu->ops->host_attach(gpu, memory, sizeof(memory), &range);

	if (ret)
		return ret;
	assert_int_equal(driver->registrations, 1);
	ret = gpu->ops->host_attach(gpu, memory, sizeof(memory), &again); /* as memory that a program registered itself */
	assert_int_equal(ret, 0);
	assert_int_equal(again.lane, range.lane);
	gpu->ops->host_detach(gpu, &again);
	assert_int_equal(driver->registrations, 1);
	gpu->ops->host_detach(gpu, &range);
	return 0;
}

static void memory_and_kernels_fail_cleanly(void **state)
{
	static const char *const local[] = { "cuCtxPushCurrent_v2", "cuMemAllocAsync", "cuMemsetD8Async", "cuStreamSynchronize",
					     "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2" };
	static const char *const kernel[] = { "cuCtxPushCurrent_v2", "cuStreamCreate", "cuLaunchKernel", "cuStreamQuery" };
	static const char *const host[] = { "cuCtxPushCurrent_v2", "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2" };
	struct gnv_launch none = { GNV_KERNELS, NULL, 0, 1, 1, NULL, NULL };
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	with_failures(local, 6, gpu, use_local);
	with_failures(kernel, 3, gpu, use_kernel);
	driver->fail = kernel[3];
	assert_int_equal(use_kernel(gpu), -EIO);
	driver->fail = NULL;
	with_failures(host, 3, gpu, use_host);
	assert_int_equal(gpu->ops->launch(gpu, &none), -EINVAL);
	while (__atomic_load_n(&driver->running, __ATOMIC_ACQUIRE) || __atomic_load_n(&driver->streams, __ATOMIC_ACQUIRE) > 1)
		; /* the kernel that nobody waited for */
	gpunvme_gpu_close(gpu);
}

static int never(void *ctx, int *fd, uint64_t *offset)
{
	(void)ctx;
	(void)fd;
	(void)offset;
	fail();
	return -1;
}

static void registers_of_others(void **state)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct gnv_gpu_foreign foreign = { page, sizeof(page), never, NULL, false };
	struct gnv_gpu_range range;
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->mmio_attach(gpu, &foreign, &range), 0);
	assert_int_equal(range.lane, (uintptr_t)page);
	gpu->ops->mmio_detach(gpu, &range);
	driver->fail = "cuMemHostRegister_v2";
	driver->error = GNV_CUDA_INVALID_VALUE;
	assert_int_equal(gpu->ops->mmio_attach(gpu, &foreign, &range), -EOPNOTSUPP);
	driver->error = 999;
	assert_int_equal(gpu->ops->mmio_attach(gpu, &foreign, &range), -EOPNOTSUPP);
	driver->error = GNV_CUDA_OUT_OF_MEMORY;
	assert_int_equal(gpu->ops->mmio_attach(gpu, &foreign, &range), -ENOMEM);
	foreign.cpu = NULL;
	assert_int_equal(gpu->ops->mmio_attach(gpu, &foreign, &range), -EOPNOTSUPP);
	gpunvme_gpu_close(gpu);
}

static void memory_of_the_gpu_is_refused(void **state)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct gnv_gpu_bytes bytes;
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->mem_alloc(gpu, 4096, &bytes), -EOPNOTSUPP);
	assert_int_equal(gpu->ops->mem_register(gpu, page, 4096, &bytes), -ENOENT); /* the host's */
	driver->device_memory = page;
	assert_int_equal(gpu->ops->mem_register(gpu, page, 4096, &bytes), -EOPNOTSUPP);
	gpunvme_gpu_close(gpu);
}

/* CUDA registers memory for all its GPUs at once: what the first one registered stays until the last one is done. */
static void first_of_two_gpus_goes(void **state)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct gpunvme_gpu *gpu[2];
	struct gpunvme_mem *mem;
	uint64_t lane[2];
	int i;

	(void)state;
	driver->devices = 2;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu[0]), 0);
	assert_int_equal(gpunvme_gpu_open("cuda:1", NULL, &gpu[1]), 0);
	assert_int_equal(gnv_mem_host_register(page, sizeof(page), &mem), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(gnv_mem_show(mem, gpu[i], 0, sizeof(page), &lane[i]), 0);
	assert_int_equal(gnv_mem_hide(mem, gpu[0]), 0);
	gpunvme_gpu_close(gpu[0]);
	assert_int_equal(driver->registrations, 1);
	assert_int_equal(driver->contexts, 2);
	assert_int_equal(gnv_mem_show(mem, gpu[0], 0, sizeof(page), &lane[0]), 0); /* it is still there */
	assert_int_equal(gnv_mem_hide(mem, gpu[1]), 0);
	assert_int_equal(driver->registrations, 1);
	assert_int_equal(gnv_mem_hide(mem, gpu[0]), 0);
	assert_int_equal(driver->registrations, 0);
	assert_int_equal(driver->contexts, 1);
	gpunvme_gpu_close(gpu[1]);
	gnv_mem_release(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(open_says_what_it_is, reset, check),
		cmocka_unit_test_setup_teardown(bad_specs_are_refused, reset, check),
		cmocka_unit_test_setup_teardown(machines_without_are_refused, reset, check),
		cmocka_unit_test_setup_teardown(every_failing_step_of_open_leaves_nothing, reset, check),
		cmocka_unit_test_setup_teardown(memory_and_kernels_fail_cleanly, reset, check),
		cmocka_unit_test_setup_teardown(registers_of_others, reset, check),
		cmocka_unit_test_setup_teardown(memory_of_the_gpu_is_refused, reset, check),
		cmocka_unit_test_setup_teardown(first_of_two_gpus_goes, reset, check),
	};

	return cmocka_run_group_tests(tests, begin, finish);
}
