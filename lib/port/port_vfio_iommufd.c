/* SPDX-License-Identifier: MIT */
/* The port through a VFIO character device and IOMMUFD. */
#include "mem/space_vfio.h"
#include "os/vfio/iommufd.h"
#include "port/vfio_device.h"

static const struct gnv_port_ops iommufd_ops = {
	.name = "vfio-iommufd",
	.halt = gnv_port_vfio_halt,
	.reset = gnv_port_vfio_reset,
	.export_bar0 = gnv_port_vfio_export,
	.watch = gnv_port_vfio_watch,
	.allow_dma = gnv_port_vfio_allow_dma,
	.cmb = gnv_port_vfio_cmb,
	.close = gnv_port_vfio_close,
};

const struct gnv_vfio_way gnv_way_iommufd = { &iommufd_ops, gnv_iommufd_take, gnv_space_iommufd_create };
