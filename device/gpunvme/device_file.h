/* SPDX-License-Identifier: MIT */
/*
 * Files from a kernel: read and write bytes of a file that the host has opened (gpunvme_file_open, gpunvme_file_map in file.h).
 *
 * A kernel receives a struct gpunvme_dfile (from gpunvme_file_view) beside the queue and the buffer, and each lane has a struct
 * gpunvme_cursor of its own. The rules of <gpunvme/device.h> hold here too, and:
 *
 * - The queue's view must have the file's blocks: take one of the file's namespace, the whole of it (gpunvme_qp_view()), of the
 *   struct gpunvme_dev by which the file was opened.
 * - Whole blocks move between drive and buffer without a copy, where the file's position and the buffer's IOVA allow it: the first
 *   is a multiple of the block, the second of 4. Else a block goes through the lane's own place in the buffer, cursor->bounce,
 *   and the lane copies its bytes.
 * - A call ends at the end of the file, and cursor->done says how many bytes it has moved, also when it fails.
 * - Holes, and what was allocated and never written, read as zeroes, which the lane stores.
 *
 * Beside the calls of one lane that wait (gpunvme_file_read, _write) there are handles (gpunvme_file_submit_*), whole waves, with a
 * transfer for each lane or one for all (gpunvme_file_wave_*), and workgroups (gpunvme_file_block_*).
 */
#ifndef GPUNVME_DEVICE_FILE_H
#define GPUNVME_DEVICE_FILE_H

#include <gpunvme/device.h>

/* ---- Where a byte lies ---- */

/* What comes next of a transfer: blocks of one extent, or of a hole. */
struct gnvd_run_of_file {
	uint64_t lba;
	uint64_t nblocks;
	int hole;
};

/*
 * The extent of a block, and what is left of it. The lane's last extent is looked at first, then the one behind it: who reads on
 * needs no search.
 */
GNVD_FN void gnvd_find_extent(const struct gpunvme_dfile *file, uint64_t block, uint32_t *last, struct gnvd_run_of_file *run)
{
	const struct gpunvme_dextent *table = (const struct gpunvme_dextent *)gnvd_lane_memory(file->table), *e;
	uint32_t low = 0, high = file->extents, mid = *last, turn;

	for (turn = 0; low < high; turn++) {
		if (turn || mid >= high)
			mid = turn == 1 ? low : low + (high - low) / 2;
		if (table[mid].pos <= block)
			low = mid + 1;
		else
			high = mid;
	}
	*last = low ? low - 1 : 0;
	e = table + *last;
	run->hole = !low || block - e->pos >= e->nblocks;
	run->lba = run->hole ? 0 : e->lba + (block - e->pos);
	run->nblocks = !run->hole ? e->nblocks - (block - e->pos) : low < file->extents ? table[low].pos - block : ~0ull;
}

/* ---- Bytes ---- */

/* Copy bytes in lane memory; from 0: zeroes. */
GNVD_FN void gnvd_copy_bytes(uint64_t to, uint64_t from, uint64_t n)
{
	uint64_t i = 0;

	if (!((to | from) & 7))
		for (; i + 8 <= n; i += 8)
			*(uint64_t *)gnvd_lane_bytes(to + i) = from ? *(const uint64_t *)gnvd_lane_memory(from + i) : 0;
	for (; i < n; i++)
		*(uint8_t *)gnvd_lane_bytes(to + i) = from ? *(const uint8_t *)gnvd_lane_memory(from + i) : 0;
}

/* ---- Transfers ---- */

GNVD_FN int gnvd_check_file(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, const struct gpunvme_dbuf *dbuf,
			    uint64_t offset, uint64_t len)
{
	if (gnvd_check_dq(dq) || file->magic != GPUNVME_DFILE_MAGIC || file->major != GPUNVME_DQ_MAJOR)
		return -GPUNVME_EPROTONOSUPPORT;
	if (file->nsid != dq->nsid || file->lba_shift != dq->lba_shift || (file->device && dq->device && file->device != dq->device))
		return -GPUNVME_EXDEV;
	return GNVD_WITHIN(offset, len, dbuf->len) ? 0 : -GPUNVME_ERANGE;
}

GNVD_FN int gnvd_check_file_write(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, uint64_t iova, uint64_t pos,
				  uint64_t len)
{
	uint64_t mask = (1ull << dq->lba_shift) - 1;

	if (!(file->flags & dq->flags & GPUNVME_DQ_WRITE))
		return -GPUNVME_EROFS;
	if (!len || ((pos | len) & mask) || (iova & 3))
		return -GPUNVME_EINVAL;
	return GNVD_WITHIN(pos, len, file->bytes) ? 0 : -GPUNVME_ERANGE;
}

/* How many bytes of a file a read of `len` gets. */
GNVD_FN uint64_t gnvd_file_bytes(const struct gpunvme_dfile *file, uint64_t pos, uint64_t len)
{
	uint64_t left = pos < file->bytes ? file->bytes - pos : 0;

	return len < left ? len : left;
}

/* The blocks that come next, at most those of `left` bytes: of a hole, of one extent, or one that goes through the bounce area. */
GNVD_FN void gnvd_next_run(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, uint32_t *last, uint64_t pos,
			   uint64_t left, int bounce, struct gnvd_run_of_file *run)
{
	uint64_t mask = (1ull << dq->lba_shift) - 1, n;

	gnvd_find_extent(file, pos >> dq->lba_shift, last, run);
	n = run->hole ? ((pos & mask) + left + mask) >> dq->lba_shift : bounce ? 1 : left >> dq->lba_shift;
	n = n < 1u << 30 ? n : 1u << 30;
	run->nblocks = n < run->nblocks ? n : run->nblocks;
}

/* May those blocks be moved there? Results are hidden from compilers: in a loop that calls this they would stay in registers. */
GNVD_FN int gnvd_check_run(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t at, uint64_t lba,
			   uint32_t nblocks)
{
	int range = -(int)gnvd_opaque32(GPUNVME_ERANGE), invalid = -(int)gnvd_opaque32(GPUNVME_EINVAL);
	uint64_t bytes = (uint64_t)nblocks << dq->lba_shift;

	if (!GNVD_WITHIN(lba, nblocks, dq->lba_count) || !GNVD_WITHIN(at, bytes, dbuf->len))
		return range;
	return ((uint32_t)dbuf->iova + (uint32_t)at) & 3 ? invalid : 0;
}

/*
 * One run of blocks after the other. There is one place where commands are made, because its text is long: a block that goes
 * through the bounce area differs in where it goes. A block before the queue's window is, unsigned, far behind the window's end.
 * What follows from the position and the blocks is made again behind the command, and hidden from compilers, which else keep it in
 * registers of every lane while the lane waits.
 */
GNVD_FN int gnvd_file_rw(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
			 const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t left, uint32_t op)
{
	uint32_t mask = (1u << dq->lba_shift) - 1, hint = gnvd_hint(), skip, nblocks;
	int write = GNVD_OPC(op) == GPUNVME_IO_WRITE, bounce, ret = 0;
	struct gnvd_run_of_file run;
	uint64_t n, at;

	while (!ret && left) {
		bounce = ((uint32_t)pos & mask) || left <= mask || (((uint32_t)dbuf->iova + (uint32_t)offset) & 3);
		gnvd_next_run(dq, file, &cur->extent, pos, left, bounce, &run);
		nblocks = (uint32_t)run.nblocks;
		if (!run.hole) {
			at = bounce ? cur->bounce : offset;
			ret = gnvd_check_run(dq, dbuf, at, run.lba - dq->lba_first, nblocks);
			ret = gnvd_run_by(dq, GNVD_SITE_RUN, hint, dbuf, at, run.lba - dq->lba_first, nblocks, op, ret);
		} else if (write) {
			ret = -GPUNVME_EOPNOTSUPP;
		}
		nblocks = gnvd_opaque32(nblocks);
		skip = gnvd_opaque32((uint32_t)pos) & mask;
		n = ((uint64_t)nblocks << dq->lba_shift) - skip;
		n = ret ? 0 : n < left ? n : left;
		if (run.hole || bounce)
			gnvd_copy_bytes(dbuf->base + offset, run.hole ? 0 : dbuf->base + cur->bounce + skip, n);
		cur->done += n;
		offset += n;
		pos += n;
		left -= n;
	}
	return ret;
}

/**
 * gpunvme_file_read() - read bytes of a file into a buffer and wait for them
 * @dq:     the queue; a view of the namespace that has the file
 * @file:   the file
 * @cur:    this lane's cursor. cur->done: bytes read; cur->bounce: where in @dbuf one block is this lane's alone, needed where
 *          @pos, the end of the read or @offset is not as whole blocks want it; a multiple of 4 as an IOVA
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer, any
 * @pos:    first byte of the file, any
 * @len:    bytes; a read that goes beyond the end of the file ends there, and one that begins there reads nothing
 *
 * Return: 0, cur->done bytes are valid for this lane; the first failure in the order of the file, behind cur->done bytes: see the
 * head of device.h; -GPUNVME_ERANGE @len bytes do not fit the buffer, the bounce area does not, or the file has blocks that the
 * view has not; -GPUNVME_EXDEV the queue is another namespace's, or another device's than the file was opened by.
 */
GPUNVME_FN int gpunvme_file_read(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
				 const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len)
{
	int ret = gnvd_check_file(dq, file, dbuf, offset, len);

	cur->done = 0;
	return ret ? ret : gnvd_file_rw(dq, file, cur, dbuf, offset, pos, gnvd_file_bytes(file, pos, len), GPUNVME_IO_READ);
}

/**
 * gpunvme_file_write() - write whole blocks of a file in place, and wait
 * @dq:     as gpunvme_file_read(); its view may write
 * @file:   the file, opened for writing (GPUNVME_FILE_WRITE)
 * @cur:    this lane's cursor. cur->done: bytes written
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    first byte of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of it
 *
 * The file keeps its size, its extents and its times: only blocks are written that it has. A write that meets a hole ends there.
 * Return: 0; as gpunvme_file_read(); -GPUNVME_EROFS the file was not opened for writing, or the view may not; -GPUNVME_EINVAL no
 * whole blocks; -GPUNVME_ERANGE beyond the end of the file, nothing was written; -GPUNVME_EOPNOTSUPP behind cur->done bytes is a
 * hole, or what was never written, which only its file system can fill. Durable as gpunvme_write() is.
 */
GPUNVME_FN int gpunvme_file_write(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
				  const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len)
{
	int ret = gnvd_check_file(dq, file, dbuf, offset, len);

	cur->done = 0;
	if (!ret)
		ret = gnvd_check_file_write(dq, file, dbuf->iova + offset, pos, len);
	return ret ? ret : gnvd_file_rw(dq, file, cur, dbuf, offset, pos, len, GPUNVME_IO_WRITE);
}

#include <gpunvme/device/file_block.h>
#include <gpunvme/device/file_fronts.h>

#endif
