/* SPDX-License-Identifier: MIT */
/*
 * Calls to the kernel's compute driver (/dev/kfd) without ROCm's runtime, in the same process: they map another device's BAR to a
 * GPU. The runtime's own import first calls AMDKFD_IOC_GET_DMABUF_INFO, which refuses DMA-BUFs of other drivers than amdgpu. The
 * ioctls after it accept them.
 *
 * The GPU's address space must be that of the runtime, so the runtime is initialised first.
 */
#ifndef GNV_OS_AMD_KFD_H
#define GNV_OS_AMD_KFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GNV_KFD_NODE "/dev/kfd"

/* A BAR in the address space of one GPU, at the same address in that of the process, where touching it faults. */
struct gnv_kfd_map {
	int kfd;	 /* an own descriptor of the node */
	int dmabuf;	 /* the one that was imported */
	uint32_t gpu_id; /* KFD's number of the GPU, as in its topology */
	uint64_t handle; /* KFD's */
	bool empty;	 /* nothing is mapped any more */
	void *va;
	size_t len;
};

/*
 * gnv_kfd_import() - map a DMA-BUF into a GPU
 * @gpu_id: the only GPU it is mapped to: a second one would follow a NULL pointer in the kernel
 * @dmabuf: exported for this call alone, and the mapping's from now on, also when this fails: the kernel counts two imports of
 *          one DMA-BUF as one
 * @len:    of the DMA-BUF, in pages
 * Return: 0; -ENODEV no KFD, or the BAR was revoked; -EACCES; -EOPNOTSUPP this kernel or pair of devices cannot; -EBUSY it failed
 * half way and the kernel kept its half: the device that exported it must stay open; another negative errno. gnv_fail() has the
 * message.
 */
int gnv_kfd_import(uint32_t gpu_id, int dmabuf, size_t len, struct gnv_kfd_map *map);

/*
 * gnv_kfd_fence_off() - replace a mapping by host memory after its device was reset
 * The kernel has then stopped the queues of this process, and tries to start them again. It cannot while a mapping points to the
 * removed memory (Linux amdgpu_amdkfd_gpuvm.c, amdgpu_amdkfd_gpuvm_restore_process_bos). Threads go on, and their stores have no
 * effect. Return: 0; -EBUSY the kernel kept the mapping; another negative errno: nothing is mapped, and threads that store there
 * fault.
 */
int gnv_kfd_fence_off(struct gnv_kfd_map *map);

/*
 * gnv_kfd_release() - undo it. No kernel of the GPU may use the mapping any more
 * Call it before the device that exported the DMA-BUF is closed. Otherwise the GPU's queues of this process never run again.
 * Return: 0; -EBUSY the kernel kept the mapping: everything stays as it is, and that device must stay open.
 */
int gnv_kfd_release(struct gnv_kfd_map *map);

/* Can the node be opened, and does this library know its version? Return: 0; -ENODEV, -EACCES, -EOPNOTSUPP, with the message. */
int gnv_kfd_check(void);

/*
 * gnv_kfd_owns() - is this render node's descriptor the one whose address space KFD uses for the GPU?
 * Only after ROCm's runtime has chosen its own: else this one would be chosen, and the runtime fail.
 * Return: 0 yes; -EBUSY another one is; -ENODEV, -EACCES, -EINVAL. gnv_fail() has the message.
 */
int gnv_kfd_owns(uint32_t gpu_id, int drm_fd);

#endif
