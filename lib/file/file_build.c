/* SPDX-License-Identifier: MIT */
/* How a table of many files is filled. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
#include "file/file_live.h"
#include "file/file_map.h"
#include "util/bits.h"

#define STEP 512u /* files between two calls of the progress function */

static int tell(struct gnv_fill *fill, uint64_t done, uint64_t total)
{
	int ret = fill->opts.progress && (done % STEP == 0 || done == total) ? fill->opts.progress(fill->opts.ctx, done, total) : 0;

	fill->ended = ret != 0;
	return ret ? gnv_fail(ret, "the caller's progress function ended the call") : 0;
}

/* ---- Room ---- */

static int grow_files(struct gpunvme_file *set)
{
	const uint32_t room = set->file_room ? 2 * set->file_room : 64;
	struct gpunvme_dentry *entry;
	struct gnv_many *many;

	if (set->info.files < set->file_room)
		return 0;
	if (set->info.files >= GPUNVME_FILE_SET_MAX)
		return gnv_fail(-E2BIG, "there are more than %u files: make several tables of them", GPUNVME_FILE_SET_MAX);
	many = realloc(set->many, room * sizeof(*many));
	if (many)
		set->many = many;
	entry = realloc(set->entry, room * sizeof(*entry));
	if (entry)
		set->entry = entry;
	if (!many || !entry)
		return gnv_fail(-ENOMEM, "out of memory");
	set->file_room = room;
	return 0;
}

static int grow_extents(struct gpunvme_file *set, uint32_t more)
{
	uint64_t room = gnv_max(set->extent_room, 64);
	struct gpunvme_dextent *extent;

	if (more <= set->extent_room - set->extents)
		return 0;
	while (room < (uint64_t)set->extents + more)
		room *= 2;
	room = gnv_min(room, UINT32_MAX);
	if (room - set->extents < more)
		return gnv_fail(-E2BIG, "the files have more than %u extents: make several tables of them", UINT32_MAX);
	extent = realloc(set->extent, room * sizeof(*extent));
	if (!extent)
		return gnv_fail(-ENOMEM, "out of memory");
	set->extent = extent;
	set->extent_room = (uint32_t)room; /* quiet -Wanalyzer-malloc-leak: set->extent has it */
	return 0;
}

/* ---- Names ---- */

int gnv_fill_name(struct gnv_fill *fill, const char *name, uint64_t inode)
{
	struct gpunvme_file *set = fill->set;
	int ret;

	if (set->info.files >= fill->names_max)
		return gnv_fail(-EUCLEAN, "the directories have more names than their file system has room for: check it");
	ret = grow_files(set);
	if (ret)
		return ret;
	set->many[set->info.files] = (struct gnv_many){ name, inode };
	set->entry[set->info.files++] = (struct gpunvme_dentry){ 0, 0, 0 };
	return tell(fill, set->info.files, 0);
}

int gnv_fill_copy(struct gnv_fill *fill, const char *name, uint64_t inode)
{
	const size_t len = name ? strlen(name) + 1 : 0;
	char *copy = NULL;
	int ret = name ? gnv_names_room(&fill->set->names, len, &copy) : 0;

	if (ret)
		return ret;
	if (copy)
		memcpy(copy, name, len);
	return gnv_fill_name(fill, copy, inode);
}

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct gnv_many *)one)->name, ((const struct gnv_many *)other)->name);
}

void gnv_fill_sort(struct gnv_fill *fill, uint32_t from)
{
	if (fill->set->info.files > from)
		qsort(fill->set->many + from, fill->set->info.files - from, sizeof(*fill->set->many), by_name);
}

/* ---- Files ---- */

/* The one that the call opens. */
static void describe(struct gpunvme_file *set, const struct gnv_extents *file)
{
	set->info.inode = file->info.inode;
	set->info.mtime = file->info.mtime;
	set->info.mtime_ns = file->info.mtime_ns;
	set->info.generation = file->info.generation;
	set->unwritable = file->unwritable;
}

int gnv_fill_set(struct gnv_fill *fill, uint32_t number)
{
	struct gpunvme_file *set = fill->set;
	struct gnv_extents *file = fill->scratch;
	int ret;

	gnv_map_freeze(file, &fill->super);
	ret = gnv_extents_seal(file, &fill->r);
	if (!ret)
		ret = gnv_extents_permit(file, &fill->opts, &fill->r.ns.info);
	if (!ret && (uint64_t)set->extents + file->extents > fill->extents_max)
		ret = gnv_fail(-EUCLEAN, "the files have more extents than their file system has blocks: check it");
	if (!ret)
		ret = grow_extents(set, file->extents);
	if (ret)
		return ret;
	if (file->extents)
		memcpy(set->extent + set->extents, file->extent, file->extents * sizeof(*file->extent));
	set->entry[number] = (struct gpunvme_dentry){ file->info.bytes, set->extents, file->extents };
	set->extents += file->extents;
	set->info.block = file->info.block;
	if (fill->alone)
		describe(set, file);
	return 0;
}

/* The scratch is as new but for its room. */
static void reset(struct gnv_extents *file)
{
	file->extents = file->gathered.count = 0;
	file->unwritable = NULL;
	file->info = (struct gpunvme_file_info){ .size = sizeof(file->info) };
}

#define LEFT_OUT UINT32_MAX /* in place of a file's first extent */

static int fill_one(struct gnv_fill *fill, uint32_t number, gnv_fill_read_fn *read, void *ctx)
{
	const struct gnv_many *many = &fill->set->many[number];
	char text[256];
	int ret;

	gnv_plain(many->name, text);
	reset(fill->scratch);
	ret = read(ctx, number, text, fill->scratch);
	if (ret == -EOPNOTSUPP && fill->opts.flags & GPUNVME_FILE_SKIP) {
		fill->set->entry[number].first = LEFT_OUT;
		fill->set->info.skipped++;
		return 0;
	}
	if (!ret)
		ret = gnv_fill_set(fill, number);
	/* Not all of these messages have the name. */
	return !ret || strstr(gpunvme_errmsg(), text) ? ret : gnv_fail(ret, "%s: %s", text, gpunvme_errmsg());
}

/* The order in which inodes lie. */
static int by_inode(const void *one, const void *other, void *ctx)
{
	const struct gnv_many *many = ctx;
	const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

	if (many[a].inode != many[b].inode)
		return many[a].inode < many[b].inode ? -1 : 1;
	return a < b ? -1 : a > b;
}

static void copy_file(struct gpunvme_file *set, uint32_t to, uint32_t from)
{
	set->entry[to] = set->entry[from];
	if (set->live)
		set->live->was[to] = set->live->was[from];
}

static int fill_in_order(struct gnv_fill *fill, const uint32_t *order, gnv_fill_read_fn *read, void *ctx)
{
	struct gpunvme_file *set = fill->set;
	const uint32_t n = set->info.files;
	int ret = 0;

	for (uint32_t i = 0; i < n && !ret; i++) {
		const uint32_t number = order[i], before = i ? order[i - 1] : 0;

		if (i && set->many[number].inode == set->many[before].inode) {
			copy_file(set, number, before);
			set->info.skipped += set->entry[number].first == LEFT_OUT;
		} else {
			ret = fill_one(fill, number, read, ctx);
		}
		if (!ret)
			ret = tell(fill, i + 1, n);
	}
	return ret;
}

static void leave_out(struct gpunvme_file *set)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < set->info.files; i++) {
		if (set->entry[i].first == LEFT_OUT)
			continue;
		copy_file(set, kept, i);
		set->many[kept++] = set->many[i];
	}
	set->info.files = kept;
}

int gnv_fill_all(struct gnv_fill *fill, gnv_fill_read_fn *read, void *ctx)
{
	struct gpunvme_file *set = fill->set;
	const uint32_t n = set->info.files;
	uint32_t *order = malloc((size_t)n * sizeof(*order) + 1);
	int ret;

	if (!order)
		return gnv_fail(-ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_inode, set->many);
	ret = fill_in_order(fill, order, read, ctx);
	free(order);
	if (!ret)
		leave_out(set);
	return ret;
}
