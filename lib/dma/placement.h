/* SPDX-License-Identifier: MIT */
/*
 * Where the completion queues and the data of a GPU lie on one controller: in memory of the host, or of the GPU.
 *
 * PCIe orders what a device writes towards one destination only. A completion that was seen says that the data has landed only if
 * both lie together, so on one controller all queues and buffers of one GPU do. A controller in software completes nothing before
 * its data is in place, wherever that is.
 */
#ifndef GNV_DMA_PLACEMENT_H
#define GNV_DMA_PLACEMENT_H

#include "dev/dev.h"

/*
 * gnv_placement_claim() - a queue or buffer of @gpu will lie in its memory (@local) or the host's
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
 * gnv_placement_status() - how a request of such a place ended that maps memory
 * Return: @ret; for memory of the GPU -EOPNOTSUPP whatever the kernel's reason, which gnv_fail() keeps: there is another way. Of a
 * controller that is gone, and of memory that is used up, there is nothing to be said but that.
 */
int gnv_placement_status(const struct gpunvme_dev *dev, bool local, int ret);

/* Rings in memory of the GPU come from here; the caller has taken its place there. */
struct gnv_arena *gnv_placement_arena(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu);

/* DMA has been stopped, and nobody lies anywhere. */
void gnv_placement_free_all(struct gpunvme_dev *dev);

#endif
