/* SPDX-License-Identifier: MIT */
/*
 * The address space of a controller in another process: it maps memory that has a descriptor, by sending that. Addresses are chosen
 * here, where this process has none of its own, so that a pointer used as one is refused.
 */
#ifndef GNV_MEM_SPACE_USER_H
#define GNV_MEM_SPACE_USER_H

#include "mem/space.h"

/* How requests reach the other process. Any thread. Return: as the space's map and unmap. gnv_fail() has the message. */
struct gnv_space_user_ops {
	int (*map)(void *ctx, int fd, uint64_t iova, size_t len);
	int (*unmap)(void *ctx, uint64_t iova, size_t len);
};

/* @ctx outlives the space. Return: 0, -ENOMEM. gnv_fail() has the error message. */
int gnv_space_user_create(const struct gnv_space_user_ops *tell, void *ctx, struct gnv_space **space);

#endif
