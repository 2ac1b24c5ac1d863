/* SPDX-License-Identifier: MIT */
/*
 * Host Memory Buffer: memory of this machine that a drive asks for to work in, as drives without memory of their own do. `hmb` of
 * the URI.
 *
 * It is mapped for the drive alone: no thread and no CPU reads it, and nothing else lies in its pages. The drive may write there at
 * any time, even when the process was killed and the memory has another user. So a drive without an IOMMU, or one that shares its
 * address space, gets none. The drive keeps it over resets. It is freed after the drive's DMA has been stopped, never earlier.
 */
#ifndef GNV_NVME_HMB_H
#define GNV_NVME_HMB_H

#include "nvme/nvme.h"

#define GNV_HMB_MIB 64u	      /* at most so many, when the URI does not say */
#define GNV_HMB_UNSAID UINT32_MAX
#define GNV_HMB_MAX_MIB 4096u /* that the URI may name */

/* One descriptor entry (Base Specification 5.27.1.10). */
struct gnv_hmb_entry {
	uint64_t iova;
	uint32_t pages; /* of the controller */
	uint32_t reserved;
};

/*
 * gnv_hmb_give() - give the drive what it asks for, before the first queue
 * @mib: at most so many MiB. 0: nothing. Or GNV_HMB_UNSAID
 * @alone: no other device is in its address space. Otherwise it gets nothing, as without an IOMMU
 *
 * A drive that gets less than it needs, or refuses it, works without, and the log says so. Refused memory stays mapped all the
 * same, and is offered again after a reset.
 * Return: 0; -EINVAL so many were asked for by the URI, and none can be given; negative: errors of gnv_admin_run(), or -EBUSY,
 * and then gnv_hmb_drop() has something left to do.
 */
int gnv_hmb_give(struct gnv_nvme *nvme, uint32_t mib, bool alone);

/*
 * Another device is about to reach its address space: the drive leaves that memory, for good. No reset runs meanwhile.
 * Return: 0; -EBUSY it was asked for by `hmb`, or the drive does not leave it; errors of gnv_admin_run().
 */
int gnv_hmb_make_way(struct gnv_nvme *nvme);

/*
 * After a reset: the same memory, with the data of the drive, if it had it. A drive that refuses it, even as new memory, works
 * without until the next reset. Return: 0; negative: errors of gnv_admin_run().
 */
int gnv_hmb_return(struct gnv_nvme *nvme);

/* Ask the drive to leave it, if the drive still responds. The memory stays. */
void gnv_hmb_take_back(struct gnv_nvme *nvme);

/* The drive makes no DMA: unmap and free. Return: 0; -EBUSY some of it is still mapped: call again. */
int gnv_hmb_drop(struct gnv_nvme *nvme);

/* Bytes that the drive uses now. Any thread. */
uint64_t gnv_hmb_used(const struct gnv_nvme *nvme);

/* It gets none, because other devices could access its memory. Any thread. */
bool gnv_hmb_denied(const struct gnv_nvme *nvme);

#endif
