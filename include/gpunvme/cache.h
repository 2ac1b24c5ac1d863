/* SPDX-License-Identifier: MIT */
/*
 * Memory of the caller's for I/O without registering it each time: each device has a cache of what was registered and mapped to it.
 *
 *   gpunvme_mem_get        any pointer: what a kernel needs to use it; gpunvme_mem_put: not used any more
 *   gpunvme_cache_forget   before memory is freed whose end nobody tells the library
 *   gpunvme_cache_get_info, gpunvme_cache_set_limit
 *
 * What is put stays mapped, to be found by the next gpunvme_mem_get() without a system call (but for memory of malloc() on AMD GPUs
 * that cannot write their L2 back in a kernel, which is made uncached again), until the cache holds more than its
 * limit, the memory is freed, or the device is closed. ROCm's runtime reports when memory of an AMD GPU or of hipHostMalloc() is
 * freed: it is unmapped before it can be allocated again. CUDA has a number for each of its allocations, which each
 * gpunvme_mem_get() compares. Nothing reports that other memory (malloc(), mmap()) is freed: its last gpunvme_mem_put() unmaps it,
 * unless the caller promises to report that, by GPUNVME_GET_KEEP.
 *
 * What the cache holds counts as mapped: queues and data of a GPU lie together on a device (gpunvme_mem_map()).
 */
#ifndef GPUNVME_CACHE_H
#define GPUNVME_CACHE_H

#include <gpunvme/dev.h>
#include <gpunvme/mem.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpunvme_get_flags {
	GPUNVME_GET_KEEP = 1u << 0, /* memory whose end nobody tells stays, too: gpunvme_cache_forget() will be called before it ends */
};

/* Memory in use; filled by gpunvme_mem_get(). */
struct gpunvme_mem_use {
	struct gpunvme_mem *mem;  /* the cache's: not to be freed or unmapped */
	uint64_t offset;	  /* of the caller's pointer in dbuf */
	struct gpunvme_dbuf dbuf; /* for kernels */
};

struct gpunvme_cache_info {
	size_t size;	    /* sizeof(struct gpunvme_cache_info) */
	uint64_t hits;	    /* of gpunvme_mem_get() */
	uint64_t misses;    /* had to register and map */
	uint64_t evictions; /* unmapped to stay within the limit */
	uint64_t stale;	    /* unmapped or not found because the memory was freed */
	uint64_t bytes;	    /* mapped now */
	uint64_t limit;
	uint32_t entries; /* ranges that are mapped */
	uint32_t used;	  /* of these, by gpunvme_mem_get() without gpunvme_mem_put() */
};

/**
 * gpunvme_mem_get() - use memory of the caller's with a device
 * @gpu:   the lanes that will use it
 * @dev:   the device
 * @ptr:   first byte; any pointer of HIP, CUDA or the process that gpunvme_mem_register() takes, and within an allocation
 * @len:   bytes
 * @flags: 0 or enum gpunvme_get_flags
 * @use:   filled on success; each success needs a gpunvme_mem_put()
 *
 * Registers and maps what is not yet: of memory that a runtime knows whole parts of 64 KiB, of other memory whole pages. The caller
 * keeps the memory until gpunvme_mem_put(). Any thread may call it, but not while @dev is being closed.
 * Return: 0; -EINVAL; as gpunvme_mem_register() and gpunvme_mem_map(), -EBUSY included; -EFAULT it was freed meanwhile; -ENODEV,
 * -ESHUTDOWN the controller is gone or dead.
 */
GPUNVME_API int gpunvme_mem_get(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, void *ptr, size_t len, uint32_t flags,
				struct gpunvme_mem_use *use);

/**
 * gpunvme_mem_put() - end that
 * @use: as gpunvme_mem_get() has filled it; zeroed when 0 is returned. NULL and zeroes are ignored.
 *
 * No command uses the memory any more. May be called while the device is being closed and after that, and is due then, too. Any
 * thread may call it.
 * Return: 0 the memory may be freed, in the way that it was allocated; -EBUSY the device may still write to it, as
 * gpunvme_mem_free() returns: @use stays as it is, call again later.
 */
GPUNVME_API int gpunvme_mem_put(struct gpunvme_mem_use *use);

/**
 * gpunvme_cache_forget() - unmap memory that is not in use
 * @dev: the device
 * @ptr: first byte, or NULL for all
 * @len: bytes
 *
 * What is in use is not found any more, and unmapped with its last gpunvme_mem_put(). Any thread may call it.
 * Return: 0 nothing of it is mapped; -EINVAL; -EBUSY some is in use, or the device may still write to it.
 */
GPUNVME_API int gpunvme_cache_forget(struct gpunvme_dev *dev, void *ptr, size_t len);

/**
 * gpunvme_cache_set_limit() - how much may stay mapped
 * @dev:   the device
 * @bytes: 1 GiB if it was never set; 0: nothing that is not in use
 *
 * What is in use counts, and is never unmapped for it; of the rest that goes first which was put longest ago. Any thread may
 * call it.
 * Return: 0, -EINVAL.
 */
GPUNVME_API int gpunvme_cache_set_limit(struct gpunvme_dev *dev, uint64_t bytes);

/**
 * gpunvme_cache_get_info() - what it holds, and how well it serves
 * @dev:  the device
 * @info: set info->size before
 *
 * Any thread may call it. Return: 0, -EINVAL.
 */
GPUNVME_API int gpunvme_cache_get_info(struct gpunvme_dev *dev, struct gpunvme_cache_info *info);

#ifdef __cplusplus
}
#endif
#endif
