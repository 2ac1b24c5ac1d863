/* SPDX-License-Identifier: MIT */
/*
 * PRP lists of mappings that are gone. A command in flight may still make the controller fetch its list. So the list is freed only
 * after that command has ended. With an IOMMU no function waits for this.
 */
#ifndef GNV_DMA_DEFERRED_FREE_H
#define GNV_DMA_DEFERRED_FREE_H

#include "dma/mapping.h"

/* Take a mapping of which only the lists are left. The caller holds dev->lock. */
void gnv_deferred_free(struct gpunvme_dev *dev, struct gnv_mapping *map);

/* Free the lists that no command in flight can need. Call it before an allocation where lists lie. */
void gnv_deferred_free_unused(struct gpunvme_dev *dev);

/* Add the bytes that wait here to the error message of an allocation that failed. Return: @ret. */
int gnv_deferred_free_explain(struct gpunvme_dev *dev, int ret);

/* Free all lists, after the device has stopped DMA. */
void gnv_deferred_free_all(struct gpunvme_dev *dev);

#endif
