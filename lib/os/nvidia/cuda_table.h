/* SPDX-License-Identifier: MIT */
/* Inside of os/nvidia: the driver's functions and a GPU. */
#ifndef GNV_OS_NVIDIA_CUDA_TABLE_H
#define GNV_OS_NVIDIA_CUDA_TABLE_H

#include <pthread.h>

#include "os/nvidia/cuda.h"
#include "os/nvidia/uapi/cuda.h"
#include "util/log.h"

#define GNV_CUDA_KERNELS 32
#define GNV_CUDA_MODULES 2
#define GNV_CUDA_GPUS 1024u

/* As X(field, type, name in the library). */
#define GNV_CUDA_FUNCTIONS(X)													\
	X(init, gnv_cuda_init_fn, "cuInit")											\
	X(error, gnv_cuda_error_fn, "cuGetErrorString")										\
	X(count, gnv_cuda_count_fn, "cuDeviceGetCount")										\
	X(device, gnv_cuda_device_fn, "cuDeviceGet")										\
	X(name, gnv_cuda_name_fn, "cuDeviceGetName")										\
	X(attribute, gnv_cuda_attribute_fn, "cuDeviceGetAttribute")								\
	X(retain, gnv_cuda_retain_fn, "cuDevicePrimaryCtxRetain")								\
	X(release, gnv_cuda_release_fn, "cuDevicePrimaryCtxRelease_v2")								\
	X(push, gnv_cuda_push_fn, "cuCtxPushCurrent_v2")									\
	X(pop, gnv_cuda_pop_fn, "cuCtxPopCurrent_v2")										\
	X(capture_mode, gnv_cuda_capture_mode_fn, "cuThreadExchangeStreamCaptureMode")						\
	X(load, gnv_cuda_load_fn, "cuModuleLoadDataEx")										\
	X(unload, gnv_cuda_unload_fn, "cuModuleUnload")										\
	X(function, gnv_cuda_function_fn, "cuModuleGetFunction")								\
	X(launch, gnv_cuda_launch_fn, "cuLaunchKernel")										\
	X(occupancy, gnv_cuda_occupancy_fn, "cuOccupancyMaxActiveBlocksPerMultiprocessor")					\
	X(stream_create, gnv_cuda_stream_create_fn, "cuStreamCreate")								\
	X(stream_urgent, gnv_cuda_stream_urgent_fn, "cuStreamCreateWithPriority")						\
	X(stream_destroy, gnv_cuda_stream_fn, "cuStreamDestroy_v2")								\
	X(stream_query, gnv_cuda_stream_fn, "cuStreamQuery")									\
	X(stream_wait, gnv_cuda_stream_fn, "cuStreamSynchronize")								\
	X(stream_context, gnv_cuda_stream_context_fn, "cuStreamGetCtx")							\
	X(host_register, gnv_cuda_register_fn, "cuMemHostRegister_v2")								\
	X(host_unregister, gnv_cuda_unregister_fn, "cuMemHostUnregister")							\
	X(host_pointer, gnv_cuda_host_pointer_fn, "cuMemHostGetDevicePointer_v2")						\
	X(alloc, gnv_cuda_alloc_fn, "cuMemAllocAsync")										\
	X(free, gnv_cuda_free_fn, "cuMemFreeAsync")										\
	X(set, gnv_cuda_set_fn, "cuMemsetD8Async")										\
	X(to_device, gnv_cuda_to_device_fn, "cuMemcpyHtoDAsync_v2")								\
	X(from_device, gnv_cuda_from_device_fn, "cuMemcpyDtoHAsync_v2")								\
	X(can_peer, gnv_cuda_can_peer_fn, "cuDeviceCanAccessPeer")								\
	X(peer, gnv_cuda_peer_fn, "cuCtxEnablePeerAccess")									\
	X(pool_access, gnv_cuda_pool_access_fn, "cuMemPoolSetAccess")								\
	X(mem_access, gnv_cuda_mem_access_fn, "cuMemSetAccess")									\
	X(mem_handle, gnv_cuda_handle_of_fn, "cuMemRetainAllocationHandle")							\
	X(mem_release, gnv_cuda_handle_fn, "cuMemRelease")									\
	X(stream_capturing, gnv_cuda_stream_capturing_fn, "cuStreamIsCapturing")						\
	X(event_create, gnv_cuda_event_create_fn, "cuEventCreate")								\
	X(event_destroy, gnv_cuda_event_fn, "cuEventDestroy_v2")								\
	X(event_query, gnv_cuda_event_fn, "cuEventQuery")									\
	X(pointer, gnv_cuda_pointer_fn, "cuPointerGetAttribute")

/* The same of functions that older drivers lack: then the field is NULL. */
#define GNV_CUDA_NEWER_FUNCTIONS(X) X(context_event, gnv_cuda_context_event_fn, "cuCtxRecordEvent") /* of CUDA 12.5 */

#define GNV_CUDA_FIELD(field, type, name) type *field;
struct gnv_cuda_api {
	GNV_CUDA_FUNCTIONS(GNV_CUDA_FIELD)
	GNV_CUDA_NEWER_FUNCTIONS(GNV_CUDA_FIELD)
};

struct gnv_cuda {
	struct gnv_cuda_api api;
	unsigned gpu; /* its number */
	int device;
	void *context, *stream; /* the stream is for copies */
	pthread_mutex_t loading; /* of the modules */
	void *module[GNV_CUDA_MODULES];
	unsigned modules;
	void *kernel[GNV_CUDA_KERNELS]; /* NULL: not loaded. The first of each module is atomic, and set last */
	char name[64];
	bool over;  /* atomic: a kernel has failed, and the context has ended */
	bool stuck; /* atomic: a kernel did not end */
	bool bounded; /* as of gnv_cuda_set_bounded() */
};

/*
 * Make the GPU's primary context the thread's current one, and end that. In between, calls of the driver do not end the capture of
 * a stream, by this thread or another one. Return: 0; errors of gnv_cuda_failed().
 * gnv_cuda_push() - the same of any context. Return: CUDA's error
 */
int gnv_cuda_enter(struct gnv_cuda *cuda);
int gnv_cuda_push(const struct gnv_cuda *cuda, void *context);
void gnv_cuda_leave(struct gnv_cuda *cuda);

/*
 * Has a kernel not ended that any handle of the GPU has launched? Then nothing is called that waits for the kernels of the context.
 * gnv_cuda_set_stuck() - the same of this handle
 */
bool gnv_cuda_is_stuck(unsigned gpu);
void gnv_cuda_set_stuck(struct gnv_cuda *cuda, bool stuck);

/*
 * Before and after a call of the driver that waits for all kernels of a context, which is the primary one of that GPU. @began: for
 * gnv_cuda_wait_ends(). Return: 0; -EBUSY, with an error message: a kernel of the program does not end, so do not make the call.
 * gnv_cuda_kernels_end() - only the check for that, with the same result
 * gnv_cuda_kernel_begins() - the same of a kernel of the library that ends by itself
 */
int gnv_cuda_wait_begins(struct gnv_cuda *cuda, unsigned gpu, void *context, bool *began);
void gnv_cuda_wait_ends(unsigned gpu, bool began);
bool gnv_cuda_has_resident(unsigned gpu);
int gnv_cuda_kernels_end(struct gnv_cuda *cuda, unsigned gpu, void *context);
void gnv_cuda_kernel_begins(unsigned gpu);
void gnv_cuda_kernel_ends(unsigned gpu);

/*
 * Return: the errno of a CUDA error, with the error message.
 * gnv_cuda_failed_here() - the same of a call in the context of this GPU: the context may have ended
 */
int gnv_cuda_failed(const struct gnv_cuda *cuda, const char *what, int error);
int gnv_cuda_failed_here(struct gnv_cuda *cuda, const char *what, int error);

#endif
