/* SPDX-License-Identifier: MIT */
/*
 * The part of the CUDA driver's interface (libcuda) that the library uses, so that it builds where CUDA is not installed. Numbers
 * and types are those of CUDA 11.2 and newer (tests/cuda/test_driver.c compares with the installed header). On the machines that
 * the library runs on CUDAAPI is empty.
 */
#ifndef GNV_OS_NVIDIA_UAPI_CUDA_H
#define GNV_OS_NVIDIA_UAPI_CUDA_H

#include <stddef.h>
#include <stdint.h>

enum gnv_cuda_result {
	GNV_CUDA_SUCCESS = 0,
	GNV_CUDA_INVALID_VALUE = 1,
	GNV_CUDA_OUT_OF_MEMORY = 2,
	GNV_CUDA_UNAVAILABLE = 46,
	GNV_CUDA_NO_DEVICE = 100,
	GNV_CUDA_INVALID_DEVICE = 101,
	GNV_CUDA_ECC_UNCORRECTABLE = 214,
	GNV_CUDA_PEER_UNSUPPORTED = 217,
	GNV_CUDA_NVLINK_UNCORRECTABLE = 220,
	GNV_CUDA_CONTAINED = 226, /* of CUDA 12 */
	GNV_CUDA_NOT_READY = 600,
	GNV_CUDA_ILLEGAL_ADDRESS = 700,
	GNV_CUDA_LAUNCH_TIMEOUT = 702,
	GNV_CUDA_PEER_ENABLED = 704, /* CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED */
	GNV_CUDA_ASSERT = 710,
	GNV_CUDA_TOO_MANY_PEERS = 711,
	GNV_CUDA_ALREADY_REGISTERED = 712,
	GNV_CUDA_NOT_REGISTERED = 713,
	GNV_CUDA_HARDWARE_STACK_ERROR = 714,
	GNV_CUDA_LAUNCH_FAILED = 719,
	GNV_CUDA_NOT_PERMITTED = 800,
	GNV_CUDA_NOT_SUPPORTED = 801,
	GNV_CUDA_CAPTURE_UNSUPPORTED = 900,
	GNV_CUDA_CAPTURE_INVALIDATED = 901,
	GNV_CUDA_CAPTURE_IMPLICIT = 906,
};

enum { GNV_CUDA_REGISTER_PORTABLE = 1, GNV_CUDA_REGISTER_DEVICEMAP = 2, GNV_CUDA_REGISTER_IOMEMORY = 4 };
enum { GNV_CUDA_STREAM_NON_BLOCKING = 1, GNV_CUDA_STREAM_LEGACY = 1 }; /* a flag, and the handle CU_STREAM_LEGACY */
enum { GNV_CUDA_EVENT_NO_TIMING = 2 };
enum { GNV_CUDA_POINTER_CONTEXT = 1, GNV_CUDA_POINTER_MEMORY_TYPE = 2, GNV_CUDA_MEMORY_DEVICE = 2 };
/* CU_POINTER_ATTRIBUTE_BUFFER_ID, _DEVICE_ORDINAL, _RANGE_START_ADDR, _RANGE_SIZE */
enum { GNV_CUDA_POINTER_TAG = 7, GNV_CUDA_POINTER_ORDINAL = 9, GNV_CUDA_POINTER_BASE = 11, GNV_CUDA_POINTER_LEN = 12 };
/* CU_POINTER_ATTRIBUTE_IS_MANAGED, _ACCESS_FLAGS, _MAPPING_SIZE, _MAPPING_BASE_ADDR */
enum { GNV_CUDA_POINTER_MANAGED = 8, GNV_CUDA_POINTER_ACCESS = 16 };
enum { GNV_CUDA_POINTER_MAPPING_LEN = 18, GNV_CUDA_POINTER_MAPPING_BASE = 19 };
enum { GNV_CUDA_POINTER_LEGACY_IPC = 10 }; /* CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: it is of cuMemAlloc() */
enum { GNV_CUDA_POINTER_POOL = 17 }; /* CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: NULL: it is of no pool */
enum { GNV_CUDA_MULTIPROCESSORS = 16 };
enum { GNV_CUDA_CAPABILITY_MAJOR = 75, GNV_CUDA_CAPABILITY_MINOR = 76, GNV_CUDA_MEMORY_POOLS = 115 }; /* device attributes */
enum { GNV_CUDA_CAPTURE_GLOBAL = 0, GNV_CUDA_CAPTURE_RELAXED = 2 }; /* CUstreamCaptureMode */
enum { GNV_CUDA_JIT_ERROR_LOG = 5, GNV_CUDA_JIT_ERROR_LOG_SIZE = 6 };

typedef uint64_t gnv_cuda_ptr;	  /* CUdeviceptr */
typedef uint64_t gnv_cuda_handle; /* CUmemGenericAllocationHandle */

/* CUmemAccessDesc: a processor, and its rights. */
enum { GNV_CUDA_LOCATION_DEVICE = 1, GNV_CUDA_ACCESS_READWRITE = 3 };
struct gnv_cuda_access {
	int type, id; /* CUmemLocation */
	int flags;
};

/* The functions. CUdevice is an int, every other handle a pointer. */
typedef int gnv_cuda_init_fn(unsigned flags);
typedef int gnv_cuda_error_fn(int error, const char **text);
typedef int gnv_cuda_count_fn(int *count);
typedef int gnv_cuda_device_fn(int *device, int index);
typedef int gnv_cuda_name_fn(char *name, int len, int device);
typedef int gnv_cuda_attribute_fn(int *value, int attribute, int device);
typedef int gnv_cuda_retain_fn(void **context, int device);
typedef int gnv_cuda_release_fn(int device);
typedef int gnv_cuda_push_fn(void *context);
typedef int gnv_cuda_pop_fn(void **context);
typedef int gnv_cuda_capture_mode_fn(int *mode);
typedef int gnv_cuda_load_fn(void **module, const void *image, unsigned options, int *option, void **values);
typedef int gnv_cuda_unload_fn(void *module);
typedef int gnv_cuda_function_fn(void **function, void *module, const char *name);
typedef int gnv_cuda_launch_fn(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			       unsigned shared, void *stream, void **params, void **extra);
typedef int gnv_cuda_occupancy_fn(int *groups, void *function, int group_lanes, size_t shared);
typedef int gnv_cuda_stream_create_fn(void **stream, unsigned flags);
typedef int gnv_cuda_stream_urgent_fn(void **stream, unsigned flags, int priority); /* the lower the sooner */
typedef int gnv_cuda_stream_fn(void *stream); /* destroy, query, synchronise */
typedef int gnv_cuda_stream_context_fn(void *stream, void **context);
typedef int gnv_cuda_stream_capturing_fn(void *stream, int *state);
typedef int gnv_cuda_event_create_fn(void **event, unsigned flags);
typedef int gnv_cuda_event_fn(void *event); /* query, destroy */
typedef int gnv_cuda_context_event_fn(void *context, void *event);
typedef int gnv_cuda_register_fn(void *ptr, size_t len, unsigned flags);
typedef int gnv_cuda_unregister_fn(void *ptr);
typedef int gnv_cuda_host_pointer_fn(gnv_cuda_ptr *at, void *ptr, unsigned flags);
typedef int gnv_cuda_alloc_fn(gnv_cuda_ptr *at, size_t len, void *stream);
typedef int gnv_cuda_free_fn(gnv_cuda_ptr at, void *stream);
typedef int gnv_cuda_set_fn(gnv_cuda_ptr at, unsigned char value, size_t len, void *stream);
typedef int gnv_cuda_to_device_fn(gnv_cuda_ptr at, const void *from, size_t len, void *stream);
typedef int gnv_cuda_from_device_fn(void *to, gnv_cuda_ptr at, size_t len, void *stream);
typedef int gnv_cuda_can_peer_fn(int *can, int device, int peer);
typedef int gnv_cuda_peer_fn(void *context, unsigned flags);
typedef int gnv_cuda_pool_access_fn(void *pool, const struct gnv_cuda_access *access, size_t count);
typedef int gnv_cuda_handle_of_fn(gnv_cuda_handle *handle, void *at);
typedef int gnv_cuda_handle_fn(gnv_cuda_handle handle);
typedef int gnv_cuda_mem_access_fn(gnv_cuda_ptr at, size_t len, const struct gnv_cuda_access *access, size_t count);
typedef int gnv_cuda_pointer_fn(void *value, int attribute, gnv_cuda_ptr at);

#endif
