/* SPDX-License-Identifier: MIT */
/* Reset of a controller: by its registers, and if that fails by the function reset of the bus. */
#ifndef GNV_NVME_RESET_H
#define GNV_NVME_RESET_H

#include "nvme/nvme.h"

/*
 * gnv_reset() - from any state to an empty admin queue, with the number of queues and the features as before
 * @let_go: called once, as soon as the controller has let go of all I/O queues. It may not be called if this fails. NULL: it is
 * being opened, and the caller sets queues and features itself
 * Return: 0; -ENODEV it is gone; else the error of the gentler way. The error message has both.
 */
int gnv_reset(struct gnv_nvme *nvme, void (*let_go)(void *ctx), void *ctx);

#endif
