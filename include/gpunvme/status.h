/* SPDX-License-Identifier: MIT */
/*
 * Results. Every function of this library, on the host and in a kernel, that can fail returns an int:
 *   0         done
 *   negative  -errno: this library, the kernel or the machine refused (device code spells the values GPUNVME_E*, dq.h)
 *   positive  the NVMe status of the command that failed: the 15 bits above the phase tag (GPUNVME_ST_*, spec.h)
 * `if (ret)` is the whole test.
 *
 * Not repeated at each function of the host: -EINVAL, also when a pointer is NULL that must not be. Calls that ask the controller
 * may return -ENODEV: it is gone, -ESHUTDOWN: it is dead since an earlier failure, and may be brought back (dev.h),
 * -ETIMEDOUT: it was silent for admin_timeout_ms and is dead now, -EPROTO: it broke the protocol and is dead now.
 */
#ifndef GPUNVME_STATUS_H
#define GPUNVME_STATUS_H

#define GPUNVME_VERSION_MAJOR 0
#define GPUNVME_VERSION_MINOR 1
#define GPUNVME_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

#ifndef GPUNVME_API
#if defined(__GNUC__)
#define GPUNVME_API __attribute__((visibility("default")))
#else
#define GPUNVME_API
#endif
#endif

/**
 * gpunvme_strerror() - a result as text
 * @ret: what a function of this library or of the device header returned
 *
 * For a positive @ret the text is the status name of the NVMe Base Specification (3.3.3.2.1). DNR and the other high bits do
 * not change it. Any thread may call it.
 *
 * Return: a constant string, never NULL, valid until the process ends.
 */
GPUNVME_API const char *gpunvme_strerror(int ret);

/**
 * gpunvme_errmsg() - one sentence about the last failure on this thread
 *
 * Where gpunvme_strerror() knows only the number, this names the cause and the remedy: the file, the option, the limit. It is
 * set by every host function of this library that returns non-zero, and left alone by those that succeed.
 *
 * Return: a string, empty if nothing failed yet; valid until the next failure on this thread or until the thread ends.
 */
GPUNVME_API const char *gpunvme_errmsg(void);

/**
 * gpunvme_version() - the version of the library that is running
 * Return: major << 16 | minor << 8 | patch; compare with GPUNVME_VERSION_*.
 */
GPUNVME_API unsigned gpunvme_version(void);

#ifdef __cplusplus
}
#endif
#endif
