/* SPDX-License-Identifier: MIT */
/* Prefetched pages, from the host's side: device/coming.h. */
#ifndef GNV_CACHE_PREFETCH_H
#define GNV_CACHE_PREFETCH_H

#include "cache/cache.h"

/* May threads prefetch? */
bool gnv_has_prefetch(const struct gpunvme_dpages *view);

/*
 * gnv_prefetch_check() - check whether a cache that no kernel uses any more can be closed
 * Return: 0; -EBUSY pages have identifiers of a queue that goes on, which stay taken; -EIO the threads' memory cannot be
 * read.
 */
int gnv_prefetch_check(struct gpunvme_cache *cache);

#endif
