/* SPDX-License-Identifier: MIT */
/*
 * The file systems that are known. Each is a `static const struct gnv_fs` in a file of its name and one line in fs.c. The data of a
 * superblock is untrusted.
 */
#ifndef GNV_FILE_FS_H
#define GNV_FILE_FS_H

#include <stdbool.h>

#include "file/extents.h"
#include "file/reader.h"
#include "util/opts.h"

struct gnv_fill;

/* These bytes hold every superblock: the first ones of a file system, then those from 64 KiB on, where btrfs has its own. */
#define GNV_FS_LATE 4096u
#define GNV_FS_LATE_AT 65536u
#define GNV_FS_HEAD (2 * GNV_FS_LATE)

struct gnv_fs {
	char name[8];
	uint64_t magic; /* by which statfs() knows it */
	uint32_t super; /* its superblock: where in the head, ... */
	uint32_t bytes; /* ... and how large */
	/* Is it that? Then *uuid is its UUID in the head. */
	bool (*known)(const uint8_t *head, const uint8_t **uuid);
	/*
	 * Is it as after an unmount, with no journal that waits and no errors? Return: 0, -EBUSY, -EUCLEAN; -EOPNOTSUPP it has
	 * features that maps do not show. NULL: the superblock does not show this, so its maps are not for writing.
	 */
	int (*check)(const uint8_t *head);
	/* Has it features with which blocks must not be written in place, or ones that are unknown? NULL: no. */
	bool (*frozen)(const uint8_t *head);
	/* As gpunvme_file_list(). The path is checked. NULL, as the next: files can only be mapped. */
	int (*list)(struct gnv_reader *r, const char *path, struct gnv_list *list);
	/* The files that have these names, and those below directories. Paths are checked. Return: as gpunvme_file_open_set(). */
	int (*gather)(struct gnv_reader *r, const char *const *paths, uint32_t count, struct gnv_fill *fill);
};

extern const struct gnv_fs gnv_fs_ext4, gnv_fs_xfs, gnv_fs_btrfs;

/* The data of a superblock. */
struct gnv_super {
	const struct gnv_fs *fs;
	uint8_t uuid[16];
	uint64_t sum; /* of all its bytes: any mount for writing changes some */
	bool frozen;  /* it has features with which blocks must not be written in place */
};

/* Of one that may be mounted. Return: 0; -EOPNOTSUPP no file system that is known. */
int gnv_super_parse(const uint8_t head[GNV_FS_HEAD], struct gnv_super *super);
/* Return: 0; -EOPNOTSUPP no file system that is known; -EBUSY it was not unmounted; -EUCLEAN it has noted errors. */
int gnv_super_of(const uint8_t head[GNV_FS_HEAD], struct gnv_super *super);
int gnv_super_read(struct gnv_reader *r, struct gnv_super *super);

/* By the number of statfs(). NULL: unknown. */
const struct gnv_fs *gnv_fs_by_magic(uint64_t magic);
const struct gnv_fs *gnv_fs_by_name(const char *name);

/* Why files on others cannot be used while they are mounted, in words. NULL: that is not known here. */
const char *gnv_fs_other(uint64_t magic);

/* The head of the reader's bytes, and of a block device, as it is on the drive. Bytes past its end are zeroes. */
int gnv_head_read(struct gnv_reader *r, uint8_t head[GNV_FS_HEAD]);
int gnv_head_of(const char *node, uint8_t head[GNV_FS_HEAD]);

/* Find the file system of a call, which can be read. Return: 0, then the reader is open; as gpunvme_file_open(). */
int gnv_fs_open(struct gpunvme_dev *dev, const struct gpunvme_file_opts *opts, struct gnv_reader *r, struct gnv_super *super);

/* FNV-1a, of 64 bits. */
uint64_t gnv_sum(const void *bytes, size_t len);

#endif
