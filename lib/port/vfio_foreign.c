/* SPDX-License-Identifier: MIT */
/*
 * Does IOMMUFD take memory of every exporter that offers addresses, or of vfio-pci alone? Kernels that take the former also take
 * several ranges (contrib/kernel), the others only one. The test is a DMA-BUF with one page of BAR0 twice.
 */
#include <errno.h>
#include <gpunvme/spec.h>

#include "mem/mem.h"
#include "os/linux/dmabuf.h"
#include "port/vfio_device.h"

int gnv_port_map_export(struct gnv_port *port, int fd, size_t len)
{
	static const struct gnv_mem_ops kind = { "bar", NULL, NULL, NULL };
	const struct gpunvme_mem mem = { .ops = &kind, .cpu = port->bar0->cpu, .len = len, .dmabuf = fd };
	uint64_t iova;
	int ret = port->space->ops->map(port->space, &mem, &iova);

	if (!ret)
		port->space->ops->unmap(port->space, iova, len);
	gnv_dmabuf_close(fd);
	return ret;
}

int gnv_port_takes_foreign(struct gnv_port *port)
{
	const size_t page = port->bar0->page;
	int fd, ret = gnv_port_vfio_export_twice(port, GPUNVME_REG_DOORBELLS & ~(uint64_t)(page - 1), page, &fd);

	if (ret)
		return ret == -EOPNOTSUPP ? -ENOENT : ret;
	ret = gnv_port_map_export(port, fd, 2 * page);
	if (ret == -EOPNOTSUPP)
		return gnv_fail(ret, "IOMMUFD of this kernel takes device memory of vfio-pci only, so queues and data stay out of GPU memory. "
				     "Use a patched kernel (docs/kernel.md)");
	return ret;
}
