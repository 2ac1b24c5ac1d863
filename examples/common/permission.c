/* SPDX-License-Identifier: MIT */
#include "permission.h"

#include <errno.h>

static int is_memory(const struct session *s)
{
	return s->ns.medium == GPUNVME_MEDIUM_MEMORY || s->ns.medium == GPUNVME_MEDIUM_GPU;
}

int session_lasts(const struct session *s, int writes)
{
	if (!is_memory(s))
		return GO_ON;
	if (s->ns.medium_dev && !writes)
		return GO_ON; /* of image=FILE */
	if (s->ns.medium_dev)
		return failed("%s is memory that is gone when this command ends: name an image file, or use bench, qualify or serve with "
			      "the memory",
			      s->uri);
	return failed("%s is memory that begins with zeroes and is gone when this command ends: name an image file, or use bench, qualify "
		      "or serve with the memory",
		      s->uri);
}

int session_may_write(const struct session *s, const struct session_opts *o)
{
	int ret = gpunvme_ns_may_overwrite(s->dev, 0);

	if (!ret || (ret == -EPERM && o->yes))
		return GO_ON;
	return failed("%s%s", why(ret), ret == -EPERM ? ": add --yes if that is the drive you mean" : "");
}

int session_may_destroy(const struct session *s, const struct session_opts *o, const char *instead)
{
	int ret = gpunvme_ns_may_overwrite(s->dev, 0);

	if (o->yes || (ret && ret != -EPERM) || is_memory(s))
		return session_may_write(s, o);
	if (ret)
		return failed("%s: add --yes if that is the drive you mean%s", why(ret), instead);
	return failed("this would overwrite data in %s: add --yes if that is the image you mean%s", s->uri, instead);
}
