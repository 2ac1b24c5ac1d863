/* SPDX-License-Identifier: MIT */
#ifndef GNV_MACHINE_GPU_NTH_H
#define GNV_MACHINE_GPU_NTH_H

#include <gpunvme/gpu.h>

/* gpunvme_gpu_nth() with another sysfs. Return: 0, -ENOENT. */
int gnv_gpus_nth(const char *sys, unsigned n, struct gpunvme_gpu_entry *gpu);

#endif
