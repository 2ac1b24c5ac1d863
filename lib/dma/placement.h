/* SPDX-License-Identifier: MIT */
/*
 * Where the completion queues and the data of a GPU lie on one controller: in memory of the host, or of the GPU.
 *
 * PCIe orders the writes of a device to one destination only. A completion that was seen says that the data has landed only if both
 * lie together, so on one controller all queues and buffers of one GPU do. A controller in software completes nothing before its
 * data is in place, wherever that is.
 */
#ifndef GNV_DMA_PLACEMENT_H
#define GNV_DMA_PLACEMENT_H

#include "dev/dev.h"

/*
 * gnv_placement_claim() - claim a place for a queue or buffer of @gpu: its memory (@local) or the host's
 * Return: 0; -EXDEV others lie elsewhere; -EOPNOTSUPP the controller cannot reach memory of the GPU, which is tried once with a
 * scratch buffer, because an attempt that is refused may drive the memory out of the GPU; -ENOMEM.
 */
int gnv_placement_claim(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, bool local);
void gnv_placement_release(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, bool local);

/*
 * gnv_placement_probe() - a buffer that another driver may move is about to be mapped: has the controller taken memory of @gpu?
 * Return: 0, also where a refusal moves nothing; -EOPNOTSUPP, -ENOMEM as above.
 */
int gnv_placement_probe(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu);

/*
 * gnv_placement_status() - get the result of a request for such a place that maps memory
 * Return: @ret. For memory of the GPU it is -EOPNOTSUPP whatever the kernel's reason, which gnv_fail() keeps: there is another way.
 * A controller that is gone, and memory that is used up, keep their own errors.
 */
int gnv_placement_status(const struct gpunvme_dev *dev, bool local, int ret);

/* Rings in memory of the GPU come from here. The caller has claimed its place there. */
struct gnv_arena *gnv_placement_arena(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu);

/* DMA has been stopped, and nobody lies anywhere. */
void gnv_placement_free_all(struct gpunvme_dev *dev);

#endif
