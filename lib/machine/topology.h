/* SPDX-License-Identifier: MIT */
/* The path between two PCI devices. Takes the root of sysfs, which is "/sys" except in tests. */
#ifndef GNV_MACHINE_TOPOLOGY_H
#define GNV_MACHINE_TOPOLOGY_H

#include <gpunvme/admin.h>

#include "os/linux/sysfs.h"

/*
 * gnv_topology_path() - from one PCI device to another
 * @a, @b: for a partition of a GPU the card counts
 * @path: distance and redirect are set
 * Return: 0; -ENODEV one of them does not exist.
 */
int gnv_topology_path(const char *sys, const char *a, const char *b, struct gpunvme_pci_path *path);

#endif
