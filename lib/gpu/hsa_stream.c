/* SPDX-License-Identifier: MIT */
/* Kernels of the library in streams of HIP. Invariant: the module is loaded once, and stays until the GPU is closed. */
#include "gpu/hsa_lanes.h"
#include "gpu/kernels/code_object.h"
#include "os/amd/hip_module.h"

/* The first call loads the kernels into HIP, which has the streams. */
static int load_stream_kernels(struct gnv_hsa_lanes *lanes)
{
	const struct gnv_hsa_info *info = gnv_hsa_info(lanes->hsa);
	struct gnv_code_object code;
	int ret = 0;

	pthread_mutex_lock(&lanes->lock);
	if (!lanes->module)
		ret = gnv_code_object_find(info->isa, &code);
	if (!ret && !lanes->module)
		ret = gnv_hip_module_open(info->bdf, code.elf, gnv_kernel_names + GNV_KERNELS_AT_OPEN, GNV_KERNELS - GNV_KERNELS_AT_OPEN,
					  &lanes->module);
	pthread_mutex_unlock(&lanes->lock);
	return ret;
}

/* Groups of one wave: they fit on compute units that kernels of the program use. */
int gnv_hsa_enqueue(struct gpunvme_gpu *gpu, void *stream, const struct gnv_launch *launch)
{
	struct gnv_hsa_lanes *lanes = gpu->priv;
	const uint32_t width = gpu->info.width;
	int ret = gnv_hsa_usable(lanes->hsa);

	if (!ret)
		ret = load_stream_kernels(lanes);
	return ret ? ret : gnv_hip_module_enqueue(lanes->module, stream, launch->kernel - GNV_KERNELS_AT_OPEN, launch->threads / width,
						  width, launch->args);
}
