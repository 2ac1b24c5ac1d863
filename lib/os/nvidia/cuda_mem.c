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

bool gnv_cuda_allocation(struct gnv_cuda *cuda, const void *ptr, struct gnv_alloc *alloc)
{
	uint64_t tag = gnv_cuda_tag(cuda, ptr);
	gnv_cuda_ptr base = 0;
	unsigned type = 0;
	size_t len = 0;

	if (!tag || !ask(cuda, ptr, GNV_CUDA_POINTER_BASE, &base) || !ask(cuda, ptr, GNV_CUDA_POINTER_LEN, &len) ||
	    !ask(cuda, ptr, GNV_CUDA_POINTER_MEMORY_TYPE, &type))
		return false;
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

/*
 * Memory of cuMemAlloc() and of pools ends as a whole, and its number with it. Of memory of cuMemMap() the driver reports the
 * bounds of the addresses, parts of which may not be mapped (CU_POINTER_ATTRIBUTE_RANGE_SIZE), and managed memory moves.
 */
static int check_user_memory(struct gnv_cuda *cuda, uint64_t at, size_t len)
{
	struct found found;
	void *context;
	int ret = find(cuda, at, len, &found);

	if (ret && ret != -ERANGE)
		return ret;
	if (found.type != GNV_CUDA_MEMORY_DEVICE)
		return -ENOENT;
	if (found.owner != (int)cuda->gpu)
		return gnv_fail(-EXDEV, "0x%llx is memory of cuda:%d, and not of cuda:%u. Register it with the GPU that owns it",
				(unsigned long long)at, found.owner, cuda->gpu);
	if (ret)
		return gnv_fail(ret, "%zu bytes at 0x%llx end after their allocation", len, (unsigned long long)at);
	if (pool_of(cuda, at))
		return 0;
	context = context_of(cuda, at);
	if (!context)
		return gnv_fail(-EOPNOTSUPP,
				"0x%llx is memory of neither cudaMalloc() nor cudaMallocAsync(). CUDA does not say which part of other "
				"memory is mapped, so no drive takes it",
				(unsigned long long)at);
	if (context != cuda->context)
		return gnv_fail(-EXDEV, "0x%llx is memory of another context than the primary one of cuda:%u, which the library's kernels use",
				(unsigned long long)at, cuda->gpu);
	return 0;
}

int gnv_cuda_user_memory(struct gnv_cuda *cuda, const void *ptr, size_t len, uint64_t *tag)
{
	int ret = gnv_cuda_enter(cuda);

	if (ret)
		return ret;
	ret = check_user_memory(cuda, (uintptr_t)ptr, len);
	gnv_cuda_leave(cuda);
	if (ret)
		return ret;
	*tag = gnv_cuda_tag(cuda, ptr);
	if (*tag && gnv_cuda_tag(cuda, (const char *)ptr + len - 1) != *tag)
		return gnv_fail(-ERANGE, "%zu bytes at %p are of more than one allocation. Register each by itself", len, ptr);
	return *tag ? 0 : gnv_fail(-EOPNOTSUPP, "CUDA has no number for the memory at %p, so its end would not be seen", ptr);
}

/* This GPU may access all memory of the pool or context that memory of another one is of, also what is allocated later. */
static int open_owner(struct gnv_cuda *cuda, uint64_t at)
{
	const struct gnv_cuda_access access = { GNV_CUDA_LOCATION_DEVICE, (int)cuda->gpu, GNV_CUDA_ACCESS_READWRITE };
	void *pool = pool_of(cuda, at), *context;
	int error;

	if (pool)
		return cuda->api.pool_access(pool, &access, 1);
	context = context_of(cuda, at);
	if (!context)
		return GNV_CUDA_NOT_SUPPORTED;
	error = cuda->api.peer(context, 0);
	return error == GNV_CUDA_PEER_ENABLED ? 0 : error;
}

static int open_peer(struct gnv_cuda *cuda, uint64_t at, int owner)
{
	int device = 0, can = 0, error = cuda->api.device(&device, owner);

	if (!error)
		error = cuda->api.can_peer(&can, cuda->device, device);
	if (error)
		return gnv_cuda_failed_here(cuda, "cuDeviceCanAccessPeer", error);
	error = can ? open_owner(cuda, at) : GNV_CUDA_PEER_UNSUPPORTED;
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
				"cuda:%u reaches memory of cuda:%d only if the library, cudaMalloc() or cudaMallocAsync() has allocated it",
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
		ret = open_peer(cuda, at, found.owner);
	gnv_cuda_leave(cuda);
	return ret;
}
