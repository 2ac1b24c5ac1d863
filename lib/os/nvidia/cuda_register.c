/* SPDX-License-Identifier: MIT */
/* Memory of the host that is mapped to GPUs. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "os/linux/sys.h"
#include "os/nvidia/cuda_table.h"
#include "util/checked.h"

/*
 * Registrations of the library with CUDA. CUDA registers memory once for all users: a drive and threads may be two of them, and
 * either may end first. CUDA's list belongs to the process, so this one does, too. No two entries share a byte.
 *
 * A registration ends with its context (cuDevicePrimaryCtxReset: "destroys and cleans up all resources"), so an entry holds a
 * reference to that context.
 */
struct registered {
	struct registered *next;
	char *ptr;
	size_t len;
	unsigned uses;
	bool leaving; /* a thread unregisters it, without the lock */
	bool kept;    /* the driver refused to end it: other memory may have these addresses by now, and it has the old pages */
	unsigned gpu; /* it was registered in the primary context of that */
	int device;   /* the same, as CUDA names it */
	void *context;
};
static struct registered *all_registered;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

/* The entry that shares a byte with a range. Under the lock, as all with it. */
static struct registered **find_registered(const char *ptr, size_t len)
{
	struct registered **link;

	for (link = &all_registered; *link; link = &(*link)->next)
		if (ptr < (*link)->ptr + (*link)->len && (*link)->ptr < ptr + len)
			break;
	return link;
}

/* All pages of it: memory that a program registered before may end earlier, and CUDA may have allocated a part of the last page. */
static int find_host(struct gnv_cuda *cuda, void *ptr, size_t len, uint64_t *at)
{
	const size_t page = (len - 1) & ~(gnv_sys_page_size() - 1);
	uint64_t last = 0;
	int error = cuda->api.host_pointer(at, ptr, 0);

	if (!error)
		error = cuda->api.host_pointer(&last, (char *)ptr + page, 0);
	return !error && last != *at + page ? GNV_CUDA_INVALID_VALUE : error;
}

/* @ours: set when the library registered it, also where the call fails then. */
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
	if (!error)
		return 0;
	if (theirs && error == GNV_CUDA_INVALID_VALUE)
		return gnv_fail(-EINVAL, "of %zu bytes at %p the program has registered a part with CUDA. Register all of them, or none", len,
				ptr);
	ret = gnv_cuda_failed(cuda, io ? "registers of a device cannot be mapped" : "host memory cannot be mapped", error);
	return error == GNV_CUDA_INVALID_VALUE ? -EOPNOTSUPP : ret;
}

static int register_first(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours)
{
	struct registered *known = calloc(1, sizeof(*known));
	int ret;

	if (!known)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = cuda->api.retain(&known->context, cuda->device);
	if (ret) {
		free(known);
		return gnv_cuda_failed(cuda, "cuDevicePrimaryCtxRetain", ret);
	}
	ret = register_new(cuda, ptr, len, io, at, ours);
	if (!*ours) {
		cuda->api.release(cuda->device);
		free(known);
		return ret;
	}
	*known = (struct registered){ .next = all_registered, .ptr = ptr, .len = len, .uses = 1, .gpu = cuda->gpu,
				      .device = cuda->device, .context = known->context };
	all_registered = known;
	return ret;
}

static int register_again(struct gnv_cuda *cuda, struct registered *known, void *ptr, size_t len, uint64_t *at)
{
	int error;

	if (known->leaving)
		return gnv_fail(-EBUSY, "another thread unmaps a part of %zu bytes at %p from a GPU. Map them after that", len, ptr);
	if (known->kept)
		return gnv_fail(-EBUSY,
				"a part of the %zu bytes at %p is still registered with CUDA, for memory that was unmapped, and "
				"CUDA did not unregister it. Use other addresses, or restart the program",
				len, ptr);
	if ((char *)ptr < known->ptr || !gnv_within((size_t)((char *)ptr - known->ptr), len, known->len))
		return gnv_fail(-EBUSY,
				"a part of the %zu bytes at %p is already mapped to a GPU, with %zu bytes at %p. Map the memory "
				"as a whole, or unmap that part first",
				len, ptr, known->len, (void *)known->ptr);
	error = cuda->api.host_pointer(at, ptr, 0);
	if (error)
		return gnv_cuda_failed(cuda, "host memory cannot be mapped", error);
	known->uses++;
	return 0;
}

/* Under the lock. Return: 0, or an error. @undo: NULL, or with an error an entry that leaves, for unregister() without the lock. */
static int register_memory(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours,
			   struct registered **undo)
{
	struct registered *known = *find_registered(ptr, len);
	int ret;

	*ours = known;
	ret = known ? register_again(cuda, known, ptr, len, at) : register_first(cuda, ptr, len, io, at, ours);
	*undo = ret && !known && *ours ? *find_registered(ptr, len) : NULL;
	if (*undo)
		(*undo)->leaving = true;
	return ret;
}

/*
 * Would the driver wait for a kernel that did not end? It waits for those of the GPU that registered the memory. Those of this GPU
 * may still use it. Under the lock.
 */
static bool is_stuck(const struct gnv_cuda *cuda, const struct registered *known)
{
	return gnv_cuda_is_stuck(cuda->gpu) || (known && known->uses == 1 && gnv_cuda_is_stuck(known->gpu));
}

/* Under the lock. @last: set to the entry, when that was its last use. Return: 0, -EBUSY. */
static int end_use(const struct gnv_cuda *cuda, const char *ptr, struct registered **last)
{
	struct registered *known = *find_registered(ptr, 1);

	*last = NULL;
	if (is_stuck(cuda, known))
		return -EBUSY;
	if (!known || --known->uses)
		return 0;
	known->leaving = true;
	*last = known;
	return 0;
}

/* Under the lock. */
static void end_leaving(struct registered *known, bool kept)
{
	known->leaving = false;
	known->uses = known->kept = kept;
	if (!kept)
		*find_registered(known->ptr, 1) = known->next;
}

/* It was the last use, and stays one. */
static int use_again(struct registered *known)
{
	pthread_mutex_lock(&registering);
	known->leaving = false;
	known->uses = 1;
	pthread_mutex_unlock(&registering);
	return -EAGAIN;
}

/*
 * Without the lock: the driver waits until no kernel runs, and a kernel may wait for a thread that maps other memory. Where it
 * refuses, the entry stays, and nothing else is found in it. The bytes should stay as well, for no other memory at their addresses
 * can be registered.
 */
static int unregister(struct gnv_cuda *cuda, struct registered *known)
{
	bool began;
	int error;

	if (gnv_cuda_wait_begins(cuda, known->gpu, known->context, &began))
		return use_again(known);
	error = gnv_cuda_is_stuck(known->gpu) ? GNV_CUDA_NOT_READY : gnv_cuda_push(cuda, known->context);

	if (!error) {
		error = cuda->api.host_unregister(known->ptr);
		gnv_cuda_leave(cuda);
	}
	gnv_cuda_wait_ends(known->gpu, began);
	if (error == GNV_CUDA_NOT_REGISTERED) /* the program has done it */
		error = 0;
	pthread_mutex_lock(&registering);
	end_leaving(known, error);
	pthread_mutex_unlock(&registering);
	if (error) {
		gnv_cuda_failed(cuda, "host memory stays registered until the process ends", error);
		return -EBUSY;
	}
	cuda->api.release(known->device);
	free(known);
	return 0;
}

/* Other memory may get these addresses, and the entry has the old pages. */
void gnv_cuda_detach(const void *ptr)
{
	struct registered *known;

	pthread_mutex_lock(&registering);
	known = *find_registered(ptr, 1);
	if (known)
		known->kept = true;
	pthread_mutex_unlock(&registering);
}

/* The error message stays that of the failure. */
static int undo_register(struct gnv_cuda *cuda, struct registered *undo, int ret)
{
	const struct gnv_message first = gnv_message();

	if (unregister(cuda, undo) == -EAGAIN)
		gnv_cuda_detach(undo->ptr);
	return gnv_fail_again(ret, &first);
}

int gnv_cuda_register(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours)
{
	int ret = gnv_cuda_enter(cuda);
	struct registered *undo;

	if (ret)
		return ret;
	pthread_mutex_lock(&registering);
	ret = register_memory(cuda, ptr, len, io, at, ours, &undo);
	pthread_mutex_unlock(&registering);
	gnv_cuda_leave(cuda);
	return undo ? undo_register(cuda, undo, ret) : ret;
}

/*
 * A bounded handle also looks where others use the memory after it: one of them may be the next to end its use, with no limit. The
 * entry stays meanwhile, for this use of it.
 */
static int check_kernels(struct gnv_cuda *cuda, const char *ptr)
{
	const struct registered *known;

	pthread_mutex_lock(&registering);
	known = cuda->bounded ? *find_registered(ptr, 1) : NULL;
	pthread_mutex_unlock(&registering);
	return known && gnv_cuda_kernels_end(cuda, known->gpu, known->context) ? -EAGAIN : 0;
}

int gnv_cuda_unregister(struct gnv_cuda *cuda, void *ptr)
{
	struct registered *last;
	int ret = check_kernels(cuda, ptr);

	if (ret)
		return ret;
	pthread_mutex_lock(&registering);
	ret = end_use(cuda, ptr, &last);
	pthread_mutex_unlock(&registering);
	if (ret)
		return gnv_fail(ret, "a kernel on a GPU that has the memory at %p did not end. %s may still use it", ptr, cuda->name);
	return last ? unregister(cuda, last) : 0;
}
