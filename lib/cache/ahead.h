/* SPDX-License-Identifier: MIT */
/* Prefetched pages, from the host's side: device/coming.h. */
#ifndef GNV_CACHE_AHEAD_H
#define GNV_CACHE_AHEAD_H

#include "cache/cache.h"

/* May threads prefetch? */
bool gnv_ahead(const struct gpunvme_dpages *view);

/*
 * gnv_ahead_check() - may a cache go that no kernel uses any more?
 * Return: 0; -EBUSY pages have identifiers of a queue that goes on, which stay taken; -EIO the threads' memory cannot be
 * read.
 */
int gnv_ahead_check(struct gpunvme_cache *cache);

#endif
