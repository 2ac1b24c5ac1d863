/* SPDX-License-Identifier: MIT */
/*
 * Conditions of opening a PCI controller through VFIO. Opening runs the predicates and stops at the first that fails. `doctor` runs
 * the same ones and reports each.
 */
#ifndef GNV_PORT_REFUSALS_H
#define GNV_PORT_REFUSALS_H

#include "os/linux/sysfs.h"

struct gnv_vfio_check {
	const char *name; /* one word */
	const char *fine; /* text for a condition that holds */
	bool before_bind; /* must hold before vfio-pci gets the device */
	/* Return: 0, or a negative errno; gnv_fail() has the message, cause and remedy. @pci: from gnv_sysfs_pci(). */
	int (*run)(const char *sys, const struct gnv_pci *pci);
};

/* Needed by every port, in the order of the checks. A NULL name ends the list. */
extern const struct gnv_vfio_check gnv_vfio_checks[];

/* The ways to the device: its nodes exist and this process may use them. */
extern const struct gnv_vfio_check gnv_vfio_check_iommufd;
extern const struct gnv_vfio_check gnv_vfio_check_type1;
extern const struct gnv_vfio_check gnv_vfio_check_noiommu;

/* All of gnv_vfio_checks, or all but the first, which checks the kind of device. Return: as the first that failed. */
int gnv_vfio_check_all(const char *sys, const struct gnv_pci *pci);
int gnv_vfio_check_any(const char *sys, const struct gnv_pci *pci);

#endif
