/* SPDX-License-Identifier: MIT */
/*
 * Copies by the library's own kernel.
 * Invariant: memory that a lane may still write to (its kernel did not end in time) is not given back.
 */
#include <gpunvme/copy.h>

#include <errno.h>
#include <stdlib.h>

#include "gpu/gpu.h"
#include "util/bits.h"
#include "util/opts.h"

#define LANES_MAX 65536u
#define LANES_AUTO 64u /* for each queue */
#define STEP_BYTES (256u << 10)
#define SLACK_MS 10000u /* to start the kernel */

struct run {
	struct gpunvme_gpu *gpu;
	const struct gpunvme_dq *dq;
	struct gnv_copy_args args;
	uint32_t lanes;
	struct gnv_gpu_range views, results;
	size_t views_len, results_len;
	uint64_t seen; /* of the queues' positions */
};

/* Queues and buffer of other lanes: these would fault, or see data late. */
static int check_lanes(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf)
{
	uint32_t i;

	for (i = 0; i < queues; i++)
		if (dq[i].magic != GPUNVME_DQ_MAGIC || dq[i].major != GPUNVME_DQ_MAJOR || !dq[i].ticks_per_ms)
			return gnv_fail(-EINVAL, "view %u was not filled by this library's gpunvme_qp_view()", i);
	for (i = 0; i < queues; i++)
		if (gpu->ops->mem_check(gpu, dq[i].state, sizeof(struct gpunvme_dq_state)))
			return gnv_fail(-EXDEV,
					"view %u is of a queue for other lanes than %s, or of one that is gone; name the GPU that "
					"gpunvme_qp_create() was given",
					i, gpu->info.name);
	if (gpu->ops->mem_check(gpu, dbuf->base, dbuf->len) == -EXDEV)
		return gnv_fail(-EXDEV, "the buffer is memory of another GPU than %s; allocate it for the GPU of the queue",
				gpu->info.name);
	return 0;
}

static int prepare(const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf, const struct gpunvme_copy *copy,
		   struct run *run)
{
	uint32_t step = (uint32_t)gnv_min(dq->max_blocks, STEP_BYTES >> dq->lba_shift);
	bool flush = copy->flags & GPUNVME_COPY_FLUSH;

	if (copy->flags & ~(uint32_t)(GPUNVME_COPY_WRITE | GPUNVME_COPY_FLUSH) || copy->reserved)
		return gnv_fail(-EINVAL, "unknown copy flags 0x%x; valid: GPUNVME_COPY_WRITE, _FLUSH", copy->flags);
	if (!queues || (!copy->nblocks && !flush))
		return gnv_fail(-EINVAL, "gpunvme_copy: no queue, or no block to move");
	run->lanes = flush ? 1 : copy->lanes ? copy->lanes : (uint32_t)gnv_min((uint64_t)LANES_AUTO * queues, LANES_MAX);
	if (run->lanes > LANES_MAX)
		return gnv_fail(-EINVAL, "%u lanes are too many for a copy: use %u or less", run->lanes, LANES_MAX);
	run->dq = dq;
	run->views_len = queues * sizeof(*dq);
	run->results_len = run->lanes * sizeof(struct gnv_copy_result);
	run->args = (struct gnv_copy_args){
		.dbuf = *dbuf, .lba = copy->lba, .nblocks = copy->nblocks, .step = copy->step ? copy->step : step ? step : 1,
		.queues = queues, .write = (copy->flags & GPUNVME_COPY_WRITE) != 0, .flush = flush,
	};
	return 0;
}

/* Has any queue taken or completed a command since this was asked last? */
static bool gets_on(void *ctx)
{
	struct run *run = ctx;
	struct gpunvme_dq_state state;
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < run->args.queues; i++) {
		if (run->gpu->ops->peek(run->gpu, &state, run->dq[i].state, sizeof(state)))
			return false;
		sum += state.resv + state.drain;
	}
	i = sum != run->seen;
	run->seen = sum;
	return i;
}

static int first_failure(const struct gnv_copy_result *result, uint32_t lanes, struct gpunvme_copy *copy)
{
	const struct gnv_copy_result *first = NULL;
	uint32_t i;

	for (i = 0; i < lanes; i++)
		if (result[i].status && (!first || result[i].lba < first->lba))
			first = &result[i];
	if (!first)
		return 0;
	copy->failed_lba = first->lba;
	copy->failed_nblocks = first->nblocks;
	if (!first->nblocks)
		return gnv_fail(first->status, "the flush of a lane failed: %s", gpunvme_strerror(first->status));
	return gnv_fail(first->status, "lanes could not move %u blocks from block %llu of the view on: %s", first->nblocks,
			(unsigned long long)first->lba, gpunvme_strerror(first->status));
}

/* A lane waits for one command no longer than its queue's time-out, so a kernel in which nothing happens for so long hangs. */
static int launch(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, struct run *run, struct gnv_copy_result *result)
{
	const struct gnv_launch launch = {
		.kernel = GNV_KERNEL_COPY,
		.args = &run->args,
		.args_len = sizeof(run->args),
		.lanes = run->lanes,
		.timeout_ms = (uint32_t)gnv_min(dq->cmd_timeout / dq->ticks_per_ms, UINT32_MAX - SLACK_MS) + SLACK_MS,
		.gets_on = gets_on,
		.ctx = run,
	};
	int ret = gpu->ops->poke(gpu, run->views.lane, dq, run->views_len);

	gets_on(run);
	run->args.dq = run->views.lane;
	run->args.result = run->results.lane;
	if (!ret)
		ret = gpu->ops->launch(gpu, &launch);
	return ret ? ret : gpu->ops->peek(gpu, result, run->results.lane, run->results_len);
}

static int run_copy(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, struct run *run, struct gpunvme_copy *copy)
{
	struct gnv_copy_result *result = calloc(run->lanes, sizeof(*result));
	int ret;

	if (!result)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gpu->ops->local_alloc(gpu, run->views_len, &run->views);
	if (ret)
		goto free_result;
	ret = gpu->ops->local_alloc(gpu, run->results_len, &run->results);
	if (ret)
		goto free_views;
	ret = launch(gpu, dq, run, result);
	if (ret == -ETIMEDOUT) /* a lane that still runs uses them */
		goto free_result;
	if (!ret)
		ret = first_failure(result, run->lanes, copy);
	gpu->ops->local_free(gpu, &run->results, run->results_len);
free_views:
	gpu->ops->local_free(gpu, &run->views, run->views_len);
free_result:
	free(result);
	return ret;
}

GPUNVME_API int gpunvme_copy(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf,
			     struct gpunvme_copy *user)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct run run = { .gpu = gpu };
	int ret;

	if (!gpu || !dq || !dbuf || !user)
		return gnv_fail(-EINVAL, "gpunvme_copy: gpu, dq, dbuf and copy must not be NULL");
	ret = gnv_opts_copy(&copy, sizeof(copy), user, "gpunvme_copy");
	if (!ret)
		ret = check_lanes(gpu, dq, queues, dbuf);
	if (!ret)
		ret = prepare(dq, queues, dbuf, &copy, &run);
	if (ret)
		return ret;
	ret = run_copy(gpu, dq, &run, &copy);
	user->failed_lba = copy.failed_lba;
	user->failed_nblocks = copy.failed_nblocks;
	return ret;
}
