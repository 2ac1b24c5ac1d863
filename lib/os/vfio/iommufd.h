/* SPDX-License-Identifier: MIT */
/* IOMMUFD: devices by their character device (/dev/vfio/devices/vfioN), address spaces by /dev/iommu. */
#ifndef GNV_OS_VFIO_IOMMUFD_H
#define GNV_OS_VFIO_IOMMUFD_H

#include "os/vfio/vfio.h"

#define GNV_IOMMUFD_NODE "/dev/iommu"
#define GNV_VFIO_CDEV_DIR "/dev/vfio/devices"

/* For gnv_vfio_open(). Return: 0; -ENODEV, -EACCES, -EBUSY, -EPERM, -EOPNOTSUPP, -ENOMEM; -EADDRINUSE by mappings in @share. */
gnv_vfio_take gnv_iommufd_take;

/* The addresses that may be mapped. As many as fit into `room` are stored. Return: how many there are, or a negative errno. */
int gnv_iommufd_ranges(const struct gnv_vfio_as *as, struct gnv_range *range, unsigned room);

/* Memory of this process. Return: 0, -ENOMEM, -EFAULT, another negative errno. */
int gnv_iommufd_map(const struct gnv_vfio_as *as, void *ptr, size_t len, uint64_t iova);

/* A memfd or DMA-BUF from `start` on. Return: 0, -EOPNOTSUPP, -ENODEV (revoked), another negative errno. */
int gnv_iommufd_map_file(const struct gnv_vfio_as *as, int fd, uint64_t start, size_t len, uint64_t iova);

/*
 * gnv_iommufd_phys() - find the physical address of mapped memory, of a device without IOMMU
 * @len: in: bytes from @iova on, out: how many of them are contiguous there
 * Return: 0; -EPERM; -ENOENT not mapped; -EINVAL a revoked DMA-BUF; -EOPNOTSUPP there is an IOMMU; -ENOTTY before Linux 7.3.
 */
int gnv_iommufd_phys(const struct gnv_vfio_as *as, uint64_t iova, uint64_t *phys, uint64_t *len);

/* A whole mapping. Return: 0, -ENOENT, another negative errno. */
int gnv_iommufd_unmap(const struct gnv_vfio_as *as, uint64_t iova, size_t len);

#endif
