/* SPDX-License-Identifier: MIT */
/*
 * More ways to use a file than one call for one lane: handles and whole waves. Only device_file.h includes this; its rules hold
 * here too.
 */
#ifndef GPUNVME_DEVICE_FILE_FRONTS_H
#define GPUNVME_DEVICE_FILE_FRONTS_H

#include <gpunvme/device_file.h>

/* ---- Asynchronous ---- */

/* The blocks that one command moves from there on. */
GNVD_FN void gnvd_file_part(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
			    uint64_t addr, uint64_t pos, uint64_t len, uint32_t op, struct gnvd_run_of_file *run)
{
	gnvd_next_run(dq, file, &cur->extent, pos, len, 0, run);
	if (!run->hole)
		run->nblocks = gnvd_blocks_per_command(dq, addr, gnvd_to_boundary(dq, run->lba - dq->lba_first, (uint32_t)run->nblocks, op));
}

GNVD_FN int gnvd_file_submit(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
			     const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len, uint32_t op, int ret,
			     struct gpunvme_req *req)
{
	uint64_t mask = (1ull << (dq->lba_shift & 63)) - 1, left = gnvd_file_bytes(file, pos, len), n = 0; /* a refused one: any shift */
	int write = GNVD_OPC(op) == GPUNVME_IO_WRITE;
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	struct gnvd_run_of_file run = { 0, 0, 0 };

	cur->done = 0;
	if (!ret && !left) /* who has read to the end, and on, is told by 0 bytes */
		ret = GNVD_IDLE;
	if (!ret && (((pos | len) & mask) || ((dbuf->iova + offset) & 3)))
		ret = -GPUNVME_EINVAL;
	if (!ret) {
		gnvd_file_part(dq, file, cur, dbuf->iova + offset, pos, (left + mask) & ~mask, op, &run);
		n = run.nblocks << dq->lba_shift;
		n = n < left ? n : left;
		ret = !run.hole ? gnvd_check_window(dq, run.lba - dq->lba_first, (uint32_t)run.nblocks, write) :
		      write	? -GPUNVME_EOPNOTSUPP :
				  GNVD_IDLE;
		if (ret == GNVD_IDLE)
			gnvd_copy_bytes(dbuf->base + offset, 0, n);
	}
	if (!ret) {
		gnvd_set_blocks(dq, op, run.lba - dq->lba_first, (uint32_t)run.nblocks, &c);
		gnvd_set_data(dq, dbuf, offset, run.nblocks << dq->lba_shift, &c);
	}
	if (ret == GNVD_IDLE && req)
		req->tag = 0;
	ret = gnvd_submit_one(dq, &c, ret, req);
	cur->done = !ret || ret == GNVD_IDLE ? n : 0;
	return ret == GNVD_IDLE ? 0 : ret;
}

/**
 * gpunvme_file_submit_read() - start reading of a file, as at most one command
 * @dq:     as gpunvme_file_read()
 * @file:   the file
 * @cur:    this lane's cursor. cur->done: how many of the bytes this call is for, from @pos on; the rest is for the next call.
 *          cur->bounce is not used
 * @dbuf:   the buffer; what the call is for belongs to the device until the command is over
 * @offset: bytes from the start of the buffer
 * @pos:    first byte of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of it; the last block of the file comes whole, where it is no hole, though cur->done ends with the
 *          file
 * @req:    as for gpunvme_submit_read(). req->tag is 0, which gpunvme_wait_any() passes over, where no command was needed: a hole,
 *          whose zeroes are stored, or nothing, at the end of the file
 *
 * One command ends with its extent, and with what commands carry: read on at @pos + cur->done.
 * Return: 0; -GPUNVME_EINVAL no whole blocks, or a buffer that is no multiple of 4; as gpunvme_submit_read() and
 * gpunvme_file_read().
 */
GPUNVME_FN int gpunvme_file_submit_read(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
					const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
					struct gpunvme_req *req)
{
	int ret = gnvd_check_file(dq, file, dbuf, offset, len);

	return gnvd_file_submit(dq, file, cur, dbuf, offset, pos, len, GPUNVME_IO_READ, ret, req);
}

/**
 * gpunvme_file_submit_write() - start writing to a file in place, as exactly one command
 * @dq:     as gpunvme_file_write()
 * @file:   the file, opened for writing
 * @cur:    as gpunvme_file_submit_read()
 * @dbuf:   the buffer; belongs to the device until the command is over
 * @offset: bytes from the start of the buffer
 * @pos:    first byte of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of it
 * @req:    as for gpunvme_submit_write()
 *
 * Return: as gpunvme_file_write() and gpunvme_submit_write().
 */
GPUNVME_FN int gpunvme_file_submit_write(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
					 const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
					 struct gpunvme_req *req)
{
	int ret = gnvd_check_file(dq, file, dbuf, offset, len);

	ret = ret ? ret : gnvd_check_file_write(dq, file, dbuf->iova + offset, pos, len);
	return gnvd_file_submit(dq, file, cur, dbuf, offset, pos, len, GPUNVME_IO_WRITE, ret, req);
}

/* ---- Waves ---- */

/* What is left of a transfer. */
struct gnvd_file_left {
	uint64_t offset, pos, left;
	int ret;
};

/* What comes next of it. */
struct gnvd_file_step {
	struct gnvd_left command; /* its ret is GNVD_IDLE where there is none */
	uint64_t bytes;           /* of the file */
	uint64_t from;            /* 0: they are zeroes; else a lane address: they are there, and go to the buffer */
	int copied;
};

GNVD_FN void gnvd_file_next(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
			    const struct gpunvme_dbuf *dbuf, const struct gnvd_file_left *l, uint32_t op, struct gnvd_file_step *s)
{
	uint64_t mask = (1ull << dq->lba_shift) - 1, skip = l->pos & mask, n, at;
	int write = GNVD_OPC(op) == GPUNVME_IO_WRITE, bounce, ret = GNVD_IDLE;
	struct gnvd_run_of_file run;

	s->command.ret = GNVD_IDLE;
	s->bytes = 0;
	s->copied = 0;
	if (!l->left || l->ret)
		return;
	bounce = skip || l->left <= mask || ((dbuf->iova + l->offset) & 3);
	gnvd_next_run(dq, file, &cur->extent, l->pos, l->left, bounce, &run);
	n = (run.nblocks << dq->lba_shift) - skip;
	at = bounce ? cur->bounce : l->offset;
	if (!run.hole) {
		ret = gnvd_check_run(dq, dbuf, at, run.lba - dq->lba_first, (uint32_t)run.nblocks);
	} else if (write) {
		ret = -GPUNVME_EOPNOTSUPP;
	}
	s->command.offset = at;
	s->command.lba = run.lba - dq->lba_first;
	s->command.nblocks = (uint32_t)run.nblocks;
	s->command.ret = ret;
	s->bytes = n < l->left ? n : l->left;
	s->copied = run.hole || bounce;
	s->from = run.hole ? 0 : dbuf->base + at + skip;
}

GNVD_FN void gnvd_file_passed(struct gnvd_file_left *l, struct gpunvme_cursor *cur, uint64_t n)
{
	cur->done += n;
	l->offset += n;
	l->pos += n;
	l->left -= n;
}

/* Each lane's own, run by run, together. */
GNVD_FN void gnvd_file_run_wave(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dfile *file,
				struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, struct gnvd_file_left *l, uint32_t op)
{
	struct gnvd_file_step s = { { 0, 0, 0, 0 }, 0, 0, 0 };

	while (gnvd_ballot(w, l->left && !l->ret)) {
		gnvd_file_next(dq, file, cur, dbuf, l, op, &s);
		gnvd_run_wave(dq, w, dbuf, &s.command, op);
		if (!l->left || l->ret)
			continue;
		l->ret = s.command.ret == GNVD_IDLE ? 0 : s.command.ret;
		if (l->ret)
			continue;
		if (s.copied)
			gnvd_copy_bytes(dbuf->base + l->offset, s.from, s.bytes);
		gnvd_file_passed(l, cur, s.bytes);
	}
}

GNVD_FN int gnvd_file_wave_rw(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
			      const struct gpunvme_dbuf *dbuf, struct gnvd_file_left *l, uint32_t op)
{
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_WAVE);
		gnvd_file_run_wave(dq, &w, file, cur, dbuf, l, op); /* one copy for all: it is long */
		gnvd_leave(&w);
	}
	return l->ret;
}

/**
 * gpunvme_file_wave_read() - read with the whole wave: of each lane's file, to each lane's place
 * @dq:     as gpunvme_file_read()
 * @file:   the lane's file; lanes may have different ones
 * @cur:    the lane's cursor, with a bounce area of its own
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer, any
 * @pos:    first byte of the file, any
 * @len:    bytes; 0: this lane only takes part
 *
 * Which lanes must call: as gpunvme_wave_read(). Their runs of blocks go together, one place in the queue for all, until the lane
 * with the most extents is done.
 * Return: as gpunvme_file_read(), for this lane's own.
 */
GPUNVME_FN int gpunvme_file_wave_read(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
				      const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len)
{
	struct gnvd_file_left l = { offset, pos, gnvd_file_bytes(file, pos, len), gnvd_check_file(dq, file, dbuf, offset, len) };

	cur->done = 0;
	return gnvd_file_wave_rw(dq, file, cur, dbuf, &l, GPUNVME_IO_READ);
}

/**
 * gpunvme_file_wave_write() - write with the whole wave, in place
 * Parameters and rules as gpunvme_file_wave_read(), for whole blocks; results as gpunvme_file_write(), but that a lane with @len 0
 * gets 0.
 */
GPUNVME_FN int gpunvme_file_wave_write(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
				       const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len)
{
	struct gnvd_file_left l = { offset, pos, len, gnvd_check_file(dq, file, dbuf, offset, len) };

	cur->done = 0;
	if (!l.ret && len)
		l.ret = gnvd_check_file_write(dq, file, dbuf->iova + offset, pos, len);
	return gnvd_file_wave_rw(dq, file, cur, dbuf, &l, GPUNVME_IO_WRITE);
}

/* ---- One transfer of a wave ---- */

/* As gnvd_copy_bytes(), by all lanes; each sees what the others have copied. */
GNVD_FN void gnvd_copy_together(const struct gnvd_wave *w, uint64_t to, uint64_t from, uint64_t n)
{
	uint64_t words = !((to | from) & 7) ? n / 8 : 0, i;

	for (i = w->rank; i < words; i += w->count)
		*(uint64_t *)gnvd_lane_bytes(to + 8 * i) = from ? *(const uint64_t *)gnvd_lane_memory(from + 8 * i) : 0;
	for (i = 8 * words + w->rank; i < n; i += w->count)
		*(uint8_t *)gnvd_lane_bytes(to + i) = from ? *(const uint8_t *)gnvd_lane_memory(from + i) : 0;
	gnvd_order_agent();
	gnvd_meet(w);
}

/* The leader's, run by run; all know what it knows, so that they stay together whatever they were told. */
GNVD_FN void gnvd_file_run_one(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dfile *file,
			       struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, struct gnvd_file_left *l, uint32_t op)
{
	uint64_t to = gnvd_bcast64(w, dbuf->base);
	struct gnvd_file_step s = { { 0, 0, 0, 0 }, 0, 0, 0 };

	l->offset = gnvd_bcast64(w, l->offset);
	l->pos = gnvd_bcast64(w, l->pos);
	l->left = gnvd_bcast64(w, l->left);
	l->ret = (int)gnvd_bcast32(w, (uint32_t)l->ret);
	while (l->left && !l->ret) {
		s.command.ret = GNVD_IDLE;
		if (!w->rank) /* the others' file and position need not belong together */
			gnvd_file_next(dq, file, cur, dbuf, l, op, &s);
		gnvd_run_wave(dq, w, dbuf, &s.command, op);
		gnvd_meet(w); /* what the leader acquired, all have */
		l->ret = (int)gnvd_bcast32(w, (uint32_t)s.command.ret);
		l->ret = l->ret == GNVD_IDLE ? 0 : l->ret;
		s.bytes = l->ret ? 0 : gnvd_bcast64(w, s.bytes);
		if (!l->ret && gnvd_bcast32(w, (uint32_t)s.copied))
			gnvd_copy_together(w, to + l->offset, gnvd_bcast64(w, s.from), s.bytes);
		gnvd_file_passed(l, cur, s.bytes);
	}
}

GNVD_FN int gnvd_file_one_rw(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
			     const struct gpunvme_dbuf *dbuf, struct gnvd_file_left *l, uint32_t op)
{
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_WAVE);
		gnvd_file_run_one(dq, &w, file, cur, dbuf, l, op);
		gnvd_leave(&w);
	}
	return l->ret;
}

/**
 * gpunvme_file_wave_read_one() - one read of a file for the whole wave
 * @dq:     as gpunvme_file_read()
 * @file:   the file
 * @cur:    the lane's cursor; cur->done: bytes read, the same for all; cur->bounce of the lowest lane is the wave's: one block
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer, any
 * @pos:    first byte of the file, any
 * @len:    bytes
 *
 * All lanes name the same transfer; that of the lowest lane is made, and all help: to look for its ends, to copy what came through
 * the bounce area, and to store the zeroes of holes. Which lanes must call: as gpunvme_wave_read_one().
 * Return: as gpunvme_file_read(), the same for all lanes; with 0 each of them sees the data.
 */
GPUNVME_FN int gpunvme_file_wave_read_one(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file,
					  struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset,
					  uint64_t pos, uint64_t len)
{
	struct gnvd_file_left l = { offset, pos, gnvd_file_bytes(file, pos, len), gnvd_check_file(dq, file, dbuf, offset, len) };

	cur->done = 0;
	return gnvd_file_one_rw(dq, file, cur, dbuf, &l, GPUNVME_IO_READ);
}

/**
 * gpunvme_file_wave_write_one() - one write to a file for the whole wave, with what all its lanes stored before
 * Parameters and rules as gpunvme_file_wave_read_one(), for whole blocks; results as gpunvme_file_write().
 */
GPUNVME_FN int gpunvme_file_wave_write_one(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file,
					   struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset,
					   uint64_t pos, uint64_t len)
{
	struct gnvd_file_left l = { offset, pos, len, gnvd_check_file(dq, file, dbuf, offset, len) };

	cur->done = 0;
	if (!l.ret)
		l.ret = gnvd_check_file_write(dq, file, dbuf->iova + offset, pos, len);
	return gnvd_file_one_rw(dq, file, cur, dbuf, &l, GPUNVME_IO_WRITE);
}

#endif
