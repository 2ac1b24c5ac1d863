/* SPDX-License-Identifier: MIT */
/* Namespaces of a controller: a list of them, their size, format and medium, their features. */
#ifndef GPUNVME_NS_H
#define GPUNVME_NS_H

#include <gpunvme/dev.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpunvme_deallocated {
	GPUNVME_DEALLOCATED_UNKNOWN = 0, /* the drive does not report it: the old data, zeroes, or anything else */
	GPUNVME_DEALLOCATED_ZEROES = 1,
	GPUNVME_DEALLOCATED_ONES = 2
};

/* The medium of a namespace. 0, as an older library leaves it, is the one that needs most care. */
enum gpunvme_medium {
	GPUNVME_MEDIUM_DRIVE = 0,   /* a drive */
	GPUNVME_MEDIUM_FILE = 1,    /* a regular file */
	GPUNVME_MEDIUM_BLOCK = 2,   /* a block device of the kernel */
	GPUNVME_MEDIUM_CHAR = 3,    /* a character device of the kernel: the generic device of the nvme driver */
	GPUNVME_MEDIUM_MEMORY = 4,  /* memory of this process: zeroes when it is opened, lost when it is closed */
	GPUNVME_MEDIUM_GPU = 5,     /* soft:vram:, memory of the GPU: zeroes or a copy of image=FILE, lost in the same way */
	GPUNVME_MEDIUM_PROCESS = 6  /* a controller in another process, whose medium is not known */
};

struct gpunvme_ns_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_ns_info) */
	uint32_t nsid;
	uint32_t lba_size; /* bytes */
	uint64_t nblocks;  /* NSZE */
	uint8_t read_only; /* 1: it is write protected, or the device is read-only */
	uint8_t nguid[16];
	uint8_t eui64[8];
	uint8_t reserved[7];
	/* All in blocks, as the namespace reports them. 0: not reported. All but the atomic ones are hints. */
	uint32_t boundary;      /* transfers across a multiple of it are slower (NOIOB). Threads cut theirs at a power of two */
	uint32_t write_step;    /* writes are best multiples of it (NPWG). With it a command of kernels has at most what a list of one
	                         * page describes (1 MiB with pages of 4 KiB). So long transfers continue at a multiple, ... */
	uint32_t write_align;   /* ... that begin at multiples of this (NPWA) ... */
	uint32_t write_best;    /* ... and have this size (NOWS) */
	uint32_t atomic;        /* other commands see a write up to this size whole or not at all (NAWUN, AWUN) */
	uint32_t atomic_power;  /* and is on the media whole or not at all after a power failure (NAWUPF, AWUPF) */
	uint32_t atomic_border; /* unless it crosses a multiple of this (NABSPF) ... */
	uint32_t atomic_first;  /* ... counted from this block on (NABO) */
	uint32_t atomic_seen_border; /* the same border for `atomic` (NABSN) */
	uint32_t deallocated;        /* enum gpunvme_deallocated: the content of deallocated blocks (DLFEAT) */
	uint32_t medium;             /* enum gpunvme_medium. Before writing ask gpunvme_ns_may_overwrite() */
	uint32_t medium_reserved;
	/* File: st_dev. Block device: st_rdev (stat(2)). Generic device: st_rdev of its disk. GPU: those of image=. Else 0. */
	uint64_t medium_dev;
	uint64_t medium_ino; /* st_ino of a file, also of image=. Else 0 */
};

/**
 * gpunvme_ns_get_info() - get size and format of a namespace
 * @dev:  an open device
 * @nsid: 1 or more, or 0 for the device's default namespace
 * @info: filled. Set info->size before
 *
 * Sends Identify with CNS 00h, after CNS 03h if the controller has several command sets (Base Specification 5.17, NVM Command Set
 * Specification 4.1.5.1). Any thread may call it.
 * Return:
 * - 0: @info is filled.
 * - -EINVAL: info->size is too small.
 * - -ENOENT: the namespace does not exist or is not active.
 * - -EOPNOTSUPP: its command set is not NVM (zoned, key-value, another). Or its blocks have less than 512 or more than 65536
 *   bytes. Or its format carries metadata: the error message names the format to change to.
 * - -EPROTO: its format or size is not possible. Or the controller broke the protocol, and is dead.
 * - -ENODEV, -ESHUTDOWN, -ETIMEDOUT, -ECHILD as status.h says, or a positive NVMe status.
 */
GPUNVME_API int gpunvme_ns_get_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info);

/**
 * gpunvme_ns_may_overwrite() - refuse a namespace that may hold data
 * @dev:  an open device
 * @nsid: 1 or more, or 0 for the device's default namespace
 *
 * Call it before you write, and ask the user if it refuses. gpunvme_errmsg() then names model, serial number, size and medium of
 * the drive. A question may be: "add --yes if that is the drive you mean". Images and memory, which were made for this, need no
 * question. The library keeps nothing: the result is for this call. Any thread may call it.
 * Return: 0: it is a regular file or memory, and can be written; -EPERM: it may hold data; -EROFS: it cannot be written; otherwise
 * as gpunvme_ns_get_info().
 */
GPUNVME_API int gpunvme_ns_may_overwrite(struct gpunvme_dev *dev, uint32_t nsid);

/**
 * gpunvme_ns_list() - list the active namespaces of a controller
 * @dev:   an open device
 * @nsids: room for *count numbers. May be NULL if *count is 0
 * @count: in: room. Out: number of namespaces, which may exceed the room
 *
 * Sends Identify with CNS 02h. If the controller refuses that, it sends CNS 00h for each of the first 4096 (Base Specification
 * 5.17). Any thread may call it.
 * Return: 0; -ETIMEDOUT: all of it takes longer than gpunvme_dev_opts.admin_timeout_ms; -EPROTO: the list is not in order; or a
 * positive NVMe status.
 */
GPUNVME_API int gpunvme_ns_list(struct gpunvme_dev *dev, uint32_t *nsids, uint32_t *count);

/**
 * gpunvme_ns_get_feature() - get the current value of a feature that each namespace has
 * @dev:   an open device
 * @nsid:  1 or more, or 0 for the device's default namespace
 * @fid:   GPUNVME_FID_*, or another that the drive knows, such as error recovery (05h) or write protection (84h)
 * @value: set to dword 0 of the completion
 *
 * Base Specification 5.27.1 says which features a namespace has. A drive may refuse a namespace for others. Any thread may call
 * it.
 * Return: as gpunvme_dev_admin(); -ENOENT: the controller has no such namespace.
 */
GPUNVME_API int gpunvme_ns_get_feature(struct gpunvme_dev *dev, uint32_t nsid, uint8_t fid, uint32_t *value);

/**
 * gpunvme_ns_set_feature() - change a feature of a namespace until the device is closed
 * @dev:   an open device
 * @nsid:  1 or more, or 0 for the device's default namespace, or GPUNVME_NSID_ALL for all
 * @fid:   as for gpunvme_ns_get_feature()
 * @value: command dword 11
 *
 * After a reset the library sets it again, except for those that gpunvme_dev_set_feature() names, and unless the namespace is not
 * active any more: then the log has a warning. Any thread may call it.
 * Return: as gpunvme_dev_set_feature(); -ENOENT: the controller has no such namespace.
 */
GPUNVME_API int gpunvme_ns_set_feature(struct gpunvme_dev *dev, uint32_t nsid, uint8_t fid, uint32_t value);

#ifdef __cplusplus
}
#endif
#endif
