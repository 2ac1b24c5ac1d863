/* SPDX-License-Identifier: MIT */
/* Files, one or many: how they are opened, and closed. */
#include "file/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/file_live.h"
#include "file/partition.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

static struct gpunvme_file *set_new(void)
{
	struct gpunvme_file *set = calloc(1, sizeof(*set));

	if (!set) {
		gnv_fail(-ENOMEM, "out of memory");
		return NULL;
	}
	set->process = gnv_process();
	set->info.size = sizeof(set->info);
	gnv_shows_init(&set->shows);
	return set;
}

GPUNVME_API int gpunvme_file_close(struct gpunvme_file *file)
{
	int ret;

	if (!file)
		return 0;
	if (gnv_foreign(file->process))
		return -ECHILD;
	gnv_shows_end(&file->shows);
	gnv_names_free(&file->names);
	ret = gnv_live_end(file->live);
	free(file->bucket);
	free(file->name);
	free(file->extent);
	free(file->entry);
	free(file->many);
	free(file);
	return ret;
}

/* ---- The filled table ---- */

static void describe(struct gnv_fill *fill)
{
	struct gpunvme_file *set = fill->set;
	struct gpunvme_file_info *info = &set->info;

	for (uint32_t i = 0; i < info->files; i++)
		info->bytes += set->entry[i].bytes;
	info->extents = set->extents;
	info->writable = (fill->opts.flags & GPUNVME_FILE_WRITE) != 0;
	info->lba_size = fill->r.ns.info.lba_size;
	info->nsid = fill->r.ns.info.nsid;
	memcpy(info->uuid, fill->super.uuid, sizeof(info->uuid));
	if (fill->super.fs)
		memcpy(info->fs, fill->super.fs->name, sizeof(info->fs));
	set->device = fill->r.device;
}

static void weigh(struct gpunvme_file *set)
{
	struct gnv_part part[GNV_PARTS];

	gnv_file_parts(set, part);
	for (unsigned i = 0; i < GNV_PARTS; i++)
		set->info.gpu_bytes += gnv_align_up(part[i].len, GNV_PART_ALIGN);
	set->info.host_bytes = set->names.bytes + set->file_room * (sizeof(*set->many) + sizeof(*set->entry)) +
				  set->extent_room * sizeof(*set->extent) + part[GNV_PART_NAMES].len + part[GNV_PART_BUCKETS].len +
				  gnv_live_bytes(set);
}

/* The filled table becomes the caller's, or is freed. */
static int finish(struct gnv_fill *fill, int ret, struct gpunvme_file **out)
{
	if (!ret) {
		describe(fill);
		ret = gnv_names_index(fill->set);
	}
	if (ret) {
		gpunvme_file_close(fill->set);
		return ret;
	}
	weigh(fill->set);
	*out = fill->set;
	return 0;
}

/* ---- By name, on file systems that are not mounted ---- */

/* The depth of a path that ends with the name of @len bytes at @name after @depth others. Negative: above the root. */
static int deeper(int depth, const char *name, size_t len)
{
	if (!len || (len == 1 && name[0] == '.'))
		return depth;
	return len == 2 && name[0] == '.' && name[1] == '.' ? depth - 1 : depth + 1;
}

int gnv_path_check(const char *path)
{
	int depth = 0;
	size_t len;

	if (strlen(path) >= 4096)
		return gnv_fail(-ENAMETOOLONG, "the path has more than 4095 bytes");
	for (; *path && depth >= 0; path += len + (path[len] == '/')) {
		len = strcspn(path, "/");
		depth = deeper(depth, path, len);
	}
	return depth < 0 ? gnv_fail(-EINVAL, "the path leaves the root of the file system by \"..\"") : 0;
}

int gnv_fs_open(struct gpunvme_dev *dev, const struct gpunvme_file_opts *opts, struct gnv_reader *r, struct gnv_super *super)
{
	int ret = gnv_reader_open(dev, opts->nsid, r);

	if (ret)
		return ret;
	ret = opts->partition ? gnv_partition_select(r, opts->partition) : 0;
	if (!ret)
		ret = gnv_super_read(r, super);
	if (!ret && !super->fs->gather)
		ret = gnv_fail(-EOPNOTSUPP, super->fs == &gnv_fs_ext4
			       ? "this build of the library has no libext2fs: install it (libext2fs-dev) and build again"
			       : "a file on XFS or btrfs is found by its map only: mount it with -o ro (XFS: ro,norecovery), `gpunvme extents "
				 "FILE >map`, and open the text as GPUNVME_FILE_MAP");
	if (ret)
		gnv_reader_close(r);
	return ret;
}

static int fill_unmounted(struct gpunvme_dev *dev, const char *const *paths, uint32_t count, struct gnv_fill *fill)
{
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++)
		ret = gnv_path_check(paths[i]);
	if (!ret)
		ret = gnv_fs_open(dev, &fill->opts, &fill->r, &fill->super);
	if (ret)
		return ret;
	fill->scratch = gnv_extents_new();
	ret = fill->scratch ? fill->super.fs->gather(&fill->r, paths, count, fill) : -ENOMEM;
	gnv_extents_free(fill->scratch);
	gnv_reader_close(&fill->r);
	return ret;
}

GPUNVME_API int gpunvme_file_list_v(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *user,
				    struct gpunvme_dirent *to, uint32_t *count, size_t stride)
{
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	struct gnv_super super;
	struct gnv_list list;
	struct gnv_reader r;
	int ret;

	if (!dev || !path)
		return gnv_null("dev and path");
	ret = gnv_list_begin(&list, to, count, stride, "gpunvme_dirent");
	if (!ret)
		ret = gnv_opts_copy(&opts, user, gpunvme_file_opts);
	if (!ret && (opts.flags || opts.how))
		ret = gnv_fail(-EINVAL, "only file systems that are not mounted list directories: gpunvme_file_opts.flags and .how "
					"must be 0");
	if (!ret)
		ret = gnv_path_check(path);
	if (!ret)
		ret = gnv_fs_open(dev, &opts, &r, &super);
	if (ret)
		return ret;
	ret = super.fs->list(&r, path, &list);
	gnv_reader_close(&r);
	if (!ret)
		*count = list.count;
	return ret;
}

/* ---- All ways ---- */

static const struct {
	gnv_fill_fn *fill;
	bool partition; /* is not known otherwise */
	bool names;     /* has none of its own */
} ways[] = {
	[GPUNVME_FILE_UNMOUNTED] = { .fill = fill_unmounted, .partition = true },
	[GPUNVME_FILE_MAP] = { .fill = gnv_fill_maps, .names = true },
	[GPUNVME_FILE_MOUNTED] = { .fill = gnv_fill_mounted },
};

static int check_opts(const struct gpunvme_file_opts *opts, bool alone)
{
	const uint32_t flags = GPUNVME_FILE_WRITE | (alone ? 0 : GPUNVME_FILE_SKIP);

	if (opts->flags & ~flags)
		return gnv_fail(-EINVAL, "unknown file flags 0x%x. Valid are GPUNVME_FILE_WRITE, and for a set GPUNVME_FILE_SKIP",
				opts->flags);
	if (opts->how >= GNV_ARRAY_LEN(ways))
		return gnv_fail(-EINVAL, "gpunvme_file_opts.how is %u, no way to open files", opts->how);
	if (opts->partition && !ways[opts->how].partition)
		return gnv_fail(-EINVAL, "the partition is known from the map or mount: gpunvme_file_opts.partition must be 0");
	if (opts->names && !ways[opts->how].names)
		return gnv_fail(-EINVAL, "gpunvme_file_opts.names are for maps: paths are names");
	return 0;
}

static int open_all(struct gpunvme_dev *dev, const char *const *names, uint32_t count, const struct gpunvme_file_opts *user,
		    bool alone, struct gpunvme_file **file)
{
	struct gnv_fill fill = { .opts = GPUNVME_FILE_OPTS_INIT, .alone = alone, .extents_max = UINT64_MAX, .names_max = UINT64_MAX };
	int ret = gnv_opts_copy(&fill.opts, user, gpunvme_file_opts);

	if (!ret)
		ret = check_opts(&fill.opts, alone);
	if (ret)
		return ret;
	fill.set = set_new();
	if (!fill.set)
		return -ENOMEM;
	return finish(&fill, ways[fill.opts.how].fill(dev, names, count, &fill), file);
}

GPUNVME_API int gpunvme_file_open(struct gpunvme_dev *dev, const char *name, const struct gpunvme_file_opts *opts,
				  struct gpunvme_file **file)
{
	if (!dev || !name || !file)
		return gnv_null("dev, name and file");
	return open_all(dev, &name, 1, opts, true, file);
}

GPUNVME_API int gpunvme_file_open_set(struct gpunvme_dev *dev, const char *const *names, uint32_t count,
				      const struct gpunvme_file_opts *opts, struct gpunvme_file **file)
{
	if (!dev || !names || !count || !file)
		return gnv_fail(-EINVAL, "gpunvme_file_open_set: dev, names and file must not be NULL, and count not 0");
	for (uint32_t i = 0; i < count; i++)
		if (!names[i])
			return gnv_fail(-EINVAL, "gpunvme_file_open_set: name %u is NULL", i);
	return open_all(dev, names, count, opts, false, file);
}
