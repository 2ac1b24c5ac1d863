/* SPDX-License-Identifier: MIT */
/*
 * The NVMe controller of a vfio-user server: the check that it is one, its registers, its configuration space.
 */
#ifndef GNV_PORT_USER_DEVICE_H
#define GNV_PORT_USER_DEVICE_H

#include "mem/mem.h"
#include "port/user_link.h"

struct gnv_user_device {
	struct gnv_user_link link;
	struct gpunvme_mem bar0; /* from its beginning to the last doorbell that can be mapped */
	bool can_reset;
	uint16_t vendor, device;
};

/*
 * gnv_user_open() - greet the server of a link, and map BAR0 as far as it offers that
 * @unsealed: also where the server can cut it off
 * Return: 0; -ENODEV it has no NVMe controller, or has hung up; -EPERM it could end this process; -EIO it refuses something;
 * -ETIMEDOUT, -EPROTO; -EOPNOTSUPP, -ENOMEM, -EINVAL; gnv_fail() has the message, and the link still belongs to the caller.
 */
int gnv_user_open(struct gnv_user_device *device, bool unsealed);
void gnv_user_close(struct gnv_user_device *device);

/* Interrupts stay masked, because the library polls. Return: 0; -EIO, -ENODEV, -ETIMEDOUT, -EPROTO. */
int gnv_user_command(struct gnv_user_device *device, bool master);

#endif
