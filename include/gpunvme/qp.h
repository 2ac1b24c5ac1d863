/* SPDX-License-Identifier: MIT */
/*
 * I/O queue pairs: a submission and a completion ring that lanes drive without the CPU.
 *
 * One queue pair belongs to the lanes of one GPU, whose caches hold its state: another GPU gets queues of its own on the same
 * controller, and may share buffers (gpunvme_mem_dbuf_for). Any number of lanes may use a queue at once; more queues cost memory
 * and give throughput. gpunvme_qp_view() makes the descriptor a kernel receives: which namespace, which blocks, may it write.
 */
#ifndef GPUNVME_QP_H
#define GPUNVME_QP_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_qp;

enum gpunvme_qp_flags {
	GPUNVME_QP_SGL = 1u << 0,         /* SGL data blocks instead of PRPs; -EOPNOTSUPP where the controller has none */
	GPUNVME_QP_STATS = 1u << 1,       /* keep counters (gpunvme_qp_get_info()) */
	GPUNVME_QP_NO_SELFTEST = 1u << 2, /* skip the read of one block that proves data lands where it should */
	GPUNVME_QP_FORWARD = 1u << 3,     /* a CPU thread rings the doorbells, as where the lanes cannot reach them */
	GPUNVME_QP_SERVED = 1u << 4,      /* a service takes the completions (gpunvme_service, gpunvme_poll_queue()) */
	GPUNVME_QP_CQE16 = 1u << 5,       /* 16-byte loads of completions arrive whole here: gpunvme_gpu_litmus() has shown it */
	GPUNVME_QP_NO_READBACK = 1u << 6, /* no SQE needs to be read back before its doorbell: gpunvme_gpu_litmus() has shown it */
	GPUNVME_QP_VRAM = 1u << 7,        /* rings in memory of the GPU, and no way but that; its buffers must lie there, too */
	GPUNVME_QP_LATENCY = 1u << 8,     /* keep a histogram of latencies (gpunvme_qp_get_latency()) */
	GPUNVME_QP_INVALIDATE = 1u << 9,  /* memory of the GPU that fails the self-test is tried again after
					     GPUNVME_COHERENCE_INVALIDATE, which has its dangers (unstable.h) */
	GPUNVME_QP_CMB = 1u << 10,        /* the SQ in the drive's own memory (gpunvme_dev_info.cmb), unless reads are found to take
					     clearly longer so; with GPUNVME_QP_NO_SELFTEST whatever they take */
};

struct gpunvme_qp_opts {
	size_t size;             /* sizeof(struct gpunvme_qp_opts) */
	uint32_t flags;          /* enum gpunvme_qp_flags; an unknown bit is an error */
	uint32_t depth;          /* SQ entries, a power of two from 2 to max_depth; 0: the largest power of two <= min(1024, max_depth) */
	uint32_t cmd_timeout_ms; /* a command silent for so long poisons the queue; 0: 30,000 */
	uint32_t reserved;       /* 0 */
};
#define GPUNVME_QP_OPTS_INIT { sizeof(struct gpunvme_qp_opts), 0, 0, 0, 0 }

/**
 * gpunvme_qp_create() - create a completion and a submission queue
 * @dev:  the controller
 * @gpu:  whose lanes will use it
 * @opts: NULL for the defaults
 * @qp:   set on success; the caller owns it; @dev and @gpu must outlive it
 *
 * Places the rings, creates the CQ and then the SQ (Base Specification 5.4, 5.5) and proves the path with a self-test: one block
 * is read into trusted host memory and into the candidate placement and compared. It never writes media. Any thread may call it.
 * The first queue of an AMD GPU on a drive starts a helper process for each way to the doorbells (gpunvme-probe), which ends before
 * the call returns. A program that waits for all of its children sees it, too.
 * Return: 0; -EINVAL depth or option; -ENOSPC all queue pairs granted by the controller are in use; -ENOMEM; -EIO the self-test
 * failed; -EXDEV buffers of @gpu are mapped to @dev where the rings cannot lie (mem.h); -EBUSY the doorbells could not be tested
 * while others rang; -EOPNOTSUPP an option that is not possible here; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_qp_create(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_qp_opts *opts,
				  struct gpunvme_qp **qp);

/**
 * gpunvme_qp_destroy() - delete the SQ, then the CQ, then release the rings
 * @qp: or NULL
 *
 * No kernel may use a view of it any more. Commands in flight are aborted by the controller.
 * Return: 0 the queue is gone, and the buffers of its commands, also of those that timed out, are the caller's again; -EBUSY the
 * controller refused to delete it or did not complete that: its commands may still move data. The queue then lives on for
 * gpunvme_qp_get_info(), and for this call, which succeeds after a reset of the controller; gpunvme_dev_close() takes it along.
 */
GPUNVME_API int gpunvme_qp_destroy(struct gpunvme_qp *qp);

enum gpunvme_view_flags {
	GPUNVME_VIEW_WRITE = 1u << 0, /* without it every write from a kernel returns -GPUNVME_EROFS */
	/*
	 * Kernels that write from memory which their GPU caches, as that of hipMalloc() is, begin after a fence of system scope:
	 * gpunvme_gpu_fence(), or hipStreamSynchronize(), after the kernels that stored there. For GPUs whose waves cannot do it.
	 */
	GPUNVME_VIEW_FENCED = 1u << 1,
};

struct gpunvme_view {
	size_t size;      /* sizeof(struct gpunvme_view) */
	uint32_t flags;   /* enum gpunvme_view_flags */
	uint32_t nsid;    /* 0: the device's default namespace */
	uint64_t lba;     /* first block of the window; kernels count bytes from its start */
	uint64_t nblocks; /* 0: up to the end of the namespace */
};
#define GPUNVME_VIEW_INIT { sizeof(struct gpunvme_view), 0, 0, 0, 0 }

/* As gpunvme_qp_view(), for a caller whose dq.h has the given version. Use the wrapper below. */
GPUNVME_API int gpunvme_qp_view_v(struct gpunvme_qp *qp, const struct gpunvme_view *view, struct gpunvme_dq *dq, uint32_t version,
				  uint32_t size);

/**
 * gpunvme_qp_view() - a descriptor for kernels
 * @qp:   the queue pair
 * @view: NULL: the whole default namespace, read-only
 * @dq:   filled; plain data, valid until gpunvme_qp_destroy(); any number of views of one queue may be in use at once
 *
 * Any thread may call it.
 * Return: 0; -EINVAL; -ENOENT no such namespace; -ERANGE the window leaves the namespace; -EROFS writing was asked of a read-only
 * namespace or device; -EOPNOTSUPP writing without GPUNVME_VIEW_FENCED while cached memory of the queue's GPU is described
 * (gpunvme_mem_dbuf()); -EPROTONOSUPPORT the caller was compiled with another version of dq.h; -ESHUTDOWN the queue is poisoned;
 * otherwise as gpunvme_ns_get_info().
 */
static inline int gpunvme_qp_view(struct gpunvme_qp *qp, const struct gpunvme_view *view, struct gpunvme_dq *dq)
{
	return gpunvme_qp_view_v(qp, view, dq, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR, (uint32_t)sizeof(*dq));
}

/**
 * gpunvme_qp_stop() - ask the lanes to stop, or let them run again
 * @qp:   the queue pair
 * @stop: non-zero: lanes that wait or want to submit get -GPUNVME_ECANCELED soon; commands in flight go on. 0: calls of lanes
 *        that begin when this has returned do not get it any more, for which it waits a millisecond
 *
 * Any thread may call it, also while kernels run. Return: 0.
 */
GPUNVME_API int gpunvme_qp_stop(struct gpunvme_qp *qp, int stop);

/**
 * gpunvme_qp_recover() - make a queue usable again after a time-out or a protocol error
 * @qp: the queue pair
 *
 * Aborts its commands, deletes it and creates it again, with fresh rings and state. If the controller does not complete that, or
 * refuses, it is reset, which ends every queue of the device; they are all created again. Lanes that wait get the status with which
 * the controller ended their command, or -GPUNVME_ESHUTDOWN, and only then: the buffers are theirs again.
 *
 * Descriptors made before are of the old queue and stay so: take new ones with gpunvme_qp_view(). What lanes might still touch of
 * the old queue is kept, with its queue identifier, until gpunvme_qp_release_old(). Any thread may call it, also while kernels run.
 * With gpunvme_dev_opts.watchdog_ms a thread of the library does. A gpunvme_qp_stop() has to be said again.
 * Return: 0; -ENOSPC no other queue identifier is free, and lanes of a GPU may still ring this one's doorbell: end their kernels,
 * say so by gpunvme_qp_release_old(), and call again; -ENODEV, -ETIMEDOUT, -EIO the controller could not be reset: it is dead,
 * and lanes get -GPUNVME_ENODEV; -ENOMEM; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_qp_recover(struct gpunvme_qp *qp);

/**
 * gpunvme_qp_release_old() - no kernel uses a view from before the last recovery any more
 * @qp: the queue pair
 *
 * A watchdog, another thread's gpunvme_dev_reset(), or the recovery of another queue may come at any time. Then the last recovery
 * may just have happened, and any view may be older. In such a program call this when no kernel uses any view of this queue, and
 * take the next view afterwards. A view that was taken before the call may be of what the call frees. gpunvme_qp_destroy() implies
 * it. Any thread may call it. Return: 0.
 */
GPUNVME_API int gpunvme_qp_release_old(struct gpunvme_qp *qp);

struct gpunvme_qp_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_qp_info) */
	uint32_t qid;
	uint32_t depth;
	uint32_t cq_depth;
	uint32_t cids;      /* commands that can be in flight or unclaimed */
	uint32_t poison;    /* 0, or the errno that ended the queue (positive) */
	uint32_t in_flight; /* commands the controller has and has not completed */
	uint64_t submitted; /* since creation or the last recovery */
	uint64_t doorbells; /* the rest: only with GPUNVME_QP_STATS, else 0 */
	uint64_t drains;
	uint64_t completions;
	/* "soft", "vfio-user", "vfio-host", "direct-db", "vram", "soft+vram", "cmb", "vram+cmb"; with "+fwd" where a CPU thread rings */
	char rung[16];
	uint32_t recoveries; /* times the queue was created anew; views from before the last are over */
	uint32_t reserved;
	uint64_t errors; /* with GPUNVME_QP_STATS: completions with a status other than success */
};

/**
 * gpunvme_qp_get_info() - how the queue is doing
 * @qp:   the queue pair
 * @info: filled; info->size must be set
 *
 * A snapshot, also while kernels run. Any thread may call it.
 * Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_qp_get_info(struct gpunvme_qp *qp, struct gpunvme_qp_info *info);

/*
 * How long commands took, by the clock of the lanes: from the write of a command to the drain that found its completion. Counts
 * only grow: the difference of two snapshots is what lies between them, the sum over queues of one GPU is theirs together.
 */
struct gpunvme_qp_latency {
	size_t size; /* set by the caller to sizeof(struct gpunvme_qp_latency) */
	uint32_t ticks_per_ms;
	uint32_t reserved;
	uint64_t bucket[GPUNVME_LATENCY_BUCKETS]; /* commands by ticks; dq.h says where each bucket begins */
};

/**
 * gpunvme_qp_get_latency() - how long commands took
 * @qp:      a queue pair made with GPUNVME_QP_LATENCY
 * @latency: filled; latency->size must be set
 *
 * Commands since creation or the last recovery, without the self-test's; those of kernels that were compiled with
 * GPUNVME_COUNTERS 0 are missing. A snapshot, also while kernels run: each count is whole, a command that completes meanwhile is
 * in it or not. Any thread may call it.
 * Return: 0; -EINVAL; -EOPNOTSUPP the queue was made without GPUNVME_QP_LATENCY; -EIO the lanes' memory cannot be read.
 */
GPUNVME_API int gpunvme_qp_get_latency(struct gpunvme_qp *qp, struct gpunvme_qp_latency *latency);

/**
 * gpunvme_latency_ns() - the time within which a share of the commands ended
 * @latency:     counts, of one queue or added up
 * @per_million: the share: 500,000 is the median, 999,000 leaves one command in a thousand; 1,000,000 and more: all; 0: one
 *
 * Any thread may call it.
 * Return: nanoseconds, the end of the bucket in which the share is reached: never too little, and at most an eighth and one tick
 * too much; 0 when no command was counted.
 */
GPUNVME_API uint64_t gpunvme_latency_ns(const struct gpunvme_qp_latency *latency, uint32_t per_million);

/*
 * A completion thread for queues whose threads submit and end: it takes completions, so that nothing has to wait for them. For CPU
 * threads it is a thread of the library. On a GPU it is one wave that calls gpunvme_poll_queue(), in a kernel of the program's own.
 */
struct gpunvme_service;

/**
 * gpunvme_service_start() - take the completions of some queues
 * @gpu:     the lanes that the queues were created for
 * @dq:      a view of each queue; copied
 * @count:   how many, 1 to 1024
 * @service: set on success; the caller owns it and stops it before it destroys a queue
 *
 * Queues made with GPUNVME_QP_SERVED have lanes that leave completions to it; others may be served too. The thread rests longer the
 * less there is to do. It ends by itself when every queue has ended. Any thread may call it.
 * Return: 0; -EINVAL no queue, too many, a view of another kind; -EPROTONOSUPPORT a view is of another version, or none;
 * -EOPNOTSUPP lanes of a GPU: see above; -ENOMEM, -EAGAIN.
 */
GPUNVME_API int gpunvme_service_start(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t count,
				      struct gpunvme_service **service);

/**
 * gpunvme_service_stop() - end it and wait until it has
 * @service: or NULL
 * Return: 0; -ECHILD.
 */
GPUNVME_API int gpunvme_service_stop(struct gpunvme_service *service);

#ifdef __cplusplus
}
#endif
#endif
