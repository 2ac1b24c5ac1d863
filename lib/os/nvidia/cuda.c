/* SPDX-License-Identifier: MIT */
/* Invariant: between gnv_cuda_enter() and gnv_cuda_leave() the GPU's primary context is the thread's current one, and only then. */
#include "os/nvidia/cuda_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/dl.h"
#include "util/log.h"

#define CAPABILITY_MIN 75 /* for which the code is compiled, with the memory model it needs */

#define SYMBOL(field, type, name) { name, offsetof(struct gnv_cuda_api, field), false },
#define NEWER(field, type, name) { name, offsetof(struct gnv_cuda_api, field), true },
static const struct gnv_dl_symbol symbols[] = { GNV_CUDA_FUNCTIONS(SYMBOL) GNV_CUDA_NEWER_FUNCTIONS(NEWER) { NULL, 0, false } };
static const char *const files[] = { "libcuda.so.1", "libcuda.so", NULL };
static const struct gnv_dl library = { "the CUDA driver (libcuda)", "GPUNVME_CUDA_LIBRARY", files, symbols };

/*
 * After these "any further CUDA work will return the same error": an address, an instruction or a time-out of a kernel, and errors
 * of the hardware. cuda.h does not say so of the two that are uncorrectable, but a GPU that lost data of the program cannot go on.
 */
static bool is_final(int error)
{
	switch (error) {
	case GNV_CUDA_ECC_UNCORRECTABLE:
	case GNV_CUDA_NVLINK_UNCORRECTABLE:
	case GNV_CUDA_CONTAINED:
	case GNV_CUDA_ILLEGAL_ADDRESS:
	case GNV_CUDA_LAUNCH_TIMEOUT:
	case GNV_CUDA_ASSERT:
		return true;
	default:
		return error >= GNV_CUDA_HARDWARE_STACK_ERROR && error <= GNV_CUDA_LAUNCH_FAILED;
	}
}

int gnv_cuda_failed(const struct gnv_cuda *cuda, const char *what, int error)
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
				"CUDA: %s: a kernel, this one or an earlier one, failed: %s (%d). Restart the program, because nothing more "
				"of it runs on this GPU",
				what, text ? text : "unknown", error);
	return gnv_fail(ret, "CUDA: %s: %s (%d)", what, text ? text : "unknown", error);
}

int gnv_cuda_failed_here(struct gnv_cuda *cuda, const char *what, int error)
{
	if (is_final(error))
		__atomic_store_n(&cuda->over, true, __ATOMIC_RELEASE);
	return gnv_cuda_failed(cuda, what, error);
}

bool gnv_cuda_is_over(const struct gnv_cuda *cuda)
{
	return __atomic_load_n(&cuda->over, __ATOMIC_ACQUIRE);
}

/* Of each GPU, its handles with a kernel that did not end: those that are closed, too (atomic). */
static uint32_t stuck_handles[GNV_CUDA_GPUS];

bool gnv_cuda_is_stuck(unsigned gpu)
{
	return __atomic_load_n(&stuck_handles[gpu], __ATOMIC_ACQUIRE);
}

static int check_stuck(const struct gnv_cuda *cuda)
{
	if (!gnv_cuda_is_stuck(cuda->gpu))
		return 0;
	return gnv_fail(-EIO, "a kernel of this process on %s did not end, and nothing more can be loaded there. Restart the program",
			cuda->name);
}

void gnv_cuda_set_stuck(struct gnv_cuda *cuda, bool stuck)
{
	if (__atomic_exchange_n(&cuda->stuck, stuck, __ATOMIC_ACQ_REL) != stuck)
		__atomic_fetch_add(&stuck_handles[cuda->gpu], stuck ? 1 : ~0u, __ATOMIC_ACQ_REL);
}

static _Thread_local unsigned entered; /* contexts that this thread has entered */
static _Thread_local int mode_before; /* its mode outside of them */

/*
 * With any other mode memory, waits and the end of code fail while this thread captures a stream, or another thread does so for all
 * threads (CU_STREAM_CAPTURE_MODE_GLOBAL). The capture is then lost (driver 580).
 */
int gnv_cuda_push(const struct gnv_cuda *cuda, void *context)
{
	int mode = GNV_CUDA_CAPTURE_RELAXED;
	int error = entered ? 0 : cuda->api.capture_mode(&mode);

	if (error)
		return error;
	error = cuda->api.push(context);
	if (error) {
		if (!entered)
			cuda->api.capture_mode(&mode);
		return error;
	}
	if (!entered++)
		mode_before = mode;
	return 0;
}

int gnv_cuda_enter(struct gnv_cuda *cuda)
{
	int error = gnv_cuda_push(cuda, cuda->context);

	return error ? gnv_cuda_failed(cuda, "the context of the GPU", error) : 0;
}

void gnv_cuda_leave(struct gnv_cuda *cuda)
{
	void *context;

	cuda->api.pop(&context);
	if (!--entered)
		cuda->api.capture_mode(&mode_before);
}

static int choose_device(struct gnv_cuda *cuda, unsigned index)
{
	int count = 0, major = 0, minor = 0, pools = 0, error = cuda->api.init(0);

	if (!error)
		error = cuda->api.count(&count);
	if (error)
		return gnv_cuda_failed(cuda, "no GPU can be used", error);
	if (index >= (unsigned)count || index >= GNV_CUDA_GPUS)
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
		return gnv_cuda_failed(cuda, "the GPU does not report its capability", error);
	if (10 * major + minor < CAPABILITY_MIN)
		return gnv_fail(-EOPNOTSUPP, "%s has compute capability %d.%d, but the library needs 7.5 or newer", cuda->name, major, minor);
	if (!pools)
		return gnv_fail(-EOPNOTSUPP, "the driver of %s has no memory pools here, so its memory cannot be had without a halt",
				cuda->name);
	return 0;
}

static int cannot_retain(const struct gnv_cuda *cuda, int error)
{
	if (error != GNV_CUDA_UNAVAILABLE)
		return gnv_cuda_failed(cuda, "cuDevicePrimaryCtxRetain", error);
	return gnv_fail(-EIO,
			"%s is not available to this process: another process has it alone (exclusive compute mode), or no process may use it. "
			"End that process, or allow all by nvidia-smi --compute-mode=0",
			gnv_cuda_name(cuda));
}

int gnv_cuda_open(unsigned index, struct gnv_cuda **out)
{
	struct gnv_cuda *cuda = calloc(1, sizeof(*cuda));
	int ret, error;

	if (!cuda)
		return gnv_fail(-ENOMEM, "out of memory");
	cuda->gpu = index;
	pthread_mutex_init(&cuda->loading, NULL);
	ret = gnv_dl_load(&library, &cuda->api);
	if (!ret)
		ret = choose_device(cuda, index);
	if (!ret)
		ret = check_stuck(cuda); /* its context could not be given back */
	if (ret)
		goto free_cuda;
	error = cuda->api.retain(&cuda->context, cuda->device);
	if (error) {
		ret = cannot_retain(cuda, error);
		goto free_cuda;
	}
	ret = gnv_cuda_enter(cuda);
	if (ret)
		goto release_context;
	error = cuda->api.stream_create(&cuda->stream, GNV_CUDA_STREAM_NON_BLOCKING);
	gnv_cuda_leave(cuda);
	if (error) {
		ret = gnv_cuda_failed(cuda, "cuStreamCreate", error);
		goto release_context;
	}
	*out = cuda;
	return 0;

release_context:
	cuda->api.release(cuda->device);
free_cuda:
	pthread_mutex_destroy(&cuda->loading);
	free(cuda);
	return ret;
}

/* Nothing runs in the context, or its last kernel has failed. */
static void end_use(struct gnv_cuda *cuda)
{
	if (!gnv_cuda_enter(cuda)) {
		while (cuda->modules)
			cuda->api.unload(cuda->module[--cuda->modules]);
		cuda->api.stream_destroy(cuda->stream);
		gnv_cuda_leave(cuda);
	}
	cuda->api.release(cuda->device);
}

/*
 * Code and context are taken away when nothing runs, and the driver waits for that without limit: after a kernel that did not end
 * both stay until the process ends.
 */
int gnv_cuda_close(struct gnv_cuda *cuda)
{
	bool began;
	int ret;

	cuda->bounded |= gnv_cuda_has_resident(cuda->gpu);
	ret = gnv_cuda_wait_begins(cuda, cuda->gpu, cuda->context, &began);
	if (!ret) {
		if (!gnv_cuda_is_stuck(cuda->gpu))
			end_use(cuda);
		gnv_cuda_wait_ends(cuda->gpu, began);
	} else if (!cuda->modules && !gnv_cuda_is_stuck(cuda->gpu)) {
		end_use(cuda); /* whose kernel runs holds the context, and neither of the two calls waits (driver 580) */
		ret = 0;
	}
	pthread_mutex_destroy(&cuda->loading);
	free(cuda);
	return ret;
}

const char *gnv_cuda_name(const struct gnv_cuda *cuda)
{
	return cuda->name;
}

/* ---- Kernels ---- */

static int compile(struct gnv_cuda *cuda, const char *ptx, void **module)
{
	char log[512] = "";
	int option[] = { GNV_CUDA_JIT_ERROR_LOG, GNV_CUDA_JIT_ERROR_LOG_SIZE };
	void *value[] = { log, (void *)(uintptr_t)sizeof(log) };
	int error = cuda->api.load(module, ptx, 2, option, value);

	if (!error)
		return 0;
	if (is_final(error))
		return gnv_cuda_failed_here(cuda, "cuModuleLoadDataEx", error);
	log[sizeof(log) - 1] = '\0';
	log[strcspn(log, "\n")] = '\0';
	return gnv_fail(error == GNV_CUDA_OUT_OF_MEMORY ? -ENOMEM : -EOPNOTSUPP,
			"%s or its driver cannot use the library's kernels (CUDA error %d): %s", cuda->name, error, log);
}

/* The first one is the mark that all are there. */
static int find_kernels(struct gnv_cuda *cuda, const struct gnv_cuda_code *code, void *module)
{
	void **to = &cuda->kernel[code->first], *kernel[GNV_CUDA_KERNELS];
	int error = 0;
	unsigned i;

	for (i = 0; i < code->count && !error; i++)
		error = cuda->api.function(&kernel[i], module, code->names[code->first + i]);
	if (error)
		return gnv_cuda_failed_here(cuda, code->names[code->first + i - 1], error);
	memcpy(to + 1, kernel + 1, (code->count - 1) * sizeof(*to));
	__atomic_store_n(to, kernel[0], __ATOMIC_RELEASE); /* partner: is_loaded() */
	return 0;
}

static bool is_loaded(const struct gnv_cuda *cuda, const struct gnv_cuda_code *code)
{
	return __atomic_load_n(&cuda->kernel[code->first], __ATOMIC_ACQUIRE);
}

static int load(struct gnv_cuda *cuda, const struct gnv_cuda_code *code)
{
	void *module;
	bool began;
	int ret = gnv_cuda_wait_begins(cuda, cuda->gpu, cuda->context, &began);

	if (ret)
		return ret;
	ret = check_stuck(cuda); /* the driver would wait for that kernel */
	if (!ret)
		ret = compile(cuda, code->ptx, &module);
	if (ret)
		goto out;
	ret = find_kernels(cuda, code, module);
	if (ret)
		cuda->api.unload(module);
	else
		cuda->module[cuda->modules++] = module;
out:
	gnv_cuda_wait_ends(cuda->gpu, began);
	return ret;
}

/* Under the lock. */
static int load_here(struct gnv_cuda *cuda, const struct gnv_cuda_code *code)
{
	int ret;

	if (is_loaded(cuda, code))
		return 0;
	if (!code->count || code->first + code->count > GNV_CUDA_KERNELS || cuda->modules == GNV_CUDA_MODULES)
		return gnv_fail(-EINVAL, "%u kernels from number %u on in module %u are too many", code->count, code->first, cuda->modules);
	ret = gnv_cuda_enter(cuda);
	if (ret)
		return ret;
	ret = load(cuda, code);
	gnv_cuda_leave(cuda);
	return ret;
}

int gnv_cuda_load(struct gnv_cuda *cuda, const struct gnv_cuda_code *code)
{
	int ret;

	if (is_loaded(cuda, code))
		return 0;
	pthread_mutex_lock(&cuda->loading);
	ret = load_here(cuda, code);
	pthread_mutex_unlock(&cuda->loading);
	return ret;
}

int gnv_cuda_room(struct gnv_cuda *cuda, unsigned kernel, uint32_t group_lanes, uint32_t *groups)
{
	int processors = 0, each = 0, error, ret = gnv_cuda_enter(cuda);

	if (ret)
		return ret;
	error = cuda->api.attribute(&processors, GNV_CUDA_MULTIPROCESSORS, cuda->device);
	if (!error)
		error = cuda->api.occupancy(&each, cuda->kernel[kernel], (int)group_lanes, 0);
	gnv_cuda_leave(cuda);
	if (error)
		return gnv_cuda_failed_here(cuda, "the size of the GPU", error);
	if (processors < 1 || each < 1)
		return gnv_fail(-EOPNOTSUPP, "%s has no multiprocessor for the kernel", cuda->name);
	*groups = (uint32_t)processors * (uint32_t)each;
	return 0;
}
