/* SPDX-License-Identifier: MIT */
#include "os/linux/loop.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "os/linux/sysfs.h"

#define PATH_BYTES 512

/* The kernel writes the name and a newline. A name may end in white space, too, and be as long as a path. */
static bool read_backing_file(const char *path, char file[PATH_MAX + 1])
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(file, 1, PATH_MAX, f) : 0;

	if (f)
		fclose(f);
	if (n && file[n - 1] == '\n')
		n--;
	file[n] = 0;
	return n;
}

bool gnv_loop_of(const char *sys, const struct gnv_opened *what, char *name, size_t size)
{
	char class[PATH_BYTES], path[PATH_BYTES], file[PATH_MAX + 1];
	struct statx st;

	snprintf(class, sizeof(class), "%s/class/block", sys);
	for (unsigned i = 0; !gnv_sysfs_entry(class, "loop", i, name, size); i++) {
		snprintf(path, sizeof(path), "%.300s/%.60s/loop/backing_file", class, name);
		/* Its file system may not answer any more: what the kernel has at hand will do. */
		if (read_backing_file(path, file) &&
		    !statx(AT_FDCWD, file, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &st) &&
		    gnv_opened_is(what, &st))
			return true;
	}
	return false;
}
