/* SPDX-License-Identifier: MIT */
/*
 * I/O queues as their device knows them. A queue registers the operations for all queues of a device: lib/dev and lib/dma act on
 * queues by these functions alone.
 */
#ifndef GNV_DEV_QUEUES_H
#define GNV_DEV_QUEUES_H

#include <stdbool.h>
#include <stdint.h>

struct gpunvme_dev;
struct gpunvme_gpu;
struct gnv_dev_queue;

struct gnv_queue_ops {
	/* Threads must not wait for completions that will never come: it ends with this GPUNVME_E*. Any thread. */
	void (*end)(struct gnv_dev_queue *q, uint32_t cause);

	/* Before a reset: late doorbells do not reach the controller. With queues_lock held, as the next three. */
	void (*silence)(struct gnv_dev_queue *q);
	/* In a reset: the controller knows of no queue any more. The queue may be freed here. */
	void (*forget)(struct gnv_dev_queue *q);
	/* After a reset: go on with new rings. Return: 0, also if it is not to go on. Negative: it stays as it is, over. */
	int (*renew)(struct gnv_dev_queue *q);
	/* A round of the watchdog, one every @grace_ns. @now: gnv_clock_ns(). */
	void (*watch)(struct gnv_dev_queue *q, uint64_t now, uint64_t grace_ns);

	/* Note the position of the next command. With dev->lock held, as the next two. */
	void (*mark)(struct gnv_dev_queue *q);
	/* Return: its id if the controller may have a command from before the mark. Otherwise 0. */
	uint32_t (*before_mark)(const struct gnv_dev_queue *q);
	/*
	 * Return: its id if the controller may have a command that it has not completed. Otherwise 0. @well: also for a queue that
	 * goes on. Otherwise only for one that has ended, which @over says.
	 */
	uint32_t (*busy)(const struct gnv_dev_queue *q, bool well, bool *over);
	/* May threads of this GPU write through it, and nobody said that gpunvme_gpu_fence() comes before? */
	bool (*unfenced)(const struct gnv_dev_queue *q, const struct gpunvme_gpu *gpu);
};

/* The first part of a queue. */
struct gnv_dev_queue {
	struct gnv_dev_queue *next; /* of the device, under its lock */
	const struct gnv_queue_ops *ops;
};

/* Every queue of the device ends. Any thread. */
void gnv_queues_end(struct gpunvme_dev *dev, uint32_t cause);

/*
 * Id of the first queue with commands that the controller did not complete and that may reach memory which is unmapped now, or 0.
 * With an IOMMU only a queue that has ended counts, because threads wait for the commands of the others. @well: those count, too.
 * @over: it is a queue that has ended.
 */
uint32_t gnv_queues_busy(struct gpunvme_dev *dev, bool well, bool *over);

/* Is any queue of that GPU so? With dev->lock held. */
bool gnv_queues_unfenced(const struct gpunvme_dev *dev, const struct gpunvme_gpu *gpu);

/* Mark all queues. Id of the first with commands from before the marks, or 0. With dev->lock held. */
void gnv_queues_mark(struct gpunvme_dev *dev);
uint32_t gnv_queues_before_mark(const struct gpunvme_dev *dev);

#endif
