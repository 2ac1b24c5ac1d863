/* SPDX-License-Identifier: MIT */
/*
 * GPU memory through libdrm_amdgpu, next to ROCm's runtime and in the same address space of the GPU. libdrm gives the same device
 * to all users of one GPU in a process, and runtimes since ROCm 6 open theirs through it. gnv_kfd_owns() reports whether this
 * runtime did.
 *
 * KFD does not know these mappings. If memory is short, the kernel may move them. A kernel of the GPU that uses one then faults. So
 * use it only on a GPU without other work.
 */
#ifndef GNV_OS_AMD_DRM_H
#define GNV_OS_AMD_DRM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GNV_DRM_UNCACHED (1u << 14) /* AMDGPU_GEM_CREATE_UNCACHED */

struct gnv_drm;

/* Memory in the address space of the GPU, at the same address in that of the process, where touching it faults. */
struct gnv_drm_bo {
	void *bo; /* libdrm's */
	void *va;
	size_t len;
	int dmabuf;    /* of it */
	bool foreign;  /* another device's, which the GPU has */
	void *instead; /* libdrm's memory in place of a removed device, or NULL */
	bool uncached; /* on every GPU. Otherwise CDNA (gfx908, gfx90a, gfx94x) may cache it in spite of its mapping */
};

/*
 * gnv_drm_open() - the GPU at a PCI address
 * Return: 0; -ENODEV no such GPU, no libdrm; -EACCES; -EOPNOTSUPP; gnv_fail() has the message.
 */
int gnv_drm_open(const char *sys, const char *bdf, struct gnv_drm **drm);
/* The same, if threads of the runtime can access its mappings. @kfd_id: KFD's number of the GPU. -EOPNOTSUPP: they cannot. */
int gnv_drm_open_shared(const char *sys, const char *bdf, uint32_t kfd_id, struct gnv_drm **drm);
void gnv_drm_close(struct gnv_drm *drm); /* its buffers must be gone */

/* Load the library, so that its file can be named. Return: 0; -ENODEV, -EOPNOTSUPP, with the message. */
int gnv_drm_load(void);

/* Open the GPU's render node. Return: a descriptor; -ENODEV, -EACCES, with the error message. */
int gnv_drm_open_node(const char *sys, const char *bdf);

/* Can the GPU's render node be opened? Return: 0; -ENODEV, -EACCES, with the message. */
int gnv_drm_check(const char *sys, const char *bdf);

/*
 * gnv_drm_host_bytes() - how much of a buffer of this GPU is in host memory, as the kernel reports it
 * @dmabuf: exported by the GPU's driver, and still the caller's
 * @bytes: 0: all of it is in the GPU
 * Opens the render node anew and counts the bytes that the buffer adds. Return: 0; -EOPNOTSUPP it is not reported: no render node,
 * another driver's buffer, a kernel before 5.19.
 */
int gnv_drm_host_bytes(const char *sys, const char *bdf, int dmabuf, uint64_t *bytes);

/* Whether the kernel reports such a buffer as uncached. Also false without a report. */
bool gnv_drm_uncached(const char *sys, const char *bdf, int dmabuf);

/* GPU memory that the GPU does not cache and the CPU can see, with a DMA-BUF of it. @len: in pages. Return: 0, -ENOMEM, -EIO. */
int gnv_drm_alloc(struct gnv_drm *drm, size_t len, struct gnv_drm_bo *bo);

/*
 * gnv_drm_import() - map another driver's export, uncached
 * @dmabuf: belongs to the object from now on, also after a failure
 * Return: 0; -ENODEV revoked; -EOPNOTSUPP the exporter or the kernel cannot; -ENOMEM; -EBUSY it failed half way and the kernel kept
 * its half: the device of the BAR must stay open; -EIO. gnv_fail() has the message.
 */
int gnv_drm_import(struct gnv_drm *drm, int dmabuf, size_t len, struct gnv_drm_bo *bo);

/*
 * gnv_drm_fence_off() - replace an import by host memory before its device goes
 * Threads that store there go on, and their stores have no effect. Without it their next store faults, because the kernel removes
 * the mapping when the device is reset. Return: 0; -ENOMEM, -EIO: the mapping is unchanged.
 */
int gnv_drm_fence_off(struct gnv_drm *drm, struct gnv_drm_bo *bo);

/*
 * gnv_drm_free() - undo either. No kernel of the GPU may use it any more
 * Return: 0; -EBUSY the kernel kept the mapping: everything stays as it is, and the device of a BAR must stay open.
 */
int gnv_drm_free(struct gnv_drm *drm, struct gnv_drm_bo *bo);

#endif
