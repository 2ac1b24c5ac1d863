/* SPDX-License-Identifier: MIT */
/* Loads by the library's own kernel. */
#include <gpunvme/unstable.h>

#include <errno.h>
#include <stdlib.h>

#include "run/run.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"

#define THREADS_AUTO 64u /* for each queue */

/* Places of a command that every view has, and that the buffer has for every view. */
static void count_places(const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf,
			 struct gnv_workload_args *args)
{
	uint32_t i;

	args->slots = args->places = UINT64_MAX;
	for (i = 0; i < queues; i++) {
		args->slots = gnv_min(args->slots, dq[i].lba_count / args->nblocks);
		args->places = gnv_min(args->places, dbuf->len / ((uint64_t)args->nblocks << dq[i].lba_shift));
	}
}

static int prepare(const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf,
		   const struct gpunvme_workload *load, struct gnv_run *run, struct gnv_workload_args *args)
{
	int ret;

	if (load->flags & ~(uint32_t)(GPUNVME_WORKLOAD_WRITE | GPUNVME_WORKLOAD_RANDOM))
		return gnv_fail(-EINVAL, "unknown workload flags 0x%x. Valid are GPUNVME_WORKLOAD_WRITE, _RANDOM", load->flags);
	if (!queues || !load->nblocks || !load->ms)
		return gnv_fail(-EINVAL, "gpunvme_workload_run: no queue, no block to move, or no time");
	ret = gnv_run_check_range(dq, queues, dbuf, 0, load->nblocks);
	if (ret)
		return ret;
	run->threads = load->threads ? load->threads : (uint32_t)gnv_min((uint64_t)THREADS_AUTO * queues, GNV_RUN_THREADS_MAX);
	if (run->threads > GNV_RUN_THREADS_MAX)
		return gnv_fail(-EINVAL, "%u threads are too many for a workload: use %u or less", run->threads, GNV_RUN_THREADS_MAX);
	run->ms = load->ms;
	*args = (struct gnv_workload_args){
		.dbuf = *dbuf, .ticks = (uint64_t)load->ms * dq->ticks_per_ms, .seed = load->seed, .nblocks = load->nblocks, .queues = queues,
		.write = (load->flags & GPUNVME_WORKLOAD_WRITE) != 0, .random = (load->flags & GPUNVME_WORKLOAD_RANDOM) != 0,
	};
	count_places(dq, queues, dbuf, args);
	return 0;
}

static int add_up(const struct gnv_workload_result *result, const struct gnv_run *run, const struct gnv_workload_args *args,
		  struct gpunvme_workload *load)
{
	uint64_t began = UINT64_MAX, ended = 0;
	int status = 0;
	uint32_t i;

	load->commands = 0;
	for (i = 0; i < run->threads; i++) {
		load->commands += result[i].commands;
		began = gnv_min(began, result[i].began);
		ended = result[i].ended > ended ? result[i].ended : ended;
		status = status ? status : result[i].status;
	}
	load->took_ns = (uint64_t)((double)(ended - began) * 1e6 / run->dq->ticks_per_ms);
	load->next = args->random ? load->seed * 6364136223846793005u + 1442695040888963407u : load->seed + load->commands;
	return status ? gnv_fail(status, "a command of the workload failed: %s", gpunvme_strerror(status)) : 0;
}

GPUNVME_API int gpunvme_workload_run(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				     const struct gpunvme_dbuf *dbuf, struct gpunvme_workload *user)
{
	struct gpunvme_workload load = GPUNVME_WORKLOAD_INIT;
	struct gnv_workload_args args;
	struct gnv_run run = GNV_RUN_INIT(gpu, dq, queues, GNV_KERNEL_WORKLOAD, &args, struct gnv_workload_result);
	int ret = gnv_run_enter(gpu, dq, dbuf, user, &load, workload);

	if (!ret)
		ret = gnv_run_check(gpu, dq, queues, dbuf);
	if (!ret)
		ret = prepare(dq, queues, dbuf, &load, &run, &args);
	if (ret)
		return ret;
	ret = gnv_run_for_results(&run);
	if (!ret)
		ret = add_up(run.result, &run, &args, &load);
	free(run.result);
	gnv_info_copy(user, &load, gpunvme_workload);
	return ret;
}
