/* SPDX-License-Identifier: MIT */
/*
 * I/O for programs without their own kernel: kernels of the library, on any kind of threads, move data between drives and mapped
 * memory.
 *
 *   gpunvme_run_copy        one range of blocks. Waits
 *   gpunvme_run_commands       a list of commands of any kind, each with a status. Waits
 *   gpunvme_run_on_stream   a list of transfers of bytes, in the order of a stream of CUDA, HIP or CPU threads. Does not wait
 *   gpunvme_stream_create, _wait, _destroy   a stream of CPU threads
 *   gpunvme_landing_create, _destroy   memory of the host for data of targets that the drive cannot access
 *   gpunvme_landing_get, _put   any memory by its pointer as the target of transfers
 */
#ifndef GPUNVME_RUN_H
#define GPUNVME_RUN_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>
#include <gpunvme/mem.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpunvme_copy_flags {
	GPUNVME_COPY_WRITE = 1u << 0, /* from the buffer to the blocks. Else from the blocks to the buffer */
	GPUNVME_COPY_FLUSH = 1u << 1, /* move nothing, but make completed writes of the first view durable */
	GPUNVME_COPY_FUA = 1u << 2,   /* with _WRITE: the blocks are on the media when it ends */
};

struct gpunvme_copy {
	size_t size;       /* sizeof(struct gpunvme_copy) */
	uint32_t flags;    /* enum gpunvme_copy_flags. An unknown bit is an error */
	uint32_t threads;  /* at most 65536. 0: 64 for each queue */
	uint32_t step;     /* blocks that a thread moves with one call. 0: one command of the first view, at most 256 KiB. A write that is
			    * atomic on the drive (gpunvme_dq, atomic) is then one command */
	uint32_t reserved; /* 0 */
	uint64_t lba;      /* first block, in the views */
	uint64_t nblocks;  /* their data is at the start of the buffer */
	/* Set: the first transfer that failed, in LBA order. 0 blocks: none failed, nothing was moved, or a flush failed. */
	uint64_t failed_lba;
	uint32_t failed_nblocks;
	uint32_t failed_reserved;
};
#define GPUNVME_COPY_INIT { sizeof(struct gpunvme_copy), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_run_copy() - move a range of blocks with threads of the library, and wait
 * @gpu:    the processor that runs the threads, as of the queues
 * @dq:     views of the queues, all of the same blocks. Threads spread over them
 * @queues: number of views
 * @dbuf:   the buffer
 * @copy:   what to move. Its failed_* fields are set also on failure
 *
 * It ends at the latest when its queues have moved nothing for the longest of their command time-outs, and 10 s. Any thread may
 * call it, several at a time.
 * Return:
 * - 0: all blocks were moved.
 * - The failure of the first transfer that failed, in LBA order, as the functions of <gpunvme/device.h> return it.
 * - -EINVAL: no queue, no block, a bad option, or a view of another kind.
 * - -EPROTONOSUPPORT: a view of another version, or none.
 * - -ERANGE: the blocks are not all within each view, or are more than the buffer holds. Nothing was moved.
 * - -EXDEV: a queue or the buffer belongs to another GPU.
 * - -ETIMEDOUT: also if the GPU does not end its kernel. Its threads may still use queues and buffer.
 * - -EIO: the GPU failed; -ENOMEM; -ECHILD.
 */
GPUNVME_API int gpunvme_run_copy(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				 const struct gpunvme_dbuf *dbuf, struct gpunvme_copy *copy);

struct gpunvme_command {
	uint64_t lba;     /* first block, in the view */
	uint64_t offset;  /* bytes from the start of the buffer to its data, or to the 16 bytes of a deallocation */
	uint32_t nblocks; /* any number, split as by gpunvme_read(). 0 for a flush */
	uint32_t op;      /* GPUNVME_IO_READ, _WRITE (with GPUNVME_RW_FUA), _FLUSH, _WRITE_ZEROES or _DSM, which deallocates */
	uint32_t queue;   /* index of its view */
	int32_t status;   /* set: as the function of <gpunvme/device.h> returned. -GPUNVME_EAGAIN: its thread ended before it */
};

struct gpunvme_commands {
	size_t size;    /* sizeof(struct gpunvme_commands) */
	uint32_t threads; /* 1 to 65536 */
	uint32_t each;    /* commands of each thread, one after another. threads * each: at most 16 Mi */
	struct gpunvme_command *cmd; /* the caller's: thread n has those from n * each on */
};
#define GPUNVME_COMMANDS_INIT { sizeof(struct gpunvme_commands), 0, 0, NULL }

/**
 * gpunvme_run_commands() - carry out a list of commands with threads of the library, and wait
 * @gpu:    the processor that runs the threads, as of the queues
 * @dq:     views of the queues
 * @queues: number of views
 * @dbuf:   the buffer of all commands. Parts of different threads must not overlap
 * @commands: the commands, and their results
 *
 * A thread goes on after an NVMe status, and after a command that is refused before it is in the queue. It ends with the first
 * command that ended with its queue or timed out. The call ends at the latest when its queues have moved nothing for the longest
 * of their command time-outs and 10 s. Long lists have more time. Any thread may call it, several at a time. An AMD GPU runs them
 * one after another.
 * Return: (if it is not 0, no status was set)
 * - 0: each command has its status.
 * - -EINVAL: no queue, no command, too many, an unknown operation, a command with a queue that @dq lacks, or a view of another
 *   kind.
 * - -EPROTONOSUPPORT: a view of another version, or none.
 * - -EXDEV: a queue or the buffer belongs to another GPU.
 * - -ETIMEDOUT: the GPU does not end its kernel. Its threads may still use queues and buffer.
 * - -EIO: the GPU failed; -ENOMEM: no memory or no threads; -ECHILD.
 */
GPUNVME_API int gpunvme_run_commands(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				     const struct gpunvme_dbuf *dbuf, struct gpunvme_commands *commands);

/*
 * Transfers in the order of a stream, between a queue, a volume or a file and mapped memory. The library's kernel is enqueued on
 * the stream, and needs no CPU thread and no callback on a GPU.
 *
 * The list lies in memory that the threads can access. The kernel reads it when the stream reaches the kernel. So work that comes
 * earlier in the stream may still write positions and lengths.
 */
struct gpunvme_stream;

#define GPUNVME_TRANSFER_WRITE 1u /* gpunvme_transfer.flags: from the buffer to the drive, also together with GPUNVME_FUA */

/* One transfer. It may lie in memory that the CPU cannot access. */
struct gpunvme_transfer {
	uint64_t pos;    /* bytes from the start of the view's window, or of the file */
	uint64_t offset; /* bytes from the start of the buffer */
	uint64_t len;    /* bytes */
	uint32_t flags;  /* 0: a read. GPUNVME_TRANSFER_WRITE: a write, perhaps with GPUNVME_FUA */
	uint32_t status; /* set: the NVMe status of the command that failed, if `result` is -GPUNVME_EIO. Else 0 */
	int64_t result;  /* set: bytes that were moved, or a negative GPUNVME_E*. See gpunvme_run_on_stream() */
};

enum gpunvme_run_flags {
	GPUNVME_RUN_STOP = 1u << 0, /* one transfer after another, in the order of the list. None begins after the first that fails */
};

struct gpunvme_run {
	size_t size;    /* sizeof(struct gpunvme_run) */
	uint32_t flags; /* enum gpunvme_run_flags. An unknown bit is an error */
	uint32_t waves; /* at most 2048, each of which moves one transfer at a time. 0: one for each transfer, at most 64.
			 * On `cpu` 0 means 8 at most, and there are 64 threads at most */
	/* A queue or a file: `dq` and either `dbuf` or `target`. A volume: `vol`, and `vbuf` or `target`. The structures are copied. */
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	const struct gpunvme_dvol *vol;
	const struct gpunvme_dvbuf *vbuf;
	const struct gpunvme_dfile *file; /* with `dq`, or NULL */
	uint64_t bounce;     /* for a file: offset of a range of the buffer for parts of blocks, a multiple of 4 */
	uint64_t bounce_len; /* its bytes: one block for each thread, fewer make fewer waves. 0: parts of blocks are -GPUNVME_ERANGE */
	uint64_t list;       /* address for the threads, a multiple of 8, of struct gpunvme_transfer */
	uint32_t count;      /* transfers, 1 to 16 Mi */
	uint32_t reserved;   /* 0 */
	const struct gpunvme_target *target; /* memory by its pointer, of gpunvme_landing_get(). Not with a bounce range */
};
#define GPUNVME_RUN_INIT { sizeof(struct gpunvme_run), 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL }

/**
 * gpunvme_run_on_stream() - enqueue a list of transfers on a stream
 * @gpu:    the processor that runs the threads, as of the queues
 * @stream: for `cuda:N`: a CUstream or cudaStream_t of that GPU's primary context, which the CUDA runtime and frameworks use. NULL
 *          and cudaStreamLegacy are its default stream. cudaStreamPerThread is that of this thread: a program whose default stream
 *          is per thread passes that, not 0. For `hsa:N`: a hipStream_t of that GPU. NULL and hipStreamLegacy are its default
 *          stream, hipStreamPerThread is that of this thread. For `cpu`: a stream of gpunvme_stream_create(). NULL carries out the
 *          list before the call returns
 * @run:    what to do. Not kept
 *
 * The call returns when the kernel is enqueued. The kernel has its place in the order as any kernel: it sees what was enqueued
 * before, and what is enqueued after it sees the data and all results. Transfers of one list have no order among each other,
 * except with GPUNVME_RUN_STOP, and their ranges must not overlap. @gpu stays open, and views, buffer and list stay as they are,
 * until the stream has passed the kernel. A stream may be destroyed before that, if its owner allows it.
 *
 * Each transfer gets its own `result`:
 * - The bytes that were moved. These are fewer than `len` only for a read across the end of a file.
 * - -GPUNVME_EIO: an NVMe command failed, and `status` says how.
 * - -GPUNVME_ECANCELED: gpunvme_queue_stop(), or with GPUNVME_RUN_STOP a transfer before it failed.
 * - -GPUNVME_EAGAIN: it was not begun, or is not complete. Each wave begins with this value for its own transfers, and when the
 *   kernel has ended no transfer has an old result. A CPU that looks before that sets it in the whole list before the call.
 * - Otherwise as gpunvme_read() and gpunvme_write() of <gpunvme/device.h> for the queue, the volume or the file.
 *
 * After a failure any part of the range may have been moved, so the buffer of a failed read holds no data. A thread stores the
 * result after the data. A CPU may look at it with acquire semantics while the kernel runs. The command time-out of the queues
 * bounds every wait of the kernel. A drive that dies ends all transfers: those in progress with -GPUNVME_ETIMEDOUT or
 * -GPUNVME_ENODEV, the rest with -GPUNVME_ESHUTDOWN.
 *
 * The first call with @gpu loads the kernels. The CUDA driver compiles them, and waits without limit for kernels that run there.
 * If a kernel waits for a later one, make a call before it runs. A call with one transfer of 0 bytes is enough.
 *
 * A stream that is captured (cuStreamBeginCapture(), hipStreamBeginCapture()) gets a kernel node, which has a copy of the views.
 * The call does not end the capture, also if it loads the kernels. @gpu stays open as long as the graph. Capture again after the
 * recovery of a queue. HIP's captures are tested with a mock of its runtime, not on hardware.
 *
 * AMD GPUs keep lines of some memory in caches that no kernel empties. That is coarse-grained memory, such as that of hipMalloc()
 * and hipHostMallocNonCoherent, and on many GPUs fine-grained memory that is not uncached. The drive and the next kernel of the
 * stream could see old data there, so such a buffer is refused if HIP's runtime reports it. The list may lie there for kernels,
 * not for the CPU. Memory of the host may be cached after a copy by hipMemcpy(), too: call gpunvme_gpu_fence() before.
 *
 * With a target that lands, a wave takes a slot of the landing memory for each 256 KiB. It waits while other waves have all slots,
 * for a bounded time. A read takes any position and length, a write takes whole blocks, and both take any offset. A write of more
 * than 256 KiB is several commands, also if it would be atomic on the drive (gpunvme_dq, atomic). The slot of a command that did
 * not complete is not used again. When no slot is left, transfers end with -GPUNVME_EBUSY: put the targets, then destroy and
 * create the landing memory. After gpunvme_queue_stop() no transfer takes a slot, and transfers wait for commands that a drive
 * has. Transfers of files and volumes land with any target. A view of all pairs of one device (gpunvme_queue_opts.queues) is a
 * volume, too: one list then has the rate of all pairs.
 *
 * Any thread may call it, several at a time.
 * Return: (if it is not 0, nothing was enqueued, and the next call tries again what failed)
 * - 0: it is enqueued.
 * - -EINVAL: a bad option, no transfer or too many, no source or two, a view of another kind, or an address that is no multiple of
 *   8. Or a target that gpunvme_landing_get() did not fill. Or a bounce range without a file or at no multiple of 4.
 * - -ERANGE: the list, the buffer or the bounce range ends after its allocation, or the bounce range has no block for each thread
 *   of a wave.
 * - -EFAULT: list, buffer or table of the file is no memory that the threads can access, or was freed (`cpu` does not see that).
 * - -EXDEV: the stream, the queue or memory belongs to another GPU or context, or the queue is gone (`cpu` does not see that). Or
 *   the target is of another @gpu or of other drives than the queue.
 * - -EPROTONOSUPPORT: a view of another version, or none.
 * - -EOPNOTSUPP: a driver that cannot use the kernels, or a HIP older than 6. Or a buffer that an AMD GPU caches, or blocks that
 *   are too large for a landing slot.
 * - -ENODEV: there is no HIP, or it does not see the GPU.
 * - -EIO: the GPU refuses the kernel or the stream, and the error message says why.
 * - -ECHILD; -ENOMEM.
 */
GPUNVME_API int gpunvme_run_on_stream(struct gpunvme_gpu *gpu, void *stream, const struct gpunvme_run *run);

/*
 * Memory of the program as the target of transfers, by its pointer: of cudaMalloc(), cuMemMap(), the pools of frameworks,
 * hipMalloc() or the host. If the drive can access it, it is registered once and found again (gpunvme_mem_get()), and data moves
 * directly. Otherwise data lands: the drive moves it to and from landing memory, and the kernel in the stream copies between there
 * and the target. Any number of lists, streams and threads share one landing memory.
 */
struct gpunvme_landing;

enum gpunvme_landing_flags {
	GPUNVME_LANDING_ALWAYS = 1u << 0, /* data lands also if the drive can access the target: reads then take any byte */
};

struct gpunvme_landing_opts {
	size_t size;	/* sizeof(struct gpunvme_landing_opts) */
	uint32_t flags; /* enum gpunvme_landing_flags. An unknown bit is an error */
	uint32_t slots; /* of 264 KiB, at most 4096. A wave uses one at a time. 0: 64 */
};
#define GPUNVME_LANDING_OPTS_INIT { sizeof(struct gpunvme_landing_opts), 0, 0 }

struct gpunvme_landing_info {
	size_t size;	     /* sizeof(struct gpunvme_landing_info) */
	uint64_t slot_bytes; /* of one slot */
	uint32_t slots;
	uint32_t retired;    /* slots that are not used any more, because a command that uses them did not complete */
	uint32_t direct;     /* targets in use that the drive can access directly */
	uint32_t landing;    /* targets in use whose data lands */
};

enum gpunvme_target_way {
	GPUNVME_TARGET_DIRECT = 1,  /* the drive accesses the memory. Lists with a file or a volume land all the same */
	GPUNVME_TARGET_LANDING = 2, /* data goes through landing memory */
};

/* Memory as the target of transfers. Filled by gpunvme_landing_get(). */
struct gpunvme_target {
	uint32_t way;	     /* enum gpunvme_target_way */
	uint32_t slots;	     /* of the landing memory. 0: none */
	uint64_t base;	     /* address of the memory for the threads */
	uint64_t len;	     /* bytes */
	uint64_t turns;	     /* address of words of the landing memory for the threads. 0: none */
	uint64_t slot_bytes;
	struct gpunvme_mem_use use; /* what the drive accesses */
	struct gpunvme_landing *landing;
};

/**
 * gpunvme_landing_create() - allocate landing memory
 * @queue:   a queue of the GPU and the device, or of the devices of a volume, that lists use. Not kept. They stay open until all
 *           targets were put
 * @opts:    NULL for the defaults. Not kept
 * @landing: set on success. The caller owns it and frees it by gpunvme_landing_destroy()
 *
 * It lies where the rings of @queue lie, and is mapped to all devices of @queue. If memory of the GPU is cached there, or a device
 * cannot reach it, memory of the host is tried. A drive on PCIe takes that only for queues with GPUNVME_QUEUE_HOST. Other queues of
 * the same GPU and devices may use it, too. With several devices all data lands. Any thread may call it.
 * Return: 0; -EINVAL; -ESHUTDOWN: a device of the queue was closed; otherwise as gpunvme_mem_alloc(), gpunvme_mem_map() and
 * gpunvme_mem_dbuf().
 */
GPUNVME_API int gpunvme_landing_create(struct gpunvme_queue *queue, const struct gpunvme_landing_opts *opts,
				       struct gpunvme_landing **landing);

/**
 * gpunvme_landing_destroy() - free landing memory
 * @landing: NULL does nothing. No list that a stream still has may use it, and no other thread
 * Return: 0; -EBUSY: a target is in use, or the device may still write there (gpunvme_mem_free()), and @landing remains; -ECHILD.
 */
GPUNVME_API int gpunvme_landing_destroy(struct gpunvme_landing *landing);

/**
 * gpunvme_landing_get_info() - get size and use of landing memory
 * @landing: the landing memory
 * @info:    filled. Set info->size before
 *
 * Any thread may call it.
 * Return: 0; -EINVAL; -EIO: the GPU has failed; -ENOMEM; -ECHILD.
 */
GPUNVME_API int gpunvme_landing_get_info(struct gpunvme_landing *landing, struct gpunvme_landing_info *info);

/**
 * gpunvme_landing_get() - begin to use memory as the target of transfers
 * @landing: the landing memory
 * @ptr:     first byte, at any address: of CUDA, HIP or the process
 * @len:     bytes, within one allocation
 * @flags:   0 or enum gpunvme_get_flags
 * @target:  filled on success. Each success needs a gpunvme_landing_put()
 *
 * target->way says how data moves. To and from files and volumes it always lands. Memory that an AMD GPU caches lands, and so does
 * memory at no multiple of 4. For a direct transfer the rules of `dbuf` apply. The caller keeps the memory until
 * gpunvme_landing_put(). Any thread may call it.
 * Return:
 * - 0: also with GPUNVME_TARGET_LANDING if gpunvme_mem_get() returns -EOPNOTSUPP or -EXDEV, and the threads can access the memory.
 * - -EFAULT: neither the drive nor the threads can access it.
 * - -ERANGE: it ends after its allocation.
 * - -EXDEV: it is memory of another GPU.
 * - Otherwise as gpunvme_mem_get().
 */
GPUNVME_API int gpunvme_landing_get(struct gpunvme_landing *landing, void *ptr, size_t len, uint32_t flags,
				    struct gpunvme_target *target);

/**
 * gpunvme_landing_put() - end the use of a target
 * @target: as gpunvme_landing_get() has filled it. Zeroed when 0 is returned. NULL and zeroes are ignored
 *
 * No list that a stream still has may use it. Any thread may call it.
 * Return: as gpunvme_mem_put().
 */
GPUNVME_API int gpunvme_landing_put(struct gpunvme_target *target);

/**
 * gpunvme_stream_create() - create a stream of CPU threads
 * @gpu:    `cpu`
 * @stream: set on success. The caller owns it and ends it by gpunvme_stream_destroy()
 *
 * A thread of the library carries out what is enqueued, one list after another. Any thread may call it.
 * Return: 0; -EINVAL; -EOPNOTSUPP: @gpu is a GPU, which has its own streams; -ECHILD; -ENOMEM; -EAGAIN: no more threads.
 */
GPUNVME_API int gpunvme_stream_create(struct gpunvme_gpu *gpu, struct gpunvme_stream **stream);

/**
 * gpunvme_stream_wait() - wait until a stream has carried out what was enqueued before the call
 * @stream: a stream of gpunvme_stream_create()
 *
 * Any thread may call it, several at a time.
 * Return: 0, also if transfers failed; -EINVAL; -ECHILD.
 */
GPUNVME_API int gpunvme_stream_wait(struct gpunvme_stream *stream);

/**
 * gpunvme_stream_destroy() - end a stream after all that was enqueued
 * @stream: a stream of gpunvme_stream_create(). NULL does nothing. No other thread may use it any more
 * Return: 0; -ECHILD.
 */
GPUNVME_API int gpunvme_stream_destroy(struct gpunvme_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
