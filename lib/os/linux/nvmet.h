/* SPDX-License-Identifier: MIT */
/*
 * The kernel's NVMe target: it has a drive open without being a process or an exclusive user (nvmet_bdev_ns_enable() of Linux'
 * drivers/nvme/target/io-cmd-bdev.c).
 */
#ifndef GNV_OS_LINUX_NVMET_H
#define GNV_OS_LINUX_NVMET_H

#include <stdbool.h>
#include <stddef.h>

#include "os/linux/openers.h"

/*
 * gnv_nvmet_has() - does it hand out a block device?
 * @subsystem: the name of the subsystem
 * Not seen: where configfs is not mounted at its place below sysfs; a controller that is handed out whole (passthru).
 */
bool gnv_nvmet_has(const char *sys, const struct gnv_opened *what, char *subsystem, size_t size);

#endif
