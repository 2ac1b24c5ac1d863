/* SPDX-License-Identifier: MIT */
/* The files below a directory, by fts(3). */
#include "os/linux/walk.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/log.h"

/* Names below a directory are of whoever may write there. */
static int refuse(const char *path, int err, const char *why)
{
	char text[256];

	return gnv_fail(-err, "%s: %s", gnv_plain(path, text), why ? why : strerror(err));
}

/* fts(3) says of a link alone that it leads nowhere, and not why. */
static int lost(const FTSENT *e)
{
	struct stat st;

	return refuse(e->fts_path, stat(e->fts_path, &st) ? errno : ENOENT, NULL);
}

/* What stands on the way. @e->fts_path begins with the caller's path. */
static int visit(const FTSENT *e, gnv_os_walk_fn *fn, void *ctx)
{
	switch (e->fts_info) {
	case FTS_F:
		return fn(ctx, e->fts_path, e->fts_statp->st_dev, e->fts_statp->st_ino);
	case FTS_SLNONE:
		return e->fts_level ? 0 : lost(e);
	case FTS_DEFAULT:
		return e->fts_level ? 0 : refuse(e->fts_path, EOPNOTSUPP, "it is no regular file and no directory");
	case FTS_DC:
		return refuse(e->fts_path, ELOOP, "it leads back to a directory above it");
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return refuse(e->fts_path, e->fts_errno, NULL);
	default: /* directories, on the way down and up, and symbolic links */
		return 0;
	}
}

static int walk(char *path, gnv_os_walk_fn *fn, void *ctx)
{
	char *const roots[] = { path, NULL };
	/* The directory in which the process is belongs to all its threads: it stays. */
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
	const FTSENT *e;
	int ret = 0;

	if (!fts)
		return refuse(path, errno, NULL);
	for (errno = 0; !ret && (e = fts_read(fts)); errno = 0)
		ret = visit(e, fn, ctx);
	if (!ret && errno)
		ret = refuse(path, errno, NULL);
	fts_close(fts);
	return ret;
}

int gnv_os_walk(const char *path, gnv_os_walk_fn *fn, void *ctx)
{
	size_t len = strlen(path);
	char *root = strdup(path);
	int ret;

	if (!root)
		return gnv_fail(-ENOMEM, "out of memory");
	while (len > 1 && root[len - 1] == '/')
		root[--len] = '\0';
	ret = walk(root, fn, ctx);
	free(root);
	return ret;
}
