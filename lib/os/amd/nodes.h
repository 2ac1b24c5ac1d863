/* SPDX-License-Identifier: MIT */
/*
 * GPUs as the kernel's compute driver lists them. Needs no runtime and opens no GPU. Every function takes the root of sysfs, "/sys"
 * but in tests.
 */
#ifndef GNV_OS_AMD_NODES_H
#define GNV_OS_AMD_NODES_H

#include "os/linux/sysfs.h"

struct gnv_gpu_node {
	unsigned node;	 /* KFD's number of the node */
	uint32_t kfd_id; /* and of the GPU */
	char bdf[GNV_BDF_BYTES]; /* as the runtimes report it: the function of a partition is its number */
	unsigned render;  /* minor of its render node, 128 and up, or 0 */
	char gfx[16];	  /* "gfx1100", "" unknown */
	uint64_t vram;	  /* bytes */
	uint64_t visible; /* of them, for the CPU, through the BAR */
	unsigned xgmi;	  /* links to other GPUs that are not PCIe */
	bool asleep;	  /* runtime power management has suspended it */
};

/* The n-th GPU that this process may see, in KFD's order, which is that of ROCm. Return: 0, -ENOENT. */
int gnv_kfd_gpu(const char *sys, unsigned n, struct gnv_gpu_node *gpu);

/*
 * gnv_kfd_id() - KFD's number of a GPU that the runtime describes
 * @bdf:  its address
 * @node: the runtime's number of its node, which is KFD's unless GPUs are hidden from this process. It distinguishes the partitions
 *        of one GPU.
 * Return: the number; 0 it is not listed, or it is ambiguous.
 */
uint32_t gnv_kfd_id(const char *sys, const char *bdf, unsigned node);

/* Minor of the render node of the GPU or partition at an address, or 0: unknown or ambiguous. */
unsigned gnv_kfd_render(const char *sys, const char *bdf);

/*
* gnv_kfd_card() - get the PCI device of a GPU's address
 * The partitions of one card (DPX, CPX) count in the function of its address, where PCI has nothing.
 */
void gnv_kfd_card(const char *sys, const char *bdf, char card[GNV_BDF_BYTES]);

#endif
