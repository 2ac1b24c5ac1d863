/* SPDX-License-Identifier: MIT */
/* Commands from the arguments of a call: the checks before anything is submitted, and the fields that follow from the arguments. */
#ifndef GPUNVME_DEVICE_COMMAND_H
#define GPUNVME_DEVICE_COMMAND_H

#include <gpunvme/device/queue.h>

/*
 * The request of a call, `op`, is an opcode, with GPUNVME_RW_FUA if its data must be on the media. With GNVD_FINISH, commands that
 * the drive has are waited for also after gpunvme_queue_stop().
 */
#define GNVD_FINISH 0x100u
#define GNVD_OPC(op) ((op) & 0xffu)
#define GNVD_WRITE(flags) (GPUNVME_IO_WRITE | ((flags) & GPUNVME_FUA))

/* Blocks of so many bytes. A descriptor that is refused may have any shift. */
#define GNVD_BLOCKS(of, bytes) ((bytes) >> ((of)->lba_shift & 63))
#define GNVD_NBLOCKS(of, bytes) ((uint32_t)GNVD_BLOCKS(of, bytes)) /* of a checked length */
#define GNVD_UNALIGNED(of, bytes) ((bytes) & ((1ull << ((of)->lba_shift & 63)) - 1))

/* Does this header support the descriptor, and is it of this kind? */
GNVD_FN int gnvd_check_head(const struct gpunvme_head *head, uint32_t kind)
{
	if (head->version != GPUNVME_HEAD_VERSION)
		return -GPUNVME_EPROTONOSUPPORT;
	return head->kind == kind ? 0 : -GPUNVME_EINVAL;
}

GNVD_FN int gnvd_check_dq(const struct gpunvme_dq *dq)
{
	return gnvd_check_head(&dq->head, GPUNVME_KIND_QUEUE);
}

GNVD_FN int gnvd_check_flags(uint32_t flags)
{
	return flags & ~GPUNVME_FUA ? -GPUNVME_EINVAL : 0;
}

GNVD_FN int gnvd_check_window(const struct gpunvme_dq *dq, uint64_t lba, uint64_t nblocks, int write)
{
	int ret = gnvd_check_dq(dq);

	if (ret)
		return ret;
	if (!nblocks)
		return -GPUNVME_EINVAL;
	if (write && !(dq->flags & GPUNVME_DQ_WRITE))
		return -GPUNVME_EROFS;
	return GNVD_WITHIN(lba, nblocks, dq->lba_count) ? 0 : -GPUNVME_ERANGE;
}

/* As above, for bytes, as callers pass them: whole blocks. */
GNVD_FN int gnvd_check_span(const struct gpunvme_dq *dq, uint64_t pos, uint64_t len, int write)
{
	int ret = gnvd_check_dq(dq);

	if (ret)
		return ret;
	if (GNVD_UNALIGNED(dq, pos | len))
		return -GPUNVME_EINVAL;
	ret = gnvd_check_window(dq, GNVD_BLOCKS(dq, pos), GNVD_BLOCKS(dq, len), write);
	return ret ? ret : GNVD_BLOCKS(dq, len) >> 32 ? -GPUNVME_EMSGSIZE : 0;
}

GNVD_FN int gnvd_check_bytes(const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t bytes)
{
	if ((dbuf->iova + offset) & 3)
		return -GPUNVME_EINVAL;
	return GNVD_WITHIN(offset, bytes, dbuf->len) ? 0 : -GPUNVME_ERANGE;
}

GNVD_FN int gnvd_check_buffer(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint32_t nblocks)
{
	return gnvd_check_bytes(dbuf, offset, (uint64_t)nblocks << dq->lba_shift);
}

GNVD_FN int gnvd_check_transfer(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				uint64_t len, uint32_t op)
{
	int ret = gnvd_check_span(dq, pos, len, GNVD_OPC(op) == GPUNVME_IO_WRITE);

	return ret ? ret : gnvd_check_bytes(dbuf, offset, len);
}

/* In the next two functions `ret` is the result of the check of the blocks. */
GNVD_FN int gnvd_check_zero(const struct gpunvme_dq *dq, int ret)
{
	return ret ? ret : dq->flags & GPUNVME_DQ_WRITE_ZEROES ? 0 : -GPUNVME_EOPNOTSUPP;
}

GNVD_FN int gnvd_check_range(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, int ret)
{
	if (!ret && !dq->deallocate)
		ret = -GPUNVME_EOPNOTSUPP;
	return ret ? ret : gnvd_check_bytes(dbuf, offset, sizeof(struct gpunvme_dsm_range));
}

/* Blocks that one Write Zeroes can set, at least one. */
GNVD_FN uint32_t gnvd_most_zeroes(const struct gpunvme_dq *dq)
{
	return (65535u >> (dq->flags >> GPUNVME_DQ_ZEROES_SHIFT)) + 1;
}

/* Blocks that one command can move to or from `addr`, at least one: NLB of no block would mean 65536. */
GNVD_FN uint32_t gnvd_blocks_per_command(const struct gpunvme_dq *dq, uint64_t addr, uint32_t nblocks)
{
	uint64_t page = 1ull << dq->page_shift, limit = dq->max_blocks ? dq->max_blocks : 1;

	/* Each run of 1 + page/16 entries is contiguous in one of the two PRP copies. */
	if (!(dq->flags & GPUNVME_DQ_SGL)) {
		uint64_t span = ((page + (page * (page / 16))) - (addr & (page - 1))) >> dq->lba_shift;

		limit = span < limit ? span : limit;
	}
	return nblocks < limit ? nblocks : (uint32_t)limit;
}

/*
 * Of the blocks from lba on, those up to the next boundary at which the drive prefers transfers to end. A write that the drive
 * makes atomically is not cut. Without a boundary, multiples of 2^32 blocks count as one, which does no harm. `more` counts the
 * blocks after the first one. Its operands are hidden from compilers, which would keep it in a register for the command.
 */
GNVD_FN uint32_t gnvd_to_boundary(const struct gpunvme_dq *dq, uint64_t lba, uint32_t nblocks, uint32_t op)
{
	uint32_t more = ~(gnvd_opaque32((uint32_t)dq->lba_first + (uint32_t)lba) | dq->boundary);

	if (GNVD_OPC(op) == GPUNVME_IO_WRITE && nblocks <= dq->atomic && !(dq->flags & GPUNVME_DQ_TORN))
		return nblocks;
	return (nblocks - 1 < more ? nblocks - 1 : more) + 1;
}

/*
 * Set the data pointer: PRP1 and PRP2, or an SGL data block. Nothing is written: the lists were built when the buffer was mapped.
 */
GNVD_FN void gnvd_set_data(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t bytes,
			   struct gnvd_cmd *c)
{
	uint64_t addr = dbuf->iova + offset, page = 1ull << dq->page_shift, pages, entry, list;

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
	list = (entry & (page / 8 - 1)) + pages - 1 <= page / 8 ? dbuf->prp_a : dbuf->prp_b;
	c->prp2 = (list & ~(uint64_t)GPUNVME_DBUF_STRIDE) + (8 * entry << (list & GPUNVME_DBUF_STRIDE));
}

GNVD_FN void gnvd_set_blocks(const struct gpunvme_dq *dq, uint32_t op, uint64_t lba, uint32_t nblocks, struct gnvd_cmd *c)
{
	c->dw0 = GNVD_OPC(op);
	c->slba = dq->lba_first + lba;
	c->cdw12 = (nblocks - 1) | (op & GPUNVME_RW_FUA);
	c->prp1 = c->prp2 = 0;
}

/* Deallocate n blocks. The range is in the buffer, and the controller reads it like the data of a write. */
GNVD_FN void gnvd_set_range(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t lba,
			    uint32_t nblocks, struct gnvd_cmd *c)
{
	uint64_t at = dbuf->base + offset, first = dq->lba_first + lba;

	gnvd_st32(at, 0);
	gnvd_st32(at + offsetof(struct gpunvme_dsm_range, nlb), nblocks);
	gnvd_st32(at + offsetof(struct gpunvme_dsm_range, slba), (uint32_t)first);
	gnvd_st32(at + offsetof(struct gpunvme_dsm_range, slba) + 4, (uint32_t)(first >> 32));
	c->dw0 = GPUNVME_IO_DSM;
	c->slba = (uint64_t)GPUNVME_DSM_AD << 32; /* CDW11. CDW10 is 0 for one range */
	gnvd_set_data(dq, dbuf, offset, sizeof(struct gpunvme_dsm_range), c);
}

#endif
