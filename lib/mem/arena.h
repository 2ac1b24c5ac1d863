/* SPDX-License-Identifier: MIT */
/*
 * Small memory that a device reaches: rings, PRP tables, admin buffers, queue state.
 *
 * Chunks of 2 MiB are mapped to the device once and given out in pages of the controller, so an object costs no mapping of its own.
 * A request too big for that gets a mapping to itself. Any thread may call.
 */
#ifndef GNV_MEM_ARENA_H
#define GNV_MEM_ARENA_H

#include "mem/mem.h"
#include "mem/space.h"

struct gnv_arena;
struct gnv_arena_chunk;

struct gnv_block {
	void *cpu;
	uint64_t lane;
	uint64_t iova; /* a multiple of the arena's page */
	size_t len;    /* whole pages */
	struct gnv_arena_chunk *chunk;
};

/* @page: a power of two of at least 4096. Memory is taken with the first block. Return: 0, -ENOMEM. */
int gnv_arena_create(struct gnv_space *space, size_t page, const struct gnv_log *log, struct gnv_arena **arena);

/* Unmap and give back everything; the device makes no DMA any more. What cannot be unmapped is leaked, and the log says so. */
void gnv_arena_destroy(struct gnv_arena *arena);

/*
 * gnv_arena_lend() - take from this memory first, as long as there is room
 * @mem: at least 2 MiB, reached by CPU and lanes; the arena's from now on when this succeeds
 * Return: 0; -EINVAL too small; what the map of the space answers.
 */
int gnv_arena_lend(struct gnv_arena *arena, struct gpunvme_mem *mem);

/*
 * gnv_arena_alloc() - zeroed memory of at least @len bytes
 * Return: 0; what the map of the space answers; -ENOMEM; -EOPNOTSUPP the space cannot align to the page.
 */
int gnv_arena_alloc(struct gnv_arena *arena, size_t len, struct gnv_block *block);

/* The device does not use it any more. A zeroed block is ignored; the block is zeroed. */
void gnv_arena_free(struct gnv_arena *arena, struct gnv_block *block);

#endif
