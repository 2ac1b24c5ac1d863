/* SPDX-License-Identifier: MIT */
#ifndef GNV_MACHINE_GPU_LIST_H
#define GNV_MACHINE_GPU_LIST_H

#include <gpunvme/gpu.h>

/* The n-th GPU of the list, with another sysfs. Return: 0, -ENOENT. */
int gnv_gpus_nth(const char *sys, unsigned n, struct gpunvme_gpu_entry *gpu);

#endif
