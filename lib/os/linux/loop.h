/* SPDX-License-Identifier: MIT */
/* Loop devices: one keeps what is below it open without being a process or an exclusive user. */
#ifndef GNV_OS_LINUX_LOOP_H
#define GNV_OS_LINUX_LOOP_H

#include <stdbool.h>
#include <stddef.h>

#include "os/linux/openers.h"

/*
 * gnv_loop_of() - a loop device that is made of a file or of a block device
 * @name: of it, "loop0"
 * Not seen: one whose file has another name by now, or none, because the kernel tells of it by name alone.
 */
bool gnv_loop_of(const char *sys, const struct gnv_opened *what, char *name, size_t size);

#endif
