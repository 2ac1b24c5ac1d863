/* SPDX-License-Identifier: MIT */
/*
 * Several queues as one: all queues of a controller, or of several controllers whose blocks are striped. A kernel receives a
 * struct gpunvme_dvol (from gpunvme_volume_view) and a struct gpunvme_dvbuf (from gpunvme_volume_dbuf). Only device.h includes
 * this; its rules hold here too, with the volume's blocks.
 *
 * Which queue of a member carries a command follows from where the lane runs: waves that run side by side use different queues,
 * the lanes of a wave the same one.
 */
#ifndef GPUNVME_DEVICE_VOLUME_H
#define GPUNVME_DEVICE_VOLUME_H

#include <gpunvme/device/transfer.h>

/* ---- Where a block lies ---- */

GNVD_FN int gnvd_check_volume(const struct gpunvme_dvol *v)
{
	return v->magic == GPUNVME_DVOL_MAGIC && v->major == GPUNVME_DQ_MAJOR ? 0 : -GPUNVME_EPROTONOSUPPORT;
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

GNVD_FN int gnvd_check_transfer(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
				uint64_t nblocks, int write)
{
	int ret = gnvd_check_window_of(v, lba, nblocks, write);

	if (ret)
		return ret;
	if ((buf->base + offset) & 3)
		return -GPUNVME_EINVAL;
	return offset <= buf->len && nblocks <= (buf->len - offset) >> v->lba_shift && !(nblocks >> 47) ? 0 : -GPUNVME_ERANGE;
}

/* The queue of member `m` for the wave whose number is `turn`. */
GNVD_FN const struct gpunvme_dq *gnvd_member_dq(const struct gpunvme_dvol *v, uint32_t m, uint32_t turn)
{
	return (const struct gpunvme_dq *)gnvd_lane_memory(v->dq) + (uint64_t)(turn % v->queues) * v->members + m;
}

GNVD_FN const struct gpunvme_dbuf *gnvd_member_dbuf(const struct gpunvme_dvbuf *buf, uint32_t m)
{
	return (const struct gpunvme_dbuf *)gnvd_lane_memory(buf->member) + m;
}

/* The part of a transfer that lies on one member, and the lanes that move it. */
struct gnvd_part {
	uint64_t lba, offset; /* of the whole transfer, on the volume and in the buffer */
	uint64_t begin, end;  /* blocks of the member */
	uint32_t m;
	uint32_t slot, slots; /* this lane among those that serve this member */
	uint32_t shift;       /* blocks of one piece as a power of two */
};

/* Stripes of one member follow each other there, so its part of a range is a range. Answers 0 when there is none. */
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

/* Waves of the launch, numbered so that those side by side differ. */
GNVD_FN uint32_t gnvd_wave_number(void)
{
	uint32_t width = gnvd_wave_lanes(), waves = (gnvd_block_lanes() + width - 1) / width;

	return gnvd_block_number() * waves + gnvd_same32(gnvd_block_lane() / width);
}

/* ---- One lane's transfer ---- */

/* Part by part, each within one stripe. A volume of one member is one part. */
GNVD_FN int gnvd_volume_rw(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
			   uint32_t nblocks, uint32_t op)
{
	int ret = gnvd_check_transfer(v, buf, offset, lba, nblocks, GNVD_OPC(op) == GPUNVME_IO_WRITE);
	uint64_t stripe, left;
	uint32_t m, n;

	if (ret)
		return ret;
	lba += v->lba_first;
	do {
		stripe = lba >> v->stripe_shift;
		left = (1ull << v->stripe_shift) - (lba & ((1ull << v->stripe_shift) - 1));
		m = (uint32_t)(stripe % v->members);
		n = v->members > 1 && left < nblocks ? (uint32_t)left : nblocks;
		ret = gnvd_run(gnvd_member_dq(v, m, gnvd_wave_number()), gnvd_member_dbuf(buf, m), offset,
			       lba - ((stripe - stripe / v->members) << v->stripe_shift), n, op, 0);
		lba += n;
		offset += (uint64_t)n << v->lba_shift;
		nblocks -= n;
	} while (!ret && nblocks);
	return ret;
}

/**
 * gpunvme_volume_read() - read blocks of a volume into a buffer and wait for them
 * @v:       the volume
 * @buf:     the buffer; its bytes are valid for this lane when the call returns 0
 * @offset:  bytes from the start of the buffer
 * @lba:     first block, counted from the window
 * @nblocks: blocks, any number
 *
 * One lane reads part after part; to have many parts in flight call it with many lanes, or use gpunvme_block_read().
 * Return: 0; the first failure in LBA order (blocks before it were read); see the head of device.h.
 */
GPUNVME_FN int gpunvme_volume_read(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
				   uint32_t nblocks)
{
	return gnvd_volume_rw(v, buf, offset, lba, nblocks, GPUNVME_IO_READ);
}

/**
 * gpunvme_volume_write() - write blocks of a volume from a buffer and wait for them
 * Parameters and results as gpunvme_volume_read(); otherwise as gpunvme_write().
 */
GPUNVME_FN int gpunvme_volume_write(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
				    uint32_t nblocks)
{
	return gnvd_volume_rw(v, buf, offset, lba, nblocks, GPUNVME_IO_WRITE);
}

/**
 * gpunvme_volume_write_fua() - write blocks of a volume durably, and wait
 * Parameters and results as gpunvme_volume_read(); otherwise as gpunvme_write_fua().
 */
GPUNVME_FN int gpunvme_volume_write_fua(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
					uint64_t lba, uint32_t nblocks)
{
	return gnvd_volume_rw(v, buf, offset, lba, nblocks, GPUNVME_IO_WRITE | GPUNVME_RW_FUA);
}

/**
 * gpunvme_volume_deallocate() - tell the members that nobody needs what is in blocks, and wait
 * @v:       the volume
 * @buf:     a buffer of which the call needs 16 bytes, as gpunvme_deallocate()
 * @offset:  where in the buffer; each lane has its own, until the call returns
 * @lba:     first block, counted from the window
 * @nblocks: blocks, any number
 *
 * Return: the first failure, in the order of the members; -GPUNVME_EOPNOTSUPP, and nothing is deallocated, when one of them cannot;
 * else as gpunvme_deallocate().
 */
GPUNVME_FN int gpunvme_volume_deallocate(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset,
					 uint64_t lba, uint32_t nblocks)
{
	int ret = gnvd_check_window_of(v, lba, nblocks, 1), err;
	struct gnvd_part p;

	for (p.m = 0; p.m < v->members && !ret; p.m++)
		ret = gnvd_member_dq(v, p.m, 0)->deallocate ? 0 : -GPUNVME_EOPNOTSUPP;
	if (ret)
		return ret;
	for (p.m = 0; p.m < v->members; p.m++) {
		if (!gnvd_member_range(v, lba + v->lba_first, nblocks, &p))
			continue;
		err = gpunvme_deallocate(gnvd_member_dq(v, p.m, gnvd_wave_number()), gnvd_member_dbuf(buf, p.m), offset, p.begin,
					 (uint32_t)(p.end - p.begin));
		ret = ret ? ret : err;
	}
	return ret;
}

/**
 * gpunvme_volume_flush() - make completed writes durable on every member, and wait
 * @v: the volume
 * Return: the first failure; see the head of device.h.
 */
GPUNVME_FN int gpunvme_volume_flush(const struct gpunvme_dvol *v)
{
	int ret = gnvd_check_volume(v), err;
	uint32_t m;

	if (ret)
		return ret;
	for (m = 0; m < v->members; m++) {
		err = gpunvme_flush(gnvd_member_dq(v, m, gnvd_wave_number()));
		ret = ret ? ret : err;
	}
	return ret;
}

#endif
