/* SPDX-License-Identifier: MIT */
/* Copies by the library's own kernel. */
#include <gpunvme/run.h>

#include <errno.h>
#include <stdlib.h>

#include "run/run.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"

#define THREADS_AUTO 64u /* for each queue */
#define STEP_BYTES (256u << 10)

static uint32_t op_of(uint32_t flags)
{
	if (flags & GPUNVME_COPY_FLUSH)
		return GPUNVME_IO_FLUSH;
	if (flags & GPUNVME_COPY_WRITE)
		return GPUNVME_IO_WRITE | (flags & GPUNVME_COPY_FUA ? GPUNVME_RW_FUA : 0);
	return GPUNVME_IO_READ;
}

static int prepare(const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf, const struct gpunvme_copy *copy,
		   struct gnv_run *run, struct gnv_copy_args *args)
{
	uint32_t step = (uint32_t)gnv_min(dq->max_blocks, STEP_BYTES >> dq->lba_shift);
	bool flush = copy->flags & GPUNVME_COPY_FLUSH;
	int ret;

	if (copy->flags & GPUNVME_COPY_WRITE && copy->nblocks <= dq->atomic)
		step = (uint32_t)copy->nblocks; /* the drive writes it whole */
	if (copy->flags & ~(uint32_t)(GPUNVME_COPY_WRITE | GPUNVME_COPY_FLUSH | GPUNVME_COPY_FUA) || copy->reserved)
		return gnv_fail(-EINVAL, "unknown copy flags 0x%x. Valid are GPUNVME_COPY_WRITE, _FLUSH, _FUA", copy->flags);
	if (copy->flags & GPUNVME_COPY_FUA && !(copy->flags & GPUNVME_COPY_WRITE))
		return gnv_fail(-EINVAL, "GPUNVME_COPY_FUA goes with GPUNVME_COPY_WRITE");
	if (!queues || (!copy->nblocks && !flush))
		return gnv_fail(-EINVAL, "gpunvme_run_copy: no queue, or no block to move");
	ret = flush ? 0 : gnv_run_check_range(dq, queues, dbuf, copy->lba, copy->nblocks);
	if (ret)
		return ret;
	run->threads = flush ? 1 : copy->threads ? copy->threads : (uint32_t)gnv_min((uint64_t)THREADS_AUTO * queues, GNV_RUN_THREADS_MAX);
	if (run->threads > GNV_RUN_THREADS_MAX)
		return gnv_fail(-EINVAL, "%u threads are too many for a copy: use %u or less", run->threads, GNV_RUN_THREADS_MAX);
	*args = (struct gnv_copy_args){
		.dbuf = *dbuf, .lba = copy->lba, .nblocks = copy->nblocks, .step = copy->step ? copy->step : step ? step : 1,
		.queues = queues, .op = op_of(copy->flags),
	};
	return 0;
}

static int first_failure(const struct gnv_copy_result *result, uint32_t threads, struct gpunvme_copy *copy)
{
	const struct gnv_copy_result *first = NULL;
	uint32_t i;

	for (i = 0; i < threads; i++)
		if (result[i].status && (!first || result[i].lba < first->lba))
			first = &result[i];
	if (!first)
		return 0;
	copy->failed_lba = first->lba;
	copy->failed_nblocks = first->nblocks;
	if (!first->nblocks)
		return gnv_fail(first->status, "the flush of a thread failed: %s", gpunvme_strerror(first->status));
	return gnv_fail(first->status, "threads could not move %u blocks from block %llu of the view on: %s", first->nblocks,
			(unsigned long long)first->lba, gpunvme_strerror(first->status));
}

GPUNVME_API int gpunvme_run_copy(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				 const struct gpunvme_dbuf *dbuf, struct gpunvme_copy *user)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct gnv_copy_args args;
	struct gnv_run run = GNV_RUN_INIT(gpu, dq, queues, GNV_KERNEL_COPY, &args, struct gnv_copy_result);
	int ret = gnv_run_enter(gpu, dq, dbuf, user, &copy, copy);

	if (ret)
		return ret;
	copy.failed_lba = copy.failed_nblocks = 0; /* the caller may use the structure again */
	gnv_info_copy(user, &copy, gpunvme_copy);
	ret = gnv_run_check(gpu, dq, queues, dbuf);
	if (!ret)
		ret = prepare(dq, queues, dbuf, &copy, &run, &args);
	if (ret)
		return ret;
	ret = gnv_run_for_results(&run);
	if (!ret)
		ret = first_failure(run.result, run.threads, &copy);
	free(run.result);
	gnv_info_copy(user, &copy, gpunvme_copy);
	return ret;
}
