/* SPDX-License-Identifier: MIT */
/*
 * More ways to use a queue than one call for one thread: whole waves together, one thread with many handles, and polling for other
 * threads. Only device.h includes this. Its rules hold here, too.
 */
#ifndef GPUNVME_DEVICE_BULK_H
#define GPUNVME_DEVICE_BULK_H

#include <gpunvme/device/transfer.h>

/* ---- Waves ---- */

#define GPUNVME_NO_TRANSFER (~0ull) /* in place of a length: this thread has no transfer */

GNVD_FN int gnvd_wave_rw(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			 uint32_t op, int ret)
{
	if (!ret)
		ret = len == GPUNVME_NO_TRANSFER ? GNVD_IDLE : gnvd_check_transfer(dq, dbuf, offset, pos, len, op);
	ret = gnvd_run_at(dq, GNVD_SITE_WAVE, dbuf, offset, GNVD_BLOCKS(dq, pos), GNVD_NBLOCKS(dq, len), op, ret);
	return ret == GNVD_IDLE ? 0 : ret;
}

/**
 * gpunvme_wave_read() - read with the whole wave: one transfer for each thread
 * @dq:     the queue. Threads that name different ones wait for those of their own queue
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks. GPUNVME_NO_TRANSFER: this thread has no transfer
 *
 * Every thread of the wave that is still in the kernel must call, with or without a transfer: the call waits for all. In return
 * the wave is whole, also if the threads' paths had parted before. It takes its positions once, and rings once. CPU threads wait
 * about a second for a thread that does not call.
 * Return: as gpunvme_read(), for this thread's own transfer. 0 for a thread without one.
 */
GPUNVME_FN int GNVD_QUEUE(wave_read)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				     uint64_t len)
{
	return gnvd_wave_rw(dq, dbuf, offset, pos, len, GPUNVME_IO_READ, 0);
}

/**
 * gpunvme_wave_write() - write with the whole wave: one transfer for each thread
 * @dq:     as for gpunvme_wave_read()
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, as for gpunvme_wave_read()
 * @flags:  0 or GPUNVME_FUA. Threads of a wave may differ
 *
 * Rules as for gpunvme_wave_read().
 * Return: as gpunvme_write(), for this thread's own transfer. A thread without one gets 0, or -GPUNVME_EINVAL for an unknown flag.
 */
GPUNVME_FN int GNVD_QUEUE(wave_write)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				      uint64_t len, uint32_t flags)
{
	return gnvd_wave_rw(dq, dbuf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags));
}

GNVD_FN int gnvd_wave_rw_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
			     uint64_t len, uint32_t op, int ret)
{
	if (!ret)
		ret = gnvd_check_transfer(dq, dbuf, offset, pos, len, op);
	return gnvd_run_one(dq, dbuf, offset, GNVD_BLOCKS(dq, pos), GNVD_NBLOCKS(dq, len), op, ret);
}

/**
 * gpunvme_wave_read_one() - make one read for the whole wave
 * @dq:     the queue. Threads that name different ones make one transfer on each
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 *
 * For a row, a node or a page that a wave uses together. All threads name the same transfer. The call makes that of the lowest
 * lane (a thread's place in its wave), and all threads look for its end. If many waves call at once this is faster than one thread
 * that calls gpunvme_read() while the others wait. Which threads must call: as for gpunvme_wave_read().
 * Return: as gpunvme_read(), the same for all threads. With 0 each of them sees the data.
 */
GPUNVME_FN int GNVD_QUEUE(wave_read_one)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset,
					 uint64_t pos, uint64_t len)
{
	return gnvd_wave_rw_one(dq, dbuf, offset, pos, len, GPUNVME_IO_READ, 0);
}

/**
 * gpunvme_wave_write_one() - make one write for the whole wave, with what all its threads stored before
 * @dq:     as for gpunvme_wave_read_one()
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 * @flags:  0 or GPUNVME_FUA
 *
 * Rules as for gpunvme_wave_read_one().
 * Return: as gpunvme_write(), the same for all threads.
 */
GPUNVME_FN int GNVD_QUEUE(wave_write_one)(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset,
					  uint64_t pos, uint64_t len, uint32_t flags)
{
	return gnvd_wave_rw_one(dq, dbuf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags));
}

/* ---- One thread, many handles ---- */

/* The handles of one thread. The search begins at `from` and wraps. */
struct gnvd_any {
	struct gpunvme_req *req;
	uint32_t count, from;
	uint32_t at; /* the handle that the result belongs to */
};

/* Are all live handles of this queue? Return -GPUNVME_ESTALE when there is no live handle. */
GNVD_FN int gnvd_check_any(const struct gpunvme_dq *dq, struct gnvd_any *any)
{
	uint32_t i, live = 0;
	int ret;

	for (i = 0; i < any->count; i++) {
		if (!any->req[i].tag)
			continue;
		live++;
		ret = gnvd_check_req(dq, &any->req[i]);
		if (ret) {
			any->at = i;
			return ret;
		}
	}
	return live ? 0 : -GPUNVME_ESTALE;
}

/* Take the first command that has ended. */
GNVD_FN int gnvd_take_any(const struct gpunvme_dq *dq, struct gnvd_any *any, int *ret)
{
	uint32_t i, at = any->from;

	for (i = 0; i < any->count; i++) {
		if (any->req[at].tag && gnvd_take(dq, &any->req[at], ret)) {
			any->at = at;
			return 1;
		}
		at = at + 1 < any->count ? at + 1 : 0;
	}
	return 0;
}

/* As gnvd_look_up(), for all handles: return the first reason to give up. */
GNVD_FN int gnvd_look_up_any(const struct gpunvme_dq *dq, struct gnvd_any *any, uint64_t ticks, uint64_t *until)
{
	uint32_t i;
	int why;

	for (i = 0; i < any->count; i++) {
		why = any->req[i].tag ? gnvd_look_up(dq, &any->req[i].deadline, ticks, until) : 0;
		if (!why)
			continue;
		if (why == -GPUNVME_ETIMEDOUT && gnvd_clock() >= any->req[i].deadline)
			any->at = i;
		return why;
	}
	return 0;
}

/* As gnvd_wait(), for any of the handles. */
GNVD_FN int gnvd_wait_any(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int open, struct gnvd_any *any, uint64_t ticks)
{
	uint64_t until = 0;
	uint32_t turn = 0;
	int ret = 0, why = 0;

	for (;;) {
		if (open && gnvd_take_any(dq, any, &ret)) {
			open = 0;
		} else if (open && why) {
			if (any->at < any->count) /* one had no completion within the queue's own time-out */
				gnvd_poison(dq, GPUNVME_ETIMEDOUT);
			ret = why;
			open = 0;
		}
		if (!gnvd_ballot(w, open))
			return ret;
		if (open && (turn & 15) == 15)
			why = gnvd_look_up_any(dq, any, ticks, &until);
		gnvd_help(dq, w, turn);
		gnvd_pause(turn++);
	}
}

/**
 * gpunvme_wait_any() - wait until one of several commands has ended
 * @dq:    the queue of the commands (any view of it)
 * @req:   the handles. Consumed ones are skipped. The one that has ended is consumed
 * @count: number of handles
 * @ticks: longest wait, in ticks of the clock of the threads (dq->ticks_per_ms). 0: until the queue's own command time-out
 * @index: in: begin of the search. *index + 1 of the previous call is fair, and any value is allowed. Out: the handle of the
 *         result, or @count if it has no handle
 *
 * Return:
 * - 0, or the NVMe status of command *index.
 * - -GPUNVME_EXDEV, -GPUNVME_ESTALE: handle *index is of another queue, or old. -GPUNVME_ESTALE with *index == @count: no handle
 *   was valid.
 * - -GPUNVME_ETIMEDOUT with *index == @count: after @ticks. All handles stay valid.
 * - -GPUNVME_ETIMEDOUT with another *index: that command did not complete within the queue's time-out, and the queue is poisoned.
 * - -GPUNVME_ECANCELED: all handles stay valid.
 * - Otherwise as gpunvme_wait().
 */
GPUNVME_FN int gpunvme_wait_any(const struct gpunvme_dq *dq, struct gpunvme_req *req, uint32_t count, uint64_t ticks,
				uint32_t *index)
{
	struct gnvd_any any = { req, count, *index < count ? *index : 0, count };
	int ret = gnvd_check_dq(dq), err = 0;
	struct gnvd_wave w;

	if (!ret)
		ret = gnvd_check_any(dq, &any);
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_WAIT);
		GNVD_TOGETHER(w, err = gnvd_wait_any(dq, &w, !ret, &any, ticks));
		gnvd_leave(&w);
	}
	*index = any.at;
	return ret ? ret : err;
}

/* ---- Polling for others ---- */

/**
 * gpunvme_poll_queue() - take completions for other threads, until the host sets a word
 * @dq:    views of the queues, in memory of the threads
 * @count: number of views, 1 or more
 * @stop:  address for the threads of a 32-bit word. Non-zero ends the call
 *
 * For kernels that submit and end, with handles, or NULL for commands whose result is not needed. Also for queues made with
 * GPUNVME_QUEUE_POLLED, whose waiting threads leave the completion ring to this call. One wave polls a group of queues. It must
 * run at the same time as the threads that submit: in its own stream, or as one more workgroup. All threads of the wave call
 * together, and have no transfers. The call ends when *@stop is set or when every queue has ended.
 * Return: 0: *@stop is set; -GPUNVME_ESHUTDOWN: every queue is poisoned or was stopped; -GPUNVME_EPROTONOSUPPORT; -GPUNVME_EINVAL:
 * no queue, or another kind of descriptor.
 */
GPUNVME_FN int gpunvme_poll_queue(const struct gpunvme_dq *dq, uint32_t count, uint64_t stop)
{
	struct gnvd_wave w;
	uint32_t i, turn = 0, ended;
	uint64_t before, now;
	int ret = count ? 0 : -GPUNVME_EINVAL;

	for (i = 0; i < count && !ret; i++)
		ret = gnvd_check_dq(&dq[i]);
	if (ret)
		return ret;
	gnvd_enter(&w, dq, GNVD_SITE_WAVE);
	do {
		ended = 0;
		for (i = 0; i < count; i++) {
			before = gnvd_ld64(GNVD_STATE(&dq[i], drain)) >> 1;
			gnvd_drain(&dq[i], &w);
			if (gnvd_bcast64(&w, (gnvd_ld64(GNVD_STATE(&dq[i], drain)) >> 1) - before))
				turn = 0;
			else
				ended += gnvd_control(&dq[i], &now) != 0 || gnvd_ld32(GNVD_STATE(&dq[i], poison)) != 0;
		}
		gnvd_pause(turn++);
	} while (!gnvd_bcast32(&w, gnvd_load_ring32(stop) != 0 || ended == count));
	gnvd_leave(&w);
	return gnvd_load_ring32(stop) ? 0 : -GPUNVME_ESHUTDOWN;
}

#endif
