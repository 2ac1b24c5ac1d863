/* SPDX-License-Identifier: MIT */
/* The files below a directory, by fts(3). */
#include "os/linux/walk.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/log.h"

/* What stands on the way. @e->fts_path begins with the caller's path. */
static int visit(const FTSENT *e, gnv_os_walk_fn *fn, void *ctx)
{
	switch (e->fts_info) {
	case FTS_F:
		return fn(ctx, e->fts_path, e->fts_statp->st_dev, e->fts_statp->st_ino);
	case FTS_SLNONE:
		return e->fts_level ? 0 : gnv_fail(-ENOENT, "%s: %s", e->fts_path, strerror(ENOENT));
	case FTS_DEFAULT:
		return e->fts_level ? 0 : gnv_fail(-EOPNOTSUPP, "%s: it is no regular file and no directory", e->fts_path);
	case FTS_DC:
		return gnv_fail(-ELOOP, "%s: it leads back to a directory above it", e->fts_path);
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return gnv_fail(-e->fts_errno, "%s: %s", e->fts_path, strerror(e->fts_errno));
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
		return gnv_fail(-errno, "%s: %s", path, strerror(errno));
	for (errno = 0; !ret && (e = fts_read(fts)); errno = 0)
		ret = visit(e, fn, ctx);
	if (!ret && errno)
		ret = gnv_fail(-errno, "%s: %s", path, strerror(errno));
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
