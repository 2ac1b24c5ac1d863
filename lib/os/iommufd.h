/* SPDX-License-Identifier: MIT */
/* IOMMUFD: devices by their character device (/dev/vfio/devices/vfioN), address spaces by /dev/iommu. */
#ifndef GNV_OS_IOMMUFD_H
#define GNV_OS_IOMMUFD_H

#include "os/vfio.h"

#define GNV_IOMMUFD_NODE "/dev/iommu"
#define GNV_VFIO_CDEV_DIR "/dev/vfio/devices"

/*
 * gnv_iommufd_open() - take the device and attach it to an address space of its own
 * Return: 0; -ENODEV, -EACCES, -EBUSY, -EPERM, -EOPNOTSUPP, -ENOMEM. gnv_fail() has the sentence.
 */
int gnv_iommufd_open(const struct gnv_pci *pci, struct gnv_vfio *vfio);

/* The addresses that may be mapped; as many as fit into `room` are stored. Return: how many there are, or a negative errno. */
int gnv_iommufd_ranges(const struct gnv_vfio *vfio, struct gnv_range *range, unsigned room);

/* Memory of this process. Return: 0, -ENOMEM, -EFAULT, another negative errno. */
int gnv_iommufd_map(const struct gnv_vfio *vfio, void *ptr, size_t len, uint64_t iova);

/* A memfd or DMA-BUF from `start` on. Return: 0, -EOPNOTSUPP, -ENODEV (revoked), another negative errno. */
int gnv_iommufd_map_file(const struct gnv_vfio *vfio, int fd, uint64_t start, size_t len, uint64_t iova);

/* A whole mapping. Return: 0, -ENOENT, another negative errno. */
int gnv_iommufd_unmap(const struct gnv_vfio *vfio, uint64_t iova, size_t len);

#endif
