/* SPDX-License-Identifier: MIT */
/* How a table of many files is filled. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/files.h"
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

static int grow_files(struct gpunvme_files *files)
{
	const uint32_t room = files->file_room ? 2 * files->file_room : 64;
	struct gpunvme_dentry *entry;
	struct gnv_many *many;

	if (files->info.files < files->file_room)
		return 0;
	if (files->info.files >= GPUNVME_FILES_MAX)
		return gnv_fail(-E2BIG, "there are more than %u files: make several tables of them", GPUNVME_FILES_MAX);
	many = realloc(files->many, room * sizeof(*many));
	if (many)
		files->many = many;
	entry = realloc(files->entry, room * sizeof(*entry));
	if (entry)
		files->entry = entry;
	if (!many || !entry)
		return gnv_fail(-ENOMEM, "out of memory");
	files->file_room = room;
	return 0;
}

static int grow_extents(struct gpunvme_files *files, uint32_t more)
{
	uint64_t room = gnv_max(files->extent_room, 64);
	struct gpunvme_dextent *extent;

	if (more <= files->extent_room - files->extents)
		return 0;
	while (room < (uint64_t)files->extents + more)
		room *= 2;
	room = gnv_min(room, UINT32_MAX);
	if (room - files->extents < more)
		return gnv_fail(-E2BIG, "the files have more than %u extents: make several tables of them", UINT32_MAX);
	extent = realloc(files->extent, room * sizeof(*extent));
	if (!extent)
		return gnv_fail(-ENOMEM, "out of memory");
	files->extent = extent;
	files->extent_room = (uint32_t)room; /* quiet -Wanalyzer-malloc-leak: files->extent has it */
	return 0;
}

/* ---- Names ---- */

int gnv_fill_name(struct gnv_fill *fill, const char *name, uint64_t inode)
{
	struct gpunvme_files *files = fill->files;
	int ret;

	if (files->info.files >= fill->names_max)
		return gnv_fail(-EUCLEAN, "the directories have more names than their file system has room for: check it");
	ret = grow_files(files);
	if (ret)
		return ret;
	files->many[files->info.files] = (struct gnv_many){ name, inode };
	files->entry[files->info.files++] = (struct gpunvme_dentry){ 0, 0, 0 };
	return tell(fill, files->info.files, 0);
}

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct gnv_many *)one)->name, ((const struct gnv_many *)other)->name);
}

void gnv_fill_sort(struct gnv_fill *fill, uint32_t from)
{
	if (fill->files->info.files > from)
		qsort(fill->files->many + from, fill->files->info.files - from, sizeof(*fill->files->many), by_name);
}

/* ---- Files ---- */

int gnv_fill_set(struct gnv_fill *fill, uint32_t number)
{
	struct gpunvme_files *files = fill->files;
	struct gpunvme_file *file = fill->scratch;
	const struct gpunvme_file_opts opts = { sizeof(opts), fill->opts.flags, 0, 0, 0 };
	int ret;

	gnv_map_freeze(file, &fill->super);
	ret = gnv_file_seal(file, &fill->r);
	if (!ret)
		ret = gnv_file_permit(file, &opts, &fill->r.ns.info);
	if (!ret && (uint64_t)files->extents + file->extents > fill->extents_max)
		ret = gnv_fail(-EUCLEAN, "the files have more extents than their file system has blocks: check it");
	if (!ret)
		ret = grow_extents(files, file->extents);
	if (ret)
		return ret;
	if (file->extents)
		memcpy(files->extent + files->extents, file->extent, file->extents * sizeof(*file->extent));
	files->entry[number] = (struct gpunvme_dentry){ file->info.bytes, files->extents, file->extents };
	files->extents += file->extents;
	return 0;
}

/* The scratch is as new but for its room. */
static void reset(struct gpunvme_file *file)
{
	file->extents = file->gathered.count = 0;
	file->unwritable = NULL;
	file->info = (struct gpunvme_file_info){ .size = sizeof(file->info) };
}

#define LEFT_OUT UINT32_MAX /* in place of a file's first extent */

static int fill_one(struct gnv_fill *fill, uint32_t number, gnv_fill_read_fn *read, void *ctx)
{
	const struct gnv_many *many = &fill->files->many[number];
	char text[256];
	int ret;

	gnv_plain(many->name, text);
	reset(fill->scratch);
	ret = read(ctx, number, text, fill->scratch);
	if (ret == -EOPNOTSUPP && fill->opts.flags & GPUNVME_FILES_SKIP) {
		fill->files->entry[number].first = LEFT_OUT;
		fill->files->info.skipped++;
		return 0;
	}
	if (!ret)
		ret = gnv_fill_set(fill, number);
	/* Not all of these sentences have the name. */
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

static void copy_file(struct gpunvme_files *files, uint32_t to, uint32_t from)
{
	files->entry[to] = files->entry[from];
	if (files->live)
		files->live->was[to] = files->live->was[from];
}

static int fill_in_order(struct gnv_fill *fill, const uint32_t *order, gnv_fill_read_fn *read, void *ctx)
{
	struct gpunvme_files *files = fill->files;
	const uint32_t n = files->info.files;
	int ret = 0;

	for (uint32_t i = 0; i < n && !ret; i++) {
		const uint32_t number = order[i], before = i ? order[i - 1] : 0;

		if (i && files->many[number].inode == files->many[before].inode) {
			copy_file(files, number, before);
			files->info.skipped += files->entry[number].first == LEFT_OUT;
		} else {
			ret = fill_one(fill, number, read, ctx);
		}
		if (!ret)
			ret = tell(fill, i + 1, n);
	}
	return ret;
}

static void leave_out(struct gpunvme_files *files)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < files->info.files; i++) {
		if (files->entry[i].first == LEFT_OUT)
			continue;
		copy_file(files, kept, i);
		files->many[kept++] = files->many[i];
	}
	files->info.files = kept;
}

int gnv_fill_all(struct gnv_fill *fill, gnv_fill_read_fn *read, void *ctx)
{
	struct gpunvme_files *files = fill->files;
	const uint32_t n = files->info.files;
	uint32_t *order = malloc((size_t)n * sizeof(*order) + 1);
	int ret;

	if (!order)
		return gnv_fail(-ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_inode, files->many);
	ret = fill_in_order(fill, order, read, ctx);
	free(order);
	if (!ret)
		leave_out(files);
	return ret;
}
