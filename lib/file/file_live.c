/* SPDX-License-Identifier: MIT */
/* Files of mounted file systems: what identifies them, whether they have changed, and the lease that keeps them unchanged. */
#include "file/file_live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/file_map.h"
#include "os/linux/fork.h"
#include "os/linux/lease.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/process.h"

/* ---- Where it lies ---- */

struct gnv_live *gnv_live_new(struct gpunvme_file *set)
{
	set->live = calloc(1, sizeof(*set->live));
	if (set->live)
		set->live->fd = -1;
	else
		gnv_fail(-ENOMEM, "out of memory");
	return set->live;
}

uint64_t gnv_live_bytes(const struct gpunvme_file *set)
{
	if (!set->live)
		return 0;
	return sizeof(*set->live) + (set->live->was ? set->info.files * sizeof(*set->live->was) : 0);
}

static int add(void *ctx, uint64_t pos, uint64_t at, uint64_t len)
{
	return gnv_extents_add(ctx, pos, at, len);
}

int gnv_live_map(int fd, const char *name, struct gnv_extents *file, struct gnv_os_mapped *m)
{
	int ret = gnv_os_map_fd(fd, name, m, add, file);

	file->info.bytes = ret ? 0 : m->bytes;
	return ret;
}

static void describe(struct gpunvme_file_info *info, const struct gnv_os_mapped *m)
{
	info->inode = m->inode;
	info->mtime = m->mtime;
	info->mtime_ns = m->mtime_ns;
	info->generation = m->generation;
	info->block = m->block;
}

/* ---- Changes ---- */

int gnv_live_changed(const char *name, const char *how)
{
	return gnv_fail(-ESTALE, "%s has changed: %s", name, how);
}

int gnv_live_changed_bytes(const char *name, uint64_t was, uint64_t now)
{
	return gnv_fail(-ESTALE, "%s has changed: it had %llu bytes, and has %llu", name, (unsigned long long)was,
			(unsigned long long)now);
}

int gnv_live_compare_extents(const struct gpunvme_file *set, uint32_t number, const char *name, struct gnv_extents *now)
{
	const struct gpunvme_dentry *was = &set->entry[number];
	int ret = gnv_extents_seal(now, &set->live->place);

	if (ret || (now->extents == was->extents &&
		    (!was->extents || memcmp(now->extent, set->extent + was->first, was->extents * sizeof(*now->extent)) == 0)))
		return ret;
	return gnv_fail(-ESTALE, "%s has changed: its blocks lie elsewhere (%u extents, before %u)", name, now->extents, was->extents);
}

static int compare_inode(const struct gnv_live *live, const struct gnv_os_mapped *now)
{
	const struct gnv_os_mapped *was = &live->mapped;

	if (!now->links && was->links)
		return gnv_live_changed(live->name, "it was deleted");
	if (now->bytes != was->bytes)
		return gnv_live_changed_bytes(live->name, was->bytes, now->bytes);
	if (now->mtime != was->mtime || now->mtime_ns != was->mtime_ns)
		return gnv_live_changed(live->name, "it was written to");
	return 0;
}

/* Any change of an inode moves this time, also one that sets the other time back. */
static int compare_ctime(const struct gnv_live *live, const struct gnv_os_mapped *now)
{
	if (now->ctime == live->mapped.ctime && now->ctime_ns == live->mapped.ctime_ns)
		return 0;
	return gnv_live_changed(live->name, "its owner, mode, times, names or attributes are others, and its data may be");
}

/* Compare the extents with those of now. *m has the file of now. */
static int compare_map(const struct gpunvme_file *file, struct gnv_os_mapped *m)
{
	const struct gnv_live *live = file->live;
	struct gnv_extents *now = gnv_extents_new();
	int ret = now ? gnv_live_map(live->fd, live->name, now, m) : -ENOMEM;

	if (ret == -EBUSY)
		ret = gnv_live_changed(live->name, "it is being written to");
	if (!ret)
		ret = compare_inode(live, m);
	if (!ret)
		ret = gnv_live_compare_extents(file, 0, live->name, now);
	gnv_extents_free(now);
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

static int check_one(const struct gpunvme_file *file)
{
	struct gnv_os_mapped m;
	int ret = file->live->leased ? gnv_os_leased(file->live->fd, file->live->name) : 0;

	if (!ret)
		ret = compare(file, &m);
	if (!ret)
		ret = check_sharing(file->live, &m);
	return ret;
}

GPUNVME_API int gpunvme_file_check(const struct gpunvme_file *file, uint32_t first, uint32_t count)
{
	int ret = 0;

	if (!file || !file->live)
		return gnv_fail(-EINVAL, "gpunvme_file_check: the file must have been opened with GPUNVME_FILE_MOUNTED");
	if (gnv_foreign(file->process))
		return -ECHILD;
	if (!gnv_within(first, count, file->info.files))
		return gnv_fail(-ENOENT, "there are no files %u to %llu: the table has %u", first, (unsigned long long)first + count,
				file->info.files);
	for (uint32_t i = first; i < first + count && !ret; i++)
		ret = file->live->fd < 0 ? gnv_live_check_set(file, i) : check_one(file);
	return ret;
}

/* ---- Opening ---- */

static int open_one(struct gpunvme_file *file, const char *path)
{
	struct gnv_live *live = gnv_live_new(file);

	if (!live)
		return -ENOMEM;
	live->name = strdup(path);
	/* quiet -Wanalyzer-malloc-leak: file->live has it, gnv_live_end() frees it */
	if (!live->name)
		return gnv_fail(-ENOMEM, "out of memory");
	live->fd = gnv_os_live_open(path);
	return live->fd < 0 ? live->fd : gnv_os_describe(live->fd, path, &live->mapped);
}

static int fill(struct gnv_fill *fill, struct gnv_live *live)
{
	int ret = gnv_live_map(live->fd, live->name, fill->scratch, &live->mapped);

	if (ret)
		return ret;
	describe(&fill->scratch->info, &live->mapped);
	ret = gnv_fill_copy(fill, live->name, live->mapped.inode);
	return ret ? ret : gnv_fill_set(fill, 0);
}

static int fill_one(struct gpunvme_dev *dev, const char *path, struct gnv_fill *f)
{
	int ret = open_one(f->set, path);

	if (!ret)
		ret = gnv_live_find(dev, f->opts.nsid, &f->set->live->mapped, &f->r, &f->super);
	if (ret)
		return ret;
	gnv_reader_close(&f->r);
	f->set->live->place = f->r;
	f->scratch = gnv_extents_new();
	ret = f->scratch ? fill(f, f->set->live) : -ENOMEM;
	gnv_extents_free(f->scratch);
	return ret;
}

int gnv_fill_mounted(struct gpunvme_dev *dev, const char *const *paths, uint32_t count, struct gnv_fill *fill)
{
	if (fill->opts.flags & GPUNVME_FILE_WRITE)
		return gnv_fail(-EINVAL, "a file of a mounted file system is written under a lease only: open it by gpunvme_file_open(), "
					 "without GPUNVME_FILE_WRITE, and call gpunvme_file_lease()");
	return fill->alone ? fill_one(dev, paths[0], fill) : gnv_fill_mounted_set(dev, paths, count, fill);
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
static int confirm_lease(const struct gpunvme_file *file, struct gnv_os_mapped *m)
{
	int ret = compare_map(file, m);

	if (!ret)
		ret = permit(file, m);
	if (!ret && gnv_os_leased(file->live->fd, file->live->name))
		ret = gnv_fail(-EBUSY, "%s is being opened for writing at this moment: try again", file->live->name);
	return ret;
}

/* One that was opened for itself, in this process. */
static int check_single(const struct gpunvme_file *file, const char *call)
{
	if (!file || !file->live || file->live->fd < 0)
		return gnv_fail(-EINVAL, "%s: the file must be one of gpunvme_file_open() with GPUNVME_FILE_MOUNTED", call);
	return gnv_foreign(file->process) ? -ECHILD : 0;
}

GPUNVME_API int gpunvme_file_lease(struct gpunvme_file *file)
{
	struct gnv_os_mapped m;
	struct gnv_live *live;
	bool left = false;
	int ret = check_single(file, "gpunvme_file_lease");

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
	ret = confirm_lease(file, &m);
	if (ret) {
		gnv_os_detach(live->fd, left);
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
	int ret = check_single(file, "gpunvme_file_unlease");

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
	if (broken) /* the file has changed, so views are old: gpunvme_file_check() still reports it */
		return 0;
	ret = gnv_os_describe(live->fd, live->name, &live->mapped);
	describe(&file->info, &live->mapped);
	return ret;
}

/* The file is closed, so the program cannot unlease it any more. */
static int leave_lease(const struct gnv_live *live, int ret)
{
	const struct gnv_message kept = gnv_message();

	return gnv_fail(ret, "%s. The lease is left: `gpunvme unlease %s` ends it", kept.text, live->name);
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
	free(live->was);
	free(live);
	return ret;
}

GPUNVME_API int gpunvme_file_lease_remove(const char *path)
{
	return path ? gnv_os_unlease_left(path) : gnv_null("path");
}
