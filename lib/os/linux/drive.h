/* SPDX-License-Identifier: MIT */
/*
 * The nodes of a drive: disks, their partitions, their generic nodes (ngXnY) and its own (nvmeX). Also those of every disk of
 * another controller that is one of its namespaces.
 *
 * Two disks are one namespace when their controllers report the same subsystem and serial number, and the disks the same identifier
 * (UUID, NGUID, EUI64), or the same NSID, and no different identifier. Linux shows no identifiers of the models that it knows to
 * report garbage, and two drives have two serial numbers, so two drives of one model are two.
 */
#ifndef GNV_OS_LINUX_DRIVE_H
#define GNV_OS_LINUX_DRIVE_H

#include "os/linux/openers.h"
#include "os/linux/sysfs.h"
#include "util/identity.h"

struct gnv_nodes {
	const char *sys;	 /* the root of sysfs, set by the caller */
	struct gnv_opened *node; /* the caller frees it */
	unsigned count;
	int error; /* something could not be read, so nodes may be missing */
};

/*
 * Those of a drive.
 * Return: 0, also when the nvme driver does not have it; -EAGAIN that driver is about to make them; another errno: they cannot be
 * read. gnv_fail() has the message.
 */
int gnv_drive_nodes(struct gnv_nodes *nodes, const struct gnv_pci *pci);

/*
 * Nodes of other controllers for the namespaces of a drive that the nvme driver does not have, and that reports its identity.
 * Return: 0; errors of drive->nth(); another errno: they cannot be read. gnv_fail() has the message.
 */
int gnv_drive_path_nodes(struct gnv_nodes *nodes, const struct gnv_identity *drive);

/*
 * A block device, first, its partitions, and its generic node for commands. For a whole disk also those of other controllers, if it
 * has several. Return: as gnv_drive_nodes(); -EACCES: sysfs does not have it.
 */
int gnv_drive_block_nodes(struct gnv_nodes *nodes, uint64_t dev);

/*
 * The disk of the namespace of a generic device: "nvme0n1" of "ng0n1", often.
 * Return: 0; -ENOENT Linux makes none of it; another errno: it cannot be read.
 */
int gnv_drive_disk_of(const char *sys, const char *generic, char *disk, size_t size);

/* Can a block device zero a range by itself (blkdev_issue_zeroout() of block/blk-lib.c)? */
bool gnv_drive_zeroes(const char *sys, uint64_t dev);

/* Is it a partition? */
bool gnv_drive_is_partition(const struct gnv_nodes *nodes, const struct gnv_opened *node);

#endif
