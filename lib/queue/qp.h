/* SPDX-License-Identifier: MIT */
/* I/O queue pairs. A queue of a user has one or several of them (queue/queue.h). */
#ifndef GNV_QUEUE_QP_H
#define GNV_QUEUE_QP_H

#include "gpu/gpu.h"
#include "dev/dev.h"
#include "queue/layout.h"

/* The last state of a queue that the watchdog saw. */
struct gnv_watched {
	uint64_t pub, fetched, since; /* since: gnv_clock_ns() of the last change */
	uint32_t in_flight;
	bool hopeless; /* it could not be recovered. Only the program tries again */
};

struct gnv_qp {
	struct gnv_dev_queue node; /* first */
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu; /* a counted reference */
	struct gpunvme_queue *owner; /* of which it is one, or NULL. With queues_lock */
	uint32_t qid; /* from here on a recovery replaces everything, under dev->lock */
	bool qid_passed_on;       /* another queue has it, or none may: it stays taken when this queue ends */
	bool unfenced;            /* a view for writing was given out without GPUNVME_VIEW_FENCED */
	bool lanes_gone;          /* its user said so */
	bool gate_held;		  /* by gnv_qp_quiesce() */
	struct gnv_qp *from;  /* while this one is made: the queue it replaces */
	uint32_t tag;
	uint32_t depth;
	uint32_t cq_depth;
	uint32_t cids;
	uint32_t cid_gens; /* as struct gpunvme_dq has it */
	uint32_t flags; /* enum gpunvme_queue_flags */
	uint64_t cmd_timeout; /* ticks of the threads */
	bool cq_exists; /* on the controller */
	bool sq_exists; /* written atomically: threads that unmap memory read it */
	bool local;  /* the rings lie in the GPU's memory */
	bool placed; /* gnv_placement_claim() was called for it */
	bool zombie; /* its deletion failed: the controller may go on using its memory */
	bool internal; /* it is its device's own (queue/internal.h) */
	bool kept;   /* a zombie that its owner holds, and will destroy again. Otherwise it is the device's */
	struct gnv_block sq;
	struct gnv_block cq;
	struct gnv_block control; /* host memory with the word by which the host signals threads */
	struct gnv_gpu_range state; /* the GPU's. 0 until there is one */
	struct gnv_block bells; /* struct gnv_bells if the forwarder rings. Empty if threads ring */
	struct gnv_forward_queue *forward; /* where the forwarder rings */
	struct gnv_qp_layout layout;
	uint64_t sq_db; /* the doorbells, as addresses for threads. 0 until there are any */
	uint64_t cq_db;
	uint64_t mark; /* position, for deferred freeing (dev/queues.h) */
	struct gpunvme_dq_state before; /* counters when the self-test had ended */
	struct gnv_qp *heir; /* this one was recovered and is kept for its last threads (queue/qp_recover.h) */
	uint32_t recoveries;
	struct gnv_watched watched;
};

extern const struct gnv_queue_ops gnv_qp_ops;

/* The queues of a device, in no order. NULL: no more. With dev->lock or queues_lock held. */
static inline struct gnv_qp *gnv_qp_first(const struct gpunvme_dev *dev)
{
	return (struct gnv_qp *)dev->queues.first;
}

static inline struct gnv_qp *gnv_qp_next(const struct gnv_qp *qp)
{
	return (struct gnv_qp *)qp->node.next;
}

/* Id of the queue that has this tag and goes on, or 0. */
uint32_t gnv_qp_of_tag(struct gpunvme_dev *dev, uint32_t tag);

/*
 * The host signals threads only by the control word, in host memory. 0: go on. 1: stop. A GPUNVME_E*: the queue has ended, for
 * good. While threads wait, one of them looks at it now and then, for all (dq.h, GPUNVME_CONTROL_WORD).
 */
void gnv_qp_command(struct gnv_qp *qp, uint32_t word);

/* As gpunvme_queue_stop(), for several at a time. NULL is left out. */
void gnv_qp_stop(struct gnv_qp *const *qp, uint32_t count, bool stop);

/* 0, or the GPUNVME_E* that ended the queue: found by threads, or set by the host. */
uint32_t gnv_qp_poisoned(const struct gnv_qp *qp);

/*
 * Of a queue that is over: from now on no thread rings its doorbells, however late it comes. Return: 0; -ENOSPC that cannot be
 * ensured while kernels run. gnv_fail() has the error message.
 */
int gnv_qp_quiesce(struct gnv_qp *qp);

/* Make and drop the state of the queue in the threads' memory. Return: 0, -ENOMEM, -EIO. */
int gnv_qp_state_open(struct gnv_qp *qp);
void gnv_qp_state_close(struct gnv_qp *qp);

/* Commands that the controller has not completed yet. Result words that cannot be read count as in flight. */
uint32_t gnv_qp_in_flight(const struct gnv_qp *qp);

/* Of the next command. UINT64_MAX: it cannot be read. */
uint64_t gnv_qp_position(const struct gnv_qp *qp);

/* Of the oldest command that the controller has not completed yet. UINT64_MAX: there is none. 0: it cannot be read. */
uint64_t gnv_qp_oldest(const struct gnv_qp *qp);

/* The state words, without the arrays. Zeroed if they cannot be read. */
void gnv_qp_state_read(const struct gnv_qp *qp, struct gpunvme_dq_state *state);

/* Everything but the self-test, of a queue whose dev, gpu and local are set. After a failure call gnv_qp_undo(). */
int gnv_qp_bring_up(struct gnv_qp *qp, const struct gpunvme_queue_opts *opts);

/* Its placement, as in gpunvme_queue_info. */
void gnv_qp_placement(const struct gnv_qp *qp, char *placement, size_t size);
/* Memory, an identifier, and existence on the controller. After a failure gnv_qp_undo() undoes it. */
int gnv_qp_place(struct gnv_qp *qp);

/* Delete its queues on the controller, in reverse order. Return: 0 when the controller has let go of the rings. */
int gnv_qp_delete(struct gnv_qp *qp);

/* The tag of its views, which no other queue of the device had lately. 0: there is no queue. */
uint32_t gnv_qp_tag(const struct gnv_qp *qp);

/* Delete and release it. Return: 0; -EBUSY the controller does not let go of it: it is a zombie now. May be tried again. */
int gnv_qp_undo(struct gnv_qp *qp);

/*
 * gnv_qp_create() - as gpunvme_queue_create(), of which it takes all options but the number of queues and the stripe
 * @opts: whole
 */
int gnv_qp_create(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *opts, struct gnv_qp **qp);

/* As gpunvme_queue_destroy(). Return: 0; -EBUSY it lives on, and its owner has it. */
int gnv_qp_destroy(struct gnv_qp *qp);

/* For a queue that no program has: it is its device's where it cannot be deleted, and goes with a sweep, a reset, or the device. */
void gnv_qp_discard(struct gnv_qp *qp);

/* Try once more to delete the queues without an owner. With queues_lock held. */
void gnv_qp_sweep(struct gpunvme_dev *dev);

/* Is there a completion at the place where threads will look next? */
bool gnv_qp_completion_waits(const struct gnv_qp *qp, const struct gpunvme_dq_state *state);

/* Release a queue whose memory the controller does not use any more: it was deleted, or the controller has been stopped. */
void gnv_qp_release(struct gnv_qp *qp);

/* As gpunvme_queue_view(). @view: NULL for the default namespace. */
int gnv_qp_view(struct gnv_qp *qp, const struct gpunvme_view *view, struct gpunvme_dq *dq);

/* The descriptor of a view of namespace `ns`, without checks. */
void gnv_qp_describe(const struct gnv_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_dq *dq);

/* Add its counts to @info. The first pair that is added also gives the values that are not sums. */
void gnv_qp_add_info(const struct gnv_qp *qp, struct gpunvme_queue_info *info);

/* Add the buckets of a queue that has some. With dev->lock. Return: 0, -EIO. */
int gnv_qp_latency_add(const struct gnv_qp *qp, uint64_t *bucket);

/* Forget the counts so far, while no thread runs: _get_info() and _get_latency() are about the user's commands. */
int gnv_qp_zero_counters(struct gnv_qp *qp);

#endif
