/* SPDX-License-Identifier: MIT */
/*
 * Many files of a mounted file system. There may be a million of them, so no descriptor is kept. Each has a sum that shows changes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/file_live.h"
#include "os/linux/extents.h"
#include "os/linux/fork.h"
#include "os/linux/lease.h"
#include "os/linux/walk.h"

/* ---- One file ---- */

/* The fields that the kernel changes with a file. Any change of an inode moves ctime. */
static uint64_t sum_of(const struct gnv_os_mapped *m)
{
	const uint64_t words[] = { m->inode, m->generation, m->bytes, (uint64_t)m->mtime, m->mtime_ns, (uint64_t)m->ctime, m->ctime_ns };

	return gnv_sum(words, sizeof(words));
}

/* @text: the path, as messages may have it */
static int open_file(const char *path, const char *text)
{
	int fd = gnv_os_live_open(path);

	return fd < 0 ? gnv_fail(fd, "%s: %s", text, strerror(-fd)) : fd;
}

/* Present extents, in bytes. *m: the file before they were read. */
static int map(const char *path, const char *text, struct gnv_extents *file, struct gnv_os_mapped *m)
{
	int fd = open_file(path, text), ret;

	if (fd < 0)
		return fd;
	ret = gnv_live_map(fd, text, file, m);
	gnv_fork_close(fd);
	return ret;
}

/* ---- Opening ---- */

struct search {
	struct gnv_fill *fill;
	struct gnv_live *live;
};

static int found(void *ctx, const char *path, uint64_t dev, uint64_t inode)
{
	const struct search *s = ctx;
	char text[256];

	if (!s->fill->set->info.files)
		s->live->dev = dev;
	if (dev != s->live->dev)
		return gnv_fail(-EXDEV, "%s is on another file system than the first file: make a table for each",
				gnv_plain(path, text));
	if (strlen(path) >= GNV_PATH_ROOM)
		return gnv_fail(-ENAMETOOLONG, "below a directory is a path that has more than 4095 bytes");
	return gnv_fill_copy(s->fill, path, inode);
}

static int find_names(struct search *s, const char *const *paths, uint32_t count)
{
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++) {
		const uint32_t from = s->fill->set->info.files;

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

/* Find the file system of a file. The file may be one that is left out. */
static int find_fs(struct gpunvme_dev *dev, uint32_t nsid, const char *path, struct gnv_fill *fill)
{
	struct gnv_os_mapped m;
	char text[256];
	int fd = open_file(path, gnv_plain(path, text)), ret;

	if (fd < 0)
		return fd;
	ret = gnv_os_stat(fd, text, &m);
	gnv_fork_close(fd);
	if (!ret && m.dev != fill->set->live->dev) /* all others are there */
		ret = replaced(text);
	if (!ret)
		ret = gnv_live_find(dev, nsid, &m, &fill->r, &fill->super);
	return ret;
}

static int find_place(struct gpunvme_dev *dev, uint32_t nsid, struct gnv_fill *fill)
{
	int ret = fill->set->info.files ? find_fs(dev, nsid, fill->set->many[0].name, fill) : gnv_reader_open(dev, nsid, &fill->r);

	if (!ret)
		gnv_reader_close(&fill->r);
	return ret;
}

static int read_file(void *ctx, uint32_t number, const char *text, struct gnv_extents *file)
{
	const struct search *s = ctx;
	const struct gnv_many *many = &s->fill->set->many[number];
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

	s->live->was = calloc((size_t)fill->set->info.files + 1, sizeof(*s->live->was));
	/* quiet -Wanalyzer-malloc-leak: the table has it, gpunvme_file_close() frees it */
	fill->scratch = s->live->was ? gnv_extents_new() : NULL;
	ret = fill->scratch ? gnv_fill_all(fill, read_file, s) : gnv_fail(-ENOMEM, "out of memory");
	gnv_extents_free(fill->scratch);
	s->live->place = fill->r;
	return ret;
}

int gnv_fill_mounted_set(struct gpunvme_dev *dev, const char *const *paths, uint32_t count, struct gnv_fill *fill)
{
	struct search s = { fill, gnv_live_new(fill->set) };
	int ret;

	if (!s.live)
		return -ENOMEM;
	fill->set->names.max = GNV_NAMES_MOST;
	ret = find_names(&s, paths, count);
	if (!ret)
		ret = find_place(dev, fill->opts.nsid, fill);
	if (!ret)
		ret = read_all(&s);
	return ret;
}

/* ---- Changes ---- */

static int compare_inode(const struct gpunvme_file *set, uint32_t number, const char *text, const struct gnv_os_mapped *now)
{
	if (now->dev == set->live->dev && now->inode == set->many[number].inode && sum_of(now) == set->live->was[number])
		return 0;
	if (now->dev != set->live->dev || now->inode != set->many[number].inode)
		return gnv_live_changed(text, "another file has its name");
	if (now->bytes != set->entry[number].bytes)
		return gnv_live_changed_bytes(text, set->entry[number].bytes, now->bytes);
	return gnv_live_changed(text, "it was written to, or its owner, mode, times, names or attributes are others");
}

/* Was it changed while it was looked at? */
static int look_again(const struct gpunvme_file *set, uint32_t number, const char *text)
{
	struct gnv_os_mapped m;
	int fd = open_file(set->many[number].name, text), ret;

	if (fd < 0)
		return fd;
	ret = gnv_os_describe(fd, text, &m);
	gnv_fork_close(fd);
	if (ret)
		return ret;
	return compare_inode(set, number, text, &m);
}

static int compare(const struct gpunvme_file *set, uint32_t number, struct gnv_extents *now)
{
	struct gnv_os_mapped m;
	char text[256];
	int ret;

	gnv_plain(set->many[number].name, text);
	ret = map(set->many[number].name, text, now, &m);
	if (!ret)
		ret = compare_inode(set, number, text, &m);
	if (!ret)
		ret = gnv_live_compare_extents(set, number, text, now);
	if (!ret)
		ret = look_again(set, number, text);
	if (ret == -ENOENT || ret == -ENOTDIR || ret == -ELOOP)
		return gnv_live_changed(text, "it was deleted, or has another name");
	if (ret == -EOPNOTSUPP || ret == -ENXIO) /* a directory, a socket, ... */
		return gnv_live_changed(text, "it is no file with blocks of its own any more");
	return ret == -EBUSY ? gnv_live_changed(text, "it is being written to") : ret;
}

int gnv_live_check_set(const struct gpunvme_file *set, uint32_t number)
{
	struct gnv_extents *now = gnv_extents_new();
	int ret = now ? compare(set, number, now) : -ENOMEM;

	gnv_extents_free(now);
	return ret;
}
