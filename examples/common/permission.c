/* SPDX-License-Identifier: MIT */
#include "permission.h"

#include <errno.h>

int session_lasts(const struct session *s)
{
	if (s->ns.medium != GPUNVME_MEDIUM_MEMORY && s->ns.medium != GPUNVME_MEDIUM_GPU)
		return GO_ON;
	return failed("%s is memory that begins with zeroes and is gone when this command ends, so there is nothing to read, and what is "
		      "written is lost: name an image file, or have bench, accept or serve use the memory",
		      s->uri);
}

int session_may_write(const struct session *s, const struct session_opts *o)
{
	int ret = gpunvme_ns_may_overwrite(s->dev, 0);

	if (!ret || (ret == -EPERM && o->yes))
		return GO_ON;
	return failed("%s%s", why(ret), ret == -EPERM ? ": add --yes if that is the drive you mean" : "");
}
