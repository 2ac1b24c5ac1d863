/* SPDX-License-Identifier: MIT */
/*
 * The files below a directory. Not by fts(3): that of glibc treats a directory that cannot be read to its end as complete
 * (fts_build()), so files would be missing without an error. It also has all names of a directory in memory at once.
 */
#include "os/linux/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/log.h"

#define PATH_ROOM 4096u /* limit of the kernel, with a NUL */

/* A folder that is still to be read, and its identity when it was found. */
struct folder {
	struct folder *next;
	dev_t dev;
	ino_t inode;
	char path[];
};

struct walk {
	gnv_os_walk_fn *fn;
	void *ctx;
	struct folder *first;
};

/* Names below a directory come from any user that may write there. */
static int refuse(const char *path, int err, const char *why)
{
	char text[256];

	return gnv_fail(-err, "%s: %s", gnv_plain(path, text), why ? why : strerror(err));
}

static int read_later(struct walk *w, const char *path, const struct stat *st)
{
	const size_t len = strlen(path) + 1;
	struct folder *f = malloc(sizeof(*f) + len);

	if (!f)
		return gnv_fail(-ENOMEM, "out of memory");
	f->next = w->first;
	f->dev = st->st_dev;
	f->inode = st->st_ino;
	memcpy(f->path, path, len);
	w->first = f;
	return 0;
}

static int visit(struct walk *w, int fd, const char *folder, const char *name)
{
	const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
	char path[PATH_ROOM];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s%s%s", folder, slash, name) >= (int)sizeof(path))
		return refuse(folder, ENAMETOOLONG, "below it is a path that has more than 4095 bytes");
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return refuse(path, errno, NULL);
	if (S_ISDIR(st.st_mode))
		return read_later(w, path, &st);
	return S_ISREG(st.st_mode) ? w->fn(w->ctx, path, st.st_dev, st.st_ino) : 0;
}

static int read_all(struct walk *w, DIR *d, const char *path)
{
	const struct dirent *e;
	int ret = 0;

	for (errno = 0; !ret && (e = readdir(d)); errno = 0)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			ret = visit(w, dirfd(d), path, e->d_name);
	return ret || !errno ? ret : refuse(path, errno, NULL);
}

/* A user with write access could have replaced it by a link or another directory, whose content was not requested. */
static int check_same(const struct folder *f, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return refuse(f->path, errno, NULL);
	if (st.st_dev == f->dev && st.st_ino == f->inode)
		return 0;
	return refuse(f->path, EBUSY, "it was replaced by another directory while it was looked at: try again");
}

/* @f: NULL: the first one, which a link may name */
static int read_folder(struct walk *w, const char *path, const struct folder *f)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (f ? O_NOFOLLOW : 0)), ret;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		ret = refuse(path, errno, NULL);
		if (fd >= 0)
			close(fd);
		return ret;
	}
	ret = f ? check_same(f, fd) : 0;
	if (!ret)
		ret = read_all(w, d, path);
	closedir(d);
	return ret;
}

static int walk(struct walk *w, const char *root)
{
	struct folder *f;
	int ret = read_folder(w, root, NULL);

	while ((f = w->first)) {
		w->first = f->next;
		if (!ret)
			ret = read_folder(w, f->path, f);
		free(f);
	}
	return ret;
}

int gnv_os_walk(const char *path, gnv_os_walk_fn *fn, void *ctx)
{
	struct walk w = { fn, ctx, NULL };
	size_t len = strlen(path);
	char root[PATH_ROOM];
	struct stat st;

	while (len > 1 && path[len - 1] == '/')
		len--;
	if (len >= sizeof(root))
		return refuse(path, ENAMETOOLONG, NULL);
	memcpy(root, path, len);
	root[len] = '\0';
	if (stat(root, &st))
		return refuse(root, errno, NULL);
	if (S_ISREG(st.st_mode))
		return fn(ctx, root, st.st_dev, st.st_ino);
	return S_ISDIR(st.st_mode) ? walk(&w, root) : refuse(root, EOPNOTSUPP, "it is no regular file and no directory");
}
