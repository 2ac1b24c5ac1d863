/* SPDX-License-Identifier: MIT */
/* A queue of a user: queue pairs of one device, or of several that are one volume. Functions for other folders. */
#ifndef GNV_QUEUE_QUEUE_H
#define GNV_QUEUE_QUEUE_H

#include <gpunvme/queue.h>
#include <stdbool.h>

#include "queue/qp.h"
#include "queue/tables.h"

/* The blocks of a queue. */
struct gnv_blocks {
	uint32_t lba_size; /* bytes */
	uint32_t stripe;   /* blocks */
	uint64_t nblocks;
	bool read_only; /* of one device at least */
};

struct gnv_completions;

struct gpunvme_queue {
	struct gpunvme_gpu *gpu;
	uint32_t devices;
	uint32_t queues; /* of each device */
	uint32_t stripe; /* as it was asked for */
	bool local; /* all rings lie in the GPU's memory: data goes there, too */
	bool by_fd; /* a controller of it is in another process: memory of the host needs a descriptor */
	uint32_t left;   /* pairs, and calls that destroy it: the last one drops it (atomic) */
	struct gnv_blocks striped; /* over several devices, when it was created */
	struct gpunvme_dev *dev[GPUNVME_QUEUE_DEVICES];
	struct gnv_qp **qp; /* pair q of device m is q * devices + m. NULL: it is gone */
	struct gnv_tables tables;
	struct gnv_completions *completions; /* its completion thread (run/completions.h), or NULL */
};

static inline uint32_t gnv_queue_pairs(const struct gpunvme_queue *queue)
{
	return queue->devices * queue->queues;
}

/*
 * gnv_queue_blocks() - get the blocks of the default namespaces of its devices
 * Return: 0; as gpunvme_ns_get_info().
 */
int gnv_queue_blocks(const struct gpunvme_queue *queue, struct gnv_blocks *blocks);

/* Return: 0; -ESHUTDOWN: a device of it was closed. */
int gnv_queue_check(const struct gpunvme_queue *queue);

/* A pair of it is released. Where that is because its device is closed, the queue goes with the last. */
void gnv_queue_lose(struct gpunvme_queue *queue, const struct gnv_qp *qp);

/* A pair of it goes on with other rings. With queues_lock held. */
void gnv_queue_renewed(struct gpunvme_queue *queue);

/* From now on no thread of the library uses a view of it. */
void gnv_queue_quiet(struct gpunvme_queue *queue);

/* Drop tables of views in which a pair is that was recovered since. */
void gnv_queue_drop_views(struct gpunvme_queue *queue);

#endif
