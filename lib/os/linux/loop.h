/* SPDX-License-Identifier: MIT */
/* Loop devices, which keep their file open without being a process or an exclusive user. */
#ifndef GNV_OS_LINUX_LOOP_H
#define GNV_OS_LINUX_LOOP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "os/linux/openers.h"

/*
 * gnv_loop_find() - find a loop device that is made of a file or of a block device
 * @name: of it, "loop0"
 * The kernel shows every user the name of its file, and the identity to users that may open its node. Other users miss one whose
 * file has another name by now, or none. Not seen at all: one whose name another file system has meanwhile covered.
 * Return: 1; 0 there is none; a negative errno: sysfs or a loop device cannot be read.
 */
int gnv_loop_find(const char *sys, const struct gnv_opened *what, char *name, size_t size);

/* Is one found? */
bool gnv_loop_of(const char *sys, const struct gnv_opened *what, char *name, size_t size);

/*
 * The kernel's name of the file of a loop device, from "loop/backing_file" in its folder of sysfs.
 * Return: 1; 0 it has none; a negative errno.
 */
int gnv_loop_read_file(const char *path, char file[PATH_MAX + 1]);

/* Get the file of loop device @name, "loop0". Return: 0; -ENXIO it has none; -ENOENT its node is another's; an errno of open(). */
int gnv_loop_identity(const char *name, struct gnv_opened *what);

#endif
