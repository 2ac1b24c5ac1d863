/* SPDX-License-Identifier: MIT */
/* Opening what a process that ends may still hold, without making fork() wait. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "os/linux/exclusive.h"
#include "os/linux/fork.h"

static void close_quietly(int fd)
{
	const int saved = errno;

	close(fd);
	errno = saved;
}

/*
 * A file system may respond late (NFS, FUSE), and fork() must not wait for that. So a file is opened without the lock, and
 * once more, by its descriptor, with it. A file that was opened exclusively cannot be opened twice.
 */
static int open_once(const char *path, int flags)
{
	const int first = flags & O_EXCL ? -1 : open(path, flags);
	char again[48];
	int fd;

	if (first < 0 && !(flags & O_EXCL))
		return first;
	gnv_fork_begin();
	gnv_fork_keep(first); /* a child that was waited for must not have it either */
	snprintf(again, sizeof(again), GNV_PROC "/self/fd/%d", first);
	gnv_fork_begin();
	fd = open(first < 0 ? path : again, flags);
	if (fd < 0 && first >= 0) /* there is no /proc */
		fd = open(path, flags);
	gnv_fork_keep(fd);
	if (first >= 0) {
		gnv_fork_forget(first);
		gnv_fork_keep(-1);
		close_quietly(first); /* without the lock: it may take long, too */
	}
	return fd;
}

int gnv_hold_open(const char *path, int flags, struct gnv_deadline *dying)
{
	int fd;

	do /* a FIFO that was put in the place of an image must not hang us */
		fd = open_once(path, flags | O_CLOEXEC | O_NONBLOCK);
	while (fd < 0 && errno == EBUSY && gnv_deadline_poll_again(dying));
	return fd;
}
