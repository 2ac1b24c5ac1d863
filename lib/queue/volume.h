/* SPDX-License-Identifier: MIT */
/* What other rooms ask of a volume. */
#ifndef GNV_QUEUE_VOLUME_H
#define GNV_QUEUE_VOLUME_H

#include <gpunvme/volume.h>
#include <stdbool.h>

/* Its controllers, in the order of the stripes: room for GPUNVME_VOLUME_MAX. Return: how many. */
uint32_t gnv_volume_devs(const struct gpunvme_volume *vol, struct gpunvme_dev **dev);

/* Can one of them not be written? */
bool gnv_volume_read_only(const struct gpunvme_volume *vol);

#endif
