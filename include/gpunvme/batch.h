/* SPDX-License-Identifier: MIT */
/*
 * Commands of any kind by lanes, for programs without a kernel of their own: the library's kernel takes each lane through a list,
 * on any kind of lanes, and each command gets the status that its lane was told.
 */
#ifndef GPUNVME_BATCH_H
#define GPUNVME_BATCH_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_batch_cmd {
	uint64_t lba;     /* first block, in the view */
	uint64_t offset;  /* its data, or the 16 bytes of a deallocation, in the buffer */
	uint32_t nblocks; /* any number: split as gpunvme_read() does; 0 of a flush */
	uint32_t op;      /* GPUNVME_IO_READ, _WRITE (with GPUNVME_RW_FUA), _FLUSH, _WRITE_ZEROES or _DSM, which deallocates */
	uint32_t queue;   /* by which view */
	int32_t status;   /* set: what the function of <gpunvme/device.h> answered; -GPUNVME_EAGAIN its lane did not come to it */
};

struct gpunvme_batch {
	size_t size;    /* sizeof(struct gpunvme_batch) */
	uint32_t lanes; /* 1 to 65536 */
	uint32_t each;  /* commands of each lane, one after another; lanes * each: at most 16 million */
	struct gpunvme_batch_cmd *cmd; /* the caller's: lane n has those from n * each on */
};
#define GPUNVME_BATCH_INIT { sizeof(struct gpunvme_batch), 0, 0, NULL }

/**
 * gpunvme_batch_run() - carry out commands with lanes of the library's own, and wait
 * @gpu:    the lanes; those that the queues were created for
 * @dq:     views of the queues
 * @queues: how many
 * @dbuf:   the buffer of all commands; the parts that different lanes have do not overlap
 * @batch:  the commands, and what came of them
 *
 * A lane goes on after an NVMe status, and after a command that is refused before the queue has it; it ends with the first one that
 * ended with its queue or was given up. Any thread may call it, several at a time; an AMD GPU has them one after another. It ends
 * at the latest when its queues have moved nothing for the longest of their command time-outs and ten seconds, or more for long
 * lists.
 * Return: 0 each command has its status, good or bad; -EINVAL no queue, no command, too many, an unknown operation, a queue that is
 * none; -EPROTONOSUPPORT a view of another version; -EXDEV a queue or the buffer is another GPU's; -ENOMEM no memory, or no
 * threads; -ETIMEDOUT the GPU does not end its kernel, and lanes may use queues and buffer yet; -EIO the GPU failed. Where it is
 * not 0 no status was set.
 */
GPUNVME_API int gpunvme_batch_run(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				  const struct gpunvme_dbuf *dbuf, struct gpunvme_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
