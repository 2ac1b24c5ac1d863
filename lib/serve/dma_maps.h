/* SPDX-License-Identifier: MIT */
/*
 * Memory of a client that the controller may access, by DMA_MAP and DMA_UNMAP. One thread calls this.
 *
 * Invariant: memory is unmapped from this process only when no command, queue or request of the kernel accesses it any more.
 */
#ifndef GNV_SERVE_DMA_MAPS_H
#define GNV_SERVE_DMA_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "mem/space.h"
#include "os/linux/shared.h"
#include "soft/soft.h"

#define GNV_DMA_MAPS 1024u /* at one time: reported as max_dma_maps */

struct gnv_dma_map {
	uint64_t iova, len;
	struct gnv_shared memory; /* NULL pointers: known, and not reached */
};

struct gnv_dma_maps {
	struct gnv_space *space;
	struct gnv_soft *soft;
	const struct gnv_log *log;
	unsigned count;
	struct gnv_dma_map map[GNV_DMA_MAPS];
};

/*
 * gnv_dma_maps_add() - map a region of the client's address space
 * @fd: its memory, which belongs to the caller, or -1: the client has given none (a ROM, a hole), and DMA there fails
 * Return: 0; -EINVAL, -EEXIST, -ENOSPC; errors of gnv_shared_map(); gnv_fail() has the message.
 */
int gnv_dma_maps_add(struct gnv_dma_maps *maps, uint64_t iova, uint64_t len, int fd, uint64_t offset);

/*
 * gnv_dma_maps_remove() - unmap all regions in a range, after commands under way
 * A queue in that memory ends with a reset of the controller.
 * Return: 0; -ENOENT there is none; -EINVAL one is only partly in the range; -EBUSY I/O is stuck, and it may be called again;
 * gnv_fail() has the message.
 */
int gnv_dma_maps_remove(struct gnv_dma_maps *maps, uint64_t iova, uint64_t len);

/* Unmap the rest after the controller has ended. Here and above, memory that a GPU keeps is leaked. */
void gnv_dma_maps_end(struct gnv_dma_maps *maps);

#endif
