/* SPDX-License-Identifier: MIT */
/*
 * Ranges of a user's memory that are registered and mapped to one device, to be found again by address. mem_cache.c makes them,
 * mem_cache_end.c ends them, and this file finds, counts and orders them.
 *
 * An entry is found while it is listed. Listed ranges of one GPU do not overlap. An entry that is not listed goes with its last
 * user.
 */
#ifndef GNV_DMA_MEM_CACHE_TABLE_H
#define GNV_DMA_MEM_CACHE_TABLE_H

#include <gpunvme/mem.h>

#include "mem/mem.h"
#include "util/alloc.h"

struct gnv_mem_cache;

/* The fields that a hit needs come first. */
struct gnv_cached {
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	uintptr_t from, to; /* whole pages */
	struct gnv_cached *older, *newer; /* of its list, if it is in one */
	unsigned users;
	bool listed;
	bool kept;   /* stays without users: its end is reported, tagged or guaranteed */
	bool freed;  /* by its user */
	bool ending; /* a thread is about to end it */
	struct gnv_alloc alloc;
	struct gpunvme_gpu *gpu; /* the memory holds a reference to it */
	struct gnv_mem_cache *cache;
};

struct gnv_cached_list {
	struct gnv_cached *oldest, *newest;
};

/* One of the table, so that a search stays in it. */
struct gnv_mem_cache_slot {
	const struct gpunvme_gpu *gpu;
	uintptr_t from, to;
	struct gnv_cached *entry;
};

struct gnv_mem_cache {
	pthread_mutex_t making; /* held while entries are made. The outermost */
	pthread_mutex_t lock;	/* protects the fields below. Taken under the lock that the report of freed memory takes */
	struct gnv_mem_cache_slot *slots; /* in order of GPU and address */
	size_t count, room, last; /* last: where something was found */
	struct gnv_cached_list idle; /* listed, and nobody uses them */
	struct gnv_cached_list gone; /* not listed any more, and still mapped */
	size_t holders;		     /* all entries, the device, and threads that evict when it may be gone */
	size_t page;		     /* of the CPU */
	bool closing;		     /* its device */
	struct gpunvme_mem_cache_info info; /* but entries and used */
};

/* @page: of the CPU. Return: 0, -ENOMEM. */
int gnv_mem_cache_create(size_t page, struct gnv_mem_cache **cache);
/* Nobody holds it. */
void gnv_mem_cache_destroy(struct gnv_mem_cache *cache);

/* All of these with the lock held. */

/* The listed entry that holds [from, to), or NULL. Not yet used for it. */
struct gnv_cached *gnv_mem_cache_find(struct gnv_mem_cache *cache, const struct gpunvme_gpu *gpu, uintptr_t from, uintptr_t to);

/* The first listed one of that GPU, or with NULL of any, that has bytes of [from, to), or NULL. */
struct gnv_cached *gnv_mem_cache_overlap(struct gnv_mem_cache *cache, const struct gpunvme_gpu *gpu, uintptr_t from, uintptr_t to);

/* Makes room for one more to be listed. Return: 0, -ENOMEM. */
int gnv_mem_cache_reserve(struct gnv_mem_cache *cache);
void gnv_mem_cache_list(struct gnv_mem_cache *cache, struct gnv_cached *entry);
/* It is not found any more, and among those gone. */
void gnv_mem_cache_unlist(struct gnv_mem_cache *cache, struct gnv_cached *entry);
/* Nor that: it is unmapped. */
void gnv_mem_cache_drop(struct gnv_mem_cache *cache, struct gnv_cached *entry);

/* Of a listed entry: a user more, and less. The last user leaves it as the newest idle entry. */
void gnv_mem_cache_use(struct gnv_mem_cache *cache, struct gnv_cached *entry);
void gnv_mem_cache_unuse(struct gnv_mem_cache *cache, struct gnv_cached *entry);

/* The entry to end, to stay within the limit. NULL: there is none, or none that may be ended. */
struct gnv_cached *gnv_mem_cache_victim(const struct gnv_mem_cache *cache);

/* The result of gpunvme_mem_cache_get_info(). */
void gnv_mem_cache_describe(const struct gnv_mem_cache *cache, struct gpunvme_mem_cache_info *info);

#endif
