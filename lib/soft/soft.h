/* SPDX-License-Identifier: MIT */
/*
 * The NVMe controller in software.
 *
 * It owns a page that plays BAR0 and threads that serve it: they poll the doorbells, read each submission queue entry once into
 * private memory, check every field, have a store (store.h) do the I/O and post completions. Whoever drives it uses the registers,
 * queues and PRP lists as with a controller made of silicon. It shares bytes, not code, with lib/nvme and the device header, and
 * trusts neither: the author of the queues is hostile until proven otherwise.
 */
#ifndef GNV_SOFT_SOFT_H
#define GNV_SOFT_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/space.h"
#include "soft/core/fault.h"
#include "soft/core/timing.h"
#include "util/log.h"

struct gnv_soft;

/*
 * Interrupts of a host that asked for them (Create I/O Completion Queue, IEN and IV); the admin queue has vector 0.
 * Called by server threads under their lock, once for all that was posted since.
 */
struct gnv_soft_irq {
	void (*raise)(void *ctx, unsigned vector);
	void *ctx;
	unsigned vectors; /* 0: there are none, and a queue that wants one is refused */
};

#define GNV_SOFT_NAMESPACES 8u

/* One of its namespaces, as the first of these fields of the configuration are namespace 1. */
struct gnv_soft_more {
	const char *path;
	uint32_t lba_size;
	bool read_only;
};

struct gnv_soft_config {
	const char *path;   /* regular file, block device, or generic device of the nvme driver (/dev/ng0n1); "ram:SIZE": memory, gone
			     * at the end; "./ram:..." is a path */
	uint32_t lba_size;  /* 512 or 4096; 0: a drive's own, else 512 */
	uint32_t mdts;      /* Identify MDTS: 4096 << mdts bytes; 0: no limit; a drive's own is not exceeded */
	uint32_t queues;    /* I/O queue pairs offered, 1 to 1024 */
	uint32_t depth;     /* MQES + 1: 2 to 65536 */
	uint32_t dstrd;     /* CAP.DSTRD, 0 to 8 */
	uint32_t threads;   /* server threads, 1 to 64 */
	bool read_only;     /* all of them */
	struct gnv_soft_traits traits;
	struct gnv_soft_rules rules;
	bool shared; /* BAR0 has a descriptor, by which another process may map it; its size is a power of two then */
	struct gnv_soft_irq irq;
	uint16_t vendor; /* of its PCI function; 0: it has none */
	uint32_t cmb; /* MiB of memory of its own, 0 to 1024; gnv_soft_cmb_bytes() */
	struct gnv_soft_model model; /* how fast it is; zeroes: as this machine */
	struct gnv_soft_more more[GNV_SOFT_NAMESPACES - 1]; /* namespaces 2 and on, up to the first without a path */
};
#define GNV_SOFT_CONFIG_INIT { NULL, 0, 8, 64, 4096, 0, 1, false, { 0 }, { 0 }, false, { NULL, NULL, 0 }, 0, 0, { 0 }, { { 0 } } }

/*
 * gnv_soft_create() - open the image, start the threads; the controller is disabled, as after power on
 * @space: the software address space its DMA goes through; must outlive it
 * @log:   must outlive it; NULL: it says nothing
 * Return: 0; -EINVAL a value out of range, image too small or not a multiple of the LBA size; -ENOENT, -EACCES, -EISDIR, -EROFS;
 * -EBUSY the block device is mounted or held; -EOPNOTSUPP no io_uring; -ENOMEM. gnv_fail() has the sentence.
 */
int gnv_soft_create(const struct gnv_soft_config *config, struct gnv_space *space, const struct gnv_log *log,
		    struct gnv_soft **soft);

/*
 * Stop the threads, wait for I/O in flight, release. Return: 0; -EBUSY I/O is stuck in the kernel, which may still write to its
 * memory: all stays, and it may be called again; gnv_fail() has the sentence.
 */
int gnv_soft_destroy(struct gnv_soft *soft);

/* BAR0: CPU pointer to its first byte (page aligned) and its size. */
void *gnv_soft_bar(struct gnv_soft *soft, size_t *len);

/* Its descriptor, the controller's own; -1 when it is not shared. */
int gnv_soft_bar_fd(const struct gnv_soft *soft);

/* Does a queue live in memory that was mapped within [iova, iova + len)? Also true when that cannot be told within a second. */
bool gnv_soft_has_ring(struct gnv_soft *soft, uint64_t iova, uint64_t len);

/*
 * Its memory (CMB), which is the caller's to make, as `inside`, and to map in the space, where it is reached when CMBMSC names that
 * address. Return: bytes; 0: none.
 */
size_t gnv_soft_cmb_bytes(const struct gnv_soft *soft);

/* True when the controller refuses writes to all its namespaces, because it was asked to or because the images do. */
bool gnv_soft_read_only(const struct gnv_soft *soft);

/*
 * Fault injection by a function, for tests and benchmarks, in place of the rules: called by a server thread for each I/O command
 * after its checks, before its I/O. The verdict is carried out by the controller. Must be set before any I/O queue exists. NULL
 * removes it.
 */
struct gnv_soft_fault {
	enum gnv_soft_verdict (*decide)(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us);
	void *ctx;
};
void gnv_soft_set_fault(struct gnv_soft *soft, const struct gnv_soft_fault *fault);

/* The same for each admin command, whose verdicts have no number: GNV_SOFT_GO, _FAIL and _DROP. May be set at any time. */
struct gnv_soft_admin_fault {
	enum gnv_soft_verdict (*decide)(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status);
	void *ctx;
};
void gnv_soft_set_admin_fault(struct gnv_soft *soft, const struct gnv_soft_admin_fault *fault);

/* What registers do instead of what they should, until the next function reset or, where that is too much to hope for, for ever. */
enum gnv_soft_stubborn {
	GNV_SOFT_WILLING,
	GNV_SOFT_DEAF,      /* CC.EN that is cleared changes nothing: the controller goes on */
	GNV_SOFT_NOT_READY, /* CC.EN that is set changes nothing */
	GNV_SOFT_FAILS      /* CC.EN that is set sets CSTS.CFS */
};
void gnv_soft_set_stubborn(struct gnv_soft *soft, enum gnv_soft_stubborn how, bool for_ever);

/* As PCI Express function level reset: all is as after power on but the image. Return: 0; -EIO I/O is stuck in the kernel. */
int gnv_soft_function_reset(struct gnv_soft *soft);

#endif
