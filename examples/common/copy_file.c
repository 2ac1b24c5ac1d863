/* SPDX-License-Identifier: MIT */
#include "copy_file.h"
#include "progress.h"
#include "../front/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- Output ---- */

int copy_file_write(struct copy_file *f, const void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = write(f->fd, (const char *)buf + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

/*
 * A file without a name in the folder of the output. One with a name of its own where the file system knows no such thing, and
 * without /proc, by which it would get its name.
 */
static int open_part(struct copy_file *f)
{
	char *folder = access("/proc/self/fd", F_OK) == 0 ? strdup(f->target) : NULL;

	f->fd = folder ? open(dirname(folder), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
	free(folder);
	f->named = f->fd < 0;
	if (f->named)
		f->fd = open(f->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return f->fd < 0 ? failed("cannot create '%s': %s", f->path, strerror(errno)) : GO_ON;
}

/* Nothing is lost by what is written there: /dev/null and /dev/full (devices.txt of the kernel). */
static int is_sink(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && (st->st_rdev == makedev(1, 3) || st->st_rdev == makedev(1, 7));
}

static int open_node(struct copy_file *f, const struct stat *st)
{
	struct stat now;

	f->fd = open(f->path, O_WRONLY | O_CLOEXEC | O_NOCTTY | (S_ISBLK(st->st_mode) ? O_EXCL : 0));
	if (f->fd < 0 && errno == EBUSY)
		return failed("'%s' is in use (mounted, or held by another program): end that first", f->path);
	if (f->fd < 0)
		return failed("cannot open '%s': %s", f->path, strerror(errno));
	if (fstat(f->fd, &now) == 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino && now.st_rdev == st->st_rdev)
		return GO_ON;
	return failed("'%s' was replaced while it was being opened: try again", f->path);
}

/* A pipe takes what comes. A device holds somebody's data, or does something: only with --yes, and nobody else may have it. */
static int check_node(const struct copy_file *f, const struct stat *st)
{
	if (S_ISDIR(st->st_mode))
		return failed("'%s' is a directory: name a file", f->path);
	if (S_ISFIFO(st->st_mode) || is_sink(st) || f->o->yes)
		return GO_ON;
	return failed("'%s' is a %s, and no file: add --yes if it is to be overwritten", f->path,
		      S_ISBLK(st->st_mode) ? "block device" : S_ISCHR(st->st_mode) ? "character device" : "socket");
}

/* The file that would be replaced may be far from its symbolic link. */
static int refuse_to_replace(const struct copy_file *f)
{
	struct stat st;

	if (lstat(f->path, &st) == 0 && S_ISLNK(st.st_mode))
		return failed("'%s' is a symbolic link to '%s', which exists: add --force to replace that file", f->path, f->target);
	return failed("'%s' exists: add --force to replace it", f->path);
}

/* What there is under the name already: devices and pipes are written to, a file is replaced where its own name leads. */
static int open_existing(struct copy_file *f, const struct session *s, const struct stat *st)
{
	int ret;

	if (session_has(s, st))
		return failed("'%s' is the image itself: name another file", f->name);
	if (!f->path)
		return GO_ON;
	if (!S_ISREG(st->st_mode)) {
		ret = check_node(f, st);
		return ret == GO_ON ? open_node(f, st) : ret;
	}
	f->target = realpath(f->path, NULL);
	if (!f->target)
		return failed("cannot create '%s': %s", f->path, strerror(errno));
	return f->o->force ? GO_ON : refuse_to_replace(f);
}

/* The name is free, but a link that leads nowhere is not: its end is nobody's to guess. */
static int take_name(struct copy_file *f)
{
	struct stat st;

	if (lstat(f->path, &st) == 0)
		return failed("'%s' is a symbolic link, and what it leads to is not there: name the file itself", f->path);
	if (errno != ENOENT)
		return failed("cannot create '%s': %s", f->path, strerror(errno));
	f->target = strdup(f->path);
	return f->target ? GO_ON : failed("no memory for a name");
}

static int name_part(struct copy_file *f)
{
	const size_t room = strlen(f->target) + 64;

	f->part = malloc(room);
	if (!f->part || new_file_name_part(f->target, f->part, room))
		return failed("no memory for a name");
	return GO_ON;
}

int copy_file_create(struct copy_file *f, const struct session *s)
{
	struct stat st;
	int ret = GO_ON;

	f->fd = f->path ? -1 : STDOUT_FILENO;
	if ((f->path ? stat(f->path, &st) : fstat(f->fd, &st)) == 0)
		ret = open_existing(f, s, &st);
	else if (f->path)
		ret = take_name(f);
	if (ret != GO_ON || !f->target)
		return ret;
	ret = name_part(f);
	return ret == GO_ON ? open_part(f) : ret;
}

/* Gives the complete file its name, in one step. File systems that cannot refuse to replace (NFS) rely on open_existing(). */
static int publish(struct copy_file *f)
{
	char self[32];

	if (fsync(f->fd) < 0) /* NFS and quotas report errors only now. The file that exists stays */
		return failed("cannot write '%s': %s", f->path, strerror(errno));
	snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
	if (!f->named && linkat(AT_FDCWD, self, AT_FDCWD, f->part, AT_SYMLINK_FOLLOW) < 0)
		return failed("cannot create '%s': %s", f->part, strerror(errno));
	f->named = 1;
	if (renameat2(AT_FDCWD, f->part, AT_FDCWD, f->target, f->o->force ? 0 : RENAME_NOREPLACE) == 0 ||
	    (errno == EINVAL && rename(f->part, f->target) == 0))
		return GO_ON;
	return failed("cannot create '%s': %s", f->path, strerror(errno));
}

int copy_file_finish(struct copy_file *f, int ret)
{
	if (ret == GO_ON && f->part)
		ret = publish(f);
	if (f->path && f->fd >= 0 && close(f->fd) < 0 && ret == GO_ON)
		ret = failed("cannot write '%s': %s", f->path, strerror(errno));
	if (ret != GO_ON && f->named)
		unlink(f->part);
	free(f->part);
	free(f->target);
	return ret;
}

/* ---- Input ---- */

/* Waits for input, and looks meanwhile whether somebody has pressed Ctrl-C. */
static void await_input(int fd)
{
	struct pollfd input = { fd, POLLIN, 0 };

	while (!interrupted && poll(&input, 1, 200) == 0)
		;
}

ssize_t copy_file_read(struct copy_file *f, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n;

		await_input(f->fd);
		if (interrupted)
			break;
		n = read(f->fd, (char *)buf + done, len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int copy_file_open(struct copy_file *f, uint64_t *bytes, int *endless)
{
	struct stat st;

	f->fd = f->path ? open(f->path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (f->fd < 0 || fstat(f->fd, &st) < 0)
		return failed("cannot open '%s': %s", f->name, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return failed("'%s' is a directory: name a file", f->name);
	*endless = *bytes == UINT64_MAX;
	if (!f->path || !S_ISREG(st.st_mode))
		return GO_ON;
	if (st.st_size == 0)
		return failed("'%s' is empty: there is nothing to write", f->name);
	if (*bytes > (uint64_t)st.st_size)
		*bytes = (uint64_t)st.st_size;
	*endless = 0;
	return GO_ON;
}

int copy_file_check(const struct copy_file *f, const struct session *s)
{
	struct stat st;

	if (fstat(f->fd, &st) == 0 && session_has(s, &st))
		return failed("'%s' is the image itself: name another file", f->name);
	return GO_ON;
}

/* ---- Both ---- */

void copy_file_name(struct copy_file *f, const struct session_opts *opts, const char *path, const char *stream)
{
	*f = (struct copy_file){ .o = opts, .fd = -1 };
	f->path = path && strcmp(path, "-") != 0 ? path : NULL;
	f->name = f->path ? f->path : stream;
}

void copy_file_close(struct copy_file *f)
{
	if (f->path && f->fd >= 0)
		close(f->fd);
}
