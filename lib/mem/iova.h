/* SPDX-License-Identifier: MIT */
/*
 * Which addresses of an address space are free. Addresses are given out in ascending order and reused late, so that a stale one
 * misses. The owner locks.
 */
#ifndef GNV_MEM_IOVA_H
#define GNV_MEM_IOVA_H

#include <stddef.h>
#include <stdint.h>

#include "os/linux/sysfs.h"

struct gnv_iova {
	struct gnv_range *free; /* ascending, never adjacent */
	unsigned count;
	unsigned room;  /* of `free`. Always enough to take every live allocation back */
	unsigned live;  /* allocations */
	uint64_t next;  /* where to look first */
};

/* Nothing is free yet. */
void gnv_iova_init(struct gnv_iova *iova);
void gnv_iova_fini(struct gnv_iova *iova);

/* Make [start, last] free. It must not overlap a free range. Return: 0, -ENOMEM. */
int gnv_iova_add(struct gnv_iova *iova, uint64_t start, uint64_t last);

/* Take the free parts of [start, last] away for good. Return: 0, -ENOMEM. */
int gnv_iova_exclude(struct gnv_iova *iova, uint64_t start, uint64_t last);

/* @align: a power of two. Return: 0; -ENOSPC, -ENOMEM. */
int gnv_iova_alloc(struct gnv_iova *iova, uint64_t len, uint64_t align, uint64_t *start);
void gnv_iova_free(struct gnv_iova *iova, uint64_t start, uint64_t len);

#endif
