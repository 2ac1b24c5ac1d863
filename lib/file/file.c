/* SPDX-License-Identifier: MIT */
/* Files by name and what all of them share. */
#include "file/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/file_live.h"
#include "file/file_map.h"
#include "file/partition.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

/* ---- Extents ---- */

struct gpunvme_file *gnv_file_new(void)
{
	struct gpunvme_file *file = calloc(1, sizeof(*file));

	if (!file) {
		gnv_fail(-ENOMEM, "out of memory");
		return NULL;
	}
	file->process = gnv_process();
	file->info.size = sizeof(file->info);
	gnv_shows_init(&file->shows);
	return file;
}

static int grow(struct gnv_runs *runs)
{
	const uint32_t room = runs->room ? 2 * runs->room : 16;
	struct gnv_run *more;

	if (runs->count < runs->room)
		return 0;
	more = room > runs->room ? realloc(runs->run, room * sizeof(*more)) : NULL;
	if (!more)
		return gnv_fail(-ENOMEM, "out of memory");
	runs->run = more;
	runs->room = room;
	return 0;
}

int gnv_file_add(struct gpunvme_file *file, uint64_t pos, uint64_t at, uint64_t len)
{
	struct gnv_runs *runs = &file->gathered;
	struct gnv_run *last = runs->count ? &runs->run[runs->count - 1] : NULL;
	uint64_t end;
	int ret;

	if (!len || gnv_add_overflow(pos, len, &end) || gnv_add_overflow(at, len, &end) || (last && pos < last->pos + last->len))
		return gnv_fail(-EUCLEAN, "the extents of the file make no sense: check its file system");
	if (last && pos == last->pos + last->len && at == last->at + last->len) {
		last->len += len;
		return 0;
	}
	ret = grow(runs);
	if (!ret)
		runs->run[runs->count++] = (struct gnv_run){ pos, at, len };
	return ret;
}

/* Room for as many extents as there are runs. */
static int make_room(struct gpunvme_file *file)
{
	struct gpunvme_dextent *more;

	if (file->gathered.count <= file->room)
		return 0;
	more = realloc(file->extent, file->gathered.count * sizeof(*more));
	if (!more)
		return gnv_fail(-ENOMEM, "out of memory");
	file->extent = more;
	file->room = file->gathered.count;
	return 0;
}

static int seal(const struct gnv_run *run, const struct gnv_reader *r, struct gpunvme_dextent *e)
{
	const uint32_t size = r->ns.info.lba_size;

	if (!gnv_within(run->at, run->len, r->bytes))
		return gnv_fail(-EUCLEAN, "the file has blocks that lie outside its file system: check it");
	if ((run->pos | (r->first + run->at) | run->len) % size)
		return gnv_fail(-EOPNOTSUPP, "the blocks of the file system are not whole blocks of namespace %u, which have %u bytes",
				r->ns.info.nsid, size);
	*e = (struct gpunvme_dextent){ run->pos / size, (r->first + run->at) / size, run->len / size };
	return 0;
}

/* What lies after the end of the file goes. */
static void cut(struct gpunvme_file *file, uint64_t end)
{
	struct gpunvme_dextent *last;

	while (file->extents && file->extent[file->extents - 1].pos >= end)
		file->extents--;
	if (!file->extents)
		return;
	last = &file->extent[file->extents - 1];
	last->nblocks = gnv_min(last->nblocks, end - last->pos);
}

int gnv_file_seal(struct gpunvme_file *file, const struct gnv_reader *r)
{
	const struct gpunvme_ns_info *ns = &r->ns.info;
	const uint64_t end = file->info.bytes / ns->lba_size + (file->info.bytes % ns->lba_size != 0);
	uint64_t bytes;
	int ret;
	uint32_t i;

	if (gnv_mul_overflow(end, (uint64_t)ns->lba_size, &bytes))
		return gnv_fail(-EFBIG, "the file claims %llu bytes, and its last block of %u would end after what 64 bits count",
				(unsigned long long)file->info.bytes, ns->lba_size);
	ret = make_room(file);
	for (i = 0; i < file->gathered.count && !ret; i++)
		ret = seal(&file->gathered.run[i], r, &file->extent[i]);
	if (ret)
		return ret;
	file->extents = file->gathered.count;
	file->gathered.count = 0;
	cut(file, end);
	file->info.extents = file->extents;
	file->info.lba_size = ns->lba_size;
	file->info.nsid = ns->nsid;
	file->device = r->device;
	return 0;
}

int gnv_file_permit(struct gpunvme_file *file, const struct gpunvme_file_opts *opts, const struct gpunvme_ns_info *ns)
{
	if (!(opts->flags & GPUNVME_FILE_WRITE))
		return 0;
	if (file->unwritable)
		return gnv_fail(-EOPNOTSUPP, "the file cannot be written in place: %s", file->unwritable);
	if (ns->read_only)
		return gnv_fail(-EROFS, "namespace %u cannot be written: it is write protected, or the device was opened read-only",
				ns->nsid);
	file->info.writable = 1;
	return 0;
}

/* ---- By name ---- */

int gnv_file_opts(struct gpunvme_file_opts *opts, const struct gpunvme_file_opts *user)
{
	int ret = gnv_opts_copy(opts, user, gpunvme_file_opts);

	if (!ret && (opts->flags & ~(uint32_t)GPUNVME_FILE_WRITE || opts->reserved))
		ret = gnv_fail(-EINVAL, "unknown file flags 0x%x; valid: GPUNVME_FILE_WRITE", opts->flags);
	return ret;
}

/* How deep a path ends, with the name of @len bytes at @name after @depth others; negative: above the root. */
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
	if (!ret && !super->fs->find)
		ret = gnv_fail(-EOPNOTSUPP, super->fs == &gnv_fs_ext4
			       ? "this build of the library has no libext2fs: install it (libext2fs-dev) and build again"
			       : "a file on XFS or btrfs is found by its map only: mount it with -o ro (XFS: ro,norecovery), `gpunvme extents "
				 "FILE >map`, and give the text to gpunvme_file_map()");
	if (ret)
		gnv_reader_close(r);
	return ret;
}

static int find(struct gnv_reader *r, const struct gnv_super *super, const char *path, const struct gpunvme_file_opts *opts,
		struct gpunvme_file **out)
{
	struct gpunvme_file *file = gnv_file_new();
	int ret;

	if (!file)
		return -ENOMEM;
	memcpy(file->info.fs, super->fs->name, sizeof(file->info.fs));
	memcpy(file->info.uuid, super->uuid, sizeof(super->uuid));
	ret = super->fs->find(r, path, file);
	gnv_map_freeze(file, super);
	if (!ret)
		ret = gnv_file_seal(file, r);
	if (!ret)
		ret = gnv_file_permit(file, opts, &r->ns.info);
	if (ret)
		gpunvme_file_close(file);
	else
		*out = file;
	return ret;
}

GPUNVME_API int gpunvme_file_open(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *user,
				  struct gpunvme_file **file)
{
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	struct gnv_super super;
	struct gnv_reader r;
	int ret;

	if (!dev || !path || !file)
		return gnv_null("dev, path and file");
	ret = gnv_file_opts(&opts, user);
	if (!ret)
		ret = gnv_path_check(path);
	if (!ret)
		ret = gnv_fs_open(dev, &opts, &r, &super);
	if (ret)
		return ret;
	ret = find(&r, &super, path, &opts, file);
	gnv_reader_close(&r);
	return ret;
}

GPUNVME_API int gpunvme_file_list(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *user,
				  gpunvme_dirent_fn *fn, void *ctx)
{
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	struct gnv_super super;
	struct gnv_reader r;
	int ret;

	if (!dev || !path || !fn)
		return gnv_null("dev, path and fn");
	ret = gnv_file_opts(&opts, user);
	if (!ret)
		ret = gnv_path_check(path);
	if (!ret)
		ret = gnv_fs_open(dev, &opts, &r, &super);
	if (ret)
		return ret;
	ret = super.fs->list(&r, path, fn, ctx);
	gnv_reader_close(&r);
	return ret;
}

GPUNVME_API int gpunvme_file_close(struct gpunvme_file *file)
{
	int ret;

	if (!file)
		return 0;
	if (gnv_foreign(file->process))
		return -ECHILD;
	gnv_shows_end(&file->shows);
	ret = gnv_live_end(file->live);
	free(file->gathered.run);
	free(file->extent);
	free(file);
	return ret;
}
