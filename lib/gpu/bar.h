/* SPDX-License-Identifier: MIT */
/*
 * The doorbell pages of a controller in the address space of an AMD GPU.
 *
 * There are three ways, and no kernel version says which of them work. So each is tried, and the user of the mapping tests it:
 *
 *   drm      through libdrm, uncached. Needs a runtime that has its address space from libdrm too (ROCm 6).
 *   kfd      the ioctl that the runtime uses, for a DMA-BUF that nobody else has. The kernel chooses the caching: uncached on
 *            gfx94x, where it therefore comes before drm. Elsewhere a store may wait in the GPU's cache.
 *   interop  the runtime's own import, last: released runtimes refuse what amdgpu did not export. One that takes it by DRM's import
 *            without a command after it may leave page table entries invalid (Linux 7.1 and newer). The first store of a thread
 *            then faults, and nothing else can be tried.
 */
#ifndef GNV_GPU_BAR_H
#define GNV_GPU_BAR_H

#include "gpu/gpu.h"

enum gnv_bar_way { GNV_BAR_INTEROP, GNV_BAR_DRM, GNV_BAR_KFD, GNV_BAR_WAYS };

extern const char *const gnv_bar_way_name[GNV_BAR_WAYS];

/* A GPU, as the ways need it. All is the caller's. */
struct gnv_bar_gpu {
	const char *sys; /* GNV_SYSFS */
	const char *bdf;
	uint32_t kfd_id;   /* "gpu_id" in KFD's topology */
	const char *gfx;   /* "gfx1100" */
	unsigned distrust; /* bits of ways that are left out: their mapping has failed a test */
	const struct gnv_log *log;
	/* The runtime's import, of all `len` bytes. The DMA-BUF stays the caller's. Return: 0 or -errno with its message. */
	int (*interop_map)(void *ctx, int dmabuf, size_t len, void **va);
	int (*interop_unmap)(void *ctx, void *va); /* Return: 0, or negative when the runtime keeps it */
	void *ctx;
};

struct gnv_bar {
	enum gnv_bar_way way;
	bool fenced_off; /* gnv_bar_fence_off() has put something else in its place, or has tried to */
	uint64_t lane;
	void *priv; /* of the way */
};

/*
 * gnv_bar_map() - by the first way that works
 * Each refusal goes to the log, with its reason.
 * Return: 0; -EOPNOTSUPP no way works, or there is no DMA-BUF: let a CPU thread ring; -EBUSY a way failed half and the kernel kept
 * its half: as gnv_bar_unmap(); -ENOMEM, -EMFILE. gnv_fail() has the error message.
 */
int gnv_bar_map(const struct gnv_bar_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_bar *bar);

/*
 * gnv_bar_fence_off() - replace the mapping by memory of the host, when the device is given back while threads may still ring
 * @reset: the device has been reset. Otherwise it is about to be. Called for both. Each way does its part at the time that suits
 * it.
 * Return: 0; negative, with a message: a thread that rings from now on faults, or the driver stops all queues of the process.
 */
int gnv_bar_fence_off(const struct gnv_bar_gpu *gpu, struct gnv_bar *bar, bool reset);

/*
 * gnv_bar_unmap() - unmap the doorbells: no kernel of the GPU rings any more
 * Comes before the controller is closed: a GPU that still maps the BAR of a closed device never runs a queue of this process again.
 * Return: 0; -EBUSY the GPU kept the mapping: the controller must stay open until the process ends.
 */
int gnv_bar_unmap(const struct gnv_bar_gpu *gpu, struct gnv_bar *bar);

#endif
