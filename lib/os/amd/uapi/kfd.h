/* SPDX-License-Identifier: MIT */
/*
 * The part of amdkfd's interface that the library uses. The kernel's header includes one of DRM that is elsewhere on most
 * distributions. The layouts and numbers here are the kernel's (tests/unit/test_kfd.c compares), the names are ours.
 */
#ifndef GNV_OS_AMD_UAPI_KFD_H
#define GNV_OS_AMD_UAPI_KFD_H

#include <stdint.h>
#include <sys/ioctl.h>

struct gnv_kfd_get_version {
	uint32_t major; /* out */
	uint32_t minor; /* out */
};
#define GNV_KFD_GET_VERSION _IOR('K', 0x01, struct gnv_kfd_get_version)

struct gnv_kfd_acquire_vm {
	uint32_t drm_fd;
	uint32_t gpu_id;
};
#define GNV_KFD_ACQUIRE_VM _IOW('K', 0x15, struct gnv_kfd_acquire_vm)

struct gnv_kfd_alloc_memory {
	uint64_t va;
	uint64_t size;
	uint64_t handle;      /* out */
	uint64_t mmap_offset; /* in: of a userptr, out */
	uint32_t gpu_id;
	uint32_t flags;
};
#define GNV_KFD_ALLOC_MEMORY _IOWR('K', 0x16, struct gnv_kfd_alloc_memory)
#define GNV_KFD_ALLOC_GTT (1u << 1)
#define GNV_KFD_ALLOC_WRITABLE (1u << 31)
#define GNV_KFD_ALLOC_NO_SUBSTITUTE (1u << 28)

struct gnv_kfd_free_memory {
	uint64_t handle;
};
#define GNV_KFD_FREE_MEMORY _IOW('K', 0x17, struct gnv_kfd_free_memory)

struct gnv_kfd_map_memory {
	uint64_t handle;
	uint64_t gpu_ids; /* pointer to uint32_t */
	uint32_t count;
	uint32_t done; /* in: how many to leave out, out: how many are mapped */
};
#define GNV_KFD_MAP_MEMORY _IOWR('K', 0x18, struct gnv_kfd_map_memory)
#define GNV_KFD_UNMAP_MEMORY _IOWR('K', 0x19, struct gnv_kfd_map_memory)

struct gnv_kfd_import_dmabuf {
	uint64_t va;
	uint64_t handle; /* out */
	uint32_t gpu_id;
	uint32_t dmabuf;
};
#define GNV_KFD_IMPORT_DMABUF _IOWR('K', 0x1d, struct gnv_kfd_import_dmabuf)

_Static_assert(sizeof(struct gnv_kfd_get_version) == 8, "uapi layout");
_Static_assert(sizeof(struct gnv_kfd_acquire_vm) == 8, "uapi layout");
_Static_assert(sizeof(struct gnv_kfd_alloc_memory) == 40, "uapi layout");
_Static_assert(sizeof(struct gnv_kfd_free_memory) == 8, "uapi layout");
_Static_assert(sizeof(struct gnv_kfd_map_memory) == 24, "uapi layout");
_Static_assert(sizeof(struct gnv_kfd_import_dmabuf) == 24, "uapi layout");

#endif
