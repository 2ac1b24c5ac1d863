/* SPDX-License-Identifier: MIT */
/* Memory of a GPU, memory of the host that is mapped to it, and what the driver knows of an address. */
#include <errno.h>

#include "os/linux/sys.h"
#include "os/nvidia/cuda_table.h"

/* All pages of it: memory that a program registered before may end earlier, and what CUDA allocated within the last one. */
static int find_host(struct gnv_cuda *cuda, void *ptr, size_t len, uint64_t *at)
{
	const size_t page = (len - 1) & ~(gnv_sys_page_size() - 1);
	uint64_t last = 0;
	int error = cuda->api.host_pointer(at, ptr, 0);

	if (!error)
		error = cuda->api.host_pointer(&last, (char *)ptr + page, 0);
	return !error && last != *at + page ? GNV_CUDA_INVALID_VALUE : error;
}

int gnv_cuda_register(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours)
{
	unsigned flags = GNV_CUDA_REGISTER_PORTABLE | GNV_CUDA_REGISTER_DEVICEMAP | (io ? GNV_CUDA_REGISTER_IOMEMORY : 0);
	int ret = gnv_cuda_enter(cuda), error;
	bool theirs;

	if (ret)
		return ret;
	error = cuda->api.host_register(ptr, len, flags);
	*ours = !error;
	theirs = error == GNV_CUDA_ALREADY_REGISTERED;
	if (*ours)
		error = cuda->api.host_pointer(at, ptr, 0);
	else if (theirs)
		error = find_host(cuda, ptr, len, at);
	if (error && *ours)
		cuda->api.host_unregister(ptr);
	gnv_cuda_leave(cuda);
	if (!error)
		return 0;
	if (theirs && error == GNV_CUDA_INVALID_VALUE)
		return gnv_fail(-EINVAL, "of %zu bytes at %p the program has registered a part with CUDA; register all of them, or none", len,
				ptr);
	ret = gnv_cuda_failed(cuda, io ? "registers of a device cannot be mapped" : "host memory cannot be mapped", error);
	return error == GNV_CUDA_INVALID_VALUE ? -EOPNOTSUPP : ret;
}

/*
 * The driver waits until no kernel runs, so after one that did not end it is not asked. Were the bytes given back all the same, who
 * gets their addresses next would find other pages registered there than the process has.
 */
int gnv_cuda_unregister(struct gnv_cuda *cuda, void *ptr)
{
	int error;

	if (gnv_cuda_is_stuck(cuda))
		return gnv_fail(-EBUSY, "a kernel on %s did not end, and may still use the memory at %p", cuda->name, ptr);
	if (gnv_cuda_enter(cuda))
		return -EBUSY;
	error = cuda->api.host_unregister(ptr);
	gnv_cuda_leave(cuda);
	if (!error || error == GNV_CUDA_NOT_REGISTERED) /* the program has done it */
		return 0;
	gnv_cuda_failed(cuda, "host memory stays registered until the process ends", error);
	return -EBUSY;
}

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
		if (error)
			cuda->api.free(*at, cuda->stream);
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
	return error ? gnv_cuda_failed(cuda, "cuMemcpyDtoHAsync", error) : 0;
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
	return error ? gnv_cuda_failed(cuda, "cuMemcpyHtoDAsync", error) : 0;
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

	/* Drivers have been seen to answer without a context, in half the time. */
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

bool gnv_cuda_is_device_memory(struct gnv_cuda *cuda, const void *ptr)
{
	unsigned type = 0;

	return ask(cuda, ptr, GNV_CUDA_POINTER_MEMORY_TYPE, &type) && type == GNV_CUDA_MEMORY_DEVICE;
}
