// SPDX-License-Identifier: MIT
// The kernel behind lanes/gpunvme/device.h: a code object of its own, which all tests share.
#include <gpunvme/device.h>

#include "calls.h"

extern "C" __attribute__((global)) void call(struct call *c)
{
	const struct gpunvme_dq *dq = c->dq;
	struct gnvd_cmd cmd = { 0, 0, 0, 0, 0 };

	switch (c->what) {
	case CALL_READ: c->ret = gpunvme_read(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_WRITE: c->ret = gpunvme_write(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_FLUSH: c->ret = gpunvme_flush(dq); break;
	case CALL_WRITE_ZEROES: c->ret = gpunvme_write_zeroes(dq, c->lba, c->nblocks); break;
	case CALL_SUBMIT_READ: c->ret = gpunvme_submit_read(dq, c->dbuf, c->offset, c->lba, c->nblocks, c->req); break;
	case CALL_SUBMIT_WRITE: c->ret = gpunvme_submit_write(dq, c->dbuf, c->offset, c->lba, c->nblocks, c->req); break;
	case CALL_SUBMIT_FLUSH: c->ret = gpunvme_submit_flush(dq, c->req); break;
	case CALL_SUBMIT_WRITE_ZEROES: c->ret = gpunvme_submit_write_zeroes(dq, c->lba, c->nblocks, c->req); break;
	case CALL_POLL: c->ret = gpunvme_poll(dq, c->req); break;
	case CALL_WAIT: c->ret = gpunvme_wait(dq, c->req, c->ticks); break;
	case CALL_WAVE_READ: c->ret = gpunvme_wave_read(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_WAVE_WRITE: c->ret = gpunvme_wave_write(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_WAVE_READ_ONE: c->ret = gpunvme_wave_read_one(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_WAVE_WRITE_ONE: c->ret = gpunvme_wave_write_one(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_WAIT_ANY: c->ret = gpunvme_wait_any(dq, c->req, c->nblocks, c->ticks, &c->index); break;
	case CALL_SERVE: c->ret = gpunvme_serve(dq, c->nblocks, c->lba); break;
	case CALL_WRITE_FUA: c->ret = gpunvme_write_fua(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_SUBMIT_WRITE_FUA: c->ret = gpunvme_submit_write_fua(dq, c->dbuf, c->offset, c->lba, c->nblocks, c->req); break;
	case CALL_WAVE_WRITE_FUA: c->ret = gpunvme_wave_write_fua(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_DEALLOCATE: c->ret = gpunvme_deallocate(dq, c->dbuf, c->offset, c->lba, c->nblocks); break;
	case CALL_SUBMIT_DEALLOCATE: c->ret = gpunvme_submit_deallocate(dq, c->dbuf, c->offset, c->lba, c->nblocks, c->req); break;
	case CALL_ABANDON: c->ret = gpunvme_abandon(dq, c->req); break;
	case CALL_SET_DATA:
		gnvd_set_data(dq, c->dbuf, c->offset, c->lba, &cmd);
		c->prp1 = cmd.prp1;
		c->prp2 = cmd.prp2;
		break;
	case CALL_BLOCKS: c->ret = (int)gnvd_blocks_per_command(dq, c->lba, c->nblocks); break;
	}
}
