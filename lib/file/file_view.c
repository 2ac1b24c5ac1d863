/* SPDX-License-Identifier: MIT */
/* Queries of files: info, extents, views for kernels. */
#include <errno.h>
#include <string.h>

#include "file/file.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"

GPUNVME_API int gpunvme_file_get_info(const struct gpunvme_file *file, struct gpunvme_file_info *info)
{
	int ret = gnv_enter(file, file, "file");

	if (ret)
		return ret;
	return gnv_info_copy(info, &file->info, gpunvme_file_info);
}

static int check_number(const struct gpunvme_file *file, uint32_t number)
{
	if (number < file->info.files)
		return 0;
	return gnv_fail(-ENOENT, "there is no file %u: the table has %u", number, file->info.files);
}

GPUNVME_API int gpunvme_file_get_entry(const struct gpunvme_file *file, uint32_t number, struct gpunvme_file_entry *entry)
{
	struct gpunvme_file_entry known = { .size = sizeof(known) };
	int ret = gnv_enter(file, file, "file");

	if (ret)
		return ret;
	ret = check_number(file, number);
	if (ret)
		return ret;
	known.name = file->many[number].name;
	known.bytes = file->entry[number].bytes;
	known.inode = file->many[number].inode;
	known.hash = known.name ? gnv_sum(known.name, strlen(known.name)) : 0;
	known.extents = file->entry[number].extents;
	return gnv_info_copy(entry, &known, gpunvme_file_entry);
}

GPUNVME_API int gpunvme_file_get_extents(const struct gpunvme_file *file, uint32_t number, struct gpunvme_dextent *extents,
					 uint32_t *count)
{
	const struct gpunvme_dentry *entry;
	uint32_t n;
	int ret = gnv_enter(file, file && count && (!*count || extents), "file, extents and count");

	if (!ret)
		ret = check_number(file, number);
	if (ret)
		return ret;
	entry = &file->entry[number];
	n = (uint32_t)gnv_min(*count, entry->extents);
	if (n)
		memcpy(extents, file->extent + entry->first, n * sizeof(*extents));
	*count = entry->extents;
	return 0;
}

/* ---- For kernels ---- */

void gnv_file_parts(const struct gpunvme_file *set, struct gnv_part part[GNV_PARTS])
{
	const size_t buckets = set->named ? (size_t)(1ull << (64 - set->bucket_shift)) + 1 : 0;

	part[GNV_PART_ENTRIES] = (struct gnv_part){ set->entry, set->info.files * sizeof(*set->entry) };
	part[GNV_PART_EXTENTS] = (struct gnv_part){ set->extent, set->extents * sizeof(*set->extent) };
	part[GNV_PART_NAMES] = (struct gnv_part){ set->name, set->named * sizeof(*set->name) };
	part[GNV_PART_BUCKETS] = (struct gnv_part){ set->bucket, buckets * sizeof(*set->bucket) };
}

static struct gpunvme_dfile view_one(const struct gpunvme_file *file, const uint64_t lane[GNV_PARTS])
{
	return (struct gpunvme_dfile){
		.head = GPUNVME_HEAD(GPUNVME_KIND_FILE, struct gpunvme_dfile),
		.flags = file->info.writable ? GPUNVME_DQ_WRITE : 0,
		.nsid = file->info.nsid,
		.lba_shift = gnv_log2(file->info.lba_size),
		.extents = file->info.extents,
		.device = file->device,
		.table = lane[GNV_PART_EXTENTS],
		.bytes = file->info.bytes,
	};
}

static struct gpunvme_dfiles view_set(const struct gpunvme_file *set, const uint64_t lane[GNV_PARTS])
{
	return (struct gpunvme_dfiles){
		.head = GPUNVME_HEAD(GPUNVME_KIND_FILES, struct gpunvme_dfiles),
		.flags = set->info.writable ? GPUNVME_DQ_WRITE : 0,
		.nsid = set->info.nsid,
		.lba_shift = gnv_log2(set->info.lba_size),
		.device = set->device,
		.files = set->info.files,
		.bucket_shift = set->bucket_shift,
		.table = lane[GNV_PART_EXTENTS],
		.entry = lane[GNV_PART_ENTRIES],
		.name = lane[GNV_PART_NAMES],
		.bucket = set->named ? lane[GNV_PART_BUCKETS] : 0,
	};
}

static int check_kind(const struct gpunvme_file *file, uint32_t kind, uint32_t version, uint32_t size)
{
	if (kind != GPUNVME_KIND_FILE && kind != GPUNVME_KIND_FILES)
		return gnv_fail(-EINVAL, "files have no view of kind %u", kind);
	if (kind == GPUNVME_KIND_FILE && file->info.files != 1)
		return gnv_fail(-EINVAL, "these are %u files, and the view is of one: use a struct gpunvme_dfiles", file->info.files);
	return gnv_view_check(version, size, kind == GPUNVME_KIND_FILE ? sizeof(struct gpunvme_dfile) : sizeof(struct gpunvme_dfiles));
}

GPUNVME_API int gpunvme_file_view_v(struct gpunvme_file *file, struct gpunvme_gpu *gpu, uint32_t kind, void *view, uint32_t version,
				    uint32_t size)
{
	struct gnv_part part[GNV_PARTS];
	uint64_t lane[GNV_PARTS];
	int ret = gnv_enter(file, file && gpu && view, "file, gpu and the view");

	if (!ret)
		ret = check_kind(file, kind, version, size);
	if (ret)
		return ret;
	gnv_file_parts(file, part);
	ret = gnv_shows_get(&file->shows, gpu, part, GNV_PARTS, lane);
	if (ret)
		return ret;
	if (kind == GPUNVME_KIND_FILE)
		*(struct gpunvme_dfile *)view = view_one(file, lane);
	else
		*(struct gpunvme_dfiles *)view = view_set(file, lane);
	return 0;
}
