/* SPDX-License-Identifier: MIT */
/* Copies by lanes, for programs without a kernel of their own: the library's kernel moves blocks, on any kind of lanes. */
#ifndef GPUNVME_COPY_H
#define GPUNVME_COPY_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpunvme_copy_flags {
	GPUNVME_COPY_WRITE = 1u << 0, /* from the buffer to the blocks; else from the blocks to the buffer */
	GPUNVME_COPY_FLUSH = 1u << 1, /* moves nothing: makes completed writes of the first view durable */
	GPUNVME_COPY_FUA = 1u << 2,   /* with _WRITE: the blocks are on the media when it ends */
};

struct gpunvme_copy {
	size_t size;       /* sizeof(struct gpunvme_copy) */
	uint32_t flags;    /* enum gpunvme_copy_flags; an unknown bit is an error */
	uint32_t lanes;    /* at most 65536; 0: 64 for each queue */
	uint32_t step;     /* blocks that a lane moves with one call; 0: what one command of the first view carries, at most 256 KiB, and
			    * a write that the drive makes whole (gpunvme_dq, atomic) as one */
	uint32_t reserved; /* 0 */
	uint64_t lba;      /* first block, in the views */
	uint64_t nblocks;  /* goes to, or comes from, the first bytes of the buffer */
	/* Set when a transfer failed: the first that did, in LBA order; 0 blocks: nothing was moved, or a flush failed. */
	uint64_t failed_lba;
	uint32_t failed_nblocks;
	uint32_t failed_reserved;
};
#define GPUNVME_COPY_INIT { sizeof(struct gpunvme_copy), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_copy_run() - move blocks with lanes of the library's own, and wait
 * @gpu:    the lanes; those that the queues were created for
 * @dq:     views of the queues, all of the same blocks; lanes spread over them
 * @queues: how many
 * @dbuf:   the buffer
 * @copy:   what to move; says where it failed
 *
 * Any thread may call it, several at a time. It ends at the latest when its queues have moved nothing for the longest of
 * their command time-outs, and ten seconds.
 * Return: 0; the failure of the first transfer that failed, in LBA order, as the functions of <gpunvme/device.h> return it; -EINVAL
 * no queue, no block, an option, a view that is none; -EPROTONOSUPPORT a view of another version; -ERANGE the blocks do not all lie
 * in each view, or are more than the buffer holds: nothing was moved; -EXDEV a queue or the buffer is another GPU's; -ENOMEM;
 * -ETIMEDOUT also when the GPU does not end its kernel; -EIO the GPU failed.
 */
GPUNVME_API int gpunvme_copy_run(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				 const struct gpunvme_dbuf *dbuf, struct gpunvme_copy *copy);

#ifdef __cplusplus
}
#endif
#endif
