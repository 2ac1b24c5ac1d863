/* SPDX-License-Identifier: MIT */
/*
 * Users of a drive: mounts of its nodes (drive.h), devices made of them (device mapper, md, loop), exports (the NVMe target, the
 * SCSI target), and processes that have them open. Functions take the roots of sysfs and procfs, "/sys" and "/proc" but in tests.
 */
#ifndef GNV_OS_LINUX_USERS_H
#define GNV_OS_LINUX_USERS_H

#include <stddef.h>

#include "os/linux/drive.h"
#include "os/linux/lower.h"
#include "os/linux/openers.h"
#include "os/linux/sysfs.h"
#include "util/clock.h"

#define GNV_USERS_TEXT 256

/* Store a text. It is the thread's message, too, so it is known where its remedy begins, whatever names it has. */
void gnv_users_say(char text[GNV_USERS_TEXT], const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * gnv_users_find() - find a user of the drive
 * @text:   the user, and after ". " the remedy, or ""
 * @unseen: how many processes could not be checked. May be NULL
 * Return: 0; -EBUSY it has a user, or there is no @proc; -EAGAIN the nvme driver has yet to make its nodes; another errno: sysfs
 * cannot be read, and gnv_fail() has the message.
 */
int gnv_users_find(const char *sys, const char *proc, const struct gnv_pci *pci, char text[GNV_USERS_TEXT], unsigned *unseen);

/* The same as a predicate: gnv_fail() has the message. */
int gnv_users_check(const char *sys, const char *proc, const struct gnv_pci *pci);

/*
 * gnv_users_of_block() - find a user of a block device, a partition of it, or a disk that is the same through another controller
 * @dev:     its number
* @writers: also search for processes that have it open for writing, not only for holders
 * @unseen:  as above
 * Return: as gnv_users_find().
 */
int gnv_users_of_block(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen);

/*
 * gnv_users_of_image() - find the holder of a lock on a regular file that this process could not get, or a user in the kernel,
 * which takes no lock: a loop device of it, the NVMe target, the SCSI target
 * @fd:     a descriptor of it that has no lock
 * @locked: a process has one. Otherwise only search for users in the kernel
 * Return: as gnv_users_find(); -EAGAIN the user is not visible, as text says: another user's process, or one that has ended and
 * whose io_uring the kernel has yet to end.
 */
int gnv_users_of_image(const char *sys, const char *proc, int fd, bool locked, char text[GNV_USERS_TEXT]);

/*
 * gnv_users_of_lower() - Look for a lock on the file of a loop device.
 * @writer: the loop device is to be written to, so a reader's lock counts, too
 * @dying:  how long a process that ends may keep its lock
 * Return: 0, with a text if that is unknown; -EBUSY: a process has one, and text names it.
 */
int gnv_users_of_lower(const char *sys, const char *proc, const struct gnv_lower *lower, bool writer, struct gnv_deadline *dying,
		       char text[GNV_USERS_TEXT]);

/* Describe a loop device, and the use of its file. Return: -EBUSY. */
int gnv_users_say_lower(const struct gnv_lower *lower, const char *how, char text[GNV_USERS_TEXT]);

/* The same, where it was found and /proc is missing, through which it is opened. */
int gnv_users_no_proc(const struct gnv_lower *lower, char text[GNV_USERS_TEXT]);

/* ---- For exclusive.c, of nodes that are known ---- */

/* As gnv_users_find(), but for processes that merely have them open. */
int gnv_users_look(const struct gnv_nodes *nodes, const char *proc, char text[GNV_USERS_TEXT]);

/* Find a process that has one of them open but by the descriptors @own of this process. */
int gnv_users_opened(const struct gnv_nodes *nodes, const char *proc, enum gnv_openers_how how, const int *own, unsigned owned,
		     char text[GNV_USERS_TEXT], unsigned *unseen);

/* As gnv_users_of_block(). */
int gnv_users_look_at_block(const struct gnv_nodes *nodes, const char *proc, bool writers, char text[GNV_USERS_TEXT],
			    unsigned *unseen);

#endif
