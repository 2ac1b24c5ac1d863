/* SPDX-License-Identifier: MIT */
/*
 * Lists of transfers in the order of a stream. Each wave takes every waves-th transfer, and its threads take turns with the pieces
 * of it. For kernels.c and stream.cu only.
 * Invariant: a wave whose threads are not all there (CPU threads that are late) stores no success, and leaves the kernel.
 */
#ifndef GNV_GPU_KERNELS_STREAM_H
#define GNV_GPU_KERNELS_STREAM_H

#define STREAM_PIECE_MOST 18u  /* 256 KiB: a command of most drives */
#define STREAM_PIECE_LEAST 16u /* 64 KiB: below that two commands cost more than one */
#define STREAM_GOOD (~0ull)
#define STREAM_LEFT (~0ull - 1) /* threads are late: this one leaves the kernel, and stores no result */

/* A queue, a file on it, or a volume. What is not used is NULL. */
struct stream_source {
	const struct gpunvme_dq *dq; /* by which the threads of a wave meet */
	const struct gpunvme_dbuf *dbuf;
	const struct gpunvme_dfile *file;
	const struct gpunvme_dvol *vol;
	const struct gpunvme_dvbuf *vbuf;
	const struct gnv_stream_target *target;
};

/* A transfer as all threads of the wave know it. */
struct stream_task {
	uint64_t at; /* address of the structure */
	uint64_t pos, offset, len;
	uint32_t flags, op;
};

enum stream_end { STREAM_MOVED, STREAM_FAILED, STREAM_ALONE };

/* Distance from the start in bits 63:16, result in bits 15:0, an error with bit 15: the smallest is the first failure. */
GNVK_FN uint64_t stream_failure(uint64_t distance, int ret)
{
	return distance << 16 | (ret > 0 ? (uint64_t)ret : 0x8000u + (uint64_t)-ret);
}

/* The first failure of the threads. */
GNVK_FN uint64_t stream_first(const struct gnvd_wave *w, uint64_t failed)
{
	uint64_t m, other;

	if (!gnvd_ballot(w, failed != STREAM_GOOD))
		return failed;
	for (m = w->mask; m; m &= m - 1) {
		other = gnvd_shfl64(w, failed, gnvd_lowest(m));
		failed = other < failed ? other : failed;
	}
	return failed;
}

#include "gpu/kernels/landing.h"

/* The leader's words for all: the list may change while threads load it. Return: are all threads of the wave there? */
GNVK_FN int stream_begin(const struct stream_source *s, uint64_t at, struct stream_task *t)
{
	const GNVK_GLOBAL struct gpunvme_transfer *from = GNVK_AT(const struct gpunvme_transfer, at);
	struct gnvd_wave w;
	int whole;

	w.hint = 0;
	gnvd_enter(&w, s->dq, GNVD_SITE_WAVE);
	whole = w.count == gnvd_wave_lanes();
	t->at = at;
	t->pos = gnvd_bcast64(&w, from->pos);
	t->offset = gnvd_bcast64(&w, from->offset);
	t->len = gnvd_bcast64(&w, from->len);
	t->flags = gnvd_bcast32(&w, from->flags);
	gnvd_leave(&w);
	t->op = t->flags & GPUNVME_TRANSFER_WRITE ? GNVD_WRITE(t->flags) : GPUNVME_IO_READ;
	return whole;
}

/* The whole transfer: threads look at their pieces alone. A read of a file ends with it. */
GNVK_FN int stream_check(const struct stream_source *s, struct stream_task *t)
{
	uint32_t known = t->flags & GPUNVME_TRANSFER_WRITE ? GPUNVME_TRANSFER_WRITE | GPUNVME_FUA : 0;
	int ret;

	if (t->flags & ~known)
		return -GPUNVME_EINVAL;
	if (s->target && !GNVD_WITHIN(t->offset, t->len, s->target->len))
		return -GPUNVME_ERANGE;
	if (s->target && s->target->turns)
		return stream_check_landing(s, t);
	if (s->target)
		t->offset += s->target->at - s->dbuf->base;
	if (s->vol)
		return gnvd_check_transfer_of(s->vol, s->vbuf, t->offset, t->pos, t->len, t->op);
	if (!s->file)
		return gnvd_check_transfer(s->dq, s->dbuf, t->offset, t->pos, t->len, t->op);
	ret = gnvd_check_file_transfer(s->dq, s->file, s->dbuf, t->offset, t->pos, t->len, t->op);
	t->len = gnvd_file_bytes(s->file, t->pos, t->len, t->op);
	return ret;
}

/* Bytes of a piece as a power of two. What the drive writes whole is one piece. */
GNVK_FN uint32_t stream_shift(const struct gpunvme_dq *dq, const struct stream_task *t, uint32_t lanes)
{
	uint32_t shift = STREAM_PIECE_MOST;

	if (GNVD_OPC(t->op) == GPUNVME_IO_WRITE && t->len >> dq->lba_shift <= dq->atomic)
		return 63;
	while (shift > dq->lba_shift && 1ull << (shift - dq->lba_shift) > dq->max_blocks)
		shift--;
	while (shift > dq->lba_shift && shift > STREAM_PIECE_LEAST && t->len >> shift < lanes)
		shift--;
	return shift;
}

/* All threads come. A length of GPUNVME_NO_TRANSFER is none. */
GNVK_FN int stream_piece(const struct stream_source *s, struct gpunvme_cursor *cur, uint64_t offset, uint64_t pos, uint64_t len,
			 uint32_t op)
{
	return s->file ? gnvd_file_wave_each(cur, s->dbuf, offset, pos, len, op, 0) :
			 gnvd_wave_rw(s->dq, s->dbuf, offset, pos, len, op, 0);
}

/* This thread's pieces, until its first failure. */
GNVK_FN uint64_t stream_move(const struct stream_source *s, struct gpunvme_cursor *cur, const struct stream_task *t)
{
	uint32_t lanes = gnvd_wave_lanes(), shift = stream_shift(s->dq, t, lanes);
	uint64_t end = t->pos + t->len, first = t->pos >> shift, last = (end - 1) >> shift, failed = STREAM_GOOD;
	uint64_t round, rounds = (last - first) / lanes + 1, piece, from, to;
	int ret;

	for (round = 0; round < rounds; round++) {
		piece = first + round * lanes + gnvd_block_lane() % lanes;
		from = piece << shift;
		to = (piece + 1) << shift;
		from = from < t->pos ? t->pos : from;
		to = to > end || shift == 63 ? end : to;
		ret = stream_piece(s, cur, t->offset + (from - t->pos), from,
				   piece <= last && failed == STREAM_GOOD ? to - from : GPUNVME_NO_TRANSFER, t->op);
		if (ret)
			failed = stream_failure(from - t->pos, ret);
	}
	return failed;
}

/* As stream_shift(), of the blocks on one member. */
GNVK_FN uint32_t stream_volume_shift(const struct gpunvme_dvol *v, struct gnvd_part p, uint32_t op)
{
	uint64_t least = ((p.end - p.begin) << v->lba_shift) >> STREAM_PIECE_LEAST;

	p.slots = least < 1 ? 1 : least < p.slots ? (uint32_t)least : p.slots;
	return gnvd_piece_shift(v, &p, op);
}

/* The same of a volume, member by member: threads that come together name one queue. */
GNVK_FN uint64_t stream_move_volume(const struct stream_source *s, const struct stream_task *t)
{
	struct gnvd_part p = { GNVD_BLOCKS(s->vol, t->pos) + s->vol->lba_first, t->offset, 0, 0, 0, 0, gnvd_wave_lanes(), 0 };
	uint64_t nblocks = GNVD_BLOCKS(s->vol, t->len), failed = STREAM_GOOD;

	p.slot = gnvd_block_lane() % p.slots;
	for (p.m = 0; p.m < s->vol->members; p.m++) {
		if (!gnvd_member_range(s->vol, p.lba, nblocks, &p))
			continue;
		p.shift = stream_volume_shift(s->vol, p, t->op);
		failed = gnvd_run_part(s->vol, s->vbuf, &p, t->op, failed);
	}
	return failed;
}

/* A transfer, as a whole or part by part. */
GNVK_FN uint64_t stream_parts(const struct stream_source *s, struct gpunvme_cursor *cur, const struct stream_task *t)
{
	uint64_t pos = t->pos, end = t->pos + t->len, failed = STREAM_GOOD;
	int lands = s->target && s->target->turns;
	struct stream_part p = { *t, 0, 0, 0, 0, t->len };
	int ret = 0;

	for (; pos < end && failed == STREAM_GOOD; pos += p.len) {
		if (lands)
			ret = stream_land(s, t, pos, &p);
		if (ret)
			return ret == -GPUNVME_EAGAIN ? STREAM_LEFT : stream_failure(0, ret);
		failed = s->vol ? stream_move_volume(s, &p.blocks) : stream_move(s, cur, &p.blocks);
		if (lands)
			failed = stream_landed(s, t, &p, failed);
	}
	return failed;
}

/* `failed` of this thread. What the threads stored comes before the result, for devices and CPUs, too. */
GNVK_FN enum stream_end stream_end(const struct stream_source *s, const struct stream_task *t, uint64_t failed)
{
	int64_t result = (int64_t)t->len;
	uint32_t status = 0, whole;
	struct gnvd_wave w;

	w.hint = 0;
	gnvd_order_system();
	gnvd_enter(&w, s->dq, GNVD_SITE_BLOCK);
	whole = w.count == gnvd_wave_lanes();
	failed = stream_first(&w, failed);
	if (failed != STREAM_GOOD) {
		status = failed & 0x8000 ? 0 : (uint32_t)failed & 0x7fff;
		result = status ? -GPUNVME_EIO : -(int64_t)(failed & 0x7fff);
	}
	if (!w.rank) {
		gnvd_st32(t->at + offsetof(struct gpunvme_transfer, status), status);
		gnvd_order_system();
		gnvd_st64(t->at + offsetof(struct gpunvme_transfer, result), (uint64_t)(whole ? result : -GPUNVME_EAGAIN));
	}
	gnvd_leave(&w);
	return !whole ? STREAM_ALONE : failed == STREAM_GOOD ? STREAM_MOVED : STREAM_FAILED;
}

/* Results of the wave's transfers, before it begins: those of an earlier run say nothing. */
GNVK_FN void stream_mark(const struct stream_source *s, const struct gnv_stream_list *l, uint32_t wave, uint32_t waves)
{
	uint32_t lanes = gnvd_wave_lanes();
	struct gnvd_wave w;
	uint64_t i;

	w.hint = 0;
	for (i = wave + (uint64_t)waves * (gnvd_block_lane() % lanes); i < l->count; i += (uint64_t)waves * lanes)
		gnvd_st64(l->at + i * sizeof(struct gpunvme_transfer) + offsetof(struct gpunvme_transfer, result),
			  (uint64_t)(int64_t)-GPUNVME_EAGAIN);
	gnvd_order_system();
	gnvd_enter(&w, s->dq, GNVD_SITE_BLOCK);
	gnvd_meet(&w);
	gnvd_leave(&w);
}

GNVK_FN void stream_run(const struct stream_source *s, const struct gnv_stream_list *l, struct gpunvme_cursor *cur)
{
	uint32_t waves = gpunvme_thread_count() / gnvd_wave_lanes(), wave = gnvd_wave_number(), stop = 0;
	struct stream_task t;
	enum stream_end end;
	uint64_t i, failed;
	int ret;

	stream_mark(s, l, wave, waves);
	for (i = wave; i < l->count; i += waves) {
		if (!stream_begin(s, l->at + i * sizeof(struct gpunvme_transfer), &t))
			return;
		ret = stop ? -GPUNVME_ECANCELED : stream_check(s, &t);
		failed = ret ? stream_failure(0, ret) : stream_parts(s, cur, &t);
		if (failed == STREAM_LEFT)
			return;
		end = stream_end(s, &t, failed);
		if (end == STREAM_ALONE)
			return;
		stop |= end == STREAM_FAILED && (l->flags & GPUNVME_RUN_STOP);
	}
}

GNVK_KERNEL(stream)
{
	const struct stream_source s = { &a->dq, &a->dbuf, NULL, NULL, NULL, a->target.len ? &a->target : NULL };

	stream_run(&s, &a->list, NULL);
}

GNVK_KERNEL(stream_file)
{
	const struct stream_source s = { &a->dq, &a->dbuf, &a->file, NULL, NULL, a->target.len ? &a->target : NULL };
	struct gpunvme_cursor cur = { &a->dq, &a->file, a->bounce, 0, 0, 0 };

	if (cur.bounce != ~0ull)
		cur.bounce += (uint64_t)gpunvme_thread_id() << a->dq.lba_shift;
	stream_run(&s, &a->list, &cur);
}

GNVK_KERNEL(stream_volume)
{
	const struct stream_source s = { gnvd_member_dq(&a->vol, 0, 0), NULL, NULL, &a->vol, &a->vbuf,
					 a->target.len ? &a->target : NULL };

	stream_run(&s, &a->list, NULL);
}

#endif
