/* SPDX-License-Identifier: MIT */
/* A controller that is made anew: by its registers, and where that is not enough by the function reset of the bus. */
#ifndef GNV_NVME_RESET_H
#define GNV_NVME_RESET_H

#include "nvme/nvme.h"

/*
 * gnv_reset() - from whatever state to an empty admin queue, the number of queues and the features as before
 * @let_go: called once, as soon as the controller has let go of all I/O queues; perhaps never when this fails. NULL: it is being
 *          opened, and the caller sets queues and features itself
 * Return: 0; -ENODEV it is gone; else what the gentler way failed of. gnv_fail() has a sentence of both.
 */
int gnv_reset(struct gnv_nvme *nvme, void (*let_go)(void *ctx), void *ctx);

#endif
