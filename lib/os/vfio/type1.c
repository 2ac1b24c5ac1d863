/* SPDX-License-Identifier: MIT */
/*
 * Invariant, the kernel's order: group into container, then the kind of IOMMU, then the device. A group can be open only once, so
* a second opener fails at its first step.
 */
#include "os/vfio/type1.h"

#include <errno.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "os/linux/fork.h"
#include "util/log.h"

static int container_failed(const struct gnv_vfio *vfio, int err)
{
	if (err == EPERM)
		return gnv_fail(
			-EPERM,
			"%s: the kernel refused the device: its interrupts are not isolated. Enable interrupt remapping in the "
			"firmware, or, if the drive may raise any interrupt of this machine: echo 1 "
			">/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
			vfio->bdf);
	if (err == EBUSY)
		return gnv_fail(-EBUSY, "%s: its IOMMU group is in use by another process. Stop that first", vfio->bdf);
	return gnv_fail(-err, "%s: no address space from VFIO type 1: %s", vfio->bdf, strerror(err));
}

int gnv_type1_take(const struct gnv_pci *pci, const struct gnv_vfio_as *share, struct gnv_vfio *vfio)
{
	struct vfio_group_status status = { .argsz = sizeof(status) };
	char path[48];
	int ret;

	ret = share ? gnv_vfio_as_dup(share, &vfio->as)
		    : (vfio->as.fd = gnv_vfio_node(GNV_TYPE1_NODE, "load the module: modprobe vfio-pci"));
	if (ret < 0)
		return ret;
	snprintf(path, sizeof(path), "/dev/vfio/%d", pci->group);
	vfio->group = gnv_vfio_node(path, "the kernel needs CONFIG_VFIO_GROUP, and the device bound to vfio-pci");
	if (vfio->group < 0)
		return vfio->group;
	if (ioctl(vfio->group, VFIO_GROUP_GET_STATUS, &status) || !(status.flags & VFIO_GROUP_FLAGS_VIABLE))
		return gnv_fail(-EPERM, "%s: another device of IOMMU group %d has a driver. Unbind that device, too", vfio->bdf,
				pci->group);
	if (ioctl(vfio->group, VFIO_GROUP_SET_CONTAINER, &vfio->as.fd) ||
	    (!share && ioctl(vfio->as.fd, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU)))
		return container_failed(vfio, errno);
	gnv_fork_begin();
	vfio->fd = gnv_fork_keep(ioctl(vfio->group, VFIO_GROUP_GET_DEVICE_FD, vfio->bdf));
	if (vfio->fd < 0)
		return gnv_fail(-errno, "%s: VFIO does not hand out the device: %s", vfio->bdf, strerror(errno));
	return 0;
}

/* The chain of capabilities follows the structure, as offsets from its beginning. */
static unsigned copy_ranges(const char *info, uint32_t size, struct gnv_range *range, unsigned room)
{
	const struct vfio_iommu_type1_info_cap_iova_range *cap;
	const struct vfio_info_cap_header *header;
	uint32_t at = ((const struct vfio_iommu_type1_info *)(const void *)info)->cap_offset, i;

	for (; at && at <= size - sizeof(*cap); at = header->next) {
		header = (const void *)(info + at);
		if (header->id != VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE)
			continue;
		cap = (const void *)header;
		for (i = 0; i < cap->nr_iovas && i < room && at + sizeof(*cap) + (i + 1) * sizeof(cap->iova_ranges[0]) <= size; i++)
			range[i] = (struct gnv_range){ cap->iova_ranges[i].start, cap->iova_ranges[i].end };
		return cap->nr_iovas;
	}
	return 0;
}

int gnv_type1_ranges(const struct gnv_vfio_as *as, struct gnv_range *range, unsigned room)
{
	struct vfio_iommu_type1_info head = { .argsz = sizeof(head) }, *info;
	unsigned count;

	if (ioctl(as->fd, VFIO_IOMMU_GET_INFO, &head))
		return -errno;
	info = calloc(1, head.argsz);
	if (!info)
		return -ENOMEM;
	info->argsz = head.argsz;
	if (ioctl(as->fd, VFIO_IOMMU_GET_INFO, info)) {
		free(info);
		return -EIO;
	}
	count = info->flags & VFIO_IOMMU_INFO_CAPS ? copy_ranges((const char *)info, head.argsz, range, room) : 0;
	free(info);
	return (int)count;
}

int gnv_type1_map(const struct gnv_vfio_as *as, void *ptr, size_t len, uint64_t iova)
{
	struct vfio_iommu_type1_dma_map arg = { .argsz = sizeof(arg),
						.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
						.vaddr = (uintptr_t)ptr,
						.iova = iova,
						.size = len };

	return ioctl(as->fd, VFIO_IOMMU_MAP_DMA, &arg) ? -errno : 0;
}

int gnv_type1_unmap(const struct gnv_vfio_as *as, uint64_t iova, size_t len)
{
	struct vfio_iommu_type1_dma_unmap arg = { .argsz = sizeof(arg), .iova = iova, .size = len };

	if (ioctl(as->fd, VFIO_IOMMU_UNMAP_DMA, &arg))
		return -errno;
	return arg.size == len ? 0 : -ENOENT;
}
