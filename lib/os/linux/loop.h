/* SPDX-License-Identifier: MIT */
/* Loop devices, which keep their file open without being a process or an exclusive user. */
#ifndef GNV_OS_LINUX_LOOP_H
#define GNV_OS_LINUX_LOOP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "os/linux/openers.h"

/*
 * gnv_loop_of() - a loop device that is made of a file or of a block device
 * @name: of it, "loop0"
 * The kernel shows every user the name of its file, and the identity to users that may open its node. Other users miss one whose
 * file has another name by now, or none. Not seen at all: one whose name another file system has meanwhile covered.
 */
bool gnv_loop_of(const char *sys, const struct gnv_opened *what, char *name, size_t size);

/* The kernel's name of the file of a loop device, from "loop/backing_file" in its folder of sysfs. Return: false it has none. */
bool gnv_loop_read_file(const char *path, char file[PATH_MAX + 1]);

/* Get the file of loop device @name, "loop0". Return: false if this user may not open it, or it has none. */
bool gnv_loop_identity(const char *name, struct gnv_opened *what);

#endif
