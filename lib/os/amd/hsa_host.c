/* SPDX-License-Identifier: MIT */
/*
 * Host memory for threads of the GPU.
 *
 * If waves bypass the L2 of their GPU, the pages must be uncached. Pages that are locked into the fine-grained pool are. A copy by
 * HIP from or to pageable memory locks them as coarse-grained, which makes them cached for good: the runtime sets an attribute of
 * pages (libhsakmt fmm.c, fmm_register_mem_svm_api, and Linux kfd_svm.c, svm_range_apply_attrs), and unlocking does not restore it.
 * The runtime does not lock its own memory (hsakmt_fmm_register_memory: not a userptr when one is expected), so HIP stages its
 * copies.
 *
 * The runtime's own memory has private anonymous pages, of which KFD has a userptr (fmm_allocate_host_gpu, and MemoryRegion's
 * constructor does not set NonPaged for host memory). So VFIO, IOMMUFD and io_uring pin it like any other memory. With
 * HSA_USERPTR_FOR_PAGED_MEM=0 it is the driver's, mapped as PFNs, which they refuse.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/amd/hsa_table.h"
#include "os/linux/sys.h"
#include "util/checked.h"
#include "util/log.h"

#define AGENTS 64u /* more than a machine has */

int gnv_hsa_host_alloc(struct gnv_hsa *gpu, size_t len, void **ptr)
{
	hsa_status_t status;

	if (gnv_hsa_usable(gpu))
		return -EIO;
	status = gpu->api.amd_memory_pool_allocate(gpu->host, len, 0, ptr);
	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -ENOMEM, "no memory of the host");
	if (!gnv_sys_adopt(*ptr, len)) {
		memset(*ptr, 0, len);
		return 0;
	}
	gnv_hsa_pool_free(gpu, *ptr);
	return gnv_fail(-EOPNOTSUPP,
			"GPU %s: the runtime's memory of the host cannot be shared with a controller. Unset HSA_USERPTR_FOR_PAGED_MEM",
			gpu->info.bdf);
}

void gnv_hsa_host_free(struct gnv_hsa *gpu, void *ptr)
{
	if (!gnv_hsa_bound_left(gpu))
		gnv_hsa_pool_free(gpu, ptr);
}

static int lock_pages(struct gnv_hsa *gpu, void *cpu, size_t len, uint64_t *lane)
{
	void *ptr = NULL;
	/* For all GPUs: the runtime maps pages once, and only counts later calls, whatever GPU they name. */
	hsa_status_t status = gpu->api.amd_memory_lock_to_pool(cpu, len, NULL, 0, gpu->host, 0, &ptr);

	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, status == HSA_STATUS_ERROR_OUT_OF_RESOURCES ? -ENOMEM : -EIO,
				       "it cannot be given memory of the host");
	*lane = (uintptr_t)ptr;
	return 0;
}

/* GPUs that may use an allocation, and this one with them. */
struct sharers {
	hsa_agent_t agent[AGENTS + 1];
	uint32_t count;
};

/* The runtime does not free what it allocates for this list, so the library provides the memory, for one list at a time. */
static _Thread_local hsa_agent_t answer[AGENTS];

static void *answer_room(size_t bytes)
{
	return bytes <= sizeof(answer) ? answer : NULL;
}

static void add_sharer(struct sharers *sharers, hsa_agent_t agent)
{
	uint32_t i;

	for (i = 0; i < sharers->count && sharers->agent[i].handle != agent.handle; i++)
		;
	if (i == sharers->count && i <= AGENTS)
		sharers->agent[sharers->count++] = agent;
}

/*
 * Memory of the host that is the runtime's own, as of hipHostMalloc(): it cannot be locked (libhsakmt fmm.c, fmm_register_memory),
 * and need not be. Giving it to a GPU takes it from those that are not named.
 * Return: 0; -ENOENT it is not; negative.
 */
static int share_locked(struct gnv_hsa *gpu, void *cpu, size_t len, uint64_t *lane)
{
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };
	struct sharers sharers = { .count = 0 };
	hsa_agent_t *able = NULL;
	uint32_t count = 0, i;
	hsa_status_t status = gpu->api.amd_pointer_info(cpu, &info, answer_room, &count, &able);

	if (status != HSA_STATUS_SUCCESS || info.type != HSA_EXT_POINTER_TYPE_HSA || !gnv_hsa_is_cpu(gpu, info.agentOwner))
		return -ENOENT;
	if (gnv_hsa_within(&info, info.hostBaseAddress, cpu, len))
		return -ERANGE;
	if (info.global_flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED && !gnv_hsa_writes_back(gpu))
		return gnv_fail(-EOPNOTSUPP,
				"%p is host memory that GPU %s caches, so kernels and the drive could see old data of each other. "
				"Allocate it with hipHostMalloc(..., hipHostMallocCoherent), or set HIP_HOST_COHERENT=1",
				cpu, gpu->info.bdf);
	*lane = (uintptr_t)info.agentBaseAddress + (size_t)((char *)cpu - (char *)info.hostBaseAddress);
	for (i = 0; able && i < count; i++)
		add_sharer(&sharers, able[i]);
	add_sharer(&sharers, gpu->agent);
	if (sharers.count == count) /* it was among them */
		return 0;
	status = gpu->api.amd_agents_allow_access(sharers.count, sharers.agent, NULL, info.agentBaseAddress);
	return status == HSA_STATUS_SUCCESS ? 0 : gnv_hsa_refused(gpu, status, -EIO, "it cannot be given memory of the runtime's");
}

static int share_own(struct gnv_hsa *gpu, void *cpu, size_t len, uint64_t *lane)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all GPUs: the list is read, and written with one more */
	int ret;

	pthread_mutex_lock(&lock);
	ret = share_locked(gpu, cpu, len, lane);
	pthread_mutex_unlock(&lock);
	return ret;
}

static int note_locked(struct gnv_hsa *gpu, void *cpu, size_t len, uint64_t lane, struct gnv_hsa_locked **out)
{
	struct gnv_hsa_locked *locked = malloc(sizeof(*locked));

	if (!locked) {
		gpu->api.amd_memory_unlock(cpu);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	pthread_mutex_lock(&gpu->locked_lock);
	*locked = (struct gnv_hsa_locked){ gpu->locked, cpu, len, lane };
	gpu->locked = locked;
	pthread_mutex_unlock(&gpu->locked_lock);
	*out = locked;
	return 0;
}

int gnv_hsa_lock(struct gnv_hsa *gpu, void *cpu, size_t len, uint64_t *lane, struct gnv_hsa_locked **locked)
{
	int ret = share_own(gpu, cpu, len, lane);

	*locked = NULL;
	if (ret != -ENOENT)
		return ret;
	ret = lock_pages(gpu, cpu, len, lane);
	if (ret)
		return ret;
	return note_locked(gpu, cpu, len, *lane, locked);
}

/* By its record: one address may be locked twice, with two lengths. */
void gnv_hsa_unlock(struct gnv_hsa *gpu, struct gnv_hsa_locked *locked)
{
	struct gnv_hsa_locked **link;

	pthread_mutex_lock(&gpu->locked_lock);
	for (link = &gpu->locked; *link != locked; link = &(*link)->next)
		;
	*link = locked->next;
	gpu->api.amd_memory_unlock(locked->cpu);
	pthread_mutex_unlock(&gpu->locked_lock);
	free(locked);
}

/* The runtime does not know locked memory where it only sets attributes of pages (libhsakmt fmm.c, fmm_register_mem_svm_api). */
static int find_locked(struct gnv_hsa *gpu, uint64_t lane, size_t len)
{
	const struct gnv_hsa_locked *locked;
	int ret = -ENOENT;

	pthread_mutex_lock(&gpu->locked_lock);
	for (locked = gpu->locked; locked && ret; locked = locked->next)
		if (lane - locked->lane < locked->len)
			ret = gnv_within(lane - locked->lane, len, locked->len) ? 0 : -ERANGE;
	pthread_mutex_unlock(&gpu->locked_lock);
	return ret;
}

int gnv_hsa_reach(struct gnv_hsa *gpu, uint64_t lane, size_t len, bool *cached)
{
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };
	void *const ptr = (void *)(uintptr_t)lane;
	hsa_agent_t *able = NULL;
	uint32_t count = 0, i;
	int ret = find_locked(gpu, lane, len);

	*cached = false;
	if (ret != -ENOENT)
		return ret;
	if (gpu->api.amd_pointer_info(ptr, &info, answer_room, &count, &able) != HSA_STATUS_SUCCESS ||
	    info.type != HSA_EXT_POINTER_TYPE_HSA)
		return -ENOENT;
	if (gnv_hsa_within(&info, info.agentBaseAddress, ptr, len))
		return -ERANGE;
	*cached = gnv_hsa_is_cpu(gpu, info.agentOwner) ? info.global_flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED :
							  gnv_hsa_may_cache(gpu, info.global_flags);
	for (i = 0; able && i < count; i++)
		if (able[i].handle == gpu->agent.handle)
			return 0;
	return -EXDEV;
}

/* Where there is no shared virtual memory this counts up and down, and the pages never changed. */
int gnv_hsa_renew(struct gnv_hsa *gpu, const struct gnv_hsa_locked *only)
{
	const struct gnv_hsa_locked *locked;
	int ret = 0, failed;
	uint64_t lane;

	if (gnv_hsa_writes_back(gpu))
		return 0;
	pthread_mutex_lock(&gpu->locked_lock);
	for (locked = gpu->locked; locked; locked = locked->next) {
		if (only && locked != only)
			continue;
		failed = lock_pages(gpu, locked->cpu, locked->len, &lane);
		if (!failed)
			gpu->api.amd_memory_unlock(locked->cpu);
		else if (!ret) /* go on with the others */
			ret = gnv_fail(failed, "%zu bytes at %p cannot be made uncached again. Call gpunvme_mem_free() or "
					       "gpunvme_mem_cache_forget() before they are unmapped", locked->len, locked->cpu);
	}
	pthread_mutex_unlock(&gpu->locked_lock);
	return ret;
}
