/* SPDX-License-Identifier: MIT */
/* Memory that is mapped to devices: functions for the public ones, and for the library itself. */
#ifndef GNV_DMA_MEM_MAP_H
#define GNV_DMA_MEM_MAP_H

#include "dev/dev.h"

/* gpunvme_mem_map() of memory whose lists may lie where it wants them. */
int gnv_map_add(struct gpunvme_mem *mem, struct gpunvme_dev *dev);

/* Is it mapped to the device, which may be closed? */
bool gnv_map_has(struct gpunvme_mem *mem, const struct gpunvme_dev *dev);

/* Is there memory that is mapped to the device as @dbuf says, at any address for threads? */
bool gnv_map_knows(struct gpunvme_dev *dev, const struct gpunvme_dbuf *dbuf);

/* Free memory of the library's own. If a device may still write to it, it is freed when that device is closed. */
void gnv_map_free(struct gpunvme_mem *mem);

/*
 * Closing a device whose DMA has been stopped: undo every mapping to it, and release what gnv_map_free() had to leave. Return: 0;
 * -EBUSY a mapping stands, as it was, and so do those after it.
 */
int gnv_map_drop_all(struct gpunvme_dev *dev);

#endif
