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
	size_t len = 0;

	if (!tag || !ask(cuda, ptr, GNV_CUDA_POINTER_BASE, &base) || !ask(cuda, ptr, GNV_CUDA_POINTER_LEN, &len))
		return false;
	if ((uintptr_t)ptr < base || (uintptr_t)ptr - base >= len)
		return false; /* known to the GPU by another address than to the CPU */
	alloc->tag = tag;
	alloc->base = base;
	alloc->len = len;
	return true;
}

/* @owner: set to the number of the GPU that owns the memory, or to this GPU for host memory */
static int find(struct gnv_cuda *cuda, uint64_t at, size_t len, int *owner)
{
	gnv_cuda_ptr base = 0;
	int error;
	unsigned type = 0;
	size_t all = 0;

	*owner = (int)cuda->gpu;
	error = cuda->api.pointer(&type, GNV_CUDA_POINTER_MEMORY_TYPE, at);
	if (!error && type == GNV_CUDA_MEMORY_DEVICE)
		error = cuda->api.pointer(owner, GNV_CUDA_POINTER_ORDINAL, at);
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
	int ret = gnv_cuda_enter(cuda), owner;

	if (ret)
		return ret;
	ret = find(cuda, at, len, &owner);
	gnv_cuda_leave(cuda);
	return (!ret || ret == -ERANGE) && owner != (int)cuda->gpu ? -EXDEV : ret;
}

/* Let this GPU access the pool that the memory of another one is of: all of its memory, also what is allocated later. */
static int open_pool(struct gnv_cuda *cuda, uint64_t at, int owner)
{
	const struct gnv_cuda_access access = { GNV_CUDA_LOCATION_DEVICE, (int)cuda->gpu, GNV_CUDA_ACCESS_READWRITE };
	int device = 0, can = 0, error = cuda->api.device(&device, owner);
	void *pool = NULL;

	if (!error)
		error = cuda->api.can_peer(&can, cuda->device, device);
	if (!error && !can)
		return gnv_fail(-EXDEV, "%s, which is cuda:%u, has no peer access to memory of cuda:%d. Use host memory, or the drive on "
					"cuda:%d", cuda->name, cuda->gpu, owner, owner);
	if (!error)
		error = cuda->api.pointer(&pool, GNV_CUDA_POINTER_POOL, at);
	if (!error && !pool)
		return gnv_fail(-EXDEV, "cuda:%u reaches memory of cuda:%d only if the library or cudaMallocAsync() has allocated it", cuda->gpu,
				owner);
	if (!error)
		error = cuda->api.pool_access(pool, &access, 1);
	return error ? gnv_cuda_failed_here(cuda, "access to memory of another GPU", error) : 0;
}

int gnv_cuda_reach(struct gnv_cuda *cuda, uint64_t at, size_t len)
{
	int ret = gnv_cuda_enter(cuda), owner;

	if (ret)
		return ret;
	ret = find(cuda, at, len, &owner);
	if (!ret && owner != (int)cuda->gpu)
		ret = open_pool(cuda, at, owner);
	gnv_cuda_leave(cuda);
	return ret;
}

bool gnv_cuda_is_device_memory(struct gnv_cuda *cuda, const void *ptr)
{
	unsigned type = 0;

	return ask(cuda, ptr, GNV_CUDA_POINTER_MEMORY_TYPE, &type) && type == GNV_CUDA_MEMORY_DEVICE;
}
