/* SPDX-License-Identifier: MIT */
/*
 * Queues: submission and completion rings that threads of a kernel drive without the CPU.
 *
 * A queue belongs to the threads of one GPU, whose caches hold its state. Another GPU gets its own queues on the same device, and
 * may share buffers (gpunvme_mem_dbuf_for()). Any number of threads may use a queue at once. It has one pair of rings or several:
 * more pairs cost memory and give throughput. A queue over several devices is a volume. Its blocks are striped over the devices:
 * block b lies in stripe s = b / stripe, on device s mod n, in stripe s / n of that device. The media has no record of the volume.
 * The same devices in the same order with the same stripe are the same volume. On one device the volume is the namespace.
 *
 * gpunvme_queue_view() fills the descriptor that a kernel receives. It says which namespace and blocks the kernel may access, and
 * whether it may write.
 */
#ifndef GPUNVME_QUEUE_H
#define GPUNVME_QUEUE_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_queue;

#define GPUNVME_QUEUE_DEVICES 64u /* most devices of a queue */

enum gpunvme_queue_flags {
	GPUNVME_QUEUE_SGL = 1u << 0,         /* SGL data blocks instead of PRPs. -EOPNOTSUPP if the controller lacks them */
	GPUNVME_QUEUE_STATS = 1u << 1,       /* keep counters (gpunvme_queue_get_info()) */
	GPUNVME_QUEUE_NO_SELFTEST = 1u << 2, /* skip the self-test, which reads one block */
	GPUNVME_QUEUE_FORWARD = 1u << 3,     /* a CPU thread rings the doorbells, as it does for threads that cannot access them */
	GPUNVME_QUEUE_POLLED = 1u << 4,      /* a thread of the program takes the completions, by gpunvme_poll_queue() */
	GPUNVME_QUEUE_CQE16 = 1u << 5,       /* 16-byte loads of completions arrive whole here, as gpunvme_gpu_ordering_test() found */
	GPUNVME_QUEUE_NO_READBACK = 1u << 6, /* no SQE needs to be read back before its doorbell, as gpunvme_gpu_ordering_test() found */
	GPUNVME_QUEUE_VRAM = 1u << 7,        /* rings in memory of the GPU, or an error. Its buffers must lie there, too */
	GPUNVME_QUEUE_LATENCY = 1u << 8,     /* keep a histogram of latencies (gpunvme_queue_get_latency()) */
	GPUNVME_QUEUE_INVALIDATE = 1u << 9,  /* if memory of the GPU fails the self-test, try it again after
					     GPUNVME_COHERENCE_INVALIDATE, which is dangerous (unstable.h) */
	GPUNVME_QUEUE_CMB = 1u << 10,        /* the SQ in the drive's own memory (gpunvme_dev_info.cmb), unless that makes reads
					     clearly slower. With GPUNVME_QUEUE_NO_SELFTEST always */
	/*
	 * A thread of the library takes the completions of all pairs, so threads may submit and end. It goes on after a recovery. It
	 * ends in gpunvme_queue_destroy(), or when a device of the queue is closed. Includes GPUNVME_QUEUE_POLLED. Only for CPU
	 * threads: on a GPU, make the queue with GPUNVME_QUEUE_POLLED, and let one wave of a kernel call gpunvme_poll_queue().
	 */
	GPUNVME_QUEUE_COMPLETION_THREAD = 1u << 11,
	/*
	 * Rings in memory of the host, or with GPUNVME_QUEUE_CMB in the drive. Without this and GPUNVME_QUEUE_VRAM the queue gets the
	 * best placement that works now: not vram while buffers of the GPU in memory of the host are mapped to the device.
	 */
	GPUNVME_QUEUE_HOST = 1u << 12,
};

struct gpunvme_queue_opts {
	size_t size;             /* sizeof(struct gpunvme_queue_opts) */
	uint32_t flags;          /* enum gpunvme_queue_flags. An unknown bit is an error */
	uint32_t depth;          /* SQ entries, a power of two from 2 to max_depth. 0: the largest one that is <= min(1024, max_depth) */
	uint32_t cmd_timeout_ms; /* a command without completion for so long poisons its pair. 0: 30,000 */
	uint32_t queues;         /* pairs on each device. 0: one. For gpunvme_queue_create_striped() 8, or what all devices have */
	uint32_t stripe;         /* blocks, a power of two. 0: 128 KiB. Ignored on one device */
	uint32_t reserved;       /* 0 */
};
#define GPUNVME_QUEUE_OPTS_INIT { sizeof(struct gpunvme_queue_opts), 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_queue_create() - create a queue on one device
 * @dev:   the device
 * @gpu:   the processor whose threads will use it
 * @opts:  NULL for the defaults. Not kept
 * @queue: set on success. The caller owns it. @dev and @gpu must outlive it
 *
 * Places the rings and creates the CQ and then the SQ of each pair (Base Specification 5.4, 5.5). A self-test reads one block into
 * trusted host memory and into the candidate placement, and compares them. It never writes media. Any thread may call it. The
 * first queue of an AMD GPU on a drive starts a helper process for each path to the doorbells (gpunvme-probe). The process ends
 * before the call returns. A program that waits for all of its children sees it, too.
 * Return:
 * - 0: the queue is ready.
 * - -EINVAL: depth or another option.
 * - -ENOSPC: the controller has not granted so many queue pairs, or other queues use them.
 * - -EIO: the self-test failed.
 * - -EXDEV: buffers of @gpu are mapped to @dev in memory where the rings cannot lie (mem.h).
 * - -EBUSY: the doorbells could not be tested, because other threads rang them.
 * - -EOPNOTSUPP: an option that is not possible here.
 * - -EAGAIN: no more threads.
 * - -ENOMEM; -ECHILD; -ENODEV, -ESHUTDOWN, -ETIMEDOUT, -EPROTO as status.h says; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_queue_create(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_queue_opts *opts,
				     struct gpunvme_queue **queue);

/**
 * gpunvme_queue_create_striped() - create a queue over several devices: a volume
 * @devs:  the devices, in the order of the stripes, all different. Their default namespaces form the volume
 * @count: number of devices, 1 to GPUNVME_QUEUE_DEVICES
 * @gpu:   the processor whose threads will use it
 * @opts:  NULL for the defaults. Not kept
 * @queue: set on success. The caller owns it. The devices and @gpu must outlive it
 *
 * All namespaces must have blocks of one size. The volume has @count times the whole stripes of the smallest namespace. All or
 * nothing. Any thread may call it.
 * Return:
 * - 0: the queue is ready.
 * - -EINVAL: no or too many devices, one twice, different block sizes, or a stripe that is no power of two.
 * - -ERANGE: a namespace is smaller than one stripe, or the volume would have 2^64 bytes or more.
 * - -ENOSPC: a device has not so many free pairs.
 * - Otherwise as gpunvme_queue_create() and gpunvme_ns_get_info().
 */
GPUNVME_API int gpunvme_queue_create_striped(struct gpunvme_dev *const *devs, uint32_t count, struct gpunvme_gpu *gpu,
					     const struct gpunvme_queue_opts *opts, struct gpunvme_queue **queue);

/**
 * gpunvme_queue_destroy() - delete a queue and release its rings
 * @queue: NULL does nothing
 *
 * Deletes the SQs, then the CQs (Base Specification 5.6, 5.7). No kernel may use a view of @queue any more, nor a descriptor by
 * gpunvme_mem_map_queue(). The controller aborts commands in flight. Buffers stay mapped. No other thread may use @queue any more.
 * The completion thread (GPUNVME_QUEUE_COMPLETION_THREAD) ends first, also if the call fails.
 * Return:
 * - 0: the queue is gone. The buffers of its commands, also of those that timed out, are the caller's again.
 * - -EBUSY: a controller refused to delete a pair or did not complete that. Its commands may still move data. Then only
 *   gpunvme_queue_get_info() and this call may use the queue. This call succeeds after a reset of the controller.
 *   gpunvme_dev_close() frees the queue, for a volume that of its last device.
 * - -ECHILD.
 */
GPUNVME_API int gpunvme_queue_destroy(struct gpunvme_queue *queue);

enum gpunvme_view_flags {
	GPUNVME_VIEW_WRITE = 1u << 0, /* without it every write from a kernel returns -GPUNVME_EROFS */
	/*
	 * For kernels that write from memory which their GPU caches, as memory of hipMalloc(), on GPUs whose waves cannot write it
	 * back: the program calls gpunvme_gpu_fence() or hipStreamSynchronize() between the kernels that store data there and
	 * these kernels.
	 */
	GPUNVME_VIEW_FENCED = 1u << 1,
};

struct gpunvme_view {
	size_t size;      /* sizeof(struct gpunvme_view) */
	uint32_t flags;   /* enum gpunvme_view_flags */
	uint32_t nsid;    /* 0: the device's default namespace. For a struct gpunvme_dvol always 0 */
	uint64_t lba;     /* first block of the window. Kernels count bytes from its start */
	uint64_t nblocks; /* 0: up to the end of the namespace or the volume */
};
#define GPUNVME_VIEW_INIT { sizeof(struct gpunvme_view), 0, 0, 0, 0 }

/* As gpunvme_queue_view(), for a caller whose dq.h has the given version. @out is of @kind (enum gpunvme_kind) and @size bytes. */
GPUNVME_API int gpunvme_queue_view_v(struct gpunvme_queue *queue, const struct gpunvme_view *view, void *out, uint32_t kind,
				     uint32_t version, uint32_t size);

/**
 * gpunvme_queue_view() - get a descriptor of a queue for kernels
 * @queue: the queue
 * @view:  NULL: the whole default namespace or volume, read-only
 * @out:   filled. Plain data, valid until gpunvme_queue_destroy(). Any number of views of one queue may be in use at once. A
 *         struct gpunvme_dq * takes the view of a queue of one pair. A struct gpunvme_dvol * takes that of any queue, and calls of
 *         kernels choose device and pair
 *
 * In C this is a macro that selects by the type of @out. Views from before a recovery are invalid (gpunvme_queue_recover()). Any
 * thread may call it.
 * Return:
 * - 0: @out is filled.
 * - -EINVAL: an unknown flag, a struct gpunvme_dq of a queue of several pairs, or nsid with a struct gpunvme_dvol.
 * - -ENOENT: no such namespace.
 * - -ERANGE: the window is not within the namespace or the volume.
 * - -EROFS: GPUNVME_VIEW_WRITE for a namespace or device that is read-only. For a volume one of them is enough.
 * - -EOPNOTSUPP: writing without GPUNVME_VIEW_FENCED while a descriptor of cached memory of the queue's GPU exists
 *   (gpunvme_mem_dbuf()). Or a block is larger than a transfer of the controller.
 * - -EPROTONOSUPPORT: the caller was compiled with another version of dq.h.
 * - -ESHUTDOWN: a pair is poisoned, its controller is dead, or the queue is being destroyed.
 * - -ENOMEM; otherwise as gpunvme_ns_get_info().
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
 * gpunvme_queue_stop() - ask the threads of a queue to stop, or let them run again
 * @queue: the queue
 * @stop:  non-zero: threads that wait or submit get -GPUNVME_ECANCELED soon. Commands in flight go on. 0: calls of threads that
 *         begin after this call run normally again. For that it waits 1 ms
 *
 * Any thread may call it, also while kernels run.
 * Return: 0; -EINVAL.
 */
GPUNVME_API int gpunvme_queue_stop(struct gpunvme_queue *queue, int stop);

/**
 * gpunvme_queue_recover() - make a queue usable again after a time-out or a protocol error
 * @queue: the queue
 *
 * A queue with one pair: recovers that pair, also if it has not ended. A queue with several pairs: recovers those that have ended,
 * if any. The others go on, unless a controller is reset. If one pair cannot be recovered, the rest still are.
 *
 * Aborts the commands of the pair, deletes it and creates it again, with fresh rings and state (Base Specification 5.1, 5.4 to
 * 5.7). If the controller refuses or does not complete that, it is reset. Then all queues of the device end, and all are created
 * again. Threads that wait get the status with which the controller ended their command, or -GPUNVME_ESHUTDOWN. They get it only
 * after the controller has released their buffers.
 *
 * Views from before the call are of the old pairs: take new ones with gpunvme_queue_view(). Descriptors of buffers stay valid. The
 * library keeps the memory of an old pair that threads might still access, and its queue identifier, until gpunvme_queue_retire().
 * Call gpunvme_queue_stop() again if the queue was stopped. Any thread may call it, also while kernels run. With
 * gpunvme_dev_opts.watchdog_ms a thread of the library does the same.
 * Return: (of several pairs, for the first that could not be recovered)
 * - 0: the queue is usable.
 * - -ENOSPC: no other queue identifier is free, and threads of a GPU may still ring the old doorbell. End their kernels, call
 *   gpunvme_queue_retire(), then call again.
 * - -ENODEV, -ETIMEDOUT, -EIO: the controller could not be reset. It is dead, and threads get -GPUNVME_ENODEV.
 * - -ESHUTDOWN: gpunvme_queue_destroy() was called before, and returned -EBUSY.
 * - -EINVAL; -ENOMEM; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_queue_recover(struct gpunvme_queue *queue);

/**
 * gpunvme_queue_retire() - release what a queue keeps for views from before its last recovery
 * @queue: the queue. No kernel may use any view of it
 *
 * A watchdog, gpunvme_dev_reset() by another thread, or the recovery of another queue may recover this queue at any time. So every
 * view may be an old one. Take the next view after the call: a view that was taken before may use what the call frees.
 * gpunvme_queue_destroy() includes it. Any thread may call it.
 * Return: 0; -EINVAL.
 */
GPUNVME_API int gpunvme_queue_retire(struct gpunvme_queue *queue);

struct gpunvme_queue_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_queue_info) */
	uint32_t devices;
	uint32_t queues;     /* pairs on each device */
	uint32_t stripe;     /* blocks of a volume. On one device 0, as the next two: see gpunvme_ns_get_info() */
	uint32_t lba_size;   /* bytes */
	uint64_t nblocks;
	uint32_t qid;        /* of the first pair, as are depth, cq_depth and placement */
	uint32_t depth;
	uint32_t cq_depth;
	uint32_t poison;     /* 0, or the errno that ended the first pair of those that have ended (positive) */
	uint32_t ended;      /* pairs that have ended */
	uint32_t cids;       /* this and all below are sums over the pairs: commands that can be in flight or unclaimed */
	uint32_t in_flight;  /* commands that the controllers have not completed */
	uint32_t recoveries; /* times a pair was created again. Views from before the last one are invalid */
	uint64_t submitted;  /* commands since creation or the last recovery */
	uint64_t doorbells;  /* doorbells to errors: only with GPUNVME_QUEUE_STATS, else 0 */
	uint64_t drains;
	uint64_t completions;
	uint64_t errors; /* completions with a status other than success */
	/* "soft", "vfio-user", "vfio-host", "direct-db", "vram", "soft+vram", "cmb", "vram+cmb". With "+fwd" a CPU thread rings */
	char placement[16];
};

/**
 * gpunvme_queue_get_info() - get state and counters of a queue
 * @queue: the queue
 * @info:  filled. Set info->size before
 *
 * A snapshot, also while kernels run. Any thread may call it.
 * Return: 0; -EINVAL: info->size is too small.
 */
GPUNVME_API int gpunvme_queue_get_info(struct gpunvme_queue *queue, struct gpunvme_queue_info *info);

/*
 * A histogram of latencies, by the clock of the threads: from the write of a command to the drain that found its completion.
 * Counts only grow. Subtract two snapshots for the time between them, and add those of queues of one GPU for their sum.
 */
struct gpunvme_queue_latency {
	size_t size; /* set by the caller to sizeof(struct gpunvme_queue_latency) */
	uint32_t ticks_per_ms;
	uint32_t reserved;
	uint64_t bucket[GPUNVME_LATENCY_BUCKETS]; /* commands by ticks. dq.h says where each bucket begins */
};

/**
 * gpunvme_queue_get_latency() - get the histogram of latencies of a queue
 * @queue:   a queue made with GPUNVME_QUEUE_LATENCY
 * @latency: filled with the sum over all pairs. Set latency->size before
 *
 * Counts commands since creation or the last recovery, without the self-test. Kernels compiled with GPUNVME_COUNTERS 0 count none.
 * A snapshot, also while kernels run: it may or may not have a command that completes meanwhile, but each count is whole. Any
 * thread may call it.
 * Return: 0; -EINVAL; -EOPNOTSUPP: the queue was made without GPUNVME_QUEUE_LATENCY; -EIO: the memory of the threads cannot be
 * read.
 */
GPUNVME_API int gpunvme_queue_get_latency(struct gpunvme_queue *queue, struct gpunvme_queue_latency *latency);

/**
 * gpunvme_latency_ns() - get the time within which a share of the commands completed
 * @latency:     counts, of one queue or added up
 * @per_million: the share: 500,000 is the median, 999,000 leaves one command in a thousand. 1,000,000 and more: all. 0: the
 *               fastest
 *
 * Any thread may call it.
 * Return: nanoseconds, the end of the bucket that reaches the share. It is never too little, and at most an eighth and one tick
 * too much. 0 if no command was counted, or @latency is NULL.
 */
GPUNVME_API uint64_t gpunvme_latency_ns(const struct gpunvme_queue_latency *latency, uint32_t per_million);

#ifdef __cplusplus
}
#endif
#endif
