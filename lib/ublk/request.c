/* SPDX-License-Identifier: MIT */
/* Requests of the driver as commands of a controller. */
#include <gpunvme/device.h>

#include <errno.h>
#include <string.h>

#include "ublk/ublk.h"
#include "util/bits.h"

#define SECTOR_SHIFT 9u

static int move(struct gnv_ublk_worker *worker, struct gnv_ublk_tag *tag, uint64_t pos, uint64_t len)
{
	const uint32_t flags = tag->desc.op_flags & GNV_UBLK_FUA ? GPUNVME_FUA : 0;

	if (len > tag->dbuf.len)
		return -EINVAL;
	if ((tag->desc.op_flags & GNV_UBLK_OP) == GNV_UBLK_READ)
		return gpunvme_submit_read(&worker->dq, &tag->dbuf, 0, pos, len, &tag->req);
	return gpunvme_submit_write(&worker->dq, &tag->dbuf, 0, pos, len, flags, &tag->req);
}

int gnv_ublk_send(struct gnv_ublk_worker *worker, struct gnv_ublk_tag *tag)
{
	const uint32_t op = tag->desc.op_flags & GNV_UBLK_OP;
	const uint64_t pos = tag->desc.sector << SECTOR_SHIFT, len = (uint64_t)tag->desc.sectors << SECTOR_SHIFT;

	if (op != GNV_UBLK_FLUSH && tag->desc.sector > UINT64_MAX >> SECTOR_SHIFT) /* the sector of a flush is undefined */
		return -EINVAL;
	switch (op) {
	case GNV_UBLK_READ:
	case GNV_UBLK_WRITE:
		return move(worker, tag, pos, len);
	case GNV_UBLK_FLUSH:
		return gpunvme_submit_flush(&worker->dq, &tag->req);
	case GNV_UBLK_DISCARD: /* no data, so the buffer has room for the range */
		return gpunvme_submit_discard(&worker->dq, &tag->dbuf, 0, pos, len, &tag->req);
	case GNV_UBLK_WRITE_ZEROES:
		return gpunvme_submit_zero(&worker->dq, pos, len, &tag->req);
	default:
		return -EOPNOTSUPP;
	}
}

int gnv_ublk_result(const struct gnv_ublk_tag *tag, int ret)
{
	uint32_t op = tag->desc.op_flags & GNV_UBLK_OP;

	if (!ret)
		return op == GNV_UBLK_READ || op == GNV_UBLK_WRITE ? (int)(tag->desc.sectors << SECTOR_SHIFT) : 0;
	if (ret > 0)
		ret &= 0x7ff; /* without the retry hints */
	switch (ret) {
	case -EOPNOTSUPP:
	case GPUNVME_SC_INVALID_OPCODE:
		return -EOPNOTSUPP;
	case GPUNVME_SC_WRITE_FAULT:
	case GPUNVME_SC_UNRECOVERED_READ:
		return -ENODATA; /* the block layer's word for a bad medium (blk_errors, block/blk-core.c) */
	default:
		return -EIO;
	}
}

/* ---- The parameters of the disk ---- */

/* Not so many that their bytes are no uint32_t, and whole blocks. */
static uint32_t in_sectors(uint64_t blocks, uint32_t lba_shift)
{
	return (uint32_t)gnv_min(blocks << (lba_shift - SECTOR_SHIFT), UINT32_MAX >> SECTOR_SHIFT & ~127u);
}

/* The power of two of so many blocks in bytes, where it is one and of use. */
static uint8_t shift_of(uint32_t blocks, uint32_t lba_shift)
{
	if (!blocks || blocks & (blocks - 1) || (uint64_t)blocks << lba_shift > 1u << 28)
		return (uint8_t)lba_shift;
	return (uint8_t)((unsigned)__builtin_ctz(blocks) + lba_shift);
}

void gnv_ublk_describe(const struct gpunvme_ublk *ublk, const struct gpunvme_dq *dq, bool cache, struct gnv_ublk_params *p)
{
	const uint32_t shift = dq->lba_shift, zeroes = 65536u >> (dq->flags >> GPUNVME_DQ_ZEROES_SHIFT);

	memset(p, 0, sizeof(*p));
	p->len = sizeof(*p);
	p->types = GNV_UBLK_PARAM_BASIC;
	p->basic.attrs = ublk->read_only ? GNV_UBLK_ATTR_READ_ONLY : 0;
	if (cache)
		p->basic.attrs |= GNV_UBLK_ATTR_VOLATILE_CACHE | GNV_UBLK_ATTR_FUA;
	p->basic.logical_shift = (uint8_t)shift;
	p->basic.physical_shift = (uint8_t)shift;
	p->basic.min_shift = shift_of(ublk->ns.write_step, shift);
	p->basic.opt_shift = shift_of(ublk->ns.write_best, shift);
	p->basic.max_sectors = ublk->info.max_bytes >> SECTOR_SHIFT;
	p->basic.chunk_sectors = dq->boundary ? in_sectors(-dq->boundary, shift) : 0;
	p->basic.sectors = ublk->ns.nblocks << (shift - SECTOR_SHIFT);
	if (ublk->read_only)
		return;
	p->discard.granularity = 1u << shift; /* never 0, which the driver refuses */
	p->discard.max_sectors = in_sectors(dq->deallocate, shift);
	p->discard.max_segments = p->discard.max_sectors ? 1 : 0;
	if (dq->flags & GPUNVME_DQ_WRITE_ZEROES)
		p->discard.max_zeroes_sectors = in_sectors(zeroes, shift);
	p->types |= GNV_UBLK_PARAM_DISCARD;
}
