/* SPDX-License-Identifier: MIT */
/*
 * Files: the blocks of their bytes, and reads and writes by one thread. The first argument of each call is a struct gpunvme_cursor,
 * which names queue and file. Only device.h includes this. Its rules hold here, too.
 */
#ifndef GPUNVME_DEVICE_FILE_H
#define GPUNVME_DEVICE_FILE_H

#include <gpunvme/device/transfer.h>

/* ---- Where a byte lies ---- */

/* The next part of a transfer: blocks of one extent, or of a hole. */
struct gnvd_run_of_file {
	uint64_t lba;
	uint64_t nblocks;
	int hole;
};

/*
 * Find the extent of a block, and the blocks that remain in it. Look at the last extent of the thread first, then at the next one,
 * so a sequential read needs no search.
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

/* Copy bytes in the memory of the threads. `from` 0: store zeroes. */
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
	int ret = gnvd_check_dq(dq);

	if (!ret)
		ret = gnvd_check_head(&file->head, GPUNVME_KIND_FILE);
	if (ret)
		return ret;
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

/* The bytes that a transfer of `len` moves: a read ends with the file. */
GNVD_FN uint64_t gnvd_file_bytes(const struct gpunvme_dfile *file, uint64_t pos, uint64_t len, uint32_t op)
{
	uint64_t left = pos < file->bytes ? file->bytes - pos : 0;

	return GNVD_OPC(op) == GPUNVME_IO_WRITE || len < left ? len : left;
}

/* Find the next blocks, at most those of `left` bytes: of a hole, of one extent, or one block that goes through the bounce area. */
GNVD_FN void gnvd_next_run(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, uint32_t *last, uint64_t pos,
			   uint64_t left, int bounce, struct gnvd_run_of_file *run)
{
	uint64_t mask = (1ull << dq->lba_shift) - 1, n;

	gnvd_find_extent(file, pos >> dq->lba_shift, last, run);
	n = run->hole ? ((pos & mask) + left + mask) >> dq->lba_shift : bounce ? 1 : left >> dq->lba_shift;
	n = n < 1u << 30 ? n : 1u << 30;
	run->nblocks = n < run->nblocks ? n : run->nblocks;
}

/* May those blocks be moved there? Results are hidden from compilers, which in a loop would keep them in registers. */
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
 * Move one run of blocks after the other. One place makes all commands, because its code is long: for a block that goes through the
 * bounce area only the address differs. A block before the queue's window is, as an unsigned number, far after the end of the
 * window. Values that follow from the position and the blocks are computed again after the command. They are hidden from compilers,
 * which would keep them in registers of every thread while it waits.
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

GNVD_FN int gnvd_check_file_transfer(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, const struct gpunvme_dbuf *dbuf,
				     uint64_t offset, uint64_t pos, uint64_t len, uint32_t op)
{
	int ret = gnvd_check_file(dq, file, dbuf, offset, len);

	if (!ret && GNVD_OPC(op) == GPUNVME_IO_WRITE)
		ret = gnvd_check_file_write(dq, file, dbuf->iova + offset, pos, len);
	return ret;
}

/*
 * A block that is read in part goes through the bounce area: the first or last one, or any if the buffer is unaligned. An area of
 * `blocks` inside the bytes that are read would overwrite some of them.
 */
GNVD_FN int gnvd_check_bounce(const struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
			      uint64_t left, uint64_t blocks)
{
	uint32_t mask = (1u << cur->dq->lba_shift) - 1;

	if (!left || !((((uint32_t)pos | (uint32_t)(pos + left)) & mask) | ((uint32_t)(dbuf->iova + offset) & 3)))
		return 0;
	return cur->bounce < offset + left && offset < cur->bounce + (blocks << cur->dq->lba_shift) ? -GPUNVME_EINVAL : 0;
}

GNVD_FN int gnvd_file_transfer(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
			       uint64_t len, uint32_t op, int ret)
{
	const struct gpunvme_dq *dq = cur->dq;
	const struct gpunvme_dfile *file = cur->file;
	uint64_t left = gnvd_file_bytes(file, pos, len, op);

	cur->done = 0;
	if (!ret)
		ret = gnvd_check_file_transfer(dq, file, dbuf, offset, pos, len, op);
	if (!ret)
		ret = gnvd_check_bounce(cur, dbuf, offset, pos, left, 1);
	return ret ? ret : gnvd_file_rw(dq, file, cur, dbuf, offset, pos, left, op);
}

/* In C these have names from which select.h selects. */
#if defined(__cplusplus)
#define GNVD_FILE(call) gpunvme_##call
#else
#define GNVD_FILE(call) gnvd_file_##call
#endif

/**
 * gpunvme_read() - read bytes of a file into a buffer and wait for them
 * @cur:    this thread's cursor. cur->done is set to the number of bytes that were read. If @pos, the end of the read or @offset
 *          is inside a block, it needs cur->bounce: one block of @dbuf that no other thread uses meanwhile
 * @dbuf:   the buffer, mapped to the device of the queue
 * @offset: bytes from the start of the buffer, any number
 * @pos:    bytes from the start of the file, any number
 * @len:    bytes. A read across the end of the file ends there, and one that begins there reads 0 bytes
 *
 * The thread may read cur->done bytes of the buffer when the call returns. It stores the zeroes of holes itself.
 * Return:
 * - 0: all bytes up to the end of the file were read.
 * - -GPUNVME_EINVAL: the bounce block is needed, and lies inside the bytes that are read.
 * - -GPUNVME_ERANGE: @len bytes or the bounce block do not fit the buffer, or the file has blocks outside the queue's window.
 * - -GPUNVME_EXDEV: the queue belongs to another namespace or device than the file.
 * - The first failure in the order of the file, after cur->done bytes, as the head of device.h says.
 */
GPUNVME_FN int GNVD_FILE(read)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
			       uint64_t len)
{
	return gnvd_file_transfer(cur, dbuf, offset, pos, len, GPUNVME_IO_READ, 0);
}

/**
 * gpunvme_write() - write whole blocks of a file in place, and wait
 * @cur:    this thread's cursor. Its queue's view and its file allow writing (GPUNVME_VIEW_WRITE, GPUNVME_FILE_WRITE). cur->done
 *          is set to the number of bytes that were written. cur->bounce is not used
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of the block
 * @flags:  0 or GPUNVME_FUA
 *
 * The file keeps its size, its extents and its times: the call writes only blocks that the file has, and ends at a hole. It writes
 * what this thread stored before. When that is durable: as gpunvme_write() on a queue.
 * Return:
 * - 0: all blocks were written.
 * - -GPUNVME_EROFS: the file was not opened for writing, or the view may not write.
 * - -GPUNVME_EINVAL: parts of blocks, or an unknown flag.
 * - -GPUNVME_ERANGE: also beyond the end of the file. Then nothing was written.
 * - -GPUNVME_EOPNOTSUPP: after cur->done bytes comes a hole, or a part that was allocated and never written, which only the file
 *   system can fill.
 * - Otherwise as gpunvme_read() on a file.
 */
GPUNVME_FN int GNVD_FILE(write)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				uint64_t len, uint32_t flags)
{
	return gnvd_file_transfer(cur, dbuf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags));
}

#endif
