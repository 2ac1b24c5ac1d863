/* SPDX-License-Identifier: MIT */
/* Data memory for threads, where the rings of a queue lie. */
#include <errno.h>

#include "queue/queue.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"

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

static int check_queue(const struct gpunvme_gpu *gpu, const struct gpunvme_queue *queue)
{
	if (!queue || queue->gpu == gpu)
		return 0;
	return gnv_fail(-EINVAL, "gpunvme_mem_alloc: the queue is of another GPU (%s) than the memory (%s), or of another handle. Pass a "
				 "queue of the memory's GPU, or NULL for memory of the host", queue->gpu->info.name, gpu->info.name);
}

static int alloc(struct gpunvme_gpu *gpu, const struct gpunvme_queue *queue, size_t len, uint32_t flags, struct gpunvme_mem **mem)
{
	const bool host = flags & (GPUNVME_MEM_HOST | GPUNVME_MEM_SHARED);
	int ret;

	if (flags & OF_GPU || (!host && queue && queue->local))
		return gnv_mem_gpu_alloc(gpu, flags & GNV_MEM_VENDOR, len, mem);
	if (!(flags & GPUNVME_MEM_HUGE) && queue && queue->by_fd)
		flags |= GPUNVME_MEM_SHARED;
	ret = gnv_mem_host_alloc_for(gpu, len, flags, mem);
	if (ret)
		return ret;
	if (!(*mem)->locked && gnv_gpu_first_unlocked(gpu))
		gnv_mem_log_unlocked(gnv_gpu_log(gpu), (*mem)->len);
	return 0;
}

GPUNVME_API int gpunvme_mem_alloc(struct gpunvme_gpu *gpu, struct gpunvme_queue *queue, size_t len,
				  const struct gpunvme_mem_opts *user, struct gpunvme_mem **mem)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	int ret = gnv_enter(gpu, gpu && mem, "gpu and mem");

	if (!ret)
		ret = check_queue(gpu, queue);
	if (!ret)
		ret = gnv_opts_copy(&opts, user, gpunvme_mem_opts);
	if (ret)
		return ret;
	ret = opts.reserved ? gnv_fail(-EINVAL, "gpunvme_mem_opts.reserved must be 0") : check_flags(opts.flags);
	if (!ret)
		ret = alloc(gpu, queue, len, opts.flags, mem);
	if (!ret)
		(*mem)->lists_inside = opts.flags & GPUNVME_MEM_CMB_LISTS;
	return ret;
}
