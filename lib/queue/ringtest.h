/* SPDX-License-Identifier: MIT */
/*
 * Do doorbells that threads ring arrive, and soon? A controller does not let its doorbells be read, so the test sends commands: the
 * CPU writes a read of one block, makes a thread that waits on an otherwise idle GPU ring, and sees the completion itself. A store
 * that stays in a cache of the GPU is late, or never comes. The CPU rings for as many reads, and the 99th percentiles of both are
 * compared. A thread that stands still has not rung, so that ring is waited for and does not count.
 * Invariant: reads only.
 */
#ifndef GNV_QUEUE_RINGTEST_H
#define GNV_QUEUE_RINGTEST_H

#include "queue/qp.h"

/*
 * The number of doorbells, the limit by which the 99th percentile of the thread's may exceed that of the CPU's, and the time that a
 * doorbell may take. Kept in the device, so that tests may change them.
 */
#define GNV_RINGTEST_RINGS 1000u
#define GNV_RINGTEST_LATE_NS 1000000u
#define GNV_RINGTEST_LOST_NS 100000000u

/* Its memory. Zeroed before the first call. */
struct gnv_ringtest {
	struct gnv_block data, list, go;
};

/*
 * gnv_ringtest_run() - test a queue that exists on the controller and that nothing has used
 * Afterwards the queue is of no use: its rings have moved on.
 * Return: 0 they were seen in time; -EAGAIN they were late; -EBUSY the thread stood still for seconds; -ETIMEDOUT
 * one was not seen, but when the CPU rang it; -EIO nor was it then, so that it is not the doorbell, or the thread did not run;
 * -EPROTO another command was completed; -ENOENT no namespace to read; other negative errnos are no result. gnv_fail() has the
 * message. The controller may still have a command for the memory: the caller deletes the queue before gnv_ringtest_fini().
 */
int gnv_ringtest_run(struct gnv_ringtest *test, struct gnv_qp *qp);
/*
 * gnv_ringtest_one() - send such a queue one command, for which @ring rings
 * @ring: stores 1 to the doorbell of the submission queue. Return: 0. A negative errno with its error message is passed on.
 * Return: as gnv_ringtest_run(), but not -EAGAIN and -EBUSY; errors of @ring.
 */
int gnv_ringtest_one(struct gnv_ringtest *test, struct gnv_qp *qp, int (*ring)(void *ctx), void *ctx);
void gnv_ringtest_fini(struct gnv_ringtest *test, struct gnv_qp *qp);

#endif
