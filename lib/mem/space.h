/* SPDX-License-Identifier: MIT */
/*
 * Address spaces: what a controller's DMA addresses mean. One space may serve several controllers.
 *
 * An IOVA is chosen by the space, page aligned, contiguous for the whole memory. Every slot of the ops is filled.
 */
#ifndef GNV_MEM_SPACE_H
#define GNV_MEM_SPACE_H

#include <stddef.h>
#include <stdint.h>

struct gpunvme_mem;
struct gnv_space;

struct gnv_space_ops {
	const char *name;
	/*
	 * Map all of @mem for reads and writes by the device.
	 * Return: 0, -ENOMEM, -ENOSPC, -EFAULT, -EOPNOTSUPP, -ENODEV; gnv_fail() has the sentence.
	 */
	int (*map)(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova);
	/* Undo map. Return: 0; -ENOENT no such mapping; -EBUSY the device is using it (nothing was changed). */
	int (*unmap)(struct gnv_space *space, uint64_t iova, size_t len);
	/* Drop the space; no device uses it any more. */
	void (*close)(struct gnv_space *space);
};

struct gnv_space {
	const struct gnv_space_ops *ops;
};

#endif
