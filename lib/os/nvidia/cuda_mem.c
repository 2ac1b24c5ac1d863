/* SPDX-License-Identifier: MIT */
/* Memory of a GPU, and what the driver knows of an address. */
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

static int check(struct gnv_cuda *cuda, uint64_t at, size_t len)
{
	int error = 0, ordinal = (int)cuda->gpu;
	gnv_cuda_ptr base = 0;
	unsigned type = 0;
	size_t all = 0;

	error = cuda->api.pointer(&type, GNV_CUDA_POINTER_MEMORY_TYPE, at);
	if (!error && type == GNV_CUDA_MEMORY_DEVICE)
		error = cuda->api.pointer(&ordinal, GNV_CUDA_POINTER_ORDINAL, at);
	if (!error)
		error = cuda->api.pointer(&base, GNV_CUDA_POINTER_BASE, at);
	if (!error)
		error = cuda->api.pointer(&all, GNV_CUDA_POINTER_LEN, at);
	if (error == GNV_CUDA_INVALID_VALUE)
		return -ENOENT;
	if (error)
		return gnv_cuda_failed_here(cuda, "cuPointerGetAttribute", error);
	if (ordinal != (int)cuda->gpu)
		return -EXDEV;
	return gnv_within(at - base, len, all) ? 0 : -ERANGE;
}

int gnv_cuda_check(struct gnv_cuda *cuda, uint64_t at, size_t len)
{
	int ret = gnv_cuda_enter(cuda);

	if (ret)
		return ret;
	ret = check(cuda, at, len);
	gnv_cuda_leave(cuda);
	return ret;
}

bool gnv_cuda_is_device_memory(struct gnv_cuda *cuda, const void *ptr)
{
	unsigned type = 0;

	return ask(cuda, ptr, GNV_CUDA_POINTER_MEMORY_TYPE, &type) && type == GNV_CUDA_MEMORY_DEVICE;
}
