/* SPDX-License-Identifier: MIT */
/*
 * Keeping a drive, or disks, from other users for as long as this process wants, after a search for them (users.h, whose roots
 * these functions take as well).
 */
#ifndef GNV_OS_LINUX_EXCLUSIVE_H
#define GNV_OS_LINUX_EXCLUSIVE_H

#include "os/linux/users.h"
#include "util/clock.h"
#include "util/identity.h"

struct gnv_hold;

/*
 * The kernel ends an io_uring, and its files, some time after its process, when the last command has ended: milliseconds, or
 * seconds on a busy machine. So a call that would be refused waits for that.
 */
#define GNV_DYING_MS 10000

/* open(), again until @dying (GNV_DYING_MS) while it is held. Return: a descriptor, closed as fork.h has it; -1, and errno. */
int gnv_hold_open(const char *path, int flags, struct gnv_deadline *dying);

/*
 * gnv_users_hold() - make sure that a drive has no user, and can get none by a mount or another exclusive open
 * Opens every disk of it exclusively, then searches for other openers. Strict: it fails if a process cannot be checked.
 * Return: 0; -EBUSY, -EACCES, -ENOENT a disk has no node in /dev; errors of gnv_drive_nodes(), after a while if that is -EAGAIN.
 * gnv_fail() has the message.
 */
int gnv_users_hold(const char *sys, const char *proc, const struct gnv_pci *pci, struct gnv_hold **hold);
void gnv_users_release(struct gnv_hold *hold);

/*
 * gnv_users_hold_block() - make sure that a block device has no user (gnv_users_of_block()), and can get none by a mount or another
 * exclusive open. The same for disks that are the same through other controllers
 * Return: 0; -EBUSY, -EACCES, -ENOENT and others: text says why; -ENOMEM.
 */
int gnv_users_hold_block(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen,
			 struct gnv_hold **hold);

/*
 * gnv_users_hold_others() - the same without the block device itself, which the caller opens exclusively, and the others only where
 * this user may open them
 * It also holds devices below loop devices. To a writer, one that cannot be held counts as used, and so do all without sysfs.
 * @text: with 0: one that could not be held, and why, or ""
 */
int gnv_users_hold_others(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT],
			  unsigned *unseen, struct gnv_hold **hold);

/* Its descriptor of that block device. Of gnv_users_hold_block() only. */
int gnv_users_held(const struct gnv_hold *hold);

/*
 * gnv_users_hold_paths() - make sure that a namespace of a drive has no user through another controller, and can get none by a
 * mount, if this user may open its disk there
 * @drive: its identity. The nvme driver does not have it
 * @text:  with 0: a disk that could not be held, and why, or ""
 * Return: as gnv_users_find(), or errors of drive->nth().
 */
int gnv_users_hold_paths(const char *sys, const char *proc, const struct gnv_identity *drive, char text[GNV_USERS_TEXT],
			 struct gnv_hold **hold);

#endif
