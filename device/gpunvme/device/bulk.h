/* SPDX-License-Identifier: MIT */
/*
 * More ways to use a queue than one call for one lane: whole waves together, one lane with many handles, and a service that takes
 * completions so that nobody else has to. Only device.h includes this; its rules hold here too.
 */
#ifndef GPUNVME_DEVICE_BULK_H
#define GPUNVME_DEVICE_BULK_H

#include <gpunvme/device/transfer.h>

/* ---- Waves ---- */

#define GPUNVME_NO_TRANSFER 0xffffffffu /* in place of a number of blocks: this lane only takes part */

GNVD_FN int gnvd_wave_rw(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
			 uint32_t nblocks, uint32_t op)
{
	int ret = GNVD_IDLE;

	if (nblocks != GPUNVME_NO_TRANSFER)
		ret = gnvd_check_window(dq, lba, nblocks, GNVD_OPC(op) == GPUNVME_IO_WRITE);
	if (!ret)
		ret = gnvd_check_buffer(dq, dbuf, offset, nblocks);
	ret = gnvd_run_at(dq, GNVD_SITE_WAVE, dbuf, offset, lba, nblocks, op, ret);
	return ret == GNVD_IDLE ? 0 : ret;
}

/**
 * gpunvme_wave_read() - read with the whole wave: one transfer for each lane, one place in the queue for all
 * @dq:      the queue; lanes that name different ones wait for those of their own queue
 * @dbuf:    the buffer
 * @offset:  bytes from the start of the buffer
 * @lba:     first block, counted from the window
 * @nblocks: blocks, any number; GPUNVME_NO_TRANSFER: this lane has no transfer of its own
 *
 * Every lane of the wave that is still in the kernel must call, whatever its transfer: the call waits for all. In return the wave
 * is whole, also where the lanes' paths had parted before, and takes its positions and rings once. On CPU lanes one that does not
 * come is waited for about a second.
 * Return: as gpunvme_read(), for this lane's own transfer; 0 for a lane without one.
 */
GPUNVME_FN int gpunvme_wave_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
				 uint32_t nblocks)
{
	return gnvd_wave_rw(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_READ);
}

/**
 * gpunvme_wave_write() - write with the whole wave
 * Parameters and rules as gpunvme_wave_read(), results as gpunvme_write().
 */
GPUNVME_FN int gpunvme_wave_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
				  uint32_t nblocks)
{
	return gnvd_wave_rw(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_WRITE);
}

/**
 * gpunvme_wave_write_fua() - write with the whole wave, durably
 * Parameters and rules as gpunvme_wave_read(), results as gpunvme_write_fua().
 */
GPUNVME_FN int gpunvme_wave_write_fua(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
				      uint32_t nblocks)
{
	return gnvd_wave_rw(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_WRITE | GPUNVME_RW_FUA);
}

GNVD_FN int gnvd_wave_rw_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
			     uint32_t nblocks, uint32_t op)
{
	int ret = gnvd_check_window(dq, lba, nblocks, GNVD_OPC(op) == GPUNVME_IO_WRITE);

	if (!ret)
		ret = gnvd_check_buffer(dq, dbuf, offset, nblocks);
	return gnvd_run_one(dq, dbuf, offset, lba, nblocks, op, ret);
}

/**
 * gpunvme_wave_read_one() - one read for the whole wave
 * @dq:      the queue; lanes that name different ones make one transfer on each
 * @dbuf:    the buffer
 * @offset:  bytes from the start of the buffer
 * @lba:     first block, counted from the window
 * @nblocks: blocks, any number
 *
 * For a row, a node or a page that a wave works on together. All lanes name the same transfer; that of the lowest lane is made,
 * and all lanes help to look for its end. Where many waves do it at once that is faster than a lane which calls gpunvme_read()
 * alone while the others wait. Which lanes must call: as gpunvme_wave_read().
 * Return: as gpunvme_read(), the same for all lanes; with 0 each of them sees the data.
 */
GPUNVME_FN int gpunvme_wave_read_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
				     uint32_t nblocks)
{
	return gnvd_wave_rw_one(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_READ);
}

/**
 * gpunvme_wave_write_one() - one write for the whole wave, with what all its lanes stored before
 * Parameters and rules as gpunvme_wave_read_one(), results as gpunvme_write().
 */
GPUNVME_FN int gpunvme_wave_write_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
				      uint32_t nblocks)
{
	return gnvd_wave_rw_one(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_WRITE);
}

/* ---- One lane, many handles ---- */

/* The handles of one lane, searched from `from` on and around. */
struct gnvd_any {
	struct gpunvme_req *req;
	uint32_t count, from;
	uint32_t at; /* the handle that the result belongs to */
};

/* Are all live handles of this queue? Answers -GPUNVME_ESTALE when none is alive. */
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

/* Take the first command that is over. */
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

/* As gnvd_look_up(), for all of them: the first reason to give up. */
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
			if (any->at < any->count) /* one was silent for the queue's own time-out */
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
 * gpunvme_wait_any() - wait until one of several commands is over
 * @dq:    the queue they were submitted to (any view of it)
 * @req:   the handles; those that were consumed before are passed over; the one that is over is consumed
 * @count: how many
 * @ticks: how long, in ticks of the lane clock (dq->ticks_per_ms); 0: until the queue's own command time-out
 * @index: in: where to begin to look, so that none is passed over for ever (*index + 1 of the call before is fair, any value is
 *         allowed); out: the handle the result is of, or @count when it is of none
 *
 * Return: 0 or the NVMe status of command *index; -GPUNVME_EXDEV, -GPUNVME_ESTALE handle *index is not of this queue, or old;
 * -GPUNVME_ESTALE with *index == @count: no handle was valid. -GPUNVME_ETIMEDOUT with *index == @count after @ticks, and
 * -GPUNVME_ECANCELED, leave all handles valid; with a handle's number that command was silent for the queue's time-out, and the
 * queue is poisoned. Others as gpunvme_wait().
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

/* ---- Service ---- */

/**
 * gpunvme_serve() - take completions for others, until told to stop
 * @dq:    views of the queues, in lane memory
 * @count: how many
 * @stop:  lane address of a 32-bit word; non-zero ends the call
 *
 * For kernels that submit and go away (handles, or NULL for commands that nobody asks for), and for queues made with
 * GPUNVME_QP_SERVED, whose waiting lanes leave the completion ring to the service. One wave serves a group of queues; it must run
 * beside the lanes that submit: in a stream of its own, or as one more workgroup. Lanes without their own transfers: all lanes of
 * the wave call together. It ends when *@stop is set or when every queue has ended, whatever comes first.
 * Return: 0 told to stop; -GPUNVME_ESHUTDOWN every queue is poisoned or was stopped; -GPUNVME_EPROTONOSUPPORT; -GPUNVME_EINVAL no
 * queue.
 */
GPUNVME_FN int gpunvme_serve(const struct gpunvme_dq *dq, uint32_t count, uint64_t stop)
{
	struct gnvd_wave w;
	uint32_t i, turn = 0, ended;
	uint64_t before, now;

	for (i = 0; i < count; i++)
		if (gnvd_check_dq(&dq[i]))
			return -GPUNVME_EPROTONOSUPPORT;
	if (!count)
		return -GPUNVME_EINVAL;
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
