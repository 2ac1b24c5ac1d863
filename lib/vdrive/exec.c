/* SPDX-License-Identifier: MIT */
#include "vdrive/exec.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"

static const struct gnv_vd_exec_ops *const kinds[] = { &gnv_vd_exec_cpu };

int gnv_vd_exec_open(const char *on, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec)
{
	const char *colon;
	size_t i, len;

	if (!on)
		on = "cpu";
	colon = strchr(on, ':');
	len = colon ? (size_t)(colon - on) : strlen(on);
	for (i = 0; i < GNV_ARRAY_LEN(kinds); i++)
		if (strlen(kinds[i]->name) == len && !memcmp(kinds[i]->name, on, len))
			return kinds[i]->open(colon ? colon + 1 : NULL, log, workers, exec);
	return gnv_fail(-EINVAL, "on=%.40s in the URI: use on=cpu", on);
}
