/* SPDX-License-Identifier: MIT */
/* The self-test of a new queue pair: does data that threads read land where it should, and do they see it? */
#ifndef GNV_QUEUE_SELFTEST_H
#define GNV_QUEUE_SELFTEST_H

#include "queue/qp.h"

/* Its two buffers, and the data that threads saw in each. Zeroed before the first call. */
struct gnv_selftest {
	struct gpunvme_mem *mem[2];
	uint32_t *seen[2];
};

/*
 * gnv_selftest_run() - read the first block of the default namespace twice and compare
 * Skipped, with a line in the log, where there is no such namespace. Never writes media.
 * Return: 0; -EIO; -ETIMEDOUT; -ENOMEM; or a positive NVMe status. After a failure the controller may still have a command for the
 * buffers: the caller deletes the queue before gnv_selftest_fini().
 */
int gnv_selftest_run(struct gnv_selftest *test, struct gnv_qp *qp);

/*
 * gnv_selftest_memory() - the same with memory that is mapped already, test->mem[1], and up to @most bytes. It is zeroed again
 * Return: as above.
 */
int gnv_selftest_memory(struct gnv_selftest *test, struct gnv_qp *qp, size_t most);

void gnv_selftest_fini(struct gnv_selftest *test);

#endif
