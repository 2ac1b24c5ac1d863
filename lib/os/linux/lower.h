/* SPDX-License-Identifier: MIT */
/*
 * The parts of block devices: the file or the device of a loop device, the disk of a partition, the devices of a device mapper
 * target or of a RAID. A loop device keeps its file open, but takes no lock on it and no exclusive open.
 */
#ifndef GNV_OS_LINUX_LOWER_H
#define GNV_OS_LINUX_LOWER_H

#include "os/linux/openers.h"

/* A loop device and its file. */
struct gnv_lower {
	const char *loop;	/* its name, "loop0" */
	const char *path;	/* the kernel's name of the file or device, which is wrong after a rename */
	struct gnv_opened what; /* its identity, if it is known */
	int err;		/* errno, if the node of the loop device could not be opened to ask for it */
};

/*
 * gnv_lower_each() - call a function for each loop device in a block device
 * @dev:  the number of the block device
 * @each: returns 0 to go on
 * Return: the last result of @each; 0: there are none; -ELOOP too many layers, another errno: sysfs cannot be read, and gnv_fail()
 * has the message.
 */
int gnv_lower_each(const char *sys, uint64_t dev, int (*each)(void *ctx, const struct gnv_lower *lower), void *ctx);

struct gnv_lower_found {
	int fd; /* opened with O_PATH, which has no effect on the file */
	char path[32]; /* opens the file of `fd`, whatever has its name by then */
};

/*
 * gnv_lower_find() - find the file or device of a loop device by its path
 * Another file may have that name by now. It must not be opened, because opening can have an effect: so the file is found first,
 * compared, and then opened by found->path, which needs /proc. Then gnv_lower_drop().
 * Return: 0; -ENOENT: the path names another file, or none; another errno of open().
 */
int gnv_lower_find(const struct gnv_lower *lower, struct gnv_lower_found *found);
void gnv_lower_drop(const struct gnv_lower_found *found);

#endif
