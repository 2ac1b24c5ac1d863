/* SPDX-License-Identifier: MIT */
/*
 * Take and wait: each lane sees its own result word, acquires and frees its identifier. Meanwhile it drains, and checks now and
 * then whether to give up.
 */
#ifndef GPUNVME_DEVICE_WAIT_H
#define GPUNVME_DEVICE_WAIT_H

#include <gpunvme/device/drain.h>

/* Is this handle one of this queue? Return 0 or the error. */
GNVD_FN int gnvd_check_req(const struct gpunvme_dq *dq, const struct gpunvme_req *req)
{
	if (req->tag != dq->tag)
		return req->tag && (req->tag & 0xffffu) != (dq->tag & 0xffffu) ? -GPUNVME_EXDEV : -GPUNVME_ESTALE;
	return req->cid < dq->cids ? 0 : -GPUNVME_EINVAL;
}

/* As gnvd_take(), for a command that is certainly this lane's. word: its result word. */
GNVD_FN int gnvd_take_done(const struct gpunvme_dq *dq, uint32_t cid, uint64_t word, int *ret)
{
	uint32_t status;

	if (!gnvd_is_over(dq, word))
		return 0;
	/* Acquires: pairs with the drainer's release, and so with the controller's data. */
	word = gnvd_take64(gnvd_result_at(dq, cid), word & ~(GNVD_GEN_ONE - 1));
	status = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_RES_STATUS, word);
	*ret = status & GPUNVME_ST_CODE ? (int)status : 0;
	gnvd_or_after64(dq->cid_map + cid / 64 * 8, 1ull << (cid & 63));
	return 1;
}

/* If the command has ended, set *ret, free the CID and return 1. Each lane acquires for itself. */
GNVD_FN int gnvd_take(const struct gpunvme_dq *dq, struct gpunvme_req *req, int *ret)
{
	uint64_t word = gnvd_ld64(gnvd_result_at(dq, req->cid));

	if ((word ^ req->gen) >> GPUNVME_RES_GEN_SHIFT || (word & GPUNVME_RES_STATE) == GPUNVME_RES_FREE) {
		*ret = -GPUNVME_ESTALE;
		return 1;
	}
	if (!gnvd_take_done(dq, req->cid, word, ret))
		return 0;
	req->tag = 0;
	return 1;
}

/* No thread asks for this command any more. Its CID is freed when it completes. */
GNVD_FN void gnvd_detach(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	uint64_t old = gnvd_or64(gnvd_result_at(dq, req->cid), GPUNVME_RES_DETACHED);

	/* Drainer and owner both set a bit. The second of them frees. */
	if (gnvd_is_over(dq, old))
		gnvd_finish_detached(dq, req->cid, old & ~(GNVD_GEN_ONE - 1), (uint32_t)GPUNVME_FIELD_GET(GPUNVME_RES_STATUS, old));
	req->tag = 0;
}

/* The slow part of waiting: stop word, poison, deadlines. Return 0 to go on waiting, or why not. */
GNVD_FN int gnvd_look_up(const struct gpunvme_dq *dq, uint64_t *deadline, uint64_t ticks, uint64_t *until)
{
	uint64_t now;
	uint32_t control = gnvd_control(dq, &now), poison = control > 1 ? control : gnvd_ld32(GNVD_STATE(dq, poison));

	if (!*deadline)
		*deadline = now + dq->cmd_timeout;
	if (ticks && !*until)
		*until = ticks < ~0ull - now ? now + ticks : ~0ull;
	if (poison == GPUNVME_EPROTO || poison == GPUNVME_ENODEV || control == GPUNVME_ESHUTDOWN)
		return -(int)poison;
	if (now >= *deadline)
		return -(int)gnvd_opaque32(GPUNVME_ETIMEDOUT);
	if (control == 1)
		return -(int)gnvd_opaque32(GPUNVME_ECANCELED);
	return ticks && now >= *until ? -GPUNVME_ETIMEDOUT : 0;
}

/* The slow part of waiting for room, for all lanes of the wave. `waits`: this one does. Return 0 to go on, or why not. */
GNVD_FN int gnvd_no_room(const struct gpunvme_dq *dq, int waits, uint64_t *deadline, uint32_t *fetched)
{
	uint32_t seen = gnvd_same32((uint32_t)gnvd_ld64(GNVD_STATE(dq, fetched))), control;
	uint64_t now;

	control = gnvd_control(dq, &now);
	if (waits && (!*deadline || seen != *fetched))
		*deadline = now + dq->cmd_timeout;
	*fetched = seen;
	if (control == 1)
		return -GPUNVME_ECANCELED;
	return now > *deadline ? -(int)gnvd_opaque32(GPUNVME_ETIMEDOUT) : 0;
}

/* Stop waiting for a command. */
GNVD_FN void gnvd_fail_wait(const struct gpunvme_dq *dq, struct gpunvme_req *req, int why, uint64_t deadline)
{
	if (why == -GPUNVME_ETIMEDOUT && gnvd_clock() >= deadline)
		gnvd_poison(dq, GPUNVME_ETIMEDOUT);
	gnvd_detach(dq, req);
}

/*
 * A lane that waits drains, except where gpunvme_poll_queue() runs. It drains there now and then, too, and does not depend on that.
 */
GNVD_FN int gnvd_helps(const struct gpunvme_dq *dq, uint32_t turn)
{
	return !(dq->flags & GPUNVME_DQ_POLLED) || (turn & 255) == 255;
}

GNVD_FN void gnvd_help(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint32_t turn)
{
	if (gnvd_helps(dq, turn))
		gnvd_drain(dq, w);
}

/* As gnvd_help(), in a transfer. Completions of the wave itself, of the lanes with `waits` set, are taken: own->over. */
GNVD_FN void gnvd_help_own(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint32_t turn, int waits, struct gnvd_own *own)
{
	uint64_t lanes;

	if (!GNVD_OWNS(w)) {
		gnvd_help(dq, w, turn);
		return;
	}
	own->over = 0;
	own->lanes &= gnvd_ballot(w, waits);
	if (gnvd_helps(dq, turn))
		gnvd_drain_for(dq, w, own);
	lanes = gnvd_ballot(w, own->over != 0);
	if (lanes && w->rank == 0) /* after the exchanges of all lanes, which have returned */
		gnvd_or_after64(dq->cid_map + own->cid / 64 * 8, lanes << (own->cid & 63));
}

/* Has the command of this lane ended? Then *ret is its result. */
GNVD_FN int gnvd_take_own(const struct gpunvme_dq *dq, uint32_t cid, const struct gnvd_own *own, int *ret)
{
	if (!own->over)
		return gnvd_take_done(dq, cid, gnvd_ld64(gnvd_result_at(dq, cid)), ret);
	*ret = own->status & GPUNVME_ST_CODE ? (int)own->status : 0;
	return 1;
}

/*
 * Wait for the commands of the lanes with `open` set. ticks 0: until the queue's own time-out. Before a lane gives up it drains and
 * looks once more. Return the result of each lane. *req stays valid if the command has not ended.
 */
GNVD_FN int gnvd_wait(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int open, struct gpunvme_req *req, uint64_t ticks)
{
	uint64_t until = 0;
	uint32_t turn = 0;
	int ret = 0, why = 0;

	for (;;) {
		if (open && gnvd_take(dq, req, &ret)) {
			open = 0;
		} else if (open && why) {
			if (why == -GPUNVME_ETIMEDOUT && gnvd_clock() >= req->deadline)
				gnvd_poison(dq, GPUNVME_ETIMEDOUT);
			ret = why;
			open = 0;
		}
		if (!gnvd_ballot(w, open))
			return ret;
		if (open && (turn & 15) == 15)
			why = gnvd_look_up(dq, &req->deadline, ticks, &until);
		gnvd_help(dq, w, turn);
		gnvd_pause(turn++);
	}
}

#endif
