/* SPDX-License-Identifier: MIT */
/* A file that gets its name when it is complete, and replaces none. Errors are errno values, 0 for none. */
#ifndef EXAMPLES_NEW_FILE_H
#define EXAMPLES_NEW_FILE_H

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

struct new_file {
	FILE *out;
	const char *path;
	char part[4128]; /* its name until then */
};

static inline int new_file_open(struct new_file *f, const char *path)
{
	f->path = path;
	if ((size_t)snprintf(f->part, sizeof(f->part), "%s.%d.part", path, (int)getpid()) >= sizeof(f->part))
		return ENAMETOOLONG;
	if (access(path, F_OK) == 0)
		return EEXIST;
	f->out = fopen(f->part, "wbx");
	return f->out ? 0 : errno;
}

/* File systems without hard links cannot refuse to replace in the same step. */
static inline int new_file_publish(const struct new_file *f)
{
	if (link(f->part, f->path) == 0)
		return 0;
	if (errno == EEXIST || access(f->path, F_OK) == 0)
		return EEXIST;
	return rename(f->part, f->path) == 0 ? 0 : errno;
}

/* @failed: what went wrong while it was written; the file is thrown away then. */
static inline int new_file_close(struct new_file *f, int failed)
{
	if ((fflush(f->out) || fsync(fileno(f->out))) && !failed)
		failed = errno;
	if (fclose(f->out) && !failed)
		failed = errno;
	if (!failed)
		failed = new_file_publish(f);
	unlink(f->part); /* the second name, or what is left of it */
	return failed;
}

#endif
