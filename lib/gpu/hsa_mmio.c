/* SPDX-License-Identifier: MIT */
/* Doorbells of a controller for an AMD GPU. Invariant: a range that cannot be unmapped keeps its cookie. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/bar.h"
#include "gpu/hsa_lanes.h"
#include "os/linux/sysfs.h"

static int interop_map(void *ctx, int dmabuf, size_t len, void **va)
{
	uint64_t lane;
	int ret = gnv_hsa_import(ctx, dmabuf, len, &lane);

	if (!ret)
		*va = (void *)(uintptr_t)lane;
	return ret;
}

static int interop_unmap(void *ctx, void *va)
{
	return gnv_hsa_unimport(ctx, (uintptr_t)va);
}

static struct gnv_bar_gpu bar_gpu(struct gpunvme_gpu *gpu)
{
	const struct gnv_hsa_lanes *lanes = gpu->priv;
	const struct gnv_hsa_info *info = gnv_hsa_info(lanes->hsa);
	const char *gfx = strstr(info->isa, "gfx");

	return (struct gnv_bar_gpu){ .sys = GNV_SYSFS,
				     .bdf = info->bdf,
				     .kfd_id = lanes->kfd_id,
				     .gfx = gfx ? gfx : "",
				     .distrust = __atomic_load_n(&gpu->distrust, __ATOMIC_RELAXED),
				     .log = &gpu->log,
				     .interop_map = interop_map,
				     .interop_unmap = interop_unmap,
				     .ctx = lanes->hsa };
}

int gnv_hsa_mmio_attach(struct gpunvme_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_gpu_range *range)
{
	const struct gnv_bar_gpu where = bar_gpu(gpu);
	struct gnv_bar *bar = calloc(1, sizeof(*bar));
	int ret = bar ? gnv_bar_map(&where, foreign, bar) : gnv_fail(-ENOMEM, "out of memory");

	if (ret) {
		free(bar);
		return ret;
	}
	range->lane = bar->lane;
	range->cookie = bar;
	range->way = bar->way;
	range->doubtful = true;
	return 0;
}

int gnv_hsa_mmio_detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	const struct gnv_bar_gpu where = bar_gpu(gpu);
	int ret = gnv_bar_unmap(&where, range->cookie);

	if (!ret)
		free(range->cookie);
	return ret;
}

int gnv_hsa_mmio_fence_off(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, bool reset)
{
	const struct gnv_bar_gpu where = bar_gpu(gpu);
	struct gnv_bar *bar = range->cookie;
	int ret;

	if (!range->doubtful)
		return 0; /* registers in memory of the host stay what they are, and the cookie is no BAR */
	ret = gnv_bar_fence_off(&where, bar, reset);
	range->fenced_off = bar->fenced_off;
	return ret;
}

void gnv_hsa_mmio_distrust(struct gpunvme_gpu *gpu, const struct gnv_gpu_range *range)
{
	__atomic_fetch_or(&gpu->distrust, 1u << range->way, __ATOMIC_RELAXED);
	gnv_log(&gpu->log, GPUNVME_LOG_WARN, "doorbells that the GPU reaches by %s do not arrive in time. Another way is taken",
		gnv_bar_way_name[range->way]);
}
