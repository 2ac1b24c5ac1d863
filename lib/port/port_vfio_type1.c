/* SPDX-License-Identifier: MIT */
/* The port through a VFIO group and a type 1 container: what kernels without IOMMUFD have. */
#include "mem/space_vfio.h"
#include "os/type1.h"
#include "port/vfio_device.h"

static const struct gnv_port_ops type1_ops = {
	.name = "vfio-type1",
	.halt = gnv_port_vfio_halt,
	.export_bar0 = gnv_port_vfio_export,
	.watch = gnv_port_vfio_watch,
	.close = gnv_port_vfio_close,
};

const struct gnv_vfio_way gnv_way_type1 = { &type1_ops, gnv_type1_take, gnv_space_type1_create };
