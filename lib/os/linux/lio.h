/* SPDX-License-Identifier: MIT */
/*
 * The kernel's SCSI target (LIO). Its fileio storage objects have a file or a block device open, without a lock and not exclusively
 * (fd_configure_device() of Linux' drivers/target/target_core_file.c). Its iblock objects open exclusively.
 */
#ifndef GNV_OS_LINUX_LIO_H
#define GNV_OS_LINUX_LIO_H

#include <stddef.h>

#include "os/linux/openers.h"

/*
 * gnv_lio_has() - does a storage object of it use this file or block device?
 * @name: that object, "fileio_0/disk"
 * Not seen: where configfs is not mounted at its place below sysfs.
 * Return: 1; 0; a negative errno: it cannot be read.
 */
int gnv_lio_has(const char *sys, const struct gnv_opened *what, char *name, size_t size);

#endif
