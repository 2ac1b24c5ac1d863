/* SPDX-License-Identifier: MIT */
#include "os/linux/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "os/linux/openers.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/log.h"

#define MARK "trusted.gpunvme.lease" /* only root sets these: no owner passes an administrator's flag off as ours */
#define MARK_BYTES 128
#define DROP_MS 1000
#define CACHESTAT 451 /* its number on all architectures here. C libraries do not know it yet */
#define WINDOW (1ull << 30) /* of a file, for one check */

/* By /proc, from the descriptor of a path. */
static int open_again(int fd, int flags)
{
	char again[32];

	snprintf(again, sizeof(again), GNV_PROC "/self/fd/%d", fd);
	return open(again, flags);
}

/* Opening a device or a FIFO may have effects, finding it has none. Return: a descriptor for nothing else, or an errno. */
static int find_regular(const char *path)
{
	int fd = open(path, O_PATH | O_CLOEXEC), ret = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		ret = gnv_fail(-errno, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		ret = gnv_fail(-EOPNOTSUPP, "%s: it is no regular file", path);
	if (ret && fd >= 0)
		close(fd);
	return ret ? ret : fd;
}

/*
 * Opening may need I/O of a disk that this process serves, or of one whose server has died, and fork() must not wait for that. So
 * it is opened without the lock, and once more with it. The second descriptor, which no child has, gets leases and locks.
 */
int gnv_os_live_open(const char *path)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	int found = find_regular(path), first, fd = -1;

	if (found < 0)
		return found;
	first = open_again(found, flags);
	if (first >= 0) {
		gnv_fork_begin();
		gnv_fork_keep(first); /* a child that was waited for must not have it either */
		gnv_fork_begin();
		fd = gnv_fork_keep(open_again(first, flags));
	}
	if (fd < 0 && errno == ENOENT)
		fd = gnv_fail(-ENOENT, "%s: it is there, but " GNV_PROC "/self/fd is not, by which it is opened: mount " GNV_PROC, path);
	else if (fd < 0)
		fd = gnv_fail(-errno, "%s: %s", path, strerror(errno));
	if (first >= 0) {
		gnv_fork_forget(first);
		gnv_fork_keep(-1);
		close(first);
	}
	close(found);
	return fd;
}

/* ---- The flag ---- */

static int get_flags(int fd, int *flags)
{
	int word[2] = { 0 }, ret = ioctl(fd, FS_IOC_GETFLAGS, word) ? -errno : 0; /* as in name_inode() */

	*flags = word[0];
	return ret;
}

static int set_immutable(int fd, bool on)
{
	int word[2] = { 0 }, flags, ret = get_flags(fd, &flags);

	if (ret)
		return ret;
	word[0] = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
	return ioctl(fd, FS_IOC_SETFLAGS, word) ? -errno : 0;
}

/* The mark names its file: a copy has the mark, too (cp -a), and may also have a flag that an administrator set. */
static int name_inode(int fd, char text[MARK_BYTES / 2])
{
	int generation[2] = { 0 }; /* an int, and a long by its number: a file system in a process (FUSE) may write both */
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	ioctl(fd, FS_IOC_GETVERSION, generation); /* a file system without has inodes alone */
	snprintf(text, MARK_BYTES / 2, ", inode %llu, generation %u", (unsigned long long)st.st_ino, (unsigned)generation[0]);
	return 0;
}

/* Of whatever process, but of this file. */
static bool is_marked(int fd)
{
	char text[MARK_BYTES], inode[MARK_BYTES / 2];
	const ssize_t n = fgetxattr(fd, MARK, text, sizeof(text) - 1);
	const char *of;

	if (n < 0 || name_inode(fd, inode))
		return false;
	text[n] = 0;
	of = strchr(text, ',');
	return of && !strcmp(of, inode);
}

static int explain(int err, const char *name)
{
	if (err == -EPERM || err == -EACCES)
		return gnv_fail(-EACCES, "%s: only root leases files (CAP_LINUX_IMMUTABLE, CAP_SYS_ADMIN, CAP_LEASE)", name);
	if (err == -ENOTTY || err == -EOPNOTSUPP || err == -EINVAL)
		return gnv_fail(-EOPNOTSUPP, "%s: its file system or this kernel has no immutable flag, extended attributes or leases",
				name);
	return gnv_fail(err, "%s cannot be leased: %s", name, strerror(-err));
}

/* The mark comes first, so that each flag has one. *left: of a process that died, whose name no longer matters. */
static int fix(int fd, const char *name, bool *left)
{
	char text[MARK_BYTES], inode[MARK_BYTES / 2];
	int flags, ret = get_flags(fd, &flags);

	if (ret)
		return explain(ret, name);
	*left = flags & FS_IMMUTABLE_FL && is_marked(fd);
	if (*left)
		return 0;
	if (flags & FS_IMMUTABLE_FL)
		return gnv_fail(-EOPNOTSUPP, "%s is immutable, and no lease has made it so: chattr -i, if it may be written", name);
	ret = name_inode(fd, inode);
	if (ret)
		return explain(ret, name);
	snprintf(text, sizeof(text), "process %d%s", (int)getpid(), inode);
	if (fsetxattr(fd, MARK, text, strlen(text), 0))
		return explain(-errno, name);
	ret = set_immutable(fd, true);
	if (!ret)
		return 0;
	fremovexattr(fd, MARK);
	return explain(ret, name);
}

static int unfix(int fd, const char *name)
{
	int ret = set_immutable(fd, false);

	if (ret)
		return gnv_fail(ret, "%s stays immutable: %s. Clear that by chattr -i", name, strerror(-ret));
	fremovexattr(fd, MARK);
	return 0;
}

/* ---- Others ---- */

static int lock(int fd, const char *name)
{
	if (!flock(fd, LOCK_EX | LOCK_NB))
		return 0;
	if (errno == EWOULDBLOCK)
		return gnv_fail(-EBUSY, "%s is leased already, or locked (flock): one lease at a time", name);
	return gnv_fail(-errno, "%s: no lock: %s", name, strerror(errno));
}

static int written_by(int fd, const char *name)
{
	struct gnv_opened what = { .kind = GNV_OPENED_FILE };
	const struct gnv_openers_query query = { &what, 1, NULL, 0, GNV_OPENERS_WRITING };
	struct gnv_opener who;
	struct stat st;

	if (!fstat(fd, &st)) {
		what.dev = st.st_dev;
		what.ino = st.st_ino;
		if (gnv_openers_find(GNV_PROC, &query, &who, NULL))
			return gnv_fail(-EBUSY, "%s is open for writing by process %d (%s): close it there first", name, who.pid,
					who.command);
	}
	return gnv_fail(-EBUSY, "%s is open for writing, or mapped so: end that first", name);
}

/*
 * No program has it open for writing, and none can open it so any more: fs/locks.c, check_conflicting_open(). The signal of its end
 * (SIGIO) would end a process that does not expect it. The lease directs it to this process (lease_setup()), so until that is
 * undone the signal is one that is ignored.
 */
static int guard(int fd, const char *name)
{
	fcntl(fd, F_SETSIG, SIGURG);
	if (fcntl(fd, F_SETLEASE, F_RDLCK))
		return errno == EAGAIN ? written_by(fd, name) : explain(-errno, name);
	fcntl(fd, F_SETOWN, 0);
	return 0;
}

int gnv_os_leased(int fd, const char *name)
{
	int flags = 0;

	if (get_flags(fd, &flags) || !(flags & FS_IMMUTABLE_FL))
		return gnv_fail(-ESTALE, "%s: a process has cleared its immutable flag under the lease", name);
	if (fcntl(fd, F_GETLEASE) != F_RDLCK)
		return gnv_fail(-ESTALE, "%s: a process opens it for writing, or truncates it, under the lease", name);
	return 0;
}

/* ---- The kernel's cache ---- */

/* As mincore() sees it: not a page that is being read. PROT_NONE, so that a process which locks its memory reads nothing. */
static int is_in_core(int fd, uint64_t bytes, bool *cached)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *in = calloc(WINDOW / page, 1);
	int ret = in ? 0 : -ENOMEM;

	*cached = false;
	for (uint64_t at = 0; at < bytes && !ret && !*cached; at += WINDOW) {
		const size_t len = (size_t)gnv_min(WINDOW, bytes - at);
		void *map = mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, (off_t)at);

		if (map == MAP_FAILED || mincore(map, len, in))
			ret = -errno;
		for (size_t i = 0; i < (len + page - 1) / page && !ret && !*cached; i++)
			*cached = in[i] & 1;
		if (map != MAP_FAILED)
			munmap(map, len);
	}
	free(in);
	return ret;
}

/*
 * Whether a page of it is in memory, or about to be. A read under way may bring the data from before the threads' writes. Only
 * cachestat() counts such a page (mm/filemap.c, Linux 6.5), and its time does not depend on the size of the file.
 */
static int is_cached(int fd, uint64_t bytes, bool *cached)
{
	const uint64_t range[2] = { 0, 0 }; /* struct cachestat_range: all of it */
	uint64_t pages[5] = { 0 };	    /* struct cachestat, which begins with nr_cache */

	if (syscall(CACHESTAT, fd, range, pages, 0))
		return is_in_core(fd, bytes, cached);
	*cached = pages[0] != 0;
	return 0;
}

/* Mapped pages stay. A process that writes a part of one would write the old rest back. */
static int drop(int fd, const char *name)
{
	struct gnv_deadline deadline = gnv_deadline_in(DROP_MS);
	struct stat st;
	bool cached;
	int ret;

	if (fstat(fd, &st))
		return gnv_fail(-errno, "%s: %s", name, strerror(errno));
	do {
		ret = -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (!ret)
			ret = is_cached(fd, (uint64_t)st.st_size, &cached);
		if (ret)
			return gnv_fail(ret, "%s cannot be dropped from the kernel's cache: %s", name, strerror(-ret));
	} while (cached && gnv_deadline_poll_again(&deadline));
	if (cached)
		return gnv_fail(-EBUSY, "%s stays in the kernel's cache, because a process has it mapped or reads it: end that first", name);
	return 0;
}

/* ---- Both ends ---- */

static int sync_file(int fd, const char *name)
{
	return fsync(fd) ? gnv_fail(-errno, "%s cannot be flushed: %s", name, strerror(errno)) : 0;
}

void gnv_os_detach(int fd, bool left)
{
	if (!left) {
		set_immutable(fd, false);
		fremovexattr(fd, MARK);
	}
	fcntl(fd, F_SETLEASE, F_UNLCK);
	flock(fd, LOCK_UN);
}

int gnv_os_lease(int fd, const char *name, bool *left)
{
	int ret = lock(fd, name);

	if (ret)
		return ret;
	ret = guard(fd, name); /* processes that have it open for writing notice nothing */
	fcntl(fd, F_SETLEASE, F_UNLCK);
	if (!ret)
		ret = fix(fd, name, left);
	if (ret) {
		flock(fd, LOCK_UN);
		return ret;
	}
	ret = guard(fd, name);
	if (!ret)
		ret = sync_file(fd, name);
	if (ret)
		gnv_os_detach(fd, *left);
	return ret;
}

static int give_back(int fd, const char *name)
{
	const struct timespec times[2] = { { 0, UTIME_OMIT }, { 0, UTIME_NOW } };
	int ret = sync_file(fd, name);

	if (!ret)
		ret = drop(fd, name);
	if (!ret)
		ret = unfix(fd, name);
	if (!ret)
		futimens(fd, times); /* programs that copy by times must not miss the writes. A file system without times loses only that */
	return ret;
}

int gnv_os_unlease(int fd, const char *name)
{
	int ret = give_back(fd, name);

	if (ret)
		return ret;
	fcntl(fd, F_SETLEASE, F_UNLCK);
	flock(fd, LOCK_UN);
	return 0;
}

int gnv_os_unlease_left(const char *path)
{
	int fd = gnv_os_live_open(path), ret;

	if (fd < 0)
		return fd;
	ret = lock(fd, path);
	if (!ret && !is_marked(fd))
		ret = gnv_fail(-ENOENT, "%s: no lease has left anything there, or only root sees it", path);
	if (!ret)
		ret = give_back(fd, path);
	gnv_fork_close(fd);
	return ret;
}
