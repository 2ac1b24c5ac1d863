/* SPDX-License-Identifier: MIT */
/*
 * A volume as kernels see it: views, and buffers that are mapped to all members.
 * Invariant: the tables that a view or a buffer description points to never change while they exist; equal ones are one.
 */
#include "queue/volume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dma/mem_map.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"

static int check_window(const struct gpunvme_volume *vol, struct gpunvme_view *view)
{
	if (view->nsid)
		return gnv_fail(-EINVAL,
				"a view of a volume names no namespace: the volume has the default one of each controller");
	if (view->flags & GPUNVME_VIEW_WRITE && vol->read_only)
		return gnv_fail(-EROFS, "the volume cannot be written: a namespace of it is write protected or opened read-only");
	if (!view->nblocks && view->lba < vol->nblocks)
		view->nblocks = vol->nblocks - view->lba;
	if (!view->nblocks || !gnv_within(view->lba, view->nblocks, vol->nblocks))
		return gnv_fail(-ERANGE, "blocks %llu to +%llu are not within the volume of %llu blocks",
				(unsigned long long)view->lba, (unsigned long long)view->nblocks, (unsigned long long)vol->nblocks);
	return 0;
}

/* Views of all queues, in lane memory. */
static int place_views(struct gpunvme_volume *vol, uint32_t flags, uint64_t *lane)
{
	struct gpunvme_view whole = { sizeof(whole), flags, 0, 0, 0 };
	struct gpunvme_dq *dq = calloc(gnv_volume_qps(vol), sizeof(*dq));
	uint32_t i;
	int ret = 0;

	if (!dq)
		return gnv_fail(-ENOMEM, "out of memory");
	for (i = 0; i < gnv_volume_qps(vol) && !ret; i++)
		ret = gpunvme_qp_view(vol->qp[i], &whole, &dq[i]);
	if (!ret)
		ret = gnv_tables_place(&vol->tables, GNV_TABLE_VIEWS, dq, gnv_volume_qps(vol) * sizeof(*dq), lane);
	free(dq);
	return ret;
}

GPUNVME_API int gpunvme_volume_view_v(struct gpunvme_volume *vol, const struct gpunvme_view *user, struct gpunvme_dvol *dvol,
				      uint32_t version, uint32_t size)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	uint64_t table = 0;
	int ret = gnv_enter(vol->gpu, vol && dvol, "vol and dvol");

	if (ret)
		return ret;
	ret = gnv_view_check(version, size, sizeof(*dvol));
	if (ret)
		return ret;
	ret = gnv_opts_copy(&view, user, gpunvme_view);
	if (ret)
		return ret;
	ret = check_window(vol, &view);
	if (ret)
		return ret;
	ret = place_views(vol, view.flags, &table);
	if (ret)
		return ret;
	*dvol = (struct gpunvme_dvol){
		.head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, *dvol),
		.flags = view.flags & GPUNVME_VIEW_WRITE ? GPUNVME_DQ_WRITE : 0,
		.members = vol->members,
		.queues = vol->queues,
		.stripe_shift = gnv_log2(vol->stripe),
		.lba_shift = gnv_log2(vol->lba_size),
		.dq = table,
		.lba_first = view.lba,
		.lba_count = view.nblocks,
	};
	return 0;
}

/* Descriptions for all members; -EINVAL when one of them does not have it mapped. */
static int describe(const struct gpunvme_volume *vol, const struct gpunvme_mem *mem, struct gpunvme_dbuf *dbuf)
{
	uint32_t m;
	int ret = 0;

	for (m = 0; m < vol->members && !ret; m++)
		ret = gpunvme_mem_dbuf(mem, vol->dev[m], &dbuf[m]);
	return ret;
}

/* Of memory that was unmapped or freed without gpunvme_volume_unmap(). The first member tells. */
static bool is_of_nothing(const void *ctx, const struct gnv_table *table)
{
	const struct gpunvme_volume *vol = ctx;

	return table->kind == GNV_TABLE_BUFFERS && !gnv_map_knows(vol->dev[0], (const void *)table->content);
}

GPUNVME_API int gpunvme_volume_map(struct gpunvme_volume *vol, struct gpunvme_mem *mem, struct gpunvme_dvbuf *dvbuf)
{
	struct gpunvme_dbuf dbuf[GPUNVME_VOLUME_MAX];
	uint64_t table = 0;
	uint32_t m;
	int ret = gnv_enter(vol->gpu, vol && mem && dvbuf, "vol, mem and dvbuf");

	if (ret)
		return ret;
	for (m = 0; m < vol->members; m++) {
		ret = gpunvme_mem_map(mem, vol->dev[m]);
		if (ret)
			return ret;
	}
	ret = describe(vol, mem, dbuf);
	if (ret)
		return ret;
	if (gnv_tables_are_many(&vol->tables))
		gnv_tables_drop(&vol->tables, is_of_nothing, vol);
	ret = gnv_tables_place(&vol->tables, GNV_TABLE_BUFFERS, dbuf, vol->members * sizeof(dbuf[0]), &table);
	if (ret)
		return ret;
	*dvbuf = (struct gpunvme_dvbuf){ dbuf[0].base, dbuf[0].len, table, 0 };
	return 0;
}

/* Descriptions of a memory for all members; they differ, so the first tells. */
static bool is_of_buffer(const void *dbuf, const struct gnv_table *table)
{
	return table->kind == GNV_TABLE_BUFFERS && !memcmp(table->content, dbuf, sizeof(struct gpunvme_dbuf));
}

GPUNVME_API int gpunvme_volume_unmap(struct gpunvme_volume *vol, struct gpunvme_mem *mem)
{
	struct gpunvme_dbuf dbuf[GPUNVME_VOLUME_MAX];
	int ret = gnv_enter(vol->gpu, vol && mem, "vol and mem"), err;
	uint32_t m;

	if (ret)
		return ret;
	if (!describe(vol, mem, dbuf))
		gnv_tables_drop(&vol->tables, is_of_buffer, dbuf);
	for (m = 0; m < vol->members; m++) {
		err = gpunvme_mem_unmap(mem, vol->dev[m]);
		if (!ret)
			ret = err;
	}
	return ret;
}
