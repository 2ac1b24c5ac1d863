/* SPDX-License-Identifier: MIT */
#include "os/linux/lio.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "os/linux/sysfs.h"

#define PATH_BYTES 512
#define NAME_BYTES 128
#define INFO_BYTES 1024

/* "Status: ...\n        TCM FILEIO ID: 0        File: /path  Size: 1  Mode: O_DSYNC Async: 0\n" */
static char *find_file(char *info)
{
	char *file = strstr(info, "  File: "), *end = NULL;

	for (char *at = file; at && (at = strstr(at + 1, "  Size: "));)
		end = at;
	if (!end)
		return NULL;
	*end = 0;
	return file + strlen("  File: ");
}

static bool uses(const char *object, const struct gnv_opened *what)
{
	char path[PATH_BYTES], info[INFO_BYTES], *file;
	struct statx st;

	snprintf(path, sizeof(path), "%.440s/enable", object);
	if (gnv_sysfs_read(path, info, sizeof(info)) || strcmp(info, "1") != 0)
		return false;
	snprintf(path, sizeof(path), "%.440s/info", object);
	if (gnv_sysfs_read(path, info, sizeof(info)))
		return false;
	file = find_file(info);
	if (!file)
		return false;
	if (!strcmp(file, what->name))
		return true;
	return !statx(AT_FDCWD, file, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &st) && gnv_opened_is(what, &st);
}

bool gnv_lio_has(const char *sys, const struct gnv_opened *what, char *name, size_t size)
{
	char all[PATH_BYTES], folder[PATH_BYTES], path[PATH_BYTES], hba[NAME_BYTES], object[NAME_BYTES];

	snprintf(all, sizeof(all), "%.100s/kernel/config/target/core", sys);
	for (unsigned i = 0; !gnv_sysfs_entry(all, "fileio_", i, hba, sizeof(hba)); i++) {
		snprintf(folder, sizeof(folder), "%.140s/%s", all, hba);
		for (unsigned k = 0; !gnv_sysfs_entry(folder, "", k, object, sizeof(object)); k++) {
			snprintf(path, sizeof(path), "%.280s/%s", folder, object);
			snprintf(name, size, "%s/%s", hba, object);
			if (uses(path, what))
				return true;
		}
	}
	return false;
}
