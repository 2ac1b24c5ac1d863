/* SPDX-License-Identifier: MIT */
/*
 * The processor that runs the lanes. So far: threads of this process.
 * Invariant: the object lives until the last reference is dropped, whoever holds it.
 */
#include "gpu.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/opts.h"

#define CPU_TICKS_PER_MS 1000000u /* the lanes read CLOCK_MONOTONIC in nanoseconds */

struct gpunvme_gpu {
	unsigned refs;	    /* atomic */
	bool said_unlocked; /* atomic */
	struct gnv_log log;
	struct gpunvme_gpu_info info;
};

struct gpunvme_gpu *gnv_gpu_get(struct gpunvme_gpu *gpu)
{
	__atomic_fetch_add(&gpu->refs, 1, __ATOMIC_RELAXED);
	return gpu;
}

void gnv_gpu_put(struct gpunvme_gpu *gpu)
{
	if (__atomic_sub_fetch(&gpu->refs, 1, __ATOMIC_ACQ_REL) == 0)
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
		 uint32_t nblocks)
{
	(void)gpu; /* a thread of this process is a lane of the only kind there is */
	return gpunvme_read(dq, dbuf, 0, lba, nblocks);
}

/* What follows "cpu": nothing, or ":" and a width. */
static int parse_cpu(const char *rest, uint32_t *width)
{
	static const struct {
		const char *text;
		uint32_t width;
	} widths[] = { { "", 1 }, { ":1", 1 }, { ":4", 4 }, { ":32", 32 } };
	size_t i;

	for (i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		if (!strcmp(rest, widths[i].text)) {
			*width = widths[i].width;
			return 0;
		}
	}
	return gnv_fail(-EINVAL, "gpu 'cpu%s': the width must be 1, 4 or 32, as in 'cpu:4'", rest);
}

static int parse_spec(const char *spec, uint32_t *width)
{
	if (!strcmp(spec, "auto")) {
		*width = 1;
		return 0;
	}
	if (!strncmp(spec, "cpu", 3) && (!spec[3] || spec[3] == ':'))
		return parse_cpu(spec + 3, width);
	if (!strncmp(spec, "hsa:", 4))
		return gnv_fail(-EOPNOTSUPP, "gpu '%s': this version cannot use AMD GPUs yet; use 'cpu'", spec);
	if (!strncmp(spec, "cuda:", 5))
		return gnv_fail(-EOPNOTSUPP, "gpu '%s': this version cannot use NVIDIA GPUs yet; use 'cpu'", spec);
	return gnv_fail(-EINVAL, "gpu '%s' is not known; valid: cpu[:WIDTH], hsa:N, hsa:BDF, cuda:N, auto", spec);
}

GPUNVME_API int gpunvme_gpu_open(const char *spec, const struct gpunvme_gpu_opts *user, struct gpunvme_gpu **gpu)
{
	struct gpunvme_gpu_opts opts = GPUNVME_GPU_OPTS_INIT;
	struct gpunvme_gpu *made;
	uint32_t width = 1;
	int ret;

	if (!spec || !gpu)
		return gnv_fail(-EINVAL, "gpunvme_gpu_open: spec and gpu must not be NULL");
	ret = gnv_opts_copy(&opts, sizeof(opts), user, "gpunvme_gpu_opts");
	if (!ret)
		ret = parse_spec(spec, &width);
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return gnv_fail(-ENOMEM, "out of memory");
	made->refs = 1;
	made->log = (struct gnv_log){ opts.log, opts.log_ctx };
	made->info.kind = GPUNVME_GPU_CPU;
	made->info.width = width;
	made->info.ticks_per_ms = CPU_TICKS_PER_MS;
	snprintf(made->info.name, sizeof(made->info.name), "CPU threads, %u to a wave", width);
	*gpu = made;
	return 0;
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
