/* SPDX-License-Identifier: MIT */
/*
 * Who uses a drive: what is mounted from its nodes (drive.h), made of them (device mapper, md, loop), hands them out (the NVMe
 * target) or has them open. Functions take the roots of sysfs and procfs, "/sys" and "/proc" but in tests.
 */
#ifndef GNV_OS_LINUX_USERS_H
#define GNV_OS_LINUX_USERS_H

#include <stddef.h>

#include "os/linux/openers.h"
#include "os/linux/sysfs.h"
#include "util/identity.h"

#define GNV_USERS_TEXT 256

/*
 * gnv_users_find() - somebody who uses the drive
 * @text:   who, and what ends it, behind "; "; "" for nobody
 * @unseen: how many processes could not be looked at; may be NULL
 * Return: 0, -EBUSY somebody, -ENOMEM.
 */
int gnv_users_find(const char *sys, const char *proc, const struct gnv_pci *pci, char text[GNV_USERS_TEXT], unsigned *unseen);

/* The same as a predicate: gnv_fail() has the sentence. */
int gnv_users_check(const char *sys, const char *proc, const struct gnv_pci *pci);

/*
 * gnv_users_hold() - nobody uses the drive, and nobody can begin to by mounting it or by another exclusive open
 * Opens every disk of it exclusively, then looks who else has it open. Strict: when a process cannot be looked at, it fails.
 * Return: 0; -EBUSY, -EACCES, -ENOENT a disk has no node in /dev, -ENOMEM; gnv_fail() has the sentence.
 */
struct gnv_hold;
int gnv_users_hold(const char *sys, const char *proc, const struct gnv_pci *pci, struct gnv_hold **hold);
void gnv_users_release(struct gnv_hold *hold);

/*
 * gnv_users_of_block() - somebody who uses a block device, a partition of it, or a disk that is the same behind another controller
 * @dev:     its number
 * @writers: ask who has it open for writing, too, not only who holds it
 * @unseen:  as above
 * Return: as gnv_users_find().
 */
int gnv_users_of_block(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen);

/*
 * gnv_users_hold_block() - the same, and nobody can begin to by mounting it or by another exclusive open; the disks of other
 * controllers are held where this user may open them
 * @text: with 0: one that could not be held, and why, or ""
 * Return: 0; -EBUSY, -EACCES, -ENOENT and others: text says why; -ENOMEM.
 */
int gnv_users_hold_block(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen,
			 struct gnv_hold **hold);

/* Its descriptor of that block device; of gnv_users_hold_block() only. */
int gnv_users_held(const struct gnv_hold *hold);

/*
 * gnv_users_hold_twins() - nobody uses a namespace of a drive through another controller, and, where this user may open its disk
 * there, nobody can begin to by mounting it
 * @drive: what it says of itself; the nvme driver does not have it
 * @text:  with 0: a disk that could not be held, and why, or ""
 * Return: as gnv_users_find(), or what drive->nth() answers.
 */
int gnv_users_hold_twins(const char *sys, const char *proc, const struct gnv_identity *drive, char text[GNV_USERS_TEXT],
			 struct gnv_hold **hold);

/*
 * gnv_users_of_image() - who has a lock on a regular file that this process could not get, or has made a loop device of it
 * @fd:     a descriptor of it that has no lock
 * @locked: somebody has one; else only loop devices are looked for
 * Return: as gnv_users_find(); -EAGAIN where who it is cannot be seen, as text says: another user's process, or one that has ended
 * and whose io_uring the kernel has yet to take down.
 */
int gnv_users_of_image(const char *sys, const char *proc, int fd, bool locked, char text[GNV_USERS_TEXT]);

#endif
