/* SPDX-License-Identifier: MIT */
/*
 * Invariant, the kernel's order: open the device, open /dev/iommu, bind, make an address space, attach, and only then ask for the
 * usable addresses, because attaching a device takes its reserved ones away.
 */
#include "os/iommufd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/uapi/iommufd.h"
#include "os/uapi/vfio.h"
#include "util/log.h"

#define READ_WRITE (GNV_IOMMUFD_MAP_READABLE | GNV_IOMMUFD_MAP_WRITEABLE | GNV_IOMMUFD_MAP_FIXED_IOVA)

static int open_node(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == EACCES || errno == EPERM)
		return gnv_fail(-EACCES, "%s: no permission; give it to your user (gpunvme bind --user NAME, or chown)", path);
	if (errno == ENOENT)
		return gnv_fail(-ENODEV, "%s does not exist; the kernel needs CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV", path);
	return gnv_fail(-errno, "%s: cannot open: %s", path, strerror(errno));
}

static int bind_failed(const struct gnv_vfio *vfio, int err)
{
	if (err == EPERM)
		return gnv_fail(-EPERM,
				"%s: the kernel refused the device: its interrupts are not isolated (enable interrupt remapping in the "
				"firmware) or its IOMMU group belongs to another process",
				vfio->bdf);
	if (err == EBUSY || err == EINVAL)
		return gnv_fail(-EBUSY, "%s is in use by another process, by its group or its character device; stop that first",
				vfio->bdf);
	return gnv_fail(-err, "%s: the kernel refused to bind it to IOMMUFD: %s", vfio->bdf, strerror(err));
}

static int attach(struct gnv_vfio *vfio)
{
	struct gnv_iommufd_ioas_alloc alloc = { .size = sizeof(alloc) };
	struct gnv_vfio_attach_pt pt = { .argsz = sizeof(pt) };

	if (ioctl(vfio->iommufd, GNV_IOMMUFD_IOAS_ALLOC, &alloc))
		return gnv_fail(-errno, "%s: no address space from IOMMUFD: %s", vfio->bdf, strerror(errno));
	pt.pt_id = vfio->ioas = alloc.out_ioas_id;
	if (ioctl(vfio->fd, GNV_VFIO_ATTACH_PT, &pt))
		return gnv_fail(-errno, "%s cannot be attached to an address space: %s", vfio->bdf, strerror(errno));
	return 0;
}

static int take(const struct gnv_pci *pci, struct gnv_vfio *vfio)
{
	struct gnv_vfio_bind_iommufd bind = { .argsz = sizeof(bind) };
	char path[80];

	snprintf(path, sizeof(path), GNV_VFIO_CDEV_DIR "/%s", pci->cdev);
	vfio->fd = open_node(path);
	if (vfio->fd < 0)
		return vfio->fd;
	vfio->iommufd = open_node(GNV_IOMMUFD_NODE);
	if (vfio->iommufd < 0)
		return vfio->iommufd;
	bind.iommufd = vfio->iommufd;
	if (ioctl(vfio->fd, GNV_VFIO_BIND_IOMMUFD, &bind))
		return bind_failed(vfio, errno);
	return attach(vfio);
}

int gnv_iommufd_open(const struct gnv_pci *pci, struct gnv_vfio *vfio)
{
	int ret;

	gnv_vfio_init(vfio, pci);
	ret = take(pci, vfio);
	if (!ret)
		ret = gnv_vfio_learn(vfio);
	if (ret)
		gnv_vfio_close(vfio);
	return ret;
}

int gnv_iommufd_ranges(const struct gnv_vfio *vfio, struct gnv_range *range, unsigned room)
{
	struct gnv_iommufd_iova_ranges arg = { .size = sizeof(arg),
					       .ioas_id = vfio->ioas,
					       .num_iovas = room,
					       .allowed_iovas = (uintptr_t)range };

	_Static_assert(sizeof(*range) == sizeof(struct gnv_iommufd_range), "the kernel fills our ranges");
	if (ioctl(vfio->iommufd, GNV_IOMMUFD_IOVA_RANGES, &arg) && errno != EMSGSIZE)
		return -errno;
	return (int)arg.num_iovas;
}

int gnv_iommufd_map(const struct gnv_vfio *vfio, void *ptr, size_t len, uint64_t iova)
{
	struct gnv_iommufd_map arg = { .size = sizeof(arg),
				       .flags = READ_WRITE,
				       .ioas_id = vfio->ioas,
				       .user_va = (uintptr_t)ptr,
				       .length = len,
				       .iova = iova };

	return ioctl(vfio->iommufd, GNV_IOMMUFD_MAP, &arg) ? -errno : 0;
}

int gnv_iommufd_map_file(const struct gnv_vfio *vfio, int fd, uint64_t start, size_t len, uint64_t iova)
{
	struct gnv_iommufd_map_file arg = { .size = sizeof(arg),
					    .flags = READ_WRITE,
					    .ioas_id = vfio->ioas,
					    .fd = fd,
					    .start = start,
					    .length = len,
					    .iova = iova };

	return ioctl(vfio->iommufd, GNV_IOMMUFD_MAP_FILE, &arg) ? -errno : 0;
}

int gnv_iommufd_unmap(const struct gnv_vfio *vfio, uint64_t iova, size_t len)
{
	struct gnv_iommufd_unmap arg = { .size = sizeof(arg), .ioas_id = vfio->ioas, .iova = iova, .length = len };

	return ioctl(vfio->iommufd, GNV_IOMMUFD_UNMAP, &arg) ? -errno : 0;
}
