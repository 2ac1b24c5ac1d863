/* SPDX-License-Identifier: MIT */
/* Memory of the host that is mapped to GPUs. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "os/linux/sys.h"
#include "os/nvidia/cuda_table.h"
#include "util/checked.h"

/*
 * What the library has registered with CUDA, which takes memory once for all that use it: a drive and lanes may be two of them, and
 * either may be the first to go. Of the process, as CUDA's list is.
 */
struct registered {
	struct registered *next;
	char *ptr;
	size_t len;
	unsigned uses;
};
static struct registered *all_registered;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock, as all with it. */
static struct registered **find_registered(const void *ptr, size_t len)
{
	struct registered **link;

	for (link = &all_registered; *link; link = &(*link)->next)
		if ((const char *)ptr >= (*link)->ptr && gnv_within((size_t)((const char *)ptr - (*link)->ptr), len, (*link)->len))
			break;
	return link;
}

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

static int register_new(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours)
{
	unsigned flags = GNV_CUDA_REGISTER_PORTABLE | GNV_CUDA_REGISTER_DEVICEMAP | (io ? GNV_CUDA_REGISTER_IOMEMORY : 0);
	int error = cuda->api.host_register(ptr, len, flags);
	const bool theirs = error == GNV_CUDA_ALREADY_REGISTERED;
	int ret;

	*ours = !error;
	if (*ours)
		error = cuda->api.host_pointer(at, ptr, 0);
	else if (theirs)
		error = find_host(cuda, ptr, len, at);
	if (error && *ours)
		cuda->api.host_unregister(ptr);
	if (!error)
		return 0;
	if (theirs && error == GNV_CUDA_INVALID_VALUE)
		return gnv_fail(-EINVAL, "of %zu bytes at %p the program has registered a part with CUDA; register all of them, or none", len,
				ptr);
	ret = gnv_cuda_failed(cuda, io ? "registers of a device cannot be mapped" : "host memory cannot be mapped", error);
	return error == GNV_CUDA_INVALID_VALUE ? -EOPNOTSUPP : ret;
}

/* Under the lock. */
static int register_memory(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours)
{
	struct registered *known = *find_registered(ptr, len);
	int ret;

	if (known) {
		known->uses++;
		*ours = true;
		ret = cuda->api.host_pointer(at, ptr, 0);
		known->uses -= ret != 0;
		return ret ? gnv_cuda_failed(cuda, "host memory cannot be mapped", ret) : 0;
	}
	known = calloc(1, sizeof(*known));
	if (!known)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = register_new(cuda, ptr, len, io, at, ours);
	if (ret || !*ours) {
		free(known);
		return ret;
	}
	*known = (struct registered){ all_registered, ptr, len, 1 };
	all_registered = known;
	return 0;
}

int gnv_cuda_register(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours)
{
	int ret = gnv_cuda_enter(cuda);

	if (ret)
		return ret;
	pthread_mutex_lock(&registering);
	ret = register_memory(cuda, ptr, len, io, at, ours);
	pthread_mutex_unlock(&registering);
	gnv_cuda_leave(cuda);
	return ret;
}

/*
 * The driver waits until no kernel runs, so after one that did not end it is not asked. Were the bytes given back all the same, who
 * gets their addresses next would find other pages registered there than the process has.
 */
static int unregister_memory(struct gnv_cuda *cuda, void *ptr)
{
	struct registered **link = find_registered(ptr, 1), *known = *link;
	int error;

	if (known && --known->uses)
		return 0;
	error = cuda->api.host_unregister(known ? known->ptr : ptr);
	if (error && error != GNV_CUDA_NOT_REGISTERED) { /* else the program has done it */
		if (known)
			known->uses++;
		return gnv_cuda_failed(cuda, "host memory stays registered until the process ends", error);
	}
	if (known)
		*link = known->next;
	free(known);
	return 0;
}

int gnv_cuda_unregister(struct gnv_cuda *cuda, void *ptr)
{
	int ret;

	if (gnv_cuda_is_stuck(cuda))
		return gnv_fail(-EBUSY, "a kernel on %s did not end, and may still use the memory at %p", cuda->name, ptr);
	if (gnv_cuda_enter(cuda))
		return -EBUSY;
	pthread_mutex_lock(&registering);
	ret = unregister_memory(cuda, ptr);
	pthread_mutex_unlock(&registering);
	gnv_cuda_leave(cuda);
	return ret ? -EBUSY : 0;
}
