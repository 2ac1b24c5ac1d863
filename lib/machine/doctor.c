/* SPDX-License-Identifier: MIT */
/*
 * The predicates of opening a controller, one by one.
 * Invariant: the checks are those of port/port_pci.c, by the same functions.
 */
#include <errno.h>
#include <gpunvme/dev.h>
#include <gpunvme/spec.h>
#include <stdio.h>
#include <string.h>

#include "machine/doctor.h"
#include "os/linux/sys.h"
#include "port/quirks.h"
#include "port/refusals.h"
#include "port/uri.h"
#include "port/vfio_device.h"
#include "util/entry.h"
#include "util/mmio.h"
#include "util/opts.h"

#define PLENTY (64u << 20) /* the buffer of the programs of this project */

struct gpunvme_check *gnv_report_say(struct gnv_report *report, const char *name, enum gpunvme_check_result result,
				     const char *text)
{
	struct gpunvme_check *check = report->count < GPUNVME_MAX_CHECKS ? &report->check[report->count++] : &report->beyond;
	const bool bad = result == GPUNVME_CHECK_LIMIT || result == GPUNVME_CHECK_FAILED;
	const size_t reason = bad ? gnv_cause_len(text) : strlen(text);

	memset(check, 0, sizeof(*check));
	snprintf(check->name, sizeof(check->name), "%s", name);
	snprintf(check->reason, sizeof(check->reason), "%.*s", (int)reason, text);
	if (text[reason])
		snprintf(check->remedy, sizeof(check->remedy), "%s", text + reason + 2);
	check->result = result;
	return check;
}

struct gpunvme_check *gnv_report_add(struct gnv_report *report, const char *name, int ret, const char *fine)
{
	return gnv_report_say(report, name, ret ? GPUNVME_CHECK_FAILED : GPUNVME_CHECK_OK, ret ? gpunvme_errmsg() : fine);
}

void gnv_report_limit(struct gnv_report *report, const char *name, int ret, const char *fine)
{
	gnv_report_say(report, name, ret ? GPUNVME_CHECK_LIMIT : GPUNVME_CHECK_OK, ret ? gpunvme_errmsg() : fine);
}

void gnv_report_skip(struct gnv_report *report, const char *name, const char *why)
{
	gnv_report_say(report, name, GPUNVME_CHECK_SKIPPED, why);
}

int gnv_report_put(const struct gnv_report *report, void *checks, uint32_t *count, size_t stride)
{
	gnv_array_put(checks, count, stride, report->check, sizeof(report->check[0]), report->count);
	return report->ret;
}

static void check_memory(struct gnv_report *report)
{
	uint64_t limit = gnv_sys_lock_limit();
	int ret = 0;

	if (limit < PLENTY)
		ret = gnv_fail(-ENOMEM,
			       "only %llu KiB may be locked, which bounds rings and buffers. Raise RLIMIT_MEMLOCK (memlock in "
			       "limits.conf)",
			       (unsigned long long)limit / 1024);
	gnv_report_limit(report, "memlock", ret, "enough memory may be locked");
}

/* With the port open: can other devices use it? No failure stops an open. */
static void check_export(struct gnv_report *report, struct gnv_port *port)
{
	const size_t page = port->bar0->page;
	const uint64_t offset = GPUNVME_REG_DOORBELLS & ~(uint64_t)(page - 1);
	int fd, ret = port->ops->export_bar0(port, offset, page, &fd);

	gnv_report_limit(report, "doorbell-export", ret, "the doorbells can be exported to another device");
	if (ret) {
		gnv_report_skip(report, "bar-memory", "not asked, for lack of an export");
		return;
	}
	ret = gnv_port_map_export(port, fd, page);
	gnv_report_limit(report, "bar-memory", ret, "a BAR of another device can hold rings and data");
	if (ret)
		gnv_report_skip(report, "gpu-memory", "not asked, as bar-memory fails");
	else if (port->space->by_dmabuf)
		gnv_report_limit(report, "gpu-memory", gnv_port_takes_foreign(port),
				 "IOMMUFD takes a GPU's memory from a driver that offers it");
}

/* Report a feature that the library leaves alone, but that users should know of. */
static void check_persistent(struct gnv_report *report, const struct gnv_port *port)
{
	const uint64_t cap = gnv_mmio_read64(gnv_mem_regs(port->bar0) + GPUNVME_REG_CAP);

	if (cap != UINT64_MAX && cap & GPUNVME_CAP_PMRS)
		gnv_report_say(report, "pmr", GPUNVME_CHECK_OK, "it has a Persistent Memory Region, which is left alone");
}

/* The nodes of both ways. One is enough. */
static void check_ways(struct gnv_report *report, const struct gnv_pci *pci)
{
	int iommufd = gnv_vfio_check_iommufd.run(GNV_SYSFS, pci), type1;
	struct gpunvme_check *first = gnv_report_add(report, "iommufd", iommufd, gnv_vfio_check_iommufd.fine), *second;

	type1 = gnv_vfio_check_type1.run(GNV_SYSFS, pci);
	second = gnv_report_add(report, "type1", type1, gnv_vfio_check_type1.fine);
	if (iommufd && !type1)
		first->result = GPUNVME_CHECK_LIMIT;
	if (type1 && !iommufd)
		second->result = GPUNVME_CHECK_LIMIT;
}

static void try_open(struct gnv_report *report, const struct gnv_pci *pci)
{
	const struct gnv_log silent = { .fn = NULL };
	const struct gnv_vfio_way *way;
	struct gnv_port *port;
	char fine[64];
	int ret = gnv_vfio_choose(NULL, pci, &way);

	if (!ret)
		ret = gnv_port_vfio_open(way, pci, NULL, &silent, &port);
	report->ret = ret;
	if (!ret)
		snprintf(fine, sizeof(fine), "the kernel hands it out, by %s", port->ops->name);
	gnv_report_add(report, "open", ret, ret ? "" : fine); /* isolated interrupts and other users are the kernel's to judge */
	if (ret) {
		gnv_report_skip(report, "doorbell-export", "not asked, because it cannot be opened");
		gnv_report_skip(report, "bar-memory", "not asked, because it cannot be opened");
		return;
	}
	check_export(report, port);
	check_persistent(report, port);
	port->ops->close(port);
}

/* No IOMMU: the way that has to be asked for by name. */
static void check_without(struct gnv_report *report, const struct gnv_pci *pci)
{
	int ret = gnv_vfio_check_noiommu.run(GNV_SYSFS, pci);

	gnv_report_add(report, "noiommu", ret, gnv_vfio_check_noiommu.fine)->result = GPUNVME_CHECK_LIMIT;
}

/* Report the quirks of its model, from the table of drives. */
static void check_model(struct gnv_report *report, const struct gnv_pci *pci)
{
	struct gnv_drive drive;
	int ret = gnv_quirks_find(pci->vendor, pci->device, &drive);
	uint32_t left;

	if (!ret)
		ret = gnv_quirks_refuse(&drive);
	if (ret && !report->ret)
		report->ret = ret;
	if (ret || !drive.quirks)
		gnv_report_add(report, "model", ret, "nothing is known to be wrong with drives of its model");
	for (left = ret ? 0 : drive.quirks; left; left &= left - 1)
		gnv_report_say(report, "model", GPUNVME_CHECK_LIMIT, gnv_quirk_message(left));
}

static void examine(struct gnv_report *report, const struct gnv_pci *pci)
{
	const struct gnv_vfio_check *check;

	for (check = gnv_vfio_checks; check->name; check++) {
		int ret = check->run(GNV_SYSFS, pci);

		gnv_report_add(report, check->name, ret, check->fine);
		if (ret && !report->ret)
			report->ret = ret;
		if (ret && !strcmp(check->name, "iommu"))
			check_without(report, pci);
	}
	gnv_doctor_iommu_group(report, GNV_SYSFS, pci);
	gnv_doctor_domain(report, GNV_SYSFS, pci);
	gnv_doctor_link(report, pci);
	gnv_doctor_transfers(report, GNV_SYSFS, pci);
	check_model(report, pci);
	check_memory(report);
	if (report->ret) {
		for (unsigned i = 0; i < 5; i++) {
			static const char *const names[] = { "iommufd", "type1", "open", "doorbell-export", "bar-memory" };

			gnv_report_skip(report, names[i], "not asked, because of the failure above");
		}
		return;
	}
	check_ways(report, pci);
	try_open(report, pci);
}

/* A controller in software, of this process or another, has no place on the bus: whether it opens is all there is to ask. */
static void examine_software(struct gnv_report *report, const char *uri)
{
	struct gpunvme_dev *dev;

	report->ret = gpunvme_dev_open(uri, NULL, &dev);
	gnv_report_add(report, "open", report->ret, "it is a controller in software, and it opens");
	if (!report->ret)
		gpunvme_dev_close(dev);
	check_memory(report);
}

GPUNVME_API int gpunvme_doctor_v(const char *address, struct gpunvme_check *checks, uint32_t *count, size_t stride)
{
	struct gnv_report report = { .count = 0 };
	char bdf[GNV_BDF_BYTES];
	struct gnv_pci pci;
	int ret;

	if (!address || !checks || !count)
		return gnv_null("address, checks and count");
	ret = gnv_stride_check(stride, gpunvme_check);
	if (!ret && (gnv_uri_has_scheme(address, "vfio-user") || gnv_uri_has_scheme(address, "soft"))) {
		examine_software(&report, address);
		return gnv_report_put(&report, checks, count, stride);
	}
	if (!ret)
		ret = gnv_uri_pci(address, bdf);
	if (!ret)
		ret = gnv_sysfs_pci(GNV_SYSFS, bdf, &pci);
	if (ret)
		return ret;
	examine(&report, &pci);
	return gnv_report_put(&report, checks, count, stride);
}
