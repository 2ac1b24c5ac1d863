/* SPDX-License-Identifier: MIT */
/* The port through a VFIO group and a type 1 container: for kernels without IOMMUFD. */
#include "mem/space_vfio.h"
#include "os/vfio/type1.h"
#include "port/vfio_device.h"

static const struct gnv_port_ops type1_ops = {
	.name = "vfio-type1",
	.halt = gnv_port_vfio_halt,
	.reset = gnv_port_vfio_reset,
	.export_bar0 = gnv_port_vfio_export,
	.watch = gnv_port_vfio_watch,
	.allow_dma = gnv_port_vfio_allow_dma,
	.cmb = gnv_port_vfio_cmb,
	.close = gnv_port_vfio_close,
};

const struct gnv_vfio_way gnv_way_type1 = { &type1_ops, gnv_type1_take, gnv_space_type1_create };
