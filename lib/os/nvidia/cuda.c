/* SPDX-License-Identifier: MIT */
/* Invariant: between gnv_cuda_enter() and gnv_cuda_leave() the GPU's primary context is the thread's current one, and only then. */
#include "os/nvidia/cuda_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/dl.h"
#include "util/clock.h"
#include "util/log.h"

#define CAPABILITY_MIN 75 /* what the code is compiled for, and the memory model it needs */

#define SYMBOL(field, type, name) { name, offsetof(struct gnv_cuda_api, field), false },
static const struct gnv_dl_symbol symbols[] = { GNV_CUDA_FUNCTIONS(SYMBOL) { NULL, 0, false } };
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
				"CUDA: %s: a kernel, this one or an earlier one, failed: %s (%d); start the program anew, for nothing more "
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

void gnv_cuda_set_stuck(struct gnv_cuda *cuda, bool stuck)
{
	if (__atomic_exchange_n(&cuda->stuck, stuck, __ATOMIC_ACQ_REL) != stuck)
		__atomic_fetch_add(&stuck_handles[cuda->gpu], stuck ? 1 : ~0u, __ATOMIC_ACQ_REL);
}

int gnv_cuda_enter(struct gnv_cuda *cuda)
{
	int error = cuda->api.push(cuda->context);

	return error ? gnv_cuda_failed(cuda, "cuCtxPushCurrent", error) : 0;
}

void gnv_cuda_leave(struct gnv_cuda *cuda)
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
		return gnv_cuda_failed(cuda, "the GPU does not say what it is", error);
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
	cuda->gpu = index;
	ret = gnv_dl_load(&library, &cuda->api);
	if (!ret)
		ret = choose_device(cuda, index);
	if (ret)
		goto free_cuda;
	error = cuda->api.retain(&cuda->context, cuda->device);
	if (error) {
		ret = gnv_cuda_failed(cuda, "cuDevicePrimaryCtxRetain", error);
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
	free(cuda);
	return ret;
}

/*
 * Code and context are taken away when nothing runs, and the driver waits for that without limit: after a kernel that did not end
 * both stay until the process ends.
 */
void gnv_cuda_close(struct gnv_cuda *cuda)
{
	const bool began = gnv_cuda_wait_begins(cuda->gpu), stuck = gnv_cuda_is_stuck(cuda->gpu);

	if (!stuck && !gnv_cuda_enter(cuda)) {
		if (cuda->module)
			cuda->api.unload(cuda->module);
		cuda->api.stream_destroy(cuda->stream);
		gnv_cuda_leave(cuda);
	}
	if (!stuck)
		cuda->api.release(cuda->device);
	gnv_cuda_wait_ends(cuda->gpu, began);
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
		gnv_cuda_failed(cuda, "cuModuleLoadDataEx", error);
		return gnv_fail(error == GNV_CUDA_OUT_OF_MEMORY ? -ENOMEM : -EOPNOTSUPP,
				"%s or its driver cannot use the library's kernels (CUDA error %d): %s", cuda->name, error, log);
	}
	for (i = 0; i < count && !error; i++)
		error = cuda->api.function(&cuda->kernel[i], cuda->module, names[i]);
	return error ? gnv_cuda_failed(cuda, names[i - 1], error) : 0;
}

int gnv_cuda_load(struct gnv_cuda *cuda, const char *ptx, const char *const *names, unsigned count)
{
	bool began;
	int ret;

	if (count > GNV_CUDA_KERNELS)
		return gnv_fail(-EINVAL, "%u kernels are too many", count);
	ret = gnv_cuda_enter(cuda);
	if (ret)
		return ret;
	began = gnv_cuda_wait_begins(cuda->gpu);
	ret = load(cuda, ptx, names, count);
	gnv_cuda_wait_ends(cuda->gpu, began);
	gnv_cuda_leave(cuda);
	return ret;
}

/* Return: CUDA's error, GNV_CUDA_NOT_READY when the time is over. */
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

/* The driver frees the stream when its kernel has ended, also after the time is over. */
static int run(struct gnv_cuda *cuda, const struct gnv_cuda_job *job)
{
	void *params[] = { (void *)(uintptr_t)job->args }, *stream;
	int error = cuda->api.stream_create(&stream, GNV_CUDA_STREAM_NON_BLOCKING);

	if (error)
		return gnv_cuda_failed(cuda, "cuStreamCreate", error);
	error = cuda->api.launch(cuda->kernel[job->kernel], job->groups, 1, 1, job->group_lanes, 1, 1, 0, stream, params, NULL);
	if (!error)
		error = wait_for_end(cuda, job, stream);
	cuda->api.stream_destroy(stream);
	if (error != GNV_CUDA_NOT_READY)
		return error ? gnv_cuda_failed(cuda, "a kernel", error) : 0;
	gnv_cuda_set_stuck(cuda, true);
	return gnv_fail(-ETIMEDOUT, "a kernel on %s did not end within %u ms", cuda->name, job->timeout_ms);
}

int gnv_cuda_launch(struct gnv_cuda *cuda, const struct gnv_cuda_job *job)
{
	int ret = gnv_cuda_enter(cuda);

	if (ret)
		return ret;
	gnv_cuda_kernel_begins(cuda->gpu);
	ret = run(cuda, job);
	gnv_cuda_kernel_ends(cuda->gpu);
	gnv_cuda_leave(cuda);
	return ret;
}
