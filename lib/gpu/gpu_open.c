/* SPDX-License-Identifier: MIT */
/* The GPU that a spec names, and the one that `auto` takes: the first GPU that can be used, or else the CPU. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define AUTO_GPUS 16u

/* In the order of `auto`, threads of the CPU last. */
static const struct gnv_gpu_ops *const kinds[] = {
#if GNV_WITH_HSA
	&gnv_gpu_hsa_ops,
#endif
	&gnv_gpu_cuda_ops,
	&gnv_gpu_cpu_ops,
};

/* The kind of GPU that a spec names, and the text after its ':' (NULL: nothing). */
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
		return gnv_fail(-EOPNOTSUPP, "gpu '%s': this library was built without AMD GPUs. Build it where libhsa-runtime-dev "
					     "is", spec);
	return gnv_fail(-EINVAL, "gpu '%s' is not known. Valid are cpu[:WIDTH], hsa:N, hsa:BDF, cuda:N, auto", spec);
}

static int open_kind(const struct gnv_gpu_ops *ops, const char *rest, const struct gpunvme_gpu_opts *opts, struct gpunvme_gpu **gpu)
{
	struct gpunvme_gpu *made = calloc(1, sizeof(*made));
	int ret;

	if (!made)
		return gnv_fail(-ENOMEM, "out of memory");
	made->refs = 1;
	made->process = gnv_process();
	made->log = (struct gnv_log){ .fn = opts->log, .ctx = opts->log_ctx };
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
	const struct gnv_log log = { .fn = opts->log, .ctx = opts->log_ctx };
	char rest[8], said[256] = "";
	unsigned n;
	int ret = -ENODEV;

	for (n = 0; n < AUTO_GPUS; n++) {
		snprintf(rest, sizeof(rest), "%u", n);
		ret = open_kind(ops, rest, opts, gpu);
		if (!ret || (n && ret == -ENODEV))
			break;
		if (strncmp(said, gpunvme_errmsg(), sizeof(said) - 1)) /* a cause that stops all of them is logged once */
			gnv_log(&log, GPUNVME_LOG_INFO, "auto: not %s:%u: %s", ops->name, n, gpunvme_errmsg());
		snprintf(said, sizeof(said), "%s", gpunvme_errmsg());
		if (ret == -ENODEV)
			break;
	}
	return ret;
}

static int open_auto(const struct gpunvme_gpu_opts *opts, struct gpunvme_gpu **gpu)
{
	const struct gnv_log log = { .fn = opts->log, .ctx = opts->log_ctx };
	size_t i;
	int ret = -ENODEV;

	for (i = 0; ret && i + 1 < GNV_ARRAY_LEN(kinds); i++)
		ret = open_first(kinds[i], opts, gpu);
	if (ret)
		ret = open_kind(kinds[i], NULL, opts, gpu);
	if (!ret)
		gnv_log(&log, GPUNVME_LOG_INFO, "auto: the threads are those of %s", (*gpu)->info.name);
	return ret;
}

GPUNVME_API int gpunvme_gpu_open(const char *spec, const struct gpunvme_gpu_opts *user, struct gpunvme_gpu **gpu)
{
	struct gpunvme_gpu_opts opts = GPUNVME_GPU_OPTS_INIT;
	const struct gnv_gpu_ops *ops;
	const char *rest;
	int ret;

	if (!spec || !gpu)
		return gnv_null("spec and gpu");
	ret = gnv_opts_copy(&opts, user, gpunvme_gpu_opts);
	if (ret)
		return ret;
	if (!strcmp(spec, "auto"))
		return open_auto(&opts, gpu);
	ret = parse_spec(spec, &ops, &rest);
	if (ret)
		return ret;
	return open_kind(ops, rest, &opts, gpu);
}
