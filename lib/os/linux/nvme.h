/* SPDX-License-Identifier: MIT */
/*
 * A namespace that the kernel's nvme driver has, by its generic device (/dev/ng0n1): commands go to the drive as they are.
 * Sources: Linux, include/uapi/linux/nvme_ioctl.h and drivers/nvme/host/ioctl.c.
 */
#ifndef GNV_OS_LINUX_NVME_H
#define GNV_OS_LINUX_NVME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "os/linux/uring.h"

struct gnv_hold;

struct gnv_os_nvme {
	int fd;
	int held; /* descriptor that holds its block device */
	uint32_t nsid;
	uint64_t disk;	    /* number of the block device that the kernel makes of the namespace, too */
	uint64_t max_bytes; /* that the kernel carries in one command */
	bool read_only;	    /* by request, or because this user may only read it */
	unsigned unseen;    /* processes that may have it open and could not be looked at */
	struct gnv_hold *hold;
};

/* One I/O command. Its data are @count pieces. @buffer: slot of the registered buffer that holds the only one, or -1. */
struct gnv_os_nvme_cmd {
	uint8_t opc;
	uint32_t cdw10, cdw11, cdw12, cdw13;
	const struct iovec *iov;
	unsigned count;
	int buffer;
};

/* Is it a generic device of the nvme driver, or named as if it should be one? */
bool gnv_os_nvme_owns(const char *path);

/*
 * gnv_os_nvme_open() - take a namespace
 * @read_only: do not request write access. Without it, a namespace that cannot be written is opened read-only
 *
 * Its block device is held exclusively for as long, so it cannot be mounted, or opened as a block device of the library.
 * Return: 0; -ENOENT; -EACCES; -EBUSY mounted, held or exported, it or a partition of it or the same through another controller,
 * or open for writing; -EOPNOTSUPP zoned, or no block device is made of it; -EINVAL another device; or another errno of open().
 * gnv_fail() has the message.
 */
int gnv_os_nvme_open(const char *path, bool read_only, struct gnv_os_nvme *nvme);
void gnv_os_nvme_close(struct gnv_os_nvme *nvme);

/* Identify. @data: 4096 bytes. Return: 0; the drive's status; -EACCES; another errno. */
int gnv_os_nvme_identify(const struct gnv_os_nvme *nvme, uint8_t cns, void *data);

/*
 * gnv_os_nvme_block() - bytes of a block, as the kernel knows them by now: it looks when somebody has formatted the drive
 * Return: them; 0 the kernel has no disk of it any more, or one that it cannot use: with metadata, or of blocks of another kind.
 */
uint32_t gnv_os_nvme_block(const struct gnv_os_nvme *nvme);

/*
 * gnv_os_nvme_queue() - queue a command on a ring of gnv_uring_open_nvme(). Its pieces must stay until it has completed
 * Its result: 0; the drive's status; -EINTR the driver gave it up (time-out, reset, connection); -EACCES not for this user;
 * -EINVAL more than the kernel carries in one command; -EOPNOTSUPP and -ENOTTY this kernel takes none; -EAGAIN, -ENOMEM, -EFAULT,
 * -EIO.
 * Return: 0; -EBUSY too many requests in flight.
 */
int gnv_os_nvme_queue(const struct gnv_os_nvme *nvme, struct gnv_uring *ring, const struct gnv_os_nvme_cmd *cmd, void *tag);

#endif
