/* SPDX-License-Identifier: MIT */
#include "file/extents.h"

#include <errno.h>
#include <stdlib.h>

#include "util/bits.h"
#include "util/checked.h"

struct gnv_extents *gnv_extents_new(void)
{
	struct gnv_extents *file = calloc(1, sizeof(*file));

	if (!file) {
		gnv_fail(-ENOMEM, "out of memory");
		return NULL;
	}
	return file;
}

void gnv_extents_free(struct gnv_extents *file)
{
	if (!file)
		return;
	free(file->gathered.run);
	free(file->extent);
	free(file);
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

int gnv_extents_add(struct gnv_extents *file, uint64_t pos, uint64_t at, uint64_t len)
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
static int make_room(struct gnv_extents *file)
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

/* Cut off the extents after the end of the file. */
static void cut(struct gnv_extents *file, uint64_t end)
{
	struct gpunvme_dextent *last;

	while (file->extents && file->extent[file->extents - 1].pos >= end)
		file->extents--;
	if (!file->extents)
		return;
	last = &file->extent[file->extents - 1];
	last->nblocks = gnv_min(last->nblocks, end - last->pos);
}

int gnv_extents_seal(struct gnv_extents *file, const struct gnv_reader *r)
{
	const struct gpunvme_ns_info *ns = &r->ns.info;
	const uint64_t end = file->info.bytes / ns->lba_size + (file->info.bytes % ns->lba_size != 0);
	uint64_t bytes;
	int ret;
	uint32_t i;

	if (gnv_mul_overflow(end, (uint64_t)ns->lba_size, &bytes))
		return gnv_fail(-EFBIG, "the file claims %llu bytes, and its last block of %u would end beyond 64 bits",
				(unsigned long long)file->info.bytes, ns->lba_size);
	ret = make_room(file);
	for (i = 0; i < file->gathered.count && !ret; i++)
		ret = seal(&file->gathered.run[i], r, &file->extent[i]);
	if (ret)
		return ret;
	file->extents = file->gathered.count;
	file->gathered.count = 0;
	cut(file, end);
	return 0;
}

int gnv_extents_permit(const struct gnv_extents *file, const struct gpunvme_file_opts *opts, const struct gpunvme_ns_info *ns)
{
	if (!(opts->flags & GPUNVME_FILE_WRITE))
		return 0;
	if (file->unwritable)
		return gnv_fail(-EOPNOTSUPP, "the file cannot be written in place: %s", file->unwritable);
	if (ns->read_only)
		return gnv_fail(-EROFS, "namespace %u cannot be written: it is write protected, or the device was opened read-only",
				ns->nsid);
	return 0;
}
