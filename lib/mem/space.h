/* SPDX-License-Identifier: MIT */
/*
 * Address spaces: each gives the DMA addresses of a controller their meaning. Several controllers may share one.
 *
 * An IOVA is chosen by the space, page aligned, contiguous for the whole memory. Every slot of the ops is filled. Spaces are
 * counted: every port that uses one holds a reference.
 */
#ifndef GNV_MEM_SPACE_H
#define GNV_MEM_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpunvme_mem;
struct gnv_space;

struct gnv_space_ops {
	const char *name;
	/*
	 * Map all of @mem for reads and writes by the device.
	 * Return: 0, -ENOMEM, -ENOSPC, -EFAULT, -EOPNOTSUPP, -ENODEV; -EOWNERDEAD it is not mapped, but a processor did not let go of
	 * the bytes: they must stay until the process ends. gnv_fail() has the error message. gnv_mem_map() calls this.
	 */
	int (*map)(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova);
	/*
	 * The device whose memory was mapped takes it away: DMA to it fails from now on. The addresses stay taken until the unmap.
	 */
	void (*cut)(struct gnv_space *space, uint64_t iova, size_t len);
	/*
	 * Undo map, once. Return: 0; -ENOENT no such mapping; -EBUSY the device is using it (nothing was changed); -EAGAIN, with an
	 * error message, the same for another reason; -EOWNERDEAD it is undone, but a GPU did not let go of the bytes: they must stay
	 * until the process ends. The error message says why.
	 */
	int (*unmap)(struct gnv_space *space, uint64_t iova, size_t len);
	/* The last reference went. No device uses it any more. */
	void (*close)(struct gnv_space *space);
};

struct gnv_space {
	const struct gnv_space_ops *ops;
	unsigned refs;  /* atomic */
	bool by_dmabuf; /* maps memory that has a DMA-BUF by it: a refusal of the exporter may move the memory */
	bool one_piece; /* maps only memory that is contiguous in physical memory: huge pages */
	bool by_fd;	/* maps only memory with a descriptor that another process can map (gpunvme_mem.fd) */
	bool copies;	/* maps also memory that only the runtime of a GPU reaches: the controller is software of this process */
	bool bare;	/* without an IOMMU: the device can access memory even after its unmap */
};

static inline struct gnv_space *gnv_space_get(struct gnv_space *space)
{
	__atomic_fetch_add(&space->refs, 1, __ATOMIC_RELAXED);
	return space;
}

static inline void gnv_space_put(struct gnv_space *space)
{
	if (!__atomic_sub_fetch(&space->refs, 1, __ATOMIC_ACQ_REL))
		space->ops->close(space);
}

#endif
