/* SPDX-License-Identifier: MIT */
/*
 * Many files of a mounted file system. No descriptor is kept, there may be a million of them: of each a sum of what tells of a
 * change is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/files.h"
#include "file/file_live.h"
#include "os/linux/extents.h"
#include "os/linux/fork.h"
#include "os/linux/lease.h"
#include "os/linux/walk.h"
#include "util/checked.h"
#include "util/process.h"

void gnv_files_live_end(struct gnv_files_live *live)
{
	if (!live)
		return;
	free(live->was);
	free(live);
}

/* ---- One file ---- */

/* What the kernel changes with a file: any change of an inode moves ctime. */
static uint64_t sum_of(const struct gnv_os_mapped *m)
{
	const uint64_t words[] = { m->inode, m->generation, m->bytes, (uint64_t)m->mtime, m->mtime_ns, (uint64_t)m->ctime, m->ctime_ns };

	return gnv_sum(words, sizeof(words));
}

static int add(void *ctx, uint64_t pos, uint64_t at, uint64_t len)
{
	return gnv_file_add(ctx, pos, at, len);
}

/* @text: what sentences may have of the path */
static int open_file(const char *path, const char *text)
{
	int fd = gnv_os_live_open(path);

	return fd < 0 ? gnv_fail(fd, "%s: %s", text, strerror(-fd)) : fd;
}

/* Extents as they are now, in bytes. *m: what it was before they were asked for. */
static int map(const char *path, const char *text, struct gpunvme_file *file, struct gnv_os_mapped *m)
{
	int fd = open_file(path, text), ret;

	if (fd < 0)
		return fd;
	ret = gnv_os_map_fd(fd, text, m, add, file);
	gnv_fork_close(fd);
	file->info.bytes = ret ? 0 : m->bytes;
	return ret;
}

/* ---- Opening ---- */

struct search {
	struct gnv_fill *fill;
	struct gnv_files_live *live;
};

static int found(void *ctx, const char *path, uint64_t dev, uint64_t inode)
{
	const struct search *s = ctx;
	const size_t len = strlen(path) + 1;
	char text[256], *name;
	int ret;

	if (!s->fill->files->info.files)
		s->live->dev = dev;
	if (dev != s->live->dev)
		return gnv_fail(-EXDEV, "%s is on another file system than the first file: make a table for each",
				gnv_plain(path, text));
	if (len > GNV_PATH_ROOM)
		return gnv_fail(-ENAMETOOLONG, "below a directory is a path that has more than 4095 bytes");
	ret = gnv_names_room(&s->fill->files->names, len, &name);
	if (ret)
		return ret;
	memcpy(name, path, len);
	return gnv_fill_name(s->fill, name, inode);
}

static int find_names(struct search *s, const char *const *paths, uint32_t count)
{
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++) {
		const uint32_t from = s->fill->files->info.files;

		if (!paths[i])
			return gnv_fail(-EINVAL, "gpunvme_files_live: path %u is NULL", i);
		ret = gnv_os_walk(paths[i], found, s);
		if (!ret)
			gnv_fill_sort(s->fill, from);
	}
	return ret;
}

static int replaced(const char *text)
{
	return gnv_fail(-EBUSY, "%s was replaced by another file while the table was made: try again", text);
}

/* Which file system a file is on; it may be one that is left out. */
static int find_fs(struct gpunvme_dev *dev, uint32_t nsid, const char *path, struct gnv_fill *fill)
{
	struct gnv_os_mapped m;
	char text[256];
	int fd = open_file(path, gnv_plain(path, text)), ret;

	if (fd < 0)
		return fd;
	ret = gnv_os_stat(fd, text, &m);
	gnv_fork_close(fd);
	if (!ret && m.dev != fill->files->live->dev) /* all others are there */
		ret = replaced(text);
	if (!ret)
		ret = gnv_live_find(dev, nsid, &m, &fill->r, &fill->super);
	return ret;
}

static int find_place(struct gpunvme_dev *dev, uint32_t nsid, struct gnv_fill *fill)
{
	int ret = fill->files->info.files ? find_fs(dev, nsid, fill->files->many[0].name, fill) : gnv_reader_open(dev, nsid, &fill->r);

	if (!ret)
		gnv_reader_close(&fill->r);
	return ret;
}

static int read_file(void *ctx, uint32_t number, const char *text, struct gpunvme_file *file)
{
	const struct search *s = ctx;
	const struct gnv_many *many = &s->fill->files->many[number];
	struct gnv_os_mapped m;
	int ret = map(many->name, text, file, &m);

	if (!ret)
		ret = gnv_live_check_data(&m, NULL);
	if (!ret && (m.inode != many->inode || m.dev != s->live->dev))
		ret = replaced(text);
	if (!ret)
		s->live->was[number] = sum_of(&m);
	return ret;
}

static int read_all(struct search *s)
{
	struct gnv_fill *fill = s->fill;
	int ret;

	s->live->was = calloc((size_t)fill->files->info.files + 1, sizeof(*s->live->was));
	/* quiet -Wanalyzer-malloc-leak: the table has what it is of, gpunvme_files_close() frees it */
	fill->scratch = s->live->was ? gnv_file_new() : NULL;
	ret = fill->scratch ? gnv_fill_all(fill, read_file, s) : gnv_fail(-ENOMEM, "out of memory");
	gpunvme_file_close(fill->scratch);
	s->live->place = fill->r;
	return ret;
}

static int make(struct gpunvme_dev *dev, const char *const *paths, uint32_t count, uint32_t nsid, struct gnv_fill *fill)
{
	struct search s = { fill, calloc(1, sizeof(*s.live)) };
	int ret;

	if (!s.live)
		return gnv_fail(-ENOMEM, "out of memory");
	fill->files->live = s.live;
	fill->files->names.max = GNV_NAMES_MOST;
	ret = find_names(&s, paths, count);
	if (!ret)
		ret = find_place(dev, nsid, fill);
	if (!ret)
		ret = read_all(&s);
	return ret;
}

GPUNVME_API int gpunvme_files_live(struct gpunvme_dev *dev, const char *const *paths, uint32_t count,
				   const struct gpunvme_files_opts *user, struct gpunvme_files **files)
{
	struct gpunvme_file_opts opts;
	struct gnv_fill fill;
	int ret;

	if (!dev || !paths || !count || !files)
		return gnv_fail(-EINVAL, "gpunvme_files_live: dev, paths and files must not be NULL, and count not 0");
	ret = gnv_files_begin(user, &opts, &fill);
	if (ret)
		return ret;
	ret = gnv_live_opts(&opts, "gpunvme_files_opts");
	if (!ret)
		ret = make(dev, paths, count, opts.nsid, &fill);
	return gnv_files_finish(&fill, ret, files);
}

/* ---- What has changed ---- */

static int changed(const char *text, const char *how)
{
	return gnv_fail(-ESTALE, "%s has changed: %s", text, how);
}

static int compare_inode(const struct gpunvme_files *files, uint32_t number, const char *text, const struct gnv_os_mapped *now)
{
	if (now->dev == files->live->dev && now->inode == files->many[number].inode && sum_of(now) == files->live->was[number])
		return 0;
	if (now->dev != files->live->dev || now->inode != files->many[number].inode)
		return changed(text, "another file has its name");
	if (now->bytes != files->entry[number].bytes)
		return gnv_fail(-ESTALE, "%s has changed: it had %llu bytes, and has %llu", text,
				(unsigned long long)files->entry[number].bytes, (unsigned long long)now->bytes);
	return changed(text, "it was written to, or its owner, mode, times, names or attributes are others");
}

static int compare_extents(const struct gpunvme_files *files, uint32_t number, const char *text, struct gpunvme_file *now)
{
	const struct gpunvme_dentry *was = &files->entry[number];
	int ret = gnv_file_seal(now, &files->live->place);

	if (ret || (now->extents == was->extents &&
		    (!was->extents || memcmp(now->extent, files->extent + was->first, was->extents * sizeof(*now->extent)) == 0)))
		return ret;
	return gnv_fail(-ESTALE, "%s has changed: its blocks lie elsewhere (%u extents, before %u)", text, now->extents, was->extents);
}

/* Was it changed while it was looked at? */
static int look_again(const struct gpunvme_files *files, uint32_t number, const char *text)
{
	struct gnv_os_mapped m;
	int fd = open_file(files->many[number].name, text), ret;

	if (fd < 0)
		return fd;
	ret = gnv_os_describe(fd, text, &m);
	gnv_fork_close(fd);
	if (ret)
		return ret;
	return compare_inode(files, number, text, &m);
}

static int compare(const struct gpunvme_files *files, uint32_t number, struct gpunvme_file *now)
{
	struct gnv_os_mapped m;
	char text[256];
	int ret;

	gnv_plain(files->many[number].name, text);
	ret = map(files->many[number].name, text, now, &m);
	if (!ret)
		ret = compare_inode(files, number, text, &m);
	if (!ret)
		ret = compare_extents(files, number, text, now);
	if (!ret)
		ret = look_again(files, number, text);
	if (ret == -ENOENT || ret == -ENOTDIR || ret == -ELOOP)
		return changed(text, "it was deleted, or has another name");
	if (ret == -EOPNOTSUPP || ret == -ENXIO) /* a directory, a socket, ... */
		return changed(text, "it is no file with blocks of its own any more");
	return ret == -EBUSY ? changed(text, "it is being written to") : ret;
}

static int compare_one(const struct gpunvme_files *files, uint32_t number)
{
	struct gpunvme_file *now = gnv_file_new();
	int ret = now ? compare(files, number, now) : -ENOMEM;

	gpunvme_file_close(now);
	return ret;
}

GPUNVME_API int gpunvme_files_check(const struct gpunvme_files *files, uint32_t first, uint32_t count)
{
	int ret = 0;

	if (!files || !files->live)
		return gnv_fail(-EINVAL, "gpunvme_files_check: the table must be one of gpunvme_files_live()");
	if (gnv_foreign(files->process))
		return -ECHILD;
	if (!gnv_within(first, count, files->info.files))
		return gnv_fail(-ENOENT, "there are no files %u to %llu: the table has %u", first, (unsigned long long)first + count,
				files->info.files);
	for (uint32_t i = first; i < first + count && !ret; i++)
		ret = compare_one(files, i);
	return ret;
}
