/* SPDX-License-Identifier: MIT */
/* An AMD GPU through ROCm's HSA runtime, between gpu_hsa.c, hsa_mmio.c and hsa_stream.c. */
#ifndef GNV_GPU_HSA_LANES_H
#define GNV_GPU_HSA_LANES_H

#include <pthread.h>

#include "gpu/gpu.h"
#include "os/amd/hsa.h"

struct gnv_hsa_lanes {
	struct gnv_hsa *hsa;
	uint32_t kfd_id; /* 0: unknown */
	pthread_mutex_t lock; /* protects the rest */
	struct gnv_vram *past; /* memory that HIP or libdrm gave, past the runtime */
	struct gnv_hip_module *module; /* the kernels of streams, once one was enqueued */
};

static inline struct gnv_hsa *gnv_hsa_of(const struct gpunvme_gpu *gpu)
{
	return ((const struct gnv_hsa_lanes *)gpu->priv)->hsa;
}

/* Of struct gnv_gpu_ops: doorbells of a controller. */
int gnv_hsa_mmio_attach(struct gpunvme_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_gpu_range *range);
int gnv_hsa_mmio_detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range);
int gnv_hsa_mmio_fence_off(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, bool reset);
void gnv_hsa_mmio_distrust(struct gpunvme_gpu *gpu, const struct gnv_gpu_range *range);

/* Of struct gnv_gpu_ops: streams of HIP. */
int gnv_hsa_enqueue(struct gpunvme_gpu *gpu, void *stream, const struct gnv_launch *launch);

#endif
