/* SPDX-License-Identifier: MIT */
/*
 * Parts of transfers that land: slots of landing memory, and copies between there and the target. For stream.h only.
 * Invariant: a slot is given back only when no command uses it any more.
 */
#ifndef GNV_GPU_KERNELS_LANDING_H
#define GNV_GPU_KERNELS_LANDING_H

/* What a thread loads at once. */
typedef uint64_t stream_vector __attribute__((vector_size(16), may_alias));

#define STREAM_PART (1ull << STREAM_PIECE_MOST) /* of a transfer that lands, at most: parts end at multiples of it */
#define STREAM_VECTOR ((uint32_t)sizeof(stream_vector))

/* Whole blocks that land, and the bytes of them that the target has. */
struct stream_part {
	struct stream_task blocks; /* its offset is in the slot */
	uint64_t slot, turn;
	uint64_t landed, memory; /* addresses of the first byte */
	uint64_t len;
};

GNVK_FN int stream_check_window(const struct stream_source *s, uint64_t first, uint64_t nblocks)
{
	return s->vol ? gnvd_check_window_of(s->vol, first, nblocks, 0) : gnvd_check_window(s->dq, first, nblocks, 0);
}

/* A transfer that lands. A read of a queue or a volume takes any bytes of its blocks. */
GNVK_FN int stream_check_landing(const struct stream_source *s, struct stream_task *t)
{
	const struct gpunvme_dq *dq = s->dq;
	int write = GNVD_OPC(t->op) == GPUNVME_IO_WRITE, ret = gnvd_check_dq(dq);
	uint64_t first = t->pos >> (dq->lba_shift & 63), left;

	if (!ret && s->file)
		ret = gnvd_check_file(dq, s->file, s->dbuf, 0, 0);
	if (ret)
		return ret;
	if (s->file && !write) {
		left = t->pos < s->target->file_bytes ? s->target->file_bytes - t->pos : 0;
		t->len = t->len < left ? t->len : left;
		return 0;
	}
	if (s->file)
		ret = gnvd_check_file_write(dq, s->file, 0, t->pos, t->len);
	else if (write)
		ret = s->vol ? gnvd_check_span_of(s->vol, t->pos, t->len, 1) : gnvd_check_span(dq, t->pos, t->len, 1);
	else if (!t->len)
		ret = -GPUNVME_EINVAL;
	else if (!GNVD_WITHIN(t->pos, t->len, 1ull << 63))
		ret = -GPUNVME_ERANGE;
	else
		ret = stream_check_window(s, first, ((t->pos + t->len - 1) >> dq->lba_shift) - first + 1);
	return !ret && s->file && !GNVD_WITHIN(t->pos, t->len, s->target->file_bytes) ? -GPUNVME_ERANGE : ret;
}

/* Copy bytes with all threads of the wave. */
GNVK_FN void stream_copy(const struct gnvd_wave *w, uint64_t to, uint64_t from, uint64_t n)
{
	uint64_t head = (to ^ from) % STREAM_VECTOR ? n : (0 - to) % STREAM_VECTOR, whole, k = w->count, i;
	const GNVK_GLOBAL stream_vector *source;
	GNVK_GLOBAL stream_vector *target;
	stream_vector a, b, c, d, e, f, g, h;

	head = head < n ? head : n;
	whole = (n - head) / STREAM_VECTOR;
	source = GNVK_AT(const stream_vector, from + head);
	target = GNVK_AT(stream_vector, to + head);
	for (i = w->rank; i + 7 * k < whole; i += 8 * k) { /* 64 waves have 256 KiB under way: a link has a latency of microseconds */
		a = source[i];
		b = source[i + k];
		c = source[i + 2 * k];
		d = source[i + 3 * k];
		e = source[i + 4 * k];
		f = source[i + 5 * k];
		g = source[i + 6 * k];
		h = source[i + 7 * k];
		target[i] = a;
		target[i + k] = b;
		target[i + 2 * k] = c;
		target[i + 3 * k] = d;
		target[i + 4 * k] = e;
		target[i + 5 * k] = f;
		target[i + 6 * k] = g;
		target[i + 7 * k] = h;
	}
	for (; i < whole; i += k)
		target[i] = source[i];
	for (i = w->rank; i < head; i += k)
		GNVK_AT(uint8_t, to)[i] = GNVK_AT(const uint8_t, from)[i];
	for (i = head + whole * STREAM_VECTOR + w->rank; i < n; i += k)
		GNVK_AT(uint8_t, to)[i] = GNVK_AT(const uint8_t, from)[i];
}

/* Is a slot left? All threads get the leader's result. */
GNVK_FN int stream_has_slot(const struct gnv_stream_target *l, const struct gnvd_wave *w)
{
	uint32_t i = 0;

	while (i < l->slots && gnvd_ld_after64(l->turns + 8 + 8ull * i) == GNV_STREAM_RETIRED)
		i++;
	return gnvd_bcast32(w, i < l->slots) != 0;
}

/*
 * Take a slot, for the wave. Tickets are served in their order, and each wave before this one ends its part by the time-outs of its
 * commands, so the wait ends. Other waves take tickets, too, so all of this wave's may be of retired slots while others are left.
 * Return: 0; -GPUNVME_EBUSY none is left, as when commands of a drive that died had all of them.
 */
GNVK_FN int stream_take(const struct stream_source *s, const struct gnvd_wave *w, struct stream_part *p)
{
	const struct gnv_stream_target *l = s->target;
	uint32_t tries = 0, turn;
	uint64_t ticket, now;

	do {
		if (tries && tries % l->slots == 0 && !stream_has_slot(l, w))
			return -GPUNVME_EBUSY;
		ticket = 0;
		if (!w->rank)
			ticket = gnvd_fetch_add64(l->turns, 1);
		ticket = gnvd_bcast64(w, ticket);
		p->slot = ticket % l->slots;
		p->turn = ticket / l->slots;
		turn = 0;
		while ((now = gnvd_ld_after64(l->turns + 8 + 8 * p->slot)) != p->turn && now != GNV_STREAM_RETIRED)
			gnvd_pause(turn++);
		tries++;
	} while (now == GNV_STREAM_RETIRED);
	gnvd_order_agent(); /* after gnvd_st_release64() of the wave before */
	gnvd_meet(w);
	return 0;
}

/* After gpunvme_queue_stop() no command is to begin, whose slot would be lost. */
GNVK_FN int stream_stopped(const struct stream_source *s, const struct gnvd_wave *w)
{
	uint64_t now;
	uint32_t control = gnvd_control(s->dq, &now);

	return gnvd_bcast32(w, control) == 1;
}

/*
 * Take the next part of a transfer from `pos` on. What is to be written lands. Return: 0; -GPUNVME_EBUSY no slot is left;
 * -GPUNVME_ECANCELED; -GPUNVME_EAGAIN threads are late, and this one leaves the kernel.
 */
GNVK_FN int stream_land(const struct stream_source *s, const struct stream_task *t, uint64_t pos, struct stream_part *p)
{
	const struct gnv_stream_target *l = s->target;
	uint64_t mask = (1ull << s->dq->lba_shift) - 1, start = pos & ~mask, end = t->pos + t->len;
	uint64_t most = start + ((l->slot_bytes - STREAM_VECTOR) & ~mask), cut = most & ~(STREAM_PART - 1);
	struct gnvd_wave w;
	int ret;

	w.hint = 0;
	gnvd_enter(&w, s->dq, GNVD_SITE_LAND);
	if (w.count != gnvd_wave_lanes())
		ret = -GPUNVME_EAGAIN;
	else
		ret = stream_stopped(s, &w) ? -GPUNVME_ECANCELED : stream_take(s, &w, p);
	if (ret) {
		gnvd_leave(&w);
		return ret;
	}
	end = end <= most ? end : cut > pos ? cut : most;
	p->len = end - pos;
	p->memory = l->at + t->offset + (pos - t->pos);
	p->blocks = *t;
	p->blocks.op |= GNVD_FINISH; /* a command that is not waited for would cost the slot */
	p->blocks.pos = start;
	p->blocks.len = ((end + mask) & ~mask) - start;
	/* Aligned as the target is. */
	p->blocks.offset = p->slot * l->slot_bytes + ((p->memory - (pos - start)) & (STREAM_VECTOR - 4));
	p->landed = (s->vol ? s->vbuf->base : s->dbuf->base) + p->blocks.offset + (pos - start);
	if (GNVD_OPC(t->op) == GPUNVME_IO_WRITE)
		stream_copy(&w, p->landed, p->memory, p->len);
	gnvd_order_system();
	gnvd_meet(&w); /* the drive sees what all threads have stored */
	gnvd_leave(&w);
	return 0;
}

/*
 * Did a thread fail with a command that may still move data? An NVMe status is of one that completed, other errors of none. With
 * GNVD_FINISH a thread that was stopped has none.
 */
GNVK_FN int stream_lost(uint64_t failed)
{
	uint32_t why = (uint32_t)failed & 0xffff;

	return why == (0x8000u | GPUNVME_ETIMEDOUT) || why == (0x8000u | GPUNVME_EPROTO) || why == (0x8000u | GPUNVME_ENODEV);
}

/*
 * End a part: copy what was read, and give the slot back, unless a command may still use it: one that did not complete, or that of
 * a thread that is late. Return: the first failure; STREAM_LEFT threads are late, and this one leaves the kernel.
 */
GNVK_FN uint64_t stream_landed(const struct stream_source *s, const struct stream_task *t, const struct stream_part *p,
			       uint64_t failed)
{
	struct gnvd_wave w;
	uint64_t doubt;
	int whole;

	w.hint = 0;
	gnvd_order_agent(); /* zeroes of a hole, which other threads copy */
	gnvd_enter(&w, s->dq, GNVD_SITE_LANDED);
	whole = w.count == gnvd_wave_lanes();
	doubt = gnvd_ballot(&w, stream_lost(failed));
	failed = stream_first(&w, failed);
	if (!whole)
		failed = STREAM_LEFT;
	gnvd_meet(&w); /* what one thread has acquired with its completion, all have acquired */
	if (failed == STREAM_GOOD && GNVD_OPC(t->op) == GPUNVME_IO_READ)
		stream_copy(&w, p->memory, p->landed, p->len);
	gnvd_order_system();
	gnvd_meet(&w); /* no thread uses the slot any more */
	if (!w.rank)
		gnvd_st_release64(s->target->turns + 8 + 8 * p->slot, doubt || !whole ? GNV_STREAM_RETIRED : p->turn + 1);
	gnvd_leave(&w);
	return failed;
}

#endif
