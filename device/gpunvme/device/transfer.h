/* SPDX-License-Identifier: MIT */
/* A blocking transfer: all steps in one loop that the lanes of a wave run together. */
#ifndef GPUNVME_DEVICE_TRANSFER_H
#define GPUNVME_DEVICE_TRANSFER_H

#include <gpunvme/device/command.h>
#include <gpunvme/device/gate.h>
#include <gpunvme/device/reserve.h>
#include <gpunvme/device/wait.h>
#include <gpunvme/device/write.h>

/* The rest of a lane's transfer. */
struct gnvd_left {
	uint64_t offset;
	uint64_t lba;
	uint32_t nblocks; /* 0: all is done */
	int ret;          /* 0, the failure, or why the lane gives up at its next look */
};

#define GNVD_IDLE 0x40000000 /* a lane without a transfer: neither a status nor an error */

/* Blocks of the next command of a transfer. A flush counts as one block. */
GNVD_FN uint32_t gnvd_part_blocks(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, const struct gnvd_left *l,
				  uint32_t op)
{
	uint32_t most = op == GPUNVME_IO_WRITE_ZEROES ? gnvd_most_zeroes(dq) : 65536;

	if (op == GPUNVME_IO_DSM)
		return l->nblocks < dq->deallocate ? l->nblocks : dq->deallocate;
	if (op != GPUNVME_IO_FLUSH && dbuf)
		return gnvd_blocks_per_command(dq, dbuf->iova + l->offset, gnvd_to_boundary(dq, l->lba, l->nblocks, op));
	return l->nblocks < most ? l->nblocks : most;
}

/* Set that command, of n blocks. */
GNVD_FN void gnvd_set_part(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, const struct gnvd_left *l, uint32_t n,
			   uint32_t op, struct gnvd_cmd *c)
{
	c->dw0 = op;
	if (op == GPUNVME_IO_FLUSH)
		return;
	if (op == GPUNVME_IO_DSM) {
		gnvd_set_range(dq, dbuf, l->offset, l->lba, n, c);
		return;
	}
	gnvd_set_blocks(dq, op, l->lba, n, c);
	if (dbuf)
		gnvd_set_data(dq, dbuf, l->offset, (uint64_t)n << dq->lba_shift, c);
}

/* As gnvd_look_up(), for the command of a transfer. */
GNVD_FN int gnvd_look_on(const struct gpunvme_dq *dq, uint64_t *deadline, uint32_t op)
{
	int why = gnvd_look_up(dq, deadline, 0, NULL);

	return op & GNVD_FINISH && why == -GPUNVME_ECANCELED ? 0 : why;
}

/*
 * One lane's transfer, part by part. dbuf NULL: a command without data. All lanes of the wave run the loop together until the last
 * one is done. Lanes with a part to submit submit it, all lanes take completions, and lanes with a result take it. So a wave that
 * waits for room never holds results, which hold identifiers. A lane stops at its first failure, which is the first in LBA order.
 * Values that live through the loop occupy registers of every lane, so a command is computed where it is stored. `deadline` is that
 * of the command in flight, or of the wait for room. `idle`: turns since the wave last submitted.
 */
GNVD_FN void gnvd_run_wave(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dbuf *dbuf,
			   struct gnvd_left *left, uint32_t op)
{
	uint32_t n = 0, turn = 0, idle = 0, most = gnvd_widest(dq); /* n: blocks in flight */
	struct gpunvme_req req = { 0, 0, 0, 0 };
	struct gnvd_own own = { 0, 0, 0, 0, 0 };
	struct gnvd_left l = *left;
	uint64_t deadline = 0;
	uint32_t fetched = 0;
	int err, want, late;

	l.nblocks = l.ret ? 0 : op == GPUNVME_IO_FLUSH ? 1 : l.nblocks;
	for (; gnvd_ballot(w, l.nblocks != 0); turn++) {
		want = l.nblocks && !n;
		if (gnvd_ballot(w, want)) {
			struct gnvd_grant grant = { 0, 0, 0, 0, 0 };

			err = gnvd_find_places(dq, w, want, most, &grant);
			if (want && !err) {
				struct gnvd_cmd c = { 0, 0, 0, 0, 0 };

				gnvd_begin_command(dq, &grant, &req);
				n = gnvd_part_blocks(dq, dbuf, &l, op);
				gnvd_set_part(dq, dbuf, &l, n, op, &c);
				gnvd_write_command(dq, &grant, &c, req.cid);
				deadline = 0;
			}
			if (grant.count) {
				gnvd_begin_own(w, &grant, want && !err, &own);
				gnvd_publish(dq, w, grant.pos, grant.count);
				idle = 0;
			}
			late = (turn & 15) == 15 ? gnvd_no_room(dq, want && err, &deadline, &fetched) : 0;
			if (want && err)
				l.ret = err == -GPUNVME_EAGAIN ? late : err;
		}
		gnvd_help_own(dq, w, turn, n != 0, &own);
		if (n && gnvd_take_own(dq, req.cid, &own, &l.ret)) {
			l.lba += n;
			l.offset += op == GPUNVME_IO_DSM ? 0 : (uint64_t)n << dq->lba_shift; /* the next range is in the same place */
			l.nblocks = l.ret ? 0 : l.nblocks - n;
			n = 0;
			deadline = 0;
		} else if (l.ret && l.nblocks) {
			if (n)
				gnvd_fail_wait(dq, &req, l.ret, deadline);
			l.nblocks = n = 0;
		}
		if (n && (turn & 15) == 15)
			l.ret = gnvd_look_on(dq, &deadline, op);
		if ((turn & 63) == 63 && !gnvd_ballot(w, n != 0) && most > 1)
			most /= 2; /* waves that submit few commands must not starve one that submits many */
		gnvd_pause(idle++);
	}
	*left = l;
}

/* A lane on its own. */
GNVD_FN void gnvd_run_alone(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dbuf *dbuf,
			    struct gnvd_left *left, uint32_t op)
{
	GNVD_AT_HAND(struct gpunvme_dq, near, dq);

	gnvd_run_wave(near, w, dbuf, left, op);
}

/* `hint` is gnvd_hint(), computed before any loop: in a loop its operands would stay in registers. */
GNVD_FN int gnvd_run_by(const struct gpunvme_dq *dq, enum gnvd_site site, uint32_t hint, const struct gpunvme_dbuf *dbuf,
			uint64_t offset, uint64_t lba, uint32_t nblocks, uint32_t op, int ret)
{
	struct gnvd_left left = { offset, lba, nblocks, ret };
	struct gnvd_wave w;

	w.hint = hint;
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, site);
		GNVD_APART(w, gnvd_run_alone(dq, &w, dbuf, &left, op), gnvd_run_wave(dq, &w, dbuf, &left, op));
		gnvd_leave(&w);
	}
	return left.ret;
}

GNVD_FN int gnvd_run_at(const struct gpunvme_dq *dq, enum gnvd_site site, const struct gpunvme_dbuf *dbuf, uint64_t offset,
			uint64_t lba, uint32_t nblocks, uint32_t op, int ret)
{
	return gnvd_run_by(dq, site, gnvd_hint(), dbuf, offset, lba, nblocks, op, ret);
}

/* The leader's transfer, with the help of all lanes of the wave. All get the result. */
GNVD_FN int gnvd_run_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
			 uint32_t nblocks, uint32_t op, int ret)
{
	struct gnvd_left left = { offset, lba, nblocks, ret };
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_WAVE);
		left.ret = w.rank ? GNVD_IDLE : left.ret;
		GNVD_APART(w, gnvd_run_alone(dq, &w, dbuf, &left, op), gnvd_run_wave(dq, &w, dbuf, &left, op));
		gnvd_meet(&w); /* all lanes have what the leader acquired */
		left.ret = (int)gnvd_bcast32(&w, (uint32_t)left.ret);
		gnvd_leave(&w);
	}
	return left.ret;
}

GNVD_FN int gnvd_run(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba, uint32_t nblocks,
		     uint32_t op, int ret)
{
	return gnvd_run_at(dq, GNVD_SITE_RUN, dbuf, offset, lba, nblocks, op, ret);
}

/* ---- From the arguments of a call. `ret` is the result of the checks of others ---- */

GNVD_FN int gnvd_transfer(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			  uint32_t op, int ret)
{
	if (!ret)
		ret = gnvd_check_transfer(dq, dbuf, offset, pos, len, op);
	return gnvd_run(dq, dbuf, offset, GNVD_BLOCKS(dq, pos), GNVD_NBLOCKS(dq, len), op, ret);
}

GNVD_FN int gnvd_zero(const struct gpunvme_dq *dq, uint64_t lba, uint32_t nblocks, int ret)
{
	return gnvd_run(dq, NULL, 0, lba, nblocks, GPUNVME_IO_WRITE_ZEROES, gnvd_check_zero(dq, ret));
}

GNVD_FN int gnvd_discard(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
			 uint32_t nblocks, int ret)
{
	return gnvd_run(dq, dbuf, offset, lba, nblocks, GPUNVME_IO_DSM, gnvd_check_range(dq, dbuf, offset, ret));
}

#endif
