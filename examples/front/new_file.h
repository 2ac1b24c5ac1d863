/* SPDX-License-Identifier: MIT */
/* A file that gets its name when it is complete, and replaces none. Errors are errno values, 0 for none. */
#ifndef EXAMPLES_NEW_FILE_H
#define EXAMPLES_NEW_FILE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct new_file {
	FILE *out;
	const char *path;
	char part[4128]; /* its name until then */
};

/*
 * A name in the folder of @path that a file has until it is complete. Its length does not depend on the name of @path, which may be
 * as long as the file system takes. The time is in it because containers give their processes the same numbers.
 */
static inline int new_file_name_part(const char *path, char *part, size_t room)
{
	const char *slash = strrchr(path, '/');
	int folder = slash ? (int)(slash - path) + 1 : 0;
	struct timespec now = { 0, 0 };
	int len;

	clock_gettime(CLOCK_REALTIME, &now);
	len = snprintf(part, room, "%.*s.gpunvme-%d-%llx-%lx.part", folder, path, (int)getpid(), (unsigned long long)now.tv_sec,
		       (unsigned long)now.tv_nsec);
	return (size_t)len < room ? 0 : ENAMETOOLONG;
}

static inline int new_file_open(struct new_file *f, const char *path)
{
	int failed = new_file_name_part(path, f->part, sizeof(f->part));

	f->path = path;
	f->out = NULL;
	if (failed)
		return failed;
	if (access(path, F_OK) == 0)
		return EEXIST;
	if (errno != ENOENT)
		return errno; /* ENAMETOOLONG now, not after all was written */
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

/* @failed: 0, or the error of writing it. The file is then deleted. */
static inline int new_file_close(struct new_file *f, int failed)
{
	if ((fflush(f->out) || fsync(fileno(f->out))) && !failed)
		failed = errno;
	if (fclose(f->out) && !failed)
		failed = errno;
	f->out = NULL;
	if (!failed)
		failed = new_file_publish(f);
	unlink(f->part); /* the second name, or what is left of it */
	return failed;
}

#endif
