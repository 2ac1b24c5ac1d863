/* SPDX-License-Identifier: MIT */
/*
 * GPUs as the kernel's compute driver lists them, and what lies between two PCI devices. Needs no runtime and opens no GPU. Every
 * function takes the root of sysfs, "/sys" but in tests.
 */
#ifndef GNV_OS_TOPOLOGY_H
#define GNV_OS_TOPOLOGY_H

#include <gpunvme/pci.h>

#include "os/sysfs.h"

struct gnv_gpu_node {
	unsigned node;	 /* KFD's number of the node */
	uint32_t kfd_id; /* and of the GPU */
	char bdf[GNV_BDF_BYTES];
	char gfx[16];	  /* "gfx1100"; "" unknown */
	uint64_t vram;	  /* bytes */
	uint64_t visible; /* of them, for the CPU, through the BAR */
	unsigned xgmi;	  /* links to other GPUs that are not PCIe */
	bool asleep;	  /* runtime power management has suspended it */
};

/* The n-th GPU, in KFD's order, which is that of ROCm; of those that this process may see. Return: 0, -ENOENT. */
int gnv_topology_gpu(const char *sys, unsigned n, struct gnv_gpu_node *gpu);

/*
 * gnv_topology_kfd_id() - KFD's number of a GPU that the runtime describes
 * @bdf:  its address
 * @node: the runtime's number of its node, which is KFD's unless GPUs are hidden from this process. It tells the partitions of one
 *        GPU from each other.
 * Return: the number; 0 it is not listed, or nothing tells which of several it is.
 */
uint32_t gnv_topology_kfd_id(const char *sys, const char *bdf, unsigned node);

/*
 * gnv_topology_path() - from one PCI device to another
 * @path: distance and redirect are set
 * Return: 0; -ENODEV one of them does not exist.
 */
int gnv_topology_path(const char *sys, const char *a, const char *b, struct gpunvme_pci_path *path);

#endif
