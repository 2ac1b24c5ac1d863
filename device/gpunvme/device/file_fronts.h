/* SPDX-License-Identifier: MIT */
/*
 * More ways to use a file than one call of one thread that waits: handles and whole waves. Only device.h includes this. Its rules
 * hold here, too.
 */
#ifndef GPUNVME_DEVICE_FILE_FRONTS_H
#define GPUNVME_DEVICE_FILE_FRONTS_H

#include <gpunvme/device/file.h>
#include <gpunvme/device/submit.h>

/* ---- Asynchronous ---- */

/* Find the blocks that one command moves from there on. */
GNVD_FN void gnvd_file_part(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, struct gpunvme_cursor *cur,
			    uint64_t addr, uint64_t pos, uint64_t len, uint32_t op, struct gnvd_run_of_file *run)
{
	gnvd_next_run(dq, file, &cur->extent, pos, len, 0, run);
	if (!run->hole)
		run->nblocks = gnvd_blocks_per_command(dq, addr, gnvd_to_boundary(dq, run->lba - dq->lba_first, (uint32_t)run->nblocks, op));
}

GNVD_FN int gnvd_file_submit(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
			     uint64_t len, uint32_t op, int ret, struct gpunvme_req *req)
{
	const struct gpunvme_dq *dq = cur->dq;
	const struct gpunvme_dfile *file = cur->file;
	uint64_t mask = (1ull << (dq->lba_shift & 63)) - 1; /* a descriptor that is refused may have any shift */
	uint64_t left = gnvd_file_bytes(file, pos, len, op), n = 0;
	int write = GNVD_OPC(op) == GPUNVME_IO_WRITE;
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	struct gnvd_run_of_file run = { 0, 0, 0 };

	cur->done = 0;
	if (!ret)
		ret = gnvd_check_file_transfer(dq, file, dbuf, offset, pos, len, op);
	if (!ret && !left) /* a read after the end: 0 bytes */
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
 * gpunvme_submit_read() - start reading a file, as at most one command
 * @cur:    this thread's cursor. cur->done is set to the number of bytes of this call: one command ends with its extent, and with
 *          what a command carries. Read the rest from @pos + cur->done on. cur->bounce is not used
 * @dbuf:   the buffer. The device owns the bytes of this call until the command completes
 * @offset: bytes from the start of the buffer. The IOVA there is a multiple of 4
 * @pos:    bytes from the start of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of the block. The last block of the file is read whole, if it is no hole, but cur->done ends with the
 *          file
 * @req:    as for gpunvme_submit_read() on a queue. Pass it with cur->dq to gpunvme_poll() and gpunvme_wait(). req->tag is 0 if
 *          there was no command: for a hole, whose zeroes are stored, or at the end of the file. gpunvme_wait_any() skips such a
 *          handle, the other calls refuse it
 *
 * Return: 0; -GPUNVME_EINVAL: parts of blocks, or an unaligned buffer; otherwise as gpunvme_submit_read() on a queue and
 * gpunvme_read() on a file.
 */
GPUNVME_FN int GNVD_FILE(submit_read)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				      uint64_t len, struct gpunvme_req *req)
{
	return gnvd_file_submit(cur, dbuf, offset, pos, len, GPUNVME_IO_READ, 0, req);
}

/**
 * gpunvme_submit_write() - start writing whole blocks of a file in place, as exactly one command
 * @cur:    as for gpunvme_submit_read() on a file, with a queue and a file that allow writing, as for gpunvme_write()
 * @dbuf:   the buffer. The device owns the bytes of this call until the command completes
 * @offset: bytes from the start of the buffer. The IOVA there is a multiple of 4
 * @pos:    bytes from the start of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of the block
 * @flags:  0 or GPUNVME_FUA: the command completes when the blocks are durable
 * @req:    as for gpunvme_submit_write() on a queue
 *
 * Return: as gpunvme_write() on a file and gpunvme_submit_write() on a queue.
 */
GPUNVME_FN int GNVD_FILE(submit_write)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				       uint64_t len, uint32_t flags, struct gpunvme_req *req)
{
	return gnvd_file_submit(cur, dbuf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags), req);
}

/* ---- Waves ---- */

/* The rest of a transfer. */
struct gnvd_file_left {
	uint64_t offset, pos, left;
	int ret;
};

/* Begin a transfer. `ret`: the result of the check of its flags. `blocks`: of the bounce area. */
GNVD_FN struct gnvd_file_left gnvd_file_begin(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset,
					      uint64_t pos, uint64_t len, uint32_t op, int ret, uint64_t blocks)
{
	struct gnvd_file_left l = { offset, pos, gnvd_file_bytes(cur->file, pos, len, op), ret };

	cur->done = 0;
	if (!l.ret)
		l.ret = gnvd_check_file_transfer(cur->dq, cur->file, dbuf, offset, pos, len, op);
	if (!l.ret)
		l.ret = gnvd_check_bounce(cur, dbuf, offset, pos, l.left, blocks);
	return l;
}

/* The next step of a transfer. */
struct gnvd_file_step {
	struct gnvd_left command; /* its ret is GNVD_IDLE if there is none */
	uint64_t bytes;           /* of the file */
	uint64_t from;            /* 0: zeroes. Else a thread address: copy from there to the buffer */
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

/* The transfers of all lanes of the wave, run by run, together. */
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

GNVD_FN int gnvd_file_wave_rw(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, struct gnvd_file_left *l, uint32_t op)
{
	const struct gpunvme_dq *dq = cur->dq;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_WAVE);
		gnvd_file_run_wave(dq, &w, cur->file, cur, dbuf, l, op); /* one copy for all, because it is long */
		gnvd_leave(&w);
	}
	return l->ret;
}

/* Check the arguments. Without a transfer only the flags can be refused. */
GNVD_FN int gnvd_file_wave_each(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				uint64_t len, uint32_t op, int ret)
{
	struct gnvd_file_left l = { offset, pos, 0, ret };

	cur->done = 0;
	if (len != GPUNVME_NO_TRANSFER)
		l = gnvd_file_begin(cur, dbuf, offset, pos, len, op, ret, 1);
	return gnvd_file_wave_rw(cur, dbuf, &l, op);
}

/**
 * gpunvme_wave_read() - read files with the whole wave: one transfer for each thread
 * @cur:    the thread's cursor, with its own bounce block. Threads may have different files, and different queues as on a queue
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer, any number
 * @pos:    bytes from the start of the file, any number
 * @len:    bytes. GPUNVME_NO_TRANSFER: this thread has no transfer
 *
 * Which threads must call: as for gpunvme_wave_read() on a queue. Their runs of blocks go together, with one place in the queue
 * for all, until the thread with the most extents is done.
 * Return: as gpunvme_read() on a file, for this thread's own transfer. 0 for a thread without one.
 */
GPUNVME_FN int GNVD_FILE(wave_read)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				    uint64_t len)
{
	return gnvd_file_wave_each(cur, dbuf, offset, pos, len, GPUNVME_IO_READ, 0);
}

/**
 * gpunvme_wave_write() - write files in place with the whole wave: one transfer for each thread
 * @cur:    the thread's cursor
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of the block. GPUNVME_NO_TRANSFER: this thread has no transfer
 * @flags:  0 or GPUNVME_FUA. Threads of a wave may differ
 *
 * Rules as for gpunvme_wave_read() on a file.
 * Return: as gpunvme_write() on a file, for this thread's own transfer. A thread without one gets 0, or -GPUNVME_EINVAL for an
 * unknown flag.
 */
GPUNVME_FN int GNVD_FILE(wave_write)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
				     uint64_t len, uint32_t flags)
{
	return gnvd_file_wave_each(cur, dbuf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags));
}

/* ---- One transfer of a wave ---- */

/* As gnvd_copy_bytes(), by all lanes. Each lane sees the copies of the others. */
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

/* The leader's transfer, run by run. All lanes get the leader's values, so they stay together whatever their arguments are. */
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
		if (!w->rank) /* the other lanes' file and position need not fit each other */
			gnvd_file_next(dq, file, cur, dbuf, l, op, &s);
		gnvd_run_wave(dq, w, dbuf, &s.command, op);
		gnvd_meet(w); /* all lanes have what the leader acquired */
		l->ret = (int)gnvd_bcast32(w, (uint32_t)s.command.ret);
		l->ret = l->ret == GNVD_IDLE ? 0 : l->ret;
		s.bytes = l->ret ? 0 : gnvd_bcast64(w, s.bytes);
		if (!l->ret && gnvd_bcast32(w, (uint32_t)s.copied))
			gnvd_copy_together(w, to + l->offset, gnvd_bcast64(w, s.from), s.bytes);
		gnvd_file_passed(l, cur, s.bytes);
	}
}

GNVD_FN int gnvd_file_one_rw(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, struct gnvd_file_left l, uint32_t op)
{
	const struct gpunvme_dq *dq = cur->dq;
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_WAVE);
		gnvd_file_run_one(dq, &w, cur->file, cur, dbuf, &l, op);
		gnvd_leave(&w);
	}
	return l.ret;
}

/**
 * gpunvme_wave_read_one() - make one read of a file for the whole wave
 * @cur:    the thread's cursor. cur->done is set to the number of bytes that were read, the same for all. The wave uses the
 *          cur->bounce of its lowest lane: one block
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer, any number
 * @pos:    bytes from the start of the file, any number
 * @len:    bytes
 *
 * All threads name the same transfer. The call makes that of the lowest lane (a thread's place in its wave), and all threads help:
 * they look for its end, copy what came through the bounce block, and store the zeroes of holes. Which threads must call: as for
 * gpunvme_wave_read_one() on a queue.
 * Return: as gpunvme_read() on a file, the same for all threads. With 0 each of them sees the data.
 */
GPUNVME_FN int GNVD_FILE(wave_read_one)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
					uint64_t len)
{
	return gnvd_file_one_rw(cur, dbuf, gnvd_file_begin(cur, dbuf, offset, pos, len, GPUNVME_IO_READ, 0, 1), GPUNVME_IO_READ);
}

/**
 * gpunvme_wave_write_one() - make one write to a file in place for the whole wave, with what all its threads stored before
 * @cur:    the thread's cursor. cur->done is set to the number of bytes that were written, the same for all
 * @dbuf:   the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the file, a multiple of the namespace's block
 * @len:    bytes, a multiple of the block
 * @flags:  0 or GPUNVME_FUA
 *
 * Rules as for gpunvme_wave_read_one() on a file.
 * Return: as gpunvme_write() on a file, the same for all threads.
 */
GPUNVME_FN int GNVD_FILE(wave_write_one)(struct gpunvme_cursor *cur, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
					 uint64_t len, uint32_t flags)
{
	uint32_t op = GNVD_WRITE(flags);

	return gnvd_file_one_rw(cur, dbuf, gnvd_file_begin(cur, dbuf, offset, pos, len, op, gnvd_check_flags(flags), 1), op);
}

#endif
