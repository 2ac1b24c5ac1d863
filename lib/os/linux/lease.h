/* SPDX-License-Identifier: MIT */
/*
 * Keep a file unchanged while threads write to its blocks without its file system. Three features of the kernel together:
 *
 *   the immutable flag   it cannot be opened for writing, truncated, exchanged or removed. Lasts until it is cleared
 *   a read lease         is granted (F_SETLEASE) while it is not open or mapped for writing, and reports an open after the flag was
 *                        cleared. Ends with the descriptor
 *   a lock               (flock), by which one holder knows of another, and that the other has died. Ends with the descriptor
 *
 * An extended attribute marks the flag as ours, with its process and its inode: in a copy it is invalid.
 */
#ifndef GNV_OS_LINUX_LEASE_H
#define GNV_OS_LINUX_LEASE_H

#include <stdbool.h>

/*
 * gnv_os_live_open() - a file of a mounted file system, for reading
 * Closed by gnv_fork_close(). Return: a descriptor; -EOPNOTSUPP it is no regular file, and was not opened; an errno of open().
 * gnv_fail() has the message.
 */
int gnv_os_live_open(const char *path);

/*
 * gnv_os_lease() - keep it. Earlier writes to it are on the drive
 * @fd:   of gnv_os_live_open()
 * @name: for messages
 * @left: set if a process had left it so and died, and it is taken over
 * All or nothing. Return: 0; -EBUSY another process keeps it, or has it open for
 * writing; -EACCES not root; -EOPNOTSUPP it is immutable otherwise, or its file system lacks a feature; an errno.
 */
int gnv_os_lease(int fd, const char *name, bool *left);

/* Undo it at once, before any write. A file that was taken over stays as it was left. */
void gnv_os_detach(int fd, bool left);

/* Is it kept all the same? Return: 0, -ESTALE, gnv_fail() has the message. */
int gnv_os_leased(int fd, const char *name);

/*
 * gnv_os_unlease() - give it back: flushed, none of it in the kernel's cache, its time of change now
 * Return: 0; -EBUSY somebody has it mapped or reads it at this moment: it is kept on; an errno of fsync() or of clearing the flag.
 */
int gnv_os_unlease(int fd, const char *name);

/* The same for a file that a dead process has left. Return: also -ENOENT there is none; -EBUSY the process lives. */
int gnv_os_unlease_left(const char *path);

#endif
