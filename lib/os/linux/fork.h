/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that keep a device or an image busy, which a child of fork() would keep open when its parent has closed them.
 * O_CLOEXEC is for exec() only. A handler of fork() closes these in the child. vfork() and posix_spawn() run no handler and
 * need none. A child made by clone() alone keeps them.
 */
#ifndef GNV_OS_LINUX_FORK_H
#define GNV_OS_LINUX_FORK_H

/*
 * gnv_fork_begin() - prevent fork() until gnv_fork_keep()
 * gnv_fork_keep() - make the descriptor that was opened since this process's alone, and return it. Negative ones and errno pass
 * gnv_fork_close() - close it
 * gnv_fork_forget() - prevent fork() until gnv_fork_keep(-1), while the caller closes it in another way
 */
void gnv_fork_begin(void);
int gnv_fork_keep(int fd);
void gnv_fork_close(int fd);
void gnv_fork_forget(int fd);

#endif
