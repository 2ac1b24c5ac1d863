/* SPDX-License-Identifier: MIT */
/* Results of steps by their numbers, as Linux has them: this part of the controller has no C library (engine/steps.c compares). */
#ifndef GNV_SOFT_ERRNO_H
#define GNV_SOFT_ERRNO_H

enum {
	GNV_SOFT_EPERM = 1,
	GNV_SOFT_EINTR = 4,
	GNV_SOFT_EBADF = 9,
	GNV_SOFT_EAGAIN = 11,
	GNV_SOFT_ENOMEM = 12,
	GNV_SOFT_EACCES = 13,
	GNV_SOFT_EFAULT = 14,
	GNV_SOFT_ENODEV = 19,
	GNV_SOFT_EINVAL = 22,
	GNV_SOFT_EFBIG = 27,
	GNV_SOFT_ENOSPC = 28,
	GNV_SOFT_EROFS = 30,
	GNV_SOFT_ENOLINK = 67,
	GNV_SOFT_EOPNOTSUPP = 95,
	GNV_SOFT_ENOBUFS = 105,
	GNV_SOFT_EDQUOT = 122,
	GNV_SOFT_ECANCELED = 125
};

#endif
