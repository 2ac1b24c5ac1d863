/* SPDX-License-Identifier: MIT */
/*
 * An open device: a controller (nvme/nvme.h), the queues and mappings that use it, and its watchers. life/dev_life.c opens and
 * closes it.
 *
 * Locks, in the order they are taken: that of the internal queue, queues_lock, a memory's lock, dev->lock, then those inside the
 * arena and the space. Over an admin command only the first two are held, and async.lock, nvme.settings.lock and the admin queue's
 * own, which are taken in this order.
 */
#ifndef GNV_DEV_DEV_H
#define GNV_DEV_DEV_H

#include "dev/async.h"
#include "dev/events.h"
#include "dev/queues.h"
#include "nvme/forward.h"
#include "nvme/nvme.h"

struct gnv_mem_cache;
struct gnv_mapping;
struct gnv_placement;
struct gnv_soft;
struct gnv_watchdog;

/* Calls of lib/dev and lib/dma to folders above them. Set when a device is opened. */
struct gnv_dev_hooks {
	/* After a reset: PRP lists that lie in the controller's memory are written again. */
	void (*refill)(struct gpunvme_dev *dev);
	/* Return: 0, the controller reads lists in its own memory as it should; as gpunvme_mem_map(). */
	int (*prove_lists)(struct gpunvme_dev *dev);
};

/* The queue that a device keeps for the library itself (queue/internal.h), with its GPU and buffer. */
struct gnv_dev_internal {
	pthread_mutex_t lock; /* protects the fields below. Held while the queue is used, outside queues_lock */
	struct gpunvme_gpu *gpu;
	struct gnv_qp *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	uint64_t changes; /* admin commands after which namespaces may have other blocks (atomic) */
};

struct gpunvme_dev {
	uint64_t process; /* that opened it (util/process.h) */
	uint32_t number;  /* of the device in this process, never 0 */
	struct gnv_nvme nvme;
	const struct gnv_dev_hooks *hooks;
	struct gnv_forward forward;
	struct gnv_events events;
	struct gnv_async async;
	struct gnv_watchdog *watchdog; /* NULL: there is none */
	struct {
		uint32_t rings;	  /* doorbells of one test (queue/ringtest.h) */
		uint64_t late_ns; /* a doorbell that the GPU rings and that is seen after this is late */
		uint64_t lost_ns; /* and lost after this */
	} ringtest;
	struct {
		unsigned open_ms, step_ms; /* of the helper program (gpu/probe.h) */
		unsigned count;
		struct gnv_dev_probed {
			char gpu[24]; /* gpunvme_gpu.spec */
			unsigned way;
			bool works;
		} of[16];
	} probed; /* by queue/probe.c. Under queues_lock */
	struct gnv_dev_internal internal;
	pthread_mutex_t queues_lock; /* held while a queue is created, destroyed or recovered. Outside all but that of internal */
	bool closing;		     /* nothing is begun any more. Under queues_lock */
	bool unstoppable;	     /* closing it has failed: its DMA may never end (atomic) */
	pthread_mutex_t lock;	     /* protects queues, and maps and late of dma */
	struct {
		struct gnv_dev_queue *first; /* alive, and those whose deletion failed */
		uint64_t *ids;		     /* one bit per queue id, set while used. Bit 0 is the admin queue */
		uint16_t incarnation;	     /* of the queue created last */
	} queues;
	struct {
		struct gnv_mem_cache *cache;    /* of mappings by gpunvme_mem_get() */
		unsigned cmb_given;	    /* memories of users that lie in the controller (atomic) */
		pthread_mutex_t place_lock; /* protects places. Taken before those inside arenas and spaces */
		struct gnv_placement *places;   /* of GPUs */
		struct gnv_mapping *maps;
		struct {
			struct gnv_mapping *marked, *fresh;
		} late; /* PRP lists that commands in flight may need (dma/deferred_free.h) */
	} dma;
};

/* The whole pages of BAR0 with the doorbells of every queue. */
void gnv_dev_doorbells(const struct gpunvme_dev *dev, size_t *offset, size_t *len);

/* Get the software controller of a soft: device, for tests and benchmarks. NULL for others. */
struct gnv_soft *gnv_dev_soft(struct gpunvme_dev *dev);

/* One number for devices in their order, which views of them have. It is never 0. */
static inline uint64_t gnv_dev_numbers(struct gpunvme_dev *const *dev, uint32_t count)
{
	uint64_t numbers = count;
	uint32_t m;

	for (m = 0; m < count; m++)
		numbers = (numbers ^ dev[m]->number) * 0x100000001b3ull;
	return numbers ? numbers : 1;
}

#endif
