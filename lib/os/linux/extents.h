/* SPDX-License-Identifier: MIT */
/* The extents of a file of a mounted file system (FIEMAP), and its block device. */
#ifndef GNV_OS_LINUX_EXTENTS_H
#define GNV_OS_LINUX_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gnv_os_mapped {
	uint64_t fs; /* f_type of statfs() */
	uint64_t dev; /* the block device. On btrfs gnv_os_map() sets it, and other calls set the file system's own number */
	uint64_t inode;
	uint64_t bytes;
	int64_t mtime, ctime;
	uint32_t mtime_ns, ctime_ns;
	uint32_t generation; /* 0: the file system does not say */
	uint32_t block;
	uint32_t links; /* names that it has */
	bool still; /* every mount was read-only before and after its extents were read */
	bool shared, verity, immutable, append;
	bool journaled; /* its data goes through a journal, by its own flag */
};

/* Called for each extent that is on the drive and was written, in order. Return: 0, or another number to stop. */
typedef int gnv_os_extent_fn(void *ctx, uint64_t pos, uint64_t at, uint64_t len);

/*
 * gnv_os_map() - sync a file and get its extents. Those of btrfs are translated by its chunks
 * Return: 0; the result of @fn; -EOPNOTSUPP no regular file, or its data has no place of its own; -EBUSY data is not allocated yet;
 * an errno of open(), fsync() or the ioctl. gnv_fail() has the message.
 */
int gnv_os_map(const char *path, struct gnv_os_mapped *mapped, gnv_os_extent_fn *fn, void *ctx);

/* The same of an open file, without `still` and without translation of btrfs addresses. */
int gnv_os_map_fd(int fd, const char *name, struct gnv_os_mapped *mapped, gnv_os_extent_fn *fn, void *ctx);

/* Facts of stat() and statfs() about a regular file, not about its data. Return: 0, -EOPNOTSUPP it is none; an errno of stat(). */
int gnv_os_stat(int fd, const char *name, struct gnv_os_mapped *mapped);

/*
 * gnv_os_describe() - get all but its extents
 * If the file was changed in this tick of the kernel's clock, wait for the next, so that later writes change its times. Return: as
 * gnv_os_map().
 */
int gnv_os_describe(int fd, const char *name, struct gnv_os_mapped *mapped);

/*
 * Is the file system on a block device mounted, and its superblock read-only, and XFS's without recovery? A mount can be read-only,
 * a bind mount above all, of a file system that others write to. @mountinfo: of /proc.
 */
bool gnv_os_stands_still(const char *mountinfo, uint64_t dev);

/*
 * The number of an open file's mount in /proc/self/mountinfo. The number of stat() differs if each subvolume (btrfs) or layer
 * (overlayfs) has its own. 0: it is not there. @proc: "/proc" but in tests.
 */
uint64_t gnv_os_mounted(const char *proc, int fd);

struct gnv_os_namespace {
	char node[64];	 /* the block device, "/dev/nvme0n1p2" */
	char serial[41]; /* of the drive, without white space */
	uint64_t first;	 /* where the block device begins in the namespace, in bytes */
	uint64_t bytes;	 /* and how many it has */
};

/* A block device: all but the serial number. Return: 0; -EOPNOTSUPP there is none of that number, or it is no disk's. */
int gnv_os_block(const char *sys, uint64_t dev, struct gnv_os_namespace *ns);

/* The namespace that a block device is, or is a partition of. Return: 0; -EOPNOTSUPP it is neither. */
int gnv_os_namespace(const char *sys, uint64_t dev, struct gnv_os_namespace *ns);

/* Does the ext4 on a block device write data through its journal (data=journal)? @proc: "/proc" but in tests. */
bool gnv_os_journals_data(const char *proc, const char *node);

/*
 * gnv_os_head() - read bytes of a block device from the drive. @at and @len are multiples of 4096
 * Bytes past its end read as zeroes. Return: 0, -EIO, an errno of open().
 */
int gnv_os_head(const char *node, uint64_t at, void *buf, size_t len);

#endif
