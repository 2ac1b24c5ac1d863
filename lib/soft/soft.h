/* SPDX-License-Identifier: MIT */
/*
 * The NVMe controller in software.
 *
 * It owns a page that plays BAR0 and threads that serve it: they poll the doorbells, read each submission queue entry once into
 * private memory, check every field, do the I/O with io_uring and post completions. Whoever drives it uses the same registers,
 * queues and PRP lists as with a controller made of silicon. It shares bytes, not code, with lib/nvme and the device header, and
 * trusts neither: the author of the queues is hostile until proven otherwise.
 */
#ifndef GNV_SOFT_SOFT_H
#define GNV_SOFT_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/space.h"
#include "util/log.h"

struct gnv_soft;

struct gnv_soft_config {
	const char *path;   /* regular file or block device */
	uint32_t lba_size;  /* 512 or 4096 */
	uint32_t mdts;      /* Identify MDTS: 4096 << mdts bytes; 0: no limit */
	uint32_t queues;    /* I/O queue pairs offered, 1 to 1024 */
	uint32_t depth;     /* MQES + 1: 2 to 65536 */
	uint32_t dstrd;     /* CAP.DSTRD, 0 to 8 */
	uint32_t threads;   /* server threads, 1 to 64 */
	bool read_only;
};
#define GNV_SOFT_CONFIG_INIT { NULL, 512, 8, 64, 4096, 0, 1, false }

/*
 * gnv_soft_create() - open the image, start the threads; the controller is disabled, as after power on
 * @space: the software address space its DMA goes through; must outlive it
 * Return: 0; -EINVAL a value out of range, image too small or not a multiple of the LBA size; -ENOENT, -EACCES, -EISDIR, -EROFS;
 * -EBUSY the block device is mounted or held; -EOPNOTSUPP no io_uring; -ENOMEM. gnv_fail() has the sentence.
 */
int gnv_soft_create(const struct gnv_soft_config *config, struct gnv_space *space, const struct gnv_log *log,
		    struct gnv_soft **soft);

/* Stop the threads, wait for I/O in flight, release. */
void gnv_soft_destroy(struct gnv_soft *soft);

/* BAR0: CPU pointer to its first byte (page aligned) and its size. */
void *gnv_soft_bar(struct gnv_soft *soft, size_t *len);

/* True when the controller refuses writes, because it was asked to or because the image does. */
bool gnv_soft_read_only(const struct gnv_soft *soft);

/*
 * Fault injection, for tests and benchmarks: called by a server thread for each I/O command after its checks, before its I/O. The
 * verdict is carried out by the controller. Must be set before any I/O queue exists. NULL removes it.
 */
enum gnv_soft_verdict {
	GNV_SOFT_GO,     /* execute it */
	GNV_SOFT_FAIL,   /* complete it with *status, without I/O */
	GNV_SOFT_DELAY,  /* execute it, and post its completion no sooner than *delay_us later */
	GNV_SOFT_DROP,   /* never complete it (until abort, queue deletion or reset) */
	GNV_SOFT_SKIP    /* complete it with success, without I/O */
};
struct gnv_soft_fault {
	enum gnv_soft_verdict (*decide)(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us);
	void *ctx;
};
void gnv_soft_set_fault(struct gnv_soft *soft, const struct gnv_soft_fault *fault);

/* The same for each admin command; verdicts are GNV_SOFT_GO, _FAIL and _DROP. May be set at any time. */
struct gnv_soft_admin_fault {
	enum gnv_soft_verdict (*decide)(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status);
	void *ctx;
};
void gnv_soft_set_admin_fault(struct gnv_soft *soft, const struct gnv_soft_admin_fault *fault);

#endif
