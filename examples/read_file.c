/* SPDX-License-Identifier: MIT */
/*
 * read_file: copy blocks of an NVMe namespace into a file, read by threads. The counterpart of write_file. Here is only the command
 * line. The copy is common/copy.c, its kernel copy_chunk().
 */
#include "common/copy.h"
#include "common/progress.h"

int main(int argc, char **argv)
{
	static const char usage[] =
		"usage: read_file URI --bytes SIZE [options] FILE\nReads an NVMe namespace into a file with threads "
		"that submit for themselves.";
	struct session_opts o = SESSION_OPTS_INIT;
	uint64_t bytes = 0;
	const struct option_def defs[] = {
		OPTION_DEV(&o),	   { "bytes", OPTION_SIZE, &bytes, 1, "SIZE", "bytes to read. K, M, G are powers of 1024" },
		OPTION_LBA(&o),	   OPTION_XFER(&o),
		OPTION_FORCE(&o),  OPTION_YES_OUT(&o),
		OPTIONS_THREADS(&o), OPTION_JSON(&o),
		OPTIONS_END,
	};
	const char *file = NULL;
	int ret;

	program = "read_file";
	o.copies = 1;
	ret = session_options(argc, argv, usage, defs, &o, &file);
	if (ret != GO_ON)
		return ret;
	if (!file || !bytes)
		return misused("%s is missing. Try --help", !bytes ? "--bytes" : "FILE");
	catch_signals();
	return finish(copy_to_file(&o, file, bytes));
}
