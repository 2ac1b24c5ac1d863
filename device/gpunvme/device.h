/* SPDX-License-Identifier: MIT */
/*
 * NVMe from a kernel: read, write, flush, zero and discard. The source is a queue that many threads share, a volume of several
 * queues, or a file that the host has opened.
 *
 * The same source compiles for AMD GPUs (HIP, clang 19 or newer), NVIDIA GPUs (nvcc, clang) and CPU threads (C11, C++17). A kernel
 * receives views: a struct gpunvme_dq (from gpunvme_queue_view) and struct gpunvme_dbuf (from gpunvme_mem_dbuf). For a volume these
 * are struct gpunvme_dvol and struct gpunvme_dvbuf. For a file it also has a struct gpunvme_dfile (from gpunvme_file_view). It
 * passes them to the functions below. The type of the first argument selects the function: a pointer to the queue, to the volume,
 * or to the thread's cursor, a struct gpunvme_cursor that names queue and file. A call that a source lacks does not compile:
 *
 *                                                                          queue   volume   file
 *   gpunvme_read, _write                                                   yes     yes      yes
 *   gpunvme_flush, _zero, _discard                                         yes     yes      no
 *   gpunvme_wave_read, _write, _read_one, _write_one                       yes     yes      yes
 *   gpunvme_block_read, _write                                             no      yes      yes
 *   gpunvme_submit_read, _write                                            yes     yes      yes
 *   gpunvme_submit_zero, _discard                                          yes     yes      no
 *   gpunvme_poll, _wait, _detach                                           yes     yes      no
 *   gpunvme_submit_flush, gpunvme_wait_any, _poll_queue                    yes     no       no
 *
 * device/cache.h has pages and elements of each of them through a page cache, with a table of its own.
 *
 * To flush or poll a file, call the functions of its queue. In C the calls that several sources have are macros. So they have no
 * address, members and functions of yours cannot have their names, and a first argument with a comma needs parentheses.
 *
 * Rules for all calls:
 *
 * - Any thread may call at any time, together with others or alone, with its own arguments. Threads of a wave that call together
 *   share the work. Each thread gets its own result: 0, a negative GPUNVME_E* (dq.h), or the positive NVMe status of its command.
 * - Positions and lengths are bytes. `pos` counts from the start of the view's window. `pos` and `len` are multiples of the block
 *   (for files only in writes and submitted reads).
 *   `offset` counts from the start of the buffer, and iova + offset must be a multiple of 4. A transfer must lie inside both.
 * - A blocking transfer is split if one command cannot carry it. It is also split at a boundary at which the drive prefers
 *   transfers to end, except for a write of at most dq->atomic blocks. That is one command, which the drive writes atomically.
 *   Exceptions: a boundary of the drive itself (gpunvme_ns_info), the end of a stripe of a volume, more than 1 MiB by PRP lists.
 * - The queue's command time-out limits every wait. A queue on which a command timed out is poisoned. Commands in flight may still
 *   end with their own status, and new ones return -GPUNVME_ESHUTDOWN. The buffers of commands that never ended belong to the
 *   device until the host has destroyed or recovered the queue (gpunvme_queue_recover()).
 * - Common results, not repeated below:
 *  - -GPUNVME_EINVAL: no bytes, parts of blocks, an unaligned buffer, or another kind of descriptor.
 *  - -GPUNVME_ERANGE: outside the window or the buffer.
 *  - -GPUNVME_EMSGSIZE: 2^32 blocks or more (gpunvme_block_*: 2^47 or more are -GPUNVME_ERANGE).
 *  - -GPUNVME_EROFS: a write through a view without GPUNVME_VIEW_WRITE.
 *  - -GPUNVME_ESHUTDOWN: the queue is poisoned.
 *  - -GPUNVME_EPROTO: the device broke the protocol.
 *  - -GPUNVME_ENODEV: the device disappeared while the command was in flight. New commands return -GPUNVME_ESHUTDOWN.
 *  - -GPUNVME_ETIMEDOUT: a command timed out.
 *  - -GPUNVME_ECANCELED: the host called gpunvme_queue_stop().
 *  - -GPUNVME_EPROTONOSUPPORT: the descriptor is of another version than this header, or is none.
 * - Files. The cursor's queue must have the file's blocks: take a view of the whole namespace (gpunvme_queue_view()), of the struct
 *   gpunvme_dev by which the file was opened. `pos` counts from the first byte of the file. A read may begin and end at any byte.
 *   Whole blocks move between drive and buffer without a copy. For this the position is a multiple of the block, and the buffer's
 *   IOVA a multiple of 4. Other blocks go through the thread's own place in the buffer, cursor.bounce, and the thread copies their
 *   bytes. Holes, and blocks that were allocated and never written, read as zeroes. A call ends at the end of the file, and a read
 *   of 0 bytes returns 0. cursor.done is the number of bytes that the call has moved, also when it fails.
 * - gpunvme_thread_id() is a thread's number in the launch (x dimension), and gpunvme_thread_count() the number of threads.
 * - -DGPUNVME_COUNTERS=0 leaves out what GPUNVME_QUEUE_STATS and GPUNVME_QUEUE_LATENCY request. Then nothing is counted.
 */
#ifndef GPUNVME_DEVICE_H
#define GPUNVME_DEVICE_H

/* CPU threads need clock_gettime(), which strict C11 hides. After a system header this comes too late: define it before that. */
#if defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(__cplusplus)
#define _POSIX_C_SOURCE 200809L
#endif

/*
 * A 16-bit load changes the other half of its register (LLVM pull request 157795, in clang 22). With optimisation it was not seen.
 */
#if defined(__GFX11__) && __clang_major__ == 21 && !defined(__OPTIMIZE__)
#error "clang 21 leaves out waits in code for gfx11 without optimisation: compile with -O1 or more, or with another clang"
#endif

#include <gpunvme/device/submit.h>
#include <gpunvme/device/transfer.h>

/* In C++ the functions that volumes or files have, too, are overloads. In C they have names from which select.h selects. */
#if defined(__cplusplus)
#define GNVD_QUEUE(call) gpunvme_##call
#else
#define GNVD_QUEUE(call) gnvd_queue_##call
#endif

/* ---- Blocking ---- */

/**
 * gpunvme_read() - read blocks into a buffer and wait for them
 * @dq:     the queue
 * @dbuf:   the buffer. This thread may read its bytes when the call returns 0
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks. The call sends as many commands as it needs
 *
 * Source: NVM Command Set Specification 3.2.4 (Read).
 * Return: 0, or the first failure in the order of the blocks (the blocks before it were read), as the head of this file says.
 */
GPUNVME_FN int GNVD_QUEUE(read)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				uint64_t len)
{
	return gnvd_transfer(dq, dbuf, offset, pos, len, GPUNVME_IO_READ, 0);
}

/**
 * gpunvme_write() - write blocks from a buffer and wait for them
 * @dq:     the queue
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 * @flags:  0 or GPUNVME_FUA
 *
 * The call writes what this thread stored before. The kernel must order the stores of other threads before the call (a barrier, a
 * fence). If a volatile write cache is enabled, the blocks are durable after gpunvme_flush(). With GPUNVME_FUA they are durable
 * when the call returns 0. This says nothing of earlier writes. Every drive has that flag, and without a volatile write cache it
 * changes nothing. Source: NVM Command Set Specification 3.2.6 (Write, FUA).
 * Return: as gpunvme_read(); -GPUNVME_EINVAL: also an unknown flag.
 */
GPUNVME_FN int GNVD_QUEUE(write)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				 uint64_t len, uint32_t flags)
{
	return gnvd_transfer(dq, dbuf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags));
}

/**
 * gpunvme_flush() - make completed writes of the namespace durable, and wait
 * @dq: the queue
 *
 * Source: Base Specification 7.1 (Flush).
 * Return: 0, or a failure as the head of this file says.
 */
GPUNVME_FN int GNVD_QUEUE(flush)(const struct gpunvme_dq *dq)
{
	return gnvd_run(dq, NULL, 0, 0, 0, GPUNVME_IO_FLUSH, gnvd_check_dq(dq));
}

/**
 * gpunvme_zero() - set blocks to zero without a buffer, and wait
 * @dq:  the queue
 * @pos: bytes from the start of the window
 * @len: bytes, any number of blocks
 *
 * Source: NVM Command Set Specification 3.2.8 (Write Zeroes).
 * Return: -GPUNVME_EOPNOTSUPP: the controller has no Write Zeroes; otherwise as gpunvme_write().
 */
GPUNVME_FN int GNVD_QUEUE(zero)(const struct gpunvme_dq *dq, uint64_t pos, uint64_t len)
{
	int ret = gnvd_check_span(dq, pos, len, 1);

	return gnvd_zero(dq, GNVD_BLOCKS(dq, pos), GNVD_NBLOCKS(dq, len), ret);
}

/**
 * gpunvme_discard() - deallocate blocks whose data is not needed any more, and wait
 * @dq:     the queue
 * @dbuf:   a buffer with 16 bytes for the call: the thread writes the range of blocks there, and the controller reads it
 * @offset: bytes from the start of the buffer. Each thread has its own 16 bytes until the call returns
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 *
 * Each command has one range. The caller provides the bytes, so that queues without discards need no memory for them. The command
 * is a hint, and not durable: the drive may carry it out later, in part, or not at all. gpunvme_ns_info.deallocated has the
 * content of such blocks. Source: NVM Command Set Specification 3.2.3 (Dataset Management, Deallocate).
 * Return:
 * - -GPUNVME_EOPNOTSUPP: the controller has no Dataset Management.
 * - -GPUNVME_EROFS: the view may not write.
 * - -GPUNVME_EINVAL, -GPUNVME_ERANGE: also for the 16 bytes.
 * - Otherwise as gpunvme_write().
 */
GPUNVME_FN int GNVD_QUEUE(discard)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				   uint64_t len)
{
	int ret = gnvd_check_span(dq, pos, len, 1);

	return gnvd_discard(dq, dbuf, offset, GNVD_BLOCKS(dq, pos), GNVD_NBLOCKS(dq, len), ret);
}

/* ---- Asynchronous ---- */

/**
 * gpunvme_submit_read() - start reading, as exactly one command
 * @dq:     the queue
 * @dbuf:   the buffer. The device owns the bytes until the command completes
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, at most dq->max_blocks blocks, and at most what the PRP list of one command covers
 * @req:    set on success. Pass it to gpunvme_poll(), gpunvme_wait() or gpunvme_detach() on this queue, from any thread. NULL: no
 *          thread needs the result. The library frees the command when it completes, and counts a failed one in detached_errors
 *
 * The queue may be full of commands of the wave's other threads. On a GPU a thread that tries again in its own loop keeps them
 * from polling, and the wave never ends. Submit and poll in one loop that the threads leave together (by a ballot), or block.
 * Return:
 * - 0: the command is in flight.
 * - -GPUNVME_EAGAIN: the queue is full: poll what is in flight, then try again.
 * - -GPUNVME_EMSGSIZE: too long for one command.
 * - Otherwise as the head of this file says.
 */
GPUNVME_FN int GNVD_QUEUE(submit_read)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				       uint64_t len, struct gpunvme_req *req)
{
	return gnvd_submit_rw(dq, dbuf, offset, pos, len, GPUNVME_IO_READ, 0, req);
}

/**
 * gpunvme_submit_write() - start writing, as exactly one command
 * @dq:     the queue
 * @dbuf:   the buffer. The device owns the bytes until the command completes
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, as for gpunvme_submit_read()
 * @flags:  0 or GPUNVME_FUA: the command completes when the blocks are durable
 * @req:    as for gpunvme_submit_read()
 *
 * Writes what this thread stored before, as gpunvme_write() does.
 * Return: as gpunvme_submit_read() and gpunvme_write().
 */
GPUNVME_FN int GNVD_QUEUE(submit_write)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
					uint64_t len, uint32_t flags, struct gpunvme_req *req)
{
	return gnvd_submit_rw(dq, dbuf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags), req);
}

/**
 * gpunvme_submit_flush() - start a flush
 * @dq:  the queue
 * @req: as for gpunvme_submit_read()
 *
 * A flush covers writes that were complete before it was submitted.
 * Return: as gpunvme_submit_read().
 */
GPUNVME_FN int gpunvme_submit_flush(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	struct gnvd_cmd c = { GPUNVME_IO_FLUSH, 0, 0, 0, 0 };

	return gnvd_submit_one(dq, &c, gnvd_check_dq(dq), req);
}

/**
 * gpunvme_submit_zero() - start setting blocks to zero, as exactly one command
 * @dq:  the queue
 * @pos: bytes from the start of the window
 * @len: bytes, of 1 to 65536 >> (dq->flags >> GPUNVME_DQ_ZEROES_SHIFT) blocks
 * @req: as for gpunvme_submit_read()
 * Return: -GPUNVME_EOPNOTSUPP: the controller has no Write Zeroes; otherwise as gpunvme_submit_read() and gpunvme_zero().
 */
GPUNVME_FN int GNVD_QUEUE(submit_zero)(const struct gpunvme_dq *dq, uint64_t pos, uint64_t len, struct gpunvme_req *req)
{
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	int ret = gnvd_check_zero(dq, gnvd_check_span(dq, pos, len, 1));

	if (!ret && GNVD_NBLOCKS(dq, len) > gnvd_most_zeroes(dq))
		ret = -GPUNVME_EMSGSIZE;
	if (!ret)
		gnvd_set_blocks(dq, GPUNVME_IO_WRITE_ZEROES, GNVD_BLOCKS(dq, pos), GNVD_NBLOCKS(dq, len), &c);
	return gnvd_submit_one(dq, &c, ret, req);
}

/**
 * gpunvme_submit_discard() - start to deallocate blocks, as exactly one command
 * @dq:     the queue
 * @dbuf:   as for gpunvme_discard(). The device owns the 16 bytes until the command completes
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, at most dq->deallocate blocks
 * @req:    as for gpunvme_submit_read()
 * Return: as gpunvme_discard() and gpunvme_submit_read().
 */
GPUNVME_FN int GNVD_QUEUE(submit_discard)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset,
					  uint64_t pos, uint64_t len, struct gpunvme_req *req)
{
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	int ret = gnvd_check_range(dq, dbuf, offset, gnvd_check_span(dq, pos, len, 1));

	if (!ret && GNVD_NBLOCKS(dq, len) > dq->deallocate)
		ret = -GPUNVME_EMSGSIZE;
	if (!ret)
		gnvd_set_range(dq, dbuf, offset, GNVD_BLOCKS(dq, pos), GNVD_NBLOCKS(dq, len), &c);
	return gnvd_submit_one(dq, &c, ret, req);
}

/**
 * gpunvme_poll() - check whether a command has ended
 * @dq:  the queue of the command (any view of it)
 * @req: the handle. Consumed when the result is final
 *
 * The call takes completions, so a thread that only polls makes the queue progress. A CPU thread whose polls find nothing yields
 * its core now and then, which `soft:` controllers need. A thread without other work should call gpunvme_wait(), which also
 * sleeps.
 * Return:
 * - 0: the command succeeded. Positive: its NVMe status.
 * - -GPUNVME_EAGAIN: it is in flight.
 * - -GPUNVME_ESTALE: the handle was consumed, or is of an earlier incarnation of the queue.
 * - -GPUNVME_EXDEV: it belongs to another queue.
 * - -GPUNVME_ETIMEDOUT: no completion within the queue's command time-out. The queue is poisoned now.
 * - -GPUNVME_ENODEV: the host reports that the controller is gone.
 * - -GPUNVME_ECANCELED: the host called gpunvme_queue_stop(). The handle stays valid.
 * - -GPUNVME_ESHUTDOWN, -GPUNVME_EPROTO, -GPUNVME_EPROTONOSUPPORT, -GPUNVME_EINVAL: as the head of this file says.
 */
GPUNVME_FN int GNVD_QUEUE(poll)(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	int ret = gnvd_check_dq(dq), over, late = 0;
	struct gnvd_wave w;

	if (!ret)
		ret = gnvd_check_req(dq, req);
	over = ret || gnvd_take(dq, req, &ret);
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_POLL);
		if (gnvd_ballot(&w, !over)) {
			if (!over)
				late = gnvd_look_up(dq, &req->deadline, 0, NULL);
			GNVD_TOGETHER(w, gnvd_drain(dq, &w));
		}
		gnvd_leave(&w);
	}
	if (over || gnvd_take(dq, req, &ret))
		return ret;
	if (late == -GPUNVME_ETIMEDOUT)
		gnvd_poison(dq, GPUNVME_ETIMEDOUT);
	gnvd_polled_in_vain();
	return late ? late : -GPUNVME_EAGAIN;
}

/**
 * gpunvme_wait() - wait until a command has ended
 * @dq:    the queue of the command (any view of it)
 * @req:   the handle. Consumed when the result is final
 * @ticks: longest wait, in ticks of the clock of the threads (dq->ticks_per_ms). 0: until the queue's own command time-out
 *
 * Return: as gpunvme_poll(), without -GPUNVME_EAGAIN. -GPUNVME_ETIMEDOUT after @ticks and -GPUNVME_ECANCELED leave the handle
 * valid and the buffer with the device: wait again, or call gpunvme_detach().
 */
GPUNVME_FN int GNVD_QUEUE(wait)(const struct gpunvme_dq *dq, struct gpunvme_req *req, uint64_t ticks)
{
	int ret = gnvd_check_dq(dq), err = 0;
	struct gnvd_wave w;

	if (!ret)
		ret = gnvd_check_req(dq, req);
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_WAIT);
		GNVD_TOGETHER(w, err = gnvd_wait(dq, &w, !ret, req, ticks));
		gnvd_leave(&w);
	}
	return ret ? ret : err;
}

/**
 * gpunvme_detach() - give a handle back without waiting
 * @dq:  the queue of the command
 * @req: the handle. Consumed
 *
 * The command goes on. Its buffer belongs to the device until it has completed, which is not reported.
 * Return: 0; -GPUNVME_ESTALE; -GPUNVME_EXDEV; -GPUNVME_EPROTONOSUPPORT; -GPUNVME_EINVAL: another kind of descriptor.
 */
GPUNVME_FN int GNVD_QUEUE(detach)(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	int ret = gnvd_check_dq(dq);
	uint64_t word;

	if (!ret)
		ret = gnvd_check_req(dq, req);
	if (ret)
		return ret;
	word = gnvd_ld64(gnvd_result_at(dq, req->cid));
	if ((word ^ req->gen) >> GPUNVME_RES_GEN_SHIFT || (word & GPUNVME_RES_STATE) == GPUNVME_RES_FREE)
		return -GPUNVME_ESTALE;
	gnvd_detach(dq, req);
	return 0;
}

/* ---- Waves, many handles, polling for others, volumes, workgroups ---- */

#include <gpunvme/device/bulk.h>
#include <gpunvme/device/volume.h>
#include <gpunvme/device/volume_fronts.h>
#include <gpunvme/device/block.h>

/* ---- Files ---- */

#include <gpunvme/device/file_block.h>
#include <gpunvme/device/files.h>

/* ---- Page caches ---- */

#include <gpunvme/device/cache.h>

#include <gpunvme/device/select.h>

#endif
