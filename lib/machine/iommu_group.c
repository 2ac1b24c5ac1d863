/* SPDX-License-Identifier: MIT */
/* Where a device sits, as far as that bounds its use: in an external case, in another function of itself, in which domain. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "machine/doctor.h"

static bool is_removable(const char *sys, const struct gnv_pci *pci)
{
	char path[128], text[16];

	snprintf(path, sizeof(path), "%.60s/bus/pci/devices/%s/removable", sys, pci->bdf);
	return !gnv_sysfs_read(path, text, sizeof(text)) && !strcmp(text, "removable");
}

/* Of a virtual function the place of the one that it belongs to. Return: false for any other. */
static bool find_physical(const char *sys, const struct gnv_pci *pci, char place[PATH_MAX])
{
	char link[GNV_BDF_BYTES + 8];

	snprintf(link, sizeof(link), "%s/physfn", pci->bdf);
	return !gnv_sysfs_place(sys, link, place);
}

/* Base Specification 8.26: a secondary controller without resources stays offline. */
static void say_virtual(struct gnv_report *report, const char *physical)
{
	char text[400];

	snprintf(text, sizeof(text),
		 "it is a virtual function of %.15s, and stays offline until that gives it queues and interrupts. "
		 "Call nvme virt-mgmt on its physical function, with -c and its controller: -r 0 -n 2 -a 8, -r 1 -n 1 -a 8, then "
		 "-a 9",
		 strrchr(physical, '/') + 1);
	gnv_report_say(report, "seat", GPUNVME_CHECK_LIMIT, text);
}

/* For the kernel, a device below an external-facing port is removable (pci_set_removable() in drivers/pci/probe.c). */
void gnv_doctor_iommu_group(struct gnv_report *report, const char *sys, const struct gnv_pci *pci)
{
	char physical[PATH_MAX];
	const bool away = is_removable(sys, pci), virtual = find_physical(sys, pci, physical);

	if (away)
		gnv_report_say(report, "seat", GPUNVME_CHECK_LIMIT,
			       "it is in an external case (Thunderbolt, USB4), which makes it slower, and its queues end when the "
			       "case is unplugged. Put it into a slot of the machine to measure");
	if (virtual)
		say_virtual(report, physical);
	if (!away && !virtual)
		gnv_report_say(report, "seat", GPUNVME_CHECK_OK, "it sits in this machine");
}

/* iommu_group_show_type() in drivers/iommu/iommu.c: the default domain, which the kernel's driver of the device has. */
void gnv_doctor_domain(struct gnv_report *report, const char *sys, const struct gnv_pci *pci)
{
	char path[128], type[16], text[160];
	bool direct;

	snprintf(path, sizeof(path), "%.60s/kernel/iommu_groups/%d/type", sys, pci->group);
	if (pci->group < 0 || gnv_sysfs_read(path, type, sizeof(type)) || !*type) {
		gnv_report_skip(report, "iommu-domain", pci->group < 0 ? "it has no IOMMU" : "the kernel does not show the type of its domain");
		return;
	}
	direct = !strcmp(type, "identity");
	snprintf(text, sizeof(text), "its IOMMU group %d has a domain of type %s%s", pci->group, type,
		 direct ? ": its addresses are those of memory" : "");
	gnv_report_say(report, "iommu-domain", GPUNVME_CHECK_OK, text);
}
