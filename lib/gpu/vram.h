/* SPDX-License-Identifier: MIT */
/*
 * Memory of an AMD GPU by other ways than its threads' own runtime: HIP's, for programs that pass it to HIP, and libdrm's, which is
 * uncached with every version of ROCm. Threads of the runtime reach both, in the one address space that the process has on the GPU.
 */
#ifndef GNV_GPU_VRAM_H
#define GNV_GPU_VRAM_H

#include <gpunvme/mem.h>

#include "gpu/gpu.h"

/*
 * gnv_vram_alloc() - memory of the GPU at a PCI address. Only libdrm zeroes it
 * @how:    GPUNVME_MEM_HIP or GPUNVME_MEM_DRM
 * @kfd_id: KFD's number of the GPU
 * @bytes:  filled. Its cookie is for gnv_vram_free(). The CPU's address is that of its DMA-BUF, NULL where the kernel offers none.
 * Return: 0; -ENODEV, -EACCES the library or the GPU is not there; -EOPNOTSUPP it is too old, or has another address space than the
 * threads; -ENOMEM, -EIO. gnv_fail() has the error message.
 */
int gnv_vram_alloc(uint32_t how, const char *sys, const char *bdf, uint32_t kfd_id, size_t len,
		   const struct gnv_log *log, struct gnv_gpu_bytes *bytes);

struct gnv_vram;

/* A list of such memory, which the caller has and locks. Memory is removed before it is freed. */
void gnv_vram_add(struct gnv_vram **list, const struct gnv_gpu_bytes *bytes);
void gnv_vram_remove(struct gnv_vram **list, const struct gnv_gpu_bytes *bytes);
/* Which memory has these bytes? *cached: as of mem_reach of struct gnv_gpu_ops. Return: 0; -ENOENT; -ERANGE. */
int gnv_vram_find(const struct gnv_vram *list, uint64_t lane, size_t len, bool *cached);

/* Is a DMA-BUF memory that an AMD GPU's driver marked as uncached? false also if that is unknown. */
bool gnv_vram_uncached(const struct gpunvme_gpu *gpu, int dmabuf);
void gnv_vram_free(struct gnv_gpu_bytes *bytes);
/* As user_copy of struct gnv_gpu_ops: by HIP. */
int gnv_vram_user_copy(struct gpunvme_gpu *gpu, void *ptr, size_t len);

#endif
