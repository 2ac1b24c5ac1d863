/* SPDX-License-Identifier: MIT */
/*
 * Memory: a range of bytes with up to three addresses: a CPU pointer, an address for the lanes, and one IOVA for each device it
 * is mapped to.
 *
 *   gpunvme_mem_alloc / _register / _import_dmabuf / _cmb     make the object
 *   gpunvme_peer_open, gpunvme_mem_bar     the same of memory in another PCI device
 *   gpunvme_mem_map                   let a device reach it
 *   gpunvme_mem_dbuf                  what a kernel needs to use it; gpunvme_mem_dbuf_for: a kernel of another GPU
 *   gpunvme_mem_map_queue             both for all devices of a queue; gpunvme_mem_unmap_queue
 *   gpunvme_mem_unmap, gpunvme_mem_free
 *   gpunvme_mem_get, gpunvme_mem_put     all of that at once for a pointer of the caller, from a cache
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
	GPUNVME_MEM_HUGE = 1u << 0, /* 2 MiB pages; falls back to small pages, with one log line, where the system has none */
	GPUNVME_MEM_VRAM = 1u << 1, /* memory of the GPU; -EOPNOTSUPP where it has none that a controller can write to */
	GPUNVME_MEM_HOST = 1u << 2, /* memory of the host, also where a queue has shown that the GPU's is better */
	GPUNVME_MEM_HIP = 1u << 3, /* memory of an AMD GPU, made by HIP (6 or newer); may be cached, with one log line then */
	GPUNVME_MEM_DRM = 1u << 4, /* memory of an AMD GPU, made by libdrm, uncached; for a GPU that does nothing else; not with _HIP */
	GPUNVME_MEM_CMB_LISTS = 1u << 5, /* its PRP lists lie in the drive's own memory: mapping it fails where there is none for them */
	GPUNVME_MEM_SHARED = 1u << 6, /* memory of the host that a controller in another process can map; not with _HUGE */
};

struct gpunvme_mem_opts {
	size_t size;    /* sizeof(struct gpunvme_mem_opts) */
	uint32_t flags; /* enum gpunvme_mem_flags; an unknown bit is an error */
	uint32_t reserved; /* 0 */
};
#define GPUNVME_MEM_OPTS_INIT { sizeof(struct gpunvme_mem_opts), 0, 0 }

/**
 * gpunvme_mem_alloc() - memory that the lanes of @gpu can use as a data buffer
 * @gpu:  the lanes
 * @len:  bytes, rounded up to whole pages
 * @opts: NULL for the defaults
 * @mem:  set on success; the caller owns it
 *
 * It is memory of the host, or the GPU's own once a queue of that GPU lies in it (gpunvme_queue_info.rung: "vram"): create the
 * queue first. gpunvme_mem_ptr() of the latter may be NULL. The memory is zeroed, locked where the limits allow it, and not
 * inherited over fork(). Once a queue of that GPU is one of a vfio-user: controller, memory of the host has a descriptor, as by
 * GPUNVME_MEM_SHARED, so that it can be mapped there. Any thread may call it.
 * Return: 0; -EINVAL zero length, bad option; -ENOMEM; -EMFILE no descriptor; -EOPNOTSUPP memory of the GPU is not possible; -EIO
 * the GPU has failed. With GPUNVME_MEM_HIP or _DRM also -EOPNOTSUPP the GPU is another vendor's, -ENODEV the library that the
 * flag names is not installed, -EIO the GPU does not reach it.
 */
GPUNVME_API int gpunvme_mem_alloc(struct gpunvme_gpu *gpu, size_t len, const struct gpunvme_mem_opts *opts,
				  struct gpunvme_mem **mem);

/**
 * gpunvme_mem_register() - use memory the caller already has
 * @gpu: the lanes that will use it
 * @ptr: its first byte; a multiple of the CPU page size
 * @len: bytes; a multiple of the CPU page size
 * @mem: set on success
 *
 * Memory of the GPU from its runtime (hipExtMallocWithFlags, hipMalloc, hsa_amd_memory_pool_allocate) is recognised. Where it is
 * cached, as hipMalloc's is, kernels may see again what was read there before, until gpunvme_gpu_fence() or hipStreamSynchronize().
 * The log says so. On GPUs whose waves cannot write their caches back (RDNA2, RDNA3, gfx906, gfx908) writing from it needs
 * GPUNVME_VIEW_FENCED, and memory of hipHostMalloc() must be coherent: allocated with no flag or with hipHostMallocCoherent. There
 * call gpunvme_gpu_fence() after HIP has copied from or to memory of malloc(), before kernels use it.
 * The caller keeps owning the bytes and must keep them mapped until gpunvme_mem_free(). For `cpu` lanes @ptr is ordinary memory.
 * Any thread may call it.
 * Return: 0; -EINVAL not page aligned or empty; -EXDEV it is another GPU's; -ERANGE it leaves its allocation; -EFAULT not readable
 * and writable memory; -EOPNOTSUPP; -ENOMEM.
 */
GPUNVME_API int gpunvme_mem_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gpunvme_mem **mem);

/**
 * gpunvme_mem_import_dmabuf() - use memory of another driver
 * @gpu:    the lanes that will use it
 * @fd:     a DMA-BUF; not kept, the caller may close it
 * @offset: of the first byte in it; a multiple of the CPU page size
 * @len:    bytes; a multiple of the CPU page size
 * @mem:    set on success
 *
 * gpunvme_mem_ptr() is NULL where the exporter offers the CPU no mapping (vfio-pci does not); then only the controller reaches the
 * bytes. Whether a controller can is seen by gpunvme_mem_map(): through IOMMUFD kernels up to 7.3 take only what vfio-pci exported,
 * through type 1 they take a DMA-BUF that the CPU can map. Memory that its exporter may move, as the drivers of GPUs do, is mapped
 * as the library's own of a GPU is: through type 1 with `unsafe-vram=1` only, through IOMMUFD after the device took a scratch
 * buffer of @gpu, since an attempt that is refused moves the memory. Known to stay is what vfio-pci, udmabuf and the kernel's heaps
 * export (exp_name in /proc/self/fdinfo). On GPUs whose waves cannot write their caches back, memory that may move counts as
 * cached by @gpu, unless its driver marked it as uncached: writing from it needs GPUNVME_VIEW_FENCED. Any thread may call it.
 * Return: 0; -EINVAL no DMA-BUF, not page aligned or empty; -ERANGE outside of it; -EMFILE, -ENOMEM.
 */
GPUNVME_API int gpunvme_mem_import_dmabuf(struct gpunvme_gpu *gpu, int fd, uint64_t offset, size_t len, struct gpunvme_mem **mem);

/**
 * gpunvme_mem_cmb() - memory in a drive as a data buffer (Controller Memory Buffer)
 * @gpu:  the lanes, of the CPU; with a controller in software any
 * @dev:  the drive, which takes data there: gpunvme_dev_info.cmb_holds
 * @len:  bytes, rounded up to whole pages
 * @opts: NULL for the defaults; the only flag is GPUNVME_MEM_CMB_LISTS
 * @mem:  set on success; the caller owns it, and frees it before @dev is closed
 *
 * It is zeroed, mapped to @dev, which alone can have it, and tested: a queue that is made for that reads some blocks into it
 * and into memory of the host. The CPU reaches it through a BAR, as slowly as a register. A reset of @dev may change what it
 * holds. Any thread may call it.
 * Return: 0; -EINVAL zero length, bad option; -EOPNOTSUPP @dev has no memory, or none for this, or @gpu is no CPU; -ENOSPC no
 * room in a row, or no queue pair left for the test; -EIO @dev errs with it; -ENODEV, -ESHUTDOWN; -ENOMEM; or a positive NVMe
 * status.
 */
GPUNVME_API int gpunvme_mem_cmb(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, size_t len, const struct gpunvme_mem_opts *opts,
				struct gpunvme_mem **mem);

/**
 * gpunvme_mem_free() - unmap from every device and release
 * @mem: or NULL
 *
 * No other thread may use @mem any more.
 * Return: 0 @mem is gone, and registered memory is the caller's again; -EBUSY a device may still write to it (gpunvme_mem_unmap()
 * of that device would return the same): @mem lives on and is mapped there, the bytes are the device's. Destroy or recover the
 * queue that the sentence names, or close the device, then call again. Where the sentence says that a GPU did not let go of it,
 * @mem stays until the process ends.
 */
GPUNVME_API int gpunvme_mem_free(struct gpunvme_mem *mem);

/**
 * gpunvme_mem_map() - let a device read and write this memory
 * @mem: the memory
 * @dev: the device; must stay open until the memory is unmapped
 *
 * Builds the PRP lists of the buffer, so this is slow and done once. Nothing is built on the I/O path. Any thread may call it.
 * Memory that was taken away (gpunvme_peer_reset()) is mapped again, elsewhere. Return: 0, also when it is mapped already; -EXDEV
 * queues and data of its GPU lie elsewhere on @dev, or it lies in another drive; -EOPNOTSUPP the controller cannot reach memory of
 * the GPU, or takes no lists in its own (GPUNVME_MEM_CMB_LISTS: the first such mapping is tested, as gpunvme_mem_cmb() is);
 * -ENOMEM, also when the locked-memory limit is reached; -ENOSPC no free IOVA; -ENODEV; what the kernel returns for the mapping.
 * -EBUSY: the memory was taken away and a queue still has commands in flight; or, with a drive on an NVIDIA GPU, a part of the
 * memory is mapped there already by itself (unmap that first), or another thread unmaps such a part now (call again).
 * -EIO: a drive that runs on a GPU failed to map it and did not let go of the bytes, which stay until the process ends.
 */
GPUNVME_API int gpunvme_mem_map(struct gpunvme_mem *mem, struct gpunvme_dev *dev);

/**
 * gpunvme_mem_unmap() - remove a device mapping
 * @mem: the memory
 * @dev: the device
 *
 * The caller makes sure that no command uses the buffer. Descriptors made by gpunvme_mem_dbuf() become invalid. Its PRP lists,
 * about 1/256 of its size and two pages at least (more where the drive takes stricter lists), stay @dev's until every command that
 * is in flight now has ended. If a command never ends, each map and unmap leaks its lists until gpunvme_queue_recover() or
 * gpunvme_queue_destroy() of its queue.
 * Return: 0, also when it was not mapped, or when a GPU whose context has ended does not let go of the bytes: gpunvme_mem_free()
 * then returns -EBUSY; -EBUSY when a poisoned queue of @dev still has commands in flight, or the device is using the memory right
 * now: destroy the queue first. Where no IOMMU keeps commands from it, as from memory in the drive or lists there, -EBUSY also
 * while any queue of @dev has commands in flight: wait for them.
 */
GPUNVME_API int gpunvme_mem_unmap(struct gpunvme_mem *mem, struct gpunvme_dev *dev);

/**
 * gpunvme_mem_dbuf() - describe mapped memory to a kernel
 * @mem:  the memory
 * @dev:  a device it is mapped to
 * @dbuf: filled; plain data, valid until the memory is unmapped from @dev
 *
 * Any thread may call it. Return: 0; -EINVAL when it is not mapped to @dev; -ESTALE when it was taken away; -EOPNOTSUPP its GPU
 * caches it, and views for writing were given out without GPUNVME_VIEW_FENCED (gpunvme_queue_view()); -EIO, -ENOMEM.
 */
GPUNVME_API int gpunvme_mem_dbuf(const struct gpunvme_mem *mem, const struct gpunvme_dev *dev, struct gpunvme_dbuf *dbuf);

/**
 * gpunvme_mem_dbuf_for() - describe mapped memory to a kernel of another GPU
 * @mem:  memory of the host; its IOVA is one for all GPUs
 * @dev:  a device it is mapped to
 * @gpu:  whose lanes will use it, with queues of their own on @dev; or the memory's own
 * @dbuf: filled; for lanes of @gpu only, valid until the memory is unmapped from @dev
 *
 * The first call for a GPU makes the memory visible to it, which lasts as long. A GPU keeps queues and data of one device together,
 * so call it before that GPU's queues are created: they then lie in memory of the host, too. Any thread may call it.
 * Return: 0; -EINVAL when it is not mapped to @dev; -ESTALE when it was taken away; -EXDEV it is memory of another GPU, or queues
 * and data of @gpu lie elsewhere on @dev; -EOPNOTSUPP, -ENOMEM, -EIO @gpu cannot reach it.
 */
GPUNVME_API int gpunvme_mem_dbuf_for(struct gpunvme_mem *mem, struct gpunvme_dev *dev, struct gpunvme_gpu *gpu,
				     struct gpunvme_dbuf *dbuf);

/**
 * gpunvme_mem_map_queue() - let every device of a queue read and write a memory, and describe it to kernels
 * @mem:   the memory
 * @queue: the queue; its kernels use a struct gpunvme_dvol
 * @dvbuf: filled; plain data, valid until gpunvme_mem_unmap_queue() or gpunvme_queue_destroy()
 *
 * May be called again for the same memory. Any thread may call it. Return: 0; -EINVAL; otherwise as gpunvme_mem_map() and
 * gpunvme_mem_dbuf() for each device.
 */
GPUNVME_API int gpunvme_mem_map_queue(struct gpunvme_mem *mem, struct gpunvme_queue *queue, struct gpunvme_dvbuf *dvbuf);

/**
 * gpunvme_mem_unmap_queue() - end that
 * @mem:   the memory
 * @queue: the queue
 *
 * The caller makes sure that no command uses the buffer. Any thread may call it.
 * Return: 0, also when it was not mapped; -EINVAL; -EBUSY as gpunvme_mem_unmap(), then it is still mapped to some devices.
 */
GPUNVME_API int gpunvme_mem_unmap_queue(struct gpunvme_mem *mem, struct gpunvme_queue *queue);

/**
 * gpunvme_mem_ptr() - the CPU's address of the memory
 * @mem: the memory
 * Return: the pointer, or NULL where the CPU cannot reach it.
 */
GPUNVME_API void *gpunvme_mem_ptr(const struct gpunvme_mem *mem);

/**
 * gpunvme_mem_len() - its size
 * @mem: the memory
 * Return: bytes.
 */
GPUNVME_API size_t gpunvme_mem_len(const struct gpunvme_mem *mem);

/*
 * Other PCI devices whose memory a controller is to use: a BAR of any device that is bound to vfio-pci, for example the controller
 * memory buffer of a second drive, or the RAM of an FPGA.
 *
 *   gpunvme_peer_open       take the device
 *   gpunvme_mem_bar         a range of one of its BARs as memory
 *   gpunvme_mem_map, ...    as with any memory
 *
 * When the device is reset by gpunvme_peer_reset(), reports an error, or the kernel takes it away, what was mapped is dead: every
 * queue of every controller to which memory in it is mapped is poisoned with GPUNVME_ENODEV, since any command may have been for
 * that memory, and lanes that wait return at once. Destroy those queues. After a reset gpunvme_mem_map() maps the memory again.
 */
struct gpunvme_peer;

struct gpunvme_peer_opts {
	size_t size;         /* sizeof(struct gpunvme_peer_opts) */
	gpunvme_log_fn *log; /* NULL: silent */
	void *log_ctx;
};
#define GPUNVME_PEER_OPTS_INIT { sizeof(struct gpunvme_peer_opts), NULL, NULL }

/**
 * gpunvme_peer_open() - take a PCI device for its BARs
 * @uri:  pci:DDDD:BB:DD.F or a bare PCI address, with the key `port` as for gpunvme_dev_open()
 * @opts: NULL for the defaults; not kept, the log callback must stay valid until the device is closed
 * @peer: set on success; the caller owns it
 *
 * The device is reset and may make DMA. Any thread may call it.
 * Return: 0; -EINVAL bad URI or option; -ENODEV no such device; -EBUSY another driver or process has it; -EACCES, -EPERM,
 * -EOPNOTSUPP, -ENOMEM as gpunvme_dev_open().
 */
GPUNVME_API int gpunvme_peer_open(const char *uri, const struct gpunvme_peer_opts *opts, struct gpunvme_peer **peer);

/**
 * gpunvme_peer_close() - give it back
 * @peer: or NULL. While memory in it exists the device stays open internally.
 * Return: 0; -ECHILD.
 */
GPUNVME_API int gpunvme_peer_close(struct gpunvme_peer *peer);

/**
 * gpunvme_peer_reset() - function reset
 * @peer: the device
 *
 * What is mapped of it dies, see above, also when the reset fails. Any thread may call it.
 * Return: 0 it was reset; -EOPNOTSUPP it has no reset, and nothing was changed; -ENODEV the kernel took it away; -EIO it was not
 * reset.
 */
GPUNVME_API int gpunvme_peer_reset(struct gpunvme_peer *peer);

/**
 * gpunvme_mem_bar() - a range of a BAR as memory
 * @gpu:    the lanes that will use it
 * @peer:   the device
 * @bar:    0 to 5
 * @offset: of the first byte in the BAR; a multiple of the CPU page size
 * @len:    bytes; a multiple of the CPU page size; 0: up to the end of the BAR
 * @mem:    set on success; gpunvme_mem_free() frees it
 *
 * Controllers that were opened through IOMMUFD map it by its DMA-BUF, those through type 1 by the CPU's mapping. Nothing is zeroed.
 * Any thread may call it.
 * Return: 0; -EINVAL no such BAR number, empty or not page aligned; -ERANGE outside of the BAR; -EOPNOTSUPP the device has no such
 * BAR, or it can be neither mapped nor exported; -ENODEV the kernel took the device away; -EMFILE, -ENOMEM.
 */
GPUNVME_API int gpunvme_mem_bar(struct gpunvme_gpu *gpu, struct gpunvme_peer *peer, unsigned bar, uint64_t offset, size_t len,
				struct gpunvme_mem **mem);

/*
 * Memory of the caller's for I/O without registering it each time: each device has a cache of what was registered and mapped to it.
 *
 *   gpunvme_mem_get        any pointer: what a kernel needs to use it; gpunvme_mem_put: not used any more
 *   gpunvme_mem_cache_forget   before memory is freed whose end nobody tells the library
 *   gpunvme_mem_cache_get_info, gpunvme_mem_cache_set_limit
 *
 * Memory stays mapped after gpunvme_mem_put(), so the next gpunvme_mem_get() needs no system call. (On AMD GPUs that cannot write
 * their L2 back in a kernel, memory of malloc() is made uncached again.) The mapping ends when the cache holds more than its limit,
 * the memory is freed, or the device is closed. ROCm's runtime reports when memory of an AMD GPU or of hipHostMalloc() is freed: it
 * is unmapped before it can be allocated again. CUDA has a number for each of its allocations, which each gpunvme_mem_get()
 * compares. Nothing reports that other memory (malloc(), mmap()) is freed: its last gpunvme_mem_put() unmaps it, unless the caller
 * promises to report that, by GPUNVME_GET_KEEP.
 *
 * What the cache holds counts as mapped: queues and data of a GPU lie together on a device (gpunvme_mem_map()).
 */
enum gpunvme_get_flags {
	GPUNVME_GET_KEEP = 1u << 0, /* memory whose end nobody tells stays, too; gpunvme_mem_cache_forget() comes before it ends */
};

/* Memory in use. Filled by gpunvme_mem_get(). */
struct gpunvme_mem_use {
	struct gpunvme_mem *mem;  /* the cache's: not to be freed or unmapped */
	uint64_t offset;	  /* of the caller's pointer in dbuf */
	struct gpunvme_dbuf dbuf; /* for kernels */
};

struct gpunvme_mem_cache_info {
	size_t size;	    /* sizeof(struct gpunvme_mem_cache_info) */
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
 * gpunvme_mem_cache_forget() - unmap memory that is not in use
 * @dev: the device
 * @ptr: first byte, or NULL for all
 * @len: bytes
 *
 * What is in use is not found any more, and unmapped with its last gpunvme_mem_put(). Any thread may call it.
 * Return: 0 nothing of it is mapped; -EINVAL; -EBUSY some is in use, or the device may still write to it.
 */
GPUNVME_API int gpunvme_mem_cache_forget(struct gpunvme_dev *dev, void *ptr, size_t len);

/**
 * gpunvme_mem_cache_set_limit() - how much may stay mapped
 * @dev:   the device
 * @bytes: 1 GiB if it was never set; 0: nothing that is not in use
 *
 * What is in use counts, and is never unmapped for it. The rest is evicted in least-recently-released order. Any thread may
 * call it.
 * Return: 0, -EINVAL.
 */
GPUNVME_API int gpunvme_mem_cache_set_limit(struct gpunvme_dev *dev, uint64_t bytes);

/**
 * gpunvme_mem_cache_get_info() - what it holds, and how well it serves
 * @dev:  the device
 * @info: set info->size before
 *
 * Any thread may call it. Return: 0, -EINVAL.
 */
GPUNVME_API int gpunvme_mem_cache_get_info(struct gpunvme_dev *dev, struct gpunvme_mem_cache_info *info);

#ifdef __cplusplus
}
#endif
#endif
