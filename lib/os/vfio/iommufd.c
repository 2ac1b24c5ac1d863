/* SPDX-License-Identifier: MIT */
/*
 * Invariant, the kernel's order: open the device, open /dev/iommu, bind, make an address space, attach, and only then ask for the
 * usable addresses, because attaching a device takes its reserved ones away.
 */
#include "os/vfio/iommufd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "os/vfio/uapi/iommufd.h"
#include "os/vfio/uapi/vfio.h"
#include "util/log.h"

#define READ_WRITE (GNV_IOMMUFD_MAP_READABLE | GNV_IOMMUFD_MAP_WRITEABLE | GNV_IOMMUFD_MAP_FIXED_IOVA)

static int bind_failed(const struct gnv_vfio *vfio, int err)
{
	if (err == EPERM)
		return gnv_fail(
			-EPERM,
			"%s: the kernel refused the device: its IOMMU group belongs to another process, or its interrupts are not "
			"isolated. Stop that process, or enable interrupt remapping in the firmware, or, if the drive may raise any "
			"interrupt of this machine: echo 1 >/sys/module/iommufd/parameters/allow_unsafe_interrupts",
			vfio->bdf);
	if (err == EBUSY || err == EINVAL)
		return gnv_fail(-EBUSY, "%s is in use by another process, by its group or its character device. Stop that first",
				vfio->bdf);
	return gnv_fail(-err, "%s: the kernel refused to bind it to IOMMUFD: %s", vfio->bdf, strerror(err));
}

static int attach(struct gnv_vfio *vfio, const struct gnv_vfio_as *share)
{
	struct gnv_iommufd_ioas_alloc alloc = { .size = sizeof(alloc) };
	struct gnv_vfio_attach_pt pt = { .argsz = sizeof(pt) };

	if (!share && ioctl(vfio->as.fd, GNV_IOMMUFD_IOAS_ALLOC, &alloc))
		return gnv_fail(-errno, "%s: no address space from IOMMUFD: %s", vfio->bdf, strerror(errno));
	pt.pt_id = vfio->as.ioas = share ? share->ioas : alloc.out_ioas_id;
	if (!ioctl(vfio->fd, GNV_VFIO_ATTACH_PT, &pt))
		return 0;
	if (share && errno == EADDRINUSE)
		return gnv_fail(-EADDRINUSE,
				"%s cannot share the address space: it must not use an address at which memory is mapped. Open the "
				"devices before memory is mapped",
				vfio->bdf);
	return gnv_fail(-errno, "%s cannot be attached to an address space: %s", vfio->bdf, strerror(errno));
}

int gnv_iommufd_take(const struct gnv_pci *pci, const struct gnv_vfio_as *share, struct gnv_vfio *vfio)
{
	static const char remedy[] = "The kernel needs CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV";
	struct gnv_vfio_bind_iommufd bind = { .argsz = sizeof(bind) };
	char path[80];
	int ret;

	snprintf(path, sizeof(path), GNV_VFIO_CDEV_DIR "/%s", pci->cdev);
	vfio->fd = gnv_vfio_node(path, remedy);
	if (vfio->fd < 0)
		return vfio->fd;
	ret = share ? gnv_vfio_as_dup(share, &vfio->as) : (vfio->as.fd = gnv_vfio_node(GNV_IOMMUFD_NODE, remedy));
	if (ret < 0)
		return ret;
	bind.iommufd = vfio->as.fd;
	if (ioctl(vfio->fd, GNV_VFIO_BIND_IOMMUFD, &bind))
		return bind_failed(vfio, errno);
	return attach(vfio, share);
}

int gnv_iommufd_ranges(const struct gnv_vfio_as *as, struct gnv_range *range, unsigned room)
{
	struct gnv_iommufd_iova_ranges arg = {
		.size = sizeof(arg), .ioas_id = as->ioas, .num_iovas = room, .allowed_iovas = (uintptr_t)range
	};

	_Static_assert(sizeof(*range) == sizeof(struct gnv_iommufd_range), "the kernel fills our ranges");
	if (ioctl(as->fd, GNV_IOMMUFD_IOVA_RANGES, &arg) && errno != EMSGSIZE)
		return -errno;
	return (int)arg.num_iovas;
}

int gnv_iommufd_map(const struct gnv_vfio_as *as, void *ptr, size_t len, uint64_t iova)
{
	struct gnv_iommufd_map arg = { .size = sizeof(arg),
				       .flags = READ_WRITE,
				       .ioas_id = as->ioas,
				       .user_va = (uintptr_t)ptr,
				       .length = len,
				       .iova = iova };

	return ioctl(as->fd, GNV_IOMMUFD_MAP, &arg) ? -errno : 0;
}

int gnv_iommufd_map_file(const struct gnv_vfio_as *as, int fd, uint64_t start, size_t len, uint64_t iova)
{
	struct gnv_iommufd_map_file arg = {
		.size = sizeof(arg), .flags = READ_WRITE, .ioas_id = as->ioas, .fd = fd, .start = start, .length = len, .iova = iova
	};

	return ioctl(as->fd, GNV_IOMMUFD_MAP_FILE, &arg) ? -errno : 0;
}

int gnv_iommufd_unmap(const struct gnv_vfio_as *as, uint64_t iova, size_t len)
{
	struct gnv_iommufd_unmap arg = { .size = sizeof(arg), .ioas_id = as->ioas, .iova = iova, .length = len };

	return ioctl(as->fd, GNV_IOMMUFD_UNMAP, &arg) ? -errno : 0;
}

int gnv_iommufd_phys(const struct gnv_vfio_as *as, uint64_t iova, uint64_t *phys, uint64_t *len)
{
	struct gnv_iommufd_get_pa arg = { .size = sizeof(arg), .ioas_id = as->ioas, .iova = iova, .length = *len };

	if (ioctl(as->fd, GNV_IOMMUFD_NOIOMMU_GET_PA, &arg))
		return -errno;
	*phys = arg.out_phys;
	*len = arg.length;
	return 0;
}
