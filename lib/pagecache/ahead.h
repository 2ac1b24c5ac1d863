/* SPDX-License-Identifier: MIT */
/* What the host knows of pages that are prefetched: device_ahead.h. */
#ifndef GNV_PAGECACHE_AHEAD_H
#define GNV_PAGECACHE_AHEAD_H

#include <gpunvme/dq.h>

#include "gpu/gpu.h"
#include "nvme/dev.h"

/* Words of each frame. */
uint32_t gnv_ahead_words(const struct gpunvme_dpages *view);

/*
 * gnv_ahead_check() - may a cache go that no kernel uses any more?
 * Return: 0; -EBUSY pages have identifiers of a queue that goes on, which nobody would give back; -EIO the lanes' memory cannot be
 * read.
 */
int gnv_ahead_check(const struct gpunvme_dpages *view, struct gpunvme_gpu *gpu, struct gpunvme_dev *dev);

#endif
