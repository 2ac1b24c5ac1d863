/* SPDX-License-Identifier: MIT */
/*
 * The arena of a device. A chunk has one bit per page, set while used: neighbouring free pages are one run by themselves.
 * Invariant: a chunk in the list is mapped to the space. It leaves the list only after a successful unmap. It is attached to a GPU
 * while that GPU uses blocks of it.
 */
#include "mem/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

#define CHUNK_BYTES (2u << 20)
#define CHUNK_PAGES (CHUNK_BYTES / 4096u)
#define OWN_MAPPING (CHUNK_BYTES / 2u) /* larger requests get a chunk of exactly their size */

struct gnv_arena_chunk {
	struct gnv_arena_chunk *next;
	struct gpunvme_mem *mem;
	uint64_t iova;
	unsigned pages; /* managed here. 0: the chunk is one big block */
	unsigned used;
	bool lent;
	bool dead; /* atomic: taken away */
	struct gnv_mem_watch watch;
	struct gnv_arena *arena;
	void (*lost)(void *ctx);
	void *ctx;
	uint64_t map[]; /* of the pages */
};

struct gnv_arena {
	pthread_mutex_t lock; /* protects all below */
	struct gnv_space *space;
	const struct gnv_log *log;
	size_t page;
	struct gpunvme_gpu *source; /* the GPU that provides the memory. NULL: the host does */
	bool said_unlocked;
	bool kept; /* a GPU did not let go of some of its memory */
	struct gnv_arena_chunk *chunks;
};

static struct gnv_arena_chunk *chunk_new(uint64_t pages)
{
	return calloc(1, sizeof(struct gnv_arena_chunk) + (size_t)(pages + 63) / 64 * sizeof(uint64_t));
}

int gnv_arena_create(struct gnv_space *space, size_t page, struct gpunvme_gpu *source, const struct gnv_log *log,
		     struct gnv_arena **arena)
{
	struct gnv_arena *made = calloc(1, sizeof(*made));

	if (!made)
		return gnv_fail(-ENOMEM, "out of memory");
	pthread_mutex_init(&made->lock, NULL);
	made->space = space;
	made->page = page;
	made->source = source;
	made->log = log;
	*arena = made;
	return 0;
}

int gnv_arena_over(struct gpunvme_mem *mem, uint64_t iova, size_t page, const struct gnv_log *log, struct gnv_arena **arena)
{
	const uint64_t pages = gnv_min(mem->len / page, INT32_MAX);
	struct gnv_arena_chunk *chunk = chunk_new(pages);
	int ret = chunk ? gnv_arena_create(NULL, page, NULL, log, arena) : gnv_fail(-ENOMEM, "out of memory");

	if (ret) {
		free(chunk);
		return ret;
	}
	chunk->mem = mem;
	chunk->iova = iova;
	chunk->pages = (unsigned)pages;
	chunk->used = 1; /* so that it stays when nothing of it is in use */
	chunk->map[0] = 1;
	(*arena)->chunks = chunk;
	return 0;
}

int gnv_arena_fence_off(struct gnv_arena *arena, bool reset)
{
	struct gnv_arena_chunk *chunk;
	int ret = 0, failed;

	pthread_mutex_lock(&arena->lock);
	for (chunk = arena->chunks; chunk; chunk = chunk->next) {
		failed = gnv_mem_fence_off(chunk->mem, reset);
		ret = ret ? ret : failed;
	}
	pthread_mutex_unlock(&arena->lock);
	return ret;
}

/* Map the memory of a chunk and put it into the list. */
static int chunk_insert(struct gnv_arena *arena, struct gnv_arena_chunk *chunk, unsigned pages)
{
	int ret = gnv_mem_map(chunk->mem, arena->space, arena->log, &chunk->iova);

	if (ret)
		return ret;
	chunk->pages = pages;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	return 0;
}

static void chunk_lost(struct gnv_mem_watch *watch)
{
	struct gnv_arena_chunk *chunk = gnv_container_of(watch, struct gnv_arena_chunk, watch);

	__atomic_store_n(&chunk->dead, true, __ATOMIC_RELAXED);
	chunk->lost(chunk->ctx);
	chunk->arena->space->ops->cut(chunk->arena->space, chunk->iova, chunk->mem->len);
}

static void watch_chunk(struct gnv_arena_chunk *chunk, void (*change)(struct gpunvme_mem *, struct gnv_mem_watch *))
{
	pthread_mutex_lock(&chunk->mem->lock);
	change(chunk->mem, &chunk->watch);
	pthread_mutex_unlock(&chunk->mem->lock);
}

int gnv_arena_lend(struct gnv_arena *arena, struct gpunvme_mem *mem, void (*lost)(void *ctx), void *ctx)
{
	struct gnv_arena_chunk *chunk;
	int ret;

	if (mem->len < CHUNK_BYTES)
		return gnv_fail(-EINVAL, "%zu bytes are too few for rings, %u are needed", mem->len, CHUNK_BYTES);
	chunk = chunk_new(CHUNK_PAGES);
	if (!chunk)
		return gnv_fail(-ENOMEM, "out of memory");
	*chunk = (struct gnv_arena_chunk){ .mem = mem, .lent = true, .arena = arena, .lost = lost, .ctx = ctx };
	chunk->watch.lost = chunk_lost;
	chunk->used = 1; /* so that it stays when nothing of it is in use */
	chunk->map[0] = 1;
	pthread_mutex_lock(&arena->lock);
	ret = chunk_insert(arena, chunk, (unsigned)(CHUNK_BYTES / arena->page));
	pthread_mutex_unlock(&arena->lock);
	if (ret)
		free(chunk);
	else
		watch_chunk(chunk, gnv_mem_watch);
	return ret;
}

static int chunk_add(struct gnv_arena *arena, size_t len, unsigned pages, struct gnv_arena_chunk **out)
{
	struct gnv_arena_chunk *chunk;
	int ret;

	if (!arena->space)
		return gnv_fail(-ENOSPC, "the %zu bytes in the drive (CMB) have no room for %zu in a row. Put fewer or shorter "
				"queues, or less data there",
				arena->chunks->pages * arena->page, len);
	chunk = chunk_new(CHUNK_PAGES);
	if (!chunk)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = arena->source ? gnv_mem_gpu_alloc(arena->source, 0, len, &chunk->mem) :
			      gnv_mem_host_alloc(len, gnv_mem_flags_for(arena->space), arena->log, &chunk->mem);
	if (ret)
		goto free_chunk;
	if (!chunk->mem->locked && !arena->said_unlocked) {
		arena->said_unlocked = true;
		gnv_mem_log_unlocked(arena->log, len);
	}
	ret = chunk_insert(arena, chunk, pages);
	if (ret)
		goto release_mem;
	*out = chunk;
	return 0;

release_mem:
	gnv_mem_release(chunk->mem);
free_chunk:
	free(chunk);
	return ret;
}

/* With the lock held. */
static void leak(struct gnv_arena *arena, struct gnv_arena_chunk *chunk, const char *why)
{
	gnv_log(arena->log, GPUNVME_LOG_ERROR, "%zu bytes are leaked: %s", chunk->mem->len, why);
	chunk->mem->leaked = true;
	arena->kept = true;
}

/* Unmap a chunk and take it out of the list. Where the space refuses it stays, unused, for a later try. */
static int chunk_remove(struct gnv_arena *arena, struct gnv_arena_chunk *chunk)
{
	struct gnv_arena_chunk **link;
	int ret = arena->space ? arena->space->ops->unmap(arena->space, chunk->iova, chunk->mem->len) : 0;

	if (ret && ret != -EOWNERDEAD)
		return ret;
	if (ret && !chunk->mem->leaked)
		leak(arena, chunk, gpunvme_errmsg());
	for (link = &arena->chunks; *link != chunk; link = &(*link)->next)
		;
	*link = chunk->next;
	gnv_mem_release(chunk->mem);
	free(chunk);
	return 0;
}

int gnv_arena_destroy(struct gnv_arena *arena)
{
	const int ret = arena->kept ? -EBUSY : 0;
	struct gnv_arena_chunk *chunk, *next;

	for (chunk = arena->chunks; chunk; chunk = next) {
		next = chunk->next;
		if (chunk->lent)
			watch_chunk(chunk, gnv_mem_unwatch);
		if (chunk_remove(arena, chunk))
			gnv_log(arena->log, GPUNVME_LOG_ERROR, "%zu bytes are leaked: the address space still uses them",
				chunk->mem->len);
	}
	pthread_mutex_destroy(&arena->lock);
	free(arena);
	return ret;
}

static bool page_used(const struct gnv_arena_chunk *chunk, unsigned i)
{
	return chunk->map[i / 64] >> (i % 64) & 1;
}

static void flip_pages(struct gnv_arena_chunk *chunk, unsigned first, unsigned count)
{
	unsigned i;

	for (i = first; i < first + count; i++)
		chunk->map[i / 64] ^= 1ull << (i % 64);
}

/* First run of `count` free pages, or -1. */
static int find_run(const struct gnv_arena_chunk *chunk, unsigned count)
{
	unsigned i, run = 0;

	if (chunk->pages - chunk->used < count)
		return -1;
	for (i = 0; i < chunk->pages; i++) {
		run = page_used(chunk, i) ? 0 : run + 1;
		if (run == count)
			return (int)(i + 1 - count);
	}
	return -1;
}

/* May pages be taken from it? */
static bool chunk_open(const struct gnv_arena_chunk *chunk, bool own)
{
	return chunk->pages && !(own && chunk->lent) && !__atomic_load_n(&chunk->dead, __ATOMIC_RELAXED);
}

static int alloc_pages(struct gnv_arena *arena, bool own, unsigned count, struct gnv_arena_chunk **out, unsigned *first)
{
	struct gnv_arena_chunk *chunk;
	int at = -1, ret;

	for (chunk = arena->chunks; chunk; chunk = chunk->next) {
		at = chunk_open(chunk, own) ? find_run(chunk, count) : -1;
		if (at >= 0)
			break;
	}
	if (at < 0) {
		ret = chunk_add(arena, CHUNK_BYTES, (unsigned)(CHUNK_BYTES / arena->page), &chunk);
		if (ret)
			return ret;
		at = 0;
	}
	flip_pages(chunk, (unsigned)at, count);
	chunk->used += count;
	*out = chunk;
	*first = (unsigned)at;
	return 0;
}

static void fill_block(struct gnv_arena_chunk *chunk, size_t offset, size_t len, struct gnv_block *block)
{
	block->cpu = chunk->mem->cpu ? (char *)chunk->mem->cpu + offset : NULL;
	block->iova = chunk->iova + offset;
	block->len = len;
	block->chunk = chunk;
}

/* Zero the block, which has its pages, and make it visible to its GPU. With the lock held. On failure the pages stay taken. */
static int prepare(struct gnv_arena *arena, struct gpunvme_gpu *gpu, struct gnv_block *block)
{
	struct gnv_arena_chunk *chunk = block->chunk;
	uint64_t lane;
	int ret;

	if (block->iova & (arena->page - 1))
		return gnv_fail(-EOPNOTSUPP, "the controller needs pages of %zu bytes, but its address space aligns to less",
				arena->page);
	if (!arena->source)
		/* quiet -Wanalyzer-null-argument: memory of the host has a pointer */
		memset(block->cpu, 0, block->len);
	if (!gpu)
		return 0;
	ret = gnv_mem_show(chunk->mem, gpu, 0, chunk->mem->len, &lane);
	if (ret)
		return ret;
	block->gpu = gpu;
	block->lane = lane + (block->iova - chunk->iova);
	/* A CPU store to memory of a GPU may stay in a cache of the bridge. So the GPU writes the zeros. */
	return arena->source ? gnv_gpu_fill(gpu, block->lane, block->len, 0) : 0;
}

/* A larger block gets memory to itself, or does not fit. */
static size_t most_shared(const struct gnv_arena *arena)
{
	return arena->space ? OWN_MAPPING : arena->chunks->mem->len;
}

static int alloc(struct gnv_arena *arena, bool own, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block)
{
	struct gnv_block got = { .cpu = NULL };
	struct gnv_arena_chunk *chunk = NULL;
	unsigned first = 0;
	int ret;

	if (!len || len > PTRDIFF_MAX - arena->page)
		return gnv_fail(-ENOMEM, "a block of %zu bytes is not possible", len);
	len = gnv_align_up(len, arena->page);
	pthread_mutex_lock(&arena->lock);
	if (len > most_shared(arena))
		ret = chunk_add(arena, len, 0, &chunk);
	else
		ret = alloc_pages(arena, own, (unsigned)(len / arena->page), &chunk, &first);
	if (!ret) {
		fill_block(chunk, first * arena->page, len, &got);
		ret = prepare(arena, gpu, &got);
	}
	pthread_mutex_unlock(&arena->lock);
	if (!ret)
		*block = got;
	else
		gnv_arena_free(arena, &got);
	return ret;
}

int gnv_arena_alloc(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block)
{
	return alloc(arena, false, len, gpu, block);
}

int gnv_arena_alloc_own(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block)
{
	return alloc(arena, true, len, gpu, block);
}

/* One empty chunk is kept: the next queue would map it again. */
static bool spare_exists(const struct gnv_arena *arena, const struct gnv_arena_chunk *but)
{
	const struct gnv_arena_chunk *chunk;

	for (chunk = arena->chunks; chunk; chunk = chunk->next)
		if (chunk != but && chunk->pages && !chunk->used)
			return true;
	return false;
}

void gnv_arena_free(struct gnv_arena *arena, struct gnv_block *block)
{
	struct gnv_arena_chunk *chunk = block->chunk;

	if (!chunk)
		return;
	pthread_mutex_lock(&arena->lock);
	/* By its address: it may have been fenced off, and attached elsewhere since. */
	if (block->gpu && gnv_mem_hide_at(chunk->mem, block->gpu, block->lane - (block->iova - chunk->iova)))
		leak(arena, chunk, gpunvme_errmsg());
	if (chunk->pages) {
		flip_pages(chunk, (unsigned)((block->iova - chunk->iova) / arena->page), (unsigned)(block->len / arena->page));
		chunk->used -= (unsigned)(block->len / arena->page);
	}
	/* An unmap that is refused leaves the chunk in the list: pages to be used again, a big one until the arena goes. */
	if (!chunk->pages || (!chunk->used && spare_exists(arena, chunk)))
		chunk_remove(arena, chunk);
	pthread_mutex_unlock(&arena->lock);
	memset(block, 0, sizeof(*block));
}

void gnv_arena_keep(struct gnv_arena *arena, struct gnv_block *block)
{
	pthread_mutex_lock(&arena->lock);
	leak(arena, block->chunk, "a thread that did not end in time may still use them");
	pthread_mutex_unlock(&arena->lock);
	memset(block, 0, sizeof(*block));
}
