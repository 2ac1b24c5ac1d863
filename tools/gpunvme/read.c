/* SPDX-License-Identifier: MIT */
/*
 * gpunvme read: copy blocks of a namespace to a file or to standard output. Then its own messages go to standard error.
 */
#include "verbs.h"

#include "common/copy.h"
#include "common/progress.h"

#include <string.h>
#include <unistd.h>

int verb_read(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	uint64_t bytes = 0;
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		{ "bytes", OPTION_SIZE, &bytes, 1, "SIZE", "bytes to read, K, M, G are powers of 1024 (default one block)" },
		OPTION_LBA(&o),
		OPTION_XFER(&o),
		OPTION_FORCE(&o),
		OPTION_YES_OUT(&o),
		OPTIONS_THREADS(&o),
		OPTION_JSON(&o),
		OPTIONS_END,
	};
	const char *file = NULL;
	int ret = session_options(argc, argv, "usage: gpunvme read URI [options] [FILE]\n"
					      "Reads blocks to FILE. Without FILE they go to standard output.",
			     defs, &o, &file);

	if (ret != GO_ON)
		return ret;
	o.copies = 1;
	if (!file && isatty(STDOUT_FILENO))
		return misused("standard output is a terminal: give a FILE, or - to have the blocks there");
	if (o.json && (!file || strcmp(file, "-") == 0))
		return misused("--json needs a FILE, as standard output carries the blocks");
	catch_signals();
	return copy_to_file(&o, file, bytes);
}
