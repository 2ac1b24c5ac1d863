/* SPDX-License-Identifier: MIT */
/*
 * Opening the file or block device of a software controller, and refusing what must not be written.
 */
#ifndef GNV_OS_LINUX_FILE_H
#define GNV_OS_LINUX_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "os/linux/exclusive.h"

struct gnv_os_file {
	int fd;
	uint64_t size; /* bytes */
	uint64_t dev;  /* identity: device and inode, or the number of a block device and 0 */
	uint64_t ino;
	uint32_t mem_align; /* that every piece of memory should have, where `direct`: a guess */
	uint32_t len_align; /* of every length and offset, where `direct` */
	bool direct;	    /* opened with O_DIRECT */
	uint32_t sector;    /* bytes of a block of a block device, or 0: a file, or not known */
	bool read_only;
	bool block;
	bool no_holes;	 /* its file system or device cannot punch holes, so deallocated blocks keep their data */
	bool overlay;	 /* on an overlay file system: no lock keeps away an opener of the same file in a layer below */
	int unlocked;	 /* errno with which the file system refused a lock, or 0: locked, or a block device */
	unsigned unseen; /* processes that may have it open and could not be checked */
	struct gnv_hold *others; /* of a block device: disks that are the same through other controllers */
	char unheld[GNV_USERS_TEXT]; /* one of them that could not be held, and why, or "" */
};

/*
 * gnv_os_file_open() - open an image
 * @block: bytes of one logical block: the size must be a multiple of it, and direct I/O is used when single blocks can be
 * @read_only: do not request write access. Without it an image that cannot be written is opened read-only
 *
 * A block device is claimed exclusively for as long as it is open, so it cannot be mounted meanwhile. So are the disks that are the
 * same through other controllers, if this user may open them. A regular file is locked: exclusively, or, read-only, together with
 * other readers. The lock belongs to the descriptor, so a second opener in this process is refused as in another one.
 * Return: 0; -EINVAL, -ENOENT, -EACCES, -EISDIR, -EBUSY (mounted or held, it or a partition of it; locked by another opener;
 * open for writing), or another errno of open(). gnv_fail() has the message.
 */
int gnv_os_file_open(const char *path, uint32_t block, bool read_only, struct gnv_os_file *file);
void gnv_os_file_close(struct gnv_os_file *file);

/* The identity of an open file or block device, as in struct gnv_os_file. Return: 0; an errno of fstat(). */
int gnv_os_file_id(int fd, uint64_t *dev, uint64_t *ino);

#endif
