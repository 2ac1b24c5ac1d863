/* SPDX-License-Identifier: MIT */
/* Files of mounted file systems: what they are, whether they still are that, and keeping them so. */
#include "file/file_live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/fs.h"
#include "file/file_map.h"
#include "os/linux/fork.h"
#include "os/linux/lease.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/process.h"

/* ---- Where it lies ---- */

static int add(void *ctx, uint64_t pos, uint64_t at, uint64_t len)
{
	return gnv_file_add(ctx, pos, at, len);
}

/* Extents as they are now. */
static int map(const struct gnv_live *live, struct gpunvme_file *file, struct gnv_os_mapped *m)
{
	int ret = gnv_os_map_fd(live->fd, live->name, m, add, file);

	file->info.bytes = ret ? 0 : m->bytes;
	if (ret)
		return ret;
	return gnv_file_seal(file, &live->place);
}

static void describe(struct gpunvme_file *file, const struct gnv_os_mapped *m)
{
	file->info.inode = m->inode;
	file->info.mtime = m->mtime;
	file->info.mtime_ns = m->mtime_ns;
	file->info.generation = m->generation;
	file->info.block = m->block;
}

/* ---- What has changed ---- */

static int changed(const struct gnv_live *live, const char *how)
{
	return gnv_fail(-ESTALE, "%s has changed: %s", live->name, how);
}

static int compare_inode(const struct gnv_live *live, const struct gnv_os_mapped *now)
{
	const struct gnv_os_mapped *was = &live->mapped;

	if (!now->links && was->links)
		return changed(live, "it was deleted");
	if (now->bytes != was->bytes)
		return gnv_fail(-ESTALE, "%s has changed: it had %llu bytes, and has %llu", live->name,
				(unsigned long long)was->bytes, (unsigned long long)now->bytes);
	if (now->mtime != was->mtime || now->mtime_ns != was->mtime_ns)
		return changed(live, "it was written to");
	return 0;
}

/* Any change of an inode moves this time, also what sets the other one back. */
static int compare_ctime(const struct gnv_live *live, const struct gnv_os_mapped *now)
{
	if (now->ctime == live->mapped.ctime && now->ctime_ns == live->mapped.ctime_ns)
		return 0;
	return changed(live, "its owner, mode, times, names or attributes are others, and its data may be");
}

static int compare_extents(const struct gnv_live *live, const struct gpunvme_file *was, const struct gpunvme_file *now)
{
	if (was->extents == now->extents &&
	    (!was->extents || memcmp(was->extent, now->extent, was->extents * sizeof(*was->extent)) == 0))
		return 0;
	return gnv_fail(-ESTALE, "%s has changed: its blocks lie elsewhere (%u extents, before %u)", live->name, now->extents,
			was->extents);
}

/* Where it lies now is compared; *m is as it is. */
static int compare_map(const struct gpunvme_file *file, struct gnv_os_mapped *m)
{
	struct gpunvme_file *now = gnv_file_new();
	int ret = now ? map(file->live, now, m) : -ENOMEM;

	if (ret == -EBUSY)
		ret = changed(file->live, "it is being written to");
	if (!ret)
		ret = compare_inode(file->live, m);
	if (!ret)
		ret = compare_extents(file->live, file, now);
	gpunvme_file_close(now);
	return ret;
}

static int compare(const struct gpunvme_file *file, struct gnv_os_mapped *m)
{
	const struct gnv_live *live = file->live;
	int ret = gnv_os_describe(live->fd, live->name, m);

	if (!ret)
		ret = compare_inode(live, m);
	if (!ret)
		ret = compare_ctime(live, m);
	if (!ret)
		ret = compare_map(file, m);
	if (!ret)
		ret = compare_ctime(live, m);
	return ret;
}

static int check_sharing(const struct gnv_live *live, const struct gnv_os_mapped *m)
{
	if (!live->leased || !m->shared)
		return 0;
	return gnv_fail(-ESTALE, "%s was copied by reflink under the lease: the copy has the blocks that kernels write to",
			live->name);
}

/* A file that was opened by gpunvme_file_live(), in this process. */
static int check_live(const struct gpunvme_file *file, const char *call)
{
	if (!file || !file->live)
		return gnv_fail(-EINVAL, "%s: the file must be one of gpunvme_file_live()", call);
	return gnv_foreign(file->process) ? -ECHILD : 0;
}

GPUNVME_API int gpunvme_file_check(const struct gpunvme_file *file)
{
	struct gnv_os_mapped m;
	int ret = check_live(file, "gpunvme_file_check");

	if (!ret && file->live->leased)
		ret = gnv_os_leased(file->live->fd, file->live->name);
	if (!ret)
		ret = compare(file, &m);
	if (!ret)
		ret = check_sharing(file->live, &m);
	return ret;
}

/* ---- Opening ---- */

static int open_live(struct gpunvme_file *file, const char *path)
{
	struct gnv_live *live = calloc(1, sizeof(*live));

	if (!live)
		return gnv_fail(-ENOMEM, "out of memory");
	file->live = live;
	live->fd = -1;
	live->name = strdup(path);
	if (!live->name)
		return gnv_fail(-ENOMEM, "out of memory");
	live->fd = gnv_os_live_open(path);
	/* quiet -Wanalyzer-malloc-leak: file->live has it, gnv_live_end() frees it */
	return live->fd < 0 ? live->fd : gnv_os_describe(live->fd, path, &live->mapped);
}

static int find(struct gpunvme_file *file, struct gpunvme_dev *dev, uint32_t nsid)
{
	struct gnv_live *live = file->live;
	struct gnv_super super;
	struct gnv_reader r;
	int ret = gnv_live_find(dev, nsid, &live->mapped, &r, &super);

	if (ret)
		return ret;
	memcpy(file->info.fs, super.fs->name, sizeof(file->info.fs));
	memcpy(file->info.uuid, super.uuid, sizeof(super.uuid));
	gnv_map_freeze(file, &super);
	gnv_reader_close(&r);
	live->place = r;
	ret = map(live, file, &live->mapped);
	if (!ret)
		describe(file, &live->mapped);
	return ret;
}

int gnv_live_opts(const struct gpunvme_file_opts *opts, const char *what)
{
	if (opts->flags & GPUNVME_FILE_WRITE)
		return gnv_fail(-EINVAL,
				"a file of a mounted file system is written under a lease only: open it by gpunvme_file_live(), "
				"without GPUNVME_FILE_WRITE, and call gpunvme_file_lease()");
	if (opts->partition)
		return gnv_fail(-EINVAL, "which partition it is, is known from the mount: %s.partition must be 0", what);
	return 0;
}

GPUNVME_API int gpunvme_file_live(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *user,
				  struct gpunvme_file **out)
{
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	struct gpunvme_file *file;
	int ret;

	if (!dev || !path || !out)
		return gnv_null("dev, path and file");
	ret = gnv_file_opts(&opts, user);
	if (!ret)
		ret = gnv_live_opts(&opts, "gpunvme_file_opts");
	if (ret)
		return ret;
	file = gnv_file_new();
	if (!file)
		return -ENOMEM;
	ret = open_live(file, path);
	if (!ret)
		ret = find(file, dev, opts.nsid);
	if (ret)
		gpunvme_file_close(file);
	else
		*out = file;
	return ret;
}

/* ---- The lease ---- */

static const char *unwritable(const struct gpunvme_file *file, const struct gnv_os_mapped *m)
{
	if (file->unwritable)
		return file->unwritable;
	return gnv_map_reason(m->shared ? "shared" : m->verity ? "verity" : m->append ? "immutable" : "ok");
}

static int permit(const struct gpunvme_file *file, const struct gnv_os_mapped *m)
{
	const char *why = unwritable(file, m);

	if (why)
		return gnv_fail(-EOPNOTSUPP, "%s cannot be written in place: %s", file->live->name, why);
	if (file->live->place.ns.info.read_only)
		return gnv_fail(-EROFS, "namespace %u cannot be written: it is write protected, or the device was opened read-only",
				file->info.nsid);
	return 0;
}

/* From now on nobody changes the file, not even a process that opened it with the right to after the flag was set. */
static int settle(const struct gpunvme_file *file, struct gnv_os_mapped *m)
{
	int ret = compare_map(file, m);

	if (!ret)
		ret = permit(file, m);
	if (!ret && gnv_os_leased(file->live->fd, file->live->name))
		ret = gnv_fail(-EBUSY, "%s is being opened for writing at this moment: try again", file->live->name);
	return ret;
}

GPUNVME_API int gpunvme_file_lease(struct gpunvme_file *file)
{
	struct gnv_os_mapped m;
	struct gnv_live *live;
	bool left = false;
	int ret = check_live(file, "gpunvme_file_lease");

	if (ret)
		return ret;
	live = file->live;
	if (live->leased)
		return gnv_fail(-EBUSY, "%s is leased already", live->name);
	ret = compare(file, &m); /* before anything is done to it */
	if (!ret)
		ret = permit(file, &m);
	if (!ret)
		ret = gnv_os_lease(live->fd, live->name, &left);
	if (ret)
		return ret;
	ret = settle(file, &m);
	if (ret) {
		gnv_os_abandon(live->fd, left);
		return ret;
	}
	live->mapped = m;
	live->leased = true;
	file->info.writable = 1;
	return 0;
}

GPUNVME_API int gpunvme_file_unlease(struct gpunvme_file *file)
{
	struct gnv_os_mapped m;
	struct gnv_live *live;
	bool broken;
	int ret = check_live(file, "gpunvme_file_unlease");

	if (ret)
		return ret;
	live = file->live;
	if (!live->leased)
		return gnv_fail(-EINVAL, "%s is not leased", live->name);
	broken = gnv_os_leased(live->fd, live->name) || compare(file, &m);
	ret = gnv_os_unlease(live->fd, live->name);
	if (ret)
		return ret;
	live->leased = false;
	file->info.writable = 0;
	if (broken) /* what it is now is not what views have: gpunvme_file_check() goes on to tell */
		return 0;
	ret = gnv_os_describe(live->fd, live->name, &live->mapped);
	describe(file, &live->mapped);
	return ret;
}

/* The file is closed, so the program cannot unlease it any more. */
static int leave_lease(const struct gnv_live *live, int ret)
{
	const struct gnv_message kept = gnv_message();

	return gnv_fail(ret, "%s; the lease is left: `gpunvme unlease %s` ends it", kept.text, live->name);
}

int gnv_live_end(struct gnv_live *live)
{
	int ret = 0;

	if (!live)
		return 0;
	if (live->leased)
		ret = gnv_os_unlease(live->fd, live->name);
	if (ret)
		ret = leave_lease(live, ret);
	if (live->fd >= 0)
		gnv_fork_close(live->fd);
	free(live->name);
	free(live);
	return ret;
}
