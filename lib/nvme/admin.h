/* SPDX-License-Identifier: MIT */
/*
 * The admin queue: one command at a time, its data through a bounce buffer.
 */
#ifndef GNV_NVME_ADMIN_H
#define GNV_NVME_ADMIN_H

#include "mem/arena.h"
#include "nvme/ctrl.h"

#define GNV_ADMIN_MAX_DATA ((size_t)4096 * 64)

struct gnv_admin {
	pthread_mutex_t lock; /* held for a whole command; protects all below */
	struct gnv_ctrl *ctrl;
	struct gnv_arena *arena;
	struct gnv_block sq;
	struct gnv_block cq;
	struct gnv_block data; /* one page, for commands that need no more */
	uint32_t timeout_ms;
	uint16_t tail;
	uint16_t head;
	uint16_t phase; /* 1 or 0: what a new completion carries */
	uint16_t cid;
};

/*
 * Allocate the rings, reset and enable the controller. After a failure, too, the caller stops the controller where ctrl->enabled
 * says that it may make DMA, and then calls gnv_admin_fini(). Return: 0, -ENOMEM, or what enabling answers.
 */
int gnv_admin_start(struct gnv_admin *admin, struct gnv_ctrl *ctrl, struct gnv_arena *arena, uint32_t timeout_ms);

/*
 * Reset the controller, whatever it was doing, and begin anew: afterwards it makes no DMA but for the admin queue, and has no I/O
 * queues. Return: 0; what disabling and enabling answer: then the controller is dead, and ctrl->enabled says whether it may make
 * DMA.
 */
int gnv_admin_restart(struct gnv_admin *admin);

/* Give the rings back; the controller is disabled. */
void gnv_admin_fini(struct gnv_admin *admin);

/*
 * gnv_admin_run() - one command from submission to completion
 * @cmd:  all but CID and data pointer
 * @buf:  data, copied; NULL when @len is 0
 * @to_device: the controller reads @buf
 * A command without an answer, or with a wrong one, ends the controller: it is marked dead, and its buffers stay mapped.
 * Return: 0; -ENODEV dead or gone; -ETIMEDOUT, -EPROTO this command; -ENOMEM; or a positive NVMe status.
 */
int gnv_admin_run(struct gnv_admin *admin, const struct gpunvme_sqe *cmd, void *buf, size_t len, bool to_device, uint32_t *result);

/* Somebody else rings the doorbell. */
struct gnv_bell {
	int (*ring)(void *ctx, uint32_t tail);
	void *ctx;
};

/*
 * gnv_admin_run_rung() - the same for a command whose data pointer is the caller's, and whose doorbell @bell rings
 * Return: as gnv_admin_run(); or what @bell answers when it did not ring.
 */
int gnv_admin_run_rung(struct gnv_admin *admin, const struct gpunvme_sqe *cmd, const struct gnv_bell *bell, uint32_t *result);

#endif
