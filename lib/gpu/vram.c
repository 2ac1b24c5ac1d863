/* SPDX-License-Identifier: MIT */
/* Invariant: the CPU's mapping of the DMA-BUF goes before the memory. */
#include "gpu/vram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/amd/drm.h"
#include "os/amd/hip.h"
#include "os/linux/dmabuf.h"
#include "os/linux/sys.h"
#include "os/linux/sysfs.h"
#include "util/checked.h"

struct gnv_vram {
	struct gnv_hip_bytes hip;
	struct gnv_drm *drm;
	struct gnv_drm_bo bo;
	bool cached;
	/* Of its list. */
	struct gnv_vram *next;
	uint64_t lane;
	size_t len;
};

static void warn_cached(const struct gnv_log *log, const char *whose, size_t len)
{
	gnv_log(log, GPUNVME_LOG_WARN,
		"%zu bytes of %s may be cached: writes of a controller are then seen by kernels that begin after "
		"hipStreamSynchronize() or gpunvme_gpu_fence(), not by running ones", len, whose);
}

static int hip_alloc(struct gnv_vram *vram, const char *sys, const char *bdf, size_t len, const struct gnv_log *log,
		     struct gnv_gpu_bytes *bytes)
{
	int device, ret = gnv_hip_device(bdf, &device);

	if (!ret)
		ret = gnv_hip_alloc(device, len, &vram->hip);
	if (ret)
		return ret;
	bytes->cached = !gnv_drm_uncached(sys, bdf, vram->hip.dmabuf);
	if (bytes->cached)
		warn_cached(log, "HIP's memory", vram->hip.len);
	bytes->lane = (uintptr_t)vram->hip.va;
	bytes->len = vram->hip.len;
	bytes->dmabuf = vram->hip.dmabuf;
	return 0;
}

static int drm_alloc(struct gnv_vram *vram, const char *sys, const char *bdf, uint32_t kfd_id, size_t len,
		     const struct gnv_log *log, struct gnv_gpu_bytes *bytes)
{
	int ret = gnv_drm_open_shared(sys, bdf, kfd_id, &vram->drm);

	if (ret)
		return ret;
	ret = gnv_drm_alloc(vram->drm, len, &vram->bo);
	if (ret) {
		gnv_drm_close(vram->drm);
		return ret;
	}
	bytes->cached = !vram->bo.uncached;
	if (bytes->cached)
		warn_cached(log, "libdrm's memory on a GPU of the CDNA family (other families see it at once)", len);
	bytes->lane = (uintptr_t)vram->bo.va;
	bytes->len = vram->bo.len;
	bytes->dmabuf = vram->bo.dmabuf;
	return 0;
}

int gnv_vram_alloc(uint32_t how, const char *sys, const char *bdf, uint32_t kfd_id, size_t len,
		   const struct gnv_log *log, struct gnv_gpu_bytes *bytes)
{
	struct gnv_vram *vram = calloc(1, sizeof(*vram));
	int ret;

	if (!vram)
		return gnv_fail(-ENOMEM, "out of memory");
	*bytes = (struct gnv_gpu_bytes){ .page = gnv_sys_page_size(), .dmabuf = -1, .cookie = vram, .how = how };
	ret = how == GPUNVME_MEM_HIP ? hip_alloc(vram, sys, bdf, len, log, bytes) :
				       drm_alloc(vram, sys, bdf, kfd_id, len, log, bytes);
	if (ret) {
		free(vram);
		return ret;
	}
	vram->cached = bytes->cached;
	gnv_dmabuf_map(bytes->dmabuf, 0, bytes->len, &bytes->cpu); /* no CPU address is a property, not a failure */
	return 0;
}

void gnv_vram_add(struct gnv_vram **list, const struct gnv_gpu_bytes *bytes)
{
	struct gnv_vram *vram = bytes->cookie;

	vram->lane = bytes->lane;
	vram->len = bytes->len;
	vram->next = *list;
	*list = vram;
}

void gnv_vram_remove(struct gnv_vram **list, const struct gnv_gpu_bytes *bytes)
{
	while (*list && *list != bytes->cookie)
		list = &(*list)->next;
	if (*list)
		*list = (*list)->next;
}

int gnv_vram_find(const struct gnv_vram *list, uint64_t lane, size_t len, bool *cached)
{
	const struct gnv_vram *vram = list;

	while (vram && lane - vram->lane >= vram->len)
		vram = vram->next;
	if (!vram)
		return -ENOENT;
	*cached = vram->cached;
	return gnv_within(lane - vram->lane, len, vram->len) ? 0 : -ERANGE;
}

void gnv_vram_free(struct gnv_gpu_bytes *bytes)
{
	struct gnv_vram *vram = bytes->cookie;

	if (bytes->cpu)
		gnv_sys_unmap(bytes->cpu, bytes->len);
	if (bytes->how == GPUNVME_MEM_HIP)
		gnv_hip_free(&vram->hip);
	else if (!gnv_drm_free(vram->drm, &vram->bo)) /* else the kernel keeps it, and the device with it */
		gnv_drm_close(vram->drm);
	free(vram);
}

int gnv_vram_user_copy(struct gpunvme_gpu *gpu, void *ptr, size_t len)
{
	return gnv_hip_copy(gpu->spec + strlen("hsa:"), ptr, len);
}

bool gnv_vram_uncached(const struct gpunvme_gpu *gpu, int dmabuf)
{
	const char *bdf = strchr(gpu->spec, ':');

	return bdf && gnv_drm_uncached(GNV_SYSFS, bdf + 1, dmabuf);
}
