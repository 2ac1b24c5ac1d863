/* SPDX-License-Identifier: MIT */
/* What a file tells: itself, its extents, a view for kernels. */
#include <errno.h>
#include <stdlib.h>

#include "file/file.h"
#include "gpu/gpu.h"
#include "util/bits.h"
#include "util/opts.h"
#include "util/process.h"

struct gnv_shown {
	struct gnv_shown *next;
	struct gpunvme_gpu *gpu;
	struct gnv_gpu_range range;
	size_t bytes;
};

static void drop(struct gnv_shown *shown)
{
	shown->gpu->ops->local_free(shown->gpu, &shown->range, shown->bytes);
	gnv_gpu_put(shown->gpu);
	free(shown);
}

void gnv_shown_drop(struct gpunvme_file *file)
{
	struct gnv_shown *shown;

	while ((shown = file->shown)) {
		file->shown = shown->next;
		drop(shown);
	}
}

GPUNVME_API int gpunvme_file_get_info(const struct gpunvme_file *file, struct gpunvme_file_info *info)
{
	if (!file)
		return gnv_fail(-EINVAL, "gpunvme_file_get_info: file must not be NULL");
	if (gnv_foreign(file->process))
		return -ECHILD;
	return gnv_info_copy(info, &file->info, gpunvme_file_info);
}

GPUNVME_API int gpunvme_file_get_extents(const struct gpunvme_file *file, uint32_t first, struct gpunvme_dextent *extents,
					 uint32_t *count)
{
	uint32_t i, n;

	if (!file || !count || (*count && !extents))
		return gnv_fail(-EINVAL, "gpunvme_file_get_extents: file, extents and count must not be NULL");
	if (gnv_foreign(file->process))
		return -ECHILD;
	n = first < file->extents ? (uint32_t)gnv_min(*count, file->extents - first) : 0;
	for (i = 0; i < n; i++) {
		const struct gnv_extent *e = &file->extent[first + i];

		extents[i] = (struct gpunvme_dextent){ e->pos, e->at, e->len };
	}
	*count = n;
	return 0;
}

/* With the lock held. The extents in memory are as kernels have them: three words. */
static int show(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gnv_shown **out)
{
	struct gnv_shown *shown = calloc(1, sizeof(*shown));
	int ret;

	if (!shown)
		return gnv_fail(-ENOMEM, "out of memory");
	shown->bytes = file->extents * sizeof(struct gpunvme_dextent);
	ret = gpu->ops->local_alloc(gpu, shown->bytes, &shown->range);
	if (ret) {
		free(shown);
		return ret;
	}
	shown->gpu = gnv_gpu_get(gpu);
	ret = gpu->ops->poke(gpu, shown->range.lane, file->extent, shown->bytes);
	if (ret) {
		drop(shown);
		return ret;
	}
	shown->next = file->shown;
	*out = file->shown = shown;
	return 0;
}
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_extent) == sizeof(struct gpunvme_dextent), "an extent is what kernels see");
GPUNVME_STATIC_ASSERT(offsetof(struct gnv_extent, at) == offsetof(struct gpunvme_dextent, lba), "an extent is what kernels see");

static int table_for(struct gpunvme_file *file, struct gpunvme_gpu *gpu, uint64_t *lane)
{
	struct gnv_shown *shown;
	int ret = 0;

	*lane = 0;
	if (!file->extents)
		return 0;
	pthread_mutex_lock(&file->lock);
	for (shown = file->shown; shown && shown->gpu != gpu;)
		shown = shown->next;
	if (!shown)
		ret = show(file, gpu, &shown);
	if (!ret)
		*lane = shown->range.lane;
	pthread_mutex_unlock(&file->lock);
	return ret;
}

GPUNVME_API int gpunvme_file_view_v(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gpunvme_dfile *dfile,
				    uint32_t version, uint32_t size)
{
	uint64_t table;
	int ret;

	if (!file || !gpu || !dfile)
		return gnv_fail(-EINVAL, "gpunvme_file_view: file, gpu and dfile must not be NULL");
	if (gnv_foreign(file->process))
		return -ECHILD;
	if (version >> 16 != GPUNVME_DQ_MAJOR || size != sizeof(*dfile))
		return gnv_fail(-EPROTONOSUPPORT,
				"the caller was compiled with dq.h %u.%u (%u bytes), the library with %u.%u; compile it again",
				version >> 16, version & 0xffff, size, GPUNVME_DQ_MAJOR, GPUNVME_DQ_MINOR);
	ret = table_for(file, gpu, &table);
	if (ret)
		return ret;
	*dfile = (struct gpunvme_dfile){
		.magic = GPUNVME_DFILE_MAGIC,
		.major = GPUNVME_DQ_MAJOR,
		.minor = GPUNVME_DQ_MINOR,
		.size = sizeof(*dfile),
		.flags = file->info.writable ? GPUNVME_DQ_WRITE : 0,
		.nsid = file->info.nsid,
		.lba_shift = gnv_log2(file->info.lba_size),
		.extents = file->extents,
		.device = file->device,
		.table = table,
		.bytes = file->info.bytes,
	};
	return 0;
}
