/* SPDX-License-Identifier: MIT */
/*
 * Memory: a range of bytes with up to three addresses: a CPU pointer, an address for the threads of a GPU, and one IOVA for each
 * device that it is mapped to.
 *
 *   gpunvme_mem_alloc, _register, _import_dmabuf, _cmb   make the object
 *   gpunvme_bar_open, gpunvme_mem_bar                   the same for memory in another PCI device (P2P BAR)
 *   gpunvme_mem_map, _unmap                              give a device access, and end it
 *   gpunvme_mem_dbuf, _dbuf_for                          the descriptor for kernels, also of another GPU
 *   gpunvme_mem_map_queue, _unmap_queue                  both for all devices of a queue
 *   gpunvme_mem_free                                     unmap and free
 *   gpunvme_mem_get, _put                                all of that at once for a pointer of the caller, from a cache
 */
#ifndef GPUNVME_MEM_H
#define GPUNVME_MEM_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_mem;
struct gpunvme_queue;

enum gpunvme_mem_flags {
	GPUNVME_MEM_HUGE = 1u << 0, /* 2 MiB pages. Without them small pages, with one log line */
	GPUNVME_MEM_VRAM = 1u << 1, /* memory of the GPU. -EOPNOTSUPP if a controller cannot write to it */
	GPUNVME_MEM_HOST = 1u << 2, /* memory of the host, also where the rings of the queue lie in memory of the GPU */
	GPUNVME_MEM_HIP = 1u << 3, /* memory of an AMD GPU, made by HIP (6 or newer). May be cached, then with one log line */
	GPUNVME_MEM_DRM = 1u << 4, /* memory of an AMD GPU, made by libdrm, uncached. For a GPU without other work. Not with _HIP */
	GPUNVME_MEM_CMB_LISTS = 1u << 5, /* its PRP lists lie in the drive's own memory. Mapping fails where a drive lacks that */
	GPUNVME_MEM_SHARED = 1u << 6, /* memory of the host that a controller in another process can map. Not with _HUGE */
};

struct gpunvme_mem_opts {
	size_t size;    /* sizeof(struct gpunvme_mem_opts) */
	uint32_t flags; /* enum gpunvme_mem_flags. An unknown bit is an error */
	uint32_t reserved; /* 0 */
};
#define GPUNVME_MEM_OPTS_INIT { sizeof(struct gpunvme_mem_opts), 0, 0 }

/**
 * gpunvme_mem_alloc() - allocate a data buffer for the threads of a GPU
 * @gpu:   the processor that runs the threads
 * @queue: a queue of @gpu that will use the memory. NULL: memory of the host. Not kept
 * @len:   bytes, rounded up to whole pages
 * @opts:  NULL for the defaults. Not kept
 * @mem:   set on success. The caller owns it and frees it by gpunvme_mem_free()
 *
 * The memory lies where the rings of @queue lie, so that its devices can use it: in memory of the GPU or of the host
 * (gpunvme_queue_info.placement). Memory of the host has a descriptor, as by GPUNVME_MEM_SHARED, if @queue is one of a vfio-user:
 * controller, except with GPUNVME_MEM_HUGE. Flags that name a place come before the queue. gpunvme_mem_ptr() of GPU memory may be
 * NULL. The memory is zeroed, locked where the limits allow it, and not inherited over fork(). Any thread may call it.
 * Return:
 * - 0; -ENOMEM; -EMFILE: no descriptor; -EIO: the GPU has failed, or with _HIP or _DRM it cannot access the memory.
 * - -EINVAL: zero length, a bad option, or a queue of another GPU.
 * - -EOPNOTSUPP: memory of the GPU is not possible, or with _HIP or _DRM the GPU is not AMD's.
 * - -ENODEV: the library that GPUNVME_MEM_HIP or _DRM names is not installed.
 */
GPUNVME_API int gpunvme_mem_alloc(struct gpunvme_gpu *gpu, struct gpunvme_queue *queue, size_t len,
				  const struct gpunvme_mem_opts *opts, struct gpunvme_mem **mem);

/**
 * gpunvme_mem_register() - use memory of the caller as a data buffer
 * @gpu: the processor that runs the threads
 * @ptr: its first byte, a multiple of the CPU page size
 * @len: bytes, a multiple of the CPU page size
 * @mem: set on success. The caller owns it, and keeps the bytes mapped until gpunvme_mem_free()
 *
 * Memory of the GPU from its runtime (hipExtMallocWithFlags, hipMalloc, hsa_amd_memory_pool_allocate) is recognised. Memory of
 * hipMalloc() is cached: kernels may see again what was read there before, until gpunvme_gpu_fence() or hipStreamSynchronize(). The
 * log says so. Some GPUs have waves that cannot write their caches back (RDNA2, RDNA3, gfx906, gfx908). There, writing from cached
 * memory needs GPUNVME_VIEW_FENCED, and memory of hipHostMalloc() must be coherent: allocated with no flag or
 * hipHostMallocCoherent. There also call gpunvme_gpu_fence() after HIP has copied from or to memory of malloc(), before kernels use
 * it. For `cpu` @ptr is ordinary memory. Any thread may call it.
 * Memory of an NVIDIA GPU from cudaMalloc(), cudaMallocAsync() or cuMemMap() is for emulated drives, managed memory for none. If it
 * is freed before gpunvme_mem_free(), its commands fail with GPUNVME_SC_DATA_TRANSFER (docs/emulated-drives.md says when).
 * Return:
 * - 0; -ENOMEM; -EOPNOTSUPP: the runtime cannot share this memory.
 * - -EINVAL: not page aligned, or empty.
 * - -EXDEV: memory of another GPU or context; -ERANGE: it ends after its allocation; -EFAULT: not readable and writable memory.
 */
GPUNVME_API int gpunvme_mem_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gpunvme_mem **mem);

/**
 * gpunvme_mem_import_dmabuf() - use memory of another driver as a data buffer
 * @gpu:    the processor that runs the threads
 * @fd:     a DMA-BUF. Not kept, the caller may close it
 * @offset: of the first byte in it, a multiple of the CPU page size
 * @len:    bytes, a multiple of the CPU page size
 * @mem:    set on success. The caller owns it and frees it by gpunvme_mem_free()
 *
 * gpunvme_mem_ptr() is NULL if the exporter offers the CPU no mapping, as vfio-pci. Then only the controller can access the bytes.
 * gpunvme_mem_map() reports whether a controller can. Through IOMMUFD, kernels up to 7.3 take only what vfio-pci exported. Through
 * type 1 they take a DMA-BUF that the CPU can map. Drivers of GPUs may move what they export. Such memory is mapped as the
 * library's own GPU memory: through type 1 only with `unsafe-vram=1`, through IOMMUFD after the device took a scratch buffer of
 * @gpu, since a refused attempt moves the memory. What vfio-pci, udmabuf and the kernel's heaps export never moves (exp_name in
 * /proc/self/fdinfo). On GPUs whose waves cannot write their caches back, memory that may move counts as cached by @gpu, unless its
 * driver marked it as uncached: writing from it needs GPUNVME_VIEW_FENCED. Any thread may call it.
 * Return: 0; -EINVAL: no DMA-BUF, not page aligned, or empty; -ERANGE: not within it; -EMFILE; -ENOMEM.
 */
GPUNVME_API int gpunvme_mem_import_dmabuf(struct gpunvme_gpu *gpu, int fd, uint64_t offset, size_t len, struct gpunvme_mem **mem);

/**
 * gpunvme_mem_cmb() - allocate a data buffer in a drive (Controller Memory Buffer)
 * @gpu:  the processor that runs the threads: `cpu`, or any with a controller in software
 * @dev:  the drive, with GPUNVME_CMB_DATA in gpunvme_dev_info.cmb_holds
 * @len:  bytes, rounded up to whole pages
 * @opts: NULL for the defaults. The only flag is GPUNVME_MEM_CMB_LISTS
 * @mem:  set on success. The caller owns it, and frees it before @dev is closed
 *
 * It is zeroed, mapped to @dev, the only device that it can be mapped to, and tested: a temporary queue reads some blocks into it
 * and into memory of the host. The CPU accesses it through a BAR, as slowly as a register. A reset of @dev may change its content.
 * Source: Base Specification 3.1.3, 8.2.1. Any thread may call it.
 * Return:
 * - 0; -EINVAL: zero length or a bad option; -ENOMEM; -ENODEV; -ESHUTDOWN; or a positive NVMe status.
 * - -EOPNOTSUPP: @dev has no such memory, or not for data or lists, or @gpu is a GPU and @dev a drive.
 * - -ENOSPC: no room in one piece, or no queue pair is left for the test; -EIO: the test failed.
 */
GPUNVME_API int gpunvme_mem_cmb(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, size_t len, const struct gpunvme_mem_opts *opts,
				struct gpunvme_mem **mem);

/**
 * gpunvme_mem_free() - unmap memory from every device and free it
 * @mem: NULL does nothing. No other thread may use it any more
 * Return:
 * - 0: @mem is gone. Registered memory is the caller's again.
 * - -EBUSY: a device may still write to it, as gpunvme_mem_unmap() says. @mem remains, and is mapped there. Destroy or recover the
 *   queue that the error message names, or close the device, then call again.
 * - -EBUSY: a GPU did not release it, as the error message says. @mem remains until the process ends.
 * - -EINVAL: it is of gpunvme_mem_get(); -ECHILD.
 */
GPUNVME_API int gpunvme_mem_free(struct gpunvme_mem *mem);

/**
 * gpunvme_mem_map() - give a device access to memory
 * @mem: the memory
 * @dev: the device. It stays open until the memory is unmapped
 *
 * Builds the PRP lists of the buffer. That is slow, but the I/O path builds none. Memory that was taken away (gpunvme_bar_reset())
 * is mapped again, at another IOVA. Any thread may call it.
 * Return:
 * - 0: also if it is mapped already.
 * - -EXDEV: queues and data of its GPU lie in other memory on @dev, or it lies in another drive.
 * - -EOPNOTSUPP: the controller cannot access memory of the GPU, or no lists in its own memory (GPUNVME_MEM_CMB_LISTS: the first
 *   such mapping is tested, as by gpunvme_mem_cmb()).
 * - -EFAULT: the program has freed memory that it registered.
 * - -ENOMEM: also at the limit of locked memory; -ENOSPC: no free IOVA; -ENODEV, -ESHUTDOWN; or errors of the kernel's mapping.
 * - -EBUSY: it was taken away, and a queue still has commands in flight. Or a drive on an NVIDIA GPU has a part of it mapped
 *   already (unmap that first), or another thread unmaps a part now (call again).
 * - -EIO: a drive that runs on a GPU failed to map it, and did not release the bytes. They remain until the process ends.
 */
GPUNVME_API int gpunvme_mem_map(struct gpunvme_mem *mem, struct gpunvme_dev *dev);

/**
 * gpunvme_mem_unmap() - remove a device mapping
 * @mem: the memory
 * @dev: the device
 *
 * No command may use the buffer. Descriptors by gpunvme_mem_dbuf() become invalid. Its PRP lists take about 1/256 of its size, at
 * least two pages, more for drives that need stricter lists. @dev keeps them until every command that is in flight now has ended.
 * If a command never ends, each map and unmap leaks its lists until gpunvme_queue_recover() or gpunvme_queue_destroy() of its
 * queue. Any thread may call it.
 * Return:
 * - 0: also if it was not mapped. If a GPU whose context has ended does not release the bytes, gpunvme_mem_free() returns -EBUSY.
 * - -EBUSY: a poisoned queue of @dev has commands in flight, or the device uses the memory now: destroy the queue first. Also if
 *   any queue of @dev has commands in flight that no IOMMU keeps from it (memory or lists in the drive, noiommu): wait for them.
 */
GPUNVME_API int gpunvme_mem_unmap(struct gpunvme_mem *mem, struct gpunvme_dev *dev);

/**
 * gpunvme_mem_dbuf() - get the descriptor of mapped memory for kernels
 * @mem:  the memory
 * @dev:  a device that it is mapped to
 * @dbuf: filled. Plain data, valid until the memory is unmapped from @dev
 *
 * Any thread may call it.
 * Return: 0; -EINVAL: not mapped to @dev; -ESTALE: it was taken away; -EOPNOTSUPP: its GPU caches it, and views for writing exist
 * without GPUNVME_VIEW_FENCED (gpunvme_queue_view()); -EIO; -ENOMEM.
 */
GPUNVME_API int gpunvme_mem_dbuf(const struct gpunvme_mem *mem, const struct gpunvme_dev *dev, struct gpunvme_dbuf *dbuf);

/**
 * gpunvme_mem_dbuf_for() - get the descriptor of mapped memory for kernels of another GPU
 * @mem:  memory of the host. Its IOVA is the same for all GPUs
 * @dev:  a device that it is mapped to
 * @gpu:  the GPU whose threads use it, with own queues on @dev. Or the memory's own GPU
 * @dbuf: filled. For threads of @gpu only, valid until the memory is unmapped from @dev
 *
 * The first call for a GPU makes the memory visible to it, until it is unmapped. Queues and data of a GPU lie together on a device:
 * if @gpu has queues in its own memory there, the call fails. Queues that are created after it lie in memory of the host, too. Any
 * thread may call it.
 * Return: 0; -EINVAL: not mapped to @dev; -ESTALE: it was taken away; -EXDEV: it is memory of another GPU, or queues and data of
 * @gpu lie in other memory on @dev; -EOPNOTSUPP, -ENOMEM, -EIO: @gpu cannot access it.
 */
GPUNVME_API int gpunvme_mem_dbuf_for(struct gpunvme_mem *mem, struct gpunvme_dev *dev, struct gpunvme_gpu *gpu,
				     struct gpunvme_dbuf *dbuf);

/**
 * gpunvme_mem_map_queue() - give every device of a queue access to memory, and get its descriptor
 * @mem:   the memory
 * @queue: the queue. Its kernels use a struct gpunvme_dvol
 * @dvbuf: filled. Plain data, valid until gpunvme_mem_unmap_queue() or gpunvme_queue_destroy()
 *
 * May be called again for the same memory. Any thread may call it.
 * Return: 0; -EINVAL; otherwise as gpunvme_mem_map() and gpunvme_mem_dbuf() for each device. After a failure some may have it
 * mapped.
 */
GPUNVME_API int gpunvme_mem_map_queue(struct gpunvme_mem *mem, struct gpunvme_queue *queue, struct gpunvme_dvbuf *dvbuf);

/**
 * gpunvme_mem_unmap_queue() - remove the mappings of memory to all devices of a queue
 * @mem:   the memory
 * @queue: the queue
 *
 * No command may use the buffer. Any thread may call it.
 * Return: 0, also if it was not mapped; -EINVAL; -EBUSY as gpunvme_mem_unmap(): some devices still have it mapped.
 */
GPUNVME_API int gpunvme_mem_unmap_queue(struct gpunvme_mem *mem, struct gpunvme_queue *queue);

/**
 * gpunvme_mem_ptr() - get the CPU address of memory
 * @mem: the memory. Any thread may call it
 * Return: the pointer, or NULL if the CPU cannot access it or @mem is NULL.
 */
GPUNVME_API void *gpunvme_mem_ptr(const struct gpunvme_mem *mem);

/**
 * gpunvme_mem_len() - get the size of memory
 * @mem: the memory. Any thread may call it
 * Return: bytes. 0 if @mem is NULL.
 */
GPUNVME_API size_t gpunvme_mem_len(const struct gpunvme_mem *mem);

/*
 * Memory in other PCI devices (P2P BARs): a BAR of any device that is bound to vfio-pci, for example the controller memory buffer
 * of a second drive, or the RAM of an FPGA. gpunvme_bar_open() takes the device, and gpunvme_mem_bar() makes a range of a BAR
 * memory.
 *
 * gpunvme_bar_reset(), an error of the device, or its removal by the kernel ends all mappings of that memory. Then every queue of
 * every controller that had it mapped is poisoned with GPUNVME_ENODEV, since any command may have been for that memory. Threads
 * that wait return at once. Destroy those queues. After a reset gpunvme_mem_map() maps the memory again.
 */
struct gpunvme_bar;

struct gpunvme_bar_opts {
	size_t size;         /* sizeof(struct gpunvme_bar_opts) */
	gpunvme_log_fn *log; /* NULL: silent */
	void *log_ctx;
};
#define GPUNVME_BAR_OPTS_INIT { sizeof(struct gpunvme_bar_opts), NULL, NULL }

/**
 * gpunvme_bar_open() - open a PCI device for its BARs
 * @uri:  pci:DDDD:BB:DD.F or a bare PCI address, with the key `port` as for gpunvme_dev_open()
 * @opts: NULL for the defaults. Not kept. The log callback must stay valid until the device is closed
 * @bar:  set on success. The caller owns it
 *
 * The device is reset, and may do DMA. Any thread may call it.
 * Return: 0; -EINVAL: a bad URI or option; -ENODEV: no such device; -EBUSY: another driver or process has it; -EACCES, -EPERM,
 * -EOPNOTSUPP, -ENOMEM as gpunvme_dev_open().
 */
GPUNVME_API int gpunvme_bar_open(const char *uri, const struct gpunvme_bar_opts *opts, struct gpunvme_bar **bar);

/**
 * gpunvme_bar_close() - close a PCI device that lent its BARs
 * @bar: NULL does nothing. No other thread may use it any more. The device stays open internally while memory in it exists
 * Return: 0; -ECHILD.
 */
GPUNVME_API int gpunvme_bar_close(struct gpunvme_bar *bar);

/**
 * gpunvme_bar_reset() - reset the function of a PCI device that lends its BARs
 * @bar: the device
 *
 * All mappings of its memory end, as described above, also if the reset fails. Any thread may call it.
 * Return: 0; -EOPNOTSUPP: it has no reset, and nothing was changed; -ENODEV: the kernel took it away; -EIO: it was not reset.
 */
GPUNVME_API int gpunvme_bar_reset(struct gpunvme_bar *bar);

/**
 * gpunvme_mem_bar() - use a range of a BAR as a data buffer
 * @gpu:    the processor that runs the threads
 * @bar:    the device
 * @index:  number of the BAR, 0 to 5
 * @offset: bytes from the start of the BAR, a multiple of the CPU page size
 * @len:    bytes, a multiple of the CPU page size. 0: up to the end of the BAR
 * @mem:    set on success. The caller owns it and frees it by gpunvme_mem_free()
 *
 * Controllers that were opened through IOMMUFD map it by its DMA-BUF, those through type 1 by the CPU's mapping. Nothing is zeroed.
 * Any thread may call it.
 * Return: 0; -EINVAL: no such BAR number, empty, or not page aligned; -ERANGE: not within the BAR; -EOPNOTSUPP: the device lacks
 * that BAR, or it can be neither mapped nor exported; -ENODEV: the kernel took the device away; -EMFILE; -ENOMEM.
 */
GPUNVME_API int gpunvme_mem_bar(struct gpunvme_gpu *gpu, struct gpunvme_bar *bar, unsigned index, uint64_t offset, size_t len,
				struct gpunvme_mem **mem);

/*
 * Memory of the caller for I/O, without registering it each time: each device has a cache of what was registered and mapped to it.
 *
 *   gpunvme_mem_get, _put      begin and end the use of any pointer
 *   gpunvme_mem_cache_forget   before memory is freed that the library cannot watch
 *   gpunvme_mem_cache_get_info, gpunvme_mem_cache_set_limit
 *
 * Memory stays mapped after gpunvme_mem_put(), so the next gpunvme_mem_get() needs no system call. (On AMD GPUs that cannot write
 * their L2 back in a kernel, memory of malloc() is made uncached again.) The mapping ends when the cache holds more than its limit,
 * the memory is freed, or the device is closed. ROCm's runtime reports when memory of an AMD GPU or of hipHostMalloc() is freed. It
 * is unmapped before it can be allocated again. CUDA numbers its allocations, and each gpunvme_mem_get() compares the number.
 * Nothing reports that other memory (malloc(), mmap()) is freed. So its last gpunvme_mem_put() unmaps it, except with
 * GPUNVME_GET_KEEP. What the cache holds counts as mapped: queues and data of a GPU lie together on a device (gpunvme_mem_map()).
 */
enum gpunvme_get_flags {
	GPUNVME_GET_KEEP = 1u << 0, /* keep memory of malloc() and mmap(), too. Call gpunvme_mem_cache_forget() before it ends */
};

/* Memory in use. Filled by gpunvme_mem_get(). */
struct gpunvme_mem_use {
	struct gpunvme_mem *mem;  /* the cache owns it: do not free or unmap it */
	uint64_t offset;	  /* bytes from the start of dbuf to the caller's pointer */
	struct gpunvme_dbuf dbuf; /* for kernels */
};

struct gpunvme_mem_cache_info {
	size_t size;	    /* sizeof(struct gpunvme_mem_cache_info) */
	uint64_t hits;	    /* calls of gpunvme_mem_get() that found their memory mapped */
	uint64_t misses;    /* calls that registered and mapped memory */
	uint64_t evictions; /* unmapped to stay within the limit */
	uint64_t stale;	    /* unmapped or not found because the memory was freed */
	uint64_t bytes;	    /* mapped now */
	uint64_t limit;
	uint32_t entries; /* ranges that are mapped */
	uint32_t used;	  /* of these, between gpunvme_mem_get() and gpunvme_mem_put() */
};

/**
 * gpunvme_mem_get() - begin to use memory of the caller with a device
 * @gpu:   the processor that runs the threads
 * @dev:   the device
 * @ptr:   first byte, at any address within an allocation: of HIP, CUDA, or any memory that gpunvme_mem_register() takes
 * @len:   bytes
 * @flags: 0 or enum gpunvme_get_flags
 * @use:   filled on success. Each success needs a gpunvme_mem_put()
 *
 * Registers and maps what is not mapped yet: whole parts of 64 KiB of memory that a runtime knows, whole pages of other memory. The
 * caller keeps the memory until gpunvme_mem_put(). Any thread may call it, but not while @dev is being closed.
 * Return: 0; -EINVAL; -EFAULT: it was freed meanwhile; -ENODEV, -ESHUTDOWN: the controller is gone or dead; otherwise as
 * gpunvme_mem_register(), gpunvme_mem_map() and gpunvme_mem_dbuf().
 */
GPUNVME_API int gpunvme_mem_get(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, void *ptr, size_t len, uint32_t flags,
				struct gpunvme_mem_use *use);

/**
 * gpunvme_mem_put() - end the use of memory of gpunvme_mem_get()
 * @use: as gpunvme_mem_get() has filled it. Zeroed when 0 is returned. NULL and zeroes are ignored
 *
 * No command may use the memory any more. Call it also for a device that is being closed or was closed. Any thread may call it.
 * Return: 0: the memory may be freed, in the way that it was allocated; -EBUSY: the device may still write to it, as
 * gpunvme_mem_free() says, and @use stays: call again later; -EINVAL: the memory is not of gpunvme_mem_get(); -ECHILD.
 */
GPUNVME_API int gpunvme_mem_put(struct gpunvme_mem_use *use);

/**
 * gpunvme_mem_cache_forget() - unmap cached memory that is not in use
 * @dev: the device
 * @ptr: first byte, or NULL for all
 * @len: bytes. Ignored if @ptr is NULL
 *
 * Memory in use is not found any more, and its last gpunvme_mem_put() unmaps it. Any thread may call it.
 * Return: 0: nothing of it is mapped; -EINVAL; -EBUSY: some is in use, or the device may still write to it.
 */
GPUNVME_API int gpunvme_mem_cache_forget(struct gpunvme_dev *dev, void *ptr, size_t len);

/**
 * gpunvme_mem_cache_set_limit() - set how many bytes a device's cache may keep mapped
 * @dev:   the device
 * @bytes: 1 GiB if it was never set. 0: keep nothing that is not in use
 *
 * Memory in use counts, but the limit never unmaps it. Idle entries are evicted in least-recently-released order. Any thread may
 * call it.
 * Return: 0; -EINVAL.
 */
GPUNVME_API int gpunvme_mem_cache_set_limit(struct gpunvme_dev *dev, uint64_t bytes);

/**
 * gpunvme_mem_cache_get_info() - get content and counters of a device's cache
 * @dev:  the device
 * @info: filled. Set info->size before
 *
 * Any thread may call it.
 * Return: 0; -EINVAL.
 */
GPUNVME_API int gpunvme_mem_cache_get_info(struct gpunvme_dev *dev, struct gpunvme_mem_cache_info *info);

#ifdef __cplusplus
}
#endif
#endif
