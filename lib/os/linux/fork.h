/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that keep a device or an image busy, which a child of fork() would keep open when its parent has closed them.
 * O_CLOEXEC is for exec() only; these are closed in the child by a handler of fork(). vfork() and posix_spawn() run none and
 * need none. A child made by clone() alone keeps them.
 */
#ifndef GNV_OS_LINUX_FORK_H
#define GNV_OS_LINUX_FORK_H

/*
 * gnv_fork_begin() - no fork() until gnv_fork_keep()
 * gnv_fork_keep() - the descriptor that was opened since is this process's alone. Returns it; a negative one and errno pass
 * gnv_fork_close() - close it
 * gnv_fork_forget() - no fork() until gnv_fork_keep(-1): somebody else closes it meanwhile
 */
void gnv_fork_begin(void);
int gnv_fork_keep(int fd);
void gnv_fork_close(int fd);
void gnv_fork_forget(int fd);

#endif
