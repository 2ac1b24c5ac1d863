/* SPDX-License-Identifier: MIT */
/* Invariant: info.bytes is the sum of all listed entries. `idle` holds exactly the listed entries without users. */
#include "dma/mem_cache_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT (1ull << 30)
#define ROOM 16u /* at first */

int gnv_mem_cache_create(size_t page, struct gnv_mem_cache **cache)
{
	struct gnv_mem_cache *made = calloc(1, sizeof(*made));

	if (!made)
		return gnv_fail(-ENOMEM, "out of memory");
	pthread_mutex_init(&made->making, NULL);
	pthread_mutex_init(&made->lock, NULL);
	made->info.limit = LIMIT;
	made->holders = 1;
	made->page = page;
	*cache = made;
	return 0;
}

void gnv_mem_cache_destroy(struct gnv_mem_cache *cache)
{
	pthread_mutex_destroy(&cache->making);
	pthread_mutex_destroy(&cache->lock);
	free(cache->slots);
	free(cache);
}

/* The first slot that ends after `at`. */
static size_t search(const struct gnv_mem_cache *cache, const struct gpunvme_gpu *gpu, uintptr_t at)
{
	size_t low = 0, high = cache->count, mid;

	while (low < high) {
		const struct gnv_mem_cache_slot *slot = &cache->slots[mid = (low + high) / 2];

		if (slot->gpu < gpu || (slot->gpu == gpu && slot->to <= at))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool holds(const struct gnv_mem_cache *cache, size_t i, const struct gpunvme_gpu *gpu, uintptr_t from, uintptr_t to)
{
	return i < cache->count && cache->slots[i].gpu == gpu && cache->slots[i].from <= from && cache->slots[i].to >= to;
}

struct gnv_cached *gnv_mem_cache_find(struct gnv_mem_cache *cache, const struct gpunvme_gpu *gpu, uintptr_t from, uintptr_t to)
{
	size_t i = cache->last;

	if (!holds(cache, i, gpu, from, to)) {
		i = search(cache, gpu, from);
		if (!holds(cache, i, gpu, from, to))
			return NULL;
		cache->last = i;
	}
	return cache->slots[i].entry;
}

struct gnv_cached *gnv_mem_cache_overlap(struct gnv_mem_cache *cache, const struct gpunvme_gpu *gpu, uintptr_t from, uintptr_t to)
{
	size_t i = gpu ? search(cache, gpu, from) : 0;

	for (; i < cache->count; i++) {
		const struct gnv_mem_cache_slot *slot = &cache->slots[i];

		if ((!gpu || slot->gpu == gpu) && slot->from < to && slot->to > from)
			return slot->entry;
		if (gpu)
			break;
	}
	return NULL;
}

int gnv_mem_cache_reserve(struct gnv_mem_cache *cache)
{
	size_t room = cache->room ? 2 * cache->room : ROOM;
	struct gnv_mem_cache_slot *slots;

	if (cache->count < cache->room)
		return 0;
	slots = realloc(cache->slots, room * sizeof(*slots));
	if (!slots)
		return gnv_fail(-ENOMEM, "out of memory");
	cache->slots = slots;
	cache->room = room;
	return 0;
}

static void leave(struct gnv_cached_list *list, struct gnv_cached *entry)
{
	*(entry->older ? &entry->older->newer : &list->oldest) = entry->newer;
	*(entry->newer ? &entry->newer->older : &list->newest) = entry->older;
	entry->older = entry->newer = NULL;
}

static void join(struct gnv_cached_list *list, struct gnv_cached *entry)
{
	entry->older = list->newest;
	entry->newer = NULL;
	*(entry->older ? &entry->older->newer : &list->oldest) = entry;
	list->newest = entry;
}

void gnv_mem_cache_list(struct gnv_mem_cache *cache, struct gnv_cached *entry)
{
	size_t i = search(cache, entry->gpu, entry->from);

	memmove(&cache->slots[i + 1], &cache->slots[i], (cache->count - i) * sizeof(cache->slots[0]));
	cache->slots[i] = (struct gnv_mem_cache_slot){ entry->gpu, entry->from, entry->to, entry };
	cache->count++;
	cache->last = i;
	cache->info.bytes += entry->to - entry->from;
	entry->listed = true;
	if (!entry->users)
		join(&cache->idle, entry);
}

void gnv_mem_cache_unlist(struct gnv_mem_cache *cache, struct gnv_cached *entry)
{
	size_t i = search(cache, entry->gpu, entry->from);

	cache->count--;
	memmove(&cache->slots[i], &cache->slots[i + 1], (cache->count - i) * sizeof(cache->slots[0]));
	cache->info.bytes -= entry->to - entry->from;
	entry->listed = false;
	if (!entry->users)
		leave(&cache->idle, entry);
	join(&cache->gone, entry);
}

void gnv_mem_cache_drop(struct gnv_mem_cache *cache, struct gnv_cached *entry)
{
	leave(&cache->gone, entry);
	cache->holders--;
}

void gnv_mem_cache_use(struct gnv_mem_cache *cache, struct gnv_cached *entry)
{
	if (!entry->users++)
		leave(&cache->idle, entry);
}

void gnv_mem_cache_unuse(struct gnv_mem_cache *cache, struct gnv_cached *entry)
{
	if (!--entry->users)
		join(&cache->idle, entry);
}

struct gnv_cached *gnv_mem_cache_victim(const struct gnv_mem_cache *cache)
{
	return cache->info.bytes > cache->info.limit ? cache->idle.oldest : NULL;
}

void gnv_mem_cache_describe(const struct gnv_mem_cache *cache, struct gpunvme_mem_cache_info *info)
{
	size_t i;

	*info = cache->info;
	info->size = sizeof(*info);
	info->entries = (uint32_t)cache->count;
	info->used = 0;
	for (i = 0; i < cache->count; i++)
		info->used += !!cache->slots[i].entry->users;
}
