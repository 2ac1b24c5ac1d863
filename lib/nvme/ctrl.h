/* SPDX-License-Identifier: MIT */
/*
 * A controller by its registers: capabilities, reset, enable, shutdown, doorbells. Knows BAR0 and nothing else.
 */
#ifndef GNV_NVME_CTRL_H
#define GNV_NVME_CTRL_H

#include <gpunvme/spec.h>
#include <stdbool.h>

#include "mem/mem.h"
#include "util/log.h"

struct gnv_ctrl {
	char *bar; /* CPU address of BAR0 */
	size_t bar_len;
	uint64_t cap;
	uint32_t vs;
	uint32_t page_size;   /* CC.MPS in bytes */
	uint32_t max_depth;   /* CAP.MQES + 1 */
	uint32_t dstrd;       /* doorbells are 4 << dstrd bytes apart */
	uint32_t ready_ms;    /* deadline of CSTS.RDY becoming 1 */
	uint32_t disable_ms;  /* and 0 */
	uint32_t shutdown_ms; /* of CSTS.SHST; from RTD3E once identified */
	bool enabled;         /* it was given the rings of the admin queue, and not disabled since: it may make DMA */
	int dead;             /* atomic: 0, or the negative errno with which it stopped answering */
};

/* Read and check what the controller is able to. Return: 0; -ENODEV; -EOPNOTSUPP it lacks what this library needs. */
int gnv_ctrl_init(struct gnv_ctrl *ctrl, const struct gpunvme_mem *bar0);

/* CSTS. All ones means that the device is gone: the one place that knows. Return: 0, -ENODEV. */
int gnv_ctrl_status(struct gnv_ctrl *ctrl, uint32_t *csts);

/* CC.EN = 0 and wait for RDY = 0: after success the controller makes no DMA. Return: 0, -ENODEV, -ETIMEDOUT. */
int gnv_ctrl_disable(struct gnv_ctrl *ctrl);

/* Set up the admin queue and enable; the controller is disabled. Return: 0, -ENODEV, -EIO (fatal status), -ETIMEDOUT. */
int gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries);

/* Tell it that the power may go, and wait until it agrees. Return: 0, -ENODEV, -ETIMEDOUT. */
int gnv_ctrl_shutdown(struct gnv_ctrl *ctrl);

/* It broke its word: nothing more is asked of it. Returns `ret`, negative. */
int gnv_ctrl_kill(struct gnv_ctrl *ctrl, int ret);
int gnv_ctrl_dead(const struct gnv_ctrl *ctrl);

/* It was reset and answers. */
void gnv_ctrl_revive(struct gnv_ctrl *ctrl);

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
