/* SPDX-License-Identifier: MIT */
/*
 * Queues: submission and completion rings that threads of a kernel drive without the CPU.
 *
 * A queue belongs to the threads of one GPU, whose caches hold its state: another GPU gets queues of its own on the same device,
 * and may share buffers (gpunvme_mem_dbuf_for). Any number of threads may use a queue at once. It has one pair of rings, or
 * several: more pairs cost memory and give throughput. Over several devices it is a volume, whose blocks go round the devices in
 * stripes: block b lies in stripe s = b / stripe, on device s mod n, there in stripe s / n. Nothing about that is kept on the
 * media: the same devices in the same order with the same stripe are the same volume, and one device is simply its namespace.
 *
 * gpunvme_queue_view() makes the descriptor that a kernel receives: which namespace, which blocks, may it write.
 */
#ifndef GPUNVME_QUEUE_H
#define GPUNVME_QUEUE_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_queue;

#define GPUNVME_QUEUE_DEVICES 64u /* of one queue, at most */

enum gpunvme_queue_flags {
	GPUNVME_QUEUE_SGL = 1u << 0,         /* SGL data blocks instead of PRPs; -EOPNOTSUPP where the controller has none */
	GPUNVME_QUEUE_STATS = 1u << 1,       /* keep counters (gpunvme_queue_get_info()) */
	GPUNVME_QUEUE_NO_SELFTEST = 1u << 2, /* skip the read of one block that proves data lands where it should */
	GPUNVME_QUEUE_FORWARD = 1u << 3,     /* a CPU thread rings the doorbells, as where the lanes cannot reach them */
	GPUNVME_QUEUE_SERVED = 1u << 4,      /* a service takes the completions (gpunvme_service, gpunvme_poll_queue()) */
	GPUNVME_QUEUE_CQE16 = 1u << 5,       /* 16-byte loads of completions arrive whole here: gpunvme_gpu_litmus() has shown it */
	GPUNVME_QUEUE_NO_READBACK = 1u << 6, /* no SQE needs to be read back before its doorbell: gpunvme_gpu_litmus() has shown it */
	GPUNVME_QUEUE_VRAM = 1u << 7,        /* rings in memory of the GPU, and no way but that; its buffers must lie there, too */
	GPUNVME_QUEUE_LATENCY = 1u << 8,     /* keep a histogram of latencies (gpunvme_queue_get_latency()) */
	GPUNVME_QUEUE_INVALIDATE = 1u << 9,  /* memory of the GPU that fails the self-test is tried again after
					     GPUNVME_COHERENCE_INVALIDATE, which has its dangers (unstable.h) */
	GPUNVME_QUEUE_CMB = 1u << 10,        /* the SQ in the drive's own memory (gpunvme_dev_info.cmb), unless reads are found to take
					     clearly longer so; with GPUNVME_QUEUE_NO_SELFTEST whatever they take */
};

struct gpunvme_queue_opts {
	size_t size;             /* sizeof(struct gpunvme_queue_opts) */
	uint32_t flags;          /* enum gpunvme_queue_flags; an unknown bit is an error */
	uint32_t depth;          /* SQ entries, a power of two from 2 to max_depth; 0: the largest power of two <= min(1024, max_depth) */
	uint32_t cmd_timeout_ms; /* a command silent for so long poisons the pair it is in; 0: 30,000 */
	uint32_t queues;         /* pairs on each device; 0: one; for gpunvme_queue_create_striped() 8, or as many as all have free */
	uint32_t stripe;         /* blocks, a power of two; 0: 128 KiB. Without meaning on one device */
	uint32_t reserved;       /* 0 */
};
#define GPUNVME_QUEUE_OPTS_INIT { sizeof(struct gpunvme_queue_opts), 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_queue_create() - create a queue on one device
 * @dev:   the device
 * @gpu:   whose threads will use it
 * @opts:  NULL for the defaults
 * @queue: set on success; the caller owns it; @dev and @gpu must outlive it
 *
 * Places the rings, creates the CQ and then the SQ (Base Specification 5.4, 5.5) and proves the path with a self-test: one block
 * is read into trusted host memory and into the candidate placement and compared. It never writes media. Any thread may call it.
 * The first queue of an AMD GPU on a drive starts a helper process for each way to the doorbells (gpunvme-probe), which ends before
 * the call returns. A program that waits for all of its children sees it, too.
 * Return: 0; -EINVAL depth or option; -ENOSPC the controller has not granted so many queue pairs, or others use them; -ENOMEM; -EIO
 * the self-test failed; -EXDEV buffers of @gpu are mapped to @dev where the rings cannot lie (mem.h); -EBUSY the doorbells could
 * not be tested while others rang; -EOPNOTSUPP an option that is not possible here; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_queue_create(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *opts,
				     struct gpunvme_queue **queue);

/**
 * gpunvme_queue_create_striped() - create a queue over several devices: a volume
 * @devs:  the devices, in the order of the stripes; all different; each serves its default namespace
 * @count: how many, 1 to GPUNVME_QUEUE_DEVICES
 * @gpu:   whose threads will use it
 * @opts:  NULL for the defaults
 * @queue: set on success; the caller owns it; @devs and @gpu must outlive it
 *
 * All namespaces must have blocks of one size. The volume is as large as whole stripes fit on the smallest, times @count. Any
 * thread may call it. All or nothing.
 * Return: 0; -EINVAL no or too many devices, one twice, different block sizes, a stripe that is no power of two; -ERANGE a
 * namespace is smaller than one stripe, or the volume had more bytes than 64 bits count; -ENOSPC a device has not so many
 * pairs; otherwise as gpunvme_queue_create().
 */
GPUNVME_API int gpunvme_queue_create_striped(struct gpunvme_dev *const *devs, uint32_t count, struct gpunvme_gpu *gpu,
					     const struct gpunvme_queue_opts *opts, struct gpunvme_queue **queue);

/**
 * gpunvme_queue_destroy() - delete the SQs, then the CQs, then release the rings
 * @queue: or NULL
 *
 * No kernel may use a view of it any more, nor a description by gpunvme_mem_map_queue(). Commands in flight are aborted by the
 * controller. Buffers stay mapped.
 * Return: 0 the queue is gone, and the buffers of its commands, also of those that timed out, are the caller's again; -EBUSY a
 * controller refused to delete a pair or did not complete that: its commands may still move data. The queue then lives on for
 * gpunvme_queue_get_info(), and for this call, which succeeds after a reset of the controller; gpunvme_dev_close() takes it along,
 * over several devices that of the last.
 */
GPUNVME_API int gpunvme_queue_destroy(struct gpunvme_queue *queue);

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
	uint32_t nsid;    /* 0: the device's default namespace; for a struct gpunvme_dvol always 0 */
	uint64_t lba;     /* first block of the window; kernels count bytes from its start */
	uint64_t nblocks; /* 0: up to the end of the namespace or the volume */
};
#define GPUNVME_VIEW_INIT { sizeof(struct gpunvme_view), 0, 0, 0, 0 }

/* As gpunvme_queue_view(), for a caller whose dq.h has the given version; @out is of @kind (enum gpunvme_kind) and @size bytes. */
GPUNVME_API int gpunvme_queue_view_v(struct gpunvme_queue *queue, const struct gpunvme_view *view, void *out, uint32_t kind,
				     uint32_t version, uint32_t size);

/**
 * gpunvme_queue_view() - a descriptor for kernels
 * @queue: the queue
 * @view:  NULL: the whole default namespace or volume, read-only
 * @out:   filled; plain data, valid until gpunvme_queue_destroy(); any number of views of one queue may be in use at once.
 *         struct gpunvme_dq *: of a queue of one pair. struct gpunvme_dvol *: of any queue; calls of kernels choose device and pair
 *
 * In C a macro, which looks at the type of @out. Any thread may call it.
 * Return: 0; -EINVAL, also for a struct gpunvme_dq of a queue of several pairs, or with nsid for a struct gpunvme_dvol; -ENOENT no
 * such namespace; -ERANGE the window leaves the namespace or the volume; -EROFS writing was asked of a read-only namespace or
 * device, of one of several; -EOPNOTSUPP writing without GPUNVME_VIEW_FENCED while cached memory of the queue's GPU is described
 * (gpunvme_mem_dbuf()); -EPROTONOSUPPORT the caller was compiled with another version of dq.h; -ESHUTDOWN a pair is poisoned;
 * -ENOMEM; otherwise as gpunvme_ns_get_info().
 */
#ifdef __cplusplus
} /* overloads are C++ */
static inline int gpunvme_queue_view(struct gpunvme_queue *queue, const struct gpunvme_view *view, struct gpunvme_dq *out)
{
	return gpunvme_queue_view_v(queue, view, out, GPUNVME_KIND_QUEUE, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR,
				    (uint32_t)sizeof(*out));
}
static inline int gpunvme_queue_view(struct gpunvme_queue *queue, const struct gpunvme_view *view, struct gpunvme_dvol *out)
{
	return gpunvme_queue_view_v(queue, view, out, GPUNVME_KIND_VOLUME, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR,
				    (uint32_t)sizeof(*out));
}
extern "C" {
#else
#define gpunvme_queue_view(queue, view, out) \
	gpunvme_queue_view_v(queue, view, out, \
			     _Generic((out), struct gpunvme_dq *: GPUNVME_KIND_QUEUE, struct gpunvme_dvol *: GPUNVME_KIND_VOLUME), \
			     GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR, (uint32_t)sizeof(*(out)))
#endif

/**
 * gpunvme_queue_stop() - ask the threads to stop, or let them run again
 * @queue: the queue
 * @stop:  non-zero: threads that wait or want to submit get -GPUNVME_ECANCELED soon; commands in flight go on. 0: calls of threads
 *         that begin when this has returned do not get it any more, for which it waits a millisecond
 *
 * Any thread may call it, also while kernels run. Return: 0; -EINVAL.
 */
GPUNVME_API int gpunvme_queue_stop(struct gpunvme_queue *queue, int stop);

/**
 * gpunvme_queue_recover() - make a queue usable again after a time-out or a protocol error
 * @queue: the queue
 *
 * Recovers the pair of a queue that has one, also where it has not ended. Of several pairs it recovers those that have ended, which
 * may be none. The others go on, unless a controller is reset. A pair that cannot be recovered does not keep the rest from it.
 *
 * Aborts the commands of the pair, deletes it and creates it again, with fresh rings and state. If the controller does not complete
 * that, or refuses, it is reset, which ends every queue of the device. They are all created again. Threads that wait get the status
 * with which the controller ended their command, or -GPUNVME_ESHUTDOWN, and only then: the buffers are theirs again.
 *
 * Views made before are of the old pairs and stay so: take new ones with gpunvme_queue_view(). Descriptions of buffers stay valid.
 * What threads might still touch of an old pair is kept, with its queue identifier, until gpunvme_queue_retire(). Any thread may
 * call it, also while kernels run. With gpunvme_dev_opts.watchdog_ms a thread of the library does. A gpunvme_queue_stop() has to be
 * said again.
 * Return: 0; -EINVAL; -ENOSPC no other queue identifier is free, and threads of a GPU may still ring the old doorbell: end their
 * kernels, say so by gpunvme_queue_retire(), and call again; -ENODEV, -ETIMEDOUT, -EIO the controller could not be reset: it is
 * dead, and threads get -GPUNVME_ENODEV; -ENOMEM; or a positive NVMe status. Of several pairs, that of the first that did not come
 * back.
 */
GPUNVME_API int gpunvme_queue_recover(struct gpunvme_queue *queue);

/**
 * gpunvme_queue_retire() - no kernel uses a view from before the last recovery any more
 * @queue: the queue
 *
 * Releases what was kept of the old pairs. A watchdog, another thread's gpunvme_dev_reset(), or the recovery of another queue may
 * come at any time. Then the last recovery may be of a moment ago, and any view is from before it. So call this when no kernel uses
 * any view of this queue, and take the next view afterwards. A view that was taken before the call may be of what the call frees.
 * gpunvme_queue_destroy() implies it. Any thread may call it. Return: 0; -EINVAL.
 */
GPUNVME_API int gpunvme_queue_retire(struct gpunvme_queue *queue);

struct gpunvme_queue_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_queue_info) */
	uint32_t devices;
	uint32_t queues;     /* pairs on each device */
	uint32_t stripe;     /* blocks of a volume; 0 on one device, as the next two: gpunvme_ns_get_info() has them */
	uint32_t lba_size;   /* bytes */
	uint64_t nblocks;
	uint32_t qid;        /* of the first pair, as depth, cq_depth and rung */
	uint32_t depth;
	uint32_t cq_depth;
	uint32_t poison;     /* 0, or the errno that ended the first pair of those that have ended (positive) */
	uint32_t ended;      /* pairs that have ended */
	uint32_t cids;       /* from here on sums over all pairs: commands that can be in flight or unclaimed */
	uint32_t in_flight;  /* commands the controllers have and have not completed */
	uint32_t recoveries; /* times a pair was created anew; views from before the last are over */
	uint64_t submitted;  /* since creation or the last recovery */
	uint64_t doorbells;  /* this and what follows up to errors: only with GPUNVME_QUEUE_STATS, else 0 */
	uint64_t drains;
	uint64_t completions;
	uint64_t errors; /* completions with a status other than success */
	/* "soft", "vfio-user", "vfio-host", "direct-db", "vram", "soft+vram", "cmb", "vram+cmb"; with "+fwd" where a CPU thread rings */
	char rung[16];
};

/**
 * gpunvme_queue_get_info() - how the queue is doing
 * @queue: the queue
 * @info:  filled; info->size must be set
 *
 * A snapshot, also while kernels run. Any thread may call it.
 * Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_queue_get_info(struct gpunvme_queue *queue, struct gpunvme_queue_info *info);

/*
 * How long commands took, by the clock of the threads: from the write of a command to the drain that found its completion. Counts
 * only grow: the difference of two snapshots is what lies between them, the sum over queues of one GPU is theirs together.
 */
struct gpunvme_queue_latency {
	size_t size; /* set by the caller to sizeof(struct gpunvme_queue_latency) */
	uint32_t ticks_per_ms;
	uint32_t reserved;
	uint64_t bucket[GPUNVME_LATENCY_BUCKETS]; /* commands by ticks; dq.h says where each bucket begins */
};

/**
 * gpunvme_queue_get_latency() - how long commands took
 * @queue:   a queue made with GPUNVME_QUEUE_LATENCY
 * @latency: filled, with the sum over all pairs; latency->size must be set
 *
 * Commands since creation or the last recovery, without the self-test's. Those of kernels that were compiled with
 * GPUNVME_COUNTERS 0 are missing. A snapshot, also while kernels run: each count is whole, a command that completes meanwhile is
 * in it or not. Any thread may call it.
 * Return: 0; -EINVAL; -EOPNOTSUPP the queue was made without GPUNVME_QUEUE_LATENCY; -EIO the threads' memory cannot be read.
 */
GPUNVME_API int gpunvme_queue_get_latency(struct gpunvme_queue *queue, struct gpunvme_queue_latency *latency);

/**
 * gpunvme_latency_ns() - the time within which a share of the commands ended
 * @latency:     counts, of one queue or added up
 * @per_million: the share: 500,000 is the median, 999,000 leaves one command in a thousand; 1,000,000 and more: all; 0: one
 *
 * Any thread may call it.
 * Return: nanoseconds, the end of the bucket in which the share is reached: never too little, and at most an eighth and one tick
 * too much; 0 when no command was counted.
 */
GPUNVME_API uint64_t gpunvme_latency_ns(const struct gpunvme_queue_latency *latency, uint32_t per_million);

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
 * Queues made with GPUNVME_QUEUE_SERVED have lanes that leave completions to it. Others may be served too. The thread rests longer
 * the less there is to do. It ends by itself when every queue has ended. Any thread may call it.
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
