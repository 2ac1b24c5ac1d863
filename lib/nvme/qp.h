/* SPDX-License-Identifier: MIT */
/* I/O queue pairs. */
#ifndef GNV_NVME_QP_H
#define GNV_NVME_QP_H

#include "gpu.h"
#include "nvme/dev.h"

/* Where the words of struct gpunvme_dq lie in the state block of a queue. Every array begins on a line of its own. */
struct gnv_qp_layout {
	size_t ready;
	size_t result;
	size_t cid_map;
	size_t stop;
	size_t size;
};

struct gpunvme_qp {
	struct gpunvme_qp *next; /* of the device, under its lock */
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu; /* a counted reference */
	uint32_t qid;
	uint32_t tag;
	uint32_t depth;
	uint32_t cq_depth;
	uint32_t cids;
	uint32_t flags; /* enum gpunvme_qp_flags */
	uint64_t cmd_timeout; /* ticks of the lanes */
	bool cq_exists; /* on the controller */
	bool sq_exists;
	bool zombie; /* its deletion failed: the controller may go on using its memory */
	struct gnv_block sq;
	struct gnv_block cq;
	struct gnv_block state;
	struct gnv_qp_layout layout;
	struct gpunvme_qp_info before; /* counters when the self-test had ended */
};

/* Command identifiers of a queue: so few that neither completions in flight nor those not rung yet can overrun the CQ. */
uint32_t gnv_qp_cids(uint32_t cq_depth);

void gnv_qp_layout(uint32_t depth, uint32_t cids, struct gnv_qp_layout *layout);

/* Id of the first queue that is poisoned, or could not be deleted, and has commands the controller did not complete; else 0. */
uint32_t gnv_qp_first_busy(struct gpunvme_dev *dev);

/* End the queue for its lanes, with `cause` (GPUNVME_E*) unless it has ended before. */
void gnv_qp_poison(struct gpunvme_qp *qp, uint32_t cause);

/* Release a queue whose memory the controller does not use any more: it was deleted, or the controller has been stopped. */
void gnv_qp_release(struct gpunvme_qp *qp);

/* The descriptor of a view of namespace `ns`, without checks. */
void gnv_qp_describe(const struct gpunvme_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_dq *dq);

/* Forget what the counters counted so far: gpunvme_qp_info() tells of the user's commands. */
void gnv_qp_zero_counters(struct gpunvme_qp *qp);

#endif
