/* SPDX-License-Identifier: MIT */
/*
 * write_file: copy a file onto an NVMe namespace, written by threads, and flush the volatile cache of the drive. Here is only the
 * command line. The copy is common/copy.c, its kernels copy_chunk() and copy_flush().
 */
#include "common/copy.h"
#include "common/progress.h"

int main(int argc, char **argv)
{
	static const char usage[] =
		"usage: write_file URI [options] FILE\nWrites a file to an NVMe namespace with threads that "
		"submit for themselves.";
	struct session_opts o = SESSION_OPTS_INIT;
	const struct option_def defs[] = {
		OPTION_DEV(&o), OPTION_LBA(&o), OPTION_XFER(&o), OPTIONS_THREADS(&o), OPTION_YES(&o), OPTION_JSON(&o), OPTIONS_END,
	};
	const char *file = NULL;
	int ret;

	program = "write_file";
	o.copies = 1;
	ret = session_options(argc, argv, usage, defs, &o, &file);
	if (ret != GO_ON)
		return ret;
	if (!file)
		return misused("FILE is missing. Try --help");
	catch_signals();
	return finish(copy_from_file(&o, file, UINT64_MAX));
}
