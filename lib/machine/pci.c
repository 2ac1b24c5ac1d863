/* SPDX-License-Identifier: MIT */
/* Controllers on the PCI bus, for the user: os/linux/sysfs.c reads them and machine/bind.c changes them. */
#include <errno.h>
#include <gpunvme/admin.h>
#include <stdio.h>
#include <string.h>

#include "machine/bind.h"
#include "machine/link.h"
#include "machine/topology.h"
#include "os/linux/node.h"
#include "os/linux/users.h"
#include "port/refusals.h"
#include "port/uri.h"
#include "util/entry.h"
#include "util/opts.h"

static void describe_namespaces(const struct gnv_pci *pci, struct gpunvme_pci_info *info)
{
	char name[64], text[GNV_USERS_TEXT];

	while (!gnv_sysfs_namespace(GNV_SYSFS, pci, info->namespaces, name, sizeof(name))) {
		info->namespaces++;
		info->bytes += gnv_sysfs_block_size(GNV_SYSFS, name);
	}
	if (gnv_users_find(GNV_SYSFS, GNV_PROC, pci, text, &info->unseen)) /* one, or why they are unknown */
		snprintf(info->in_use, sizeof(info->in_use), "%.*s", (int)gnv_cause_len(gpunvme_errmsg()), gpunvme_errmsg());
}

static void describe(const struct gnv_pci *pci, struct gpunvme_pci_info *info)
{
	struct gnv_pci other;
	struct gnv_link link;

	*info = (struct gpunvme_pci_info){ .link_width = pci->link_width, .link_width_most = pci->max_width, .group = pci->group,
					   .numa = pci->numa, .vendor = pci->vendor, .device = pci->device };
	memcpy(info->address, pci->bdf, sizeof(info->address));
	memcpy(info->driver, pci->driver, sizeof(info->driver));
	snprintf(info->link_speed, sizeof(info->link_speed), "%.23s", pci->link_speed);
	gnv_sysfs_nvme_text(GNV_SYSFS, pci, "model", info->model, sizeof(info->model));
	gnv_sysfs_nvme_text(GNV_SYSFS, pci, "serial", info->serial, sizeof(info->serial));
	snprintf(info->link_speed_most, sizeof(info->link_speed_most), "%.23s", pci->max_speed);
	gnv_link_read(GNV_SYSFS, pci->bdf, &link);
	info->payload = link.payload;
	info->payload_most = link.payload_most;
	info->read_request = link.read_request;
	info->aspm = link.aspm;
	describe_namespaces(pci, info);
	for (unsigned i = 0; !info->group_other[0] && !gnv_sysfs_group_member(GNV_SYSFS, pci, i, &other); i++)
		if (!gnv_sysfs_tolerated(&other))
			memcpy(info->group_other, other.bdf, sizeof(info->group_other));
}

GPUNVME_API int gpunvme_pci_list_v(struct gpunvme_pci_info *to, uint32_t *count, size_t stride)
{
	struct gpunvme_pci_info info;
	struct gnv_list list;
	struct gnv_pci pci;
	int ret = gnv_list_begin(&list, to, count, stride, "gpunvme_pci_info");

	if (ret)
		return ret;
	while (!(ret = gnv_sysfs_nth(GNV_SYSFS, GNV_CLASS_NVME, list.count, &pci))) {
		describe(&pci, &info);
		gnv_list_add(&list, &info, sizeof(info));
	}
	*count = list.count;
	return gnv_sysfs_absent(ret) ? 0 : gnv_fail(ret, "PCI devices cannot be listed below " GNV_SYSFS ": %s", strerror(-ret));
}

GPUNVME_API int gpunvme_pci_get_path(const char *a, const char *b, struct gpunvme_pci_path *user)
{
	struct gpunvme_pci_path path = { .size = sizeof(path) };
	char bdf[2][GNV_BDF_BYTES];
	int ret;

	if (!a || !b)
		return gnv_null("the addresses");
	ret = gnv_uri_pci(a, bdf[0]);
	if (!ret)
		ret = gnv_uri_pci(b, bdf[1]);
	if (!ret)
		ret = gnv_topology_path(GNV_SYSFS, bdf[0], bdf[1], &path);
	if (!ret)
		ret = gnv_info_copy(user, &path, gpunvme_pci_path);
	return ret;
}

static int find(const char *function, const char *address, struct gnv_pci *pci)
{
	char bdf[GNV_BDF_BYTES];
	int ret;

	if (!address)
		return gnv_fail(-EINVAL, "%s: address must not be NULL", function);
	ret = gnv_uri_pci(address, bdf);
	if (ret)
		return ret;
	return gnv_sysfs_pci(GNV_SYSFS, bdf, pci);
}

GPUNVME_API int gpunvme_pci_bind(const char *address, const char *user)
{
	struct gnv_pci pci;
	int ret = find("gpunvme_pci_bind", address, &pci);

	if (!ret && user)
		ret = gnv_node_user(user);
	for (const struct gnv_vfio_check *check = gnv_vfio_checks; check->name && !ret; check++) {
		if (check->before_bind)
			ret = check->run(GNV_SYSFS, &pci);
		/* Without an IOMMU only where the administrator has already said that this may be. */
		if (ret == -EOPNOTSUPP && gnv_sysfs_unsafe_noiommu(GNV_SYSFS) > 0)
			ret = 0;
	}
	if (!ret)
		ret = gnv_bind_vfio(GNV_SYSFS, &pci);
	if (ret || !user)
		return ret;
	ret = gnv_sysfs_pci(GNV_SYSFS, pci.bdf, &pci); /* it has a node now */
	if (!ret)
		ret = gnv_bind_hand_over(&pci, user);
	return ret;
}

GPUNVME_API int gpunvme_pci_unbind(const char *address)
{
	struct gnv_pci pci;
	int ret = find("gpunvme_pci_unbind", address, &pci);

	if (ret)
		return ret;
	return gnv_bind_default(GNV_SYSFS, GNV_PROC, &pci);
}
