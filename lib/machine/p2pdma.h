/* SPDX-License-Identifier: MIT */
/* The decision of the kernel's P2PDMA on a pair of devices, derived from data that user space can read. */
#ifndef GNV_MACHINE_P2PDMA_H
#define GNV_MACHINE_P2PDMA_H

#include "machine/topology.h"

/*
 * gnv_p2pdma_ask() - derive the result of calc_map_type_and_dist() (drivers/pci/p2pdma.c, Linux 7.3)
 * @a, @b: PCI addresses. For a partition of a GPU the card counts
 * @path:  from gnv_topology_path() of the two
 * @fine:  filled where the kernel permits it: which way, and from what that is derived
 * Return: 0; -EXDEV the kernel refuses; -ENOENT user space cannot know. gnv_fail() has the error message.
 */
int gnv_p2pdma_ask(const char *sys, const char *a, const char *b, const struct gpunvme_pci_path *path, char *fine, size_t size);

#endif
