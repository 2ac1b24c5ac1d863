/* SPDX-License-Identifier: MIT */
/*
 * Results of functions, error messages and the version. Every function of this library, on the host and in a kernel, that can fail
 * returns an int:
 *
 *   0         done
 *   negative  -errno: the library, the kernel or the machine refused (device code spells the values GPUNVME_E*, dq.h)
 *   positive  the NVMe status of the command that failed: the 15 bits above the phase tag (GPUNVME_ST_*, spec.h)
 * `if (ret)` is the whole test. Results are written only on success, unless a function says otherwise.
 *
 * Functions of the host do not repeat these values:
 *
 *   -EINVAL     also when a pointer is NULL that must not be
 *   -ECHILD     a child of fork() used an object of its parent (dev.h)
 *   -ENODEV     of functions that send commands: the controller is gone
 *   -ESHUTDOWN  the same: it is dead since an earlier failure. gpunvme_dev_reset() may bring it back (dev.h)
 *   -ETIMEDOUT  the same: it completed no command within admin_timeout_ms, and is dead now
 *   -EPROTO     the same: it broke the protocol, and is dead now
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
 * gpunvme_strerror() - get the text of a result
 * @ret: what a function of this library or of the device header returned
 *
 * For a positive @ret the text is the status name of the NVMe Base Specification (3.3.3.2.1). DNR and the other high bits do not
 * change it. Any thread may call it.
 * Return: a constant string, never NULL, valid until the process ends.
 */
GPUNVME_API const char *gpunvme_strerror(int ret);

/**
 * gpunvme_errmsg() - get the error message of the last failure on this thread
 *
 * gpunvme_strerror() knows only the number. This message names cause and remedy: the file, the option, the limit. Every host
 * function of this library that returns an error sets it. As with errno, functions that succeed may change it. Any thread may call
 * it.
 * Return: a string, valid until the next call of this library on this thread, or until the thread ends.
 */
GPUNVME_API const char *gpunvme_errmsg(void);

/**
 * gpunvme_version() - get the version of the library that is running
 *
 * Compare it with GPUNVME_VERSION_*. Any thread may call it.
 * Return: major << 16 | minor << 8 | patch.
 */
GPUNVME_API unsigned gpunvme_version(void);

#ifdef __cplusplus
}
#endif
#endif
