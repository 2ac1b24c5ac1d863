/* SPDX-License-Identifier: MIT */
/*
 * The library's own kernels on queues of the user's.
 * Invariant: memory that a thread may still write to (its kernel did not end in time) is not given back.
 */
#include "run/run.h"

#include <errno.h>
#include <stdlib.h>

#include "util/bits.h"
#include "util/checked.h"

#define SLACK_MS 10000u /* to start the kernel */

int gnv_run_check_head(const struct gpunvme_head *head, enum gpunvme_kind kind, const char *maker)
{
	if (head->version != GPUNVME_HEAD_VERSION)
		return gnv_fail(-EPROTONOSUPPORT, "a view is of another version of dq.h, or is none. Fill it by %s()", maker);
	if (head->kind == kind)
		return 0;
	return gnv_fail(-EINVAL, "a view is of another kind (%u) than that of %s() (%u)", head->kind, maker, kind);
}

int gnv_run_check_views(const struct gpunvme_dq *dq, uint32_t queues)
{
	uint32_t i;
	int ret;

	for (i = 0; i < queues; i++) {
		ret = gnv_run_check_head(&dq[i].head, GPUNVME_KIND_QUEUE, "gpunvme_queue_view");
		if (ret)
			return ret;
		if (!dq[i].ticks_per_ms)
			return gnv_fail(-EINVAL, "view %u was not filled by this library's gpunvme_queue_view()", i);
	}
	return 0;
}

int gnv_run_check(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf)
{
	uint32_t i;
	int ret = gnv_run_check_views(dq, queues);

	if (ret)
		return ret;
	for (i = 0; i < queues; i++) {
		ret = gpu->ops->mem_check(gpu, dq[i].state, sizeof(struct gpunvme_dq_state));
		if (ret && ret != -ENOENT && ret != -ERANGE && ret != -EXDEV)
			return ret; /* the runtime failed, and the error message says so */
		if (ret)
			return gnv_fail(-EXDEV,
					"view %u is of a queue for other threads than those of %s, or of one that is gone. Name "
					"the GPU that gpunvme_queue_create() was given",
					i, gpu->info.name);
	}
	if (gpu->ops->mem_check(gpu, dbuf->base, dbuf->len) == -EXDEV)
		return gnv_fail(-EXDEV, "the buffer is memory of another GPU than %s. Allocate it for the GPU of the queue",
				gpu->info.name);
	return 0;
}

int gnv_run_check_range(const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf, uint64_t lba,
			uint64_t nblocks)
{
	uint64_t bytes;
	uint32_t i;

	for (i = 0; i < queues; i++) {
		if (!gnv_within(lba, nblocks, dq[i].lba_count))
			return gnv_fail(-ERANGE, "blocks %llu to +%llu are not within view %u of %llu blocks", (unsigned long long)lba,
					(unsigned long long)nblocks, i, (unsigned long long)dq[i].lba_count);
		if (gnv_mul_overflow(nblocks, 1ull << (dq[i].lba_shift & 63), &bytes) || !gnv_within(0, bytes, dbuf->len))
			return gnv_fail(-ERANGE, "%llu blocks of view %u are more than the %llu bytes of the buffer",
					(unsigned long long)nblocks, i, (unsigned long long)dbuf->len);
	}
	return 0;
}

/* Has any queue taken or completed a command since this was asked last? */
static bool gets_on(void *ctx)
{
	struct gnv_run *run = ctx;
	struct gpunvme_dq_state state;
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < run->queues; i++) {
		if (run->gpu->ops->peek(run->gpu, &state, run->dq[i].state, sizeof(state)))
			return false;
		sum += state.resv + state.drain;
	}
	i = sum != run->seen;
	run->seen = sum;
	return i;
}

/* Of the queue that waits longest. */
static uint64_t timeout_ms(const struct gnv_run *run)
{
	uint64_t ms = 0;
	uint32_t i;

	for (i = 0; i < run->queues; i++)
		ms = gnv_max(ms, run->dq[i].cmd_timeout / run->dq[i].ticks_per_ms);
	return ms;
}

/* A thread waits for one command no longer than its queue's time-out, so a kernel in which nothing happens for so long hangs. */
static int launch(struct gnv_run *run)
{
	const uint64_t ms = timeout_ms(run) + run->ms;
	const struct gnv_launch launch = {
		.kernel = run->kernel,
		.args = run->args,
		.args_len = run->args_len,
		.threads = run->threads,
		.timeout_ms = (uint32_t)gnv_min(ms, UINT32_MAX - SLACK_MS) + SLACK_MS,
		.gets_on = gets_on,
		.ctx = run,
	};
	int ret = run->gpu->ops->poke(run->gpu, run->views.lane, run->dq, run->queues * sizeof(*run->dq));

	if (!ret && run->sent)
		ret = run->gpu->ops->poke(run->gpu, run->results.lane, run->result, run->threads * run->result_size);
	gets_on(run);
	*run->args_dq = run->views.lane;
	*run->args_result = run->results.lane;
	if (!ret)
		ret = run->gpu->ops->launch(run->gpu, &launch);
	if (ret)
		return ret;
	return run->gpu->ops->peek(run->gpu, run->result, run->results.lane, run->threads * run->result_size);
}

int gnv_run_kernel(struct gnv_run *run)
{
	const struct gnv_gpu_ops *ops = run->gpu->ops;
	size_t views_len = run->queues * sizeof(*run->dq), results_len = run->threads * run->result_size;
	int ret = ops->fence(run->gpu); /* the stores of the program's kernels, and memory that its copies made cached */

	if (!ret)
		ret = ops->local_alloc(run->gpu, views_len, &run->views);
	if (ret)
		return ret;
	ret = ops->local_alloc(run->gpu, results_len, &run->results);
	if (!ret) {
		ret = launch(run);
		if (ret == -ETIMEDOUT) /* a thread that still runs uses them */
			return ret;
		ops->local_free(run->gpu, &run->results, results_len);
	}
	ops->local_free(run->gpu, &run->views, views_len);
	return ret;
}

int gnv_run_for_results(struct gnv_run *run)
{
	run->result = calloc(run->threads, run->result_size);
	return run->result ? gnv_run_kernel(run) : gnv_fail(-ENOMEM, "out of memory");
}
