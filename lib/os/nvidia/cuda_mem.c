/* SPDX-License-Identifier: MIT */
/* Memory of a GPU, and the driver's facts about an address. */
#include <errno.h>

#include "os/nvidia/cuda_table.h"
#include "util/checked.h"

int gnv_cuda_alloc(struct gnv_cuda *cuda, size_t len, uint64_t *at)
{
	int ret = gnv_cuda_enter(cuda), error;

	if (ret)
		return ret;
	error = cuda->api.alloc(at, len, cuda->stream);
	if (!error) {
		error = cuda->api.set(*at, 0, len, cuda->stream);
		if (!error)
			error = cuda->api.stream_wait(cuda->stream);
		if (error) {
			cuda->api.free(*at, cuda->stream);
			*at = 0;
		}
	}
	gnv_cuda_leave(cuda);
	return error ? gnv_cuda_failed(cuda, "memory of the GPU", error) : 0;
}

void gnv_cuda_free(struct gnv_cuda *cuda, uint64_t at)
{
	if (gnv_cuda_enter(cuda))
		return;
	cuda->api.free(at, cuda->stream);
	gnv_cuda_leave(cuda);
}

int gnv_cuda_read(struct gnv_cuda *cuda, void *to, uint64_t at, size_t len)
{
	int ret = gnv_cuda_enter(cuda), error;

	if (ret)
		return ret;
	error = cuda->api.from_device(to, at, len, cuda->stream);
	if (!error)
		error = cuda->api.stream_wait(cuda->stream);
	gnv_cuda_leave(cuda);
	return error ? gnv_cuda_failed_here(cuda, "cuMemcpyDtoHAsync", error) : 0;
}

int gnv_cuda_write(struct gnv_cuda *cuda, uint64_t at, const void *from, size_t len)
{
	int ret = gnv_cuda_enter(cuda), error;

	if (ret)
		return ret;
	error = cuda->api.to_device(at, from, len, cuda->stream);
	if (!error)
		error = cuda->api.stream_wait(cuda->stream);
	gnv_cuda_leave(cuda);
	return error ? gnv_cuda_failed_here(cuda, "cuMemcpyHtoDAsync", error) : 0;
}

static bool ask(struct gnv_cuda *cuda, const void *ptr, int attribute, void *value)
{
	int error;

	if (gnv_cuda_enter(cuda))
		return false;
	error = cuda->api.pointer(value, attribute, (uintptr_t)ptr);
	gnv_cuda_leave(cuda);
	return !error;
}

uint64_t gnv_cuda_tag(struct gnv_cuda *cuda, const void *ptr)
{
	uint64_t tag = 0;

	/* Drivers have been seen to return it without a context, in half the time. */
	if (!cuda->api.pointer(&tag, GNV_CUDA_POINTER_TAG, (uintptr_t)ptr))
		return tag;
	return ask(cuda, ptr, GNV_CUDA_POINTER_TAG, &tag) ? tag : 0;
}

/* ---- Memory of cuMemMap(): parts of a range of reserved addresses are mapped, each by itself ---- */

struct mapping {
	gnv_cuda_ptr base;
	size_t len;
};

/* In the context. Only such memory has a handle (cuMemRetainAllocationHandle). */
static bool is_mapped(struct gnv_cuda *cuda, uint64_t at)
{
	gnv_cuda_handle handle;

	return !cuda->api.mem_handle(&handle, (void *)(uintptr_t)at) && !cuda->api.mem_release(handle);
}

/* In the context. Return: false: nothing is mapped there, or an older driver does not report it. */
static bool find_mapping(struct gnv_cuda *cuda, uint64_t at, struct mapping *mapping)
{
	return !cuda->api.pointer(&mapping->base, GNV_CUDA_POINTER_MAPPING_BASE, at) &&
	       !cuda->api.pointer(&mapping->len, GNV_CUDA_POINTER_MAPPING_LEN, at) && at - mapping->base < mapping->len;
}

/*
 * Each mapping has a number of its own, also where the same memory is mapped again (driver 580), and an address where nothing is
 * mapped has none.
 */
uint64_t gnv_cuda_tags(struct gnv_cuda *cuda, const void *ptr, size_t len)
{
	const uint64_t end = (uintptr_t)ptr + len;
	uint64_t at, tag, tags = 0;
	struct mapping mapping;

	if (gnv_cuda_enter(cuda))
		return 0;
	for (at = (uintptr_t)ptr; at < end; at = mapping.base + mapping.len) {
		tag = gnv_cuda_tag(cuda, (const void *)(uintptr_t)at);
		if (!tag || !find_mapping(cuda, at, &mapping))
			break;
		tags = (tags ^ tag) * 0x9e3779b97f4a7c15ull;
	}
	gnv_cuda_leave(cuda);
	return at < end ? 0 : tags;
}

/* In the context: kernels of this GPU access all bytes, which are its own. */
static bool is_own_mapping(struct gnv_cuda *cuda, uint64_t at)
{
	uint64_t access = 0; /* its type is not documented */
	unsigned type = 0;
	int owner = -1;

	return !cuda->api.pointer(&type, GNV_CUDA_POINTER_MEMORY_TYPE, at) && type == GNV_CUDA_MEMORY_DEVICE &&
	       !cuda->api.pointer(&owner, GNV_CUDA_POINTER_ORDINAL, at) && owner == (int)cuda->gpu &&
	       !cuda->api.pointer(&access, GNV_CUDA_POINTER_ACCESS, at) && access == GNV_CUDA_ACCESS_READWRITE;
}

static int check_mapped(struct gnv_cuda *cuda, uint64_t at, size_t len)
{
	const uint64_t end = at + len;
	struct mapping mapping;

	for (; at < end; at = mapping.base + mapping.len)
		if (!find_mapping(cuda, at, &mapping) || !is_own_mapping(cuda, at))
			return gnv_fail(-EOPNOTSUPP,
					"0x%llx: no memory of cuda:%u is mapped there that its kernels may read and write. Call cuMemMap() "
					"and cuMemSetAccess() first",
					(unsigned long long)at, cuda->gpu);
	return 0;
}

/* Whole mappings: "the range must be a fully mapped address range containing all allocations" (cuMemSetAccess). */
static int open_mapped(struct gnv_cuda *cuda, const struct gnv_cuda_access *access, uint64_t at, size_t len)
{
	const uint64_t end = at + len;
	struct mapping mapping;
	int error = 0;

	for (; at < end && !error; at = mapping.base + mapping.len)
		error = find_mapping(cuda, at, &mapping) ? cuda->api.mem_access(mapping.base, mapping.len, access, 1) :
							   GNV_CUDA_INVALID_VALUE;
	return error;
}

/* ---- Allocations ---- */

/* Of memory of cuMemMap() the driver reports the reserved addresses (CU_POINTER_ATTRIBUTE_RANGE_SIZE). */
static void narrow(struct gnv_cuda *cuda, const void *ptr, gnv_cuda_ptr *base, size_t *len)
{
	struct mapping mapping;

	if (gnv_cuda_enter(cuda))
		return;
	if (is_mapped(cuda, (uintptr_t)ptr) && find_mapping(cuda, (uintptr_t)ptr, &mapping)) {
		*base = mapping.base;
		*len = mapping.len;
	}
	gnv_cuda_leave(cuda);
}

bool gnv_cuda_allocation(struct gnv_cuda *cuda, const void *ptr, struct gnv_alloc *alloc)
{
	uint64_t tag = gnv_cuda_tag(cuda, ptr);
	gnv_cuda_ptr base = 0;
	unsigned type = 0;
	size_t len = 0;

	if (!tag || !ask(cuda, ptr, GNV_CUDA_POINTER_BASE, &base) || !ask(cuda, ptr, GNV_CUDA_POINTER_LEN, &len) ||
	    !ask(cuda, ptr, GNV_CUDA_POINTER_MEMORY_TYPE, &type))
		return false;
	narrow(cuda, ptr, &base, &len);
	if ((uintptr_t)ptr < base || (uintptr_t)ptr - base >= len)
		return false; /* known to the GPU by another address than to the CPU */
	alloc->tag = tag;
	alloc->exact = type == GNV_CUDA_MEMORY_DEVICE;
	alloc->base = base;
	alloc->len = len;
	return true;
}

struct found {
	unsigned type;
	int owner; /* the number of the GPU that owns the memory, or of this GPU for host memory */
};

static int find(struct gnv_cuda *cuda, uint64_t at, size_t len, struct found *found)
{
	gnv_cuda_ptr base = 0;
	int error;
	size_t all = 0;

	*found = (struct found){ .owner = (int)cuda->gpu };
	error = cuda->api.pointer(&found->type, GNV_CUDA_POINTER_MEMORY_TYPE, at);
	if (!error && found->type == GNV_CUDA_MEMORY_DEVICE)
		error = cuda->api.pointer(&found->owner, GNV_CUDA_POINTER_ORDINAL, at);
	if (!error)
		error = cuda->api.pointer(&base, GNV_CUDA_POINTER_BASE, at);
	if (!error)
		error = cuda->api.pointer(&all, GNV_CUDA_POINTER_LEN, at);
	if (error == GNV_CUDA_INVALID_VALUE)
		return -ENOENT;
	if (error)
		return gnv_cuda_failed_here(cuda, "cuPointerGetAttribute", error);
	return gnv_within(at - base, len, all) ? 0 : -ERANGE;
}

int gnv_cuda_check(struct gnv_cuda *cuda, uint64_t at, size_t len)
{
	int ret = gnv_cuda_enter(cuda);
	struct found found;

	if (ret)
		return ret;
	ret = find(cuda, at, len, &found);
	gnv_cuda_leave(cuda);
	return (!ret || ret == -ERANGE) && found.owner != (int)cuda->gpu ? -EXDEV : ret;
}

/* ---- Memory that others have allocated, and memory of other GPUs ---- */

static void *pool_of(struct gnv_cuda *cuda, uint64_t at)
{
	void *pool = NULL;

	return cuda->api.pointer(&pool, GNV_CUDA_POINTER_POOL, at) ? NULL : pool;
}

/* NULL: the driver does not say. The size of its boolean is not documented. */
static void *context_of(struct gnv_cuda *cuda, uint64_t at)
{
	void *context = NULL;
	uint64_t legacy = 0;

	if (cuda->api.pointer(&legacy, GNV_CUDA_POINTER_LEGACY_IPC, at) || !legacy)
		return NULL;
	return cuda->api.pointer(&context, GNV_CUDA_POINTER_CONTEXT, at) ? NULL : context;
}

/* Managed memory moves between the GPU and the host. That of a pool is else as any of a pool. */
static bool is_managed(struct gnv_cuda *cuda, uint64_t at)
{
	uint64_t managed = 0;

	return !cuda->api.pointer(&managed, GNV_CUDA_POINTER_MANAGED, at) && managed;
}

/* Memory of cuMemAlloc() and of pools ends as a whole, and its number with it. Memory of cuMemMap() ends by mappings. */
static int check_user_memory(struct gnv_cuda *cuda, uint64_t at, size_t len, bool *mapped)
{
	struct found found;
	void *context;
	int ret = find(cuda, at, len, &found);

	*mapped = false;
	if (ret && ret != -ERANGE)
		return ret;
	if (is_managed(cuda, at))
		return gnv_fail(-EOPNOTSUPP, "0x%llx is managed memory, which CUDA moves. Use memory of cudaMalloc() or cudaMallocAsync()",
				(unsigned long long)at);
	if (found.type != GNV_CUDA_MEMORY_DEVICE)
		return -ENOENT;
	if (found.owner != (int)cuda->gpu)
		return gnv_fail(-EXDEV, "0x%llx is memory of cuda:%d, and not of cuda:%u. Register it with the GPU that owns it",
				(unsigned long long)at, found.owner, cuda->gpu);
	if (ret)
		return gnv_fail(ret, "%zu bytes at 0x%llx end after their allocation", len, (unsigned long long)at);
	if (pool_of(cuda, at))
		return 0;
	*mapped = is_mapped(cuda, at);
	if (*mapped)
		return check_mapped(cuda, at, len);
	context = context_of(cuda, at);
	if (!context)
		return gnv_fail(-EOPNOTSUPP,
				"0x%llx is memory of neither cudaMalloc(), cudaMallocAsync() nor cuMemMap(), so its end may not be seen. Use "
				"memory of one of these",
				(unsigned long long)at);
	if (context != cuda->context)
		return gnv_fail(-EXDEV, "0x%llx is memory of another context than the primary one of cuda:%u, which the library's kernels use",
				(unsigned long long)at, cuda->gpu);
	return 0;
}

int gnv_cuda_user_memory(struct gnv_cuda *cuda, const void *ptr, size_t len, uint64_t *tag, bool *mapped)
{
	int ret = gnv_cuda_enter(cuda);

	if (ret)
		return ret;
	ret = check_user_memory(cuda, (uintptr_t)ptr, len, mapped);
	gnv_cuda_leave(cuda);
	if (ret)
		return ret;
	*tag = *mapped ? gnv_cuda_tags(cuda, ptr, len) : gnv_cuda_tag(cuda, ptr);
	if (*tag && !*mapped && gnv_cuda_tag(cuda, (const char *)ptr + len - 1) != *tag)
		return gnv_fail(-ERANGE, "%zu bytes at %p are of more than one allocation. Register each by itself", len, ptr);
	return *tag ? 0 : gnv_fail(-EOPNOTSUPP, "CUDA has no number for the memory at %p, so its end would not be seen", ptr);
}

/*
 * This GPU may access all memory of the pool or context that memory of another one is of, also what is allocated later. Of memory
 * of cuMemMap() it may access the mappings that have these bytes.
 */
static int open_owner(struct gnv_cuda *cuda, uint64_t at, size_t len)
{
	const struct gnv_cuda_access access = { GNV_CUDA_LOCATION_DEVICE, (int)cuda->gpu, GNV_CUDA_ACCESS_READWRITE };
	void *pool = pool_of(cuda, at), *context;
	int error;

	if (pool)
		return cuda->api.pool_access(pool, &access, 1);
	if (is_mapped(cuda, at))
		return open_mapped(cuda, &access, at, len);
	context = context_of(cuda, at);
	if (!context)
		return GNV_CUDA_NOT_SUPPORTED;
	error = cuda->api.peer(context, 0);
	return error == GNV_CUDA_PEER_ENABLED ? 0 : error;
}

static int open_peer(struct gnv_cuda *cuda, uint64_t at, size_t len, int owner)
{
	int device = 0, can = 0, error = cuda->api.device(&device, owner);

	if (!error)
		error = cuda->api.can_peer(&can, cuda->device, device);
	if (error)
		return gnv_cuda_failed_here(cuda, "cuDeviceCanAccessPeer", error);
	error = can ? open_owner(cuda, at, len) : GNV_CUDA_PEER_UNSUPPORTED;
	switch (error) {
	case 0:
		return 0;
	case GNV_CUDA_PEER_UNSUPPORTED:
	case GNV_CUDA_TOO_MANY_PEERS:
		return gnv_fail(-EXDEV,
				"%s, which is cuda:%u, has no peer access to memory of cuda:%d%s. Use host memory, or the drive on cuda:%d",
				cuda->name, cuda->gpu, owner, can ? ": it has too many peers" : "", owner);
	case GNV_CUDA_NOT_SUPPORTED:
		return gnv_fail(-EXDEV,
				"cuda:%u reaches memory of cuda:%d only if the library, cudaMalloc(), cudaMallocAsync() or cuMemMap() gave it",
				cuda->gpu, owner);
	default:
		return gnv_cuda_failed_here(cuda, "access to memory of another GPU", error);
	}
}

int gnv_cuda_reach(struct gnv_cuda *cuda, uint64_t at, size_t len)
{
	int ret = gnv_cuda_enter(cuda);
	struct found found;

	if (ret)
		return ret;
	ret = find(cuda, at, len, &found);
	if (!ret && found.owner != (int)cuda->gpu)
		ret = open_peer(cuda, at, len, found.owner);
	gnv_cuda_leave(cuda);
	return ret;
}
