/* SPDX-License-Identifier: MIT */
/*
 * Transfers in the order of a stream, for programs without a kernel of their own. The library's kernel is enqueued on a stream of
 * CUDA, of HIP or of CPU threads. It carries out a list of transfers between a queue, a volume or a file and mapped memory. On a
 * GPU it needs no CPU thread and no callback.
 *
 * The list lies in memory that the threads can access. The kernel reads it when the stream gets there, so work that comes earlier
 * in the stream may still write positions and lengths.
 */
#ifndef GPUNVME_RUN_H
#define GPUNVME_RUN_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_stream;

#define GPUNVME_TRANSFER_WRITE 1u /* gpunvme_transfer.flags: from the buffer to the drive, also together with GPUNVME_FUA */

/* One transfer. It may lie in memory that the CPU cannot access. */
struct gpunvme_transfer {
	uint64_t pos;    /* bytes from the start of the view's window, or of the file */
	uint64_t offset; /* bytes from the start of the buffer */
	uint64_t len;    /* bytes */
	uint32_t flags;  /* 0: a read; GPUNVME_TRANSFER_WRITE; GPUNVME_TRANSFER_WRITE | GPUNVME_FUA */
	uint32_t status; /* set: the NVMe status of a command that failed, where `result` is -GPUNVME_EIO; else 0 */
	int64_t result;  /* set: bytes that were moved, or a negative GPUNVME_E*; see gpunvme_run_on_stream() */
};

enum gpunvme_run_flags {
	GPUNVME_RUN_STOP = 1u << 0, /* one transfer after another, in the order of the list; none begins after the first that fails */
};

struct gpunvme_run {
	size_t size;    /* sizeof(struct gpunvme_run) */
	uint32_t flags; /* enum gpunvme_run_flags; an unknown bit is an error */
	uint32_t waves; /* at most 2048, each of which moves one transfer at a time; 0: one for each transfer, at most 64.
			 * `cpu` has 8, and takes no more than make 64 threads */
	/* A queue or a file: `dq` and `dbuf`. A volume: `vol` and `vbuf`. The structures are copied. */
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	const struct gpunvme_dvol *vol;
	const struct gpunvme_dvbuf *vbuf;
	const struct gpunvme_dfile *file; /* with `dq`, or NULL */
	uint64_t bounce;     /* of a file: offset of a range of the buffer through which parts of blocks go, a multiple of 4 */
	uint64_t bounce_len; /* its bytes, one block for each thread; fewer make fewer waves. 0: parts of blocks are -GPUNVME_ERANGE */
	uint64_t list;       /* address for the threads, a multiple of 8, of struct gpunvme_transfer */
	uint32_t count;      /* 1 to 16 million */
	uint32_t reserved;   /* 0 */
};
#define GPUNVME_RUN_INIT { sizeof(struct gpunvme_run), 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0 }

/**
 * gpunvme_run_on_stream() - enqueue a list of transfers on a stream
 * @gpu:    the processor that runs the threads, as of the queues
 * @stream: of `cuda:N`: a CUstream or cudaStream_t of that GPU's primary context, which the CUDA runtime and frameworks use. NULL
 *          and cudaStreamLegacy are its default stream. cudaStreamPerThread is that of this thread: a program whose default stream
 *          is per thread passes that, not 0. Of `hsa:N`: a hipStream_t of that GPU. NULL and hipStreamLegacy are its default
 *          stream, hipStreamPerThread is that of this thread. Of `cpu`: a stream of gpunvme_stream_create(); NULL carries out the
 *          list before the call returns
 * @run:    what to do; not kept
 *
 * The call returns when the kernel is enqueued. Its place in the order is that of any kernel: it sees what was enqueued before, and
 * what is enqueued after it sees the data and all results. Transfers of one list have no order among each other, except with
 * GPUNVME_RUN_STOP, and their ranges must not overlap. @gpu stays open, and views, buffer and list stay as they are, until the
 * stream has passed the kernel. A stream may be destroyed before that, as far as its owner allows it.
 *
 * Each transfer gets its own `result`:
 * - The bytes that were moved. These are fewer than `len` only for a read across the end of a file.
 * - -GPUNVME_EIO an NVMe command failed, and `status` says how. -GPUNVME_ECANCELED with GPUNVME_RUN_STOP: a transfer before it
 *   failed; else gpunvme_qp_stop(). Otherwise as gpunvme_read() and gpunvme_write() of <gpunvme/device.h> for the queue, the volume
 *   or the file. Then any part of the range may have been moved: a buffer holds no data after a failed read.
 * - -GPUNVME_EAGAIN it was not begun, or is not complete. Each wave begins with this value for its own transfers, and when the
 *   kernel has ended no transfer has an old result. A CPU that looks before that sets it in the whole list before the call.
 * A thread stores the result after the data. A CPU may look at it with acquire semantics while the kernel runs.
 *
 * Every wait of the kernel is bounded by the command time-out of its queues. A drive that dies ends all transfers: those under way
 * with -GPUNVME_ETIMEDOUT or -GPUNVME_ENODEV, the rest with -GPUNVME_ESHUTDOWN.
 *
 * The first call with @gpu loads the kernels. The CUDA driver compiles them, and waits without limit for kernels that run there. So
 * make a call, which may be of one transfer of 0 bytes, before a kernel runs that waits for a later one.
 *
 * A stream that is captured (cuStreamBeginCapture()) gets a kernel node, which has a copy of the views. @gpu stays open as long as
 * the graph. Capture anew after the recovery of a queue. HIP's capture does the same (not tested on hardware).
 *
 * AMD GPUs keep lines of some memory in caches that no kernel empties: of coarse-grained memory, as hipMalloc() returns, and of
 * fine-grained memory of the GPU where the runtime has no uncached memory. The drive and the next kernel of the stream could see
 * old data there, so such a buffer is refused. The list may lie there for kernels, not for the CPU.
 *
 * Any thread may call it, several at a time.
 * Return: 0 it is enqueued; -EINVAL an option, no source or two of them, a view that is none, an address that is no multiple of 8,
 * a bounce range without a file or at no multiple of 4, no transfer; -ERANGE the list, the buffer or the bounce range ends after
 * its allocation, or the bounce range has no block for each thread of a wave; -EFAULT list, buffer or table of the file is no
 * memory that the threads can access, or was freed; -EXDEV the stream, the queue or memory belongs to another GPU or context, or
 * the queue is gone (`cpu` does not see that); -EPROTONOSUPPORT a view of another version; -EOPNOTSUPP a driver that cannot use the
 * kernels, a HIP older than 6, or a buffer that an AMD GPU caches; -ENODEV there is no HIP, or it does not see the GPU; -ECHILD;
 * -ENOMEM; -EIO the GPU refuses the kernel or the stream, and the error message says why. When it is not 0 nothing was enqueued.
 * The next call tries again what failed.
 */
GPUNVME_API int gpunvme_run_on_stream(struct gpunvme_gpu *gpu, void *stream, const struct gpunvme_run *run);

/**
 * gpunvme_stream_create() - make a stream of CPU threads
 * @gpu:    `cpu`
 * @stream: set on success; the caller owns it
 *
 * A thread of the library takes what is enqueued, one list after another. Any thread may call it.
 * Return: 0; -EINVAL; -EOPNOTSUPP a GPU, which has streams of its own; -ECHILD; -ENOMEM; -EAGAIN no more threads.
 */
GPUNVME_API int gpunvme_stream_create(struct gpunvme_gpu *gpu, struct gpunvme_stream **stream);

/**
 * gpunvme_stream_wait() - wait until a stream has carried out what was enqueued before the call
 * @stream: of gpunvme_stream_create()
 * Any thread may call it, several at a time. Return: 0, also when transfers failed; -EINVAL; -ECHILD.
 */
GPUNVME_API int gpunvme_stream_wait(struct gpunvme_stream *stream);

/**
 * gpunvme_stream_destroy() - end a stream after all that was enqueued
 * @stream: of gpunvme_stream_create(), or NULL. No other thread may use it any more
 */
GPUNVME_API void gpunvme_stream_destroy(struct gpunvme_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
