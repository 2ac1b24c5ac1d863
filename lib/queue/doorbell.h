/* SPDX-License-Identifier: MIT */
/* The doorbells of a controller, and of one queue for its threads. */
#ifndef GNV_QUEUE_DOORBELL_H
#define GNV_QUEUE_DOORBELL_H

#include <stdbool.h>

#include "dev/dev.h"

/*
 * gnv_doorbells_open() - set qp->sq_db and qp->cq_db, where threads ring for a queue that exists on the controller
 * BAR0 itself if threads reach it. Otherwise, or with GPUNVME_QUEUE_FORWARD, words that the forwarder copies.
 * Return: 0; what the GPU's mmio_attach returns, but not -EOPNOTSUPP; -ENOMEM, -EAGAIN.
 */
int gnv_doorbells_open(struct gnv_qp *qp);

/* No thread rings any more. A queue that was not opened is ignored. */
void gnv_doorbells_close(struct gnv_qp *qp);

/*
 * Is it open by a mapping of BAR0 that has to be tested (queue/probe.h, queue/ringtest.h) before threads of the GPU use it?
 * @way: set to how it was made, if it is
 */
bool gnv_doorbells_doubtful(struct gnv_qp *qp, unsigned *way);

/* Record the result of the test. After a failure the doorbells of the queue are closed, and later queues map them another way. */
void gnv_doorbells_judge(struct gnv_qp *qp, bool works);

#endif
