/* SPDX-License-Identifier: MIT */
/* Messages of the kernel about GPUs, drives and the IOMMU during a report. */
#ifndef GPUNVME_KERNEL_LOG_H
#define GPUNVME_KERNEL_LOG_H

#include "common/output.h"

/*
 * kernel_log_begin() - begin to collect messages
 * @path: "/dev/kmsg" but in tests
 * Return: a descriptor, or a negative errno.
 */
int kernel_log_begin(const char *path);

/* Add a field "kernel_log" to @json: later messages about GPUs, drives, PCIe or the IOMMU, or why they are not known. */
void put_kernel_log(struct json_object *json, int fd);

#endif
