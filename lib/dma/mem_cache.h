/* SPDX-License-Identifier: MIT */
/* The end of a device's cache of mapped memory (dma/mem_cache_table.h). */
#ifndef GNV_DMA_MEM_CACHE_H
#define GNV_DMA_MEM_CACHE_H

#include "dev/dev.h"

/* The device begins to close: from now on, freeing memory ends no mapping to it. */
void gnv_mem_cache_close(struct gnv_mem_cache *cache);

/* Nothing is mapped to the device any more. Entries in use live on, until they are put. */
void gnv_mem_cache_end(struct gnv_mem_cache *cache);

#endif
