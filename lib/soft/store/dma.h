/* SPDX-License-Identifier: MIT */
/*
 * Access to host memory: IOVAs through the software space, data pointers into lists of segments (Base Specification 4.1).
 *
 * Each worker has one struct gnv_soft_dma, which its lock guards. It counts references to a mapping locally and holds one in the
 * space while its count is not zero, so a command in flight costs no shared atomic. Commands that end at once leave no reference,
 * so each pass of the worker keeps its own reference to the first mappings that it uses.
 */
#ifndef GNV_SOFT_DMA_H
#define GNV_SOFT_DMA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <gpunvme/spec.h>

#include "mem/space_soft.h"
#include "soft/core/data.h"

struct gnv_soft_dma_entry {
	const struct gnv_soft_map *map; /* valid while refs > 0 */
	uint32_t refs;
};

#define GNV_SOFT_KEPT 8u

struct gnv_soft_dma {
	struct gnv_space *space;
	const struct gnv_soft_io *io;
	const struct gnv_log *log;
	bool lost_said; /* once, that data did not reach its buffer */
	unsigned last; /* slot that was found last */
	bool passing;  /* between gnv_soft_dma_begin_pass() and _end_pass() */
	unsigned kept_count;
	uint16_t kept[GNV_SOFT_KEPT]; /* slots to which this pass has a reference */
	struct gnv_soft_dma_entry entry[GNV_SOFT_SPACE_SLOTS];
};

/*
 * A scatter list: pieces of host memory in order, neighbours merged. It holds a reference per segment until cleared.
 * Room for a few is built in, because a buffer is contiguous and its pages merge. A scattered transfer allocates.
 */
#define GNV_SOFT_SEGS 16u
struct gnv_soft_segs {
	struct iovec *iov;
	uint16_t *slot; /* of each segment's mapping */
	unsigned count, cap;
	bool far; /* some lie in memory of a device: no I/O to them, only segs_read and segs_write */
	struct iovec iov_in[GNV_SOFT_SEGS];
	uint16_t slot_in[GNV_SOFT_SEGS];
};

/* May the mapping be reached? */
static inline bool gnv_soft_dma_open(const struct gnv_soft_dma *dma, const struct gnv_soft_map *map)
{
	return !map->inside || map->iova == dma->io->cmb_base;
}

/* Take a reference. Return: 0, -EFAULT. */
int gnv_soft_dma_get(struct gnv_soft_dma *dma, uint64_t iova, size_t len, char **cpu, unsigned *slot);
void gnv_soft_dma_put(struct gnv_soft_dma *dma, unsigned slot);

/* Begin and end a pass of a thread over all of its queues, under its lock: some references are kept until the end. */
void gnv_soft_dma_begin_pass(struct gnv_soft_dma *dma);
void gnv_soft_dma_end_pass(struct gnv_soft_dma *dma);

void gnv_soft_segs_init(struct gnv_soft_segs *segs);

/* Copy between a scatter list and private memory. The list must cover @len. Return: 0, or an NVMe status. */
uint16_t gnv_soft_segs_write(const struct gnv_soft_dma *dma, const struct gnv_soft_segs *segs, const void *from, size_t len);
uint16_t gnv_soft_segs_read(const struct gnv_soft_dma *dma, const struct gnv_soft_segs *segs, void *to, size_t len);

#endif
