/* SPDX-License-Identifier: MIT */
/*
 * GPU memory through libdrm_amdgpu, next to ROCm's runtime and in the same address space of the GPU: libdrm gives the same device
 * to all that open the same GPU in a process, and runtimes since ROCm 6 open theirs through it. gnv_kfd_owns() reports whether this
 * one did.
 *
 * What is mapped here is not known to KFD. The kernel may move it when memory is short, and a kernel of the GPU that touches it
 * then faults: for a GPU that does nothing else.
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
	void *blind;   /* libdrm's; what lies at the address since that device went, or NULL */
	bool uncached; /* on every GPU; else CDNA (gfx908, gfx90a, gfx94x) may cache it, whatever its mapping asks for */
};

/*
 * gnv_drm_open() - the GPU at a PCI address
 * Return: 0; -ENODEV no such GPU, no libdrm; -EACCES; -EOPNOTSUPP; gnv_fail() has the message.
 */
int gnv_drm_open(const char *sys, const char *bdf, struct gnv_drm **drm);
/* The same, if lanes of the runtime see what is mapped with it. @kfd_id: KFD's number of the GPU. -EOPNOTSUPP: they do not. */
int gnv_drm_open_shared(const char *sys, const char *bdf, uint32_t kfd_id, struct gnv_drm **drm);
void gnv_drm_close(struct gnv_drm *drm); /* what was made with it is gone */

/* Load the library, so that its file can be named. Return: 0; -ENODEV, -EOPNOTSUPP, with the message. */
int gnv_drm_load(void);

/* Open the GPU's render node. Return: a descriptor; -ENODEV, -EACCES, with the error message. */
int gnv_drm_open_node(const char *sys, const char *bdf);

/* Can the GPU's render node be opened? Return: 0; -ENODEV, -EACCES, with the message. */
int gnv_drm_check(const char *sys, const char *bdf);

/*
 * gnv_drm_host_bytes() - how much of a buffer of this GPU lies in memory of the host, by the kernel's word
 * @dmabuf: exported by the GPU's driver; stays the caller's
 * @bytes: 0: all of it lies in the GPU
 * Opens the render node anew and counts what the buffer adds to it. Return: 0; -EOPNOTSUPP nobody tells: no render node, another
 * driver's buffer, a kernel before 5.19.
 */
int gnv_drm_host_bytes(const char *sys, const char *bdf, int dmabuf, uint64_t *bytes);

/* Was such a buffer made uncached, by the kernel's word? false also where nobody tells. */
bool gnv_drm_uncached(const char *sys, const char *bdf, int dmabuf);

/* GPU memory that the GPU does not cache and the CPU can see, with a DMA-BUF of it. @len: in pages. Return: 0, -ENOMEM, -EIO. */
int gnv_drm_alloc(struct gnv_drm *drm, size_t len, struct gnv_drm_bo *bo);

/*
 * gnv_drm_import() - map what another driver exported, uncached
 * @dmabuf: the object's from now on, also when this fails
 * Return: 0; -ENODEV revoked; -EOPNOTSUPP the exporter or the kernel cannot; -ENOMEM; -EBUSY it failed half way and the kernel kept
 * its half: the device of the BAR must stay open; -EIO. gnv_fail() has the message.
 */
int gnv_drm_import(struct gnv_drm *drm, int dmabuf, size_t len, struct gnv_drm_bo *bo);

/*
 * gnv_drm_blind() - put memory of the host in the place of an import, whose device is going
 * Lanes that store there go on, and what they store goes nowhere. Without it their next store is a fault, for the kernel takes the
 * mapping away when the device is reset. Return: 0; -ENOMEM, -EIO: the mapping is as it was.
 */
int gnv_drm_blind(struct gnv_drm *drm, struct gnv_drm_bo *bo);

/*
 * gnv_drm_free() - undo either; no kernel of the GPU uses it any more
 * Return: 0; -EBUSY the kernel kept the mapping: everything stays as it is, and the device of a BAR must stay open.
 */
int gnv_drm_free(struct gnv_drm *drm, struct gnv_drm_bo *bo);

#endif
