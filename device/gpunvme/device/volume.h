/* SPDX-License-Identifier: MIT */
/*
 * Several queues as one: all queues of a controller, or of several controllers whose blocks are striped. A kernel receives a
 * struct gpunvme_dvol (from gpunvme_queue_view) and a struct gpunvme_dvbuf (from gpunvme_mem_map_queue). Only device.h includes
 * this. Its rules hold here too, with the volume's blocks.
 *
 * The place of a thread in the launch selects the queue of a member: adjacent waves use different queues, the threads of a wave the
 * same one.
 */
#ifndef GPUNVME_DEVICE_VOLUME_H
#define GPUNVME_DEVICE_VOLUME_H

#include <gpunvme/device/transfer.h>

/* ---- Where a block lies ---- */

GNVD_FN int gnvd_check_volume(const struct gpunvme_dvol *v)
{
	return gnvd_check_head(&v->head, GPUNVME_KIND_VOLUME);
}

GNVD_FN int gnvd_check_window_of(const struct gpunvme_dvol *v, uint64_t lba, uint64_t nblocks, int write)
{
	int ret = gnvd_check_volume(v);

	if (ret)
		return ret;
	if (!nblocks)
		return -GPUNVME_EINVAL;
	if (write && !(v->flags & GPUNVME_DQ_WRITE))
		return -GPUNVME_EROFS;
	return GNVD_WITHIN(lba, nblocks, v->lba_count) ? 0 : -GPUNVME_ERANGE;
}

GNVD_FN int gnvd_check_span_of(const struct gpunvme_dvol *v, uint64_t pos, uint64_t len, int write)
{
	int ret = gnvd_check_volume(v);

	if (ret)
		return ret;
	if (GNVD_UNALIGNED(v, pos | len))
		return -GPUNVME_EINVAL;
	return gnvd_check_window_of(v, GNVD_BLOCKS(v, pos), GNVD_BLOCKS(v, len), write);
}

GNVD_FN int gnvd_check_buffer_of(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t len)
{
	if ((buf->base + offset) & 3)
		return -GPUNVME_EINVAL;
	return GNVD_WITHIN(offset, len, buf->len) && !(GNVD_BLOCKS(v, len) >> 47) ? 0 : -GPUNVME_ERANGE;
}

GNVD_FN int gnvd_check_transfer_of(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
				   uint64_t len, uint32_t op)
{
	int ret = gnvd_check_span_of(v, pos, len, GNVD_OPC(op) == GPUNVME_IO_WRITE);

	return ret ? ret : gnvd_check_buffer_of(v, buf, offset, len);
}

/* A transfer of at most as many blocks as one thread moves. */
GNVD_FN int gnvd_check_one_transfer_of(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
				       uint64_t len, uint32_t op)
{
	int ret = gnvd_check_span_of(v, pos, len, GNVD_OPC(op) == GPUNVME_IO_WRITE);

	if (!ret && GNVD_BLOCKS(v, len) >> 32)
		ret = -GPUNVME_EMSGSIZE;
	return ret ? ret : gnvd_check_buffer_of(v, buf, offset, len);
}

/* The queue of member `m` for the wave whose number is `turn`: its place in the table of views. */
GNVD_FN uint32_t gnvd_entry(const struct gpunvme_dvol *v, uint32_t m, uint32_t turn)
{
	return turn % v->queues * v->members + m;
}

GNVD_FN const struct gpunvme_dq *gnvd_dq_at(const struct gpunvme_dvol *v, uint32_t entry)
{
	return (const struct gpunvme_dq *)gnvd_lane_memory(v->dq) + entry;
}

GNVD_FN const struct gpunvme_dq *gnvd_member_dq(const struct gpunvme_dvol *v, uint32_t m, uint32_t turn)
{
	return gnvd_dq_at(v, gnvd_entry(v, m, turn));
}

GNVD_FN const struct gpunvme_dbuf *gnvd_member_dbuf(const struct gpunvme_dvbuf *buf, uint32_t m)
{
	return (const struct gpunvme_dbuf *)gnvd_lane_memory(buf->member) + m;
}

/* Blocks that follow one another on one member: those up to the end of the stripe. */
struct gnvd_stretch {
	uint64_t lba; /* of the member */
	uint32_t m, nblocks;
};

/* The first of the stretches of a range. A volume of one member is one stretch. */
GNVD_FN void gnvd_stretch_at(const struct gpunvme_dvol *v, uint64_t lba, uint32_t nblocks, struct gnvd_stretch *at)
{
	uint64_t stripe = lba >> v->stripe_shift, left = (1ull << v->stripe_shift) - (lba & ((1ull << v->stripe_shift) - 1));

	at->m = (uint32_t)(stripe % v->members);
	at->lba = lba - ((stripe - stripe / v->members) << v->stripe_shift);
	at->nblocks = v->members > 1 && left < nblocks ? (uint32_t)left : nblocks;
}

/* The part of a transfer that lies on one member, and the threads that move it. */
struct gnvd_part {
	uint64_t lba, offset; /* of the whole transfer, on the volume and in the buffer */
	uint64_t begin, end;  /* blocks of the member */
	uint32_t m;
	uint32_t slot, slots; /* number of this thread among those of this member */
	uint32_t shift;       /* blocks of one piece as a power of two */
};

/* The stripes of one member are contiguous on it, so its part of a range is a range. Return 0 if it has none. */
GNVD_FN int gnvd_member_range(const struct gpunvme_dvol *v, uint64_t lba, uint64_t nblocks, struct gnvd_part *p)
{
	uint64_t mask = (1ull << v->stripe_shift) - 1, last = lba + nblocks - 1;
	uint64_t first_stripe = lba >> v->stripe_shift, last_stripe = last >> v->stripe_shift;
	uint64_t from = first_stripe + (p->m + v->members - first_stripe % v->members) % v->members, to;

	if (from > last_stripe)
		return 0;
	to = last_stripe - (last_stripe % v->members + v->members - p->m) % v->members;
	p->begin = (from / v->members << v->stripe_shift) + (from == first_stripe ? lba & mask : 0);
	p->end = (to / v->members << v->stripe_shift) + (to == last_stripe ? last & mask : mask) + 1;
	return 1;
}

/* Number of this wave in the launch. Adjacent waves differ. */
GNVD_FN uint32_t gnvd_wave_number(void)
{
	uint32_t width = gnvd_wave_lanes(), waves = (gnvd_block_lanes() + width - 1) / width;

	return gnvd_block_number() * waves + gnvd_same32(gnvd_block_lane() / width);
}

/* ---- One thread's transfer ---- */

/* Stretch by stretch. */
GNVD_FN int gnvd_volume_rw(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
			   uint64_t len, uint32_t op, int ret)
{
	uint64_t lba = GNVD_BLOCKS(v, pos) + v->lba_first;
	uint32_t nblocks = GNVD_NBLOCKS(v, len);
	struct gnvd_stretch at;

	if (!ret)
		ret = gnvd_check_one_transfer_of(v, buf, offset, pos, len, op);
	if (ret)
		return ret;
	do {
		gnvd_stretch_at(v, lba, nblocks, &at);
		ret = gnvd_run(gnvd_member_dq(v, at.m, gnvd_wave_number()), gnvd_member_dbuf(buf, at.m), offset, at.lba, at.nblocks, op,
			       0);
		lba += at.nblocks;
		offset += (uint64_t)at.nblocks << v->lba_shift;
		nblocks -= at.nblocks;
	} while (!ret && nblocks);
	return ret;
}

/* In C these have names that select.h chooses from. */
#if defined(__cplusplus)
#define GNVD_VOLUME(call) gpunvme_##call
#else
#define GNVD_VOLUME(call) gnvd_volume_##call
#endif

/**
 * gpunvme_read() - read blocks of a volume into a buffer and wait for them
 * @v:      the volume
 * @buf:    the buffer. This thread may read its bytes when the call returns 0
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 *
 * One thread reads part after part. To have many parts in flight call with many threads, or use gpunvme_block_read().
 * Return: 0, or the first failure in the order of the blocks (the blocks before it were read), as the head of device.h says.
 */
GPUNVME_FN int GNVD_VOLUME(read)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
				 uint64_t len)
{
	return gnvd_volume_rw(v, buf, offset, pos, len, GPUNVME_IO_READ, 0);
}

/**
 * gpunvme_write() - write blocks of a volume from a buffer and wait for them
 * @v:      the volume
 * @buf:    the buffer
 * @offset: bytes from the start of the buffer
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 * @flags:  0 or GPUNVME_FUA
 *
 * Return: as gpunvme_read() on a volume and gpunvme_write() on a queue.
 */
GPUNVME_FN int GNVD_VOLUME(write)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
				  uint64_t len, uint32_t flags)
{
	return gnvd_volume_rw(v, buf, offset, pos, len, GNVD_WRITE(flags), gnvd_check_flags(flags));
}

/**
 * gpunvme_zero() - set blocks of a volume to zero without a buffer, and wait
 * @v:   the volume
 * @pos: bytes from the start of the window
 * @len: bytes, any number of blocks
 *
 * Return: 0, or the first failure in the order of the members; -GPUNVME_EOPNOTSUPP: a member has no Write Zeroes, and nothing is
 * zeroed; otherwise as gpunvme_zero() on a queue.
 */
GPUNVME_FN int GNVD_VOLUME(zero)(const struct gpunvme_dvol *v, uint64_t pos, uint64_t len)
{
	int ret = gnvd_check_span_of(v, pos, len, 1), err;
	const struct gpunvme_dq *dq;
	struct gnvd_part p;

	for (p.m = 0; !ret && p.m < v->members; p.m++)
		ret = gnvd_check_zero(gnvd_member_dq(v, p.m, 0), 0);
	if (!ret && GNVD_BLOCKS(v, len) >> 32)
		ret = -GPUNVME_EMSGSIZE;
	if (ret)
		return ret;
	for (p.m = 0; p.m < v->members; p.m++) {
		if (!gnvd_member_range(v, GNVD_BLOCKS(v, pos) + v->lba_first, GNVD_BLOCKS(v, len), &p))
			continue;
		dq = gnvd_member_dq(v, p.m, gnvd_wave_number());
		err = gnvd_zero(dq, p.begin, (uint32_t)(p.end - p.begin), gnvd_check_window(dq, p.begin, p.end - p.begin, 1));
		ret = ret ? ret : err;
	}
	return ret;
}

/**
 * gpunvme_discard() - deallocate blocks of a volume whose data is not needed any more, and wait
 * @v:      the volume
 * @buf:    a buffer with 16 bytes for the call, as on a queue
 * @offset: bytes from the start of the buffer. Each thread has its own 16 bytes until the call returns
 * @pos:    bytes from the start of the window
 * @len:    bytes, any number of blocks
 *
 * Return: 0, or the first failure in the order of the members; -GPUNVME_EOPNOTSUPP: a member has no Dataset Management, and
 * nothing is deallocated; otherwise as gpunvme_discard() on a queue.
 */
GPUNVME_FN int GNVD_VOLUME(discard)(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t pos,
				    uint64_t len)
{
	int ret = gnvd_check_span_of(v, pos, len, 1), err;
	const struct gpunvme_dq *dq;
	struct gnvd_part p;

	for (p.m = 0; !ret && p.m < v->members; p.m++)
		ret = gnvd_member_dq(v, p.m, 0)->deallocate ? 0 : -GPUNVME_EOPNOTSUPP;
	if (!ret && GNVD_BLOCKS(v, len) >> 32)
		ret = -GPUNVME_EMSGSIZE;
	if (ret)
		return ret;
	for (p.m = 0; p.m < v->members; p.m++) {
		if (!gnvd_member_range(v, GNVD_BLOCKS(v, pos) + v->lba_first, GNVD_BLOCKS(v, len), &p))
			continue;
		dq = gnvd_member_dq(v, p.m, gnvd_wave_number());
		err = gnvd_discard(dq, gnvd_member_dbuf(buf, p.m), offset, p.begin, (uint32_t)(p.end - p.begin),
				   gnvd_check_window(dq, p.begin, p.end - p.begin, 1));
		ret = ret ? ret : err;
	}
	return ret;
}

/**
 * gpunvme_flush() - make completed writes durable on every member of a volume, and wait
 * @v: the volume
 * Return: 0, or the first failure in the order of the members, as the head of device.h says. All members are tried.
 */
GPUNVME_FN int GNVD_VOLUME(flush)(const struct gpunvme_dvol *v)
{
	int ret = gnvd_check_volume(v), err;
	const struct gpunvme_dq *dq;
	uint32_t m;

	if (ret)
		return ret;
	for (m = 0; m < v->members; m++) {
		dq = gnvd_member_dq(v, m, gnvd_wave_number());
		err = gnvd_run(dq, NULL, 0, 0, 0, GPUNVME_IO_FLUSH, gnvd_check_dq(dq));
		ret = ret ? ret : err;
	}
	return ret;
}

#endif
