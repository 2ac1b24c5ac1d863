/* SPDX-License-Identifier: MIT */
/*
 * driver_override and its relatives.
 * Invariant: the override is set only while vfio-pci has the device or is about to get it.
 */
#include "machine/bind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/node.h"
#include "os/linux/exclusive.h"
#include "os/vfio/iommufd.h"
#include "os/vfio/type1.h"
#include "util/log.h"

static int device_write(const char *sys, const char *bdf, const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "bus/pci/devices/%s/%s", bdf, file);
	return gnv_sysfs_write(sys, path, text);
}

static int write_failed(const char *bdf, const char *what, int ret)
{
	if (ret == -EACCES || ret == -EPERM)
		return gnv_fail(-EACCES, "%s: only root may change the driver of a device. Use sudo", bdf);
	return gnv_fail(ret, "%s: cannot %s: %s", bdf, what, strerror(-ret));
}

/* Check this first: without it, a user without permission would get a message about some other file. */
static int check_may_write(const char *sys, const char *bdf)
{
	char path[128];
	int ret;

	snprintf(path, sizeof(path), "bus/pci/devices/%s/driver_override", bdf);
	ret = gnv_sysfs_may_write(sys, path);
	return ret ? write_failed(bdf, "override its driver", ret) : 0;
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
	return gnv_fail(ret ? ret : -ENODEV, "%s: vfio-pci did not take it. Load the module first: modprobe vfio-pci", pci->bdf);
}

int gnv_bind_vfio(const char *sys, const struct gnv_pci *pci)
{
	struct gnv_hold *hold;
	int ret;

	if (!strcmp(pci->driver, "vfio-pci"))
		return 0;
	if (pci->driver[0] && strcmp(pci->driver, "nvme"))
		return gnv_fail(-EBUSY, "%s is bound to the driver %s, not to nvme, so whether it is in use is unknown", pci->bdf,
				pci->driver);
	ret = check_may_write(sys, pci->bdf);
	if (ret)
		return ret;
	ret = gnv_users_hold(sys, GNV_PROC, pci, &hold);
	if (ret)
		return ret;
	ret = switch_driver(sys, pci);
	gnv_users_release(hold);
	return ret;
}

int gnv_bind_hand_over(const struct gnv_pci *pci, const char *user)
{
	char path[80];
	int ret;

	snprintf(path, sizeof(path), "/dev/vfio/%d", pci->group);
	ret = gnv_node_give(path, user);
	snprintf(path, sizeof(path), GNV_VFIO_CDEV_DIR "/%s", pci->cdev);
	if (!ret && pci->cdev[0])
		ret = gnv_node_give(path, user);
	/* These nodes alone give no device: the device nodes and the locked-memory limit bound their use. */
	if (!ret)
		ret = gnv_node_admit(GNV_IOMMUFD_NODE);
	if (!ret)
		ret = gnv_node_admit(GNV_TYPE1_NODE);
	return ret;
}

int gnv_bind_default(const char *sys, const struct gnv_pci *pci)
{
	int ret;

	if (strcmp(pci->driver, "vfio-pci"))
		return gnv_fail(-EINVAL, "%s is not bound to vfio-pci but to %s. Nothing to undo", pci->bdf,
				pci->driver[0] ? pci->driver : "no driver");
	ret = device_write(sys, pci->bdf, "driver_override", "\n");
	if (!ret)
		ret = device_write(sys, pci->bdf, "driver/unbind", pci->bdf);
	if (!ret)
		ret = gnv_sysfs_write(sys, "bus/pci/drivers_probe", pci->bdf);
	return ret ? write_failed(pci->bdf, "give it back to its driver", ret) : 0;
}
