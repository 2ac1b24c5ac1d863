/* SPDX-License-Identifier: MIT */
/*
 * The part of the kernel's IOMMUFD interface that the library uses, for build machines whose headers do not have it (Debian 12).
 * The layouts and numbers are the kernel's, the names are ours, so that newer kernel headers may be included, too.
 */
#ifndef GNV_OS_VFIO_UAPI_IOMMUFD_H
#define GNV_OS_VFIO_UAPI_IOMMUFD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define GNV_IOMMUFD_TYPE ';'

struct gnv_iommufd_ioas_alloc {
	uint32_t size;
	uint32_t flags;
	uint32_t out_ioas_id;
};
#define GNV_IOMMUFD_IOAS_ALLOC _IO(GNV_IOMMUFD_TYPE, 0x81)

struct gnv_iommufd_range {
	uint64_t start;
	uint64_t last;
};

struct gnv_iommufd_iova_ranges {
	uint32_t size;
	uint32_t ioas_id;
	uint32_t num_iovas; /* in: room, out: how many there are */
	uint32_t reserved;
	uint64_t allowed_iovas; /* pointer to struct gnv_iommufd_range */
	uint64_t out_iova_alignment;
};
#define GNV_IOMMUFD_IOVA_RANGES _IO(GNV_IOMMUFD_TYPE, 0x84)

#define GNV_IOMMUFD_MAP_FIXED_IOVA (1u << 0)
#define GNV_IOMMUFD_MAP_WRITEABLE (1u << 1)
#define GNV_IOMMUFD_MAP_READABLE (1u << 2)

struct gnv_iommufd_map {
	uint32_t size;
	uint32_t flags;
	uint32_t ioas_id;
	uint32_t reserved;
	uint64_t user_va;
	uint64_t length;
	uint64_t iova;
};
#define GNV_IOMMUFD_MAP _IO(GNV_IOMMUFD_TYPE, 0x85)

struct gnv_iommufd_unmap {
	uint32_t size;
	uint32_t ioas_id;
	uint64_t iova;
	uint64_t length; /* out: unmapped bytes */
};
#define GNV_IOMMUFD_UNMAP _IO(GNV_IOMMUFD_TYPE, 0x86)

struct gnv_iommufd_map_file {
	uint32_t size;
	uint32_t flags;
	uint32_t ioas_id;
	int32_t fd;
	uint64_t start;
	uint64_t length;
	uint64_t iova;
};
#define GNV_IOMMUFD_MAP_FILE _IO(GNV_IOMMUFD_TYPE, 0x8f)

/* Linux 7.3, for devices without IOMMU. */
struct gnv_iommufd_get_pa {
	uint32_t size;
	uint32_t flags;
	uint32_t ioas_id;
	uint32_t reserved;
	uint64_t iova;
	uint64_t length; /* in: at most, out: how far it is contiguous */
	uint64_t out_phys;
};
#define GNV_IOMMUFD_NOIOMMU_GET_PA _IO(GNV_IOMMUFD_TYPE, 0x95)

_Static_assert(sizeof(struct gnv_iommufd_ioas_alloc) == 12, "uapi layout");
_Static_assert(sizeof(struct gnv_iommufd_range) == 16, "uapi layout");
_Static_assert(sizeof(struct gnv_iommufd_iova_ranges) == 32, "uapi layout");
_Static_assert(sizeof(struct gnv_iommufd_map) == 40, "uapi layout");
_Static_assert(sizeof(struct gnv_iommufd_unmap) == 24, "uapi layout");
_Static_assert(sizeof(struct gnv_iommufd_map_file) == 40, "uapi layout");
_Static_assert(sizeof(struct gnv_iommufd_get_pa) == 40, "uapi layout");
_Static_assert(offsetof(struct gnv_iommufd_get_pa, iova) == 16, "uapi layout");
_Static_assert(offsetof(struct gnv_iommufd_get_pa, out_phys) == 32, "uapi layout");

#endif
