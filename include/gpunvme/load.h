/* SPDX-License-Identifier: MIT */
/* A load on queues, to measure what programs get: the library's kernel issues commands of one size for some time, on any lanes. */
#ifndef GPUNVME_LOAD_H
#define GPUNVME_LOAD_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpunvme_load_flags {
	GPUNVME_LOAD_WRITE = 1u << 0,  /* writes what is in the buffer; else reads */
	GPUNVME_LOAD_RANDOM = 1u << 1, /* places at random; else in order, pass after pass */
};

struct gpunvme_load {
	size_t size;      /* sizeof(struct gpunvme_load) */
	uint32_t flags;   /* enum gpunvme_load_flags; an unknown bit is an error */
	uint32_t lanes;   /* at most 65536; each has one command in flight. 0: 64 for each queue */
	uint32_t nblocks; /* of one command; places are multiples of it */
	uint32_t ms;      /* how long lanes begin commands */
	uint64_t seed;    /* of the places at random; or the place of the first command */
	/* Results. */
	uint64_t commands;  /* that ended well */
	uint64_t took_ns;   /* from when the first lane began to when the last one ended */
	uint64_t next;      /* `seed` of a load that continues this one */
};
#define GPUNVME_LOAD_INIT { sizeof(struct gpunvme_load), 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_load_run() - issue commands for some time, with lanes of the library's own, and wait
 * @gpu:    the lanes; those that the queues were created for
 * @dq:     views of the queues, all of the same blocks; waves take turns with them
 * @queues: how many
 * @dbuf:   the buffer, of one command at least; its lanes share it where it has no place for all, so that it holds nothing useful
 * @load:   what to do, and what came of it
 *
 * Any thread may call it, several at a time. A lane stops at its first failure.
 * Return: 0; the failure of a command, as the functions of <gpunvme/device.h> return it; -EINVAL no queue, no block, an option, a
 * view that is none; -EPROTONOSUPPORT a view of another version; -ERANGE a command is larger than the view or the buffer; -EXDEV a
 * queue or the buffer is another GPU's; -ENOMEM; -ETIMEDOUT also when the GPU does not end its kernel; -EIO the GPU failed.
 */
GPUNVME_API int gpunvme_load_run(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				 const struct gpunvme_dbuf *dbuf, struct gpunvme_load *load);

#ifdef __cplusplus
}
#endif
#endif
