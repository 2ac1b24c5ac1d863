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
#include <sys/sysmacros.h>

#include "os/linux/node.h"
#include "os/linux/exclusive.h"
#include "os/vfio/iommufd.h"
#include "os/vfio/type1.h"
#include "util/log.h"

#define PATH_BYTES 256
#define VFIO_NODES 3

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

/* The number comes from sysfs, because the /dev of a container may lack the node. Return: false if there is none. */
static bool read_node(const char *sys, const char *folder, const char *dir, const char *name, struct gnv_opened *node)
{
	char path[PATH_BYTES], number[32];
	unsigned a, b;

	snprintf(path, sizeof(path), "%.100s/%.60s/%.40s/dev", sys, folder, name);
	if (gnv_sysfs_read(path, number, sizeof(number)) || sscanf(number, "%u:%u", &a, &b) != 2)
		return false;
	*node = (struct gnv_opened){ .kind = GNV_OPENED_CHAR, .dev = makedev(a, b) };
	snprintf(node->name, sizeof(node->name), "%.20s/%.18s", dir, name);
	return true;
}

/* A user has its own node open (IOMMUFD) or that of its group (type 1), which is named after its kind and its number. */
static unsigned find_nodes(const char *sys, const struct gnv_pci *pci, struct gnv_opened node[VFIO_NODES])
{
	char folder[64], group[32];
	unsigned count;

	snprintf(folder, sizeof(folder), "bus/pci/devices/%s/vfio-dev", pci->bdf);
	count = pci->cdev[0] && read_node(sys, folder, GNV_VFIO_CDEV_DIR, pci->cdev, node);
	snprintf(group, sizeof(group), "%d", pci->group);
	count += read_node(sys, "class/vfio", "/dev/vfio", group, &node[count]);
	snprintf(group, sizeof(group), "noiommu-%d", pci->group);
	return count + read_node(sys, "class/vfio", "/dev/vfio", group, &node[count]);
}

/* Another device that the user of the group may mean. */
static bool find_neighbour(const char *sys, const struct gnv_pci *pci, struct gnv_pci *other)
{
	for (unsigned i = 0; !gnv_sysfs_group_member(sys, pci, i, other); i++)
		if (!strcmp(other->driver, "vfio-pci"))
			return true;
	return false;
}

static int say_used(const char *sys, const struct gnv_pci *pci, const struct gnv_opener *who)
{
	const bool own_node = !strncmp(who->what->name, GNV_VFIO_CDEV_DIR, strlen(GNV_VFIO_CDEV_DIR));
	struct gnv_pci other;

	if (!own_node && find_neighbour(sys, pci, &other))
		return gnv_fail(-EBUSY,
				"%s may be in use: process %d (%s) has %s open, for it or for %s. End it, or let it close the file",
				pci->bdf, who->pid, who->command, who->what->name, other.bdf);
	return gnv_fail(-EBUSY, "%s is in use: process %d (%s) has %s open. End it, or let it close the file", pci->bdf, who->pid,
			who->command, who->what->name);
}

/* The kernel would ask its users to let go, and wait, in the middle of their I/O. */
static int check_unused(const char *sys, const char *proc, const struct gnv_pci *pci)
{
	struct gnv_opened node[VFIO_NODES];
	const struct gnv_openers_query query = { .what = node, .count = find_nodes(sys, pci, node), .how = GNV_OPENERS_ANY };
	struct gnv_opener who;
	unsigned unseen;

	if (gnv_openers_find(proc, &query, &who, &unseen))
		return say_used(sys, pci, &who);
	if (unseen)
		return gnv_fail(-EACCES,
				"%s: %u processes could not be checked, and one may have it open. Run as root, with CAP_SYS_PTRACE",
				pci->bdf, unseen);
	return 0;
}

int gnv_bind_default(const char *sys, const char *proc, const struct gnv_pci *pci)
{
	int ret;

	if (strcmp(pci->driver, "vfio-pci"))
		return gnv_fail(-EINVAL, "%s is not bound to vfio-pci but to %s. Nothing to undo", pci->bdf,
				pci->driver[0] ? pci->driver : "no driver");
	ret = check_may_write(sys, pci->bdf);
	if (!ret)
		ret = check_unused(sys, proc, pci);
	if (ret)
		return ret;
	ret = device_write(sys, pci->bdf, "driver_override", "\n");
	if (!ret)
		ret = device_write(sys, pci->bdf, "driver/unbind", pci->bdf);
	if (!ret)
		ret = gnv_sysfs_write(sys, "bus/pci/drivers_probe", pci->bdf);
	return ret ? write_failed(pci->bdf, "give it back to its driver", ret) : 0;
}
