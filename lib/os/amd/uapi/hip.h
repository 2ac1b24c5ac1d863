/* SPDX-License-Identifier: MIT */
/*
 * The part of HIP's interface that the library uses, so that it builds where ROCm is not installed. Layouts and numbers are those
 * of HIP 6 and 7 (tests/hip/declared.h compares with the headers). HIP 5 orders struct hipMemAllocationProp differently.
 */
#ifndef GNV_OS_AMD_UAPI_HIP_H
#define GNV_OS_AMD_UAPI_HIP_H

#include <stddef.h>

#define GNV_HIP_SUCCESS 0
#define GNV_HIP_INVALID_VALUE 1
#define GNV_HIP_OUT_OF_MEMORY 2
#define GNV_HIP_NO_DEVICE 100
#define GNV_HIP_INVALID_DEVICE 101
#define GNV_HIP_NO_STREAM 709 /* hipErrorContextIsDestroyed: of a stream that there is not, or not any more */
#define GNV_HIP_NOT_SUPPORTED 801

#define GNV_HIP_STREAM_LEGACY ((void *)1) /* the default stream, as NULL is */
#define GNV_HIP_CAPTURE_RELAXED 2 /* hipStreamCaptureMode */

#define GNV_HIP_VERSION(major) ((major)*10000000)

enum { GNV_HIP_PINNED = 1, GNV_HIP_UNCACHED = 0x40000000 };	/* hipMemAllocationType */
enum { GNV_HIP_LOCATION_DEVICE = 1 };				/* hipMemLocationType */
enum { GNV_HIP_HANDLE_FD = 1 };					/* hipMemAllocationHandleType */
enum { GNV_HIP_READ_WRITE = 3 };				/* hipMemAccessFlags */
enum { GNV_HIP_GRANULARITY_MINIMUM = 0 };			/* hipMemAllocationGranularity_flags */
enum { GNV_HIP_COPY_DEFAULT = 4 };				/* hipMemcpyKind: by the kind of the addresses */

struct gnv_hip_location {
	int type;
	int id;
};

struct gnv_hip_prop {
	int type;
	int handle_types;
	struct gnv_hip_location location;
	void *win32;
	struct {
		unsigned char compression, rdma;
		unsigned short usage;
	} flags;
};

struct gnv_hip_access {
	struct gnv_hip_location location;
	int flags;
};

/* The functions. The handle of an allocation is a pointer, that of a file an int. */
typedef int gnv_hip_count_fn(int *count);
typedef int gnv_hip_version_fn(int *version);
typedef int gnv_hip_bus_id_fn(char *text, int room, int device);
typedef const char *gnv_hip_error_fn(int error);
typedef int gnv_hip_granularity_fn(size_t *granularity, const struct gnv_hip_prop *prop, int option);
typedef int gnv_hip_create_fn(void **handle, size_t len, const struct gnv_hip_prop *prop, unsigned long long flags);
typedef int gnv_hip_release_fn(void *handle);
typedef int gnv_hip_reserve_fn(void **va, size_t len, size_t align, void *hint, unsigned long long flags);
typedef int gnv_hip_unreserve_fn(void *va, size_t len);
typedef int gnv_hip_map_fn(void *va, size_t len, size_t offset, void *handle, unsigned long long flags);
typedef int gnv_hip_unmap_fn(void *va, size_t len);
typedef int gnv_hip_set_access_fn(void *va, size_t len, const struct gnv_hip_access *access, size_t count);
typedef int gnv_hip_export_fn(void *fd, void *handle, int type, unsigned long long flags);
typedef int gnv_hip_current_fn(int *device);
typedef int gnv_hip_choose_fn(int device);
typedef int gnv_hip_malloc_fn(void **ptr, size_t len);
typedef int gnv_hip_free_fn(void *ptr);
typedef int gnv_hip_copy_fn(void *to, const void *from, size_t len, int kind);
typedef int gnv_hip_module_load_fn(void **module, const void *image);
typedef int gnv_hip_module_unload_fn(void *module);
typedef int gnv_hip_module_function_fn(void **function, void *module, const char *name);
typedef int gnv_hip_launch_fn(void *function, unsigned groups_x, unsigned groups_y, unsigned groups_z, unsigned lanes_x,
			      unsigned lanes_y, unsigned lanes_z, unsigned shared, void *stream, void **params, void **extra);
typedef int gnv_hip_stream_device_fn(void *stream, int *device);
typedef int gnv_hip_capture_mode_fn(int *mode); /* that of this thread and *mode change places */
typedef int gnv_hip_last_error_fn(void);

#endif
