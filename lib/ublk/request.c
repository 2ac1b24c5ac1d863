/* SPDX-License-Identifier: MIT */
/* Requests of the driver as commands of a controller. */
#include <gpunvme/device.h>

#include <errno.h>
#include <string.h>

#include "ublk/ublk.h"
#include "util/bits.h"

#define SECTOR_SHIFT 9u

/* In blocks. The driver keeps to the limits of the disk; a request that does not would be sent for other blocks. */
static int to_blocks(const struct gnv_ublk_lane *lane, const struct gnv_ublk_desc *desc, uint64_t *lba, uint32_t *blocks)
{
	unsigned shift = lane->dq.lba_shift - SECTOR_SHIFT;

	if ((desc->sector | desc->sectors) & ((1u << shift) - 1))
		return -EINVAL;
	*lba = desc->sector >> shift;
	*blocks = desc->sectors >> shift;
	return 0;
}

static int move(struct gnv_ublk_lane *lane, struct gnv_ublk_tag *tag, uint64_t lba, uint32_t blocks)
{
	const struct gpunvme_dq *dq = &lane->dq;

	if ((uint64_t)blocks << dq->lba_shift > tag->dbuf.len)
		return -EINVAL;
	if ((tag->desc.op_flags & GNV_UBLK_OP) == GNV_UBLK_READ)
		return gpunvme_submit_read(dq, &tag->dbuf, 0, lba, blocks, &tag->req);
	if (tag->desc.op_flags & GNV_UBLK_FUA)
		return gpunvme_submit_write_fua(dq, &tag->dbuf, 0, lba, blocks, &tag->req);
	return gpunvme_submit_write(dq, &tag->dbuf, 0, lba, blocks, &tag->req);
}

int gnv_ublk_send(struct gnv_ublk_lane *lane, struct gnv_ublk_tag *tag)
{
	const uint32_t op = tag->desc.op_flags & GNV_UBLK_OP;
	uint64_t lba = 0;
	uint32_t blocks = 0;
	int ret = op == GNV_UBLK_FLUSH ? 0 : to_blocks(lane, &tag->desc, &lba, &blocks); /* a flush has no place, and says anything */

	if (ret)
		return ret;
	switch (op) {
	case GNV_UBLK_READ:
	case GNV_UBLK_WRITE:
		return move(lane, tag, lba, blocks);
	case GNV_UBLK_FLUSH:
		return gpunvme_submit_flush(&lane->dq, &tag->req);
	case GNV_UBLK_DISCARD: /* no data, so the buffer has room for the range */
		return gpunvme_submit_deallocate(&lane->dq, &tag->dbuf, 0, lba, blocks, &tag->req);
	case GNV_UBLK_WRITE_ZEROES:
		return gpunvme_submit_write_zeroes(&lane->dq, lba, blocks, &tag->req);
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

/* ---- What the disk is like ---- */

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
