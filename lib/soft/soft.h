/* SPDX-License-Identifier: MIT */
/*
 * The NVMe controller in software.
 *
 * It owns a page that emulates BAR0, and worker threads. They poll the doorbells, read each submission queue entry once into
 * private memory, check every field, have a store (store.h) do the I/O and post completions. A host uses the registers, queues and
 * PRP lists as with a hardware controller. It shares bytes, not code, with lib/nvme and the device header, and trusts neither: the
 * author of the queues is hostile until proven otherwise.
 */
#ifndef GNV_SOFT_SOFT_H
#define GNV_SOFT_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/space.h"
#include "soft/core/config.h"
#include "util/log.h"
#include "util/medium.h"

struct gnv_soft;

/*
 * gnv_soft_create() - open the image and start the threads. The controller is disabled, as after power on
 * @space: the software address space of its DMA, which must outlive it
 * @log:   must outlive it, or NULL: no messages
 * Return: 0; -EINVAL a value out of range, image too small or not a multiple of the LBA size; -ENOENT, -EACCES, -EISDIR, -EROFS;
 * -EBUSY the block device is mounted or held; -EPERM by `careful`; -EOPNOTSUPP no io_uring; -ENOMEM. gnv_fail() has the message.
 */
int gnv_soft_create(const struct gnv_soft_config *config, struct gnv_space *space, const struct gnv_log *log,
		    struct gnv_soft **soft);

/*
 * Stop the threads, wait for I/O in flight, release. Return: 0; -EBUSY I/O is stuck in the kernel, which may still write to its
 * memory: all stays, and it may be called again; gnv_fail() has the message.
 */
int gnv_soft_destroy(struct gnv_soft *soft);

/* BAR0: CPU pointer to its first byte (page aligned) and its size. */
void *gnv_soft_bar(struct gnv_soft *soft, size_t *len);

/* A GPU did not let go of it: it stays mapped when the controller goes, until the process ends. */
void gnv_soft_keep_bar(struct gnv_soft *soft);

/* Its descriptor, which the controller owns, or -1 if it is not shared. */
int gnv_soft_bar_fd(const struct gnv_soft *soft);

/* Does a queue live in memory that was mapped within [iova, iova + len)? Also true when that is not known within a second. */
bool gnv_soft_has_ring(struct gnv_soft *soft, uint64_t iova, uint64_t len);

/*
 * gnv_soft_allow_dma() - set Bus Master Enable and power state D0 of its PCI function
 * It is allowed at first. While it is not, nothing is fetched, moved, posted or reported by an interrupt. Requests of the host wait
 * until it is allowed again.
 * Return: 0; -EBUSY earlier I/O is stuck in the kernel, and still accesses memory; gnv_fail() has the message.
 */
int gnv_soft_allow_dma(struct gnv_soft *soft, bool allow);

/*
 * Its memory (CMB), which is the caller's to make, as `inside`, and to map in the space, where it is reached when CMBMSC names that
 * address. Return: bytes; 0: none.
 */
size_t gnv_soft_cmb_bytes(const struct gnv_soft *soft);

/* True if the controller refuses writes to all its namespaces, by configuration or because the images are read-only. */
bool gnv_soft_read_only(const struct gnv_soft *soft);

/* gpunvme_dev_info.link and .blocks. */
void gnv_soft_speed(const struct gnv_soft *soft, uint64_t *link, uint32_t *blocks);

/* The media of its namespaces. */
void gnv_soft_media(const struct gnv_soft *soft, struct gnv_medium medium[GNV_SOFT_NAMESPACES]);

/* Hooks of tests and benchmarks (core/fault.h). NULL removes one. The first must be set before any I/O queue exists. */
void gnv_soft_set_fault(struct gnv_soft *soft, const struct gnv_soft_fault *fault);
void gnv_soft_set_admin_fault(struct gnv_soft *soft, const struct gnv_soft_admin_fault *fault);
void gnv_soft_set_stubborn(struct gnv_soft *soft, enum gnv_soft_stubborn how, bool for_ever);

/* As PCI Express function level reset: all is as after power on but the image. Return: 0; -EIO I/O is stuck in the kernel. */
int gnv_soft_function_reset(struct gnv_soft *soft);

#endif
