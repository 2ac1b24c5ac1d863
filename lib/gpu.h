/* SPDX-License-Identifier: MIT */
/*
 * The processor that runs the lanes, as the layers below and beside it see it. Counted references: memory and queue pairs hold
 * one each, so gpunvme_gpu_close() may come before theirs.
 */
#ifndef GNV_GPU_H
#define GNV_GPU_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>
#include <stdbool.h>

#include "util/log.h"

struct gpunvme_gpu *gnv_gpu_get(struct gpunvme_gpu *gpu);
void gnv_gpu_put(struct gpunvme_gpu *gpu);

const struct gnv_log *gnv_gpu_log(const struct gpunvme_gpu *gpu);
uint32_t gnv_gpu_ticks_per_ms(const struct gpunvme_gpu *gpu);

/* True for the first memory that could not be locked, so that it is said once. */
bool gnv_gpu_first_unlocked(struct gpunvme_gpu *gpu);

/* One lane of the GPU reads `nblocks` from `lba` of the view into `dbuf`. Return: what gpunvme_read() of the device header does. */
int gnv_gpu_read(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t lba,
		 uint32_t nblocks);

#endif
