/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that another process passed to this one (unix(7), SCM_RIGHTS). They may be anything: the last close() of a TCP socket
 * with SO_LINGER, or of a file of FUSE, takes as long as that process likes. So does the close() of a socket in which such
 * descriptors still wait to be received.
 */
#ifndef GNV_OS_LINUX_PASSED_H
#define GNV_OS_LINUX_PASSED_H

#include <stdbool.h>

#define GNV_PASSED_AT_ONCE 253u /* the kernel's limit for a message (SCM_MAX_FD) */

/*
 * gnv_passed_close() - close descriptors that another process chose, without waiting
 * Memory of memfd_create() and eventfds are closed at once. A separate thread closes the others, without being waited for.
 * @fds: at most GNV_PASSED_AT_ONCE. -1 is skipped
 * Return: false when more than 64 such descriptors of this process have not been closed: their sender is hostile.
 */
bool gnv_passed_close(const int *fds, unsigned count);

/* Close a connection that was shut down, which may hold descriptors that were not received. Does not wait. */
void gnv_passed_close_socket(int fd);

/* In a child of fork(), which has none of the threads that close them. */
void gnv_passed_forget(void);

/* Do more than 64 descriptors wait to be closed? */
bool gnv_passed_too_many(void);

/* Is it an eventfd? Never waits, whatever it is. */
bool gnv_passed_is_event(int fd);

#endif
