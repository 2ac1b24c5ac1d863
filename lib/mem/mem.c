/* SPDX-License-Identifier: MIT */
/*
 * Memory objects: their common part, and the public functions that concern no device.
 * Invariant: an object holds one reference to its GPU from its making to gnv_mem_release().
 */
#include "mem/mem.h"

#include <errno.h>
#include <stdlib.h>

#include "os/linux/sys.h"
#include "util/entry.h"
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
