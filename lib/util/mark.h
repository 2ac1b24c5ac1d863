/* SPDX-License-Identifier: MIT */
/* A number for a namespace, by which it is known again among all that this library has: in another process, after a restart. */
#ifndef GNV_UTIL_MARK_H
#define GNV_UTIL_MARK_H

#include <gpunvme/dev.h>
#include <stddef.h>
#include <stdint.h>

/* FNV-1a, 64 bits: offset basis and prime as on https://datatracker.ietf.org/doc/html/rfc9923. */
#define GNV_FNV_BEGIN 0xcbf29ce484222325ull

static inline uint64_t gnv_fnv(uint64_t sum, const void *bytes, size_t len)
{
	const unsigned char *at = (const unsigned char *)bytes;

	while (len--)
		sum = (sum ^ *at++) * 0x100000001b3ull;
	return sum;
}

static inline uint64_t gnv_mark(const struct gpunvme_dev_info *dev, const struct gpunvme_ns_info *ns)
{
	uint64_t sum = gnv_fnv(GNV_FNV_BEGIN, dev->model, sizeof(dev->model));

	sum = gnv_fnv(sum, dev->serial, sizeof(dev->serial));
	sum = gnv_fnv(sum, &ns->nsid, sizeof(ns->nsid));
	sum = gnv_fnv(sum, &ns->nblocks, sizeof(ns->nblocks));
	sum = gnv_fnv(sum, &ns->lba_size, sizeof(ns->lba_size));
	sum = gnv_fnv(sum, ns->nguid, sizeof(ns->nguid));
	return gnv_fnv(sum, ns->eui64, sizeof(ns->eui64));
}

#endif
