/* SPDX-License-Identifier: MIT */
/*
 * Shared by stores that use io_uring: a ring for each worker thread, which only that thread uses, and the memory that is registered
 * with it. Most are slots of struct gnv_soft_store_ops.
 */
#ifndef GNV_SOFT_RING_H
#define GNV_SOFT_RING_H

#include "soft/store/store.h"

int gnv_soft_ring_explain(int error);
/* Set up the rest that is needed with the ring, which the store opens. Return: 0, -ENOMEM. */
int gnv_soft_ring_attach(struct gnv_soft_seat *seat);
void gnv_soft_ring_detach(struct gnv_soft_seat *seat);
int gnv_soft_ring_submit(struct gnv_soft_seat *seat);
unsigned gnv_soft_ring_take_back(struct gnv_soft_seat *seat, void **cmd, unsigned max);
unsigned gnv_soft_ring_reap(struct gnv_soft_seat *seat, struct gnv_uring_done *done, unsigned max);
void gnv_soft_ring_wait(struct gnv_soft_seat *seat, unsigned usec);
void gnv_soft_ring_tidy(struct gnv_soft_seat *seat);

/* Slot of the registered buffer that holds the command's only segment, or -1. Registers a mapping that proved to be busy. */
int gnv_soft_ring_buffer(struct gnv_soft_seat *seat, const struct gnv_soft_cmd *cmd);

#endif
