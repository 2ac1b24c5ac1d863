/* SPDX-License-Identifier: MIT */
/* Invariant: between enter() and leave() the GPU's primary context is the thread's current one, and only then. */
#include "os/nvidia/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/dl.h"
#include "os/linux/sys.h"
#include "os/nvidia/uapi/cuda.h"
#include "util/clock.h"
#include "util/log.h"

#define KERNELS_MAX 32
#define CAPABILITY_MIN 75 /* what the code is compiled for, and the memory model it needs */

struct api {
	gnv_cuda_init_fn *init;
	gnv_cuda_error_fn *error;
	gnv_cuda_count_fn *count;
	gnv_cuda_device_fn *device;
	gnv_cuda_name_fn *name;
	gnv_cuda_attribute_fn *attribute;
	gnv_cuda_retain_fn *retain;
	gnv_cuda_release_fn *release;
	gnv_cuda_push_fn *push;
	gnv_cuda_pop_fn *pop;
	gnv_cuda_load_fn *load;
	gnv_cuda_unload_fn *unload;
	gnv_cuda_function_fn *function;
	gnv_cuda_launch_fn *launch;
	gnv_cuda_stream_create_fn *stream_create;
	gnv_cuda_stream_fn *stream_destroy;
	gnv_cuda_stream_fn *stream_query;
	gnv_cuda_stream_fn *stream_wait;
	gnv_cuda_register_fn *host_register;
	gnv_cuda_unregister_fn *host_unregister;
	gnv_cuda_host_pointer_fn *host_pointer;
	gnv_cuda_alloc_fn *alloc;
	gnv_cuda_free_fn *free;
	gnv_cuda_set_fn *set;
	gnv_cuda_to_device_fn *to_device;
	gnv_cuda_from_device_fn *from_device;
	gnv_cuda_pointer_fn *pointer;
};

struct gnv_cuda {
	struct api api;
	int device;
	void *context, *stream, *module; /* the stream is for copies */
	void *kernel[KERNELS_MAX];
	char name[64];
	bool stuck; /* atomic: a kernel did not end; what waits for that is not called any more */
};

#define FUNCTION(field, name)                                                                                                      \
	{                                                                                                                          \
		name, offsetof(struct api, field), false                                                                           \
	}
static const struct gnv_dl_symbol symbols[] = {
	FUNCTION(init, "cuInit"),
	FUNCTION(error, "cuGetErrorString"),
	FUNCTION(count, "cuDeviceGetCount"),
	FUNCTION(device, "cuDeviceGet"),
	FUNCTION(name, "cuDeviceGetName"),
	FUNCTION(attribute, "cuDeviceGetAttribute"),
	FUNCTION(retain, "cuDevicePrimaryCtxRetain"),
	FUNCTION(release, "cuDevicePrimaryCtxRelease_v2"),
	FUNCTION(push, "cuCtxPushCurrent_v2"),
	FUNCTION(pop, "cuCtxPopCurrent_v2"),
	FUNCTION(load, "cuModuleLoadDataEx"),
	FUNCTION(unload, "cuModuleUnload"),
	FUNCTION(function, "cuModuleGetFunction"),
	FUNCTION(launch, "cuLaunchKernel"),
	FUNCTION(stream_create, "cuStreamCreate"),
	FUNCTION(stream_destroy, "cuStreamDestroy_v2"),
	FUNCTION(stream_query, "cuStreamQuery"),
	FUNCTION(stream_wait, "cuStreamSynchronize"),
	FUNCTION(host_register, "cuMemHostRegister_v2"),
	FUNCTION(host_unregister, "cuMemHostUnregister"),
	FUNCTION(host_pointer, "cuMemHostGetDevicePointer_v2"),
	FUNCTION(alloc, "cuMemAllocAsync"),
	FUNCTION(free, "cuMemFreeAsync"),
	FUNCTION(set, "cuMemsetD8Async"),
	FUNCTION(to_device, "cuMemcpyHtoDAsync_v2"),
	FUNCTION(from_device, "cuMemcpyDtoHAsync_v2"),
	FUNCTION(pointer, "cuPointerGetAttribute"),
	{ NULL, 0, false },
};
static const char *const files[] = { "libcuda.so.1", "libcuda.so", NULL };
static const struct gnv_dl library = { "the CUDA driver (libcuda)", "GPUNVME_CUDA_LIBRARY", files, symbols };

/* After these "any further CUDA work will return the same error": an address, an instruction or a time-out of a kernel. */
static bool is_final(int error)
{
	return error == GNV_CUDA_ILLEGAL_ADDRESS || error == GNV_CUDA_LAUNCH_TIMEOUT || error == GNV_CUDA_ASSERT ||
	       (error >= GNV_CUDA_HARDWARE_STACK_ERROR && error <= GNV_CUDA_LAUNCH_FAILED);
}

static int failed(const struct gnv_cuda *cuda, const char *what, int error)
{
	const char *text = NULL;
	int ret = -EIO;

	if (error == GNV_CUDA_OUT_OF_MEMORY)
		ret = -ENOMEM;
	else if (error == GNV_CUDA_NOT_SUPPORTED || error == GNV_CUDA_NOT_PERMITTED)
		ret = -EOPNOTSUPP;
	else if (error == GNV_CUDA_NO_DEVICE || error == GNV_CUDA_INVALID_DEVICE)
		ret = -ENODEV;
	cuda->api.error(error, &text);
	if (is_final(error))
		return gnv_fail(-EIO,
				"CUDA: %s: a kernel, this one or an earlier one, failed: %s (%d); start the program anew, for nothing more "
				"of it runs on this GPU",
				what, text ? text : "unknown", error);
	return gnv_fail(ret, "CUDA: %s: %s (%d)", what, text ? text : "unknown", error);
}

static bool is_stuck(const struct gnv_cuda *cuda)
{
	return __atomic_load_n(&cuda->stuck, __ATOMIC_ACQUIRE);
}

static int enter(struct gnv_cuda *cuda)
{
	int error = cuda->api.push(cuda->context);

	return error ? failed(cuda, "cuCtxPushCurrent", error) : 0;
}

static void leave(struct gnv_cuda *cuda)
{
	void *context;

	cuda->api.pop(&context);
}

static int choose_device(struct gnv_cuda *cuda, unsigned index)
{
	int count = 0, major = 0, minor = 0, pools = 0, error = cuda->api.init(0);

	if (!error)
		error = cuda->api.count(&count);
	if (error)
		return failed(cuda, "no GPU can be used", error);
	if (index >= (unsigned)count)
		return gnv_fail(-ENODEV, "gpu 'cuda:%u' is not there: CUDA has %d GPUs, numbered from 0", index, count);
	error = cuda->api.device(&cuda->device, (int)index);
	if (!error)
		error = cuda->api.name(cuda->name, sizeof(cuda->name), cuda->device);
	if (!error)
		error = cuda->api.attribute(&major, GNV_CUDA_CAPABILITY_MAJOR, cuda->device);
	if (!error)
		error = cuda->api.attribute(&minor, GNV_CUDA_CAPABILITY_MINOR, cuda->device);
	if (!error)
		error = cuda->api.attribute(&pools, GNV_CUDA_MEMORY_POOLS, cuda->device);
	if (error)
		return failed(cuda, "the GPU does not say what it is", error);
	if (10 * major + minor < CAPABILITY_MIN)
		return gnv_fail(-EOPNOTSUPP, "%s has compute capability %d.%d; the library needs 7.5 or newer", cuda->name, major, minor);
	if (!pools)
		return gnv_fail(-EOPNOTSUPP, "the driver of %s has no memory pools here, so its memory cannot be had without a halt",
				cuda->name);
	return 0;
}

int gnv_cuda_open(unsigned index, struct gnv_cuda **out)
{
	struct gnv_cuda *cuda = calloc(1, sizeof(*cuda));
	int ret, error;

	if (!cuda)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_dl_load(&library, &cuda->api);
	if (!ret)
		ret = choose_device(cuda, index);
	if (ret)
		goto free_cuda;
	error = cuda->api.retain(&cuda->context, cuda->device);
	if (error) {
		ret = failed(cuda, "cuDevicePrimaryCtxRetain", error);
		goto free_cuda;
	}
	ret = enter(cuda);
	if (ret)
		goto release_context;
	error = cuda->api.stream_create(&cuda->stream, GNV_CUDA_STREAM_NON_BLOCKING);
	leave(cuda);
	if (error) {
		ret = failed(cuda, "cuStreamCreate", error);
		goto release_context;
	}
	*out = cuda;
	return 0;

release_context:
	cuda->api.release(cuda->device);
free_cuda:
	free(cuda);
	return ret;
}

/*
 * Code and context are taken away when nothing runs, and the driver waits for that without limit: after a kernel that did not end
 * both stay until the process ends.
 */
void gnv_cuda_close(struct gnv_cuda *cuda)
{
	bool stuck = is_stuck(cuda);

	if (!stuck && !enter(cuda)) {
		if (cuda->module)
			cuda->api.unload(cuda->module);
		cuda->api.stream_destroy(cuda->stream);
		leave(cuda);
	}
	if (!stuck)
		cuda->api.release(cuda->device);
	free(cuda);
}

const char *gnv_cuda_name(const struct gnv_cuda *cuda)
{
	return cuda->name;
}

/* ---- Kernels ---- */

static int load(struct gnv_cuda *cuda, const char *ptx, const char *const *names, unsigned count)
{
	char log[512] = "";
	int option[] = { GNV_CUDA_JIT_ERROR_LOG, GNV_CUDA_JIT_ERROR_LOG_SIZE };
	void *value[] = { log, (void *)(uintptr_t)sizeof(log) };
	int error = cuda->api.load(&cuda->module, ptx, 2, option, value);
	unsigned i;

	if (error) {
		cuda->module = NULL;
		log[sizeof(log) - 1] = '\0';
		log[strcspn(log, "\n")] = '\0';
		failed(cuda, "cuModuleLoadDataEx", error);
		return gnv_fail(error == GNV_CUDA_OUT_OF_MEMORY ? -ENOMEM : -EOPNOTSUPP,
				"%s or its driver cannot use the library's kernels (CUDA error %d): %s", cuda->name, error, log);
	}
	for (i = 0; i < count && !error; i++)
		error = cuda->api.function(&cuda->kernel[i], cuda->module, names[i]);
	return error ? failed(cuda, names[i - 1], error) : 0;
}

int gnv_cuda_load(struct gnv_cuda *cuda, const char *ptx, const char *const *names, unsigned count)
{
	int ret;

	if (count > KERNELS_MAX)
		return gnv_fail(-EINVAL, "%u kernels are too many", count);
	ret = enter(cuda);
	if (ret)
		return ret;
	ret = load(cuda, ptx, names, count);
	leave(cuda);
	return ret;
}

/* Return: CUDA's answer, GNV_CUDA_NOT_READY when the time is over. */
static int wait_for_end(struct gnv_cuda *cuda, const struct gnv_cuda_job *job, void *stream)
{
	struct gnv_deadline deadline;
	int error;

	do {
		deadline = gnv_deadline_in(job->timeout_ms);
		do
			error = cuda->api.stream_query(stream);
		while (error == GNV_CUDA_NOT_READY && gnv_deadline_poll_again(&deadline));
	} while (error == GNV_CUDA_NOT_READY && job->gets_on && job->gets_on(job->ctx));
	return error;
}

/* The stream is given back when what it runs has ended, also when nobody waits for that any more. */
static int run(struct gnv_cuda *cuda, const struct gnv_cuda_job *job)
{
	void *params[] = { (void *)(uintptr_t)job->args }, *stream;
	int error = cuda->api.stream_create(&stream, GNV_CUDA_STREAM_NON_BLOCKING);

	if (error)
		return failed(cuda, "cuStreamCreate", error);
	error = cuda->api.launch(cuda->kernel[job->kernel], job->groups, 1, 1, job->group_lanes, 1, 1, 0, stream, params, NULL);
	if (!error)
		error = wait_for_end(cuda, job, stream);
	cuda->api.stream_destroy(stream);
	if (error != GNV_CUDA_NOT_READY)
		return error ? failed(cuda, "a kernel", error) : 0;
	__atomic_store_n(&cuda->stuck, true, __ATOMIC_RELEASE);
	return gnv_fail(-ETIMEDOUT, "a kernel on %s did not end within %u ms", cuda->name, job->timeout_ms);
}

int gnv_cuda_launch(struct gnv_cuda *cuda, const struct gnv_cuda_job *job)
{
	int ret = enter(cuda);

	if (ret)
		return ret;
	ret = run(cuda, job);
	leave(cuda);
	return ret;
}

/* ---- Memory ---- */

/* All pages of it: memory that a program registered before may end earlier, and what CUDA allocated within the last one. */
static int find_host(struct gnv_cuda *cuda, void *ptr, size_t len, uint64_t *at)
{
	const size_t page = (len - 1) & ~(gnv_sys_page_size() - 1);
	uint64_t last = 0;
	int error = cuda->api.host_pointer(at, ptr, 0);

	if (!error)
		error = cuda->api.host_pointer(&last, (char *)ptr + page, 0);
	return !error && last != *at + page ? GNV_CUDA_INVALID_VALUE : error;
}

int gnv_cuda_register(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours)
{
	unsigned flags = GNV_CUDA_REGISTER_PORTABLE | GNV_CUDA_REGISTER_DEVICEMAP | (io ? GNV_CUDA_REGISTER_IOMEMORY : 0);
	int ret = enter(cuda), error;
	bool theirs;

	if (ret)
		return ret;
	error = cuda->api.host_register(ptr, len, flags);
	*ours = !error;
	theirs = error == GNV_CUDA_ALREADY_REGISTERED;
	if (*ours)
		error = cuda->api.host_pointer(at, ptr, 0);
	else if (theirs)
		error = find_host(cuda, ptr, len, at);
	if (error && *ours)
		cuda->api.host_unregister(ptr);
	leave(cuda);
	if (!error)
		return 0;
	if (theirs && error == GNV_CUDA_INVALID_VALUE)
		return gnv_fail(-EINVAL, "of %zu bytes at %p the program has registered a part with CUDA; register all of them, or none", len,
				ptr);
	ret = failed(cuda, io ? "registers of a device cannot be mapped" : "host memory cannot be mapped", error);
	return error == GNV_CUDA_INVALID_VALUE ? -EOPNOTSUPP : ret;
}

/*
 * The driver waits until no kernel runs, so after one that did not end it is not asked. Were the bytes given back all the same, who
 * gets their addresses next would find other pages registered there than the process has.
 */
int gnv_cuda_unregister(struct gnv_cuda *cuda, void *ptr)
{
	int error;

	if (is_stuck(cuda))
		return gnv_fail(-EBUSY, "a kernel on %s did not end, and may still use the memory at %p", cuda->name, ptr);
	if (enter(cuda))
		return -EBUSY;
	error = cuda->api.host_unregister(ptr);
	leave(cuda);
	if (!error || error == GNV_CUDA_NOT_REGISTERED) /* the program has done it */
		return 0;
	failed(cuda, "host memory stays registered until the process ends", error);
	return -EBUSY;
}

int gnv_cuda_alloc(struct gnv_cuda *cuda, size_t len, uint64_t *at)
{
	int ret = enter(cuda), error;

	if (ret)
		return ret;
	error = cuda->api.alloc(at, len, cuda->stream);
	if (!error) {
		error = cuda->api.set(*at, 0, len, cuda->stream);
		if (!error)
			error = cuda->api.stream_wait(cuda->stream);
		if (error)
			cuda->api.free(*at, cuda->stream);
	}
	leave(cuda);
	return error ? failed(cuda, "memory of the GPU", error) : 0;
}

void gnv_cuda_free(struct gnv_cuda *cuda, uint64_t at)
{
	if (enter(cuda))
		return;
	cuda->api.free(at, cuda->stream);
	leave(cuda);
}

int gnv_cuda_read(struct gnv_cuda *cuda, void *to, uint64_t at, size_t len)
{
	int ret = enter(cuda), error;

	if (ret)
		return ret;
	error = cuda->api.from_device(to, at, len, cuda->stream);
	if (!error)
		error = cuda->api.stream_wait(cuda->stream);
	leave(cuda);
	return error ? failed(cuda, "cuMemcpyDtoHAsync", error) : 0;
}

int gnv_cuda_write(struct gnv_cuda *cuda, uint64_t at, const void *from, size_t len)
{
	int ret = enter(cuda), error;

	if (ret)
		return ret;
	error = cuda->api.to_device(at, from, len, cuda->stream);
	if (!error)
		error = cuda->api.stream_wait(cuda->stream);
	leave(cuda);
	return error ? failed(cuda, "cuMemcpyHtoDAsync", error) : 0;
}

static bool ask(struct gnv_cuda *cuda, const void *ptr, int attribute, void *value)
{
	int error;

	if (enter(cuda))
		return false;
	error = cuda->api.pointer(value, attribute, (uintptr_t)ptr);
	leave(cuda);
	return !error;
}

uint64_t gnv_cuda_tag(struct gnv_cuda *cuda, const void *ptr)
{
	uint64_t tag = 0;

	/* Drivers have been seen to answer without a context, in half the time. */
	if (!cuda->api.pointer(&tag, GNV_CUDA_POINTER_TAG, (uintptr_t)ptr))
		return tag;
	return ask(cuda, ptr, GNV_CUDA_POINTER_TAG, &tag) ? tag : 0;
}

bool gnv_cuda_allocation(struct gnv_cuda *cuda, const void *ptr, struct gnv_alloc *alloc)
{
	uint64_t tag = gnv_cuda_tag(cuda, ptr);
	gnv_cuda_ptr base = 0;
	size_t len = 0;

	if (!tag || !ask(cuda, ptr, GNV_CUDA_POINTER_BASE, &base) || !ask(cuda, ptr, GNV_CUDA_POINTER_LEN, &len))
		return false;
	if ((uintptr_t)ptr < base || (uintptr_t)ptr - base >= len)
		return false; /* known to the GPU by another address than to the CPU */
	alloc->tag = tag;
	alloc->base = base;
	alloc->len = len;
	return true;
}

bool gnv_cuda_is_device_memory(struct gnv_cuda *cuda, const void *ptr)
{
	unsigned type = 0;

	return ask(cuda, ptr, GNV_CUDA_POINTER_MEMORY_TYPE, &type) && type == GNV_CUDA_MEMORY_DEVICE;
}
