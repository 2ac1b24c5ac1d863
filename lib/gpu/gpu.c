/* SPDX-License-Identifier: MIT */
/*
 * The processor that runs threads: the common part of all kinds.
 * Invariant: the object lives until the last reference is dropped.
 */
#include "gpu/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define FILL_THREADS 32u
#define READ_SLACK_MS 10000u /* a GPU has to start the kernel, too */

struct gpunvme_gpu *gnv_gpu_get(struct gpunvme_gpu *gpu)
{
	__atomic_fetch_add(&gpu->refs, 1, __ATOMIC_RELAXED);
	return gpu;
}

void gnv_gpu_put(struct gpunvme_gpu *gpu)
{
	if (__atomic_sub_fetch(&gpu->refs, 1, __ATOMIC_ACQ_REL))
		return;
	gpu->ops->close(gpu);
	free(gpu);
}

const struct gnv_log *gnv_gpu_log(const struct gpunvme_gpu *gpu)
{
	return &gpu->log;
}

uint32_t gnv_gpu_ticks_per_ms(const struct gpunvme_gpu *gpu)
{
	return gpu->info.ticks_per_ms;
}

bool gnv_gpu_same(const struct gpunvme_gpu *a, const struct gpunvme_gpu *b)
{
	return a == b || (a->ops == b->ops && *a->spec && !strcmp(a->spec, b->spec));
}

bool gnv_gpu_first_unlocked(struct gpunvme_gpu *gpu)
{
	return !__atomic_exchange_n(&gpu->said_unlocked, true, __ATOMIC_RELAXED);
}

int gnv_gpu_read(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t lba,
		 uint32_t nblocks, int *result)
{
	struct gnv_read_args args = { .dq = *dq, .dbuf = *dbuf, .lba = lba, .nblocks = nblocks };
	const struct gnv_launch launch = {
		.kernel = GNV_KERNEL_READ,
		.args = &args,
		.args_len = sizeof(args),
		.threads = 1,
		.timeout_ms = (uint32_t)(dq->cmd_timeout / dq->ticks_per_ms) + READ_SLACK_MS,
	};
	struct gnv_gpu_range out;
	int32_t answer;
	int ret = gpu->ops->local_alloc(gpu, sizeof(answer), &out);

	if (ret)
		return ret;
	args.out = out.lane;
	ret = gpu->ops->launch(gpu, &launch);
	if (!ret)
		ret = gpu->ops->peek(gpu, &answer, out.lane, sizeof(answer));
	if (ret != -ETIMEDOUT) /* a thread that still runs writes there */
		gpu->ops->local_free(gpu, &out, sizeof(answer));
	if (!ret)
		*result = answer;
	return ret;
}

int gnv_gpu_fill(struct gpunvme_gpu *gpu, uint64_t lane, uint64_t len, uint32_t value)
{
	const struct gnv_fill_args args = { .at = lane, .words = len / 4, .value = value };
	const struct gnv_launch launch = {
		.kernel = GNV_KERNEL_FILL,
		.args = &args,
		.args_len = sizeof(args),
		.threads = FILL_THREADS,
		.timeout_ms = READ_SLACK_MS,
	};

	return gpu->ops->launch(gpu, &launch);
}

GPUNVME_API int gpunvme_gpu_close(struct gpunvme_gpu *gpu)
{
	if (!gpu)
		return 0;
	if (gnv_foreign(gpu->process))
		return -ECHILD;
	gnv_log_end(&gpu->log);
	gnv_gpu_put(gpu);
	return 0;
}

GPUNVME_API int gpunvme_gpu_get_info(const struct gpunvme_gpu *gpu, struct gpunvme_gpu_info *info)
{
	int ret = gnv_enter(gpu, gpu, "gpu");

	if (ret)
		return ret;
	return gnv_info_copy(info, &gpu->info, gpunvme_gpu_info);
}

GPUNVME_API int gpunvme_gpu_fence(struct gpunvme_gpu *gpu)
{
	int ret = gnv_enter(gpu, gpu, "gpu");

	if (ret)
		return ret;
	return gpu->ops->fence(gpu);
}

GPUNVME_API int gpunvme_gpu_coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what)
{
	int ret = gnv_enter(gpu, gpu, "gpu");

	if (ret)
		return ret;
	if (what != GPUNVME_COHERENCE_HDP && what != GPUNVME_COHERENCE_INVALIDATE)
		return gnv_fail(-EINVAL, "gpunvme_gpu_coherence: %d is neither GPUNVME_COHERENCE_HDP nor _INVALIDATE", (int)what);
	return gpu->ops->coherence(gpu, what);
}
