/* SPDX-License-Identifier: MIT */
/*
 * Several queue pairs as one volume, of one controller or striped over several.
 * Invariant: the tables that a view or a buffer description points to never change while they exist; equal ones are one.
 */
#include <gpunvme/volume.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "dev/dev.h"
#include "dma/mem_map.h"
#include "queue/qp.h"
#include "queue/tables.h"
#include "queue/volume.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define QUEUES_AUTO 8u
#define STRIPE_BYTES (128u << 10)

struct gpunvme_volume {
	struct gpunvme_gpu *gpu;
	uint32_t members;
	uint32_t queues; /* of each member */
	uint32_t stripe; /* blocks */
	uint32_t lba_size;
	uint64_t nblocks;
	bool read_only;
	struct gpunvme_dev *dev[GPUNVME_VOLUME_MAX];
	struct gpunvme_qp **qp; /* queue q of member m is q * members + m */
	struct gnv_tables tables;
};

static uint32_t count_qps(const struct gpunvme_volume *vol)
{
	return vol->members * vol->queues;
}

uint32_t gnv_volume_devs(const struct gpunvme_volume *vol, struct gpunvme_dev **dev)
{
	memcpy(dev, vol->dev, vol->members * sizeof(*dev));
	return vol->members;
}

bool gnv_volume_read_only(const struct gpunvme_volume *vol)
{
	return vol->read_only;
}

/* ---- Creation ---- */

static int check_members(const struct gpunvme_volume *vol)
{
	uint32_t i, k;

	for (i = 0; i < vol->members; i++) {
		if (!vol->dev[i])
			return gnv_fail(-EINVAL, "gpunvme_volume_create: controller %u is NULL", i);
		for (k = 0; k < i; k++)
			if (vol->dev[i] == vol->dev[k])
				return gnv_fail(-EINVAL, "controllers %u and %u of the volume are the same; name each once", k, i);
	}
	return 0;
}

/* Block size and capacity: whole stripes of the smallest member. */
static int measure(struct gpunvme_volume *vol, uint32_t stripe)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	uint64_t least = UINT64_MAX, bytes;
	uint32_t i;
	int ret;

	for (i = 0; i < vol->members; i++) {
		ret = gpunvme_ns_get_info(vol->dev[i], 0, &ns);
		if (ret)
			return ret;
		if (i && ns.lba_size != vol->lba_size)
			return gnv_fail(
				-EINVAL,
				"controller %u of the volume has blocks of %u bytes, the first one of %u; format them alike", i,
				ns.lba_size, vol->lba_size);
		vol->lba_size = ns.lba_size;
		vol->read_only = vol->read_only || ns.read_only;
		least = gnv_min(least, ns.nblocks);
	}
	vol->stripe = stripe ? stripe : STRIPE_BYTES > vol->lba_size ? STRIPE_BYTES / vol->lba_size : 1;
	if (vol->members == 1) {
		vol->nblocks = least;
		return 0;
	}
	if (least < vol->stripe)
		return gnv_fail(-ERANGE, "the smallest namespace has %llu blocks, less than a stripe of %u; use a smaller stripe",
				(unsigned long long)least, vol->stripe);
	/* As of a namespace: bytes are counted in 64 bits by all who use it. */
	if (gnv_mul_overflow(least / vol->stripe * vol->stripe, (uint64_t)vol->members, &vol->nblocks) ||
	    gnv_mul_overflow(vol->nblocks, (uint64_t)vol->lba_size, &bytes))
		return gnv_fail(-ERANGE, "the volume would have more bytes than 64 bits count; use fewer controllers");
	return 0;
}

static int create_qps(struct gpunvme_volume *vol, const struct gpunvme_volume_opts *opts)
{
	struct gpunvme_qp_opts qp_opts = { .size = sizeof(qp_opts), .flags = opts->flags, .depth = opts->depth,
					   .cmd_timeout_ms = opts->cmd_timeout_ms };
	uint32_t wanted = opts->queues ? opts->queues : QUEUES_AUTO, q, m;
	int ret = 0;

	vol->qp = calloc((size_t)wanted * vol->members, sizeof(struct gpunvme_qp *));
	if (!vol->qp)
		return gnv_fail(-ENOMEM, "out of memory");
	for (q = 0; q < wanted; q++) {
		for (m = 0; m < vol->members && !ret; m++)
			ret = gpunvme_qp_create(vol->dev[m], vol->gpu, &qp_opts, &vol->qp[q * vol->members + m]);
		if (!ret) {
			vol->queues++;
			continue;
		}
		while (m--) { /* a row that is not whole serves nobody */
			gnv_qp_discard(vol->qp[q * vol->members + m]);
			vol->qp[q * vol->members + m] = NULL;
		}
		return ret == -ENOSPC && !opts->queues && q ? 0 : ret;
	}
	return 0;
}

/* Of a volume that nobody will have. */
static void discard_qps(struct gpunvme_volume *vol)
{
	uint32_t i = vol->qp ? count_qps(vol) : 0;

	while (i--)
		gnv_qp_discard(vol->qp[i]);
}

/* Return: 0; -EBUSY a queue is left, for the next call. */
static int destroy_qps(struct gpunvme_volume *vol)
{
	uint32_t i = vol->qp ? count_qps(vol) : 0;
	int ret = 0, kept;

	while (i--) {
		kept = gpunvme_qp_destroy(vol->qp[i]);
		ret = ret ? ret : kept;
		if (!kept)
			vol->qp[i] = NULL;
	}
	return ret;
}

static void drop(struct gpunvme_volume *vol)
{
	gnv_tables_fini(&vol->tables);
	gnv_gpu_put(vol->gpu);
	free(vol->qp);
	free(vol);
}

static int check_opts(const struct gpunvme_volume_opts *opts, uint32_t count)
{
	if (!count || count > GPUNVME_VOLUME_MAX)
		return gnv_fail(-EINVAL, "a volume of %u controllers is not possible: use 1 to %u", count, GPUNVME_VOLUME_MAX);
	if (opts->stripe && !gnv_is_pow2(opts->stripe))
		return gnv_fail(-EINVAL, "a stripe of %u blocks is not possible: use a power of two", opts->stripe);
	if (opts->reserved)
		return gnv_fail(-EINVAL, "gpunvme_volume_opts.reserved must be 0");
	if (opts->queues > UINT16_MAX)
		return gnv_fail(-EINVAL, "%u queues for each controller are not possible: use 65535 or less", opts->queues);
	return 0;
}

GPUNVME_API int gpunvme_volume_create(struct gpunvme_dev *const *devs, uint32_t count, struct gpunvme_gpu *gpu,
				      const struct gpunvme_volume_opts *user, struct gpunvme_volume **out)
{
	struct gpunvme_volume_opts opts = GPUNVME_VOLUME_OPTS_INIT;
	struct gpunvme_volume *vol;
	struct gnv_message cause;
	int ret = gnv_enter(gpu, devs && gpu && out, "devs, gpu and vol");

	if (ret)
		return ret;
	ret = gnv_opts_copy(&opts, user, gpunvme_volume_opts);
	if (!ret)
		ret = check_opts(&opts, count);
	if (ret)
		return ret;
	vol = calloc(1, sizeof(*vol));
	if (!vol)
		return gnv_fail(-ENOMEM, "out of memory");
	vol->gpu = gnv_gpu_get(gpu);
	gnv_tables_init(&vol->tables, gpu);
	vol->members = count;
	memcpy(vol->dev, devs, count * sizeof(struct gpunvme_dev *));
	ret = check_members(vol);
	if (!ret)
		ret = measure(vol, opts.stripe);
	if (!ret)
		ret = create_qps(vol, &opts);
	if (!ret) {
		*out = vol;
		return 0;
	}
	cause = gnv_message();
	discard_qps(vol);
	drop(vol);
	return gnv_fail(ret, "%s", cause.text);
}

GPUNVME_API int gpunvme_volume_destroy(struct gpunvme_volume *vol)
{
	int ret;

	if (!vol)
		return 0;
	if (gnv_foreign(vol->gpu->process))
		return -ECHILD;
	ret = destroy_qps(vol);
	if (!ret)
		drop(vol);
	return ret;
}

/* ---- For kernels ---- */

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
	struct gpunvme_dq *dq = calloc(count_qps(vol), sizeof(*dq));
	uint32_t i;
	int ret = 0;

	if (!dq)
		return gnv_fail(-ENOMEM, "out of memory");
	for (i = 0; i < count_qps(vol) && !ret; i++)
		ret = gpunvme_qp_view(vol->qp[i], &whole, &dq[i]);
	if (!ret)
		ret = gnv_tables_place(&vol->tables, GNV_TABLE_VIEWS, dq, count_qps(vol) * sizeof(*dq), lane);
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
	if (version >> 16 != GPUNVME_DQ_MAJOR || size != sizeof(*dvol))
		return gnv_fail(-EPROTONOSUPPORT,
				"the caller was compiled with dq.h %u.%u (%u bytes), the library with %u.%u; compile it again",
				version >> 16, version & 0xffff, size, GPUNVME_DQ_MAJOR, GPUNVME_DQ_MINOR);
	ret = gnv_opts_copy(&view, user, gpunvme_view);
	if (!ret)
		ret = check_window(vol, &view);
	if (!ret)
		ret = place_views(vol, view.flags, &table);
	if (ret)
		return ret;
	*dvol = (struct gpunvme_dvol){
		.magic = GPUNVME_DVOL_MAGIC,
		.major = GPUNVME_DQ_MAJOR,
		.minor = GPUNVME_DQ_MINOR,
		.size = sizeof(*dvol),
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
	for (m = 0; m < vol->members && !ret; m++)
		ret = gpunvme_mem_map(mem, vol->dev[m]);
	if (!ret)
		ret = describe(vol, mem, dbuf);
	if (!ret && gnv_tables_are_many(&vol->tables))
		gnv_tables_drop(&vol->tables, is_of_nothing, vol);
	if (!ret)
		ret = gnv_tables_place(&vol->tables, GNV_TABLE_BUFFERS, dbuf, vol->members * sizeof(dbuf[0]), &table);
	if (!ret)
		*dvbuf = (struct gpunvme_dvbuf){ dbuf[0].base, dbuf[0].len, table, 0 };
	return ret;
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
		ret = ret ? ret : err;
	}
	return ret;
}

GPUNVME_API int gpunvme_volume_stop(struct gpunvme_volume *vol, int stop)
{
	int ret = gnv_enter(vol->gpu, vol, "vol");

	if (ret)
		return ret;
	gnv_qp_stop(vol->qp, count_qps(vol), stop != 0);
	return 0;
}

GPUNVME_API int gpunvme_volume_recover(struct gpunvme_volume *vol)
{
	struct gpunvme_qp_info info = { .size = sizeof(info) };
	struct gnv_message cause = { "" };
	int ret = gnv_enter(vol->gpu, vol, "vol"), err;
	uint32_t i;

	if (ret)
		return ret;
	for (i = 0; i < count_qps(vol); i++) {
		err = gpunvme_qp_get_info(vol->qp[i], &info);
		if (!err && info.poison)
			err = gpunvme_qp_recover(vol->qp[i]);
		if (err && !ret)
			cause = gnv_message();
		ret = ret ? ret : err;
	}
	return ret ? gnv_fail(ret, "%s", cause.text) : 0;
}

/* Is it of views, one of a queue that is no more? */
static bool is_old(const void *ctx, const struct gnv_table *table)
{
	const struct gpunvme_volume *vol = ctx;
	const struct gpunvme_dq *dq = (const void *)table->content;
	uint32_t i;

	for (i = 0; table->kind == GNV_TABLE_VIEWS && i < count_qps(vol); i++)
		if (gnv_qp_tag(vol->qp[i]) != dq[i].tag)
			return true;
	return false;
}

GPUNVME_API int gpunvme_volume_release_old(struct gpunvme_volume *vol)
{
	uint32_t i;
	int ret = gnv_enter(vol->gpu, vol, "vol");

	if (ret)
		return ret;
	for (i = 0; i < count_qps(vol); i++)
		gpunvme_qp_release_old(vol->qp[i]);
	gnv_tables_drop(&vol->tables, is_old, vol);
	return 0;
}

GPUNVME_API int gpunvme_volume_get_info(struct gpunvme_volume *vol, struct gpunvme_volume_info *user)
{
	struct gpunvme_volume_info info = { .size = sizeof(info) };
	struct gpunvme_qp_info qp = { .size = sizeof(qp) };
	uint32_t i;
	int ret = gnv_enter(vol->gpu, vol, "vol");

	if (ret)
		return ret;
	info.members = vol->members;
	info.queues = vol->queues;
	info.stripe = vol->stripe;
	info.lba_size = vol->lba_size;
	info.nblocks = vol->nblocks;
	for (i = 0; i < count_qps(vol); i++) {
		ret = gpunvme_qp_get_info(vol->qp[i], &qp);
		if (ret)
			return ret;
		info.poisoned += qp.poison != 0;
		info.submitted += qp.submitted;
	}
	return gnv_info_copy(user, &info, gpunvme_volume_info);
}
