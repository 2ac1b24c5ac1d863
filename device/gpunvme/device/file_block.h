/* SPDX-License-Identifier: MIT */
/*
 * The transfer of a workgroup for a file, cut into pieces that are spread over threads. Only device.h includes this. Its rules hold
 * here, too.
 */
#ifndef GPUNVME_DEVICE_FILE_BLOCK_H
#define GPUNVME_DEVICE_FILE_BLOCK_H

#include <gpunvme/device/file_fronts.h>

/*
 * Bytes of a piece as a power of two. Pieces begin at its multiples in the file. A piece is at most one command and small enough
 * that every thread gets one, but no smaller than a page of 4 KiB. A write that the drive makes atomically is one piece.
 */
GNVD_FN uint32_t gnvd_file_piece(const struct gpunvme_dq *dq, uint64_t len, uint32_t op)
{
	uint32_t shift = 2u * dq->page_shift - 4u, lanes = gnvd_block_lanes();

	if (GNVD_OPC(op) == GPUNVME_IO_WRITE && len >> dq->lba_shift <= dq->atomic)
		return 63;
	while (shift > dq->lba_shift && 1ull << (shift - dq->lba_shift) > dq->max_blocks)
		shift--;
	while (shift > dq->lba_shift && shift > 12 && len >> shift < lanes)
		shift--;
	return shift;
}

/*
 * The workgroup's threads take pieces in turn, each until its first failure. `failed` is the first failure, as in gnvd_run_part(),
 * with the distance in bytes. At the end it is the same for all threads.
 */
GNVD_FN int gnvd_file_block_rw(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, const struct gnvd_file_left *whole,
			       uint32_t op)
{
	const struct gpunvme_dq *dq = cur->dq;
	uint64_t begin = whole->pos, end = whole->pos + whole->left, failed = ~0ull, piece, from, to;
	uint32_t shift = gnvd_file_piece(dq, whole->left, op), lanes = gnvd_block_lanes(), came;
	uint64_t rounds = (((end - 1) >> shift) - (begin >> shift)) / lanes + 1, bounce = cur->bounce, round;
	struct gnvd_file_left l;

	cur->bounce = bounce + ((uint64_t)gnvd_block_lane() << dq->lba_shift);
	if (GNVD_OPC(op) == GPUNVME_IO_WRITE)
		gnvd_block_sync(dq); /* this thread also publishes the stores of the others */
	for (round = 0; round < rounds; round++) {
		piece = (begin >> shift) + round * lanes + gnvd_block_lane();
		from = piece << shift;
		to = (piece + 1) << shift;
		from = from < begin ? begin : from;
		to = to > end || shift == 63 ? end : to;
		l.offset = whole->offset + (from - begin);
		l.pos = from;
		l.left = failed == ~0ull && piece <= (end - 1) >> shift ? to - from : 0;
		l.ret = 0;
		gnvd_file_wave_rw(cur, dbuf, &l, op);
		if (l.ret)
			failed = (l.pos - begin) << 16 | (l.ret > 0 ? (uint64_t)l.ret : 0x8000u + (uint64_t)-l.ret);
	}
	failed = gnvd_block_min(dq, failed, &came);
	cur->bounce = bounce;
	cur->done = failed == ~0ull ? whole->left : failed >> 16;
	if (failed != ~0ull)
		return failed & 0x8000 ? -(int)(failed & 0x7fff) : (int)(failed & 0x7fff);
	return came == lanes ? 0 : -GPUNVME_EINVAL;
}

GNVD_FN int gnvd_file_block_all(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				uint64_t len, uint32_t op, int ret)
{
	struct gnvd_file_left l = gnvd_file_begin(cur, dbuf, offset, pos, len, op, ret, gnvd_block_lanes());

	if (l.ret || !l.left) /* the same for all: their arguments are the same */
		return l.ret;
	return len >> 47 ? -GPUNVME_ERANGE : gnvd_file_block_rw(cur, dbuf, &l, op);
}

/**
 * gpunvme_block_read() - read a contiguous range of a file with a whole workgroup
 * @cur:    the thread's cursor, with the same queue and file for the workgroup. cur->done is set to the number of bytes that were
 *          read, the same for all. cur->bounce is the same for all: as many blocks as the workgroup has threads
 * @dbuf:   the buffer. All threads of the workgroup may read its bytes when the call returns 0
 * @offset: bytes from the start of the buffer, any number
 * @pos:    bytes from the start of the file, any number
 * @len:    bytes, less than 2^47
 *
 * All threads of the workgroup (CPU threads: of the wave) call together with the same arguments. The call cuts the bytes into
 * pieces and spreads them over the threads. A thread stops at its first failure. Uses a few bytes of workgroup memory.
 * Return: (the same for all threads)
 * - 0: all bytes up to the end of the file were read.
 * - -GPUNVME_EINVAL: also if threads of the workgroup were missing.
 * - Otherwise as gpunvme_read() on a file: the first failure in the order of the file, after cur->done bytes.
 */
GPUNVME_FN int GNVD_FILE(block_read)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				     uint64_t len)
{
	return gnvd_file_block_all(cur, dbuf, offset, pos, len, GPUNVME_IO_READ, 0);
}

/**
 * gpunvme_block_write() - write a contiguous range of a file in place with a whole workgroup
 * @cur:    the thread's cursor, with the same queue and file for the workgroup. cur->done is set to the number of bytes that were
 *          written, the same for all
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of the block, less than 2^47
 * @flags:  0 or GPUNVME_FUA, the same for all threads
 *
 * The call writes what any thread of the workgroup stored before. Rules as for gpunvme_block_read() on a file.
 * Return: the same for all threads: as gpunvme_write() on a file; -GPUNVME_EINVAL: also if threads of the workgroup were missing.
 */
GPUNVME_FN int GNVD_FILE(block_write)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				      uint64_t len, uint32_t flags)
{
	return gnvd_file_block_all(cur, dbuf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags));
}

#endif
