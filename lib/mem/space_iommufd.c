/* SPDX-License-Identifier: MIT */
/*
 * The address space of an IOMMUFD. Memory that has a DMA-BUF is mapped by it: the kernel pins no pages of a device's BAR.
 */
#include <errno.h>

#include "mem/space_vfio.h"
#include "os/vfio/iommufd.h"

static int map_dmabuf(const struct gnv_space_vfio *sv, const struct gpunvme_mem *mem, uint64_t iova)
{
	int ret = gnv_iommufd_map_file(&sv->as, mem->dmabuf, mem->dmabuf_offset, mem->len, iova);

	if (ret == -EOPNOTSUPP)
		return gnv_fail(ret,
				"the kernel refused the DMA-BUF for %s: up to Linux 7.3 IOMMUFD takes only a single range that "
				"vfio-pci exported. Use a patched kernel (docs/kernel.md). There gpunvme doctor reports what the "
				"exporting driver offers",
				sv->bdf);
	if (ret == -ENODEV)
		return gnv_fail(ret, "the DMA-BUF was revoked: its device was reset, closed, or does not decode memory. Map it "
				     "again when that is over");
	if (ret == -EREMOTEIO) /* contrib/kernel/0003: pci_p2pdma_distance() is negative */
		return gnv_fail(ret,
				"the kernel knows no path over PCIe from %s to the device with this memory: use slots below one PCIe switch, "
				"or a host bridge that pci_p2pdma_distance() accepts",
				sv->bdf);
	return ret ? gnv_space_vfio_refused(sv, mem, ret) : 0;
}

int gnv_space_iommufd_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *out)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	uint64_t iova;
	int ret = gnv_space_vfio_take(sv, mem->len, &iova);

	if (ret)
		return ret;
	if (mem->dmabuf >= 0) {
		ret = map_dmabuf(sv, mem, iova);
	} else {
		ret = gnv_iommufd_map(&sv->as, mem->cpu, mem->len, iova);
		if (ret)
			gnv_space_vfio_refused(sv, mem, ret);
	}
	if (ret)
		gnv_space_vfio_give(sv, iova, mem->len);
	else
		*out = iova;
	return ret;
}

/* The kernel has done it already: such a mapping stays dead for good. */
static void iommufd_cut(struct gnv_space *space, uint64_t iova, size_t len)
{
	(void)space;
	(void)iova;
	(void)len;
}

int gnv_space_iommufd_unmap(struct gnv_space *space, uint64_t iova, size_t len)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	int ret = gnv_iommufd_unmap(&sv->as, iova, len);

	if (!ret)
		gnv_space_vfio_give(sv, iova, len);
	return ret;
}

static const struct gnv_space_ops iommufd_ops = { "iommufd", gnv_space_iommufd_map, iommufd_cut, gnv_space_iommufd_unmap,
						   gnv_space_vfio_close };

int gnv_space_iommufd_create(const struct gnv_vfio *vfio, struct gnv_space **space)
{
	int ret = gnv_space_vfio_create(&iommufd_ops, vfio, gnv_iommufd_ranges, space);

	if (!ret)
		(*space)->by_dmabuf = true;
	return ret;
}
