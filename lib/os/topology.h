/* SPDX-License-Identifier: MIT */
/*
 * GPUs as the kernel's compute driver lists them, and what lies between two PCI devices. Needs no runtime and opens no GPU. Every
 * function takes the root of sysfs, "/sys" but in tests.
 */
#ifndef GNV_OS_TOPOLOGY_H
#define GNV_OS_TOPOLOGY_H

#include "os/sysfs.h"

struct gnv_gpu_node {
	unsigned node;	 /* KFD's number of the node */
	uint32_t kfd_id; /* and of the GPU */
	char bdf[GNV_BDF_BYTES];
	char gfx[16];	  /* "gfx1100" */
	uint64_t vram;	  /* bytes */
	uint64_t visible; /* of them, through the BAR */
	unsigned xgmi;	  /* links to other GPUs that are not PCIe */
	bool asleep;	  /* runtime power management has suspended it */
};

/* The n-th GPU, in KFD's order, which is that of ROCm. Return: 0, -ENOENT. */
int gnv_topology_gpu(const char *sys, unsigned n, struct gnv_gpu_node *gpu);

/* KFD's number of the GPU at a node; 0 where it does not tell. */
uint32_t gnv_topology_kfd_id(const char *sys, unsigned node);

enum gnv_distance { GNV_SAME_SWITCH, GNV_SAME_ROOT, GNV_SAME_SOCKET, GNV_ACROSS_SOCKETS };

struct gnv_path {
	enum gnv_distance distance;
	int redirect; /* a bridge between them sends what peers exchange up to the root (ACS): 1, 0, or -1 unknown without root */
};

/* From one PCI device to another. Return: 0; -ENODEV one of them does not exist. */
int gnv_topology_path(const char *sys, const char *a, const char *b, struct gnv_path *path);

#endif
