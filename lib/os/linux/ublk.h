/* SPDX-License-Identifier: MIT */
/*
 * Block devices of the kernel whose requests this process executes (ublk_drv): commands to its control node, and the node of a
 * device for its queues. os/linux/uring.h has the commands in the queues.
 */
#ifndef GNV_OS_LINUX_UBLK_H
#define GNV_OS_LINUX_UBLK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/linux/uapi/ublk.h"

/*
 * gnv_ublk_control() - send one command to /dev/ublk-control
 * @op:   GNV_UBLK_GET_DEV_INFO and so on
 * @id:   of the device
 * @buf:  @len bytes, in and out, or NULL
 * The start of a device names this process. It waits up to half a minute: a stop waits for requests. Any thread.
 * Return: the driver's result; -EOPNOTSUPP no ublk, or one older than Linux 6.4; -EACCES; -ETIMEDOUT. gnv_fail() has a sentence for
 * these three, which do not depend on the command.
 */
int gnv_ublk_control(uint32_t op, uint32_t id, void *buf, size_t len);

/* The same, repeated while the driver returns -EBUSY, but no longer than @ms, by one ring. */
int gnv_ublk_control_within(uint32_t op, uint32_t id, unsigned ms);

/*
 * gnv_ublk_open() - the node of a device that was just added
 * It is this process's alone, also over fork(). Return: a descriptor; negative errno, gnv_fail() has the message.
 */
int gnv_ublk_open(uint32_t id);
void gnv_ublk_close(int fd);

/* The requests of a queue, one for each tag, read-only. Return: 0, or a negative errno. */
int gnv_ublk_map(int fd, uint32_t queue, uint32_t depth, const struct gnv_ublk_desc **desc);
void gnv_ublk_unmap(const struct gnv_ublk_desc *desc, uint32_t depth);

/*
 * gnv_ublk_waits() - does the disk of a device have requests that are not completed?
 * Without a server they wait for one, and so does the holder of the disk's lock (open_mutex): the kernel's search for partitions,
 * which goes on after GNV_UBLK_START_DEV has returned (Linux 7.2, ublk_partition_scan_work()). A process that opens the disk then
 * waits for that lock, as does GNV_UBLK_TRY_STOP_DEV, and no signal ends that. @sys: "/sys" but in tests.
 */
bool gnv_ublk_waits(const char *sys, uint32_t id);

/*
 * gnv_ublk_users() - find users that have the disk of a device mounted, or open
 * @text: the user, or "" (users.h), also with -EBUSY, where it is unknown. GNV_USERS_TEXT bytes
 * The disk is not opened while its requests wait. Return: 0 no known user; -EBUSY; as gnv_users_of_block().
 */
int gnv_ublk_users(uint32_t id, char *text);

#endif
