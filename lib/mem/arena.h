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
	void *cpu; /* NULL where the CPU cannot reach it */
	uint64_t lane; /* for the threads of the GPU it was asked for, else 0 */
	uint64_t iova; /* a multiple of the arena's page */
	size_t len;    /* whole pages */
	struct gnv_arena_chunk *chunk;
	struct gpunvme_gpu *gpu; /* the GPU that sees it, or NULL */
};

/*
 * @page: a power of two of at least 4096
 * @source: the GPU whose memory to take, for its own threads. NULL: take memory of the host
 * Memory is taken with the first block. Return: 0, -ENOMEM.
 */
int gnv_arena_create(struct gnv_space *space, size_t page, struct gpunvme_gpu *source, const struct gnv_log *log,
		     struct gnv_arena **arena);

/*
 * gnv_arena_over() - the same with one memory that the device accesses at @iova without a mapping, as it accesses its own
* When it is used up a request returns -ENOSPC, whatever its size. @mem: the arena's when this succeeds.
 * Return: 0, -ENOMEM.
 */
int gnv_arena_over(struct gpunvme_mem *mem, uint64_t iova, size_t page, const struct gnv_log *log, struct gnv_arena **arena);

/* gnv_mem_fence_off() of all its memory. Any thread. */
int gnv_arena_fence_off(struct gnv_arena *arena, bool reset);

/*
 * Unmap and free everything. The device makes no DMA any more. Memory that cannot be unmapped, or that a GPU keeps, is leaked, and
 * the log says so. Return: 0; -EBUSY a GPU keeps memory: the device in which it lies must stay open until the process ends.
 */
int gnv_arena_destroy(struct gnv_arena *arena);

/*
 * gnv_arena_lend() - take from this memory first, as long as there is room
 * @mem: at least 2 MiB, accessible to the CPU and to threads. The arena owns it when this succeeds
 * @lost: called when the memory is taken away, on any thread. Later blocks are not taken from it
* Return: 0; -EINVAL too small; errors of the space's map.
 */
int gnv_arena_lend(struct gnv_arena *arena, struct gpunvme_mem *mem, void (*lost)(void *ctx), void *ctx);

/*
 * gnv_arena_alloc() - zeroed memory of at least @len bytes
 * @gpu: its threads use the block. NULL: only the host does
* Return: 0; errors of the space's map or of the GPU; -ENOMEM; -EOPNOTSUPP the space cannot align to the page.
 */
int gnv_arena_alloc(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block);

/* The same, but never of lent memory: the host signals threads whose queue is lost through these words. */
int gnv_arena_alloc_own(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block);

/* Free a block that the device no longer uses. A zeroed block is ignored. The block is zeroed. */
void gnv_arena_free(struct gnv_arena *arena, struct gnv_block *block);

/* A thread of block->gpu may still use it. Its pages are never freed, not even by gnv_arena_destroy(). The block is zeroed. */
void gnv_arena_keep(struct gnv_arena *arena, struct gnv_block *block);

#endif
