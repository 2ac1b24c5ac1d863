/* SPDX-License-Identifier: MIT */
/* The description of a controller, from its configuration and its stores. */
#include "soft/core/controller.h"

#include <errno.h>

#include "util/bits.h"
#include "util/log.h"

/* The first key that a drive with parts cannot have, or NULL. */
static const char *contradiction(const struct gnv_soft_model *model)
{
	if (!model->parts.units)
		return NULL;
	if (model->iops || model->bw)
		return model->iops ? "iops" : "bw";
	if (model->lat_us || model->p99_us)
		return model->lat_us ? "lat_us" : "p99_us";
	return NULL;
}

static int check_parts(const struct gnv_soft_parts *p)
{
	if (p->read_p99_ns && p->read_p99_ns < p->read_ns)
		return gnv_fail(-EINVAL, "read_p99_us= is less than read_us=: the tail is longer than the median. Raise it or leave it out");
	if (!p->channels != !p->channel_bw)
		return gnv_fail(-EINVAL, "channels= and channel_bw= need each other. Add the other one or leave both out");
	if (!p->buffer != !p->drain)
		return gnv_fail(-EINVAL, "buffer= and drain= need each other. Add the other one or leave both out");
	return 0;
}

int gnv_soft_timing_check(const struct gnv_soft_model *model)
{
	const bool tail = model->p99_us || model->parts.read_p99_ns;
	const char *key = contradiction(model);

	if (key)
		return gnv_fail(-EINVAL, "%s= contradicts model=, which has its own rates and latencies. Leave one of them out", key);
	if (model->p99_us && model->p99_us < model->lat_us)
		return gnv_fail(-EINVAL, "p99_us=%u is less than lat_us=%u: the tail is longer than the latency. Raise it or leave it out",
				model->p99_us, model->lat_us);
	if (model->p99_us && !model->lat_us)
		return gnv_fail(-EINVAL, "p99_us=%u needs lat_us, the latency that half of the commands have", model->p99_us);
	if (model->seed && !tail)
		return gnv_fail(-EINVAL, "seed=%u has no effect without %s. Add that or leave it out", model->seed,
				model->parts.units ? "read_p99_us" : "p99_us");
	return check_parts(&model->parts);
}

static bool is_block_size(uint32_t size)
{
	return !size || size == 512 || size == 4096;
}

int gnv_soft_check_config(const struct gnv_soft_config *c)
{
	size_t i;

	if (!c->path || !c->path[0])
		return gnv_fail(-EINVAL, "the soft controller needs the path of an image file or block device");
	if (!is_block_size(c->lba_size))
		return gnv_fail(-EINVAL, "block size %u is not supported. Use 512 or 4096", c->lba_size);
	for (i = 0; i < GNV_ARRAY_LEN(c->more); i++)
		if (!is_block_size(c->more[i].lba_size))
			return gnv_fail(-EINVAL, "block size %u is not supported. Use 512 or 4096", c->more[i].lba_size);
	if (c->mdts > 16)
		return gnv_fail(-EINVAL, "mdts %u is too large. Use 0 (no limit) to 16", c->mdts);
	if (c->queues < 1 || c->queues > 1024)
		return gnv_fail(-EINVAL, "%u queues cannot be offered. Use 1 to 1024", c->queues);
	if (c->depth < 2 || c->depth > 65536)
		return gnv_fail(-EINVAL, "queue depth %u is not possible. Use 2 to 65536", c->depth);
	if (c->dstrd > 8)
		return gnv_fail(-EINVAL, "doorbell stride %u is too large. Use 0 to 8", c->dstrd);
	if (c->cmb > 1024)
		return gnv_fail(-EINVAL, "%u MiB of memory in the controller are too many. Use 0 to 1024", c->cmb);
	if (c->threads < 1 || c->threads > 64)
		return gnv_fail(-EINVAL, "%u threads cannot be used. Use 1 to 64", c->threads);
	return gnv_soft_timing_check(&c->model);
}

/* A drive's limit as a power of two. */
static void adopt_mdts(struct gnv_soft *soft, uint64_t max_bytes)
{
	const uint32_t most = max_bytes ? gnv_log2(gnv_max(max_bytes, 8192) / 4096) : 0;

	if (most && (!soft->config.mdts || soft->config.mdts > most))
		soft->config.mdts = most;
}

/* A drive without these limits gets an older version, which has no way to report them. */
static bool tells_limits(const struct gnv_soft_store *store)
{
	const struct gpunvme_id_ctrl_nvm *limits = store->drive ? &store->drive->limits : NULL;

	return limits && (limits->dmrsl || limits->wzsl || limits->dmrl || limits->dmsl);
}

void gnv_soft_describe(struct gnv_soft *soft)
{
	const bool hints = gnv_soft_has(&soft->config.quirks, GNV_SOFT_HINTS);
	unsigned i;

	soft->io = (struct gnv_soft_io){ .quirks = &soft->config.quirks,
					 .rules = &soft->config.rules,
					 .part = soft->part,
					 .parts = soft->parts,
					 .page = 4096 };
	soft->faulty = soft->config.rules.count != 0;
	soft->version = hints ? GNV_SOFT_2_0 : GNV_SOFT_1_4;
	for (i = 0; i < soft->parts; i++) {
		adopt_mdts(soft, soft->part[i].store->max_bytes);
		if (tells_limits(soft->part[i].store))
			soft->version = GNV_SOFT_2_0;
	}
	soft->max_transfer = soft->config.mdts ? 4096u << soft->config.mdts : 0;
	for (i = 0; i < soft->parts; i++) {
		const struct gnv_soft_store *store = soft->part[i].store;
		const uint32_t shift = gnv_log2(store->block);

		soft->part[i].ns = (struct gnv_soft_ns){ .lba_shift = shift,
							 .blocks = store->size >> shift,
							 .max_transfer = soft->max_transfer,
							 .max_range = hints ? GNV_SOFT_RANGE : 0,
							 .max_zeroes = hints ? 4096u << GNV_SOFT_WZSL : 0,
							 .read_only = store->read_only };
	}
}
