/* SPDX-License-Identifier: MIT */
/*
 * The mock's memory. Its own is in a real BAR (bar.h), whose exports are real DMA-BUFs, or else every allocation is a memfd,
 * whose descriptor plays the DMA-BUF.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bar.h"
#include "fault.h"
#include "freed.h"
#include "mocks/kernel/seam.h"

/* Smaller allocations are pieces of blocks of that size (ROCr 6.4, MemoryRegion::fragment_allocator_), and the driver moves blocks. */
#define BLOCK (2u << 20)

struct mock_moves mock_moves;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects allocs */
static struct mock_alloc *allocs;

int mock_importers[MOCK_GPUS_MAX];

static void count(int *counter, int by)
{
	__atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

struct mock_alloc *mock_find(const void *ptr)
{
	struct mock_alloc *a;

	pthread_mutex_lock(&lock);
	for (a = allocs; a && ((const char *)ptr < a->ptr || (const char *)ptr >= a->ptr + a->len); a = a->next)
		;
	pthread_mutex_unlock(&lock);
	return a;
}

/*
 * What a driver does that cannot serve an importer where memory lies: all find it elsewhere now, except importers that had it
 * before.
 */
static void migrate(struct mock_alloc *a)
{
	void *copy = malloc(a->len);

	memcpy(copy, a->ptr, a->len);
	mmap(a->ptr, a->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memcpy(a->ptr, copy, a->len);
	free(copy);
	count(&mock_moves.allocations, 1);
	if (a->asked < BLOCK)
		count(&mock_moves.neighbours, 1);
	if (a->len > mock_moves.largest)
		mock_moves.largest = a->len;
}

static struct mock_alloc *of_dmabuf(ino_t dmabuf)
{
	struct mock_alloc *a;

	for (a = allocs; a && a->dmabuf != dmabuf; a = a->next)
		;
	return a;
}

/* MOCK_MIGRATES=WHEN:FROM:UPTO, of whose size it is. */
static void attached(ino_t dmabuf, bool refused)
{
	const char *plan = getenv("MOCK_MIGRATES");
	struct mock_alloc *a;
	size_t from, upto;
	char when[16];

	if (!plan || sscanf(plan, "%15[^:]:%zu:%zu", when, &from, &upto) != 3 || strcmp(when, refused ? "refused" : "accepted"))
		return;
	pthread_mutex_lock(&lock);
	a = of_dmabuf(dmabuf);
	if (a && a->len >= from && a->len <= upto)
		migrate(a);
	pthread_mutex_unlock(&lock);
}

/* MOCK_MIGRATES=whole: the kernel finds memory where it was driven to, as everyone does. */
static int instead(ino_t dmabuf)
{
	const char *plan = getenv("MOCK_MIGRATES");
	struct mock_alloc *a;
	int fd = -1;

	pthread_mutex_lock(&lock);
	a = plan && !strcmp(plan, "whole") ? of_dmabuf(dmabuf) : NULL;
	if (a && a->fd < 0) {
		a->fd = memfd_create("host", MFD_CLOEXEC);
		if (!ftruncate(a->fd, (off_t)a->len) && pwrite(a->fd, a->ptr, a->len, 0) == (ssize_t)a->len)
			mmap(a->ptr, a->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, a->fd, 0);
	}
	if (a)
		fd = a->fd;
	pthread_mutex_unlock(&lock);
	return fd;
}

static uint64_t in_host(ino_t dmabuf)
{
	struct mock_alloc *a;
	uint64_t bytes;

	pthread_mutex_lock(&lock);
	a = of_dmabuf(dmabuf);
	bytes = a && a->fd >= 0 ? a->len : 0;
	pthread_mutex_unlock(&lock);
	return bytes;
}

/* By libdrm or KFD; its own imports the runtime knows. */
static void mapped(void *ptr, size_t len)
{
	mock_range_add("bar", ptr, len, 1);
}

static void unmapped(void *ptr)
{
	mock_range_remove(ptr);
}

/* Pages for it, with a descriptor or -1. */
static bool back(struct mock_alloc *a)
{
	a->fd = -1;
	a->ptr = a->pool >= POOL_LOCAL ? mock_bar_alloc(a->len) : NULL;
	a->bar = a->ptr;
	if (&seam && a->bar) {
		seam.attached = attached;
		seam.instead = instead;
		seam.in_host = in_host;
		seam.mapped = mapped;
		seam.unmapped = unmapped;
	}
	if (a->bar || (a->pool >= POOL_LOCAL && getenv("MOCK_BAR")))
		return a->bar;
	if (a->pool < POOL_LOCAL) { /* a userptr of anonymous pages (libhsakmt fmm.c, fmm_allocate_host_gpu) */
		a->ptr = mmap(NULL, a->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		return (void *)a->ptr != MAP_FAILED;
	}
	a->fd = memfd_create("vram", MFD_CLOEXEC);
	a->ptr = a->fd < 0 || ftruncate(a->fd, (off_t)a->len) ? MAP_FAILED
							      : mmap(NULL, a->len, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	if ((void *)a->ptr != MAP_FAILED)
		return true;
	if (a->fd >= 0)
		close(a->fd);
	return false;
}

static void unback(struct mock_alloc *a)
{
	if (a->bar && seam_freed)
		seam_freed(a->ptr, a->len, a->dmabuf);
	if (a->bar)
		mock_bar_free(a->ptr, a->len);
	else /* a lane that still uses it must not find something else there */
		mmap(a->ptr, a->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	if (a->fd >= 0)
		close(a->fd);
}

static const char *pool_name(uint64_t pool)
{
	return pool == POOL_KERNARG ? "kernarg" : pool == POOL_HOST_COARSE ? "host, coarse" : pool < POOL_LOCAL ? "host" : pool < POOL_FINE ? "local" : pool < POOL_EXTENDED ? "fine" : "extended";
}

static unsigned gpu_of(uint64_t pool)
{
	return (unsigned)((pool - POOL_LOCAL) % MOCK_GPUS_MAX);
}

static unsigned gpus_of(const hsa_agent_t *agent, size_t agents)
{
	unsigned gpus = 0;

	for (; agents--; agent++)
		gpus |= agent->handle < AGENT_GPU ? 0 : 1u << (agent->handle - AGENT_GPU);
	return gpus;
}

MOCK_API hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags, void **ptr)
{
	struct mock_alloc *a;

	MOCK_FAILS("amd_memory_pool_allocate");
	if (flags & 8 && pool.handle < POOL_LOCAL)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	a = calloc(1, sizeof(*a));
	if (!a)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	a->len = (size + 4095) & ~(size_t)4095;
	a->pool = pool.handle;
	a->asked = size;
	a->uncached = flags & 8 && mock_number("MOCK_MINOR", 15) >= 15;
	if (!back(a)) {
		free(a);
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	}
	memset(a->ptr, 0xa5, a->len); /* what somebody had there before */
	pthread_mutex_lock(&lock);
	a->next = allocs;
	allocs = a;
	pthread_mutex_unlock(&lock);
	mock_range_add(pool_name(a->pool), a->ptr, a->len, a->pool < POOL_LOCAL ? 0 : 1u << gpu_of(a->pool));
	count(&mock_counts.allocations, 1);
	*ptr = a->ptr;
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_amd_memory_pool_free(void *ptr)
{
	struct mock_alloc *a = mock_find(ptr), **link;
	hsa_status_t status;

	if (!ptr)
		return HSA_STATUS_SUCCESS;
	if (!a || a->ptr != ptr)
		return HSA_STATUS_ERROR_INVALID_ALLOCATION;
	if (mock_fails("amd_memory_pool_free", &status)) {
		mock_not_freed(a->pool < POOL_LOCAL ? 0 : gpu_of(a->pool), (uintptr_t)ptr);
		return status;
	}
	pthread_mutex_lock(&lock);
	for (link = &allocs; *link != a; link = &(*link)->next)
		;
	*link = a->next;
	pthread_mutex_unlock(&lock);
	mock_tell_freed(a->ptr, a->len);
	mock_near_flush(a->ptr, a->len);
	mock_range_remove(a->ptr);
	unback(a);
	free(a);
	count(&mock_counts.allocations, -1);
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_amd_agents_allow_access(uint32_t agents, const hsa_agent_t *agent, const uint32_t *flags,
						     const void *ptr)
{
	struct mock_alloc *a = mock_find(ptr);

	MOCK_FAILS("amd_agents_allow_access");
	if (!a || a->ptr != ptr || flags || !agents) /* an allocation, by its first byte */
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	mock_range_allow(ptr, gpus_of(agent, agents));
	return HSA_STATUS_SUCCESS;
}

static int running[MOCK_GPUS_MAX]; /* atomic: lanes */

void mock_lanes_run(unsigned gpu, int more)
{
	__atomic_fetch_add(&running[gpu], more, __ATOMIC_RELAXED);
}

/*
 * Copies and fills are kernels of the GPU (ROCr 6.4, GpuAgent::DmaCopy and DmaFill: the blit kernel, waited for without limit). They
 * need units that no other kernel has; and what a GPU would have to do that has faulted never ends.
 */
static void must_live(const void *ptr)
{
	const struct mock_alloc *a = mock_find(ptr);
	const struct timespec ms = { 0, 1000000 };

	if (!a || a->pool < POOL_LOCAL)
		return;
	while (__atomic_load_n(&running[gpu_of(a->pool)], __ATOMIC_RELAXED) >= (int)mock_number("MOCK_UNITS", INT_MAX))
		nanosleep(&ms, NULL);
	if (!mock_is_dead(gpu_of(a->pool)))
		return;
	fprintf(stderr, "mock: a GPU that has faulted is asked to copy or fill\n");
	abort();
}

/* One at a time: RuntimeMutex of the copies (ROCr 6.4, GpuAgent::blit_lock_). */
static pthread_mutex_t copies = PTHREAD_MUTEX_INITIALIZER;

MOCK_API hsa_status_t hsa_amd_memory_fill(void *ptr, uint32_t value, size_t words)
{
	size_t i;

	MOCK_FAILS("amd_memory_fill");
	pthread_mutex_lock(&copies);
	must_live(ptr);
	mock_near_flush(ptr, words * 4);
	for (i = 0; i < words; i++)
		__atomic_store_n((uint32_t *)ptr + i, value, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&copies);
	return HSA_STATUS_SUCCESS;
}

/*
 * Memory that the runtime did not make it locks for the copy, and where the GPU has no shared virtual memory (HSA_USE_SVM=0, a kernel
 * without HSA_AMD_SVM) that is a userptr, for which the kernel must be able to write the pages (ROCr 6.4, Runtime::CopyMemory; libhsakmt
 * fmm.c, fmm_register_memory).
 */
static bool lockable(const void *ptr, size_t size)
{
	const uintptr_t from = (uintptr_t)ptr & ~(uintptr_t)4095;

	return !mock_is_hosts(ptr) || mock_find(ptr) || !madvise((void *)from, (uintptr_t)ptr + size - from, MADV_POPULATE_WRITE);
}

/*
 * Of what libdrm or KFD mapped the runtime knows nothing, and takes it for the host's: where both sides are that the CPU copies
 * (ROCr 6.4, Runtime::CopyMemory, is_system_mem), at an address that is only reserved there.
 */
static void must_be_known(const void *ptr)
{
	if (!mock_is_unknown(ptr))
		return;
	fprintf(stderr, "mock: a copy of memory that the runtime has not mapped: the CPU finds nothing there\n");
	abort();
}

/* Words of 8 bytes, then what is left: lanes change them meanwhile. */
MOCK_API hsa_status_t hsa_memory_copy(void *to, const void *from, size_t size)
{
	size_t i = 0;

	MOCK_FAILS("memory_copy");
	must_be_known(to);
	must_be_known(from);
	/* ROCm's would follow the lanes' address of locked memory, where the CPU has nothing. */
	if (mock_is_hosts(to) && mock_is_hosts(from))
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	if (!lockable(from, size))
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	pthread_mutex_lock(&copies);
	must_live(to);
	must_live(from);
	mock_near_flush(to, size);
	mock_near_flush(from, size);
	for (; !(((uintptr_t)to | (uintptr_t)from) & 7) && i + 8 <= size; i += 8)
		__atomic_store_n((uint64_t *)((char *)to + i),
				 __atomic_load_n((const uint64_t *)((const char *)from + i), __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	for (; !(((uintptr_t)to | (uintptr_t)from) & 3) && i + 4 <= size; i += 4)
		__atomic_store_n((uint32_t *)((char *)to + i),
				 __atomic_load_n((const uint32_t *)((const char *)from + i), __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	for (; i < size; i++)
		((char *)to)[i] = ((const char *)from)[i];
	pthread_mutex_unlock(&copies);
	return HSA_STATUS_SUCCESS;
}

/* As ROCm's: pages that are locked already are counted once more, and seen by nobody else for it. */
MOCK_API hsa_status_t hsa_amd_memory_lock_to_pool(void *ptr, size_t size, hsa_agent_t *agents, int count_of,
						     hsa_amd_memory_pool_t pool, uint32_t flags, void **agent_ptr)
{
	unsigned gpus = count_of ? gpus_of(agents, (size_t)count_of) : ~0u;
	const bool shared = !mock_number("MOCK_ALIAS", 0); /* virtual memory; else the first registration made a userptr, which stays */
	const bool first = !mock_is_locked(ptr);
	unsigned char resident;

	MOCK_FAILS("amd_memory_lock_to_pool");
	if (!ptr || ((uintptr_t)ptr | size) & 4095 || !agents != !count_of || pool.handle > POOL_HOST_COARSE || flags ||
	    mincore(ptr, 1, &resident) || mock_find(ptr) || /* libhsakmt: an object of its own without a userptr is no handle */
	    !mock_range_add("locked", ptr, size, gpus)) /* where something is */
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	if ((shared || first) && !(pool.handle != POOL_HOST_COARSE && mock_lacks("uncached")))
		mock_pages_locked(ptr, size, pool.handle == POOL_HOST_COARSE);
	count(&mock_counts.locks, 1);
	*agent_ptr = mock_number("MOCK_ALIAS", 0) ? (void *)(uintptr_t)mock_range_alias(ptr) : ptr;
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_amd_memory_unlock(void *ptr)
{
	const size_t len = mock_range_len(ptr);

	if (len) /* what is dirty must not be written where something else lies by then */
		mock_near_flush(ptr, len);
	if (!mock_range_remove(ptr))
		return HSA_STATUS_ERROR_INVALID_ALLOCATION;
	count(&mock_counts.locks, -1);
	return HSA_STATUS_SUCCESS;
}

/*
 * The runtime takes what amdgpu has exported, and nothing else: libhsakmt asks KFD of whom a DMA-BUF is
 * (hsakmt_fmm_register_graphics_ handle), which returns -EINVAL for others' (Linux amdgpu_amdkfd.c, amdgpu_amdkfd_get_dmabuf_info).
 * A newer one may (MOCK_INTEROP).
 */
static bool takes(int fd)
{
	struct stat st;
	bool own;

	pthread_mutex_lock(&lock);
	own = !fstat(fd, &st) && of_dmabuf(st.st_ino);
	pthread_mutex_unlock(&lock);
	return own || mock_number("MOCK_INTEROP", 0);
}

MOCK_API hsa_status_t hsa_amd_interop_map_buffer(uint32_t agents, hsa_agent_t *agent, int fd, uint32_t flags, size_t *size,
						    void **ptr, size_t *metadata_size, const void **metadata)
{
	off_t end = lseek(fd, 0, SEEK_END);

	(void)flags;
	(void)metadata_size;
	(void)metadata;
	MOCK_FAILS("amd_interop_map_buffer");
	if (!takes(fd))
		return HSA_STATUS_ERROR;
	if (agents != 1 || agent->handle < AGENT_GPU || end <= 0 || (seam_refuses && seam_refuses(SEAM_INTEROP)))
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	*size = (size_t)end;
	*ptr = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*ptr == MAP_FAILED) /* no kernel maps what vfio-pci exported */
		*ptr = seam_map ? seam_map(fd, NULL, SEAM_WAY_INTEROP, size) : NULL;
	if (!*ptr)
		return HSA_STATUS_ERROR;
	mock_range_add("imported", *ptr, *size, gpus_of(agent, agents));
	count(&mock_counts.imports, 1);
	count(&mock_importers[agent->handle - AGENT_GPU], 1);
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_amd_interop_unmap_buffer(void *ptr)
{
	MOCK_FAILS("amd_interop_unmap_buffer");
	if (!mock_range_remove(ptr))
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	if (seam_unmap)
		seam_unmap(ptr, true); /* else it is left: a late access of a test's lane is an error to be seen elsewhere */
	count(&mock_counts.imports, -1);
	return HSA_STATUS_SUCCESS;
}

static bool tell_agents(const struct mock_alloc *a, void *(*alloc)(size_t), uint32_t *agents, hsa_agent_t **accessible)
{
	unsigned i;

	*accessible = alloc(MOCK_GPUS_MAX * sizeof(**accessible));
	*agents = 0;
	for (i = 0; *accessible && i < MOCK_GPUS_MAX; i++)
		if (mock_has(i, (uintptr_t)a->ptr, 1))
			(*accessible)[(*agents)++].handle = AGENT_GPU + i;
	return *accessible;
}

MOCK_API hsa_status_t hsa_amd_pointer_info(const void *ptr, hsa_amd_pointer_info_t *info, void *(*alloc)(size_t),
					      uint32_t *agents, hsa_agent_t **accessible)
{
	struct mock_alloc *a = mock_find(ptr);

	if (!info->size)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	info->type = mock_is_locked(ptr) ? HSA_EXT_POINTER_TYPE_LOCKED : HSA_EXT_POINTER_TYPE_UNKNOWN;
	if (!a)
		return HSA_STATUS_SUCCESS;
	if (alloc && agents && accessible && !tell_agents(a, alloc, agents, accessible))
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	if (alloc)
		usleep(1000 * mock_number("MOCK_LATE", 0));
	info->type = (hsa_amd_pointer_type_t)mock_number("MOCK_POINTERS", HSA_EXT_POINTER_TYPE_HSA);
	info->agentBaseAddress = a->ptr;
	info->hostBaseAddress = a->ptr; /* as ROCm's, whichever processor reaches it */
	info->sizeInBytes = a->asked; /* not what it was rounded up to (ROCr 6.4, size_requested) */
	info->global_flags = mock_pool_flags(a->pool);
	if (a->uncached) /* so ROCr shows what KFD made so (runtime.cpp, Runtime::PtrInfo) */
		info->global_flags |= HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT;
	info->agentOwner.handle = a->pool < POOL_LOCAL ? AGENT_CPU + 1 - mock_number("MOCK_CPUS", 1) /* the farthest */
						       : AGENT_GPU + gpu_of(a->pool);
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_amd_portable_export_dmabuf(const void *ptr, size_t size, int *fd, uint64_t *offset);
MOCK_API hsa_status_t hsa_amd_portable_export_dmabuf(const void *ptr, size_t size, int *fd, uint64_t *offset)
{
	struct mock_alloc *a = mock_find(ptr);
	struct stat st;

	MOCK_FAILS("amd_portable_export_dmabuf");
	if (mock_lacks("export") || !a || a->pool < POOL_LOCAL || (const char *)ptr + size > a->ptr + a->len)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	*fd = a->bar ? mock_bar_export(a->ptr, a->len) : fcntl(a->fd, F_DUPFD_CLOEXEC, 3);
	if (*fd < 0)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	a->dmabuf = fstat(*fd, &st) ? 0 : st.st_ino;
	*offset = (uint64_t)((const char *)ptr - a->ptr);
	count(&mock_counts.exports, 1);
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_amd_portable_export_dmabuf_v2(const void *ptr, size_t size, int *fd, uint64_t *offset, uint64_t flags);
MOCK_API hsa_status_t hsa_amd_portable_export_dmabuf_v2(const void *ptr, size_t size, int *fd, uint64_t *offset, uint64_t flags)
{
	MOCK_FAILS("amd_portable_export_dmabuf_v2");
	return flags == 1 ? hsa_amd_portable_export_dmabuf(ptr, size, fd, offset) : HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

MOCK_API hsa_status_t hsa_amd_portable_close_dmabuf(int fd);
MOCK_API hsa_status_t hsa_amd_portable_close_dmabuf(int fd)
{
	close(fd);
	count(&mock_counts.exports, -1);
	return HSA_STATUS_SUCCESS;
}
