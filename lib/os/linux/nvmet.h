/* SPDX-License-Identifier: MIT */
/*
 * The kernel's NVMe target: it has a drive open without being a process or an exclusive user (nvmet_bdev_ns_enable() of Linux'
 * drivers/nvme/target/io-cmd-bdev.c, nvmet_passthru_ctrl_enable() of passthru.c), or a file without a lock (io-cmd-file.c).
 */
#ifndef GNV_OS_LINUX_NVMET_H
#define GNV_OS_LINUX_NVMET_H

#include <stdbool.h>
#include <stddef.h>

#include "os/linux/openers.h"

enum gnv_nvmet { GNV_NVMET_NOT, GNV_NVMET_NAMESPACE, GNV_NVMET_CONTROLLER };

/*
 * gnv_nvmet_has() - does it hand out a file, or a node of a drive: by itself, or with its whole controller (passthru)?
 * @subsystem: the name of the subsystem
 * Not seen: where configfs is not mounted at its place below sysfs.
 * Return: one of enum gnv_nvmet; a negative errno: its configuration cannot be read.
 */
int gnv_nvmet_has(const char *sys, const struct gnv_opened *what, char *subsystem, size_t size);

#endif
