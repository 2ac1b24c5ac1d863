/* SPDX-License-Identifier: MIT */
/*
 * Recovering a queue: the controller is made to let go of its rings, by deleting it or by a reset, and the same pair goes on with
 * others under another identifier. Threads may still access the old queue (rings, state, control word, doorbell). It is kept as a
 * queue of its own in the list of the device, with `heir` set, until those threads have ended. A late doorbell write is then for a
 * queue that does not exist.
 */
#ifndef GNV_QUEUE_QP_RECOVER_H
#define GNV_QUEUE_QP_RECOVER_H

#include "queue/qp.h"

/* With queues_lock held. Return: as gpunvme_queue_recover(). */
int gnv_qp_recover(struct gnv_qp *qp);

/* No thread rings its doorbells any more, however late it comes. With queues_lock held. */
void gnv_qp_silence(struct gnv_qp *qp);

/* New rings for a queue that the controller has forgotten. On failure it stays as it is: over. With queues_lock held. */
int gnv_qp_renew(struct gnv_qp *qp);

/* As gpunvme_queue_retire(). */
void gnv_qp_retire(struct gnv_qp *qp);

/* Release the old queues that were kept for this queue, or with NULL all. With queues_lock held, or when the device is idle. */
void gnv_qp_drop_old(struct gpunvme_dev *dev, const struct gnv_qp *qp);

#endif
