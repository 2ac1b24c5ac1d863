/* SPDX-License-Identifier: MIT */
/*
 * Address spaces of devices held through VFIO: behind an IOMMUFD (space_iommufd.c) or a type 1 container (space_type1.c).
 * What they share, the choice of addresses, is in space_vfio.c.
 */
#ifndef GNV_MEM_SPACE_VFIO_H
#define GNV_MEM_SPACE_VFIO_H

#include <pthread.h>

#include "mem/iova.h"
#include "mem/mem.h"
#include "mem/space.h"
#include "os/vfio.h"

struct gnv_space_vfio {
	struct gnv_space base;
	const struct gnv_vfio *vfio; /* its owner's; outlives the space */
	pthread_mutex_t lock;        /* protects iova */
	struct gnv_iova iova;
};

/* Spaces over an open device, by its IOMMUFD or by its container. Return: 0 or a negative errno; gnv_fail() has the sentence. */
int gnv_space_iommufd_create(const struct gnv_vfio *vfio, struct gnv_space **space);
int gnv_space_type1_create(const struct gnv_vfio *vfio, struct gnv_space **space);

/* What the two share. @ranges: what the kernel says can be mapped. */
int gnv_space_vfio_create(const struct gnv_space_ops *ops, const struct gnv_vfio *vfio,
			  int (*ranges)(const struct gnv_vfio *vfio, struct gnv_range *range, unsigned room), struct gnv_space **space);
void gnv_space_vfio_close(struct gnv_space *space);
struct gnv_space_vfio *gnv_space_vfio_of(struct gnv_space *space);

/* Addresses for memory, and back. Return: 0, -ENOSPC, -ENOMEM; gnv_fail() has the sentence. */
int gnv_space_vfio_take(struct gnv_space_vfio *sv, size_t len, uint64_t *iova);
void gnv_space_vfio_give(struct gnv_space_vfio *sv, uint64_t iova, size_t len);

/* The sentence for a mapping the kernel refused. Returns `ret`. */
int gnv_space_vfio_refused(const struct gnv_space_vfio *sv, const struct gpunvme_mem *mem, int ret);

#endif
