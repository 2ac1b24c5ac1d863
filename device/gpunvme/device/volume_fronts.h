/* SPDX-License-Identifier: MIT */
/*
 * More ways to use a volume than one call of one thread that waits: handles and whole waves. Only device.h includes this. Its rules
 * hold here, too.
 */
#ifndef GPUNVME_DEVICE_VOLUME_FRONTS_H
#define GPUNVME_DEVICE_VOLUME_FRONTS_H

#include <gpunvme/device/submit.h>
#include <gpunvme/device/volume.h>

/* ---- Asynchronous ---- */

/* One command on one member. */
struct gnvd_single {
	uint64_t pos;   /* bytes, on the member */
	uint32_t entry; /* of the table of views. The handle has it in the bits that its generation leaves free */
	uint32_t m;
};

/* Find the member and the queue for a range. Its blocks must lie in one stripe. */
GNVD_FN int gnvd_find_single(const struct gpunvme_dvol *v, uint64_t pos, uint64_t len, int write, struct gnvd_single *s)
{
	int ret = gnvd_check_span_of(v, pos, len, write);
	struct gnvd_stretch at;

	if (ret)
		return ret;
	if (GNVD_BLOCKS(v, len) >> 32)
		return -GPUNVME_EMSGSIZE;
	gnvd_stretch_at(v, GNVD_BLOCKS(v, pos) + v->lba_first, GNVD_NBLOCKS(v, len), &at);
	s->m = at.m;
	s->entry = gnvd_entry(v, at.m, gnvd_wave_number());
	s->pos = at.lba << v->lba_shift;
	return at.nblocks < GNVD_NBLOCKS(v, len) ? -GPUNVME_EMSGSIZE : 0;
}

GNVD_FN int gnvd_note_single(const struct gnvd_single *s, int ret, struct gpunvme_req *req)
{
	if (!ret && req)
		req->gen |= s->entry;
	return ret;
}

GNVD_FN int gnvd_volume_submit(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
			       uint64_t len, uint32_t op, int ret, struct gpunvme_req *req)
{
	struct gnvd_single s;

	if (!ret)
		ret = gnvd_find_single(v, pos, len, GNVD_OPC(op) == GPUNVME_IO_WRITE, &s);
	if (ret)
		return ret;
	ret = gnvd_submit_rw(gnvd_dq_at(v, s.entry), gnvd_member_dbuf(buf, s.m), offset, s.pos, len, op, 0, req);
	return gnvd_note_single(&s, ret, req);
}

/**
 * gpunvme_submit_read() - start reading blocks of a volume, as exactly one command
 * @v:      the volume
 * @buf:    the buffer. The device owns the bytes until the command completes
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, of one stripe. Otherwise as for gpunvme_submit_read() on a queue
 * @req:    as for gpunvme_submit_read() on a queue. gpunvme_poll(), gpunvme_wait() and gpunvme_detach() take it with the volume
 *
 * Return: as gpunvme_submit_read() on a queue; -GPUNVME_EMSGSIZE also for blocks of several stripes, which one command cannot
 * move: submit the part up to the end of the stripe and the rest. Stripes count from the first block of the volume, not of the
 * window. On one device there are none.
 */
GPUNVME_FN int GNVD_VOLUME(submit_read)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
					uint64_t pos, uint64_t len, struct gpunvme_req *req)
{
	return gnvd_volume_submit(v, buf, offset, pos, len, GPUNVME_IO_READ, 0, req);
}

/**
 * gpunvme_submit_write() - start writing blocks of a volume, as exactly one command
 * @v:      the volume
 * @buf:    the buffer. The device owns the bytes until the command completes
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    as for gpunvme_submit_read() on a volume
 * @flags:  0 or GPUNVME_FUA: the command completes when the blocks are durable
 * @req:    as for gpunvme_submit_read() on a volume
 *
 * Return: as gpunvme_submit_read() on a volume and gpunvme_write().
 */
GPUNVME_FN int GNVD_VOLUME(submit_write)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
					 uint64_t pos, uint64_t len, uint32_t flags, struct gpunvme_req *req)
{
	return gnvd_volume_submit(v, buf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags), req);
}

/**
 * gpunvme_submit_zero() - start setting blocks of a volume to zero, as exactly one command
 * @v:   the volume
 * @pos: bytes from the start of the window
 * @len: bytes, of one stripe. Otherwise as for gpunvme_submit_zero() on a queue
 * @req: as for gpunvme_submit_read() on a volume
 * Return: as gpunvme_submit_zero() on a queue and gpunvme_submit_read() on a volume.
 */
GPUNVME_FN int GNVD_VOLUME(submit_zero)(const struct gpunvme_dvol *v, uint64_t pos, uint64_t len, struct gpunvme_req *req)
{
	struct gnvd_single s;
	int ret = gnvd_find_single(v, pos, len, 1, &s);

	return ret ? ret : gnvd_note_single(&s, GNVD_QUEUE(submit_zero)(gnvd_dq_at(v, s.entry), s.pos, len, req), req);
}

/**
 * gpunvme_submit_discard() - start to deallocate blocks of a volume, as exactly one command
 * @v:      the volume
 * @buf:    as for gpunvme_discard(). The device owns the 16 bytes until the command completes
 * @offset: where in the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, of one stripe. Otherwise as for gpunvme_submit_discard() on a queue
 * @req:    as for gpunvme_submit_read() on a volume
 * Return: as gpunvme_submit_discard() on a queue and gpunvme_submit_read() on a volume.
 */
GPUNVME_FN int GNVD_VOLUME(submit_discard)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
					   uint64_t pos, uint64_t len, struct gpunvme_req *req)
{
	struct gnvd_single s;
	int ret = gnvd_find_single(v, pos, len, 1, &s);

	if (ret)
		return ret;
	ret = GNVD_QUEUE(submit_discard)(gnvd_dq_at(v, s.entry), gnvd_member_dbuf(buf, s.m), offset, s.pos, len, req);
	return gnvd_note_single(&s, ret, req);
}

/* Has the volume the queue of this handle? Whether the handle is one of that queue is checked with it. */
GNVD_FN int gnvd_check_entry(const struct gpunvme_dvol *v, const struct gpunvme_req *req)
{
	int ret = gnvd_check_volume(v);

	return ret ? ret : (uint32_t)req->gen < v->members * v->queues ? 0 : -GPUNVME_EXDEV;
}

/**
 * gpunvme_poll() - check whether a command of a volume has ended
 * @v:   the volume it was submitted to (any view of it)
 * @req: the handle, consumed when the result is final
 * Return: as gpunvme_poll() on a queue.
 */
GPUNVME_FN int GNVD_VOLUME(poll)(const struct gpunvme_dvol *v, struct gpunvme_req *req)
{
	int ret = gnvd_check_entry(v, req);

	return ret ? ret : GNVD_QUEUE(poll)(gnvd_dq_at(v, (uint32_t)req->gen), req);
}

/**
 * gpunvme_wait() - wait until a command of a volume has ended
 * @v:     the volume it was submitted to (any view of it)
 * @req:   the handle, consumed when the result is final
 * @ticks: as for gpunvme_wait() on a queue
 * Return: as gpunvme_wait() on a queue.
 */
GPUNVME_FN int GNVD_VOLUME(wait)(const struct gpunvme_dvol *v, struct gpunvme_req *req, uint64_t ticks)
{
	int ret = gnvd_check_entry(v, req);

	return ret ? ret : GNVD_QUEUE(wait)(gnvd_dq_at(v, (uint32_t)req->gen), req, ticks);
}

/**
 * gpunvme_detach() - give a handle of a volume back without waiting
 * @v:   the volume it was submitted to
 * @req: the handle, consumed
 * Return: as gpunvme_detach() on a queue.
 */
GPUNVME_FN int GNVD_VOLUME(detach)(const struct gpunvme_dvol *v, struct gpunvme_req *req)
{
	int ret = gnvd_check_entry(v, req);

	return ret ? ret : GNVD_QUEUE(detach)(gnvd_dq_at(v, (uint32_t)req->gen), req);
}

/* ---- Waves ---- */

/* What a lane has in flight on which member, or waits to have there. */
struct gnvd_flight {
	struct gpunvme_req req;
	uint64_t deadline; /* of the command in flight, or of the wait for room */
	uint32_t fetched;
	uint32_t n; /* blocks in flight. 0: none */
	uint32_t m;
};

/* Submit a command for each lane that has none, and whose next blocks lie on member m, if there is room. Return their number. */
GNVD_FN uint32_t gnvd_send_to(const struct gpunvme_dvol *v, const struct gnvd_wave *w, const struct gpunvme_dq *dq,
			      const struct gpunvme_dbuf *dbuf, uint32_t m, uint32_t turn, struct gnvd_left *l, uint32_t op,
			      struct gnvd_flight *f)
{
	int want = l->nblocks && !f->n && f->m == m, err, late = 0;
	uint32_t fetched = f->fetched;
	struct gnvd_grant grant = { 0, 0, 0, 0, 0 };
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	struct gnvd_stretch at;

	if (!gnvd_ballot(w, want))
		return 0;
	err = gnvd_find_places(dq, w, want, gnvd_widest(dq), &grant);
	if (want && !err) {
		struct gnvd_left part = *l;

		gnvd_stretch_at(v, l->lba, l->nblocks, &at);
		part.lba = at.lba;
		part.nblocks = at.nblocks;
		gnvd_begin_command(dq, &grant, &f->req);
		f->n = gnvd_part_blocks(dq, dbuf, &part, op);
		gnvd_set_part(dq, dbuf, &part, f->n, op, &c);
		gnvd_write_command(dq, &grant, &c, f->req.cid);
		f->deadline = 0;
	}
	if (grant.count)
		gnvd_publish(dq, w, grant.pos, grant.count);
	if ((turn & 15) == 15)
		late = gnvd_no_room(dq, want && err, &f->deadline, &fetched);
	if (want && err) {
		f->fetched = fetched;
		l->ret = err == -GPUNVME_EAGAIN ? late : err;
	}
	return grant.count;
}

/* Take completions of member m for the lanes that wait there. */
GNVD_FN void gnvd_land_from(const struct gpunvme_dvol *v, const struct gnvd_wave *w, const struct gpunvme_dq *dq, uint32_t m,
			    uint32_t turn, struct gnvd_left *l, struct gnvd_flight *f)
{
	int waits = l->nblocks && f->m == m, ret = 0, why;

	if (!gnvd_ballot(w, waits))
		return;
	gnvd_help(dq, w, turn);
	if (!waits || !f->n)
		return;
	if (gnvd_take_done(dq, f->req.cid, gnvd_ld64(gnvd_result_at(dq, f->req.cid)), &ret)) {
		l->lba += f->n;
		l->offset += (uint64_t)f->n << v->lba_shift;
		l->nblocks -= f->n;
		l->ret = ret || !l->nblocks || l->ret != -GPUNVME_ECANCELED ? ret : l->ret;
		f->n = 0;
		f->deadline = 0;
	} else if (l->ret) {
		gnvd_fail_wait(dq, &f->req, l->ret, f->deadline);
		f->n = 0;
	}
	if ((turn & 15) == 15 && l->nblocks && !l->ret) {
		why = gnvd_look_up(dq, &f->deadline, 0, NULL);
		l->ret = f->n || why == -GPUNVME_ECANCELED ? why : 0; /* the lane may not need this member again */
		f->deadline = f->n ? f->deadline : 0;
	}
}

/*
 * The transfers of all lanes of the wave. Each lane has a command in flight, on whichever member, and submits the next one when it
 * has ended. So all members work at once, and no lane waits for the command of another. Turns count through the whole transfer: in
 * each 16th one a lane looks at the stop word and its deadline, however fast drives are. `idle` counts those since the wave last
 * submitted. A lane stops at its first failure.
 */
GNVD_FN void gnvd_volume_run_wave(const struct gpunvme_dvol *v, const struct gnvd_wave *w, const struct gpunvme_dvbuf *buf,
				  uint32_t number, struct gnvd_left *l, uint32_t op)
{
	struct gnvd_flight f = { { 0, 0, 0, 0 }, 0, 0, 0, 0 };
	struct gnvd_stretch at;
	uint32_t m, turn = 0, idle = 0;

	l->nblocks = l->ret ? 0 : l->nblocks;
	for (; gnvd_ballot(w, l->nblocks != 0); turn++) {
		if (l->nblocks && !f.n) {
			gnvd_stretch_at(v, l->lba, l->nblocks, &at);
			f.m = at.m;
		}
		for (m = 0; m < v->members; m++)
			if (gnvd_send_to(v, w, gnvd_member_dq(v, m, number), gnvd_member_dbuf(buf, m), m, turn, l, op, &f))
				idle = 0;
		for (m = 0; m < v->members; m++)
			gnvd_land_from(v, w, gnvd_member_dq(v, m, number), m, turn, l, &f);
		l->nblocks = l->ret && !f.n ? 0 : l->nblocks;
		gnvd_pause(idle++);
	}
}

/* `one`: the leader's transfer is that of all. All lanes enter by the same queue of the volume. */
GNVD_FN int gnvd_volume_wave_rw(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, struct gnvd_left *l, uint32_t op,
				int one)
{
	const uint32_t number = gnvd_wave_number();
	const struct gpunvme_dq *dq = gnvd_member_dq(v, 0, number);
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_WAVE);
		l->ret = one && w.rank ? GNVD_IDLE : l->ret;
		gnvd_volume_run_wave(v, &w, buf, number, l, op);
		if (one) {
			gnvd_meet(&w); /* all lanes have what the leader acquired */
			l->ret = (int)gnvd_bcast32(&w, (uint32_t)l->ret);
		}
		gnvd_leave(&w);
	}
	return l->ret == GNVD_IDLE ? 0 : l->ret;
}

/* Check the arguments. A lane whose volume is refused does not enter: it has no queue. */
GNVD_FN int gnvd_volume_wave(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
			     uint64_t len, uint32_t op, int ret, int one)
{
	struct gnvd_left l = { offset, 0, 0, gnvd_check_volume(v) };

	if (l.ret)
		return l.ret;
	l.ret = ret;
	if (!l.ret)
		l.ret = len == GPUNVME_NO_TRANSFER && !one ? GNVD_IDLE : gnvd_check_one_transfer_of(v, buf, offset, pos, len, op);
	l.lba = GNVD_BLOCKS(v, pos) + v->lba_first;
	l.nblocks = GNVD_NBLOCKS(v, len);
	return gnvd_volume_wave_rw(v, buf, &l, op, one);
}

/**
 * gpunvme_wave_read() - read blocks of a volume with the whole wave: one transfer for each thread
 * @v:      the volume. Threads that name different ones wait for those of their own volume
 * @buf:    the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks. GPUNVME_NO_TRANSFER: this thread has no transfer of its own
 *
 * Which threads must call: as for gpunvme_wave_read() on a queue. The wave takes its places in the queue of each device once, and
 * the devices work at the same time. The parts of one thread's transfer, each in one stripe, go one after the other. The time-outs
 * of devices that do not respond run at the same time. A thread whose volume is refused does not wait for the others.
 * Return: as gpunvme_read() on a volume, for this thread's own transfer; 0 for a thread without one.
 */
GPUNVME_FN int GNVD_VOLUME(wave_read)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
				      uint64_t len)
{
	return gnvd_volume_wave(v, buf, offset, pos, len, GPUNVME_IO_READ, 0, 0);
}

/**
 * gpunvme_wave_write() - write blocks of a volume with the whole wave: one transfer for each thread
 * @v:      as for gpunvme_wave_read() on a volume
 * @buf:    the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    as for gpunvme_wave_read() on a volume
 * @flags:  0 or GPUNVME_FUA. Threads of a wave may differ
 *
 * Rules as for gpunvme_wave_read() on a volume.
 * Return: as gpunvme_write() on a volume, for this thread's own transfer; 0 for a thread without one, -GPUNVME_EINVAL for an
 * unknown flag.
 */
GPUNVME_FN int GNVD_VOLUME(wave_write)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
				       uint64_t pos, uint64_t len, uint32_t flags)
{
	return gnvd_volume_wave(v, buf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags), 0);
}

/**
 * gpunvme_wave_read_one() - make one read of a volume for the whole wave
 * @v:      the volume. Threads that name different ones make one transfer on each
 * @buf:    the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 *
 * All threads name the same transfer. The call makes that of the lowest lane, part by part, each in one stripe. Rules as for
 * gpunvme_wave_read_one() on a queue. For a large range use gpunvme_block_read(), which has many parts in flight.
 * Return: as gpunvme_read() on a volume, the same for all threads; with 0 each of them sees the data.
 */
GPUNVME_FN int GNVD_VOLUME(wave_read_one)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
					  uint64_t pos, uint64_t len)
{
	return gnvd_volume_wave(v, buf, offset, pos, len, GPUNVME_IO_READ, 0, 1);
}

/**
 * gpunvme_wave_write_one() - make one write to a volume for the whole wave, with what all its threads stored before
 * @v:      as for gpunvme_wave_read_one() on a volume
 * @buf:    the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 * @flags:  0 or GPUNVME_FUA
 *
 * Rules as for gpunvme_wave_read_one() on a volume.
 * Return: as gpunvme_write() on a volume, the same for all threads.
 */
GPUNVME_FN int GNVD_VOLUME(wave_write_one)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
					   uint64_t pos, uint64_t len, uint32_t flags)
{
	return gnvd_volume_wave(v, buf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags), 1);
}

#endif
