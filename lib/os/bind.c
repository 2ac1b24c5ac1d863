/* SPDX-License-Identifier: MIT */
/*
 * driver_override and its relatives.
 * Invariant: the override is set only while vfio-pci has the device or is about to get it.
 */
#include "os/bind.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/file.h"
#include "os/iommufd.h"
#include "os/type1.h"
#include "util/log.h"

#define MAX_NAMESPACES 256u
#define BLOCK 512u

struct hold {
	struct gnv_os_file file[MAX_NAMESPACES];
	unsigned count;
};

static void let_go(struct hold *hold)
{
	while (hold->count)
		gnv_os_file_close(&hold->file[--hold->count]);
	free(hold);
}

/* Open every namespace exclusively: nobody can mount one from now on. */
static int hold_namespaces(const char *sys, const struct gnv_pci *pci, struct hold *hold)
{
	char name[64], path[80];

	for (unsigned i = 0; !gnv_sysfs_namespace(sys, pci, i, name, sizeof(name)); i++) {
		int ret;

		if (hold->count == MAX_NAMESPACES)
			return gnv_fail(-EBUSY, "%s has more than %u namespaces", pci->bdf, MAX_NAMESPACES);
		snprintf(path, sizeof(path), "/dev/%s", name);
		ret = gnv_os_file_open(path, BLOCK, true, &hold->file[hold->count]);
		if (ret == -EINVAL)
			continue; /* opened, so unused, and of a format without blocks: one with metadata */
		if (ret)
			return ret;
		hold->count++;
	}
	return 0;
}

static int device_write(const char *sys, const char *bdf, const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "bus/pci/devices/%s/%s", bdf, file);
	return gnv_sysfs_write(sys, path, text);
}

static int write_failed(const char *bdf, const char *what, int ret)
{
	if (ret == -EACCES || ret == -EPERM)
		return gnv_fail(-EACCES, "%s: only root may change the driver of a device; use sudo", bdf);
	return gnv_fail(ret, "%s: cannot %s: %s", bdf, what, strerror(-ret));
}

/* Asked first: a user's lack of rights would otherwise be told about some other file. */
static int check_may_write(const char *sys, const char *bdf)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/driver_override", sys, bdf);
	return access(path, W_OK) ? write_failed(bdf, "override its driver", -errno) : 0;
}

static void restore(const char *sys, const struct gnv_pci *pci)
{
	device_write(sys, pci->bdf, "driver_override", "\n");
	gnv_sysfs_write(sys, "bus/pci/drivers_probe", pci->bdf);
}

/* With nobody using it. */
static int switch_driver(const char *sys, const struct gnv_pci *pci)
{
	struct gnv_pci now;
	int ret = device_write(sys, pci->bdf, "driver_override", "vfio-pci");

	if (ret)
		return write_failed(pci->bdf, "override its driver", ret);
	ret = pci->driver[0] ? device_write(sys, pci->bdf, "driver/unbind", pci->bdf) : 0;
	if (ret) {
		device_write(sys, pci->bdf, "driver_override", "\n");
		return write_failed(pci->bdf, "take it from its driver", ret);
	}
	ret = gnv_sysfs_write(sys, "bus/pci/drivers_probe", pci->bdf);
	if (!gnv_sysfs_pci(sys, pci->bdf, &now) && !strcmp(now.driver, "vfio-pci"))
		return 0;
	restore(sys, pci);
	return gnv_fail(ret ? ret : -ENODEV, "%s: vfio-pci did not take it; load the module first: modprobe vfio-pci", pci->bdf);
}

int gnv_bind_vfio(const char *sys, const struct gnv_pci *pci)
{
	struct hold *hold;
	int ret;

	if (!strcmp(pci->driver, "vfio-pci"))
		return 0;
	if (pci->driver[0] && strcmp(pci->driver, "nvme"))
		return gnv_fail(-EBUSY, "%s is bound to the driver %s, not to nvme; whether it is in use cannot be told", pci->bdf,
				pci->driver);
	ret = check_may_write(sys, pci->bdf);
	if (ret)
		return ret;
	hold = calloc(1, sizeof(*hold));
	if (!hold)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = hold_namespaces(sys, pci, hold);
	if (!ret)
		ret = switch_driver(sys, pci);
	let_go(hold);
	return ret;
}

static int give(const char *path, const struct passwd *user)
{
	if (chown(path, user->pw_uid, user->pw_gid) && errno != ENOENT)
		return gnv_fail(-errno, "%s cannot be given to %s: %s", path, user->pw_name, strerror(errno));
	return 0;
}

int gnv_bind_check_user(const char *user)
{
	return getpwnam(user) ? 0 : gnv_fail(-ENOENT, "there is no user '%.60s'", user);
}

int gnv_bind_hand_over(const struct gnv_pci *pci, const char *name)
{
	const struct passwd *user = getpwnam(name);
	char path[80];
	int ret;

	if (!user)
		return gnv_bind_check_user(name);
	snprintf(path, sizeof(path), "/dev/vfio/%d", pci->group);
	ret = give(path, user);
	snprintf(path, sizeof(path), GNV_VFIO_CDEV_DIR "/%s", pci->cdev);
	if (!ret && pci->cdev[0])
		ret = give(path, user);
	if (ret)
		return ret;
	/* These give nobody a device: what can be done with them is bounded by the device nodes and the locked-memory limit. */
	chmod(GNV_IOMMUFD_NODE, 0666);
	chmod(GNV_TYPE1_NODE, 0666);
	return 0;
}

int gnv_bind_default(const char *sys, const struct gnv_pci *pci)
{
	int ret;

	if (strcmp(pci->driver, "vfio-pci"))
		return gnv_fail(-EINVAL, "%s is not bound to vfio-pci but to %s; nothing to undo", pci->bdf,
				pci->driver[0] ? pci->driver : "no driver");
	ret = device_write(sys, pci->bdf, "driver_override", "\n");
	if (!ret)
		ret = device_write(sys, pci->bdf, "driver/unbind", pci->bdf);
	if (!ret)
		ret = gnv_sysfs_write(sys, "bus/pci/drivers_probe", pci->bdf);
	return ret ? write_failed(pci->bdf, "give it back to its driver", ret) : 0;
}
