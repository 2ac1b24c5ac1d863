/* SPDX-License-Identifier: MIT */
/*
 * Memory objects: bytes with a CPU pointer, an address for threads and, per address space, an IOVA.
 *
 * A kind of memory (host, VRAM, a foreign DMA-BUF, a device's BAR) is a `static const struct gnv_mem_ops` and one constructor.
 * Everything above works on struct gpunvme_mem. IOVAs and PRP lists belong to the mapping to a device (dma/mapping.h), not here.
 */
#ifndef GNV_MEM_MEM_H
#define GNV_MEM_MEM_H

#include <gpunvme/mem.h>
#include <pthread.h>
#include <stdbool.h>

#include "gpu/gpu.h"
#include "mem/space.h"
#include "util/log.h"
#include "util/mmio.h"

/* Flags of memory that an AMD GPU allocates by another runtime than that of its threads. One at a time. */
#define GNV_MEM_VENDOR ((uint32_t)(GPUNVME_MEM_HIP | GPUNVME_MEM_DRM))

struct gnv_cached;  /* dma/mem_cache_table.h */
struct gnv_mapping; /* of this memory to one device (dma/mapping.h) */

/* Called when the device in whose BAR the memory lies takes it away. */
struct gnv_mem_watch {
	struct gnv_mem_watch *next;
	void (*lost)(struct gnv_mem_watch *watch); /* with the memory's lock held, on any thread */
};

struct gnv_mem_ops {
	const char *kind; /* for messages: "host", "registered", ... */
	/* Give the bytes back, not the object (gnv_mem_release() does both). Never NULL. */
	void (*release)(struct gpunvme_mem *mem);
	/* Make [offset, offset + len) visible to the threads of a GPU, and undo that. Return: as its mmio_attach, mmio_detach. */
	int (*attach)(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range);
	int (*detach)(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range);
};

/* A memory, or a part of it, as the threads of one GPU see it. */
struct gnv_visibility {
	struct gnv_visibility *next; /* of this memory */
	struct gpunvme_gpu *gpu; /* a counted reference */
	struct gnv_gpu_range range;
	unsigned users;
	bool proven; /* its user has tested it */
};

/* Registers that are reached by messages. Any thread. Without a reply they read as all ones. */
struct gnv_mem_calls {
	uint32_t (*read)(const struct gpunvme_mem *mem, size_t offset);
	void (*write)(const struct gpunvme_mem *mem, size_t offset, uint32_t value);
};

struct gpunvme_mem {
	uint64_t process; /* that made it (util/process.h) */
	const struct gnv_mem_ops *ops;
	struct gpunvme_gpu *gpu; /* a counted reference, or NULL for the library's own */
	void *cpu;               /* NULL where the CPU cannot reach it */
	uint64_t lane;           /* of local memory: its address for the threads of `gpu` */
	size_t len;
	size_t page;     /* bytes of one page of the backing */
	int dmabuf;      /* descriptor of a DMA-BUF of the bytes, or -1. The kind that has one closes it */
	uint64_t dmabuf_offset; /* of the first byte in it */
	int fd;          /* descriptor of the bytes, from the first on, that another process can map, or -1 */
	const struct gnv_mem_calls *calls; /* of a BAR: they access its registers, except doorbells. NULL: at `cpu` */
	bool local;      /* memory of `gpu`, not of the host */
	bool far;        /* memory of a device: the CPU combines its writes, and the kernel makes no direct I/O to it */
	bool moves;      /* its driver may move it: memory of a GPU, and of exporters that are not known not to */
	bool cached_stores; /* local: a controller may see stores of threads only after gpunvme_gpu_fence() */
	bool borrowed;   /* local, but its user's, which may free it at any time */
	uint64_t tag;    /* borrowed: as of struct gnv_gpu_bytes, as is `tagged` */
	size_t tagged;
	bool exempt;     /* the library's own, which may lie elsewhere than the data of its GPU on a device */
	bool locked;     /* mlock succeeded */
	bool ours;       /* the library's own, got by the public call: it is freed once */
	bool orphan;     /* the library's own, freed while a device may still write to it. Released with its last mapping */
	bool leaked;     /* a GPU did not let go of it: the bytes are never given back */
	bool gone;       /* taken away for good */
	bool inside;     /* memory of a controller in software: mapped, and reached once enabled there */
	bool lists_inside; /* PRP lists of its mappings lie in the memory of the drive */
	struct gpunvme_dev *home; /* the drive in which it lies, and which has it at home_iova without a mapping, or NULL */
	uint64_t home_iova;
	struct gnv_cached *cached; /* that it belongs to, or NULL */
	struct gnv_visibility *visible_to; /* under the lock of the caller that shows it */
	pthread_mutex_t lock; /* protects maps, watches, orphan, leaked and gone */
	struct gnv_mapping *maps;
	struct gnv_mem_watch *watches;
};

/* Where the CPU has the registers that are such memory. */
static inline char GNV_MMIO *gnv_mem_regs(const struct gpunvme_mem *bar)
{
	return (char GNV_FORCE GNV_MMIO *)bar->cpu;
}

static inline uint32_t gnv_mem_reg_read32(const struct gpunvme_mem *bar, size_t offset)
{
	return bar->calls ? bar->calls->read(bar, offset) : gnv_mmio_read32(gnv_mem_regs(bar) + offset);
}

static inline void gnv_mem_reg_write32(const struct gpunvme_mem *bar, size_t offset, uint32_t value)
{
	if (bar->calls)
		bar->calls->write(bar, offset, value);
	else
		gnv_mmio_write32(gnv_mem_regs(bar) + offset, value);
}

/* The flag that data in memory of the host needs for a space to map it. */
static inline uint32_t gnv_mem_shared_for(const struct gnv_space *space)
{
	return space->by_fd ? (uint32_t)GPUNVME_MEM_SHARED : 0;
}

/* The flags that memory of the host needs for a space to map it in one piece. */
static inline uint32_t gnv_mem_flags_for(const struct gnv_space *space)
{
	return (space->one_piece ? (uint32_t)GPUNVME_MEM_HUGE : 0) | gnv_mem_shared_for(space);
}

/*
 * gnv_mem_host_alloc() - anonymous memory of this process, zeroed, locked where possible, MADV_DONTFORK
 * @flags: enum gpunvme_mem_flags. With GPUNVME_MEM_SHARED it has a descriptor
 * @log: gets a line when there are no huge pages. If locking fails, mem->locked is false, and the owner logs it once
 * Return: 0, -EINVAL, -ENOMEM, -EMFILE.
 */
int gnv_mem_host_alloc(size_t len, uint32_t flags, const struct gnv_log *log, struct gpunvme_mem **mem);

/*
 * gnv_mem_host_alloc_for() - the same for data of a GPU: as it wants memory of the host, unless @flags ask for a kind of pages
* Return: as gnv_mem_host_alloc(), and errors of the GPU's host_alloc.
 */
int gnv_mem_host_alloc_for(struct gpunvme_gpu *gpu, size_t len, uint32_t flags, struct gpunvme_mem **mem);

/* gnv_mem_host_register() - wrap memory that the caller owns. Return: 0, -EINVAL, -EFAULT, -EOPNOTSUPP, -ENOMEM. */
int gnv_mem_host_register(void *ptr, size_t len, struct gpunvme_mem **mem);

/*
 * gnv_mem_gpu_alloc() - allocate memory of a GPU. @how: as of the GPU's mem_alloc
 * gnv_mem_gpu_register() - register memory that its user got from the GPU's runtime. -ENOENT: it is the host's
 * Both hold a reference to the GPU. Return: 0; errors of the GPU's mem_alloc and mem_register; -ENOMEM.
 */
int gnv_mem_gpu_alloc(struct gpunvme_gpu *gpu, uint32_t how, size_t len, struct gpunvme_mem **mem);
int gnv_mem_gpu_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gpunvme_mem **mem);

/*
 * gnv_mem_far_get() - copy from memory of a device (`far`) to memory of the host. gnv_mem_far_put() - copy the other way
 *
 * By the CPU's mapping, or through the GPU's runtime if there is none. Threads see the copied bytes when the call returns. Return:
 * 0; -EFAULT the memory is its user's, which has freed it; -EIO. gnv_fail() has the message.
 */
int gnv_mem_far_get(const struct gpunvme_mem *mem, size_t offset, void *to, size_t len);
int gnv_mem_far_put(const struct gpunvme_mem *mem, size_t offset, const void *from, size_t len);

/* Has its user not freed it? Memory of the library is there. */
bool gnv_mem_is_there(const struct gpunvme_mem *mem);
/* Return: 0; -EFAULT it was freed, with the error message. */
int gnv_mem_check_there(const struct gpunvme_mem *mem);

/* Complete the CPU's earlier stores to its mapping of such memory. Its later loads read the memory itself. */
void gnv_mem_far_fence(const struct gpunvme_mem *mem);

/* Initialise the common part of a new object, zeroed by the caller. gnv_mem_fini() undoes it. */
void gnv_mem_init(struct gpunvme_mem *mem, const struct gnv_mem_ops *ops);
void gnv_mem_fini(struct gpunvme_mem *mem);

/*
 * gnv_mem_show() - make it visible to the threads of a GPU, once for all requests. gnv_mem_hide() - take one request back
 * @offset, @len: which part, the same each time for one memory
 * @lane: the threads' address of that part
 *
 * Memory of the host is mapped to its device before it is shown, and hidden from every GPU before it is released. The caller
 * serialises the two for one memory.
* Return: 0; errors of attaching it; -ENOMEM. Hiding: 0; -EBUSY the GPU kept it, and the memory must outlive it.
 */
int gnv_mem_show(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, uint64_t *lane);
int gnv_mem_hide(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu);

/* The same for memory that may have been fenced off: hide the part that was shown at @lane. */
int gnv_mem_hide_at(struct gpunvme_mem *mem, const struct gpunvme_gpu *gpu, uint64_t lane);

/*
 * gnv_mem_fence_off() - replace it for threads by memory without effect, as its device is given back while they may use it
 * Later requests to see it, when the device is back, get it at another address. Called before the device is reset, and with @reset
 * after it. Serialised with those above.
 * Return: 0; negative, with a message: for one of the GPUs that was not possible.
 */
int gnv_mem_fence_off(struct gpunvme_mem *mem, bool reset);

/*
 * Make pages that a runtime made cached uncached again, for each GPU that sees them. Serialised with the functions above.
* Return: 0; errors of the GPU's host_renew.
 */
int gnv_mem_renew(struct gpunvme_mem *mem);

/* How that GPU sees it. NULL: it does not, or the memory is fenced off. Valid until it is hidden. */
struct gnv_visibility *gnv_mem_visibility(struct gpunvme_mem *mem, const struct gpunvme_gpu *gpu);

/* For the ops of kinds: ordinary memory of this process, and memory of another driver (by its CPU pointer or its DMA-BUF). */
int gnv_mem_attach_host(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range);
int gnv_mem_detach_host(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range);
int gnv_mem_attach_foreign(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len,
			   struct gnv_gpu_range *range);
int gnv_mem_detach_foreign(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range);

/* Begin and end a watch of the memory. Its lock is held. */
void gnv_mem_watch(struct gpunvme_mem *mem, struct gnv_mem_watch *watch);
void gnv_mem_unwatch(struct gpunvme_mem *mem, struct gnv_mem_watch *watch);

/* It was taken away: notify all watches. @gone: it cannot be mapped again either. */
void gnv_mem_lose(struct gpunvme_mem *mem, bool gone);

/* Release the bytes, the object and its reference to the GPU. No device has it mapped. */
void gnv_mem_release(struct gpunvme_mem *mem);

/* Can controllers of this space have memory of this kind? Return: 0; -EOPNOTSUPP. */
int gnv_mem_check_space(const struct gpunvme_mem *mem, const struct gnv_space *space);

/*
 * Map it in a space. If the map fails and a processor keeps the bytes, the log says so, and gnv_mem_release() frees nothing. Under
 * the memory's lock if other threads know it. Return: 0; as the map of the space; -EIO, with an error message, for -EOWNERDEAD.
 */
int gnv_mem_map(struct gpunvme_mem *mem, struct gnv_space *space, const struct gnv_log *log, uint64_t *iova);

/* The line for memory that could not be locked. */
void gnv_mem_log_unlocked(const struct gnv_log *log, size_t len);

#endif
