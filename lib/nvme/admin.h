/* SPDX-License-Identifier: MIT */
/*
 * The admin queue: one command at a time, with its data in a bounce buffer. Requests for asynchronous events wait there, too.
 */
#ifndef GNV_NVME_ADMIN_H
#define GNV_NVME_ADMIN_H

#include "mem/arena.h"
#include "nvme/ctrl.h"

#define GNV_ADMIN_AERS 4u /* Asynchronous Event Requests at most */
#define GNV_ADMIN_MAX_DATA ((size_t)4096 * 64)

struct gnv_admin {
	uint64_t process; /* that may use it (util/process.h) */
	uint32_t restarts; /* that are under way or wait for the lock: a command in flight ends for them (atomic) */
	pthread_mutex_t lock; /* held for a whole command. Protects all fields below */
	struct gnv_ctrl *ctrl;
	struct gnv_arena *arena;
	struct gnv_block sq;
	struct gnv_block cq;
	struct gnv_block data; /* one page, for commands that need no more */
	struct gnv_block late; /* of a command without completion: the controller may write there until it is disabled */
	uint32_t timeout_ms;
	uint16_t tail;
	uint16_t head;
	uint16_t phase; /* 1 or 0: of a new completion */
	uint16_t cid;
	struct {
		uint32_t sent, answered, refused; /* one bit for each request. A request without a bit may be sent */
		uint32_t dw0[GNV_ADMIN_AERS];	  /* of the completed ones */
	} aer;
};

/* Allocate the rings. After a failure, too, gnv_admin_fini() gives them back. Return: 0, -ENOMEM, errors of the space. */
int gnv_admin_init(struct gnv_admin *admin, struct gnv_ctrl *ctrl, struct gnv_arena *arena, uint32_t timeout_ms);

/*
 * Reset the controller in any state, and begin: afterwards it makes no DMA except for the admin queue, and has no I/O queues. A
 * command in flight is not waited for: it ends with -ESHUTDOWN. Return: 0; errors of disabling and enabling: then the controller is
 * dead, and ctrl->enabled says whether it may make DMA.
 */
int gnv_admin_restart(struct gnv_admin *admin);

/* Free the rings. The controller is disabled. */
void gnv_admin_fini(struct gnv_admin *admin);

/*
 * gnv_admin_run() - one command from submission to completion
 * @cmd:  all but CID and data pointer
 * @buf: data, copied. NULL if @len is 0
 * @to_device: the controller reads @buf
 * A command without a completion, or with a wrong one, ends the controller: it is marked dead, and its buffers stay mapped
 * until it was disabled.
 * Return: 0; -ENODEV gone; -ESHUTDOWN dead, or reset meanwhile; -ETIMEDOUT, -EPROTO this command; -ENOMEM; or a positive NVMe
 * status.
 */
int gnv_admin_run(struct gnv_admin *admin, const struct gpunvme_sqe *cmd, void *buf, size_t len, bool to_device, uint32_t *result);

/*
 * Keep @want requests at the controller, GNV_ADMIN_AERS at most. Refused requests are not sent again before a reset. A dead
 * controller gets none.
 */
void gnv_admin_request_events(struct gnv_admin *admin, unsigned want);

/* Take the results of completed requests, dword 0 of each. Any other completion ends the controller. Return: how many. */
unsigned gnv_admin_take_events(struct gnv_admin *admin, uint32_t events[GNV_ADMIN_AERS]);

/* A doorbell that another processor rings. */
struct gnv_bell {
	int (*ring)(void *ctx, uint32_t tail);
	void *ctx;
};

/*
 * gnv_admin_run_doorbell() - the same with a data pointer of the caller, and with a doorbell that @bell rings
* Return: as gnv_admin_run(); or an error of @bell: it did not ring.
 */
int gnv_admin_run_doorbell(struct gnv_admin *admin, const struct gpunvme_sqe *cmd, const struct gnv_bell *bell, uint32_t *result);

#endif
