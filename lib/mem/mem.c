/* SPDX-License-Identifier: MIT */
/*
 * Memory objects: their common part, and the public functions that concern no device.
 * Invariant: an object holds one reference to its GPU from its making to gnv_mem_release().
 */
#include "mem/mem.h"

#include <errno.h>
#include <stdlib.h>

#include "gpu.h"
#include "util/opts.h"

void gnv_mem_init(struct gpunvme_mem *mem, const struct gnv_mem_ops *ops)
{
	mem->ops = ops;
	mem->dmabuf = -1;
	pthread_mutex_init(&mem->lock, NULL);
}

void gnv_mem_fini(struct gpunvme_mem *mem)
{
	pthread_mutex_destroy(&mem->lock);
}

void gnv_mem_release(struct gpunvme_mem *mem)
{
	struct gpunvme_gpu *gpu = mem->gpu;

	mem->ops->release(mem);
	gnv_mem_fini(mem);
	free(mem);
	if (gpu)
		gnv_gpu_put(gpu);
}

void gnv_mem_log_unlocked(const struct gnv_log *log, size_t len)
{
	gnv_log(log, GPUNVME_LOG_WARN,
		"%zu bytes could not be locked in memory; raise RLIMIT_MEMLOCK (ulimit -l) if this machine swaps (said once)", len);
}

GPUNVME_API int gpunvme_mem_alloc(struct gpunvme_gpu *gpu, size_t len, const struct gpunvme_mem_opts *user,
				  struct gpunvme_mem **mem)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	int ret;

	if (!gpu || !mem)
		return gnv_fail(-EINVAL, "gpunvme_mem_alloc: gpu and mem must not be NULL");
	ret = gnv_opts_copy(&opts, sizeof(opts), user, "gpunvme_mem_opts");
	if (ret)
		return ret;
	ret = gnv_mem_host_alloc(len, opts.flags, gnv_gpu_log(gpu), mem);
	if (ret)
		return ret;
	(*mem)->gpu = gnv_gpu_get(gpu);
	if (!(*mem)->locked && gnv_gpu_first_unlocked(gpu))
		gnv_mem_log_unlocked(gnv_gpu_log(gpu), (*mem)->len);
	return 0;
}

GPUNVME_API int gpunvme_mem_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gpunvme_mem **mem)
{
	int ret;

	if (!gpu || !mem)
		return gnv_fail(-EINVAL, "gpunvme_mem_register: gpu and mem must not be NULL");
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
