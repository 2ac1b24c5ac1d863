/* SPDX-License-Identifier: MIT */
/* Memory of the GPU, and DMA-BUFs of both directions. */
#include <errno.h>
#include <unistd.h>

#include "os/amd/hsa_table.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/log.h"

/* A runtime that knows the uncached flag may still refuse it for this GPU: fine-grained memory does then. */
static hsa_status_t allocate(struct gnv_hsa *gpu, hsa_amd_memory_pool_t pool, size_t len, bool data, void **ptr)
{
	hsa_status_t status = HSA_STATUS_ERROR;

	if (data && gpu->info.uncached)
		status = gpu->api.amd_memory_pool_allocate(pool, len, GNV_HSA_POOL_UNCACHED, ptr);
	if (status != HSA_STATUS_SUCCESS && !(data && (pool.handle == gpu->local.handle || gnv_hsa_is(gpu, "gfx12"))))
		status = gpu->api.amd_memory_pool_allocate(pool, len, 0, ptr);
	return status;
}

/* gfx12 caches fine-grained memory like any other (Linux gmc_v12_0.c, gmc_v12_0_get_vm_pte): only the uncached flag is honoured. */
static int no_data_pool(const struct gnv_hsa *gpu)
{
	if (gnv_hsa_is(gpu, "gfx12"))
		return gnv_fail(-EOPNOTSUPP,
				"GPU %s has no memory for data that running threads see: its kind (gfx12) needs uncached memory. Use ROCm 7.2 "
				"or newer",
				gpu->info.bdf);
	return gnv_fail(-EOPNOTSUPP,
			"GPU %s has no fine-grained memory for data: resizable BAR may be off in the firmware, or the runtime wants "
			"HSA_FORCE_FINE_GRAIN_PCIE=1",
			gpu->info.bdf);
}

static int fill(struct gnv_hsa *gpu, void *ptr, size_t len)
{
	const struct gnv_hsa_call call = { GNV_HSA_FILL, ptr, NULL, len };
	hsa_status_t status = HSA_STATUS_SUCCESS;
	int ret = gnv_hsa_bounded(gpu, &call, gpu->bound.ms, &status);

	if (!ret && status == HSA_STATUS_SUCCESS)
		return 0;
	if (ret != -EIO) /* else the kernel that fills it may come yet */
		gnv_hsa_pool_free(gpu, ptr);
	return ret ? -EIO : gnv_hsa_refused(gpu, status, -ENOMEM, "its memory cannot be filled");
}

int gnv_hsa_alloc(struct gnv_hsa *gpu, size_t len, bool data, void **ptr, bool *cpu)
{
	hsa_amd_memory_pool_t pool = data ? gpu->data : gpu->local;
	hsa_agent_t agents[2] = { gpu->agent, gpu->cpu };
	hsa_status_t status;

	if (data && !gpu->info.data_pool)
		return no_data_pool(gpu);
	if (gnv_hsa_usable(gpu))
		return -EIO;
	status = allocate(gpu, pool, len, data, ptr);
	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -ENOMEM, "no memory of the GPU");
	*cpu = data && gpu->cpu_reaches && gpu->api.amd_agents_allow_access(2, agents, NULL, *ptr) == HSA_STATUS_SUCCESS;
	return fill(gpu, *ptr, len);
}

/* A copy that is under way, and no longer waited for, may use it. */
void gnv_hsa_free(struct gnv_hsa *gpu, void *ptr)
{
	if (!gnv_hsa_bound_left(gpu))
		gnv_hsa_pool_free(gpu, ptr);
}

const char *gnv_hsa_kind(struct gnv_hsa *gpu, const void *ptr)
{
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };

	if (gpu->api.amd_pointer_info(ptr, &info, NULL, NULL, NULL) != HSA_STATUS_SUCCESS || info.type != HSA_EXT_POINTER_TYPE_HSA)
		return "unknown";
	if (info.global_flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT)
		return "uncached";
	if (info.global_flags & GNV_HSA_POOL_EXTENDED_FINE)
		return "extended fine-grained";
	return info.global_flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED ? "fine-grained" : "coarse-grained";
}

int gnv_hsa_export(struct gnv_hsa *gpu, void *ptr, size_t len, int *fd, uint64_t *offset)
{
	hsa_status_t status = HSA_STATUS_ERROR;

	if (!gpu->api.export_v1 && !gpu->api.export_v2)
		return gnv_fail(-EOPNOTSUPP, "this HSA runtime is too old to export memory as a DMA-BUF. Use ROCm 6 or newer");
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

int gnv_hsa_within(const hsa_amd_pointer_info_t *info, const void *base, const void *ptr, size_t len)
{
	const size_t size = gnv_align_up(info->sizeInBytes, GNV_HSA_PAGE), at = (uintptr_t)ptr - (uintptr_t)base;

	if (ptr >= base && gnv_within(at, len, size))
		return 0;
	return gnv_fail(-ERANGE, "%p to +%zu is not within its allocation of %zu bytes", ptr, len, info->sizeInBytes);
}

/*
 * Whether running threads may see old lines of memory with these flags, by the kernel's use of them (Linux gmc_v9_0.c,
 * gmc_v9_0_get_coherence_flags, gmc_v10_0_get_vm_pte, gmc_v11_0, gmc_v12_0). Uncached memory is uncached everywhere, and the
 * runtime shows it as KERNARG_INIT. Fine-grained memory is uncached on gfx906 and RDNA2 and 3 only. gfx908, gfx90a, gfx94x and
 * gfx12 cache it.
 */
bool gnv_hsa_may_cache(const struct gnv_hsa *gpu, uint32_t flags)
{
	static const char *const caching[] = { "gfx908", "gfx90a", "gfx94", "gfx95", "gfx12" };
	unsigned i;

	if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT)
		return false;
	for (i = 0; i < GNV_ARRAY_LEN(caching) && !gnv_hsa_is(gpu, caching[i]); i++)
		;
	return flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED || i < GNV_ARRAY_LEN(caching);
}

int gnv_hsa_pointer(struct gnv_hsa *gpu, void *ptr, size_t len, void **cpu, uint64_t *lane, bool *cached)
{
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };

	if (gpu->api.amd_pointer_info(ptr, &info, NULL, NULL, NULL) != HSA_STATUS_SUCCESS ||
	    info.type == HSA_EXT_POINTER_TYPE_UNKNOWN || info.type == HSA_EXT_POINTER_TYPE_LOCKED ||
	    gnv_hsa_is_cpu(gpu, info.agentOwner))
		return -ENOENT;
	if (info.type != HSA_EXT_POINTER_TYPE_HSA)
		return gnv_fail(-EOPNOTSUPP, "%p is memory of a GPU that was imported or mapped in pieces. Use memory of hipMalloc()",
				ptr);
	if (info.agentOwner.handle != gpu->agent.handle)
		return gnv_fail(-EXDEV, "%p is memory of another GPU than %s. Register it with the GPU that it belongs to", ptr,
				gpu->info.bdf);
	if (gnv_hsa_within(&info, info.agentBaseAddress, ptr, len))
		return -ERANGE;
	*lane = (uintptr_t)ptr;
	*cached = gnv_hsa_may_cache(gpu, info.global_flags);
	/* The runtime has a host address also for memory that the host cannot access. */
	*cpu = NULL;
	if (info.hostBaseAddress && gpu->cpu_reaches)
		*cpu = (char *)info.hostBaseAddress + ((char *)ptr - (char *)info.agentBaseAddress);
	return 0;
}
