/* SPDX-License-Identifier: MIT */
/*
 * pci: URIs. Chooses between the ports through VFIO by the features of this machine.
 * Invariant: a device that fails a check is not touched.
 */
#include <errno.h>
#include <string.h>

#include "mem/space_vfio.h"
#include "port/port.h"
#include "port/refusals.h"
#include "port/vfio_device.h"

static bool is_noiommu(const char *port)
{
	return port && !strcmp(port, "noiommu");
}

int gnv_vfio_choose(const char *port, const struct gnv_pci *pci, const struct gnv_vfio_way **way)
{
	const bool any = !port || !strcmp(port, "auto");
	int ret = -ENODEV;

	if (is_noiommu(port)) {
		*way = &gnv_way_noiommu;
		return gnv_vfio_check_noiommu.run(GNV_SYSFS, pci);
	}
	if (!any && strcmp(port, "iommufd") && strcmp(port, "type1"))
		return gnv_fail(-EINVAL, "port=%.40s in the URI: must be auto, iommufd or type1, or noiommu with its dangers", port);
	if (any || !strcmp(port, "iommufd")) {
		ret = gnv_vfio_check_iommufd.run(GNV_SYSFS, pci);
		*way = &gnv_way_iommufd;
		if (!any || !ret)
			return ret;
	}
	*way = &gnv_way_type1;
	if (!gnv_vfio_check_type1.run(GNV_SYSFS, pci))
		return 0;
	/* Neither. Of two sentences the one about the way that exists helps more. */
	if (ret != -ENODEV && any)
		return gnv_vfio_check_iommufd.run(GNV_SYSFS, pci);
	return gnv_vfio_check_type1.run(GNV_SYSFS, pci);
}

/* As the URI would name it. */
static const char *way_of(const struct gnv_port *port)
{
	if (port->ops == gnv_way_noiommu.ops)
		return "noiommu";
	return port->ops == gnv_way_type1.ops ? "type1" : "iommufd";
}

int gnv_port_pci_open(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port)
{
	const struct gnv_vfio_way *way;
	char bdf[GNV_BDF_BYTES];
	struct gnv_pci pci;
	const char *name;
	uint32_t ro = 0, unsafe_vram = 0;
	int ret;

	gnv_uri_take(uri, "port", &name);
	ret = gnv_uri_take_u32(uri, "ro", 0, 1, &ro);
	if (!ret)
		ret = gnv_uri_take_u32(uri, "unsafe-vram", 0, 1, &unsafe_vram);
	if (!ret)
		ret = gnv_uri_check_taken(uri);
	if (!ret)
		ret = gnv_pci_parse(uri->address, bdf);
	if (!ret)
		ret = gnv_sysfs_pci(GNV_SYSFS, bdf, &pci);
	if (!ret)
		ret = is_noiommu(name) ? gnv_vfio_checks[0].run(GNV_SYSFS, &pci) : gnv_vfio_check_all(GNV_SYSFS, &pci);
	if (!ret)
		ret = gnv_vfio_choose(share && !name ? way_of(share) : name, &pci, &way);
	if (!ret && share && share->ops != way->ops)
		ret = gnv_port_cannot_share(share, way->ops->name);
	if (!ret)
		ret = gnv_port_vfio_open(way, &pci, share, log, port);
	if (ret)
		return ret;
	(*port)->read_only = ro;
	if (unsafe_vram)
		gnv_space_vfio_of((*port)->space)->unsafe_vram = true;
	return 0;
}
