/* SPDX-License-Identifier: MIT */
/* What the kernel says of GPUs, drives and the IOMMU while a report is made. */
#ifndef GPUNVME_KERNEL_LOG_H
#define GPUNVME_KERNEL_LOG_H

#include "common/output.h"

/*
 * kernel_log_begin() - what comes from now on is wanted
 * @path: "/dev/kmsg" but in tests
 * Return: a descriptor, or a negative errno.
 */
int kernel_log_begin(const char *path);

/* As a field "kernel_log" of @json: what came since, as far as it is of GPUs, drives, PCIe or the IOMMU, or why it is not known. */
void put_kernel_log(struct json_object *json, int fd);

#endif
