/* SPDX-License-Identifier: MIT */
/*
 * Memory of a GPU by cuMemCreate() and cuMemMap(), with the rules of the CUDA driver API (Virtual Memory Management), and as driver
 * 580.159 reports it on an H200: each mapping has a number of its own, the range that is reported is the reserved one, and of an
 * address without a mapping there is nothing. An access to that ends the context there, and here the program.
 */
#include "inside.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/nvidia/uapi/cuda.h"
#include "mock.h"

#define GRANULARITY ((size_t)2 << 20)
#define MANY 64

static struct {
	int fd, device, handles, mappings; /* none of either: it is free */
	size_t len;
} physical[MANY];
static struct {
	char *ptr; /* NULL: free */
	size_t len;
} reserved[MANY];
static struct {
	struct mapped mapped; /* of length 0: free */
	int of;
} mapping[MANY];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* CUmemAllocationProp */
struct prop {
	int type, handles;
	int location, device;
	void *win32;
	unsigned char flags[8];
};

static void end_if_unused(int i)
{
	if (physical[i].handles || physical[i].mappings)
		return;
	close(physical[i].fd);
	__atomic_fetch_sub(&cuda_mock()->allocations, 1, __ATOMIC_ACQ_REL);
	physical[i].len = 0;
}

static int find_reserved(const char *ptr, size_t len)
{
	int i;

	for (i = 0; i < MANY; i++)
		if (reserved[i].ptr && ptr >= reserved[i].ptr && ptr + len <= reserved[i].ptr + reserved[i].len)
			return i;
	return -1;
}

static int find_mapping(const char *ptr)
{
	int i;

	for (i = 0; i < MANY; i++)
		if (mapping[i].mapped.len && ptr >= mapping[i].mapped.ptr && ptr < mapping[i].mapped.ptr + mapping[i].mapped.len)
			return i;
	return -1;
}

static bool is_uneven(uint64_t at)
{
	return at % GRANULARITY;
}

PUBLIC int cuMemGetAllocationGranularity(size_t *granularity, const struct prop *prop, int option);
PUBLIC int cuMemGetAllocationGranularity(size_t *granularity, const struct prop *prop, int option)
{
	if (prop->type != 1 || prop->location != GNV_CUDA_LOCATION_DEVICE || option > 1)
		return GNV_CUDA_INVALID_VALUE;
	*granularity = GRANULARITY;
	return 0;
}

PUBLIC int cuMemAddressReserve(gnv_cuda_ptr *at, size_t len, size_t align, gnv_cuda_ptr hint, unsigned long long flags);
PUBLIC int cuMemAddressReserve(gnv_cuda_ptr *at, size_t len, size_t align, gnv_cuda_ptr hint, unsigned long long flags)
{
	char *ptr = mmap(NULL, len + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int i;

	if (!len || is_uneven(len) || align || hint || flags || ptr == MAP_FAILED)
		return GNV_CUDA_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (i = 0; i < MANY - 1 && reserved[i].ptr; i++)
		;
	reserved[i].ptr = (char *)(((uintptr_t)ptr + GRANULARITY - 1) & ~(GRANULARITY - 1));
	reserved[i].len = len;
	*at = (uintptr_t)reserved[i].ptr;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* "The size must match what was given to memAddressReserve and the ptr given must match." */
PUBLIC int cuMemAddressFree(gnv_cuda_ptr at, size_t len);
PUBLIC int cuMemAddressFree(gnv_cuda_ptr at, size_t len)
{
	const int i = find_reserved((char *)(uintptr_t)at, len);
	int j;

	for (j = 0; j < MANY && i >= 0; j++)
		if (mapping[j].mapped.len && mapping[j].mapped.reserved == reserved[i].ptr)
			return GNV_CUDA_INVALID_VALUE;
	if (i < 0 || reserved[i].ptr != (char *)(uintptr_t)at || reserved[i].len != len)
		return GNV_CUDA_INVALID_VALUE;
	reserved[i].ptr = NULL;
	return 0;
}

/* "The size of this allocation must be a multiple of the value given via cuMemGetAllocationGranularity." */
PUBLIC int cuMemCreate(gnv_cuda_handle *handle, size_t len, const struct prop *prop, unsigned long long flags);
PUBLIC int cuMemCreate(gnv_cuda_handle *handle, size_t len, const struct prop *prop, unsigned long long flags)
{
	int i;

	if (prop->type != 1 || prop->location != GNV_CUDA_LOCATION_DEVICE || prop->device >= cuda_mock()->devices || !len || is_uneven(len) ||
	    flags)
		return GNV_CUDA_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (i = 0; i < MANY - 1 && physical[i].len; i++)
		;
	physical[i].fd = memfd_create("memory of a GPU", MFD_CLOEXEC);
	physical[i].device = prop->device;
	physical[i].handles = 1;
	physical[i].len = ftruncate(physical[i].fd, (off_t)len) ? 0 : len;
	pthread_mutex_unlock(&lock);
	__atomic_fetch_add(&cuda_mock()->allocations, 1, __ATOMIC_ACQ_REL);
	*handle = (gnv_cuda_handle)i + 1;
	return physical[i].len ? 0 : GNV_CUDA_OUT_OF_MEMORY;
}

/* "The memory allocation will be freed when all outstanding mappings to the memory are unmapped", and all handles are released. */
PUBLIC gnv_cuda_handle_fn cuMemRelease;
PUBLIC int cuMemRelease(gnv_cuda_handle handle)
{
	pthread_mutex_lock(&lock);
	if (!handle || handle > MANY || physical[handle - 1].handles < 1)
		mock_broke("cuMemRelease");
	else if (!--physical[handle - 1].handles)
		end_if_unused((int)handle - 1);
	pthread_mutex_unlock(&lock);
	return 0;
}

/* "Offset ... currently must be zero." Nothing may be mapped there, and no GPU has access at first. */
PUBLIC int cuMemMap(gnv_cuda_ptr at, size_t len, size_t offset, gnv_cuda_handle handle, unsigned long long flags);
PUBLIC int cuMemMap(gnv_cuda_ptr at, size_t len, size_t offset, gnv_cuda_handle handle, unsigned long long flags)
{
	char *ptr = (char *)(uintptr_t)at;
	const int r = find_reserved(ptr, len), of = (int)handle - 1;
	size_t step;
	int i;

	if (offset || flags || r < 0 || !len || is_uneven(at | len) || of < 0 || len > physical[of].len)
		return GNV_CUDA_INVALID_VALUE;
	for (step = 0; step < len; step += GRANULARITY)
		if (find_mapping(ptr + step) >= 0)
			return GNV_CUDA_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (i = 0; i < MANY - 1 && mapping[i].mapped.len; i++)
		;
	if (mmap(ptr, len, PROT_NONE, MAP_SHARED | MAP_FIXED, physical[of].fd, 0) == MAP_FAILED)
		mock_broke("cuMemMap");
	mapping[i].of = of;
	mapping[i].mapped = (struct mapped){ reserved[r].ptr, reserved[r].len, ptr, len, physical[of].device, mock_next_id(), 0, 0 };
	physical[of].mappings++;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* "The range must be the entire contiguous address range that was mapped to." */
PUBLIC int cuMemUnmap(gnv_cuda_ptr at, size_t len);
PUBLIC int cuMemUnmap(gnv_cuda_ptr at, size_t len)
{
	const int i = find_mapping((char *)(uintptr_t)at);

	if (i < 0 || mapping[i].mapped.ptr != (char *)(uintptr_t)at || mapping[i].mapped.len != len)
		return GNV_CUDA_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	mapping[i].mapped.len = 0;
	if (mmap((void *)(uintptr_t)at, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		mock_broke("cuMemUnmap");
	physical[mapping[i].of].mappings--;
	end_if_unused(mapping[i].of);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int set_access(struct mapped *m, const struct gnv_cuda_access *access)
{
	const unsigned bit = 1u << access->id;
	int prot;

	if (access->type != GNV_CUDA_LOCATION_DEVICE || access->id < 0 || access->id >= cuda_mock()->devices)
		return GNV_CUDA_INVALID_DEVICE;
	if (access->id != m->device && cuda_mock()->apart)
		return GNV_CUDA_NOT_SUPPORTED;
	m->readers = access->flags & 1 ? m->readers | bit : m->readers & ~bit;
	m->writers = access->flags == GNV_CUDA_ACCESS_READWRITE ? m->writers | bit : m->writers & ~bit;
	prot = m->writers ? PROT_READ | PROT_WRITE : m->readers ? PROT_READ : PROT_NONE;
	return mprotect(m->ptr, m->len, prot) ? GNV_CUDA_INVALID_VALUE : 0;
}

/* "The range must be a fully mapped address range containing all allocations": no part of a mapping. */
PUBLIC gnv_cuda_mem_access_fn cuMemSetAccess;
PUBLIC int cuMemSetAccess(gnv_cuda_ptr at, size_t len, const struct gnv_cuda_access *access, size_t count)
{
	char *ptr = (char *)(uintptr_t)at, *end = ptr + len;
	int error = mock_asked(__func__, false), i;

	for (; !error && ptr < end; ptr += mapping[i].mapped.len) {
		i = find_mapping(ptr);
		if (i < 0 || mapping[i].mapped.ptr != ptr || mapping[i].mapped.len > (size_t)(end - ptr) || count != 1)
			return GNV_CUDA_INVALID_VALUE;
		error = set_access(&mapping[i].mapped, access);
	}
	return error;
}

/* "If the address requested is not mapped, the function will fail." Memory of cuMemAlloc() and of pools has no handle (driver 580). */
PUBLIC gnv_cuda_handle_of_fn cuMemRetainAllocationHandle;
PUBLIC int cuMemRetainAllocationHandle(gnv_cuda_handle *handle, void *at)
{
	int error = mock_asked(__func__, false), i;

	if (error)
		return error;
	pthread_mutex_lock(&lock);
	i = find_mapping(at);
	if (i >= 0) {
		*handle = (gnv_cuda_handle)mapping[i].of + 1;
		physical[mapping[i].of].handles++;
	}
	pthread_mutex_unlock(&lock);
	return i < 0 ? GNV_CUDA_INVALID_VALUE : 0;
}

bool mapped_find(const char *ptr, struct mapped *found)
{
	int i;

	pthread_mutex_lock(&lock);
	i = find_mapping(ptr);
	if (i >= 0)
		*found = mapping[i].mapped;
	pthread_mutex_unlock(&lock);
	return i >= 0;
}
