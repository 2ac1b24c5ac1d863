/* SPDX-License-Identifier: MIT */
#include "os/linux/nvmet.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/linux/sysfs.h"

#define PATH_BYTES 512
#define NAME_BYTES 64
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

/* The name of the controller whose node stands there, "nvme0", whatever that node is called. */
static void find_controller(const char *sys, const char *node, char name[NAME_BYTES])
{
	char path[PATH_BYTES], target[PATH_BYTES];
	const char *last = strrchr(node, '/');
	struct statx st;
	ssize_t n = -1;

	if (!statx(AT_FDCWD, node, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) && S_ISCHR(st.stx_mode)) {
		snprintf(path, sizeof(path), "%.100s/dev/char/%u:%u", sys, st.stx_rdev_major, st.stx_rdev_minor);
		n = readlink(path, target, sizeof(target) - 1);
	}
	if (n > 0) {
		target[n] = 0;
		last = strrchr(target, '/');
		snprintf(name, NAME_BYTES, "%.60s", last ? last + 1 : target);
	} else {
		snprintf(name, NAME_BYTES, "%.60s", last ? last + 1 : node);
	}
}

/* Is it the controller's own node, a disk of it, a partition of one or the generic device? */
static bool is_of_controller(const char *sys, const char *ctrl, const struct gnv_opened *what)
{
	char folder[PATH_BYTES], entry[NAME_BYTES], disk[NAME_BYTES], generic[PATH_BYTES], number[16];
	const char *name = strrchr(what->name, '/') ? strrchr(what->name, '/') + 1 : what->name;
	size_t len;

	if (!strcmp(name, ctrl))
		return true;
	snprintf(folder, sizeof(folder), "%.100s/class/nvme/%.60s", sys, ctrl);
	for (unsigned i = 0; !gnv_sysfs_disk(folder, i, entry, disk, sizeof(disk)); i++) {
		len = strlen(disk);
		if (!strncmp(name, disk, len) && (!name[len] || name[len] == 'p'))
			return true;
	}
	snprintf(generic, sizeof(generic), "%.200s/%.60s/dev", folder, name);
	return !strncmp(name, "ng", 2) && !gnv_sysfs_read(generic, number, sizeof(number));
}

static bool hands_out_whole(const char *sys, const char *subsystem, const struct gnv_opened *what)
{
	char path[PATH_BYTES], node[PATH_BYTES], enable[8], ctrl[NAME_BYTES];

	snprintf(path, sizeof(path), "%.440s/passthru/enable", subsystem);
	if (gnv_sysfs_read(path, enable, sizeof(enable)) || strcmp(enable, "1") != 0)
		return false;
	snprintf(path, sizeof(path), "%.440s/passthru/device_path", subsystem);
	if (gnv_sysfs_read(path, node, sizeof(node)))
		return false;
	find_controller(sys, node, ctrl);
	return is_of_controller(sys, ctrl, what);
}

static bool hands_out_one(const char *subsystem, const struct gnv_opened *what)
{
	char folder[PATH_BYTES], namespace[PATH_BYTES], nsid[NSID_BYTES];

	snprintf(folder, sizeof(folder), "%.400s/namespaces", subsystem);
	for (unsigned k = 0; !gnv_sysfs_entry(folder, "", k, nsid, sizeof(nsid)); k++) {
		snprintf(namespace, sizeof(namespace), "%.420s/%s", folder, nsid);
		if (hands_out(namespace, what))
			return true;
	}
	return false;
}

enum gnv_nvmet gnv_nvmet_has(const char *sys, const struct gnv_opened *what, char *subsystem, size_t size)
{
	char all[PATH_BYTES], folder[PATH_BYTES];

	snprintf(all, sizeof(all), "%.100s/kernel/config/nvmet/subsystems", sys);
	for (unsigned i = 0; !gnv_sysfs_entry(all, "", i, subsystem, size); i++) {
		snprintf(folder, sizeof(folder), "%.140s/%.240s", all, subsystem);
		if (hands_out_one(folder, what))
			return GNV_NVMET_NAMESPACE;
		if (hands_out_whole(sys, folder, what))
			return GNV_NVMET_CONTROLLER;
	}
	return GNV_NVMET_NOT;
}
