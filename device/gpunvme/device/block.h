/* SPDX-License-Identifier: MIT */
/*
 * The transfer of a workgroup: one range of a volume, cut into pieces that are spread over threads, queues and members. Only
 * device.h includes this. Its rules hold here, too.
 */
#ifndef GPUNVME_DEVICE_BLOCK_H
#define GPUNVME_DEVICE_BLOCK_H

#include <gpunvme/device/volume.h>

/*
 * Pieces lie within a stripe and within one command. They are small enough that every thread gets one, but no smaller than a page
 * of 4 KiB. max_blocks may be any number. The PRP lists cover 256 pages from any place in a page. A write that the drive makes
 * atomically is one piece.
 */
GNVD_FN uint32_t gnvd_piece_shift(const struct gpunvme_dvol *v, const struct gnvd_part *p, uint32_t op)
{
	const struct gpunvme_dq *dq = gnvd_member_dq(v, p->m, 0);
	uint32_t shift = 2u * dq->page_shift - 4u - v->lba_shift;
	int together = v->members == 1 || p->begin >> v->stripe_shift == (p->end - 1) >> v->stripe_shift; /* in the buffer */

	if (GNVD_OPC(op) == GPUNVME_IO_WRITE && together && p->end - p->begin <= dq->atomic)
		return 63;
	shift = v->members > 1 && v->stripe_shift < shift ? v->stripe_shift : shift;
	while (shift && 1ull << shift > dq->max_blocks)
		shift--;
	while (shift + v->lba_shift > 12 && (p->end - p->begin) >> shift < p->slots)
		shift--;
	return shift;
}

/* The waves for member `m`, and the number of this thread among theirs. With fewer waves than members, a wave has several. */
GNVD_FN void gnvd_share_out(const struct gpunvme_dvol *v, uint32_t m, struct gnvd_part *p)
{
	uint32_t width = gnvd_wave_lanes(), lanes = gnvd_block_lanes(), waves = (lanes + width - 1) / width;
	uint32_t lane = gnvd_block_lane(), wave = lane / width, here = 1, rank = 0, last = wave;

	if (waves > v->members) {
		here = (waves - m + v->members - 1) / v->members;
		rank = wave / v->members;
		last = m + (here - 1) * v->members;
	}
	p->m = m;
	p->slot = rank * width + lane % width;
	p->slots = (here - 1) * width + (last == waves - 1 ? lanes - last * width : width);
}

/*
 * Move the pieces of one member. All lanes of the wave call. `failed` is the first failure so far: bits 63:16 are its distance from
 * the start of the transfer, bits 15:0 its result (an error has bit 15).
 */
GNVD_FN uint64_t gnvd_run_part(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, const struct gnvd_part *p,
				uint32_t op, uint64_t failed)
{
	uint64_t first = p->begin >> p->shift, last = (p->end - 1) >> p->shift, round, rounds = (last - first) / p->slots + 1;
	uint64_t mine = failed;

	for (round = 0; round < rounds; round++) {
		uint64_t piece = first + round * p->slots + p->slot, from = piece << p->shift, to = (piece + 1) << p->shift, lba;
		uint32_t turn = gnvd_wave_number() + (uint32_t)round;
		int ret = piece <= last && mine == ~0ull ? 0 : GNVD_IDLE;

		from = from < p->begin ? p->begin : from;
		to = to > p->end ? p->end : to;
		lba = from + (((from >> v->stripe_shift) * (v->members - 1) + p->m) << v->stripe_shift);
		ret = gnvd_run_at(gnvd_member_dq(v, p->m, turn), GNVD_SITE_WAVE, gnvd_member_dbuf(buf, p->m),
				  p->offset + ((lba - p->lba) << v->lba_shift), from, (uint32_t)(to - from), op, ret);
		if (ret && ret != GNVD_IDLE)
			mine = (lba - p->lba) << 16 | (ret > 0 ? (uint64_t)ret : 0x8000u + (uint64_t)-ret);
	}
	return mine < failed ? mine : failed;
}

GNVD_FN int gnvd_block_rw(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
			  uint64_t len, uint32_t op, int ret)
{
	uint32_t width = gnvd_wave_lanes(), waves = (gnvd_block_lanes() + width - 1) / width, came, m;
	const struct gpunvme_dq *any;
	uint64_t failed = ~0ull;
	struct gnvd_part p;

	if (!ret)
		ret = gnvd_check_transfer_of(v, buf, offset, pos, len, op);
	if (ret) /* the same for all: their arguments are the same */
		return ret;
	any = gnvd_member_dq(v, 0, 0);
	p.lba = GNVD_BLOCKS(v, pos) + v->lba_first;
	p.offset = offset;
	if (GNVD_OPC(op) == GPUNVME_IO_WRITE)
		gnvd_block_sync(any); /* this thread also publishes the stores of the others */
	for (m = gnvd_block_lane() / width % v->members; m < v->members; m += waves) {
		gnvd_share_out(v, m, &p);
		if (!gnvd_member_range(v, p.lba, GNVD_BLOCKS(v, len), &p))
			continue;
		p.shift = gnvd_piece_shift(v, &p, op);
		failed = gnvd_run_part(v, buf, &p, op, failed);
	}
	failed = gnvd_block_min(any, failed, &came);
	if (failed != ~0ull)
		return failed & 0x8000 ? -(int)(failed & 0x7fff) : (int)(failed & 0x7fff);
	return came == gnvd_block_lanes() ? 0 : -GPUNVME_EINVAL;
}

/**
 * gpunvme_block_read() - read a contiguous range with a whole workgroup
 * @v:      the volume
 * @buf:    the buffer. All threads of the workgroup may read its bytes when the call returns 0
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 *
 * All threads of the workgroup (CPU threads: of the wave) call together with the same arguments. The call cuts the range into
 * pieces and spreads them over threads, queues and members. A thread stops at its first failure. Uses a few bytes of workgroup
 * memory.
 * Return: (the same for all threads)
 * - 0: all blocks were read.
 * - -GPUNVME_EINVAL: also if threads of the workgroup were missing.
 * - As the head of device.h says: the failure of the first piece that failed, in the order of the blocks. The pieces before it
 *   were read.
 */
GPUNVME_FN int GNVD_VOLUME(block_read)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
				       uint64_t len)
{
	return gnvd_block_rw(v, buf, offset, pos, len, GPUNVME_IO_READ, 0);
}

/**
 * gpunvme_block_write() - write a contiguous range with a whole workgroup
 * @v:      the volume
 * @buf:    the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 * @flags:  0 or GPUNVME_FUA, the same for all threads
 *
 * The call writes what any thread of the workgroup stored before. Rules as for gpunvme_block_read().
 * Return: as gpunvme_block_read(); -GPUNVME_EINVAL: also an unknown flag.
 */
GPUNVME_FN int GNVD_VOLUME(block_write)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
					uint64_t pos, uint64_t len, uint32_t flags)
{
	return gnvd_block_rw(v, buf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags));
}

#endif
