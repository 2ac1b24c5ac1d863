/* SPDX-License-Identifier: MIT */
/*
 * A controller by its registers: capabilities, reset, enable, shutdown, doorbells. Knows BAR0 and nothing else.
 */
#ifndef GNV_NVME_CTRL_H
#define GNV_NVME_CTRL_H

#include <gpunvme/spec.h>
#include <pthread.h>
#include <stdbool.h>

#include "mem/mem.h"
#include "util/log.h"

#define GNV_CTRL_WHY 160u /* as gpunvme_dev_info.why */

struct gnv_ctrl {
	const struct gpunvme_mem *regs; /* BAR0 */
	char GNV_MMIO *bar; /* its CPU address: of the doorbells, and of registers that are not reached by messages */
	size_t bar_len;
	uint64_t cap;
	uint32_t vs;
	uint32_t page_size;   /* CC.MPS in bytes */
	uint32_t max_depth;   /* CAP.MQES + 1 */
	uint32_t dstrd;       /* doorbells are 4 << dstrd bytes apart */
	uint32_t ready_ms;    /* deadline of CSTS.RDY becoming 1 */
	uint32_t disable_ms;  /* and 0 */
	uint32_t shutdown_ms; /* of CSTS.SHST. From RTD3E once identified */
	uint32_t rest_ms;     /* to be left alone after CC.EN was cleared. Before gnv_ctrl_disable() */
	bool rested;          /* atomic: it was, and not enabled since */
	uint64_t cmb_base;    /* the address that means its own memory. 0: none does */
	bool enabled;         /* it was given the rings of the admin queue, and not disabled since: it may make DMA */
	int dead; /* atomic, changed under the lock. -ENODEV: it is gone. -ESHUTDOWN: a reset may bring it back */
	bool taken; /* it is taken away: no reset brings it back, even if it still responds */
	void (*died)(void *ctx, const char *why); /* called when `dead` stops to be 0, on any thread. May be NULL */
	void *died_ctx;
	pthread_mutex_t lock;	/* the innermost. Protects why, changes of dead and taken, and writes that enable it */
	char why[GNV_CTRL_WHY]; /* the cause while dead is not 0: one clause of plain text */
};

/* Read and check its capabilities. Return: 0; -ENODEV; -EOPNOTSUPP it lacks some that this library needs. */
int gnv_ctrl_init(struct gnv_ctrl *ctrl, const struct gpunvme_mem *bar0);

/* CSTS. All ones means that the device is gone: the one place that knows. Return: 0, -ENODEV. */
int gnv_ctrl_status(struct gnv_ctrl *ctrl, uint32_t *csts);

/* CC.EN = 0 and wait for RDY = 0: after success the controller makes no DMA. Return: 0, -ENODEV, -ETIMEDOUT. */
int gnv_ctrl_disable(struct gnv_ctrl *ctrl);

/*
 * gnv_ctrl_let_go() - gnv_ctrl_disable() of a controller after gnv_ctrl_take(), for its next owner
 * Its next driver lets it make DMA before it disables it. No wait is longer than GNV_CTRL_LET_GO_MS, as that driver waits, too.
 * Return: as gnv_ctrl_disable(). Any thread.
 */
#define GNV_CTRL_LET_GO_MS 10000u
int gnv_ctrl_let_go(struct gnv_ctrl *ctrl);

/* Set up the admin queue and enable. The controller is disabled before. Return: 0, -ENODEV, -EIO (fatal status), -ETIMEDOUT. */
int gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries);

/*
 * gnv_ctrl_cmb() - the memory that it has in a BAR (CMBLOC, CMBSZ)
 * Return: 0; -ENOENT none; -EOPNOTSUPP none of any use; -EPROTO its registers make no sense. gnv_fail() has the error message.
 */
struct gnv_ctrl_cmb {
	unsigned bar;
	uint64_t offset, size;
	uint32_t holds; /* enum gpunvme_cmb_holds */
};
int gnv_ctrl_cmb(struct gnv_ctrl *ctrl, struct gnv_ctrl_cmb *cmb);

/*
 * From now on, also after resets, addresses from @base on mean that memory. A controller from before NVMe 1.4 has no register for
 * it and uses the addresses of the BAR. It is disabled. Return: 0; -EINVAL it disagrees.
 */
int gnv_ctrl_cmb_at(struct gnv_ctrl *ctrl, uint64_t base);

/* No address means it any more. */
void gnv_ctrl_cmb_off(struct gnv_ctrl *ctrl);

/* Announce that the power may go, and wait until it agrees. Return: 0, -ENODEV, -ETIMEDOUT. */
int gnv_ctrl_shutdown(struct gnv_ctrl *ctrl);

/*
 * gnv_ctrl_kill() - mark it dead: it gets no more commands
 * @ret: -ENODEV, which stays, or -ESHUTDOWN
 * @why: the cause, or an error message, of which the cause is taken (gnv_cause_len()). The first cause is kept until a reset,
 * except for that of a removal. NULL: it is being reset, and any other cause is a better one.
 * Return: @ret. Any thread.
 */
int gnv_ctrl_kill(struct gnv_ctrl *ctrl, int ret, const char *why);

/* Copy the cause. "" while it is alive. Any thread. */
void gnv_ctrl_why(const struct gnv_ctrl *ctrl, char why[GNV_CTRL_WHY]);

int gnv_ctrl_dead(const struct gnv_ctrl *ctrl);

/* Return: 0, -ENODEV, -ESHUTDOWN. gnv_fail() has the error message. */
int gnv_ctrl_check(const struct gnv_ctrl *ctrl);

/* It is taken away, maybe in the middle of a reset. @why: as of gnv_ctrl_kill(). */
void gnv_ctrl_take(struct gnv_ctrl *ctrl, const char *why);
/* Return: 0; -ENODEV it is taken away. */
int gnv_ctrl_kept(struct gnv_ctrl *ctrl);

/* It was reset and responds. Return: 0; -ENODEV it is taken away. */
int gnv_ctrl_revive(struct gnv_ctrl *ctrl);

/* Offset in BAR0 of the doorbell of SQ `qid`, and of CQ `qid`. */
static inline size_t gnv_ctrl_sq_doorbell(const struct gnv_ctrl *ctrl, uint32_t qid)
{
	return GPUNVME_REG_DOORBELLS + ((size_t)2 * qid) * ((size_t)4 << ctrl->dstrd);
}

static inline size_t gnv_ctrl_cq_doorbell(const struct gnv_ctrl *ctrl, uint32_t qid)
{
	return GPUNVME_REG_DOORBELLS + ((size_t)2 * qid + 1) * ((size_t)4 << ctrl->dstrd);
}

/* I/O queue pairs whose doorbells lie within BAR0. */
uint32_t gnv_ctrl_max_queues(const struct gnv_ctrl *ctrl);

#endif
