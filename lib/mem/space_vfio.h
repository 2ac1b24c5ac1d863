/* SPDX-License-Identifier: MIT */
/*
 * Address spaces of devices held through VFIO: of an IOMMUFD (space_iommufd.c) or a type 1 container (space_type1.c). Their common
 * part, the choice of addresses, is in space_vfio.c.
 */
#ifndef GNV_MEM_SPACE_VFIO_H
#define GNV_MEM_SPACE_VFIO_H

#include <pthread.h>

#include "mem/iova.h"
#include "mem/mem.h"
#include "mem/space.h"
#include "os/vfio/vfio.h"

#define GNV_SPACE_HIGHEST ((1ull << 48) - 1) /* every drive can reach it (GNV_QUIRK_ADDR_48) */

/* The ranges that the kernel can map, as gnv_iommufd_ranges(). */
typedef int gnv_space_ranges(const struct gnv_vfio_as *as, struct gnv_range *range, unsigned room);

struct gnv_space_vfio {
	struct gnv_space base;
	gnv_space_ranges *ranges;
	struct gnv_vfio_as as;   /* its own descriptor */
	char bdf[GNV_BDF_BYTES]; /* of the first device, for messages */
	pthread_mutex_t lock;    /* protects iova and runs */
	struct gnv_space_run *runs; /* space_noiommu.c */
	struct gnv_iova iova;
	bool unsafe_vram; /* type 1 may map memory of GPUs. Set before the first use */
};

/*
 * Spaces over an open device, by its IOMMUFD, by its container, or by its IOMMUFD without IOMMU. Return: 0 or a negative errno.
 * gnv_fail() has the error message.
 */
int gnv_space_iommufd_create(const struct gnv_vfio *vfio, struct gnv_space **space);
int gnv_space_type1_create(const struct gnv_vfio *vfio, struct gnv_space **space);
int gnv_space_noiommu_create(const struct gnv_vfio *vfio, struct gnv_space **space);

/* The first one's map and unmap, which the last one uses. */
int gnv_space_iommufd_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova);
int gnv_space_iommufd_unmap(struct gnv_space *space, uint64_t iova, size_t len);

/* Another device was attached: addresses it must not use are not given out any more. Return: 0, -ENOMEM, as the kernel says. */
int gnv_space_vfio_joined(struct gnv_space *space);

/* Their common part. */
int gnv_space_vfio_create(const struct gnv_space_ops *ops, const struct gnv_vfio *vfio, gnv_space_ranges *ranges,
			  struct gnv_space **space);
void gnv_space_vfio_close(struct gnv_space *space);
struct gnv_space_vfio *gnv_space_vfio_of(struct gnv_space *space);

/* Addresses for memory, and back. Return: 0, -ENOSPC, -ENOMEM. gnv_fail() has the error message. */
int gnv_space_vfio_take(struct gnv_space_vfio *sv, size_t len, uint64_t *iova);
void gnv_space_vfio_give(struct gnv_space_vfio *sv, uint64_t iova, size_t len);

/* Do not give these out any more: the device knows them as its own. Return: 0; -EINVAL, -ENOMEM, with an error message. */
int gnv_space_vfio_avoid(struct gnv_space_vfio *sv, uint64_t start, uint64_t len);

/* The error message for a mapping that the kernel refused. Returns `ret`. */
int gnv_space_vfio_refused(const struct gnv_space_vfio *sv, const struct gpunvme_mem *mem, int ret);

#endif
