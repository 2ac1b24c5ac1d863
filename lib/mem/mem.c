/* SPDX-License-Identifier: MIT */
/*
 * Memory objects: their common part, and the public functions that concern no device.
 * Invariant: an object holds one reference to its GPU from its making to gnv_mem_release().
 */
#include "mem/mem.h"

#include <errno.h>
#include <stdlib.h>

#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

void gnv_mem_init(struct gpunvme_mem *mem, const struct gnv_mem_ops *ops)
{
	mem->ops = ops;
	mem->process = gnv_process();
	mem->dmabuf = -1;
	mem->fd = -1;
	pthread_mutex_init(&mem->lock, NULL);
}

void gnv_mem_fini(struct gpunvme_mem *mem)
{
	pthread_mutex_destroy(&mem->lock);
}

void gnv_mem_watch(struct gpunvme_mem *mem, struct gnv_mem_watch *watch)
{
	watch->next = mem->watches;
	mem->watches = watch;
}

void gnv_mem_unwatch(struct gpunvme_mem *mem, struct gnv_mem_watch *watch)
{
	struct gnv_mem_watch **link;

	for (link = &mem->watches; *link != watch; link = &(*link)->next)
		;
	*link = watch->next;
}

void gnv_mem_lose(struct gpunvme_mem *mem, bool gone)
{
	struct gnv_mem_watch *watch;

	pthread_mutex_lock(&mem->lock);
	mem->gone |= gone;
	for (watch = mem->watches; watch; watch = watch->next)
		watch->lost(watch);
	pthread_mutex_unlock(&mem->lock);
}

void gnv_mem_release(struct gpunvme_mem *mem)
{
	struct gpunvme_gpu *gpu = mem->gpu;

	if (mem->leaked)
		return;
	mem->ops->release(mem);
	gnv_mem_fini(mem);
	free(mem);
	if (gpu)
		gnv_gpu_put(gpu);
}

int gnv_mem_check_space(const struct gpunvme_mem *mem, const struct gnv_space *space)
{
	if (mem->cpu || mem->dmabuf >= 0 || space->copies)
		return 0;
	return gnv_fail(-EOPNOTSUPP, "%s memory without a CPU address and without a DMA-BUF is reached by no controller on "
				     "the bus. Use memory of the host", mem->ops->kind);
}

int gnv_mem_map(struct gpunvme_mem *mem, struct gnv_space *space, const struct gnv_log *log, uint64_t *iova)
{
	int ret = gnv_mem_check_space(mem, space);

	if (!ret)
		ret = space->ops->map(space, mem, iova);
	if (ret != -EOWNERDEAD)
		return ret;
	gnv_log(log, GPUNVME_LOG_ERROR, "%zu bytes are leaked: %s", mem->len, gpunvme_errmsg());
	mem->leaked = true;
	return -EIO;
}

void gnv_mem_log_unlocked(const struct gnv_log *log, size_t len)
{
	gnv_log(log, GPUNVME_LOG_WARN,
		"%zu bytes could not be locked in memory. Raise RLIMIT_MEMLOCK (ulimit -l) if this machine swaps (logged once)",
										len);
}

#define OF_GPU (GPUNVME_MEM_VRAM | GNV_MEM_VENDOR)

static int check_flags(uint32_t flags)
{
	const uint32_t known = GPUNVME_MEM_HUGE | GPUNVME_MEM_HOST | GPUNVME_MEM_CMB_LISTS | GPUNVME_MEM_SHARED | OF_GPU;

	if (flags & ~known)
		return gnv_fail(-EINVAL, "unknown memory flags 0x%x. Valid are GPUNVME_MEM_HUGE, _VRAM, _HIP, _DRM, _HOST, "
				"_CMB_LISTS, _SHARED",
				flags & ~known);
	if (flags & OF_GPU && !gnv_is_pow2(flags & ~(uint32_t)GPUNVME_MEM_CMB_LISTS))
		return gnv_fail(-EINVAL, "GPUNVME_MEM_VRAM, _HIP and _DRM exclude each other, and also GPUNVME_MEM_HOST, _HUGE and _SHARED");
	if (flags & GPUNVME_MEM_SHARED && flags & GPUNVME_MEM_HUGE)
		return gnv_fail(-EINVAL, "GPUNVME_MEM_SHARED and GPUNVME_MEM_HUGE exclude each other: another process could take huge pages "
					 "away");
	return 0;
}

static int alloc(struct gpunvme_gpu *gpu, size_t len, uint32_t flags, struct gpunvme_mem **mem)
{
	const bool host = flags & (GPUNVME_MEM_HOST | GPUNVME_MEM_SHARED);
	int ret;

	if (flags & OF_GPU || (!host && __atomic_load_n(&gpu->data_local, __ATOMIC_RELAXED)))
		return gnv_mem_gpu_alloc(gpu, flags & GNV_MEM_VENDOR, len, mem);
	if (!(flags & GPUNVME_MEM_HUGE) && __atomic_load_n(&gpu->data_by_fd, __ATOMIC_RELAXED))
		flags |= GPUNVME_MEM_SHARED;
	ret = gnv_mem_host_alloc_for(gpu, len, flags, mem);
	if (ret)
		return ret;
	if (!(*mem)->locked && gnv_gpu_first_unlocked(gpu))
		gnv_mem_log_unlocked(gnv_gpu_log(gpu), (*mem)->len);
	return 0;
}

GPUNVME_API int gpunvme_mem_alloc(struct gpunvme_gpu *gpu, size_t len, const struct gpunvme_mem_opts *user,
				  struct gpunvme_mem **mem)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	int ret = gnv_enter(gpu, gpu && mem, "gpu and mem");

	if (ret)
		return ret;
	ret = gnv_opts_copy(&opts, user, gpunvme_mem_opts);
	if (ret)
		return ret;
	ret = opts.reserved ? gnv_fail(-EINVAL, "gpunvme_mem_opts.reserved must be 0") : check_flags(opts.flags);
	if (!ret)
		ret = alloc(gpu, len, opts.flags, mem);
	if (!ret)
		(*mem)->lists_inside = opts.flags & GPUNVME_MEM_CMB_LISTS;
	return ret;
}

GPUNVME_API int gpunvme_mem_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gpunvme_mem **mem)
{
	int ret = gnv_enter(gpu, gpu && mem, "gpu and mem");

	if (ret)
		return ret;
	ret = !len || ((uintptr_t)ptr | len) & (gnv_sys_page_size() - 1) ? -ENOENT : gnv_mem_gpu_register(gpu, ptr, len, mem);
	if (ret != -ENOENT)
		return ret;
	ret = gnv_mem_host_register(ptr, len, mem);
	if (!ret)
		(*mem)->gpu = gnv_gpu_get(gpu);
	return ret;
}

GPUNVME_API void *gpunvme_mem_ptr(const struct gpunvme_mem *mem)
{
	return mem ? mem->cpu : NULL;
}

GPUNVME_API size_t gpunvme_mem_len(const struct gpunvme_mem *mem)
{
	return mem ? mem->len : 0;
}
