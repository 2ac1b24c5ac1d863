/* SPDX-License-Identifier: MIT */
/*
 * The processor that runs the lanes: which kind a spec names, and what all kinds share.
 * Invariant: the object lives until the last reference is dropped, whoever holds it.
 */
#include "gpu/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"
#include "util/opts.h"

#define AUTO_GPUS 16u
#define FILL_LANES 32u
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
		.lanes = 1,
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
	if (ret != -ETIMEDOUT) /* a lane that still runs writes there */
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
		.lanes = FILL_LANES,
		.timeout_ms = READ_SLACK_MS,
	};

	return gpu->ops->launch(gpu, &launch);
}

/* In the order of `auto`, threads of the CPU last. */
static const struct gnv_gpu_ops *const kinds[] = {
#if GNV_WITH_HSA
	&gnv_gpu_hsa_ops,
#endif
	&gnv_gpu_cuda_ops,
	&gnv_gpu_cpu_ops,
};

/* The kind of lanes that a spec names, and what follows its ':' (NULL: nothing). */
static int parse_spec(const char *spec, const struct gnv_gpu_ops **ops, const char **rest)
{
	const char *colon = strchr(spec, ':');
	size_t len = colon ? (size_t)(colon - spec) : strlen(spec), i;

	*rest = colon ? colon + 1 : NULL;
	for (i = 0; i < GNV_ARRAY_LEN(kinds); i++) {
		*ops = kinds[i];
		if (len == strlen(kinds[i]->name) && !strncmp(spec, kinds[i]->name, len))
			return 0;
	}
	if (!strncmp(spec, "hsa:", 4))
		return gnv_fail(-EOPNOTSUPP, "gpu '%s': this library was built without AMD GPUs; build it where libhsa-runtime-dev is", spec);
	return gnv_fail(-EINVAL, "gpu '%s' is not known; valid: cpu[:WIDTH], hsa:N, hsa:BDF, cuda:N, auto", spec);
}

static int open_kind(const struct gnv_gpu_ops *ops, const char *rest, const struct gpunvme_gpu_opts *opts, struct gpunvme_gpu **gpu)
{
	struct gpunvme_gpu *made = calloc(1, sizeof(*made));
	int ret;

	if (!made)
		return gnv_fail(-ENOMEM, "out of memory");
	made->refs = 1;
	made->log = (struct gnv_log){ opts->log, opts->log_ctx };
	made->ops = ops;
	ret = ops->open(made, rest);
	if (ret)
		free(made);
	else
		*gpu = made;
	return ret;
}

/* The first GPU of a kind that can be used. -ENODEV ends the numbers. */
static int open_first(const struct gnv_gpu_ops *ops, const struct gpunvme_gpu_opts *opts, struct gpunvme_gpu **gpu)
{
	const struct gnv_log log = { opts->log, opts->log_ctx };
	char rest[8], said[256] = "";
	unsigned n;
	int ret = -ENODEV;

	for (n = 0; n < AUTO_GPUS; n++) {
		snprintf(rest, sizeof(rest), "%u", n);
		ret = open_kind(ops, rest, opts, gpu);
		if (!ret || (n && ret == -ENODEV))
			break;
		if (strncmp(said, gpunvme_errmsg(), sizeof(said) - 1)) /* what stops all of them is said once */
			gnv_log(&log, GPUNVME_LOG_INFO, "auto: not %s:%u: %s", ops->name, n, gpunvme_errmsg());
		snprintf(said, sizeof(said), "%s", gpunvme_errmsg());
		if (ret == -ENODEV)
			break;
	}
	return ret;
}

static int open_best(const struct gpunvme_gpu_opts *opts, struct gpunvme_gpu **gpu)
{
	const struct gnv_log log = { opts->log, opts->log_ctx };
	size_t i;
	int ret = -ENODEV;

	for (i = 0; ret && i + 1 < GNV_ARRAY_LEN(kinds); i++)
		ret = open_first(kinds[i], opts, gpu);
	if (ret)
		ret = open_kind(kinds[i], NULL, opts, gpu);
	if (!ret)
		gnv_log(&log, GPUNVME_LOG_INFO, "auto: the lanes are those of %s", (*gpu)->info.name);
	return ret;
}

GPUNVME_API int gpunvme_gpu_open(const char *spec, const struct gpunvme_gpu_opts *user, struct gpunvme_gpu **gpu)
{
	struct gpunvme_gpu_opts opts = GPUNVME_GPU_OPTS_INIT;
	const struct gnv_gpu_ops *ops;
	const char *rest;
	int ret;

	if (!spec || !gpu)
		return gnv_fail(-EINVAL, "gpunvme_gpu_open: spec and gpu must not be NULL");
	ret = gnv_opts_copy(&opts, sizeof(opts), user, "gpunvme_gpu_opts");
	if (ret)
		return ret;
	if (!strcmp(spec, "auto"))
		return open_best(&opts, gpu);
	ret = parse_spec(spec, &ops, &rest);
	return ret ? ret : open_kind(ops, rest, &opts, gpu);
}

GPUNVME_API void gpunvme_gpu_close(struct gpunvme_gpu *gpu)
{
	if (gpu)
		gnv_gpu_put(gpu);
}

GPUNVME_API int gpunvme_gpu_info(const struct gpunvme_gpu *gpu, struct gpunvme_gpu_info *info)
{
	if (!gpu)
		return gnv_fail(-EINVAL, "gpunvme_gpu_info: gpu must not be NULL");
	return gnv_info_copy(info, &gpu->info, sizeof(gpu->info), "gpunvme_gpu_info");
}

GPUNVME_API int gpunvme_gpu_coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what)
{
	if (!gpu)
		return gnv_fail(-EINVAL, "gpunvme_gpu_coherence: gpu must not be NULL");
	if (what != GPUNVME_COHERENCE_HDP && what != GPUNVME_COHERENCE_INVALIDATE)
		return gnv_fail(-EINVAL, "gpunvme_gpu_coherence: %d is neither GPUNVME_COHERENCE_HDP nor _INVALIDATE", (int)what);
	return gpu->ops->coherence(gpu, what);
}
