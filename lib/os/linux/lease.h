/* SPDX-License-Identifier: MIT */
/*
 * Keeping a file as it is while somebody writes to its blocks past its file system. Three things of the kernel together:
 *
 *   the immutable flag   nobody opens it for writing, truncates, exchanges or removes it. Lasts until it is cleared
 *   a read lease         is given (F_SETLEASE) while nobody has it open or mapped for writing, and tells when the flag was
 *                        cleared and somebody opens it. Ends with the descriptor
 *   a lock               (flock), by which one holder knows of another, and that one has died. Ends with the descriptor
 *
 * An extended attribute says that the flag is ours, whose, and of which inode: in a copy it says nothing.
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
 * gnv_os_lease() - keep it, and what was written to it is on the drive
 * @fd:   of gnv_os_live_open()
 * @name: for sentences
 * @left: set: a process had left it so, that died, and it is taken over
 * All or nothing. Return: 0; -EBUSY another one keeps it, or has it open for
 * writing; -EACCES not root; -EOPNOTSUPP it is immutable otherwise, or its file system has not all that it takes; an errno.
 */
int gnv_os_lease(int fd, const char *name, bool *left);

/* Undone at once: nobody has written to it. What was taken over stays as it was left. */
void gnv_os_abandon(int fd, bool left);

/* Is it kept all the same? Return: 0, -ESTALE, gnv_fail() has the message. */
int gnv_os_leased(int fd, const char *name);

/*
 * gnv_os_unlease() - give it back: flushed, none of it in the kernel's cache, its time of change now
 * Return: 0; -EBUSY somebody has it mapped or reads it at this moment: it is kept on; an errno of fsync() or of clearing the flag.
 */
int gnv_os_unlease(int fd, const char *name);

/* The same for what a process has left that died. Return: also -ENOENT nobody has; -EBUSY the process lives. */
int gnv_os_unlease_left(const char *path);

#endif
