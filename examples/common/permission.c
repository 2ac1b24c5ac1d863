/* SPDX-License-Identifier: MIT */
#include "permission.h"

#include <sys/stat.h>

int session_lasts(const struct session_opts *o)
{
	if (!o->dev || !soft_is_memory(o->dev))
		return GO_ON;
	return failed("%s is memory that begins with zeroes and is gone when this command ends, so there is nothing to read, and what is "
		      "written is lost: name an image file, or have bench, accept or serve use the memory",
		      o->dev);
}

int session_may_write(const struct session *s, const struct session_opts *o)
{
	struct stat st;

	if (s->ns.read_only || s->info.read_only)
		return failed("%s is read-only: make the image writable or leave ro=1 out of the URI", s->uri);
	if (o->yes || soft_is_memory(s->uri) || (soft_stat(s->uri, &st) == 0 && S_ISREG(st.st_mode)))
		return GO_ON;
	return failed("this would overwrite data on %s, serial %s, %s: add --yes if that is the drive you mean", s->info.model,
		      s->info.serial, human((double)s->ns.nblocks * s->ns.lba_size));
}
