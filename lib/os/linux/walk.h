/* SPDX-License-Identifier: MIT */
/* The files below a directory. */
#ifndef GNV_OS_LINUX_WALK_H
#define GNV_OS_LINUX_WALK_H

#include <stdint.h>

/*
 * Called for each regular file. @path, the given path without '/' at its end, or that with '/' and more, is valid for the call.
 * Return: 0, or another number to end the walk.
 */
typedef int gnv_os_walk_fn(void *ctx, const char *path, uint64_t dev, uint64_t inode);

/*
 * gnv_os_walk() - visit a regular file, which may be named by a symbolic link, or all of those below a directory, in any order
 * Symbolic links, devices and the like below it are skipped.
 * Return: 0; the result of @fn; -EOPNOTSUPP @path is neither; -EBUSY a directory was replaced meanwhile; -ENAMETOOLONG; -ENOMEM; an
 * errno of open(), readdir() and stat(). gnv_fail() has the message.
 */
int gnv_os_walk(const char *path, gnv_os_walk_fn *fn, void *ctx);

#endif
