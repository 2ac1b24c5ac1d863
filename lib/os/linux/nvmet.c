/* SPDX-License-Identifier: MIT */
#include "os/linux/nvmet.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "os/linux/sysfs.h"

#define PATH_BYTES 512
#define NSID_BYTES 16

/* Its configuration names a node of /dev. */
static bool hands_out(const char *namespace, const struct gnv_opened *what)
{
	char path[PATH_BYTES], node[PATH_BYTES], enable[8];
	struct statx st;

	snprintf(path, sizeof(path), "%.440s/enable", namespace);
	if (gnv_sysfs_read(path, enable, sizeof(enable)) || strcmp(enable, "1") != 0)
		return false;
	snprintf(path, sizeof(path), "%.440s/device_path", namespace);
	if (gnv_sysfs_read(path, node, sizeof(node)))
		return false;
	if (!strcmp(node, what->name))
		return true;
	return !statx(AT_FDCWD, node, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &st) && gnv_opened_is(what, &st);
}

bool gnv_nvmet_has(const char *sys, const struct gnv_opened *what, char *subsystem, size_t size)
{
	char all[PATH_BYTES], folder[PATH_BYTES], namespace[PATH_BYTES], nsid[NSID_BYTES];

	snprintf(all, sizeof(all), "%.100s/kernel/config/nvmet/subsystems", sys);
	for (unsigned i = 0; !gnv_sysfs_entry(all, "", i, subsystem, size); i++) {
		snprintf(folder, sizeof(folder), "%.140s/%.230s/namespaces", all, subsystem);
		for (unsigned k = 0; !gnv_sysfs_entry(folder, "", k, nsid, sizeof(nsid)); k++) {
			snprintf(namespace, sizeof(namespace), "%.400s/%s", folder, nsid);
			if (hands_out(namespace, what))
				return true;
		}
	}
	return false;
}
