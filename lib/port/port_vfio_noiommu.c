/* SPDX-License-Identifier: MIT */
/*
 * The port to a device that no IOMMU watches, through its character device (Linux 7.3): it can write anywhere, so only a
 * request by name gets here.
 */
#include "mem/space_vfio.h"
#include "os/vfio/iommufd.h"
#include "port/vfio_device.h"

static const struct gnv_port_ops noiommu_ops = {
	.name = "vfio-noiommu",
	.halt = gnv_port_vfio_halt,
	.reset = gnv_port_vfio_reset,
	.export_bar0 = gnv_port_vfio_export,
	.watch = gnv_port_vfio_watch,
	.allow_dma = gnv_port_vfio_allow_dma,
	.cmb = gnv_port_vfio_cmb,
	.close = gnv_port_vfio_close,
};

const struct gnv_vfio_way gnv_way_noiommu = { &noiommu_ops, gnv_iommufd_take, gnv_space_noiommu_create };
