/* SPDX-License-Identifier: MIT */
/*
 * Additions to the kernel's VFIO interface after the headers of Debian 12: character devices (6.6) and DMA-BUF export (6.19). The
 * layouts and numbers are the kernel's, the names are ours.
 */
#ifndef GNV_OS_VFIO_UAPI_VFIO_H
#define GNV_OS_VFIO_UAPI_VFIO_H

#include <stdint.h>
#include <sys/ioctl.h>

#define GNV_VFIO_TYPE ';'

struct gnv_vfio_bind_iommufd {
	uint32_t argsz;
	uint32_t flags;
	int32_t iommufd;
	uint32_t out_devid;
};
#define GNV_VFIO_BIND_IOMMUFD _IO(GNV_VFIO_TYPE, 118)

struct gnv_vfio_attach_pt {
	uint32_t argsz;
	uint32_t flags;
	uint32_t pt_id;
};
#define GNV_VFIO_ATTACH_PT _IO(GNV_VFIO_TYPE, 119)

#define GNV_VFIO_FEATURE_DMA_BUF 11u

/* struct vfio_device_feature with one range of a DMA-BUF after it. */
struct gnv_vfio_feature_dma_buf {
	uint32_t argsz;
	uint32_t flags;
	uint32_t region_index;
	uint32_t open_flags;
	uint32_t dma_buf_flags;
	uint32_t nr_ranges;
	uint64_t offset;
	uint64_t length;
};

_Static_assert(sizeof(struct gnv_vfio_bind_iommufd) == 16, "uapi layout");
_Static_assert(sizeof(struct gnv_vfio_attach_pt) == 12, "uapi layout");
_Static_assert(sizeof(struct gnv_vfio_feature_dma_buf) == 40, "uapi layout");

#endif
