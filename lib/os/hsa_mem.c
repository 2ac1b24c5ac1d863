/* SPDX-License-Identifier: MIT */
/* Memory of the GPU, memory of the host for it, and DMA-BUFs of both directions. */
#include <errno.h>
#include <unistd.h>

#include "os/hsa_table.h"
#include "util/log.h"

/* A runtime that knows the uncached flag may still refuse it for this GPU: fine-grained memory does then. */
static hsa_status_t allocate(struct gnv_hsa *gpu, hsa_amd_memory_pool_t pool, size_t len, bool data, void **ptr)
{
	hsa_status_t status = HSA_STATUS_ERROR;

	if (data && gpu->info.uncached)
		status = gpu->api.amd_memory_pool_allocate(pool, len, GNV_HSA_POOL_UNCACHED, ptr);
	if (status != HSA_STATUS_SUCCESS && !(data && pool.handle == gpu->local.handle))
		status = gpu->api.amd_memory_pool_allocate(pool, len, 0, ptr);
	return status;
}

int gnv_hsa_alloc(struct gnv_hsa *gpu, size_t len, bool data, void **ptr, bool *cpu)
{
	hsa_amd_memory_pool_t pool = data ? gpu->data : gpu->local;
	hsa_agent_t agents[2] = { gpu->agent, gpu->cpu };
	hsa_status_t status;

	if (data && !gpu->info.data_pool)
		return gnv_fail(-EOPNOTSUPP,
				"GPU %s has no fine-grained memory for data: resizable BAR may be off in the firmware, or the "
				"runtime wants "
				"HSA_FORCE_FINE_GRAIN_PCIE=1",
				gpu->info.bdf);
	if (gnv_hsa_faulted(gpu, "an earlier kernel"))
		return -EIO;
	status = allocate(gpu, pool, len, data, ptr);
	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -ENOMEM, "no memory of the GPU");
	*cpu = data && gpu->cpu_reaches && gpu->api.amd_agents_allow_access(2, agents, NULL, *ptr) == HSA_STATUS_SUCCESS;
	status = gpu->api.amd_memory_fill(*ptr, 0, len / 4);
	if (status == HSA_STATUS_SUCCESS)
		return 0;
	gpu->api.amd_memory_pool_free(*ptr);
	return gnv_hsa_refused(gpu, status, -ENOMEM, "its memory cannot be filled");
}

void gnv_hsa_free(struct gnv_hsa *gpu, void *ptr)
{
	gpu->api.amd_memory_pool_free(ptr);
}

int gnv_hsa_export(struct gnv_hsa *gpu, void *ptr, size_t len, int *fd, uint64_t *offset)
{
	hsa_status_t status = HSA_STATUS_ERROR;

	if (!gpu->api.export_v1 && !gpu->api.export_v2)
		return gnv_fail(-EOPNOTSUPP, "this HSA runtime is too old to export memory as a DMA-BUF; ROCm 6 does");
	if (gpu->api.export_v2)
		status = gpu->api.export_v2(ptr, len, fd, offset, GNV_HSA_EXPORT_PCIE);
	if (status != HSA_STATUS_SUCCESS && gpu->api.export_v1)
		status = gpu->api.export_v1(ptr, len, fd, offset);
	return status == HSA_STATUS_SUCCESS ? 0 : gnv_hsa_refused(gpu, status, -EOPNOTSUPP, "no DMA-BUF of its memory");
}

void gnv_hsa_export_close(struct gnv_hsa *gpu, int fd)
{
	if (!gpu->api.export_end || gpu->api.export_end(fd) != HSA_STATUS_SUCCESS)
		close(fd);
}

int gnv_hsa_lock(struct gnv_hsa *gpu, void *cpu, size_t len, uint64_t *lane)
{
	void *ptr = NULL;
	/* For all GPUs: the runtime maps pages once, and counts whoever asks again without looking for which GPU. */
	hsa_status_t status = gpu->api.amd_memory_lock_to_pool(cpu, len, NULL, 0, gpu->host, 0, &ptr);

	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, status == HSA_STATUS_ERROR_OUT_OF_RESOURCES ? -ENOMEM : -EIO,
				       "it cannot be given memory of the host");
	*lane = (uintptr_t)ptr;
	return 0;
}

void gnv_hsa_unlock(struct gnv_hsa *gpu, void *cpu)
{
	gpu->api.amd_memory_unlock(cpu);
}

int gnv_hsa_import(struct gnv_hsa *gpu, int fd, size_t len, uint64_t *lane)
{
	size_t size = 0;
	void *ptr = NULL;
	hsa_status_t status = gpu->api.amd_interop_map_buffer(1, &gpu->agent, fd, 0, &size, &ptr, NULL, NULL);

	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -EOPNOTSUPP, "it does not take that DMA-BUF");
	if (size < len) {
		gpu->api.amd_interop_unmap_buffer(ptr);
		return gnv_fail(-EIO, "GPU %s: it mapped %zu bytes of a DMA-BUF of %zu", gpu->info.bdf, size, len);
	}
	*lane = (uintptr_t)ptr;
	return 0;
}

int gnv_hsa_unimport(struct gnv_hsa *gpu, uint64_t lane)
{
	hsa_status_t status = gpu->api.amd_interop_unmap_buffer((void *)(uintptr_t)lane);

	return status == HSA_STATUS_SUCCESS ? 0 : gnv_hsa_refused(gpu, status, -EBUSY, "it does not let go of a DMA-BUF");
}

int gnv_hsa_pointer(struct gnv_hsa *gpu, void *ptr, size_t len, void **cpu, uint64_t *lane, bool *cached)
{
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };
	uintptr_t base, at = (uintptr_t)ptr;

	if (gpu->api.amd_pointer_info(ptr, &info, NULL, NULL, NULL) != HSA_STATUS_SUCCESS ||
	    info.type == HSA_EXT_POINTER_TYPE_UNKNOWN || info.type == HSA_EXT_POINTER_TYPE_LOCKED ||
	    gnv_hsa_is_cpu(gpu, info.agentOwner))
		return -ENOENT;
	if (info.type != HSA_EXT_POINTER_TYPE_HSA)
		return gnv_fail(-EOPNOTSUPP, "%p is memory of a GPU that was imported or mapped in pieces; use what hipMalloc() gives",
				ptr);
	if (info.agentOwner.handle != gpu->agent.handle)
		return gnv_fail(-EXDEV, "%p is memory of another GPU than %s; register it with the GPU that it belongs to", ptr,
				gpu->info.bdf);
	base = (uintptr_t)info.agentBaseAddress;
	if (at < base || len > info.sizeInBytes || at - base > info.sizeInBytes - len)
		return gnv_fail(-ERANGE, "%p to +%zu is not within its allocation of %zu bytes", ptr, len, info.sizeInBytes);
	*lane = at;
	*cached = info.global_flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
	/* The runtime has an address of the host's for what the host does not reach, too. */
	*cpu = info.hostBaseAddress && gpu->cpu_reaches ? (char *)info.hostBaseAddress + (at - base) : NULL;
	return 0;
}

int gnv_hsa_copy(struct gnv_hsa *gpu, void *to, const void *from, size_t len)
{
	hsa_status_t status;

	if (gnv_hsa_faulted(gpu, "an earlier kernel"))
		return -EIO;
	status = gpu->api.memory_copy(to, from, len);
	return status == HSA_STATUS_SUCCESS ? 0 : gnv_hsa_refused(gpu, status, -EIO, "its memory cannot be copied");
}
