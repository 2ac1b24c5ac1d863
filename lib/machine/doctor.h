/* SPDX-License-Identifier: MIT */
/* The report of a doctor: lib/machine/doctor.c about controllers, lib/machine/doctor_gpu.c about GPUs. */
#ifndef GNV_MACHINE_DOCTOR_H
#define GNV_MACHINE_DOCTOR_H

#include <gpunvme/admin.h>
#include <gpunvme/gpu.h>

#include "os/linux/sysfs.h"

struct gnv_report {
	struct gpunvme_check check[GPUNVME_MAX_CHECKS];
	unsigned count;
	int ret;		     /* of the first predicate that stops an open */
	struct gpunvme_check beyond; /* a check without room */
};

/* Add a predicate. If it does not hold, the text is split where the remedy begins (gnv_cause_len()). */
struct gpunvme_check *gnv_report_say(struct gnv_report *report, const char *name, enum gpunvme_check_result result,
				     const char *text);

/* A predicate that must hold. Its text is @fine if `ret` is 0. Otherwise it is the error message. */
struct gpunvme_check *gnv_report_add(struct gnv_report *report, const char *name, int ret, const char *fine);

/* One without which it works, but not for everything. */
void gnv_report_limit(struct gnv_report *report, const char *name, int ret, const char *fine);

/* One that could not be asked. */
void gnv_report_skip(struct gnv_report *report, const char *name, const char *why);

/* To the caller's checks, of @stride bytes each, as many as *@count has room for. Return: report->ret. */
int gnv_report_put(const struct gnv_report *report, void *checks, uint32_t *count, size_t stride);

/* The PCIe link as it was trained, compared with the abilities of the device. */
void gnv_doctor_link(struct gnv_report *report, const struct gnv_pci *pci);

/* Report where the drive is: in the machine, in an external case, or a virtual function. */
void gnv_doctor_iommu_group(struct gnv_report *report, const char *sys, const struct gnv_pci *pci);

/* Does its IOMMU domain translate addresses? A row. */
void gnv_doctor_domain(struct gnv_report *report, const char *sys, const struct gnv_pci *pci);

/* The libraries of GPUs that are loaded, by their file names, which have their versions, and the version that HIP reports. Rows. */
void gnv_doctor_versions(struct gnv_report *report);

/* How much one packet and one read of it carry, and whether the link sleeps, a row each. Skipped if it is not known. */
void gnv_doctor_transfers(struct gnv_report *report, const char *sys, const struct gnv_pci *pci);

/*
 * gnv_doctor_gpu() - gpunvme_doctor_gpu() with another sysfs
 * @controller: its URI, or NULL
 */
int gnv_doctor_gpu(const char *sys, unsigned n, const char *controller, struct gnv_report *report);

#endif
