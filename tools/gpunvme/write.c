/* SPDX-License-Identifier: MIT */
/*
 * gpunvme write: a file or standard input to blocks of a namespace.
 */
#include "verbs.h"

#include "common/copy.h"
#include "common/progress.h"

int verb_write(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	uint64_t limit = UINT64_MAX;
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		{ "bytes", OPTION_SIZE, &limit, 1, "SIZE", "most bytes to write" },
		OPTION_LBA(&o),
		OPTION_XFER(&o),
		OPTIONS_THREADS(&o),
		OPTION_YES(&o),
		{ "fua", OPTION_FLAG, &o.fua, 0, NULL, "each command puts its blocks on the media, without a flush at the end" },
		OPTION_JSON(&o),
		OPTIONS_END,
	};
	const char *file = NULL;
	int ret = session_options(argc, argv,
			     "usage: gpunvme write URI [options] [FILE]\nWrites FILE to blocks. Without FILE the data comes from standard input.", defs,
			     &o, &file);

	if (ret != GO_ON)
		return ret;
	o.copies = 1;
	catch_signals();
	return copy_from_file(&o, file, limit);
}
