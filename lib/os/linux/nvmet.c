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

/* Its configuration names a node of /dev, or a file. Return, as all here: 1, 0, a negative errno: it cannot be read. */
static int exported_node(const char *folder, char node[PATH_BYTES])
{
	char path[PATH_BYTES], enable[8];
	int ret;

	snprintf(path, sizeof(path), "%.440s/enable", folder);
	ret = gnv_sysfs_has(path, enable, sizeof(enable));
	if (ret <= 0 || strcmp(enable, "1") != 0)
		return ret < 0 ? ret : 0;
	snprintf(path, sizeof(path), "%.440s/device_path", folder);
	return gnv_sysfs_has(path, node, PATH_BYTES);
}

static int hands_out(const char *namespace, const struct gnv_opened *what)
{
	char node[PATH_BYTES];
	struct statx st;
	const int ret = exported_node(namespace, node);

	if (ret <= 0 || !strcmp(node, what->name))
		return ret;
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
static int is_of_controller(const char *sys, const char *ctrl, const struct gnv_opened *what)
{
	char folder[PATH_BYTES], entry[NAME_BYTES], disk[NAME_BYTES], generic[PATH_BYTES], number[16];
	const char *name = strrchr(what->name, '/') ? strrchr(what->name, '/') + 1 : what->name;
	size_t len;
	int ret;

	if (!strcmp(name, ctrl))
		return 1;
	snprintf(folder, sizeof(folder), "%.100s/class/nvme/%.60s", sys, ctrl);
	for (unsigned i = 0; !(ret = gnv_sysfs_disk(folder, i, entry, disk, sizeof(disk))); i++) {
		len = strlen(disk);
		if (!strncmp(name, disk, len) && (!name[len] || name[len] == 'p'))
			return 1;
	}
	if (!gnv_sysfs_absent(ret))
		return ret;
	snprintf(generic, sizeof(generic), "%.200s/%.60s/dev", folder, name);
	return strncmp(name, "ng", 2) ? 0 : gnv_sysfs_has(generic, number, sizeof(number));
}

static int hands_out_whole(const char *sys, const char *subsystem, const struct gnv_opened *what)
{
	char folder[PATH_BYTES], node[PATH_BYTES], ctrl[NAME_BYTES];
	int ret;

	snprintf(folder, sizeof(folder), "%.430s/passthru", subsystem);
	ret = exported_node(folder, node);
	if (ret <= 0)
		return ret;
	find_controller(sys, node, ctrl);
	return is_of_controller(sys, ctrl, what);
}

static int hands_out_one(const char *subsystem, const struct gnv_opened *what)
{
	char folder[PATH_BYTES], namespace[PATH_BYTES], nsid[NSID_BYTES];
	int found = 0, ret = 0;

	snprintf(folder, sizeof(folder), "%.400s/namespaces", subsystem);
	for (unsigned k = 0; !found && !(ret = gnv_sysfs_entry(folder, "", k, nsid, sizeof(nsid))); k++) {
		snprintf(namespace, sizeof(namespace), "%.420s/%s", folder, nsid);
		found = hands_out(namespace, what);
	}
	return gnv_sysfs_absent(ret) ? found : ret;
}

int gnv_nvmet_has(const char *sys, const struct gnv_opened *what, char *subsystem, size_t size)
{
	char all[PATH_BYTES], folder[PATH_BYTES];
	int ret;

	snprintf(all, sizeof(all), "%.100s/kernel/config/nvmet/subsystems", sys);
	for (unsigned i = 0; !(ret = gnv_sysfs_entry(all, "", i, subsystem, size)); i++) {
		snprintf(folder, sizeof(folder), "%.140s/%.240s", all, subsystem);
		ret = hands_out_one(folder, what);
		if (ret)
			return ret < 0 ? ret : GNV_NVMET_NAMESPACE;
		ret = hands_out_whole(sys, folder, what);
		if (ret)
			return ret < 0 ? ret : GNV_NVMET_CONTROLLER;
	}
	return gnv_sysfs_absent(ret) ? GNV_NVMET_NOT : ret;
}
