/* SPDX-License-Identifier: MIT */
/* What the host knows of pages that are prefetched: device/coming.h. */
#ifndef GNV_CACHE_AHEAD_H
#define GNV_CACHE_AHEAD_H

#include "cache/cache.h"

/* May lanes prefetch? */
bool gnv_ahead(const struct gpunvme_dpages *view);

/*
 * gnv_ahead_check() - may a cache go that no kernel uses any more?
 * Return: 0; -EBUSY pages have identifiers of a queue that goes on, which nobody would give back; -EIO the lanes' memory cannot be
 * read.
 */
int gnv_ahead_check(struct gpunvme_cache *cache);

#endif
