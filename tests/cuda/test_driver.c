/* SPDX-License-Identifier: MIT */
/* The CUDA driver: what is asked of it, what its refusals say, and that nothing is left whichever call fails. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
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
#include "common/refused.h"
#include "gpu/gpu.h"
#include "mem/mem.h"
#include "os/nvidia/cuda.h"
#include "os/nvidia/uapi/cuda.h"
#include "mocks/cuda/mock.h"

#define PATIENT_MS 600000u /* of kernels that end: a busy machine may run their threads late */

#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
/* Our names for the driver's interface against the installed header. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), "CUDA")
SAME(GNV_CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(GNV_CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(GNV_CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(GNV_CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(GNV_CUDA_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(GNV_CUDA_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(GNV_CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(GNV_CUDA_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(GNV_CUDA_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(GNV_CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(GNV_CUDA_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(GNV_CUDA_ASSERT, CUDA_ERROR_ASSERT);
SAME(GNV_CUDA_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(GNV_CUDA_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(GNV_CUDA_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(GNV_CUDA_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(GNV_CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(GNV_CUDA_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(GNV_CUDA_REGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(GNV_CUDA_REGISTER_IOMEMORY, CU_MEMHOSTREGISTER_IOMEMORY);
SAME(GNV_CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(GNV_CUDA_PEER_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
SAME(GNV_CUDA_PEER_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(GNV_CUDA_TOO_MANY_PEERS, CUDA_ERROR_TOO_MANY_PEERS);
SAME(GNV_CUDA_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(GNV_CUDA_POINTER_LEGACY_IPC, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(GNV_CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(GNV_CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(GNV_CUDA_POINTER_TAG, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(GNV_CUDA_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(GNV_CUDA_POINTER_BASE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(GNV_CUDA_POINTER_LEN, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(GNV_CUDA_POINTER_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(GNV_CUDA_POINTER_ACCESS, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
#if CUDA_VERSION >= 12050
SAME(GNV_CUDA_POINTER_MAPPING_LEN, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME(GNV_CUDA_POINTER_MAPPING_BASE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
#endif
SAME(GNV_CUDA_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(sizeof(gnv_cuda_handle), sizeof(CUmemGenericAllocationHandle));
SAME(GNV_CUDA_POINTER_POOL, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME(GNV_CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(GNV_CUDA_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(sizeof(struct gnv_cuda_access), sizeof(CUmemAccessDesc));
SAME(offsetof(struct gnv_cuda_access, id), offsetof(CUmemAccessDesc, location.id));
SAME(offsetof(struct gnv_cuda_access, flags), offsetof(CUmemAccessDesc, flags));
SAME(GNV_CUDA_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(GNV_CUDA_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(GNV_CUDA_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(GNV_CUDA_MEMORY_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
SAME(GNV_CUDA_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME(GNV_CUDA_JIT_ERROR_LOG_SIZE, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(sizeof(gnv_cuda_ptr), sizeof(CUdeviceptr));
#endif
#endif

static struct cuda_mock *driver;
static char *path; /* of the mock */

static int begin(void **state)
{
	if (image_make_dir(state))
		return -1;
	const char *library = getenv("GPUNVME_CUDA_LIBRARY");

	(void)state;
	path = strdup(library ? library : "");
	driver = mock_state("GPUNVME_CUDA_LIBRARY", path, "cuda_mock");
	return !driver;
}

static int finish(void **state)
{
	free(path);
	return image_remove_dir(state);
}

static int reset(void **state)
{
	(void)state;
	driver->forget(); /* what a case that failed has left */
	driver->broke = NULL;
	driver->fail = NULL;
	driver->skip = 0;
	driver->devices = 1;
	driver->major = 9;
	driver->minor = 0;
	driver->pools = 1;
	driver->foreign_memory = NULL;
	driver->apart = false;
	driver->host.id = 0;
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

static void open_says_what_it_is(void **state)
{
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	struct gpunvme_gpu *gpu;

	(void)state;
	driver->devices = 3;
	assert_int_equal(gpunvme_gpu_open("cuda:2", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_get_info(gpu, &info), 0);
	assert_int_equal(info.kind, GPUNVME_GPU_CUDA);
	assert_int_equal(info.width, 32);
	assert_int_equal(info.ticks_per_ms, 1000000);
	assert_string_equal(info.name, "mock 2");
	gpunvme_gpu_close(gpu);
}

static void bad_specs_are_refused(void **state)
{
	(void)state;
	gpu_refused("cuda", -EINVAL, "a number must follow");
	gpu_refused("cuda:", -EINVAL, "a number must follow");
	gpu_refused("cuda:-1", -EINVAL, "a number must follow");
	gpu_refused("cuda:x", -EINVAL, "a number must follow");
	gpu_refused("cuda:0x1", -EINVAL, "not the number");
	gpu_refused("cuda:99999999999999999999", -EINVAL, "not the number");
	gpu_refused("cuda:1", -ENODEV, "CUDA has 1 GPUs");
}

static void drive_refused(const char *uri, int ret, const char *why)
{
	struct gpunvme_dev *dev;

	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), ret);
	if (!strstr(gpunvme_errmsg(), why))
		fail_msg("%s: %s", uri, gpunvme_errmsg());
}

static void machines_without_are_refused(void **state)
{
	(void)state;
	driver->fail = "cuInit";
	driver->error = GNV_CUDA_NO_DEVICE;
	gpu_refused("cuda:0", -ENODEV, "no GPU can be used");
	driver->fail = "cuDevicePrimaryCtxRetain"; /* exclusive compute mode (cuda.h, CUDA_ERROR_DEVICE_UNAVAILABLE) */
	driver->error = GNV_CUDA_UNAVAILABLE;
	gpu_refused("cuda:0", -EIO, "nvidia-smi --compute-mode=0");
	drive_refused("soft:vram:4M?on=cuda:0", -EIO, "nvidia-smi --compute-mode=0");
	driver->fail = NULL;
	driver->devices = 0;
	gpu_refused("cuda:0", -ENODEV, "CUDA has 0 GPUs");
	driver->devices = 1;
	driver->major = 7;
	gpu_refused("cuda:0", -EOPNOTSUPP, "compute capability 7.0");
	driver->minor = 5;
	driver->pools = 0;
	gpu_refused("cuda:0", -EOPNOTSUPP, "memory pools");
	driver->pools = 1;
	driver->fail = "cuModuleLoadDataEx";
	driver->error = 222;
	gpu_refused("cuda:0", -EOPNOTSUPP, "cannot use the library's kernels (CUDA error 222): line 1: not for me");
	setenv("GPUNVME_CUDA_LIBRARY", "/nonexistent.so", 1);
	gpu_refused("cuda:0", -ENODEV, "GPUNVME_CUDA_LIBRARY names it");
	setenv("GPUNVME_CUDA_LIBRARY", "libc.so.6", 1);
	gpu_refused("cuda:0", -EOPNOTSUPP, "has no cuInit()");
	setenv("GPUNVME_CUDA_LIBRARY", path, 1);
}

static void every_failing_step_of_open_leaves_nothing(void **state)
{
	static const char *const calls[] = { "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
					     "cuDevicePrimaryCtxRetain", "cuThreadExchangeStreamCaptureMode",
					     "cuCtxPushCurrent_v2", "cuStreamCreate", "cuModuleLoadDataEx", "cuModuleGetFunction" };
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
		gpu_refused("cuda:0", -ENOMEM, "out of memory");
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
	struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 300, PATIENT_MS, NULL, NULL };
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
	assert_int_equal(gpu->ops->host_detach(gpu, &again), 0);
	assert_int_equal(driver->registrations, 1);
	assert_int_equal(gpu->ops->host_detach(gpu, &range), 0);
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
	while (__atomic_load_n(&driver->running, __ATOMIC_ACQUIRE) || __atomic_load_n(&driver->streams, __ATOMIC_ACQUIRE) > 1)
		; /* the kernel that nobody waited for */
	with_failures(host, 3, gpu, use_host);
	assert_int_equal(gpu->ops->launch(gpu, &none), -EINVAL);
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

static void memory_of_the_gpu(void **state)
{
	static char page[4096] __attribute__((aligned(4096)));
	char seen[4096], zeroes[4096] = { 0 };
	struct gnv_gpu_bytes bytes;
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->mem_alloc(gpu, GPUNVME_MEM_HIP, 4096, &bytes), -EOPNOTSUPP);
	driver->fail = "cuMemAllocAsync";
	driver->error = GNV_CUDA_OUT_OF_MEMORY;
	assert_int_equal(gpu->ops->mem_alloc(gpu, 0, 4096, &bytes), -ENOMEM);
	driver->fail = NULL;
	assert_int_equal(gpu->ops->mem_alloc(gpu, 0, 4000, &bytes), 0);
	assert_int_equal(bytes.len, 4096);
	assert_null(bytes.cpu);
	assert_int_equal(gpu->ops->peek(gpu, seen, bytes.lane, 4096), 0);
	assert_memory_equal(seen, zeroes, 4096);
	assert_int_equal(gpu->ops->mem_check(gpu, bytes.lane, 4096), 0);
	gpu->ops->mem_free(gpu, &bytes);
	assert_int_equal(driver->allocations, 0);
	assert_int_equal(gpu->ops->mem_register(gpu, page, 4096, &bytes), -ENOENT); /* the host's */
	gpunvme_gpu_close(gpu);
}

/* CUDA registers memory once for all its GPUs, in the context of one. That one may be closed first or last. */
static void one_of_two_gpus_goes(unsigned first)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct gpunvme_gpu *gpu[2];
	struct gpunvme_mem *mem;
	uint64_t lane[2];
	int i;

	driver->devices = 2;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu[0]), 0);
	assert_int_equal(gpunvme_gpu_open("cuda:1", NULL, &gpu[1]), 0);
	assert_int_equal(gnv_mem_host_register(page, sizeof(page), &mem), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(gnv_mem_show(mem, gpu[i], 0, sizeof(page), &lane[i]), 0);
	assert_int_equal(gnv_mem_hide(mem, gpu[first]), 0);
	gpunvme_gpu_close(gpu[first]);
	assert_int_equal(driver->registrations, 1);
	assert_int_equal(gnv_mem_hide(mem, gpu[!first]), 0);
	assert_int_equal(driver->registrations, 0);
	assert_int_equal(driver->contexts, 1);
	gpunvme_gpu_close(gpu[!first]);
	gnv_mem_release(mem);
}

static void first_of_two_gpus_goes(void **state)
{
	(void)state;
	one_of_two_gpus_goes(0);
}

static void second_of_two_gpus_goes(void **state)
{
	(void)state;
	one_of_two_gpus_goes(1);
}

/* Memory that the program has registered in part: threads must not run over the end of that. */
static void registered_in_part(void **state)
{
	static char pages[3 * 4096] __attribute__((aligned(4096)));
	struct gnv_gpu_range whole;
	struct gpunvme_gpu *gpu;

	(void)state;
	driver->host.ptr = pages + 4096;
	driver->host.len = 4096;
	driver->host.id = 9;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->host_attach(gpu, pages + 4096, 8192, &whole), -EINVAL); /* its end is not */
	assert_non_null(strstr(gpunvme_errmsg(), "Register all of them, or none"));
	assert_int_equal(gpu->ops->host_attach(gpu, pages, 8192, &whole), -EINVAL); /* nor its begin */
	driver->host.id = 0;
	assert_int_equal(gpu->ops->host_attach(gpu, pages, sizeof(pages), &whole), 0);
	assert_int_equal(gpu->ops->host_detach(gpu, &whole), 0);
	gpunvme_gpu_close(gpu);
}

/* Memory that the library has registered in part. Two neighbours together are no registration either: each may go alone. */
static void mapped_in_part(void **state)
{
	static char pages[3 * 4096] __attribute__((aligned(4096)));
	static const struct {
		size_t offset, len;
	} parts[] = { { 0, 8192 }, { 4096, 8192 }, { 0, 3 * 4096 } };
	struct gnv_gpu_range range[2], whole;
	struct gpunvme_gpu *gpu;
	unsigned i, j;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(gpu->ops->host_attach(gpu, pages + (1 - i) * 4096, 4096, &range[i]), 0);
		for (j = i; j < 3; j++) {
			assert_int_equal(gpu->ops->host_attach(gpu, pages + parts[j].offset, parts[j].len, &whole), -EBUSY);
			assert_non_null(strstr(gpunvme_errmsg(), "is already mapped to a GPU"));
		}
	}
	assert_int_equal(gpu->ops->host_attach(gpu, pages, 8192, &whole), -EBUSY); /* known in two parts */
	for (i = 0; i < 2; i++)
		assert_int_equal(gpu->ops->host_detach(gpu, &range[i]), 0);
	assert_int_equal(gpu->ops->host_attach(gpu, pages, sizeof(pages), &whole), 0);
	assert_int_equal(gpu->ops->host_detach(gpu, &whole), 0);
	gpunvme_gpu_close(gpu);
}

/* Memory that the driver did not unregister: what takes its addresses has other pages, and is not mapped by the old ones. */
static void what_stays_registered_is_not_found_again(void **state)
{
	static char pages[2 * 4096] __attribute__((aligned(4096)));
	struct gnv_gpu_range range, again;
	struct gpunvme_gpu *gpu[2];
	int i;

	(void)state;
	driver->devices = 2;
	for (i = 0; i < 2; i++)
		assert_int_equal(gpunvme_gpu_open(i ? "cuda:1" : "cuda:0", NULL, &gpu[i]), 0);
	assert_int_equal(gpu[0]->ops->host_attach(gpu[0], pages, sizeof(pages), &range), 0);
	driver->fail = "cuMemHostUnregister";
	driver->error = GNV_CUDA_ILLEGAL_ADDRESS;
	assert_int_equal(gpu[0]->ops->host_detach(gpu[0], &range), -EBUSY);
	for (i = 0; i < 2; i++) {
		assert_int_equal(gpu[i]->ops->host_attach(gpu[i], pages, sizeof(pages), &again), -EBUSY);
		assert_int_equal(gpu[i]->ops->host_attach(gpu[i], pages + 4096, 4096, &again), -EBUSY);
		assert_non_null(strstr(gpunvme_errmsg(), "restart the program"));
	}
	driver->fail = NULL;
	assert_int_equal(gpu[0]->ops->host_detach(gpu[0], &range), 0); /* asked again, it lets go */
	assert_int_equal(gpu[1]->ops->host_attach(gpu[1], pages, sizeof(pages), &range), 0);
	assert_int_equal(gpu[1]->ops->host_detach(gpu[1], &range), 0);
	for (i = 0; i < 2; i++)
		gpunvme_gpu_close(gpu[i]);
}

static void count_stays(void *ctx, bool on)
{
	unsigned *stays = ctx;

	stays[on]++;
}

/* The driver waits for all kernels then, so what they wait for has to know: the unregistering of a failure, too. */
static void memory_that_gets_no_address_leaves_as_other_memory(void **state)
{
	static char pages[4096] __attribute__((aligned(4096)));
	static unsigned stays[2];
	static struct gnv_cuda_resident resident = { .stay = count_stays, .ctx = stays };
	struct gnv_gpu_range range;
	struct gnv_cuda *cuda;
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gnv_cuda_open(0, &cuda), 0);
	gnv_cuda_resident_add(cuda, &resident);
	driver->fail = "cuMemHostGetDevicePointer_v2";
	driver->error = GNV_CUDA_ILLEGAL_ADDRESS;
	assert_int_equal(gpu->ops->host_attach(gpu, pages, sizeof(pages), &range), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "host memory cannot be mapped"));
	driver->fail = NULL;
	assert_int_equal(driver->registrations, 0);
	assert_int_equal(stays[true], 1);
	assert_int_equal(stays[false], 1);
	gnv_cuda_resident_remove(&resident);
	assert_int_equal(gpu->ops->host_attach(gpu, pages, sizeof(pages), &range), 0);
	assert_int_equal(gpu->ops->host_detach(gpu, &range), 0);
	gnv_cuda_close(cuda);
	gpunvme_gpu_close(gpu);
}

struct detaching {
	struct gpunvme_gpu *gpu;
	struct gnv_gpu_range *range;
	int ret;
};

static void *detach(void *arg)
{
	struct detaching *d = arg;

	d->ret = d->gpu->ops->host_detach(d->gpu, d->range);
	return NULL;
}

struct running {
	struct gpunvme_gpu *gpu;
	const struct gnv_launch *launch;
	int ret;
};

static void *run_until_told(void *arg)
{
	struct running *r = arg;

	r->ret = r->gpu->ops->launch(r->gpu, r->launch);
	return NULL;
}

/* The driver waits for a kernel before it unregisters memory. Other memory is mapped meanwhile, and that kernel may wait for it. */
static void memory_is_mapped_while_other_memory_leaves(void **state)
{
	static char pages[2 * 4096] __attribute__((aligned(4096)));
	static struct {
		uint32_t go, bell, rung;
	} memory;
	const struct gnv_ring_args args = { .go = (uintptr_t)&memory.go, .doorbell = (uintptr_t)&memory.bell,
					    .rung = (uintptr_t)&memory.rung, .timeout = 1ull << 60, .rings = 1 };
	const struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, 1u << 30, NULL, NULL };
	struct gnv_gpu_range range[2], again;
	struct detaching leaves;
	struct running runs;
	struct gpunvme_gpu *gpu;
	pthread_t kernel, thread;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->host_attach(gpu, pages, 4096, &range[0]), 0);
	runs = (struct running){ gpu, &launch, -1 };
	assert_int_equal(pthread_create(&kernel, NULL, run_until_told, &runs), 0);
	while (!__atomic_load_n(&driver->running, __ATOMIC_ACQUIRE))
		sched_yield();
	leaves = (struct detaching){ gpu, &range[0], -1 };
	assert_int_equal(pthread_create(&thread, NULL, detach, &leaves), 0);
	while (!__atomic_load_n(&driver->waiting, __ATOMIC_ACQUIRE))
		sched_yield();
	assert_int_equal(gpu->ops->host_attach(gpu, pages + 4096, 4096, &range[1]), 0);
	assert_int_equal(gpu->ops->host_attach(gpu, pages, 4096, &again), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "another thread unmaps"));
	assert_int_equal(__atomic_load_n(&driver->running, __ATOMIC_ACQUIRE), 1);
	__atomic_store_n(&memory.go, ~0u, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	pthread_join(kernel, NULL);
	assert_int_equal(runs.ret, 0);
	assert_int_equal(leaves.ret, 0);
	assert_int_equal(gpu->ops->host_detach(gpu, &range[1]), 0);
	gpunvme_gpu_close(gpu);
}

/* A kernel that failed is the end of the context: what comes later says so, and closing ends. */
static void fail_a_kernel(int error, char *page)
{
	static uint32_t memory[1];
	struct gnv_fill_args args = { (uintptr_t)memory, 1, 1, 0 };
	struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 1, PATIENT_MS, NULL, NULL };
	struct gnv_gpu_range range, local;
	struct gpunvme_gpu *gpu;
	uint32_t word;

	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->host_attach(gpu, page, 4096, &range), 0);
	assert_int_equal(gpu->ops->local_alloc(gpu, 4096, &local), 0);
	driver->kernel_error = error;
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "Restart the program"));
	assert_int_equal(gpu->ops->peek(gpu, &word, local.lane, 4), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "a kernel, this one or an earlier one, failed"));
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
	gpu->ops->local_free(gpu, &local, 4096);
	assert_int_equal(gpu->ops->host_detach(gpu, &range), -EBUSY); /* the driver has it still */
	assert_non_null(strstr(gpunvme_errmsg(), "stays registered until the process ends: a kernel"));
	gpunvme_gpu_close(gpu);
	assert_int_equal(driver->registrations, 1);
	assert_int_equal(driver->contexts, 1); /* which holds it */
	driver->forget();
}

static void a_kernel_fails(void **state)
{
	static const int errors[] = { GNV_CUDA_ILLEGAL_ADDRESS, GNV_CUDA_ECC_UNCORRECTABLE, GNV_CUDA_NVLINK_UNCORRECTABLE,
				      GNV_CUDA_CONTAINED, GNV_CUDA_LAUNCH_TIMEOUT, GNV_CUDA_LAUNCH_FAILED };
	static char page[sizeof(errors) / sizeof(errors[0])][4096] __attribute__((aligned(4096))); /* each stays registered */

	(void)state;
	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		fail_a_kernel(errors[i], page[i]);
}

/* What it has registered of a device is not unmapped when that is closed: rings, lists, and the registers with the doorbells. */
static void a_kernel_fails_before_its_device_goes(void **state)
{
	static uint32_t memory[1];
	struct gnv_fill_args args = { (uintptr_t)memory, 1, 1, 0 };
	struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 1, PATIENT_MS, NULL, NULL };
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;
	char uri[300];

	(void)state;
	image_make(image_path("i"), 1 << 20);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("i"));
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	driver->kernel_error = GNV_CUDA_ILLEGAL_ADDRESS;
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
	gpunvme_queue_destroy(qp);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
	assert_true(driver->registrations > 1);
	assert_int_equal(driver->lost(), 0);
	driver->forget();
	remove(image_path("i"));
}

/* Memory that such a kernel may use is not given back: not the caller's, and none of the library's own is unmapped. */
static void its_memory_stays(struct gpunvme_dev *dev, struct gpunvme_mem *theirs, struct gpunvme_mem *ours)
{
	unsigned char *bytes = gpunvme_mem_ptr(ours);

	assert_int_equal(gpunvme_mem_free(theirs), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "keeps them until the process ends"));
	assert_int_equal(gpunvme_mem_free(ours), -EBUSY);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_int_equal(gpunvme_mem_free(theirs), -EBUSY); /* nor later */
	bytes[0] = 1;
}

/* A kernel that does not end: nothing that the driver would have wait for it is asked for, and closing returns. */
static void a_kernel_does_not_end(void **state)
{
	static char bytes[4096] __attribute__((aligned(4096)));
	static struct gpunvme_mem *theirs, *ours; /* they stay, for LeakSanitizer, too */
	static struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	char uri[300];
	static struct {
		uint32_t go, bell, rung;
	} memory;
	const struct gnv_ring_args args = { .go = (uintptr_t)&memory.go, .doorbell = (uintptr_t)&memory.bell,
					    .rung = (uintptr_t)&memory.rung, .timeout = 1ull << 60, .rings = 1 };
	const struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, 50, NULL, NULL };
	const struct gnv_launch list = { GNV_KERNEL_STREAM, NULL, 0, 32, 0, NULL, NULL };
	static char page[2 * 4096] __attribute__((aligned(4096)));
	struct gnv_gpu_range range, late;
	struct gpunvme_gpu *again;

	(void)state;
	driver->devices = 8;
	image_make(image_path("i"), 1 << 20);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("i"));
	assert_int_equal(gpunvme_gpu_open("cuda:7", NULL, &gpu), 0); /* of no other case: such a GPU stays so in this process */
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_mem_register(gpu, bytes, sizeof(bytes), &theirs), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, sizeof(bytes), NULL, &ours), 0);
	assert_int_equal(gpunvme_mem_map(theirs, dev), 0);
	assert_int_equal(gpunvme_mem_map(ours, dev), 0);
	assert_int_equal(gpu->ops->host_attach(gpu, page, 4096, &range), 0);
	assert_int_equal(gpu->ops->launch(gpu, &launch), -ETIMEDOUT);
	assert_int_equal(gpunvme_gpu_open("cuda:7", NULL, &again), -EIO); /* loading code would wait for the kernel */
	assert_non_null(strstr(gpunvme_errmsg(), "did not end"));
	assert_int_equal(gpu->ops->enqueue(gpu, NULL, &list), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "did not end"));
	driver->fail = "cuMemHostGetDevicePointer_v2";
	driver->error = GNV_CUDA_OUT_OF_MEMORY;
	assert_int_equal(gpu->ops->host_attach(gpu, page + 4096, 4096, &late), -ENOMEM);
	driver->fail = NULL;
	assert_int_equal(gpu->ops->host_attach(gpu, page + 4096, 4096, &late), -EBUSY); /* it could not be undone: other memory may be there */
	assert_non_null(strstr(gpunvme_errmsg(), "still registered"));
	assert_int_equal(gpu->ops->host_detach(gpu, &range), -EBUSY);
	its_memory_stays(dev, theirs, ours);
	gpunvme_gpu_close(gpu);
	assert_int_equal(driver->running, 1);
	assert_int_equal(driver->contexts, 5); /* of the GPU, and of the four registrations */
	assert_int_equal(driver->modules, 1);
	assert_int_equal(driver->registrations, 4);
	__atomic_store_n(&memory.go, ~0u, __ATOMIC_RELEASE);
	while (__atomic_load_n(&driver->running, __ATOMIC_ACQUIRE) || __atomic_load_n(&driver->streams, __ATOMIC_ACQUIRE) > 1)
		;
	driver->forget();
}

/*
 * The driver waits for the kernels of the GPU that registered memory, whichever handle launched them. The handles: one whose kernel
 * does not end, one of the same GPU that has registered memory, one of another GPU.
 */
static void another_handle_has_a_kernel_that_does_not_end(void **state)
{
	static char pages[2 * 4096] __attribute__((aligned(4096)));
	static struct {
		uint32_t go, bell, rung;
	} memory;
	const struct gnv_ring_args args = { .go = (uintptr_t)&memory.go, .doorbell = (uintptr_t)&memory.bell,
					    .rung = (uintptr_t)&memory.rung, .timeout = 1ull << 60, .rings = 1 };
	const struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, 50, NULL, NULL };
	static const char *const names[] = { "cuda:6", "cuda:6", "cuda:0" };
	struct gnv_gpu_range first, second, shared;
	struct gpunvme_gpu *gpu[3];
	int i;

	(void)state;
	driver->devices = 8;
	for (i = 0; i < 3; i++)
		assert_int_equal(gpunvme_gpu_open(names[i], NULL, &gpu[i]), 0);
	assert_int_equal(gpu[1]->ops->host_attach(gpu[1], pages, 4096, &first), 0);
	assert_int_equal(gpu[1]->ops->host_attach(gpu[1], pages + 4096, 4096, &second), 0);
	assert_int_equal(gpu[2]->ops->host_attach(gpu[2], pages, 4096, &shared), 0);
	assert_int_equal(gpu[1]->ops->host_detach(gpu[1], &first), 0);
	assert_int_equal(gpu[0]->ops->launch(gpu[0], &launch), -ETIMEDOUT);
	assert_int_equal(gpu[2]->ops->host_detach(gpu[2], &shared), -EBUSY);
	assert_int_equal(gpu[1]->ops->host_detach(gpu[1], &second), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "did not end"));
	for (i = 0; i < 3; i++)
		gpunvme_gpu_close(gpu[i]);
	assert_int_equal(driver->running, 1);
	assert_int_equal(driver->registrations, 2);
	__atomic_store_n(&memory.go, ~0u, __ATOMIC_RELEASE);
	while (__atomic_load_n(&driver->running, __ATOMIC_ACQUIRE))
		sched_yield();
	driver->forget();
}

/*
 * gpunvme_mem_get(): an allocation is known by its number. Freed and given out again at the same address it has another one, and what
 * was mapped for the old one is not found.
 */
static void allocations_by_their_number(void **state)
{
	struct gpunvme_mem_cache_info info = { .size = sizeof(info) };
	struct gpunvme_mem_use use;
	struct gpunvme_mem *first;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	char uri[300];

	image_make(image_path("i"), 1 << 20);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("i"));
	driver->host.ptr = aligned_alloc(65536, 4 * 65536);
	driver->host.len = 3 * 65536 + 4096;
	driver->host.id = 7;
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_mem_get(gpu, dev, driver->host.ptr + 3 * 65536 + 100, 8, 0, &use), 0);
	assert_int_equal(use.offset, 100);
	assert_int_equal(use.dbuf.len, 4096); /* a part as far as it goes */
	assert_int_equal(gpunvme_mem_put(&use), 0);
	assert_int_equal(gpunvme_mem_get(gpu, dev, driver->host.ptr, 8, 0, &use), 0);
	assert_int_equal(use.dbuf.len, 65536);
	first = use.mem;
	assert_int_equal(gpunvme_mem_put(&use), 0);
	assert_int_equal(gpunvme_mem_get(gpu, dev, driver->host.ptr + 4096, 8, 0, &use), 0);
	assert_ptr_equal(use.mem, first);
	driver->host.id = 8; /* freed while it is in use, too */
	assert_int_equal(gpunvme_mem_put(&use), 0);
	assert_int_equal(gpunvme_mem_get(gpu, dev, driver->host.ptr, 8, 0, &use), 0);
	assert_int_equal(gpunvme_mem_cache_get_info(dev, &info), 0);
	assert_int_equal(info.hits, 1);
	assert_int_equal(info.misses, 3);
	assert_true(info.stale >= 1);
	assert_int_equal(info.entries, 2);
	assert_int_equal(gpunvme_mem_put(&use), 0);
	driver->host.id = 0; /* nobody's any more: as memory of malloc() */
	assert_int_equal(gpunvme_mem_get(gpu, dev, driver->host.ptr, 8, 0, &use), 0);
	assert_int_equal(gpunvme_mem_put(&use), 0);
	assert_int_equal(gpunvme_mem_cache_forget(dev, NULL, 0), 0);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	free(driver->host.ptr);
	remove(image_path("i"));
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(registered_in_part, reset, check),
		cmocka_unit_test_setup_teardown(what_stays_registered_is_not_found_again, reset, check),
		cmocka_unit_test_setup_teardown(memory_that_gets_no_address_leaves_as_other_memory, reset, check),
		cmocka_unit_test_setup_teardown(a_kernel_fails, reset, check),
		cmocka_unit_test_setup_teardown(a_kernel_fails_before_its_device_goes, reset, check),
		cmocka_unit_test_setup_teardown(a_kernel_does_not_end, reset, check),
		cmocka_unit_test_setup_teardown(another_handle_has_a_kernel_that_does_not_end, reset, check),
		cmocka_unit_test_setup_teardown(open_says_what_it_is, reset, check),
		cmocka_unit_test_setup_teardown(bad_specs_are_refused, reset, check),
		cmocka_unit_test_setup_teardown(machines_without_are_refused, reset, check),
		cmocka_unit_test_setup_teardown(every_failing_step_of_open_leaves_nothing, reset, check),
		cmocka_unit_test_setup_teardown(memory_and_kernels_fail_cleanly, reset, check),
		cmocka_unit_test_setup_teardown(registers_of_others, reset, check),
		cmocka_unit_test_setup_teardown(memory_of_the_gpu, reset, check),
		cmocka_unit_test_setup_teardown(first_of_two_gpus_goes, reset, check),
		cmocka_unit_test_setup_teardown(second_of_two_gpus_goes, reset, check),
		cmocka_unit_test_setup_teardown(mapped_in_part, reset, check),
		cmocka_unit_test_setup_teardown(memory_is_mapped_while_other_memory_leaves, reset, check),
		cmocka_unit_test_setup_teardown(allocations_by_their_number, reset, check),
	};

	return cmocka_run_group_tests(tests, begin, finish);
}
