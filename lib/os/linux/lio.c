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

/* Return, as all here: 1, 0, a negative errno: it cannot be read. */
static int uses(const char *object, const struct gnv_opened *what)
{
	char path[PATH_BYTES], info[INFO_BYTES], *file;
	struct statx st;
	int ret;

	snprintf(path, sizeof(path), "%.440s/enable", object);
	ret = gnv_sysfs_has(path, info, sizeof(info));
	if (ret <= 0 || strcmp(info, "1") != 0)
		return ret < 0 ? ret : 0;
	snprintf(path, sizeof(path), "%.440s/info", object);
	ret = gnv_sysfs_has(path, info, sizeof(info));
	file = ret > 0 ? find_file(info) : NULL;
	if (!file)
		return ret < 0 ? ret : 0;
	if (!strcmp(file, what->name))
		return 1;
	return !statx(AT_FDCWD, file, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &st) && gnv_opened_is(what, &st);
}

static int hba_has(const char *folder, const char *hba, const struct gnv_opened *what, char *name, size_t size)
{
	char path[PATH_BYTES], object[NAME_BYTES];
	int found = 0, ret = 0;

	for (unsigned i = 0; !found && !(ret = gnv_sysfs_entry(folder, "", i, object, sizeof(object))); i++) {
		snprintf(path, sizeof(path), "%.280s/%s", folder, object);
		snprintf(name, size, "%s/%s", hba, object);
		found = uses(path, what);
	}
	return gnv_sysfs_absent(ret) ? found : ret;
}

int gnv_lio_has(const char *sys, const struct gnv_opened *what, char *name, size_t size)
{
	char all[PATH_BYTES], folder[PATH_BYTES], hba[NAME_BYTES];
	int found = 0, ret = 0;

	snprintf(all, sizeof(all), "%.100s/kernel/config/target/core", sys);
	for (unsigned i = 0; !found && !(ret = gnv_sysfs_entry(all, "fileio_", i, hba, sizeof(hba))); i++) {
		snprintf(folder, sizeof(folder), "%.140s/%s", all, hba);
		found = hba_has(folder, hba, what, name, size);
	}
	return gnv_sysfs_absent(ret) ? found : ret;
}
