/* SPDX-License-Identifier: MIT */
/* The life of a device, from open to close: of its controller, queues, mappings and threads. */
#ifndef GNV_LIFE_LIFE_H
#define GNV_LIFE_LIFE_H

#include "dev/dev.h"

/*
 * gnv_dev_create() - a device over a port
 * @port: the device's from now on, also when this fails
 * @opts: complete (the caller's are merged with the defaults)
 * Return: as gpunvme_dev_open().
 */
int gnv_dev_create(struct gnv_port *port, const struct gpunvme_dev_opts *opts, uint32_t default_ns, struct gpunvme_dev **dev);

/* Rings and PRP tables come from this memory first. When it is taken away the queues end. Return: as gnv_arena_lend(). */
int gnv_dev_lend(struct gpunvme_dev *dev, struct gpunvme_mem *mem);

#endif
