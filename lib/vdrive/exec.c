/* SPDX-License-Identifier: MIT */
#include "vdrive/exec.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"

static const struct gnv_vd_exec_ops *const kinds[] = {
	&gnv_vd_exec_cpu,
	&gnv_vd_exec_cuda,
#if GNV_WITH_HSA
	&gnv_vd_exec_hsa,
#endif
};

int gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec)
{
	const char *on = wish.on ? wish.on : "cpu", *colon = strchr(on, ':');
	const size_t len = colon ? (size_t)(colon - on) : strlen(on);
	size_t i;

	wish.rest = colon ? colon + 1 : NULL;
	for (i = 0; i < GNV_ARRAY_LEN(kinds); i++)
		if (strlen(kinds[i]->name) == len && !memcmp(kinds[i]->name, on, len))
			return kinds[i]->open(&wish, log, workers, exec);
	if (len == 3 && !memcmp(on, "hsa", len))
		return gnv_fail(-EOPNOTSUPP, "on=%.40s in the URI: this library was built without AMD GPUs. Build it where libhsa-runtime-dev "
					     "is", on);
	return gnv_fail(-EINVAL, "on=%.40s in the URI: use on=cpu, on=cuda:N for an NVIDIA GPU, or on=hsa:N for an AMD GPU", on);
}
