/* SPDX-License-Identifier: MIT */
/* Kernels in streams: of the highest priority or the program's, whose ends no thread awaits, and a kernel that a thread awaits. */
#include <errno.h>

#include "os/nvidia/cuda_table.h"
#include "util/clock.h"

#define MOST_URGENT (-1000) /* the driver takes the nearest that there is */

int gnv_cuda_stream_new(struct gnv_cuda *cuda, void **stream)
{
	int ret = gnv_cuda_enter(cuda), error;

	if (ret)
		return ret;
	error = cuda->api.stream_urgent(stream, GNV_CUDA_STREAM_NON_BLOCKING, MOST_URGENT);
	gnv_cuda_leave(cuda);
	return error ? gnv_cuda_failed(cuda, "cuStreamCreateWithPriority", error) : 0;
}

int gnv_cuda_begin(struct gnv_cuda *cuda, void *stream, const struct gnv_cuda_job *job)
{
	void *params[] = { (void *)(uintptr_t)job->args };
	int ret = gnv_cuda_enter(cuda), error;

	if (ret)
		return ret;
	error = cuda->api.launch(cuda->kernel[job->kernel], job->groups, 1, 1, job->group_lanes, 1, 1, 0, stream, params, NULL);
	gnv_cuda_leave(cuda);
	return error ? gnv_cuda_failed_here(cuda, "a kernel", error) : 0;
}

/*
 * Check the stream's context first: for a wrong one, cuLaunchKernel only reports an invalid handle (400, driver 580). Both calls
 * are allowed while the stream is captured.
 */
static int enqueue(struct gnv_cuda *cuda, void *stream, const struct gnv_cuda_job *job)
{
	void *params[] = { (void *)(uintptr_t)job->args }, *context = NULL;
	int error = cuda->api.stream_context(stream, &context);

	if (error)
		return gnv_cuda_failed_here(cuda, "cuStreamGetCtx", error);
	if (context != cuda->context)
		return gnv_fail(-EXDEV,
				"the stream belongs to another GPU than %s, or to a context of the program's own. Make it in the primary "
				"context of this GPU, as cudaSetDevice() and cudaStreamCreate() do",
				cuda->name);
	error = cuda->api.launch(cuda->kernel[job->kernel], job->groups, 1, 1, job->group_lanes, 1, 1, 0, stream, params, NULL);
	return error ? gnv_cuda_failed_here(cuda, "a kernel on the stream", error) : 0;
}

int gnv_cuda_enqueue(struct gnv_cuda *cuda, void *stream, const struct gnv_cuda_job *job)
{
	int ret = gnv_cuda_enter(cuda);

	if (ret)
		return ret;
	ret = enqueue(cuda, stream, job);
	gnv_cuda_leave(cuda);
	return ret;
}

/* A kernel that failed has ended, too. */
bool gnv_cuda_stream_end(struct gnv_cuda *cuda, void *stream, uint32_t ms)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	int error;

	if (gnv_cuda_enter(cuda))
		return true;
	do
		error = cuda->api.stream_query(stream);
	while (error == GNV_CUDA_NOT_READY && gnv_deadline_poll_again(&deadline));
	gnv_cuda_set_stuck(cuda, error == GNV_CUDA_NOT_READY);
	if (error != GNV_CUDA_NOT_READY)
		cuda->api.stream_destroy(stream);
	gnv_cuda_leave(cuda);
	return error != GNV_CUDA_NOT_READY;
}

/* ---- A kernel that is waited for ---- */

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
