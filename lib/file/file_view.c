/* SPDX-License-Identifier: MIT */
/* What a file tells: itself, its extents, a view for kernels. */
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

GPUNVME_API int gpunvme_file_get_extents(const struct gpunvme_file *file, uint32_t first, struct gpunvme_dextent *extents,
					 uint32_t *count)
{
	int ret = gnv_enter(file, file && count && (!*count || extents), "file, extents and count");
	uint32_t n;

	if (ret)
		return ret;
	n = first < file->extents ? (uint32_t)gnv_min(*count, file->extents - first) : 0;
	if (n)
		memcpy(extents, file->extent + first, n * sizeof(*extents));
	*count = n;
	return 0;
}

GPUNVME_API int gpunvme_file_view_v(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gpunvme_dfile *dfile,
				    uint32_t version, uint32_t size)
{
	struct gnv_part part;
	uint64_t table;
	int ret = gnv_enter(file, file && gpu && dfile, "file, gpu and dfile");

	if (ret)
		return ret;
	part = (struct gnv_part){ file->extent, file->extents * sizeof(struct gpunvme_dextent) };
	ret = gnv_view_check(version, size, sizeof(*dfile));
	if (!ret)
		ret = gnv_shows_get(&file->shows, gpu, &part, 1, &table);
	if (ret)
		return ret;
	*dfile = (struct gpunvme_dfile){
		.head = GPUNVME_HEAD(GPUNVME_KIND_FILE, *dfile),
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
