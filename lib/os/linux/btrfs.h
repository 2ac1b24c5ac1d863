/* SPDX-License-Identifier: MIT */
/*
 * The addresses of a file on btrfs (FIEMAP) are in a space of the file system, which is divided into chunks. The tree of chunks has
 * the place of each chunk on a device. Root may read it.
 */
#ifndef GNV_OS_LINUX_BTRFS_H
#define GNV_OS_LINUX_BTRFS_H

#include "os/linux/extents.h"

struct gnv_btrfs_chunk {
	uint64_t first, bytes; /* in the space of the file system */
	uint64_t at;	       /* on the device: of the first copy */
	bool whole;	       /* it lies there in one piece */
};

struct gnv_btrfs {
	const char *path;
	gnv_os_extent_fn *fn; /* called with bytes of the device */
	void *ctx;
	uint64_t dev; /* the block device that all of it lies on */
	struct gnv_btrfs_chunk *chunk; /* in ascending order */
	size_t chunks, room;
	uint8_t uuid[16]; /* of that device, as its chunks have it, ... */
	bool named;	  /* ... if one has */
};

/*
 * gnv_btrfs_open() - find the device and the chunks of a file's file system
 * @sys: "/sys" but in tests
 * @b:   set on success. path, fn and ctx belong to the caller
 * Return: 0; -EOPNOTSUPP it lies on several devices; -EACCES not root; -EUCLEAN its chunks make no sense; -ENOMEM; of the ioctls.
 */
int gnv_btrfs_open(const char *sys, int fd, const char *path, gnv_os_extent_fn *fn, void *ctx, struct gnv_btrfs *b);
void gnv_btrfs_close(struct gnv_btrfs *b);

/*
 * gnv_btrfs_extent() - pass one extent of FIEMAP on, as one extent for each chunk. A gnv_os_extent_fn, whose context is the struct
 * gnv_btrfs
 * Return: 0; the result of b->fn; -EOPNOTSUPP it is striped; -EUCLEAN no chunk has it.
 */
int gnv_btrfs_extent(void *b, uint64_t pos, uint64_t at, uint64_t len);

#endif
