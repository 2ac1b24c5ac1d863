/* SPDX-License-Identifier: MIT */
/*
 * The predicates of opening through VFIO.
 * Invariant: they look and change nothing.
 */
#include "port/refusals.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/sys.h"
#include "os/linux/users.h"
#include "os/vfio/iommufd.h"
#include "os/vfio/type1.h"
#include "util/log.h"

#define CLASS_RAID 0x0104u /* base class and subclass */
#define NOIOMMU "noiommu-" /* how the nodes of such devices begin */

/* Does Intel RST hide drives at the SATA controller? The driver ahci counts them. */
static bool hides_drives(const char *sys, const struct gnv_pci *pci)
{
	char path[128], text[16];

	snprintf(path, sizeof(path), "%.60s/bus/pci/devices/%s/remapped_nvme", sys, pci->bdf);
	return !gnv_sysfs_read(path, text, sizeof(text)) && strtoul(text, NULL, 10);
}

static int check_nvme(const char *sys, const struct gnv_pci *pci)
{
	if (pci->class_code == GNV_CLASS_NVME)
		return 0;
	if (pci->class_code >> 8 == CLASS_RAID || hides_drives(sys, pci))
		return gnv_fail(
			-ENODEV,
			"%s (PCI class %06x) hides its drives, as Intel RST, VMD and RAID controllers do. In the firmware, switch it to "
			"AHCI or NVMe, or VMD off. An array on those drives does not survive that",
			pci->bdf, pci->class_code);
	return gnv_fail(-ENODEV, "%s is not an NVMe controller (PCI class %06x, not %06x). gpunvme list shows the controllers",
			pci->bdf, pci->class_code, GNV_CLASS_NVME);
}

/*
* With VMD every drive makes its DMA with the address of the VMD function (Linux: pci_real_dma_dev() for x86), so
 * none of them can be handed out alone.
 */
static int check_path(const char *sys, const struct gnv_pci *pci)
{
	char path[PATH_MAX], bdf[GNV_BDF_BYTES], *part, *rest = path;
	struct gnv_pci above;

	if (gnv_sysfs_place(sys, pci->bdf, path))
		return 0;
	while ((part = strtok_r(rest, "/", &rest)))
		if (!gnv_pci_parse(part, bdf) && strcmp(bdf, pci->bdf) && !gnv_sysfs_pci(sys, bdf, &above) &&
		    above.class_code >> 8 == CLASS_RAID)
			return gnv_fail(-EPERM,
					"%s is below the RAID function %s (Intel VMD), under whose address it makes its DMA. Switch VMD "
					"off for its slot in the firmware. An array on it does not survive that",
					pci->bdf, bdf);
	return 0;
}

/* A device that the kernel offers without IOMMU, which still has its own group. */
static bool is_bare(const struct gnv_pci *pci)
{
	return pci->group < 0 || !strncmp(pci->cdev, NOIOMMU, strlen(NOIOMMU));
}

static int check_iommu(const char *sys, const struct gnv_pci *pci)
{
	(void)sys;
	if (!is_bare(pci))
		return 0;
	return gnv_fail(-EOPNOTSUPP,
			"no IOMMU translates the DMA of %s. Enable it in the firmware (VT-d, AMD-Vi) and in the kernel (intel_iommu=on)", pci->bdf);
}

static int check_driver(const char *sys, const struct gnv_pci *pci)
{
	(void)sys;
	if (!strcmp(pci->driver, "vfio-pci"))
		return 0;
	if (!pci->driver[0])
		return gnv_fail(-ENODEV, "%s has no driver. Give it to vfio-pci: gpunvme bind %s", pci->bdf, pci->bdf);
	return gnv_fail(-EBUSY, "%s is bound to the driver %s. If nothing there is needed, give it to vfio-pci: gpunvme bind %s",
			pci->bdf, pci->driver, pci->bdf);
}

static int check_group(const char *sys, const struct gnv_pci *pci)
{
	struct gnv_pci other;
	int ret;

	if (pci->group < 0)
		return check_iommu(sys, pci);
	for (unsigned i = 0; !(ret = gnv_sysfs_group_member(sys, pci, i, &other)); i++)
		if (!gnv_sysfs_tolerated(&other))
			return gnv_fail(-EPERM,
					"%s shares IOMMU group %d with %s, which the driver %s uses. Unbind that device, or put the "
					"drive into another slot",
					pci->bdf, pci->group, other.bdf, other.driver);
	if (ret != -ENOENT)
		return gnv_fail(ret, "%s: the devices of IOMMU group %d cannot be listed: %s", pci->bdf, pci->group, strerror(-ret));
	return 0;
}

static int check_users(const char *sys, const struct gnv_pci *pci)
{
	return gnv_users_check(sys, GNV_PROC, pci);
}

const struct gnv_vfio_check gnv_vfio_checks[] = {
	{ "nvme", "it is an NVMe controller", true, check_nvme },
	{ "path", "no RAID function stands before it", true, check_path },
	{ "iommu", "an IOMMU stands before it", true, check_iommu },
	{ "group", "its IOMMU group has no foreign devices", true, check_group },
	{ "users", "no program mounts, holds or opens its namespaces", false, check_users }, /* bind checks it while it holds them */
	{ "driver", "vfio-pci has it", false, check_driver },
	{ NULL, NULL, false, NULL },
};

/* Missing nodes mean "this way does not exist here": -ENODEV. */
static int check_node(const char *path, const char *remedy)
{
	int ret = gnv_sys_may_use(path);

	if (ret == -ENOENT)
		return gnv_fail(-ENODEV, "%s does not exist. %s. A container needs it by --device", path, remedy);
	if (ret)
		return gnv_fail(-EACCES, "%s: no permission. Give it to your user (gpunvme bind --user NAME, or chown)", path);
	return 0;
}

static int check_iommufd(const char *sys, const struct gnv_pci *pci)
{
	static const char remedy[] = "The kernel needs CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV";
	char path[80];
	int ret = check_node(GNV_IOMMUFD_NODE, remedy);

	(void)sys;
	if (ret)
		return ret;
	snprintf(path, sizeof(path), GNV_VFIO_CDEV_DIR "/%s", pci->cdev[0] ? pci->cdev : "vfioN");
	return check_node(path, remedy);
}

static int check_type1(const char *sys, const struct gnv_pci *pci)
{
	char path[48];
	int ret = check_node(GNV_TYPE1_NODE, "Load the module (modprobe vfio-pci), or use a kernel with CONFIG_VFIO_CONTAINER");

	(void)sys;
	if (ret)
		return ret;
	snprintf(path, sizeof(path), "/dev/vfio/%d", pci->group);
	return check_node(path, "The kernel needs CONFIG_VFIO_GROUP, and the device bound to vfio-pci");
}

static int check_noiommu(const char *sys, const struct gnv_pci *pci)
{
	int on = gnv_sysfs_unsafe_noiommu(sys), ret;
	char path[80];

	if (!is_bare(pci))
		return gnv_fail(-EINVAL, "an IOMMU translates the DMA of %s, and guards this machine's memory. Use port=iommufd or port=type1",
				pci->bdf);
	if (on < 0)
		return gnv_fail(-EOPNOTSUPP, "this kernel offers no device without IOMMU. Use Linux 7.3 with CONFIG_VFIO_NOIOMMU");
	if (!on)
		return gnv_fail(-EPERM,
				"devices without IOMMU are switched off. If the drive may access every byte of this machine, run: "
				"echo 1 >/sys/module/vfio/parameters/enable_unsafe_noiommu_mode, and bind it to vfio-pci again");
	ret = check_driver(sys, pci);
	if (ret)
		return ret;
	if (strncmp(pci->cdev, NOIOMMU, strlen(NOIOMMU)))
		return gnv_fail(-EOPNOTSUPP,
				"%s has no device node for use without IOMMU. Use Linux 7.3 with CONFIG_VFIO_DEVICE_CDEV, and bind the "
				"device to vfio-pci after the switch was set",
				pci->bdf);
	if (!gnv_sys_may_rawio())
		return gnv_fail(-EPERM, "a device without IOMMU needs CAP_SYS_RAWIO. Run as root");
	snprintf(path, sizeof(path), GNV_VFIO_CDEV_DIR "/%s", pci->cdev);
	return check_node(path, "Bind the device to vfio-pci again");
}

const struct gnv_vfio_check gnv_vfio_check_noiommu = {
	.name = "noiommu", .fine = "it can be opened without IOMMU, by port=noiommu", .run = check_noiommu
};
const struct gnv_vfio_check gnv_vfio_check_iommufd = {
	.name = "iommufd", .fine = "its device node and /dev/iommu are usable", .run = check_iommufd
};
const struct gnv_vfio_check gnv_vfio_check_type1 = {
	.name = "type1", .fine = "its group and /dev/vfio/vfio are usable", .run = check_type1
};

static int check_from(const struct gnv_vfio_check *check, const char *sys, const struct gnv_pci *pci)
{
	int ret = 0;

	for (; check->name && !ret; check++)
		ret = check->run(sys, pci);
	return ret;
}

int gnv_vfio_check_all(const char *sys, const struct gnv_pci *pci)
{
	return check_from(gnv_vfio_checks, sys, pci);
}

int gnv_vfio_check_any(const char *sys, const struct gnv_pci *pci)
{
	return check_from(gnv_vfio_checks + 1, sys, pci);
}
