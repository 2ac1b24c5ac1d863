/* SPDX-License-Identifier: MIT */
/* Namespaces of a controller: size, format and medium, which there are, their features. */
#ifndef GPUNVME_NS_H
#define GPUNVME_NS_H

#include <gpunvme/dev.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpunvme_deallocated {
	GPUNVME_DEALLOCATED_UNKNOWN = 0, /* the drive does not say: what was there, zeroes, or anything else */
	GPUNVME_DEALLOCATED_ZEROES = 1,
	GPUNVME_DEALLOCATED_ONES = 2
};

/* What a namespace lies on. Zeroes, as an older library leaves them, are the case that wants most care. */
enum gpunvme_medium {
	GPUNVME_MEDIUM_DRIVE = 0,   /* a drive of its own */
	GPUNVME_MEDIUM_FILE = 1,    /* a regular file */
	GPUNVME_MEDIUM_BLOCK = 2,   /* a block device of the kernel */
	GPUNVME_MEDIUM_CHAR = 3,    /* a character device of the kernel: the generic device of the nvme driver */
	GPUNVME_MEDIUM_MEMORY = 4,  /* memory of this process: zeroes when it is opened, lost when it is closed */
	GPUNVME_MEDIUM_GPU = 5,     /* soft:vram:, memory of the GPU: zeroes or a copy of image=FILE, lost in the same way */
	GPUNVME_MEDIUM_PROCESS = 6  /* another process serves it, and does not say what it lies on */
};

struct gpunvme_ns_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_ns_info) */
	uint32_t nsid;
	uint32_t lba_size; /* bytes */
	uint64_t nblocks;  /* NSZE */
	uint8_t read_only; /* write protected, or the device is */
	uint8_t nguid[16];
	uint8_t eui64[8];
	uint8_t reserved[7];
	/* All in blocks, as the namespace says them. 0: it does not say. They are hints, but for the atomic ones. */
	uint32_t boundary;      /* transfers across a multiple of it are slower (NOIOB); lanes cut theirs there if it is a power of two */
	uint32_t write_step;    /* writes are best multiples of it (NPWG). With it a command of kernels has at most what a list of one
	                         * page describes (1 MiB with pages of 4 KiB). So long transfers continue at a multiple, ... */
	uint32_t write_align;   /* ... that begin at multiples of this (NPWA) ... */
	uint32_t write_best;    /* ... and have this size (NOWS) */
	uint32_t atomic;        /* a write up to this size is seen whole or not at all (NAWUN, AWUN) */
	uint32_t atomic_power;  /* and is on the media whole or not at all after a power failure (NAWUPF, AWUPF) */
	uint32_t atomic_border; /* unless it crosses a multiple of this (NABSPF) ... */
	uint32_t atomic_first;  /* ... counted from this block on (NABO) */
	uint32_t atomic_seen_border; /* the same for what is seen (NABSN) */
	uint32_t deallocated;        /* enum gpunvme_deallocated: what blocks read as that were deallocated (DLFEAT) */
	uint32_t medium;             /* enum gpunvme_medium: what it lies on; may it be written? gpunvme_ns_may_overwrite() */
	uint32_t medium_reserved;
	/* Of a file st_dev, of a block device st_rdev (stat(2)), of a generic one that of its disk, of a GPU those of image= */
	uint64_t medium_dev; /* else 0 */
	uint64_t medium_ino; /* of a file st_ino, also as image=; else 0 */
};

/**
 * gpunvme_ns_get_info() - size and format of one namespace
 * @dev:  an open device
 * @nsid: 1 or more; 0 stands for the device's default namespace
 * @info: filled; info->size must be set
 *
 * Asks the controller (Identify, CNS 00h, and CNS 03h first where it has several command sets). Any thread may call it.
 * Return: 0; -EINVAL when info->size is too small; -ENOENT when the namespace is not active; -EOPNOTSUPP when it is zoned,
 * key-value or of another command set than NVM, its format carries metadata (the error message names the format to change to); or
 * its blocks are not of 512 to 65536 bytes; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_ns_get_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info);

/**
 * gpunvme_ns_may_overwrite() - refuse a namespace that may hold somebody's data
 * @dev:  an open device
 * @nsid: 1 or more; 0 stands for the device's default namespace
 *
 * Programs call it before they write, and ask their user where it refuses: gpunvme_errmsg() then names model, serial number, size
 * and medium of the drive, for a question such as "add --yes if that is the drive you mean". Images and memory, which somebody made
 * for this, need no question. Nothing is kept: the result holds for this call. Any thread may call it.
 * Return: 0 it is a regular file or memory, and can be written; -EPERM it may hold somebody's data; -EROFS it cannot be written;
 * otherwise as gpunvme_ns_get_info().
 */
GPUNVME_API int gpunvme_ns_may_overwrite(struct gpunvme_dev *dev, uint32_t nsid);

/**
 * gpunvme_ns_list() - the active namespaces
 * @dev:   an open device
 * @nsids: room for *count numbers
 * @count: in: room; out: how many there are, which may be more than there was room for
 *
 * Identify, CNS 02h. Where the controller refuses that, CNS 00h for each. Any thread may call it.
 * Return: 0; -ETIMEDOUT all of it takes longer than gpunvme_dev_opts.admin_timeout_ms; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_ns_list(struct gpunvme_dev *dev, uint32_t *nsids, uint32_t *count);

/**
 * gpunvme_ns_get_feature() - current value of a feature that each namespace has of its own
 * @dev:   an open device
 * @nsid:  1 or more; 0 stands for the device's default namespace
 * @fid:   GPUNVME_FID_*, or another that the drive knows, such as error recovery (05h) or write protection (84h)
 * @value: dword 0 of the completion
 *
 * Which features are a namespace's: Base Specification 5.27.1. A drive may refuse a namespace for others. Any thread may call it.
 * Return: as gpunvme_dev_admin(); -ENOENT the controller has no such namespace.
 */
GPUNVME_API int gpunvme_ns_get_feature(struct gpunvme_dev *dev, uint32_t nsid, uint8_t fid, uint32_t *value);

/**
 * gpunvme_ns_set_feature() - change one, as long as the device is open; a reset under way sets it again
 * @dev:   an open device
 * @nsid:  1 or more; 0 stands for the device's default namespace, GPUNVME_NSID_ALL for all
 * @fid:   as above
 * @value: command dword 11
 *
 * Write protection (84h) is not set again: the drive keeps it. Any thread may call it.
 * Return: as gpunvme_dev_set_feature(); -ENOENT the controller has no such namespace.
 */
GPUNVME_API int gpunvme_ns_set_feature(struct gpunvme_dev *dev, uint32_t nsid, uint8_t fid, uint32_t value);

#ifdef __cplusplus
}
#endif
#endif
