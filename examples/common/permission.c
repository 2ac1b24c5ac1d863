/* SPDX-License-Identifier: MIT */
#include "permission.h"

#include <sys/stat.h>

int session_may_write(const struct session *s, const struct session_opts *o)
{
	struct stat st;

	if (s->ns.read_only || s->info.read_only)
		return failed("%s is read-only: make the image writable or leave ro=1 out of the URI", s->uri);
	if (o->yes || (soft_stat(s->uri, &st) == 0 && S_ISREG(st.st_mode)))
		return GO_ON;
	return failed("this would overwrite data on %s, serial %s, %s: add --yes if that is the drive you mean", s->info.model,
		      s->info.serial, human((double)s->ns.nblocks * s->ns.lba_size));
}
