/* SPDX-License-Identifier: MIT */
/*
 * An AMD GPU through ROCm's HSA runtime. Its addresses are those of the process: HSA has one address space for all.
 * Invariant: all that was attached is detached before the runtime goes, which the references to the GPU guarantee.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gfx.h"
#include "gpu/hsa_lanes.h"
#include "gpu/invalidate.h"
#include "gpu/kernels/code_object.h"
#include "gpu/vram.h"
#include "os/amd/amdregs.h"
#include "os/amd/drm.h"
#include "os/amd/hip_module.h"
#include "os/amd/hsa.h"
#include "os/amd/nodes.h"
#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/mmio.h"

static int hsa_open(struct gpunvme_gpu *gpu, const char *rest)
{
	struct gnv_code_object code;
	const struct gnv_hsa_info *info;
	struct gnv_hsa_lanes *lanes;
	struct gnv_hsa *hsa;
	int ret;

	if (!rest)
		return gnv_fail(-EINVAL, "gpu 'hsa': give its number, as in hsa:0, or its PCI address, as in hsa:0000:03:00.0");
	ret = gnv_hsa_open(rest, &hsa);
	if (ret)
		return ret;
	lanes = calloc(1, sizeof(*lanes));
	info = gnv_hsa_info(hsa);
	ret = lanes ? gnv_code_object_find(info->isa, &code) : gnv_fail(-ENOMEM, "out of memory");
	if (!ret)
		ret = gnv_hsa_load(hsa, code.elf, code.len);
	if (ret) {
		gnv_hsa_close(hsa);
		free(lanes);
		return ret;
	}
	pthread_mutex_init(&lanes->lock, NULL);
	lanes->hsa = hsa;
	lanes->kfd_id = gnv_kfd_id(GNV_SYSFS, info->bdf, info->node);
	gpu->priv = lanes;
	gpu->own_memory = true;
	gpu->info.kind = GPUNVME_GPU_HSA;
	gpu->info.width = info->width;
	gpu->stale_reads = gnv_gfx_reads_stale(info->isa);
	gpu->keeps_stores = !gnv_hsa_writes_back(hsa);
	gpu->info.ticks_per_ms = (uint32_t)(info->clock_hz / 1000);
	gnv_gfx_name(gpu->info.name, sizeof(gpu->info.name), info->name, info->isa, info->bdf);
	snprintf(gpu->spec, sizeof(gpu->spec), "hsa:%.16s", info->bdf);
	gnv_log(&gpu->log, GPUNVME_LOG_DEBUG,
		"%s: code for %s, %llu MiB, waves of %u, clock of %u kHz, HSA extensions 1.%u%s", gpu->info.name, code.gfx,
		(unsigned long long)info->vram >> 20, info->width, gpu->info.ticks_per_ms, info->version,
		info->data_pool ? "" : ", no memory for data");
	return 0;
}

static void hsa_close(struct gpunvme_gpu *gpu)
{
	struct gnv_hsa_lanes *lanes = gpu->priv;

	gnv_hip_module_close(lanes->module);
	gnv_hsa_close(lanes->hsa);
	pthread_mutex_destroy(&lanes->lock);
	free(lanes);
}

static int alloc_by_runtime(struct gpunvme_gpu *gpu, size_t len, struct gnv_gpu_bytes *bytes)
{
	void *ptr;
	bool cpu;
	int ret = gnv_hsa_alloc(gnv_hsa_of(gpu), len, true, &ptr, &cpu);

	if (ret)
		return ret;
	*bytes = (struct gnv_gpu_bytes){ .cpu = cpu ? ptr : NULL,
					 .lane = (uintptr_t)ptr,
					 .len = len,
					 .page = gnv_sys_page_size(),
					 .cookie = ptr,
					 .dmabuf = -1 };
	gnv_log(&gpu->log, GPUNVME_LOG_DEBUG, "%zu bytes of memory of the GPU for data: %s", len, gnv_hsa_kind(gnv_hsa_of(gpu), ptr));
	ret = gnv_hsa_export(gnv_hsa_of(gpu), ptr, len, &bytes->dmabuf, &bytes->dmabuf_offset);
	if (ret) {
		bytes->dmabuf = -1; /* threads can use it all the same, and a controller perhaps by its CPU mapping */
		gnv_log(&gpu->log, GPUNVME_LOG_INFO, "%s", gpunvme_errmsg());
	}
	return 0;
}

static int alloc_by_driver(struct gpunvme_gpu *gpu, uint32_t how, size_t len, struct gnv_gpu_bytes *bytes)
{
	struct gnv_hsa_lanes *lanes = gpu->priv;
	const struct gnv_hsa_info *info = gnv_hsa_info(lanes->hsa);
	int ret = gnv_vram_alloc(how, GNV_SYSFS, info->bdf, lanes->kfd_id, len, &gpu->log, bytes);

	if (ret)
		return ret;
	bytes->cached = bytes->cached && !gnv_hsa_writes_back(lanes->hsa) && !(how == GPUNVME_MEM_DRM && gnv_gfx_maps_uncached(info->isa));
	ret = gnv_gpu_fill(gpu, bytes->lane, bytes->len, 0); /* also shows that threads reach it */
	if (ret) {
		gnv_vram_free(bytes);
		return ret;
	}
	pthread_mutex_lock(&lanes->lock);
	gnv_vram_add(&lanes->past, bytes);
	pthread_mutex_unlock(&lanes->lock);
	return 0;
}

static int hsa_mem_alloc(struct gpunvme_gpu *gpu, uint32_t how, size_t len, struct gnv_gpu_bytes *bytes)
{
	len = gnv_align_up(len, gnv_sys_page_size());
	return how ? alloc_by_driver(gpu, how, len, bytes) : alloc_by_runtime(gpu, len, bytes);
}

static int hsa_mem_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gnv_gpu_bytes *bytes)
{
	void *cpu = NULL;
	uint64_t lane = 0;
	bool cached = false;
	int ret = gnv_hsa_pointer(gnv_hsa_of(gpu), ptr, len, &cpu, &lane, &cached);

	if (ret)
		return ret;
	*bytes = (struct gnv_gpu_bytes){ .cpu = cpu, .lane = lane, .len = len, .page = gnv_sys_page_size(), .dmabuf = -1 };
	if (gnv_hsa_export(gnv_hsa_of(gpu), ptr, len, &bytes->dmabuf, &bytes->dmabuf_offset))
		bytes->dmabuf = -1;
	if (!cached || gnv_drm_uncached(GNV_SYSFS, gnv_hsa_info(gnv_hsa_of(gpu))->bdf, bytes->dmabuf))
		return 0;
	bytes->cached = !gnv_hsa_writes_back(gnv_hsa_of(gpu));
	gnv_log(&gpu->log, GPUNVME_LOG_WARN,
		"%zu bytes at %p may be cached by this GPU: what a controller writes is seen by kernels that begin after "
		"hipStreamSynchronize() or gpunvme_gpu_fence()%s. Other kernels, also the next one of a stream, may see old data. "
		"Use memory of gpunvme_mem_alloc(), or with ROCm 7.2 hipExtMallocWithFlags(..., hipDeviceMallocUncached) if the "
		"runtime passes the flag on",
		len, ptr, bytes->cached ? ", and commands that write from there need the same" : "");
	return 0;
}

static int hsa_mem_check(struct gpunvme_gpu *gpu, uint64_t lane, size_t len)
{
	void *cpu;
	uint64_t same;
	bool cached;

	return gnv_hsa_pointer(gnv_hsa_of(gpu), (void *)(uintptr_t)lane, len, &cpu, &same, &cached);
}

static int hsa_mem_reach(struct gpunvme_gpu *gpu, uint64_t lane, size_t len, bool *cached)
{
	struct gnv_hsa_lanes *lanes = gpu->priv;
	int ret = gnv_hsa_reach(lanes->hsa, lane, len, cached);

	if (ret != -ENOENT)
		return ret;
	pthread_mutex_lock(&lanes->lock);
	ret = gnv_vram_find(lanes->past, lane, len, cached);
	pthread_mutex_unlock(&lanes->lock);
	return ret;
}

static int hsa_mem_watch(struct gpunvme_gpu *gpu, const void *ptr, struct gnv_alloc *alloc)
{
	return gnv_hsa_watch(gnv_hsa_of(gpu), ptr, alloc);
}

static void hsa_mem_unwatch(struct gpunvme_gpu *gpu, struct gnv_alloc *alloc)
{
	gnv_hsa_unwatch(gnv_hsa_of(gpu), alloc);
}

/* The runtime reports its end, so it needs no tag. */
static bool hsa_mem_same(struct gpunvme_gpu *gpu, const void *ptr, const struct gnv_alloc *alloc)
{
	(void)gpu;
	(void)ptr;
	(void)alloc;
	return true;
}

static void hsa_mem_free(struct gpunvme_gpu *gpu, struct gnv_gpu_bytes *bytes)
{
	struct gnv_hsa_lanes *lanes = gpu->priv;

	if (bytes->how) {
		pthread_mutex_lock(&lanes->lock);
		gnv_vram_remove(&lanes->past, bytes);
		pthread_mutex_unlock(&lanes->lock);
		gnv_vram_free(bytes);
		return;
	}
	if (bytes->dmabuf >= 0)
		gnv_hsa_export_close(gnv_hsa_of(gpu), bytes->dmabuf);
	if (bytes->cookie)
		gnv_hsa_free(gnv_hsa_of(gpu), bytes->cookie);
}

static int hsa_mem_stays(struct gpunvme_gpu *gpu, int dmabuf)
{
	const struct gnv_hsa_info *info = gnv_hsa_info(gnv_hsa_of(gpu));
	uint64_t bytes;

	if (dmabuf < 0 || gnv_drm_host_bytes(GNV_SYSFS, info->bdf, dmabuf, &bytes) || !bytes)
		return 0;
	return gnv_fail(-EIO, "%s: its driver has moved %llu bytes of its memory to the host's, for the controller", info->bdf,
			(unsigned long long)bytes);
}

static int hsa_host_attach(struct gpunvme_gpu *gpu, void *cpu, size_t len, struct gnv_gpu_range *range)
{
	struct gnv_hsa_locked *locked = NULL;
	int ret = gnv_hsa_lock(gnv_hsa_of(gpu), cpu, len, &range->lane, &locked);

	range->cookie = locked; /* NULL: memory of the runtime's own */
	return ret;
}

static int hsa_host_detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	if (range->cookie)
		gnv_hsa_unlock(gnv_hsa_of(gpu), range->cookie);
	return 0;
}

/* Memory of the runtime's own is not locked. */
static int hsa_host_renew(struct gpunvme_gpu *gpu, const struct gnv_gpu_range *range)
{
	return range->cookie ? gnv_hsa_renew(gnv_hsa_of(gpu), range->cookie) : 0;
}

static int hsa_host_alloc(struct gpunvme_gpu *gpu, size_t len, void **ptr)
{
	return gnv_hsa_host_alloc(gnv_hsa_of(gpu), len, ptr);
}

static void hsa_host_free(struct gpunvme_gpu *gpu, void *ptr)
{
	gnv_hsa_host_free(gnv_hsa_of(gpu), ptr);
}

static int hsa_fence(struct gpunvme_gpu *gpu)
{
	int ret = gnv_hsa_renew(gnv_hsa_of(gpu), NULL);

	if (ret)
		return ret;
	return gnv_hsa_fence(gnv_hsa_of(gpu));
}

static int hsa_local_alloc(struct gpunvme_gpu *gpu, size_t len, struct gnv_gpu_range *range)
{
	bool cpu;
	int ret = gnv_hsa_alloc(gnv_hsa_of(gpu), gnv_align_up(len, gnv_sys_page_size()), false, &range->cookie, &cpu);

	range->lane = (uintptr_t)range->cookie;
	return ret;
}

static void hsa_local_free(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, size_t len)
{
	(void)len;
	gnv_hsa_free(gnv_hsa_of(gpu), range->cookie);
}

static int hsa_peek(struct gpunvme_gpu *gpu, void *to, uint64_t lane, size_t len)
{
	return gnv_hsa_peek(gnv_hsa_of(gpu), to, lane, len);
}

static int hsa_poke(struct gpunvme_gpu *gpu, uint64_t lane, const void *from, size_t len)
{
	return gnv_hsa_poke(gnv_hsa_of(gpu), lane, from, len);
}

static int hsa_launch(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	char symbol[64];
	const struct gnv_hsa_job job = { symbol,	     launch->args,	 launch->args_len, launch->threads,
					 GNV_KERNEL_GROUP,   launch->timeout_ms, launch->gets_on,  launch->ctx };

	if (launch->kernel >= GNV_KERNELS)
		return gnv_fail(-EINVAL, "no such kernel");
	snprintf(symbol, sizeof(symbol), "%s.kd", gnv_kernel_names[launch->kernel]);
	return gnv_hsa_run(gnv_hsa_of(gpu), &job);
}

static int hsa_coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what)
{
	const struct gnv_hsa_info *info = gnv_hsa_info(gnv_hsa_of(gpu));

	if (what == GPUNVME_COHERENCE_INVALIDATE)
		return gnv_gpu_invalidate_at(GNV_SYSFS, GNV_DEBUGFS, info->bdf);
	if (!info->hdp_flush)
		return gnv_fail(-EOPNOTSUPP, "%s: the ROCm runtime does not show the register that flushes the CPU's writes", info->bdf);
	gnv_mmio_write32(info->hdp_flush, 1);
	gnv_mmio_read32(info->hdp_flush); /* completes after the write */
	return 0;
}

const struct gnv_gpu_ops gnv_gpu_hsa_ops = {
	.name = "hsa",
	.open = hsa_open,
	.close = hsa_close,
	.mem_alloc = hsa_mem_alloc,
	.mem_register = hsa_mem_register,
	.mem_free = hsa_mem_free,
	.mem_check = hsa_mem_check,
	.mem_reach = hsa_mem_reach,
	.mem_watch = hsa_mem_watch,
	.mem_unwatch = hsa_mem_unwatch,
	.mem_same = hsa_mem_same,
	.mem_stays = hsa_mem_stays,
	.host_attach = hsa_host_attach,
	.host_detach = hsa_host_detach,
	.host_renew = hsa_host_renew,
	.host_alloc = hsa_host_alloc,
	.host_free = hsa_host_free,
	.fence = hsa_fence,
	.mmio_attach = gnv_hsa_mmio_attach,
	.mmio_detach = gnv_hsa_mmio_detach,
	.mmio_fence_off = gnv_hsa_mmio_fence_off,
	.mmio_distrust = gnv_hsa_mmio_distrust,
	.local_alloc = hsa_local_alloc,
	.local_free = hsa_local_free,
	.peek = hsa_peek,
	.poke = hsa_poke,
	.launch = hsa_launch,
	.enqueue = gnv_hsa_enqueue,
	.user_copy = gnv_vram_user_copy,
	.coherence = hsa_coherence,
};
