/* SPDX-License-Identifier: MIT */
/*
 * An open controller, as the parts of lib/nvme share it.
 *
 * Locks, in the order they are taken: queues_lock, a memory's lock, dev->lock, then those inside the arena and the space. Over an
 * admin command only queues_lock is held, and the admin queue's own.
 */
#ifndef GNV_NVME_DEV_H
#define GNV_NVME_DEV_H

#include <gpunvme/gpunvme.h>

#include "mem/arena.h"
#include "nvme/admin.h"
#include "nvme/ctrl.h"
#include "nvme/forward.h"
#include "nvme/watchdog.h"
#include "port/port.h"
#include "util/log.h"

struct gnv_place;
struct gnv_soft;

struct gpunvme_dev {
	struct gnv_log log;
	struct gnv_port *port;
	struct gnv_ctrl ctrl;
	struct gnv_arena *arena;
	struct gnv_admin admin;
	struct gnv_forward forward;
	struct gnv_watchdog watchdog;
	struct gpunvme_dev_info info; /* constant once open */

	uint32_t rings;	       /* doorbells of a test of them (ringtest.h) */
	uint64_t ring_late_ns; /* one that lanes ring and that is seen after this is late */
	uint64_t ring_lost_ns; /* and lost after this */
	pthread_mutex_t queues_lock; /* held while a queue is created, destroyed or recovered; the outermost of all */
	pthread_mutex_t bar0_lock; /* serialises who shows BAR0 to lanes; never taken by the port's threads */
	pthread_mutex_t place_lock; /* protects places; taken before those inside arenas and spaces */
	struct gnv_place *places;  /* of GPUs */
	pthread_mutex_t lock;     /* protects all below */
	struct gpunvme_qp *qps;   /* alive, and those whose deletion failed */
	struct gnv_mapping *maps;
	uint64_t *qids;           /* one bit per queue id, set while used; bit 0 is the admin queue */
	uint16_t incarnation;     /* of the queue created last */
};

/*
 * gnv_dev_create() - a device over a port
 * @port: the device's from now on, also when this fails
 * @opts: complete (the caller's are merged with the defaults)
 * Return: as gpunvme_dev_open().
 */
int gnv_dev_create(struct gnv_port *port, const struct gpunvme_dev_opts *opts, uint32_t default_ns, struct gpunvme_dev **dev);

/* Rings and PRP tables come from this memory first. When it is taken away the queues end. Return: as gnv_arena_lend(). */
int gnv_dev_lend(struct gpunvme_dev *dev, struct gpunvme_mem *mem);

/* The software controller behind a soft: device, for tests and benchmarks; NULL for others. */
struct gnv_soft *gnv_dev_soft(struct gpunvme_dev *dev);

#endif
