/* SPDX-License-Identifier: MIT */
/*
 * PRP lists of mappings that are gone. A command in flight may still make the controller fetch its list, and behind an IOMMU nobody
 * waits for it: its list is not another mapping's until it has ended.
 */
#ifndef GNV_DMA_DEFERRED_FREE_H
#define GNV_DMA_DEFERRED_FREE_H

#include "dma/mapping.h"

/* A mapping that consists of nothing but its lists becomes the device's. With dev->lock held. */
void gnv_late_add(struct gpunvme_dev *dev, struct gnv_mapping *map);

/* Give back what no command in flight can need; before something is allocated where lists lie. */
void gnv_late_sweep(struct gpunvme_dev *dev);

/* There was no room for lists, as gnv_fail() has said: it says of what waits here, too. Return: @ret. */
int gnv_late_explain(struct gpunvme_dev *dev, int ret);

/* Give back everything; the device makes no DMA any more. */
void gnv_late_drop(struct gpunvme_dev *dev);

#endif
