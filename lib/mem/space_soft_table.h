/* SPDX-License-Identifier: MIT */
/* The inside of the software address space, for space_soft.c and space_placed.c. */
#ifndef GNV_MEM_SPACE_SOFT_TABLE_H
#define GNV_MEM_SPACE_SOFT_TABLE_H

#include <pthread.h>

#include "mem/space_soft.h"
#include "util/bits.h"

#define GNV_SOFT_LIVE 0x80000000u /* in entry.state: the slot holds a mapping. The bits below count references */

/* Fields other than `state` and `serial` change only while `state` is 0, under the lock. */
struct entry {
	struct gnv_soft_map map;
	uint32_t state;
	uint64_t serial;
	bool kept; /* a watch that ended did not let go of the bytes. Under the lock */
};

struct placed {
	uint64_t iova;
	size_t len;
	unsigned slot;
};

struct soft_space {
	struct gnv_space base;
	uint64_t first; /* of the addresses that it chooses. Each slot has 1 << shift of them */
	unsigned shift;
	pthread_mutex_t lock; /* for map and unmap. Translations never take it */
	struct gnv_soft_watch *watches;
	uint64_t last_serial;
	unsigned next; /* where to look for a free slot: late reuse makes stale addresses miss */
	struct entry entry[GNV_SOFT_SPACE_SLOTS];
	pthread_rwlock_t guard; /* of the next two: taken last, and for a search or a change alone */
	unsigned placed_count;
	struct placed placed[GNV_SOFT_SPACE_SLOTS]; /* by address */
};

static inline struct soft_space *soft_of(struct gnv_space *space)
{
	return gnv_container_of(space, struct soft_space, base);
}

/* All that follows under the lock. */

/* Return: a slot, or -ENOSPC. */
int gnv_soft_space_find_free(struct soft_space *soft);
/*
 * Publish it, after all watches have seen it. Return: 0; the error of a watch; -EOWNERDEAD the same, and a watch did not let go of
 * the bytes, which must stay.
 */
int gnv_soft_space_publish(struct soft_space *soft, struct entry *e);
/*
 * All watches let go of it. It has no users any more. Return: 0; -EBUSY one still reaches it; -EOWNERDEAD none does, and the bytes
 * must stay.
 */
int gnv_soft_space_end_watches(const struct soft_space *soft, struct entry *e);
/* Of the placed mappings, how many begin at or below the address. Under the lock or the guard. */
unsigned gnv_soft_space_placed_up_to(const struct soft_space *soft, uint64_t iova);

#endif
