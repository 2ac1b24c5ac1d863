/* SPDX-License-Identifier: MIT */
/*
 * Several queue pairs as one volume, of one controller or striped over several: its life. What kernels see: volume_view.c.
 */
#include "queue/volume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define QUEUES_AUTO 8u
#define STRIPE_BYTES (128u << 10)

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
	/* As of a namespace: all users count its bytes in 64 bits. */
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
	uint32_t i = vol->qp ? gnv_volume_qps(vol) : 0;

	while (i--)
		gnv_qp_discard(vol->qp[i]);
}

/* Return: 0; -EBUSY a queue is left, for the next call. */
static int destroy_qps(struct gpunvme_volume *vol)
{
	uint32_t i = vol->qp ? gnv_volume_qps(vol) : 0;
	int ret = 0, kept;

	while (i--) {
		kept = gpunvme_qp_destroy(vol->qp[i]);
		if (!ret)
			ret = kept;
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
	if (ret)
		return ret;
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
	if (ret)
		goto discard;
	ret = measure(vol, opts.stripe);
	if (ret)
		goto discard;
	ret = create_qps(vol, &opts);
	if (ret)
		goto discard;
	*out = vol;
	return 0;

discard:
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

GPUNVME_API int gpunvme_volume_stop(struct gpunvme_volume *vol, int stop)
{
	int ret = gnv_enter(vol->gpu, vol, "vol");

	if (ret)
		return ret;
	gnv_qp_stop(vol->qp, gnv_volume_qps(vol), stop != 0);
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
	for (i = 0; i < gnv_volume_qps(vol); i++) {
		err = gpunvme_qp_get_info(vol->qp[i], &info);
		if (!err && info.poison)
			err = gpunvme_qp_recover(vol->qp[i]);
		if (err && !ret)
			cause = gnv_message();
		if (!ret)
			ret = err;
	}
	return ret ? gnv_fail(ret, "%s", cause.text) : 0;
}

/* Is it of views, one of a queue that is no more? */
static bool is_old(const void *ctx, const struct gnv_table *table)
{
	const struct gpunvme_volume *vol = ctx;
	const struct gpunvme_dq *dq = (const void *)table->content;
	uint32_t i;

	for (i = 0; table->kind == GNV_TABLE_VIEWS && i < gnv_volume_qps(vol); i++)
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
	for (i = 0; i < gnv_volume_qps(vol); i++)
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
	for (i = 0; i < gnv_volume_qps(vol); i++) {
		ret = gpunvme_qp_get_info(vol->qp[i], &qp);
		if (ret)
			return ret;
		info.poisoned += qp.poison != 0;
		info.submitted += qp.submitted;
	}
	return gnv_info_copy(user, &info, gpunvme_volume_info);
}
