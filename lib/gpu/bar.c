/* SPDX-License-Identifier: MIT */
/* Invariant: KFD gets no DMA-BUF that it may have got before: it takes two imports of one for the same, and frees it twice. */
#include "gpu/bar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/amd/drm.h"
#include "os/amd/kfd.h"
#include "os/linux/dmabuf.h"

const char *const gnv_bar_way_name[GNV_BAR_WAYS] = { "interop", "drm", "kfd" };

/* The data that the ways keep. */
struct interop {
	void *va;
	int dmabuf;
};

struct drm {
	struct gnv_drm *drm;
	struct gnv_drm_bo bo;
};

static int interop_map(const struct gnv_bar_gpu *gpu, int dmabuf, size_t len, void *priv, void **va)
{
	struct interop *interop = priv;
	int ret = gpu->interop_map(gpu->ctx, dmabuf, len, &interop->va);

	if (ret) {
		gnv_dmabuf_close(dmabuf);
		return ret;
	}
	interop->dmabuf = dmabuf;
	*va = interop->va;
	return 0;
}

static int interop_unmap(const struct gnv_bar_gpu *gpu, void *priv)
{
	struct interop *interop = priv;

	if (gpu->interop_unmap(gpu->ctx, interop->va))
		return gnv_fail(-EBUSY,
				"the ROCm runtime does not let go of a BAR. The device must stay open until the process ends");
	gnv_dmabuf_close(interop->dmabuf);
	return 0;
}

static int interop_fence_off(const struct gnv_bar_gpu *gpu, void *priv, bool reset)
{
	(void)priv;
	return reset ? gnv_fail(-EOPNOTSUPP, "%s: the ROCm runtime puts nothing in the place of a BAR. End kernels before the "
					     "device goes",
				gpu->bdf) :
		       0;
}

static int drm_map(const struct gnv_bar_gpu *gpu, int dmabuf, size_t len, void *priv, void **va)
{
	struct drm *drm = priv;
	int ret = gnv_drm_open_shared(gpu->sys, gpu->bdf, gpu->kfd_id, &drm->drm);

	if (ret) {
		gnv_dmabuf_close(dmabuf);
		return ret;
	}
	ret = gnv_drm_import(drm->drm, dmabuf, len, &drm->bo);
	if (!ret)
		*va = drm->bo.va;
	else if (ret != -EBUSY)
		gnv_drm_close(drm->drm);
	return ret;
}

static int drm_unmap(const struct gnv_bar_gpu *gpu, void *priv)
{
	struct drm *drm = priv;
	int ret = gnv_drm_free(drm->drm, &drm->bo);

	(void)gpu;
	if (!ret)
		gnv_drm_close(drm->drm);
	return ret;
}

/* Before, because the kernel drops the entries at the reset. */
static int drm_fence_off(const struct gnv_bar_gpu *gpu, void *priv, bool reset)
{
	struct drm *drm = priv;

	(void)gpu;
	return reset ? 0 : gnv_drm_fence_off(drm->drm, &drm->bo);
}

static int kfd_map(const struct gnv_bar_gpu *gpu, int dmabuf, size_t len, void *priv, void **va)
{
	struct gnv_kfd_map *map = priv;
	int ret = gnv_kfd_import(gpu->kfd_id, dmabuf, len, map);

	if (!ret)
		*va = map->va;
	return ret;
}

static int kfd_unmap(const struct gnv_bar_gpu *gpu, void *priv)
{
	(void)gpu;
	return gnv_kfd_release(priv);
}

/* After the reset, because this stops the GPU's queues for a while, and for a moment there is no mapping. */
static int kfd_fence_off(const struct gnv_bar_gpu *gpu, void *priv, bool reset)
{
	(void)gpu;
	return reset ? gnv_kfd_fence_off(priv) : 0;
}

static const struct {
	size_t size; /* of the data that it keeps */
	/* The DMA-BUF is the way's from now on. */
	int (*map)(const struct gnv_bar_gpu *gpu, int dmabuf, size_t len, void *priv, void **va);
	int (*unmap)(const struct gnv_bar_gpu *gpu, void *priv); /* 0, -EBUSY */
	int (*fence_off)(const struct gnv_bar_gpu *gpu, void *priv, bool reset);
} ways[GNV_BAR_WAYS] = {
	[GNV_BAR_INTEROP] = { sizeof(struct interop), interop_map, interop_unmap, interop_fence_off },
	[GNV_BAR_DRM] = { sizeof(struct drm), drm_map, drm_unmap, drm_fence_off },
	[GNV_BAR_KFD] = { sizeof(struct gnv_kfd_map), kfd_map, kfd_unmap, kfd_fence_off },
};

static int try_way(const struct gnv_bar_gpu *gpu, enum gnv_bar_way way, bool shared, int dmabuf, size_t len, struct gnv_bar *bar)
{
	void *va = NULL;
	int ret;

	if (shared && way == GNV_BAR_KFD) {
		gnv_dmabuf_close(dmabuf);
		return gnv_fail(-EOPNOTSUPP, "others may have imported that DMA-BUF, and KFD would take the two for one");
	}
	bar->priv = calloc(1, ways[way].size);
	if (!bar->priv) {
		gnv_dmabuf_close(dmabuf);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	ret = ways[way].map(gpu, dmabuf, len, bar->priv, &va);
	if (!ret) {
		bar->way = way;
		bar->fenced_off = false;
		bar->lane = (uintptr_t)va;
	} else if (ret != -EBUSY) {
		free(bar->priv);
	} /* else the kernel kept a part of it, and so do we */
	return ret;
}

static int export_all(const struct gnv_gpu_foreign *foreign, int *dmabuf, uint64_t *offset, uint64_t *size)
{
	int ret = foreign->export_fd(foreign->ctx, dmabuf, offset);

	if (ret)
		return ret;
	if (!gnv_dmabuf_size(*dmabuf, size) && *offset <= *size && foreign->len <= *size - *offset)
		return 0;
	gnv_dmabuf_close(*dmabuf);
	return gnv_fail(-EINVAL, "the DMA-BUF of the doorbells is smaller than they are");
}

int gnv_bar_map(const struct gnv_bar_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_bar *bar)
{
	bool kfd_first = !strncmp(gpu->gfx, "gfx94", 5);
	const enum gnv_bar_way order[GNV_BAR_WAYS] = { kfd_first ? GNV_BAR_KFD : GNV_BAR_DRM, kfd_first ? GNV_BAR_DRM : GNV_BAR_KFD,
						       GNV_BAR_INTEROP };
	uint64_t offset = 0, size = 0;
	int ret, dmabuf;

	for (unsigned i = 0; i < GNV_BAR_WAYS; i++) {
		if (gpu->distrust >> order[i] & 1)
			continue;
		ret = export_all(foreign, &dmabuf, &offset, &size);
		if (ret)
			return ret;
		ret = try_way(gpu, order[i], foreign->shared, dmabuf, size, bar);
		if (!ret) {
			bar->lane += offset;
			gnv_log(gpu->log, GPUNVME_LOG_INFO, "%s: the GPU reaches the doorbells, by %s", gpu->bdf,
				gnv_bar_way_name[order[i]]);
			return 0;
		}
		if (ret == -EBUSY || ret == -ENOMEM || ret == -EMFILE)
			return ret;
		gnv_log(gpu->log, GPUNVME_LOG_INFO, "%s: the GPU cannot reach the doorbells by %s: %s", gpu->bdf,
			gnv_bar_way_name[order[i]], gpunvme_errmsg());
	}
	return gnv_fail(-EOPNOTSUPP,
			"%s: the GPU cannot reach the doorbells of the controller by any way. The log names the reasons", gpu->bdf);
}

int gnv_bar_fence_off(const struct gnv_bar_gpu *gpu, struct gnv_bar *bar, bool reset)
{
	bar->fenced_off |= bar->way == (reset ? GNV_BAR_KFD : GNV_BAR_DRM);
	return ways[bar->way].fence_off(gpu, bar->priv, reset);
}

int gnv_bar_unmap(const struct gnv_bar_gpu *gpu, struct gnv_bar *bar)
{
	int ret = ways[bar->way].unmap(gpu, bar->priv);

	if (!ret)
		free(bar->priv);
	return ret;
}
