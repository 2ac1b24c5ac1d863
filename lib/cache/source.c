/* SPDX-License-Identifier: MIT */
/* Namespaces, files and volumes as the source of a cache's pages. */
#include "cache/source.h"

#include <errno.h>
#include <gpunvme/mem.h>
#include <stdio.h>
#include <string.h>

#include "file/file.h"
#include "dev/dev.h"
#include "dma/mem_map.h"
#include "queue/qp.h"
#include "queue/queue.h"
#include "util/bits.h"

static int find_namespace(struct gnv_source *source, uint32_t nsid)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	int ret = gpunvme_ns_get_info(source->dev[0], nsid, &ns);

	if (ret)
		return ret;
	snprintf(source->name, sizeof(source->name), "namespace %u", ns.nsid);
	source->kind = GPUNVME_KIND_PAGES;
	source->nsid = ns.nsid;
	source->read_only = ns.read_only;
	source->lba_size = ns.lba_size;
	source->nblocks = ns.nblocks;
	source->bytes = ns.nblocks * ns.lba_size;
	return 0;
}

static int find_file(struct gnv_source *source, uint32_t nsid)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	int ret = gpunvme_file_get_info(source->file, &info);

	if (ret)
		return ret;
	if (info.files != 1)
		return gnv_fail(-EINVAL, "a cache is over one file, and these are %u", info.files);
	if (nsid && nsid != info.nsid)
		return gnv_fail(-EINVAL, "the file lies in namespace %u, not %u. Leave gpunvme_cache_opts.nsid 0",
				info.nsid, nsid);
	if (!info.bytes)
		return gnv_fail(-ENODATA, "the file is empty: a cache of it would have no page");
	snprintf(source->name, sizeof(source->name), "the file");
	source->kind = GPUNVME_KIND_FILE_PAGES;
	source->nsid = info.nsid;
	source->read_only = !info.writable;
	source->lba_size = info.lba_size;
	source->nblocks = info.bytes / info.lba_size + (info.bytes % info.lba_size != 0);
	source->bytes = info.bytes;
	return 0;
}

static int find_volume(struct gnv_source *source, struct gpunvme_queue *vol, const struct gpunvme_cache_opts *opts)
{
	struct gnv_blocks blocks;
	int ret;

	if (opts->nsid || opts->file)
		return gnv_fail(-EINVAL, "a cache over a volume names no namespace and no file: leave gpunvme_cache_opts.nsid and .file 0");
	ret = gnv_queue_blocks(vol, &blocks);
	if (ret)
		return ret;
	snprintf(source->name, sizeof(source->name), "the volume");
	source->kind = GPUNVME_KIND_VOLUME_PAGES;
	source->lba_size = blocks.lba_size;
	source->nblocks = blocks.nblocks;
	source->bytes = blocks.nblocks * blocks.lba_size;
	source->stripe = blocks.stripe;
	source->read_only = blocks.read_only;
	source->devs = vol->devices;
	memcpy(source->dev, vol->dev, sizeof(vol->dev));
	return 0;
}

int gnv_source_find(struct gnv_source *source, struct gpunvme_queue *queue, const struct gpunvme_cache_opts *opts)
{
	if (opts->flags & GPUNVME_CACHE_VOLUME || queue->devices > 1)
		return find_volume(source, queue, opts);
	source->dev[0] = queue->dev[0];
	source->devs = 1;
	source->file = opts->file;
	return opts->file ? find_file(source, opts->nsid) : find_namespace(source, opts->nsid);
}

int gnv_source_map(const struct gnv_source *source, struct gpunvme_mem *mem)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < source->devs && !ret; i++)
		ret = gpunvme_mem_map(mem, source->dev[i]);
	return ret;
}

int gnv_source_dbuf(const struct gnv_source *source, const struct gpunvme_mem *mem, struct gpunvme_dbuf *buf)
{
	struct gpunvme_dbuf other;
	uint32_t i;
	int ret = gpunvme_mem_dbuf(mem, source->dev[0], buf);

	for (i = 1; i < source->devs && !ret; i++)
		ret = gpunvme_mem_dbuf(mem, source->dev[i], &other);
	return ret;
}

/* ---- For kernels ---- */

static int put_down(struct gnv_source *source, struct gpunvme_gpu *gpu, const void *from, size_t len)
{
	int ret = gpu->ops->local_alloc(gpu, len, &source->range);

	if (ret)
		return gnv_fail(ret, "the threads have no %zu bytes to describe %s", len, source->name);
	source->len = len;
	return gpu->ops->poke(gpu, source->range.lane, from, len);
}

static int show_file(struct gnv_source *source, struct gpunvme_gpu *gpu)
{
	struct gpunvme_dfile file;
	int ret = gpunvme_file_view(source->file, gpu, &file);

	if (ret)
		return ret;
	if (file.device != source->dev[0]->number)
		return gnv_fail(-EXDEV, "the file was opened by another device. Name that device");
	return put_down(source, gpu, &file, sizeof(file));
}

static int show_volume(struct gnv_source *source, struct gpunvme_gpu *gpu, const struct gpunvme_mem *mem)
{
	struct gpunvme_dmember member[GPUNVME_QUEUE_DEVICES];
	uint32_t i;
	int ret = 0;

	for (i = 0; i < source->devs && !ret; i++) {
		ret = gpunvme_mem_dbuf(mem, source->dev[i], &member[i].buf);
		member[i].device = source->dev[i]->number;
		member[i].stripe_shift = gnv_log2(source->stripe);
	}
	if (ret)
		return ret;
	return put_down(source, gpu, member, source->devs * sizeof(member[0]));
}

int gnv_source_show(struct gnv_source *source, struct gpunvme_gpu *gpu, const struct gpunvme_mem *mem)
{
	if (source->file)
		return show_file(source, gpu);
	return source->kind == GPUNVME_KIND_VOLUME_PAGES ? show_volume(source, gpu, mem) : 0;
}

void gnv_source_hide(struct gnv_source *source, struct gpunvme_gpu *gpu)
{
	if (source->range.lane)
		gpu->ops->local_free(gpu, &source->range, source->len);
}

uint32_t gnv_source_closed(const struct gnv_source *source, struct gpunvme_mem *mem)
{
	uint32_t i;

	for (i = 0; i < source->devs && gnv_map_has(mem, source->dev[i]); i++)
		;
	return i;
}

bool gnv_source_quiet(const struct gnv_source *source, struct gpunvme_mem *mem)
{
	bool over = false;
	uint32_t i;

	for (i = 0; i < source->devs; i++)
		if (!gnv_map_has(mem, source->dev[i]))
			continue;
		else if (gnv_queues_busy(source->dev[i], true, &over) || __atomic_load_n(&source->dev[i]->unstoppable, __ATOMIC_RELAXED))
			return false;
	return true;
}

/* ---- For the host ---- */

/* How many extents begin at or before a block. */
static uint32_t find_extent(const struct gpunvme_dextent *extent, uint32_t extents, uint64_t block)
{
	uint32_t low = 0, high = extents, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (extent[mid].pos <= block)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void find_part_of_file(const struct gpunvme_file *file, uint64_t block, struct gnv_source_part *part)
{
	const struct gpunvme_dextent *extent = file->extent + file->entry[0].first;
	const uint32_t i = find_extent(extent, file->entry[0].extents, block);
	const struct gpunvme_dextent e = i ? extent[i - 1] : (struct gpunvme_dextent){ 0, 0, 0 };

	part->hole = block - e.pos >= e.nblocks;
	part->lba = part->hole ? 0 : e.lba + (block - e.pos);
	part->nblocks = part->hole ? UINT64_MAX : e.nblocks - (block - e.pos);
	if (part->hole && i < file->entry[0].extents)
		part->nblocks = extent[i].pos - block;
}

void gnv_source_part(const struct gnv_source *source, uint64_t block, uint64_t nblocks, struct gnv_source_part *part)
{
	uint64_t stripe = source->stripe ? block / source->stripe : 0;

	*part = (struct gnv_source_part){ .lba = block, .nblocks = nblocks };
	if (source->file) {
		find_part_of_file(source->file, block, part);
	} else if (source->devs > 1) {
		part->dev = (uint32_t)(stripe % source->devs);
		part->lba = block - (stripe - stripe / source->devs) * source->stripe;
		part->nblocks = source->stripe - block % source->stripe;
	}
	part->nblocks = gnv_min(part->nblocks, nblocks);
}

int gnv_source_writable(const struct gnv_source *source)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };

	if (!source->file)
		return 0;
	if (gpunvme_file_get_info(source->file, &info) || !info.writable)
		return gnv_fail(-EROFS, "the file is not leased any more, so changed pages cannot be written. Flush before "
					"gpunvme_file_unlease(). Now gpunvme_cache_discard() drops them");
	return source->file->live ? gpunvme_file_check(source->file, 0, 1) : 0; /* after a broken lease its blocks may belong to others */
}
