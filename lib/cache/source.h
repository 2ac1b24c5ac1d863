/* SPDX-License-Identifier: MIT */
/* The source of a cache's pages: a namespace, a file or a volume. Also the data that kernels read of it. */
#ifndef GNV_CACHE_SOURCE_H
#define GNV_CACHE_SOURCE_H

#include <gpunvme/cache.h>

#include "gpu/gpu.h"

struct gnv_source {
	char name[32]; /* for messages */
	uint16_t kind;  /* enum gpunvme_kind: of pages, without GPUNVME_KIND_PREFETCH */
	uint32_t nsid;  /* 0: of a volume */
	bool read_only; /* for kernels, now: a namespace or one of a volume's, or a file */
	uint32_t lba_size;
	uint64_t nblocks;
	uint64_t bytes; /* a file may end within a block */
	struct gpunvme_file *file;
	struct gpunvme_dev *dev[GPUNVME_QUEUE_DEVICES]; /* devices that write to the frames */
	uint32_t devs;
	uint32_t stripe; /* blocks, of a volume */
	struct gnv_gpu_range range; /* in the threads' memory. Empty for a namespace */
	size_t len;
};

/*
 * gnv_source_find() - find the source that a queue and the options name
 * Return: 0; -EINVAL, -ENODATA a file without bytes; as gpunvme_ns_get_info(), gpunvme_file_get_info(), gpunvme_queue_get_info().
 */
int gnv_source_find(struct gnv_source *source, struct gpunvme_queue *queue, const struct gpunvme_cache_opts *opts);

/* Map the frames to all devices. Return: as gpunvme_mem_map(). */
int gnv_source_map(const struct gnv_source *source, struct gpunvme_mem *mem);

/* The frames as the first device has them. Return: 0; as gpunvme_mem_dbuf() of any device. */
int gnv_source_dbuf(const struct gnv_source *source, const struct gpunvme_mem *mem, struct gpunvme_dbuf *buf);

/* Write the data that kernels read of it, once the frames are mapped. Return: 0, -ENOMEM, -EIO, as gpunvme_file_view(). */
int gnv_source_show(struct gnv_source *source, struct gpunvme_gpu *gpu, const struct gpunvme_mem *mem);
void gnv_source_hide(struct gnv_source *source, struct gpunvme_gpu *gpu);

/* Which of its devices is closed, or has not the frames for another reason: its number, or source->devs. */
uint32_t gnv_source_closed(const struct gnv_source *source, struct gpunvme_mem *mem);

/* Has none of its devices, but those that are closed, a command in flight? */
bool gnv_source_quiet(const struct gnv_source *source, struct gpunvme_mem *mem);

/* The device of a block. The blocks that follow it lie side by side there. */
struct gnv_source_part {
	uint32_t dev;
	bool hole; /* a file has no such blocks */
	uint64_t lba;
	uint64_t nblocks;
};

/* Where the first of @nblocks blocks from @block on lie. */
void gnv_source_part(const struct gnv_source *source, uint64_t block, uint64_t nblocks, struct gnv_source_part *part);

/* May its blocks be written now? A lease may have been given back, or broken. Return: 0; -EROFS; as gpunvme_file_check(). */
int gnv_source_writable(const struct gnv_source *source);

#endif
