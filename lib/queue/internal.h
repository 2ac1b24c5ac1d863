/* SPDX-License-Identifier: MIT */
/*
 * The one queue pair that a device keeps for the library itself: one CPU thread at a time reads and writes by it, through a buffer.
 * It is made on first use, goes on after resets as others do, makes way for a program that needs the last queue, and is given back
 * when the device is closed.
 */
#ifndef GNV_QUEUE_INTERNAL_H
#define GNV_QUEUE_INTERNAL_H

#include <gpunvme/dq.h>
#include <gpunvme/ns.h>
#include <stdbool.h>

#define GNV_INTERNAL_BYTES 65536u /* of the buffer: the largest block of a namespace, so whole blocks of each */

struct gnv_qp;

/* A thread has it between begin and end. */
struct gnv_internal {
	struct gpunvme_gpu *gpu;
	struct gpunvme_dq dq; /* of all of the namespace */
	struct gpunvme_dbuf dbuf;
	void *buf; /* GNV_INTERNAL_BYTES, for the CPU */
};

/* A namespace, and how often the blocks of namespaces had changed when it was asked for (a Format, for example). */
struct gnv_internal_ns {
	struct gpunvme_ns_info info;
	uint64_t changes;
};

/* Return: as gpunvme_ns_get_info(). */
int gnv_internal_ask(struct gpunvme_dev *dev, uint32_t nsid, struct gnv_internal_ns *ns);

/*
 * gnv_internal_begin() - wait for the queue, which is the caller's until gnv_internal_end()
 * @ns: as gnv_internal_ask() filled it
 * Return: 0; -ESTALE the namespace may have other blocks than it had then; -EROFS, with @write, it cannot be written; -ENOSPC a
 * program has all queues; as gpunvme_queue_create() and gpunvme_mem_map(). On failure there is nothing to end.
 */
int gnv_internal_begin(struct gpunvme_dev *dev, const struct gnv_internal_ns *ns, bool write, struct gnv_internal *q);

/* A queue that a failure has ended goes: the controller has let go of the buffer, or keeps both until the device is closed. */
void gnv_internal_end(struct gpunvme_dev *dev);

/*
 * Give its queue identifier to a queue that finds none, unless a thread uses it, or it is @but. With queues_lock held.
 * Return: true when one became free.
 */
bool gnv_internal_yield(struct gpunvme_dev *dev, const struct gnv_qp *but);

/* The device is being closed. */
void gnv_internal_close(struct gpunvme_dev *dev);

#endif
