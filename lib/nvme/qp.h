/* SPDX-License-Identifier: MIT */
/* I/O queue pairs. */
#ifndef GNV_NVME_QP_H
#define GNV_NVME_QP_H

#include "gpu/gpu.h"
#include "nvme/dev.h"

/* Where the words of struct gpunvme_dq lie in the state of a queue. Every array begins on a line of its own. */
struct gnv_qp_layout {
	size_t ready;
	size_t result;
	size_t buckets; /* of GPUNVME_QP_LATENCY; 0: none */
	size_t cid_map;
	size_t size;
};

struct gpunvme_qp {
	struct gpunvme_qp *next; /* of the device, under its lock */
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu; /* a counted reference */
	uint32_t qid; /* from here on a recovery replaces everything, under dev->lock */
	uint32_t tag;
	uint32_t depth;
	uint32_t cq_depth;
	uint32_t cids;
	uint32_t flags; /* enum gpunvme_qp_flags */
	uint64_t cmd_timeout; /* ticks of the lanes */
	bool cq_exists; /* on the controller */
	bool sq_exists;
	bool local;  /* the rings lie in the GPU's memory */
	bool placed; /* gnv_place_take() was called for it */
	bool zombie; /* its deletion failed: the controller may go on using its memory */
	struct gnv_block sq;
	struct gnv_block cq;
	struct gnv_block control; /* host memory with the word by which the host speaks to the lanes */
	struct gnv_gpu_range state; /* the GPU's; 0 until there is one */
	struct gnv_block bells; /* struct gnv_bells where the forwarder rings; empty where the lanes do */
	struct gnv_forward_queue *forward; /* where the forwarder rings */
	struct gnv_qp_layout layout;
	uint64_t sq_db; /* lane addresses of the doorbells; 0 until there are any */
	uint64_t cq_db;
	struct gpunvme_dq_state before; /* counters when the self-test had ended */
	struct gpunvme_qp *heir; /* this one was recovered and is kept for its last lanes; see nvme/recover.h */
	uint32_t recoveries;
	struct gnv_watched watched;
};

/* Command identifiers of a queue: so few that neither completions in flight nor those not rung yet can overrun the CQ. */
uint32_t gnv_qp_cids(uint32_t cq_depth);

void gnv_qp_layout(uint32_t depth, uint32_t cids, bool latency, struct gnv_qp_layout *layout);

/* Id of the first queue that is poisoned, or could not be deleted, and has commands the controller did not complete; else 0. */
uint32_t gnv_qp_first_busy(struct gpunvme_dev *dev);

/* Lanes that wait on any queue of the device must not wait for what will never come. Any thread may call. */
void gnv_qp_end_all(struct gpunvme_dev *dev, uint32_t cause);

/*
 * Everything the host says to lanes goes through the control word, in host memory: 0 go on, 1 stop, or a GPUNVME_E* that ends the
 * queue, for good. Lanes look at it while they wait and make it known to each other.
 */
void gnv_qp_command(struct gpunvme_qp *qp, uint32_t word);

/* 0, or the GPUNVME_E* that ended the queue: found by the lanes, or told by the host. */
uint32_t gnv_qp_poisoned(const struct gpunvme_qp *qp);

/* Make and drop the state of the queue in the lanes' memory. Return: 0, -ENOMEM, -EIO. */
int gnv_qp_state_open(struct gpunvme_qp *qp);
void gnv_qp_state_close(struct gpunvme_qp *qp);

/* Commands that the controller has and has not completed. What cannot be read counts as in flight. */
uint32_t gnv_qp_in_flight(const struct gpunvme_qp *qp);

/* The state words, without the arrays; zeroed where they cannot be read. */
void gnv_qp_state_read(const struct gpunvme_qp *qp, struct gpunvme_dq_state *state);

/* Everything but the self-test, of a queue whose dev, gpu and local are set. On failure gnv_qp_abandon(). */
int gnv_qp_bring_up(struct gpunvme_qp *qp, const struct gpunvme_qp_opts *opts);

/* Its rung, as in gpunvme_qp_info. */
void gnv_qp_rung(const struct gpunvme_qp *qp, char *rung, size_t size);
/* Memory, an identifier, and existence on the controller. On failure gnv_qp_abandon() takes back what was done. */
int gnv_qp_place(struct gpunvme_qp *qp);

/* Delete what exists on the controller, in reverse. Return: 0 when it has let go of the rings. */
int gnv_qp_delete(struct gpunvme_qp *qp);

/* Delete and release it; what the controller does not let go of becomes a zombie. */
void gnv_qp_abandon(struct gpunvme_qp *qp);

/* Is there a completion at the place where the lanes will look next? */
bool gnv_qp_completion_waits(const struct gpunvme_qp *qp, const struct gpunvme_dq_state *state);

/* Release a queue whose memory the controller does not use any more: it was deleted, or the controller has been stopped. */
void gnv_qp_release(struct gpunvme_qp *qp);

/* The descriptor of a view of namespace `ns`, without checks. */
void gnv_qp_describe(const struct gpunvme_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_dq *dq);

/* The buckets of a queue that has some. Return: 0, -EIO. */
int gnv_qp_latency_read(const struct gpunvme_qp *qp, uint64_t *bucket);

/* Forget what was counted so far, while no lane runs: gpunvme_qp_info() and gpunvme_qp_latency() tell of the user's commands. */
int gnv_qp_zero_counters(struct gpunvme_qp *qp);

#endif
