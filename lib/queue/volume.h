/* SPDX-License-Identifier: MIT */
/* A volume, and what other rooms ask of it. */
#ifndef GNV_QUEUE_VOLUME_H
#define GNV_QUEUE_VOLUME_H

#include <gpunvme/volume.h>
#include <stdbool.h>

#include "queue/qp.h"
#include "queue/tables.h"

struct gpunvme_volume {
	struct gpunvme_gpu *gpu;
	uint32_t members;
	uint32_t queues; /* of each member */
	uint32_t stripe; /* blocks */
	uint32_t lba_size;
	uint64_t nblocks;
	bool read_only;
	struct gpunvme_dev *dev[GPUNVME_VOLUME_MAX];
	struct gpunvme_qp **qp; /* queue q of member m is q * members + m */
	struct gnv_tables tables;
};

static inline uint32_t gnv_volume_qps(const struct gpunvme_volume *vol)
{
	return vol->members * vol->queues;
}

/* Its controllers, in the order of the stripes: room for GPUNVME_VOLUME_MAX. Return: how many. */
uint32_t gnv_volume_devs(const struct gpunvme_volume *vol, struct gpunvme_dev **dev);

/* Can one of them not be written? */
bool gnv_volume_read_only(const struct gpunvme_volume *vol);

#endif
