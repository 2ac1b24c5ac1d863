/* SPDX-License-Identifier: MIT */
/*
 * An open controller, as the parts of lib/nvme share it.
 *
 * Locks, in the order they are taken: a memory's lock, dev->lock, then those inside the arena and the space. No lock is held over
 * an admin command but the admin queue's own.
 */
#ifndef GNV_NVME_DEV_H
#define GNV_NVME_DEV_H

#include <gpunvme/gpunvme.h>

#include "mem/arena.h"
#include "nvme/admin.h"
#include "nvme/ctrl.h"
#include "port/port.h"
#include "util/log.h"

struct gnv_soft;

struct gpunvme_dev {
	struct gnv_log log;
	struct gnv_port *port;
	struct gnv_ctrl ctrl;
	struct gnv_arena *arena;
	struct gnv_admin admin;
	struct gpunvme_dev_info info; /* constant once open */

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

/* The software controller behind a soft: device, for tests and benchmarks; NULL for others. */
struct gnv_soft *gnv_dev_soft(struct gpunvme_dev *dev);

#endif
