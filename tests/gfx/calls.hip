// SPDX-License-Identifier: MIT
// The kernel behind lanes/gpunvme/device.h: a code object of its own, which all tests share.
#include <gpunvme/device.h>

#include "calls.h"

extern "C" __attribute__((global)) void call(struct call *c)
{
	const struct gpunvme_dq *dq = c->dq;
	struct gnvd_cmd cmd = { 0, 0, 0, 0, 0 };

	switch (c->what) {
	case CALL_READ: c->ret = gpunvme_read(dq, c->dbuf, c->offset, c->pos, c->len); break;
	case CALL_WRITE: c->ret = gpunvme_write(dq, c->dbuf, c->offset, c->pos, c->len, c->flags); break;
	case CALL_FLUSH: c->ret = gpunvme_flush(dq); break;
	case CALL_ZERO: c->ret = gpunvme_zero(dq, c->pos, c->len); break;
	case CALL_DISCARD: c->ret = gpunvme_discard(dq, c->dbuf, c->offset, c->pos, c->len); break;
	case CALL_SUBMIT_READ: c->ret = gpunvme_submit_read(dq, c->dbuf, c->offset, c->pos, c->len, c->req); break;
	case CALL_SUBMIT_WRITE: c->ret = gpunvme_submit_write(dq, c->dbuf, c->offset, c->pos, c->len, c->flags, c->req); break;
	case CALL_SUBMIT_FLUSH: c->ret = gpunvme_submit_flush(dq, c->req); break;
	case CALL_SUBMIT_ZERO: c->ret = gpunvme_submit_zero(dq, c->pos, c->len, c->req); break;
	case CALL_SUBMIT_DISCARD: c->ret = gpunvme_submit_discard(dq, c->dbuf, c->offset, c->pos, c->len, c->req); break;
	case CALL_POLL: c->ret = gpunvme_poll(dq, c->req); break;
	case CALL_WAIT: c->ret = gpunvme_wait(dq, c->req, c->ticks); break;
	case CALL_WAIT_ANY: c->ret = gpunvme_wait_any(dq, c->req, c->count, c->ticks, &c->index); break;
	case CALL_DETACH: c->ret = gpunvme_detach(dq, c->req); break;
	case CALL_POLL_QUEUE: c->ret = gpunvme_poll_queue(dq, c->count, c->pos); break;
	case CALL_WAVE_READ: c->ret = gpunvme_wave_read(dq, c->dbuf, c->offset, c->pos, c->len); break;
	case CALL_WAVE_WRITE: c->ret = gpunvme_wave_write(dq, c->dbuf, c->offset, c->pos, c->len, c->flags); break;
	case CALL_WAVE_READ_ONE: c->ret = gpunvme_wave_read_one(dq, c->dbuf, c->offset, c->pos, c->len); break;
	case CALL_WAVE_WRITE_ONE: c->ret = gpunvme_wave_write_one(dq, c->dbuf, c->offset, c->pos, c->len, c->flags); break;
	case CALL_SET_DATA:
		gnvd_set_data(dq, c->dbuf, c->offset, c->len, &cmd);
		c->prp1 = cmd.prp1;
		c->prp2 = cmd.prp2;
		break;
	case CALL_BLOCKS: c->ret = (int)gnvd_blocks_per_command(dq, c->pos, c->count); break;
	}
}
