/* SPDX-License-Identifier: MIT */
/*
 * Why a controller or a GPU can or cannot be used on this machine. The predicates are those that gpunvme_dev_open(),
 * gpunvme_gpu_open() and gpunvme_qp_create() themselves ask.
 */
#ifndef GPUNVME_DOCTOR_H
#define GPUNVME_DOCTOR_H

#include <gpunvme/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_dev;

enum gpunvme_verdict {
	GPUNVME_VERDICT_OK = 0,
	GPUNVME_VERDICT_LIMIT = 1,  /* works, but not for everything */
	GPUNVME_VERDICT_FAILED = 2,
	GPUNVME_VERDICT_SKIPPED = 3 /* could not be asked, because of an earlier one */
};

struct gpunvme_check {
	char name[16];
	uint32_t verdict; /* enum gpunvme_verdict */
	char reason[256];
	char remedy[256]; /* "" where there is none or none is needed */
};

/* More than there are checks. */
#define GPUNVME_MAX_CHECKS 32

/* As gpunvme_doctor(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_v(const char *address, struct gpunvme_check *checks, unsigned *count, size_t stride);

/* As gpunvme_doctor_gpu(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_gpu_v(unsigned n, const char *controller, struct gpunvme_check *checks, unsigned *count,
				     size_t stride);

/* As gpunvme_doctor_drive(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_drive_v(struct gpunvme_dev *dev, struct gpunvme_check *checks, unsigned *count, size_t stride);

/**
 * gpunvme_doctor() - ask every predicate of opening a controller
 * @address: DDDD:BB:DD.F, a URI of that (pci:...), or another URI, of which all that is asked is whether it can be opened
 * @checks:  room for *count of them
 * @count:   in: room; out: how many were filled
 *
 * When nothing stands against it the device is opened, which resets it, to try the export of its doorbells and their mapping; its
 * media is not touched. Any thread may call it.
 * Return: 0 it can be opened; -EINVAL bad address; -ENODEV no such device; otherwise as gpunvme_dev_open() would.
 */
static inline int gpunvme_doctor(const char *address, struct gpunvme_check *checks, unsigned *count)
{
	return gpunvme_doctor_v(address, checks, count, sizeof(*checks));
}

/**
 * gpunvme_doctor_gpu() - ask every predicate of running lanes on a GPU
 * @n:          of gpunvme_gpu_nth()
 * @controller: URI or PCI address of a controller to try it with, or NULL
 * @checks:     room for *count of them
 * @count:      in: room; out: how many were filled
 *
 * The GPU's runtime is loaded, a kernel runs, and with a controller that can be opened a queue is made and goes again: the rung of
 * the ladder that it reached is one of the predicates. That resets the controller and reads one block of it. Any thread may call.
 * Return: 0 the GPU can be opened; -ENOENT there are not so many; -EINVAL; otherwise as gpunvme_gpu_open() would.
 */
static inline int gpunvme_doctor_gpu(unsigned n, const char *controller, struct gpunvme_check *checks, unsigned *count)
{
	return gpunvme_doctor_gpu_v(n, controller, checks, count, sizeof(*checks));
}

/**
 * gpunvme_doctor_drive() - what state an open drive is in, where that stands in the way of using it
 * @dev:    an open device
 * @checks: room for *count of them
 * @count:  in: room; out: how many were filled
 *
 * Its namespace and format, whether blocks could be read when it was opened (it may be locked, erasing itself, reserved by another
 * host), the PRP lists it gets, what is known of its model, its own warnings, firmware that waits, its write cache. Reads no media.
 * Any thread may call.
 * Return: 0; -EINVAL; -ENODEV, -ESHUTDOWN the controller is gone or dead.
 */
static inline int gpunvme_doctor_drive(struct gpunvme_dev *dev, struct gpunvme_check *checks, unsigned *count)
{
	return gpunvme_doctor_drive_v(dev, checks, count, sizeof(*checks));
}

#ifdef __cplusplus
}
#endif
#endif
