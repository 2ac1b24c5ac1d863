/* SPDX-License-Identifier: MIT */
/* Many files: how they are opened, and what the table tells. */
#include "file/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/file_map.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

static struct gpunvme_files *files_new(void)
{
	struct gpunvme_files *files = calloc(1, sizeof(*files));

	if (!files) {
		gnv_fail(-ENOMEM, "out of memory");
		return NULL;
	}
	files->process = gnv_process();
	files->info.size = sizeof(files->info);
	gnv_shows_init(&files->shows);
	return files;
}

GPUNVME_API int gpunvme_files_close(struct gpunvme_files *files)
{
	if (!files)
		return 0;
	if (gnv_foreign(files->process))
		return -ECHILD;
	gnv_shows_end(&files->shows);
	gnv_names_free(&files->names);
	gnv_files_live_end(files->live);
	free(files->bucket);
	free(files->name);
	free(files->extent);
	free(files->entry);
	free(files->many);
	free(files);
	return 0;
}

int gnv_files_begin(const struct gpunvme_files_opts *user, struct gpunvme_file_opts *opts, struct gnv_fill *fill)
{
	struct gpunvme_files_opts known = GPUNVME_FILES_OPTS_INIT;
	int ret = gnv_opts_copy(&known, user, gpunvme_files_opts);

	if (!ret && (known.flags & ~(uint32_t)(GPUNVME_FILES_WRITE | GPUNVME_FILES_SKIP) || known.reserved))
		ret = gnv_fail(-EINVAL, "unknown flags of files 0x%x; valid: GPUNVME_FILES_WRITE, GPUNVME_FILES_SKIP", known.flags);
	if (ret)
		return ret;
	*opts = (struct gpunvme_file_opts){ sizeof(*opts), known.flags & GPUNVME_FILES_WRITE, known.nsid, known.partition, 0 };
	*fill = (struct gnv_fill){ .opts = known, .extents_max = UINT64_MAX, .names_max = UINT64_MAX };
	fill->files = files_new();
	return fill->files ? 0 : -ENOMEM;
}

static void describe(struct gnv_fill *fill)
{
	struct gpunvme_files *files = fill->files;
	struct gpunvme_files_info *info = &files->info;

	for (uint32_t i = 0; i < info->files; i++)
		info->bytes += files->entry[i].bytes;
	info->extents = files->extents;
	info->writable = (fill->opts.flags & GPUNVME_FILES_WRITE) != 0;
	info->lba_size = fill->r.ns.info.lba_size;
	info->nsid = fill->r.ns.info.nsid;
	memcpy(info->uuid, fill->super.uuid, sizeof(info->uuid));
	if (fill->super.fs)
		memcpy(info->fs, fill->super.fs->name, sizeof(info->fs));
	files->device = fill->r.device;
}

enum { ENTRIES, EXTENTS, NAMES, BUCKETS, PARTS };

static void parts_of(const struct gpunvme_files *files, struct gnv_part part[PARTS])
{
	const size_t buckets = files->named ? (size_t)(1ull << (64 - files->bucket_shift)) + 1 : 0;

	part[ENTRIES] = (struct gnv_part){ files->entry, files->info.files * sizeof(*files->entry) };
	part[EXTENTS] = (struct gnv_part){ files->extent, files->extents * sizeof(*files->extent) };
	part[NAMES] = (struct gnv_part){ files->name, files->named * sizeof(*files->name) };
	part[BUCKETS] = (struct gnv_part){ files->bucket, buckets * sizeof(*files->bucket) };
}

static void weigh(struct gpunvme_files *files)
{
	struct gnv_part part[PARTS];

	parts_of(files, part);
	for (unsigned i = 0; i < PARTS; i++)
		files->info.lane_bytes += gnv_align_up(part[i].len, GNV_PART_ALIGN);
	files->info.host_bytes = files->names.bytes + files->file_room * (sizeof(*files->many) + sizeof(*files->entry)) +
				  files->extent_room * sizeof(*files->extent) + part[NAMES].len + part[BUCKETS].len +
				  (files->live ? sizeof(*files->live) + files->info.files * sizeof(*files->live->was) : 0);
}

int gnv_files_finish(struct gnv_fill *fill, int ret, struct gpunvme_files **files)
{
	if (!ret) {
		describe(fill);
		ret = gnv_names_index(fill->files);
	}
	if (ret) {
		gpunvme_files_close(fill->files);
		return ret;
	}
	weigh(fill->files);
	*files = fill->files;
	return 0;
}

/* ---- By name ---- */

static int check_paths(const char *const *paths, uint32_t count)
{
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++)
		ret = paths[i] ? gnv_path_check(paths[i]) : gnv_fail(-EINVAL, "gpunvme_files_open: path %u is NULL", i);
	return ret;
}

static int gather(struct gpunvme_dev *dev, const char *const *paths, uint32_t count, const struct gpunvme_file_opts *opts,
		  struct gnv_fill *fill, struct gpunvme_files **files)
{
	int ret = gnv_fs_open(dev, opts, &fill->r, &fill->super);

	if (ret) {
		gpunvme_files_close(fill->files);
		return ret;
	}
	fill->scratch = gnv_file_new();
	ret = fill->scratch ? fill->super.fs->gather(&fill->r, paths, count, fill) : -ENOMEM;
	gpunvme_file_close(fill->scratch);
	gnv_reader_close(&fill->r);
	return gnv_files_finish(fill, ret, files);
}

GPUNVME_API int gpunvme_files_open(struct gpunvme_dev *dev, const char *const *paths, uint32_t count,
				   const struct gpunvme_files_opts *user, struct gpunvme_files **files)
{
	struct gpunvme_file_opts opts;
	struct gnv_fill fill;
	int ret;

	if (!dev || !paths || !count || !files)
		return gnv_fail(-EINVAL, "gpunvme_files_open: dev, paths and files must not be NULL, and count not 0");
	ret = check_paths(paths, count);
	if (!ret)
		ret = gnv_files_begin(user, &opts, &fill);
	if (!ret)
		ret = gather(dev, paths, count, &opts, &fill, files);
	return ret;
}

/* ---- By maps ---- */

static int set_name(struct gnv_fill *fill, const char *name, uint64_t inode)
{
	const size_t len = name ? strlen(name) + 1 : 0;
	char *copy = NULL;
	int ret = name ? gnv_names_room(&fill->files->names, len, &copy) : 0;

	if (ret)
		return ret;
	if (copy)
		memcpy(copy, name, len);
	return gnv_fill_name(fill, copy, inode);
}

/* The first map says which file system it is. */
static int check_same(struct gnv_fill *fill, const struct gnv_map *map, uint64_t *first)
{
	if (!fill->super.fs) {
		fill->super = map->super;
		*first = fill->r.first;
	}
	if (*first == fill->r.first && memcmp(fill->super.uuid, map->super.uuid, sizeof(map->super.uuid)) == 0)
		return 0;
	return gnv_fail(-EINVAL, "it is of another file system than the first: make a table for each");
}

static int map_one(struct gnv_fill *fill, const char *text, const char *name, const struct gpunvme_file_opts *opts, uint64_t *first)
{
	struct gnv_reader *r = &fill->r;
	const uint32_t number = fill->files->info.files;
	struct gnv_map map = { .file = NULL }; /* that features forbid to write is known of the drive only, and said by gnv_map_check() */
	int ret = gnv_map_read(text, &map);

	if (ret)
		return ret;
	r->first = 0;
	r->bytes = r->ns.info.nblocks * r->ns.info.lba_size;
	ret = gnv_map_check(r, &map, opts);
	if (!ret)
		ret = check_same(fill, &map, first);
	if (!ret)
		ret = set_name(fill, name, map.file->info.inode);
	fill->scratch = map.file;
	if (!ret)
		ret = gnv_fill_set(fill, number);
	gpunvme_file_close(map.file);
	return ret;
}

static int map_all(struct gnv_fill *fill, const char *const *texts, const char *const *names, uint32_t count,
		   const struct gpunvme_file_opts *opts)
{
	uint64_t first = 0;
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++) {
		if (!texts[i] || (names && !names[i]))
			return gnv_fail(-EINVAL, "gpunvme_files_map: map %u, or its name, is NULL", i);
		ret = map_one(fill, texts[i], names ? names[i] : NULL, opts, &first);
		if (ret && !fill->ended)
			gnv_fail(ret, "map %u: %s", i, gpunvme_errmsg());
	}
	return ret;
}

GPUNVME_API int gpunvme_files_map(struct gpunvme_dev *dev, const char *const *texts, const char *const *names, uint32_t count,
				  const struct gpunvme_files_opts *user, struct gpunvme_files **files)
{
	struct gpunvme_file_opts opts;
	struct gnv_fill fill;
	int ret;

	if (!dev || !texts || !count || !files)
		return gnv_fail(-EINVAL, "gpunvme_files_map: dev, texts and files must not be NULL, and count not 0");
	if (user && user->partition)
		return gnv_fail(-EINVAL, "a map knows its partition: gpunvme_files_opts.partition must be 0");
	ret = gnv_files_begin(user, &opts, &fill);
	if (ret)
		return ret;
	ret = gnv_reader_open(dev, opts.nsid, &fill.r);
	if (ret) {
		gpunvme_files_close(fill.files);
		return ret;
	}
	ret = map_all(&fill, texts, names, count, &opts);
	gnv_reader_close(&fill.r);
	return gnv_files_finish(&fill, ret, files);
}

/* ---- What it tells ---- */

GPUNVME_API int gpunvme_files_get_info(const struct gpunvme_files *files, struct gpunvme_files_info *info)
{
	int ret = gnv_enter(files, files, "files");

	if (ret)
		return ret;
	return gnv_info_copy(info, &files->info, gpunvme_files_info);
}

GPUNVME_API int gpunvme_files_get_entry(const struct gpunvme_files *files, uint32_t number, struct gpunvme_files_entry *entry)
{
	struct gpunvme_files_entry known = { .size = sizeof(known) };
	int ret = gnv_enter(files, files, "files");

	if (ret)
		return ret;
	if (number >= files->info.files)
		return gnv_fail(-ENOENT, "there is no file %u: the table has %u", number, files->info.files);
	known.name = files->many[number].name;
	known.bytes = files->entry[number].bytes;
	known.inode = files->many[number].inode;
	known.hash = known.name ? gnv_sum(known.name, strlen(known.name)) : 0;
	known.extents = files->entry[number].extents;
	return gnv_info_copy(entry, &known, gpunvme_files_entry);
}

GPUNVME_API int gpunvme_files_view_v(struct gpunvme_files *files, struct gpunvme_gpu *gpu, struct gpunvme_dfiles *dfiles,
				     uint32_t version, uint32_t size)
{
	struct gnv_part part[PARTS];
	uint64_t lane[PARTS];
	int ret = gnv_enter(files, files && gpu && dfiles, "files, gpu and dfiles");

	if (ret)
		return ret;
	parts_of(files, part);
	ret = gnv_view_check(version, size, sizeof(*dfiles));
	if (!ret)
		ret = gnv_shows_get(&files->shows, gpu, part, PARTS, lane);
	if (ret)
		return ret;
	*dfiles = (struct gpunvme_dfiles){
		.head = GPUNVME_HEAD(GPUNVME_KIND_FILES, *dfiles),
		.flags = files->info.writable ? GPUNVME_DQ_WRITE : 0,
		.nsid = files->info.nsid,
		.lba_shift = gnv_log2(files->info.lba_size),
		.device = files->device,
		.files = files->info.files,
		.bucket_shift = files->bucket_shift,
		.table = lane[EXTENTS],
		.entry = lane[ENTRIES],
		.name = lane[NAMES],
		.bucket = files->named ? lane[BUCKETS] : 0,
	};
	return 0;
}
