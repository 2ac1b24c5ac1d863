/* SPDX-License-Identifier: MIT */
/* The older way: devices by their IOMMU group (/dev/vfio/N), one address space by a type 1 container (/dev/vfio/vfio). */
#ifndef GNV_OS_VFIO_TYPE1_H
#define GNV_OS_VFIO_TYPE1_H

#include "os/vfio/vfio.h"

#define GNV_TYPE1_NODE "/dev/vfio/vfio"

/* For gnv_vfio_open(). Return: as gnv_iommufd_take(). */
gnv_vfio_take gnv_type1_take;

/* Return: as gnv_iommufd_ranges(). */
int gnv_type1_ranges(const struct gnv_vfio_as *as, struct gnv_range *range, unsigned room);

/* Memory of this process, a mapping of a BAR included. Return: 0, -ENOMEM, -EFAULT, another negative errno. */
int gnv_type1_map(const struct gnv_vfio_as *as, void *ptr, size_t len, uint64_t iova);

/* A whole mapping. Return: 0, -ENOENT, another negative errno. */
int gnv_type1_unmap(const struct gnv_vfio_as *as, uint64_t iova, size_t len);

#endif
