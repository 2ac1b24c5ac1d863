/* SPDX-License-Identifier: MIT */
/*
 * Memory objects: bytes with a CPU pointer, a lane address and, per address space, an IOVA.
 *
 * A kind of memory (host, VRAM, a foreign DMA-BUF, a device's BAR) is a `static const struct gnv_mem_ops` and one constructor.
 * Everything above works on struct gpunvme_mem. IOVAs and PRP lists belong to the mapping to a device (nvme/map.c), not here.
 */
#ifndef GNV_MEM_MEM_H
#define GNV_MEM_MEM_H

#include <gpunvme/mem.h>
#include <pthread.h>
#include <stdbool.h>

#include "util/log.h"

struct gnv_mapping; /* of this memory to one device; nvme/map.h */

struct gnv_mem_ops {
	const char *kind; /* for messages: "host", "registered", ... */
	/* Give the bytes back, not the object (gnv_mem_release() does both). Never NULL. */
	void (*release)(struct gpunvme_mem *mem);
};

struct gpunvme_mem {
	const struct gnv_mem_ops *ops;
	struct gpunvme_gpu *gpu; /* a counted reference, or NULL for the library's own */
	void *cpu;               /* NULL where the CPU cannot reach it */
	uint64_t lane;           /* address for the lanes of `gpu`; equals cpu for CPU lanes */
	size_t len;
	size_t page;     /* bytes of one page of the backing */
	int dmabuf;      /* descriptor of a DMA-BUF of the bytes, or -1; the kind that has one closes it */
	uint64_t dmabuf_offset; /* of the first byte in it */
	bool locked;     /* mlock succeeded */
	bool orphan;     /* freed by its owner while a device may still write to it; released with its last mapping */
	bool leaked;     /* a device that was closed may still write to it: the bytes are never given back */
	pthread_mutex_t lock; /* protects maps, orphan and leaked */
	struct gnv_mapping *maps;
};

/*
 * gnv_mem_host_alloc() - anonymous memory of this process, zeroed, locked where possible, MADV_DONTFORK
 * @flags: enum gpunvme_mem_flags
 * @log:   told when huge pages had to be given up; that locking failed is in mem->locked, for its owner to say once
 * Return: 0, -EINVAL, -ENOMEM.
 */
int gnv_mem_host_alloc(size_t len, uint32_t flags, const struct gnv_log *log, struct gpunvme_mem **mem);

/* gnv_mem_host_register() - wrap memory that the caller owns. Return: 0, -EINVAL, -EFAULT, -EOPNOTSUPP, -ENOMEM. */
int gnv_mem_host_register(void *ptr, size_t len, struct gpunvme_mem **mem);

/* Initialise the common part of a new object (zeroed by the caller); undone by gnv_mem_fini. */
void gnv_mem_init(struct gpunvme_mem *mem, const struct gnv_mem_ops *ops);
void gnv_mem_fini(struct gpunvme_mem *mem);

/* Bytes, object and its reference to the GPU; no device has it mapped. */
void gnv_mem_release(struct gpunvme_mem *mem);

/* The line for memory that could not be locked. */
void gnv_mem_log_unlocked(const struct gnv_log *log, size_t len);

#endif
