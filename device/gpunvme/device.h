/* SPDX-License-Identifier: MIT */
/*
 * NVMe from a kernel: read, write, flush and write-zeroes on a queue that many lanes share.
 *
 * The same source compiles for AMD GPUs (HIP, clang 19 or newer), NVIDIA GPUs (nvcc, clang) and CPU threads (C11, C++17). A kernel
 * receives a struct gpunvme_dq (from gpunvme_qp_view) and struct gpunvme_dbuf (from gpunvme_mem_dbuf) and calls the functions
 * below. Rules that hold for all of them:
 *
 * - Any lane may call at any time, together with others or alone, with its own arguments; lanes of a wave that call together share
 *   the work. A lane gets its own result: 0; a negative GPUNVME_E* (dq.h); or the NVMe status of its own command, positive.
 * - `lba` counts from the first block of the view's window, `offset` from the first byte of the buffer. iova + offset must be a
 *   multiple of 4. A transfer must lie inside both.
 * - Every wait is bounded by the queue's command time-out. A queue on which a command timed out is poisoned: commands in flight
 *   may still end with their own status, new ones get -GPUNVME_ESHUTDOWN, and the buffers of commands that never ended belong to
 *   the device until the host has destroyed or recovered the queue (gpunvme_qp_recover()).
 * - Common results, not repeated below: -GPUNVME_EINVAL zero blocks, unaligned buffer; -GPUNVME_ERANGE outside the window or the
 *   buffer; -GPUNVME_EROFS a write through a view without GPUNVME_VIEW_WRITE; -GPUNVME_ESHUTDOWN; -GPUNVME_EPROTO the device
 *   broke the protocol; -GPUNVME_ENODEV it is gone; -GPUNVME_ETIMEDOUT; -GPUNVME_ECANCELED the host called gpunvme_qp_stop();
 *   -GPUNVME_EPROTONOSUPPORT the descriptor is of another version than this header.
 * - -DGPUNVME_COUNTERS=0 leaves out what GPUNVME_QP_STATS and GPUNVME_QP_LATENCY ask for: then nothing is counted.
 */
#ifndef GPUNVME_DEVICE_H
#define GPUNVME_DEVICE_H

/* CPU lanes need clock_gettime(), which strict C11 hides. After a system header this comes too late: define it there. */
#if defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(__cplusplus)
#define _POSIX_C_SOURCE 200809L
#endif

#include <gpunvme/device_queue.h>

/* gpunvme_lane(), gpunvme_lanes(): number of this lane in the launch (x dimension), and how many there are. */

/* ---- Commands from arguments ---- */

/* May this header work on that descriptor? */
GNVD_FN int gnvd_check_dq(const struct gpunvme_dq *dq)
{
	return dq->magic == GPUNVME_DQ_MAGIC && dq->major == GPUNVME_DQ_MAJOR ? 0 : -GPUNVME_EPROTONOSUPPORT;
}

GNVD_FN int gnvd_check_window(const struct gpunvme_dq *dq, uint64_t lba, uint32_t nblocks, int write)
{
	int ret = gnvd_check_dq(dq);

	if (ret)
		return ret;
	if (!nblocks)
		return -GPUNVME_EINVAL;
	if (write && !(dq->flags & GPUNVME_DQ_WRITE))
		return -GPUNVME_EROFS;
	return lba <= dq->lba_count && nblocks <= dq->lba_count - lba ? 0 : -GPUNVME_ERANGE;
}

GNVD_FN int gnvd_check_buffer(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint32_t nblocks)
{
	if ((dbuf->iova + offset) & 3)
		return -GPUNVME_EINVAL;
	return offset <= dbuf->len && ((uint64_t)nblocks << dq->lba_shift) <= dbuf->len - offset ? 0 : -GPUNVME_ERANGE;
}

/* Blocks that one command can move to or from `addr`. */
GNVD_FN uint32_t gnvd_blocks_per_command(const struct gpunvme_dq *dq, uint64_t addr, uint32_t nblocks)
{
	uint64_t page = 1ull << dq->page_shift, limit = dq->max_blocks;

	/* The PRP copies keep 1 + page/16 pages unbroken. */
	if (!(dq->flags & GPUNVME_DQ_SGL)) {
		uint64_t span = ((page + (page * (page / 16))) - (addr & (page - 1))) >> dq->lba_shift;

		limit = span < limit ? span : limit;
	}
	return nblocks < limit ? nblocks : (uint32_t)limit;
}

/* The data pointer: PRP1 and PRP2, or an SGL data block. Nothing is written, the lists were built when the buffer was mapped. */
GNVD_FN void gnvd_set_data(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t bytes,
			   struct gnvd_cmd *c)
{
	uint64_t addr = dbuf->iova + offset, page = 1ull << dq->page_shift, pages, entry;

	c->prp1 = addr;
	c->dw0 |= dq->flags & GPUNVME_DQ_SGL ? GPUNVME_PSDT_SGL << 8 : 0;
	if (dq->flags & GPUNVME_DQ_SGL) {
		c->prp2 = bytes | (uint64_t)GPUNVME_SGL_ID_DATA_BLOCK << 56;
		return;
	}
	pages = ((addr & (page - 1)) + bytes + page - 1) >> dq->page_shift;
	if (pages <= 2) {
		c->prp2 = pages == 2 ? (addr & ~(page - 1)) + page : 0;
		return;
	}
	entry = ((addr - (dbuf->iova & ~(page - 1))) >> dq->page_shift) + 1;
	c->prp2 = ((entry & (page / 8 - 1)) + pages - 1 <= page / 8 ? dbuf->prp_a : dbuf->prp_b) + 8 * entry;
}

GNVD_FN void gnvd_set_blocks(const struct gpunvme_dq *dq, uint32_t opc, uint64_t lba, uint32_t nblocks, struct gnvd_cmd *c)
{
	c->dw0 = opc;
	c->slba = dq->lba_first + lba;
	c->cdw12 = nblocks - 1;
	c->prp1 = c->prp2 = 0;
}

/* ---- Blocking ---- */

/* What is left of a lane's transfer. */
struct gnvd_left {
	uint64_t offset;
	uint64_t lba;
	uint32_t nblocks; /* 0: all is done */
	int ret;          /* 0, the failure, or why the lane gives up at its next look */
};

/* Blocks of the next command of a transfer; a flush counts as one. */
GNVD_FN uint32_t gnvd_part_blocks(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, const struct gnvd_left *l,
				  uint32_t opc)
{
	if (opc != GPUNVME_IO_FLUSH && dbuf)
		return gnvd_blocks_per_command(dq, dbuf->iova + l->offset, l->nblocks);
	return l->nblocks < 65536 ? l->nblocks : 65536;
}

/* That command, of n blocks. */
GNVD_FN void gnvd_set_part(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, const struct gnvd_left *l, uint32_t n,
			   uint32_t opc, struct gnvd_cmd *c)
{
	c->dw0 = opc;
	if (opc == GPUNVME_IO_FLUSH)
		return;
	gnvd_set_blocks(dq, opc, l->lba, n, c);
	if (dbuf)
		gnvd_set_data(dq, dbuf, l->offset, (uint64_t)n << dq->lba_shift, c);
}

/*
 * One lane's transfer, part by part; dbuf NULL: a command without data. All lanes of the wave go through the loop together until
 * the last is done: who has a part to submit submits, all take completions in, who has a result takes it. A wave that waits for
 * room so never sits on results, which hold identifiers. A lane stops at its first failure, which is the first in LBA order.
 * What lives through the loop occupies registers of every lane, so a command is computed where it is stored. `deadline` is that of
 * the command in flight, or of the wait for room.
 */
GNVD_FN void gnvd_run_wave(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dbuf *dbuf,
			   struct gnvd_left *left, uint32_t opc)
{
	uint32_t n = 0, turn = 0, most = gnvd_widest(dq); /* n: blocks in flight */
	struct gpunvme_req req = { 0, 0, 0, 0 };
	struct gnvd_left l = *left;
	uint64_t deadline = 0;
	uint32_t fetched = 0;
	int err, want, late;

	l.nblocks = l.ret ? 0 : opc == GPUNVME_IO_FLUSH ? 1 : l.nblocks;
	while (gnvd_ballot(w, l.nblocks != 0)) {
		want = l.nblocks && !n;
		if (gnvd_ballot(w, want)) {
			struct gnvd_grant grant = { 0, 0, 0, 0, 0 };

			err = gnvd_find_places(dq, w, want, most, &grant);
			if (want && !err) {
				struct gnvd_cmd c = { 0, 0, 0, 0, 0 };

				gnvd_begin_command(dq, &grant, &req);
				n = gnvd_part_blocks(dq, dbuf, &l, opc);
				gnvd_set_part(dq, dbuf, &l, n, opc, &c);
				gnvd_write_command(dq, &grant, &c, req.cid);
				deadline = 0;
			}
			if (grant.count)
				gnvd_publish(dq, w, grant.pos, grant.count);
			late = (turn & 15) == 15 ? gnvd_no_room(dq, want && err, &deadline, &fetched) : 0;
			if (want && err)
				l.ret = err == -GPUNVME_EAGAIN ? late : err;
		}
		gnvd_help(dq, w, turn);
		if (n && gnvd_take_done(dq, req.cid, gnvd_ld64(gnvd_result_at(dq, req.cid)), &l.ret)) {
			l.lba += n;
			l.offset += (uint64_t)n << dq->lba_shift;
			l.nblocks = l.ret ? 0 : l.nblocks - n;
			n = 0;
			deadline = 0;
		} else if (l.ret && l.nblocks) {
			if (n)
				gnvd_give_up(dq, &req, l.ret, deadline);
			l.nblocks = n = 0;
		}
		if (n && (turn & 15) == 15)
			l.ret = gnvd_look_up(dq, &deadline, 0, NULL);
		if ((turn & 63) == 63 && !gnvd_ballot(w, n != 0) && most > 1)
			most /= 2; /* narrow submitters must not starve a wide one */
		gnvd_pause(turn++);
	}
	*left = l;
}

GNVD_FN int gnvd_run_at(const struct gpunvme_dq *dq, enum gnvd_site site, const struct gpunvme_dbuf *dbuf, uint64_t offset,
			uint64_t lba, uint32_t nblocks, uint32_t opc, int ret)
{
	struct gnvd_left left = { offset, lba, nblocks, ret };
	struct gnvd_wave w;

	w.hint = gnvd_hint(); /* here, because in the loop it would keep its makings in registers */
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, site);
		GNVD_TOGETHER(w, gnvd_run_wave(dq, &w, dbuf, &left, opc));
		gnvd_leave(&w);
	}
	return left.ret;
}

GNVD_FN int gnvd_run(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba, uint32_t nblocks,
		     uint32_t opc, int ret)
{
	return gnvd_run_at(dq, GNVD_SITE_RUN, dbuf, offset, lba, nblocks, opc, ret);
}

/**
 * gpunvme_read() - read blocks into a buffer and wait for them
 * @dq:      the queue
 * @dbuf:    the buffer; its bytes are valid for this lane when the call returns 0
 * @offset:  bytes from the start of the buffer
 * @lba:     first block, counted from the window
 * @nblocks: blocks, any number; split by what one command can carry
 *
 * Return: 0; the first failure in LBA order (blocks before it were read); see the head of this file.
 */
GPUNVME_FN int gpunvme_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
			    uint32_t nblocks)
{
	int ret = gnvd_check_window(dq, lba, nblocks, 0);

	return gnvd_run(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_READ, ret ? ret : gnvd_check_buffer(dq, dbuf, offset, nblocks));
}

/**
 * gpunvme_write() - write blocks from a buffer and wait for them
 * Parameters and results as gpunvme_read(). The data is in the controller's hands; gpunvme_flush() makes it durable where a
 * volatile write cache is enabled. What this lane stored before the call is written; other lanes' stores must have been ordered
 * before the call by the kernel (a barrier, a fence).
 */
GPUNVME_FN int gpunvme_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
			     uint32_t nblocks)
{
	int ret = gnvd_check_window(dq, lba, nblocks, 1);

	return gnvd_run(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_WRITE, ret ? ret : gnvd_check_buffer(dq, dbuf, offset, nblocks));
}

/**
 * gpunvme_flush() - make completed writes of the namespace durable, and wait (NVM Command Set Specification 3.2.1, Flush)
 * @dq: the queue
 * Return: see the head of this file.
 */
GPUNVME_FN int gpunvme_flush(const struct gpunvme_dq *dq)
{
	return gnvd_run(dq, NULL, 0, 0, 0, GPUNVME_IO_FLUSH, gnvd_check_dq(dq));
}

/**
 * gpunvme_write_zeroes() - set blocks to zero without a buffer, and wait
 * @dq:      the queue
 * @lba:     first block, counted from the window
 * @nblocks: blocks
 * Return: -GPUNVME_EOPNOTSUPP when the controller has no Write Zeroes; else as gpunvme_write().
 */
GPUNVME_FN int gpunvme_write_zeroes(const struct gpunvme_dq *dq, uint64_t lba, uint32_t nblocks)
{
	int ret = gnvd_check_window(dq, lba, nblocks, 1);

	if (!ret && !(dq->flags & GPUNVME_DQ_WRITE_ZEROES))
		ret = -GPUNVME_EOPNOTSUPP;
	return gnvd_run(dq, NULL, 0, lba, nblocks, GPUNVME_IO_WRITE_ZEROES, ret);
}

/* ---- Asynchronous ---- */

GNVD_FN int gnvd_submit_one(const struct gpunvme_dq *dq, const struct gnvd_cmd *c, int ret, struct gpunvme_req *req)
{
	struct gnvd_wave w;
	int err = 0;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_SUBMIT);
		GNVD_TOGETHER(w, err = gnvd_submit(dq, &w, !ret, c, req));
		gnvd_leave(&w);
	}
	return ret ? ret : err;
}

GNVD_FN int gnvd_submit_rw(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
			   uint32_t nblocks, uint32_t opc, struct gpunvme_req *req)
{
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	int ret = gnvd_check_window(dq, lba, nblocks, opc == GPUNVME_IO_WRITE);

	if (!ret)
		ret = gnvd_check_buffer(dq, dbuf, offset, nblocks);
	if (!ret && gnvd_blocks_per_command(dq, dbuf->iova + offset, nblocks) < nblocks)
		ret = -GPUNVME_EMSGSIZE;
	if (!ret) {
		gnvd_set_blocks(dq, opc, lba, nblocks, &c);
		gnvd_set_data(dq, dbuf, offset, (uint64_t)nblocks << dq->lba_shift, &c);
	}
	return gnvd_submit_one(dq, &c, ret, req);
}

/**
 * gpunvme_submit_read() - start reading, as exactly one command
 * @dq:      the queue
 * @dbuf:    the buffer; belongs to the device until the command is over
 * @offset:  bytes from the start of the buffer
 * @lba:     first block, counted from the window
 * @nblocks: blocks; at most dq->max_blocks, and at most what the PRP list of one command covers
 * @req:     set on success; pass it to gpunvme_poll(), gpunvme_wait() or gpunvme_abandon() on this queue, from any lane. NULL:
 *           nobody will ask; the library frees the command when it completes and counts it in detached_errors if it failed
 *
 * Return: 0; -GPUNVME_EAGAIN the queue is full: poll what is in flight, then try again; -GPUNVME_EMSGSIZE too long for one
 * command; see the head of this file.
 *
 * "In flight" includes the commands of the wave's other lanes. On a GPU a lane that tries again in a loop of its own keeps them
 * from polling, and the wave never ends: submit and poll in one loop that the lanes leave together (by a ballot), or block.
 */
GPUNVME_FN int gpunvme_submit_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
				   uint32_t nblocks, struct gpunvme_req *req)
{
	return gnvd_submit_rw(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_READ, req);
}

/**
 * gpunvme_submit_write() - start writing, as exactly one command
 * Parameters and results as gpunvme_submit_read().
 */
GPUNVME_FN int gpunvme_submit_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
				    uint32_t nblocks, struct gpunvme_req *req)
{
	return gnvd_submit_rw(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_WRITE, req);
}

/**
 * gpunvme_submit_flush() - start a flush
 * @dq:  the queue
 * @req: as for gpunvme_submit_read()
 * Return: as gpunvme_submit_read(). A flush covers writes that were complete before it was submitted.
 */
GPUNVME_FN int gpunvme_submit_flush(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	struct gnvd_cmd c = { GPUNVME_IO_FLUSH, 0, 0, 0, 0 };

	return gnvd_submit_one(dq, &c, gnvd_check_dq(dq), req);
}

/**
 * gpunvme_submit_write_zeroes() - start setting blocks to zero, as exactly one command
 * @dq:      the queue
 * @lba:     first block, counted from the window
 * @nblocks: 1 to 65536
 * @req:     as for gpunvme_submit_read()
 * Return: -GPUNVME_EOPNOTSUPP when the controller has no Write Zeroes; else as gpunvme_submit_read().
 */
GPUNVME_FN int gpunvme_submit_write_zeroes(const struct gpunvme_dq *dq, uint64_t lba, uint32_t nblocks, struct gpunvme_req *req)
{
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	int ret = gnvd_check_window(dq, lba, nblocks, 1);

	if (!ret && !(dq->flags & GPUNVME_DQ_WRITE_ZEROES))
		ret = -GPUNVME_EOPNOTSUPP;
	if (!ret && nblocks > 65536)
		ret = -GPUNVME_EMSGSIZE;
	if (!ret)
		gnvd_set_blocks(dq, GPUNVME_IO_WRITE_ZEROES, lba, nblocks, &c);
	return gnvd_submit_one(dq, &c, ret, req);
}

/**
 * gpunvme_poll() - is the command over?
 * @dq:  the queue it was submitted to (any view of it)
 * @req: the handle; consumed when the answer is final
 *
 * Takes in completions on the way, so a lane that only polls makes the queue progress.
 * Return: 0 done; positive, its NVMe status; -GPUNVME_EAGAIN not yet; -GPUNVME_ESTALE the handle was consumed or is of an earlier
 * incarnation of the queue; -GPUNVME_EXDEV it belongs to another queue; -GPUNVME_ETIMEDOUT silent for the queue's command time-out,
 * the queue is poisoned now; -GPUNVME_EPROTO; -GPUNVME_ENODEV the host says that the controller is gone.
 */
GPUNVME_FN int gpunvme_poll(const struct gpunvme_dq *dq, struct gpunvme_req *req)
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
	return late ? late : -GPUNVME_EAGAIN;
}

/**
 * gpunvme_wait() - wait until the command is over
 * @dq:    the queue it was submitted to (any view of it)
 * @req:   the handle; consumed when the answer is final
 * @ticks: how long, in ticks of the lane clock (dq->ticks_per_ms); 0: until the queue's own command time-out
 *
 * Return: as gpunvme_poll(), without -GPUNVME_EAGAIN. -GPUNVME_ETIMEDOUT after @ticks and -GPUNVME_ECANCELED leave the handle
 * valid and the buffer with the device: wait again, or gpunvme_abandon().
 */
GPUNVME_FN int gpunvme_wait(const struct gpunvme_dq *dq, struct gpunvme_req *req, uint64_t ticks)
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
 * gpunvme_abandon() - give a handle back without waiting
 * @dq:  the queue it was submitted to
 * @req: the handle; consumed
 *
 * The command goes on; its buffer belongs to the device until it has completed, which nobody will be told.
 * Return: 0; -GPUNVME_ESTALE, -GPUNVME_EXDEV, -GPUNVME_EPROTONOSUPPORT.
 */
GPUNVME_FN int gpunvme_abandon(const struct gpunvme_dq *dq, struct gpunvme_req *req)
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

#include <gpunvme/device_bulk.h>
#include <gpunvme/device_volume.h>

#endif
