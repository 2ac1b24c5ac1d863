/* SPDX-License-Identifier: MIT */
#include "os/linux/lower.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "os/linux/loop.h"
#include "os/linux/sysfs.h"
#include "util/log.h"

#define PATH_BYTES 512
#define NAME_BYTES 64
#define DEPTH 12u /* encryption over a volume over a pool over a RAID over loop devices has 5 */

struct walk {
	const char *sys;
	int (*each)(void *ctx, const struct gnv_lower *lower);
	void *ctx;
};

/* The end of the link that sysfs has for a block device is its name. The folder above is a partition's disk. */
static bool find_name(const char *path, bool above, char name[NAME_BYTES])
{
	char target[PATH_BYTES], *slash;
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n <= 0)
		return false;
	target[n] = 0;
	slash = strrchr(target, '/');
	if (slash && above) {
		*slash = 0;
		slash = strrchr(target, '/');
	}
	snprintf(name, NAME_BYTES, "%.60s", slash ? slash + 1 : target);
	return true;
}

static int unreadable(int err)
{
	return gnv_fail(err, "the parts of a block device cannot be read, so their users are unknown: %s", strerror(-err));
}

/* Return: 1, 0, a negative errno. */
static int is_partition(const char *folder)
{
	char path[PATH_BYTES], text[8];

	snprintf(path, sizeof(path), "%.400s/partition", folder);
	return gnv_sysfs_has(path, text, sizeof(text));
}

/* Return: 1; 0 it has gone; a negative errno. */
static int number_of(const char *sys, const char *name, uint64_t *dev)
{
	char path[PATH_BYTES], text[32];
	unsigned a, b;
	int ret;

	snprintf(path, sizeof(path), "%.300s/class/block/%.60s/dev", sys, name);
	ret = gnv_sysfs_has(path, text, sizeof(text));
	if (ret <= 0 || sscanf(text, "%u:%u", &a, &b) != 2)
		return ret < 0 ? ret : 0;
	*dev = makedev(a, b);
	return 1;
}

static int visit(const struct walk *walk, uint64_t dev, unsigned depth);

static int visit_name(const struct walk *walk, const char *name, unsigned depth)
{
	uint64_t dev;
	const int ret = number_of(walk->sys, name, &dev);

	if (ret < 0)
		return unreadable(ret);
	return ret ? visit(walk, dev, depth + 1) : 0;
}

static int visit_slaves(const struct walk *walk, const char *folder, unsigned depth)
{
	char path[PATH_BYTES], name[NAME_BYTES];
	int ret = 0, end = 0;

	snprintf(path, sizeof(path), "%.400s/slaves", folder);
	for (unsigned i = 0; !ret && !(end = gnv_sysfs_entry(path, "", i, name, sizeof(name))); i++)
		ret = visit_name(walk, name, depth);
	return gnv_sysfs_absent(end) ? ret : unreadable(end);
}

static int visit_loop(const struct walk *walk, const char *folder, unsigned depth)
{
	char path[PATH_BYTES], name[NAME_BYTES], file[PATH_MAX + 1];
	struct gnv_lower lower = { .loop = name, .path = file };
	int ret;

	snprintf(path, sizeof(path), "%.400s/loop/backing_file", folder);
	ret = gnv_loop_read_file(path, file);
	if (ret < 0)
		return unreadable(ret);
	if (!ret || !find_name(folder, false, name))
		return 0;
	lower.err = -gnv_loop_identity(name, &lower.what);
	if (lower.err == ENXIO) /* it has been detached */
		return 0;
	ret = walk->each(walk->ctx, &lower);
	if (ret || lower.err || lower.what.kind != GNV_OPENED_BLOCK)
		return ret;
	return visit(walk, lower.what.dev, depth + 1);
}

static int visit(const struct walk *walk, uint64_t dev, unsigned depth)
{
	char folder[PATH_BYTES], name[NAME_BYTES];
	int ret;

	if (depth > DEPTH)
		return unreadable(-ELOOP);
	snprintf(folder, sizeof(folder), "%.300s/dev/block/%u:%u", walk->sys, major(dev), minor(dev));
	ret = is_partition(folder);
	if (ret < 0)
		return unreadable(ret);
	if (ret)
		return find_name(folder, true, name) ? visit_name(walk, name, depth) : 0;
	ret = visit_loop(walk, folder, depth);
	if (ret)
		return ret;
	return visit_slaves(walk, folder, depth);
}

int gnv_lower_each(const char *sys, uint64_t dev, int (*each)(void *ctx, const struct gnv_lower *lower), void *ctx)
{
	const struct walk walk = { sys, each, ctx };

	return visit(&walk, dev, 0);
}

static bool is_lower(const struct gnv_lower *lower, int fd)
{
	struct statx st;

	return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &st) && gnv_opened_is(&lower->what, &st);
}

/* A file system may be slow to find it (NFS), so this is without the lock of fork(). */
int gnv_lower_find(const struct gnv_lower *lower, struct gnv_lower_found *found)
{
	found->fd = open(lower->path, O_PATH | O_CLOEXEC);
	if (found->fd < 0)
		return -errno;
	gnv_fork_begin();
	gnv_fork_keep(found->fd);
	snprintf(found->path, sizeof(found->path), GNV_PROC "/self/fd/%d", found->fd);
	if (is_lower(lower, found->fd))
		return 0;
	gnv_lower_drop(found);
	return -ENOENT;
}

void gnv_lower_drop(const struct gnv_lower_found *found)
{
	gnv_fork_close(found->fd);
}
