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

/* ---- What a workgroup needs from a processor ---- */

/*
 *   gnvd_block_lane, gnvd_block_lanes   number of this lane in its workgroup, of any dimensions, and how many there are
 *   gnvd_block_number                   of the workgroup
 *   gnvd_wave_lanes                     lanes of a whole wave
 *   gnvd_block_sync                     all lanes of the workgroup: what each did before, each sees behind it
 *   gnvd_block_min                      the smallest of the lanes' values, for all of them; *came: how many took part
 */
#if defined(GNVD_CPU)

/* CPU lanes: a wave is a workgroup. */
GNVD_FN uint32_t gnvd_block_lane(void)
{
	return gnvd_cpu_self && gnvd_cpu_self->wave ? gnvd_cpu_self->index : 0;
}

GNVD_FN uint32_t gnvd_block_lanes(void)
{
	return gnvd_cpu_self && gnvd_cpu_self->wave ? gnvd_cpu_self->wave->lanes : 1;
}

GNVD_FN uint32_t gnvd_block_number(void)
{
	return !gnvd_cpu_self ? 0 : gnvd_cpu_self->wave ? gnvd_cpu_self->wave->number : gnvd_cpu_self->lane;
}

GNVD_FN uint32_t gnvd_wave_lanes(void)
{
	return gnvd_block_lanes();
}

GNVD_FN uint64_t gnvd_block_min(const struct gpunvme_dq *dq, uint64_t v, uint32_t *came)
{
	struct gnvd_wave w;
	uint64_t m, least = v, other;

	gnvd_enter(&w, dq, GNVD_SITE_BLOCK);
	for (m = w.mask; m; m &= m - 1) {
		other = gnvd_shfl64(&w, v, gnvd_lowest(m));
		least = other < least ? other : least;
	}
	*came = w.count;
	gnvd_leave(&w);
	return least;
}

GNVD_FN void gnvd_block_sync(const struct gpunvme_dq *dq)
{
	uint32_t came;

	gnvd_block_min(dq, 0, &came);
}

#else

#if defined(GNVD_CUDA)

GNVD_FN uint32_t gnvd_block_lane(void)
{
	uint32_t x, y, z, nx, ny;

	__asm__("mov.u32 %0, %%tid.x;" : "=r"(x));
	__asm__("mov.u32 %0, %%tid.y;" : "=r"(y));
	__asm__("mov.u32 %0, %%tid.z;" : "=r"(z));
	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(nx));
	__asm__("mov.u32 %0, %%ntid.y;" : "=r"(ny));
	return x + nx * (y + ny * z);
}

GNVD_FN uint32_t gnvd_block_lanes(void)
{
	uint32_t x, y, z;

	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(x));
	__asm__("mov.u32 %0, %%ntid.y;" : "=r"(y));
	__asm__("mov.u32 %0, %%ntid.z;" : "=r"(z));
	return x * y * z;
}

GNVD_FN uint32_t gnvd_block_number(void)
{
	uint32_t v;

	__asm__("mov.u32 %0, %%ctaid.x;" : "=r"(v));
	return v;
}

GNVD_FN uint32_t gnvd_wave_lanes(void)
{
	return 32;
}

GNVD_FN void gnvd_block_sync(const struct gpunvme_dq *dq)
{
	(void)dq;
	__asm__ volatile("bar.sync 0;" ::: "memory");
}

#else

GNVD_FN uint32_t gnvd_block_lane(void)
{
	return __builtin_amdgcn_workitem_id_x() +
	       __builtin_amdgcn_workgroup_size_x() *
		       (__builtin_amdgcn_workitem_id_y() + __builtin_amdgcn_workgroup_size_y() * __builtin_amdgcn_workitem_id_z());
}

GNVD_FN uint32_t gnvd_block_lanes(void)
{
	return (uint32_t)__builtin_amdgcn_workgroup_size_x() * __builtin_amdgcn_workgroup_size_y() * __builtin_amdgcn_workgroup_size_z();
}

GNVD_FN uint32_t gnvd_block_number(void)
{
	return __builtin_amdgcn_workgroup_id_x();
}

GNVD_FN uint32_t gnvd_wave_lanes(void)
{
#if defined(GNVD_WAVE32)
	return 32;
#else
	return 64;
#endif
}

/* Agent scope: what other waves stored must have left them before one wave writes it out for all. */
GNVD_FN void gnvd_block_sync(const struct gpunvme_dq *dq)
{
	(void)dq;
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
}

#endif

/* In memory of the workgroup: the smallest value, and the number of lanes. */
#if defined(__cplusplus)
#define GNVD_SHARED static __attribute__((shared))
#else
#define GNVD_SHARED static __attribute__((address_space(3), loader_uninitialized))
#endif

GNVD_FN uint64_t gnvd_block_min(const struct gpunvme_dq *dq, uint64_t v, uint32_t *came)
{
	GNVD_SHARED uint64_t least;
	GNVD_SHARED uint32_t count;

	gnvd_block_sync(dq); /* nobody still reads the result of the call before */
	if (gnvd_block_lane() == 0) {
		least = ~0ull;
		count = 0;
	}
	gnvd_block_sync(dq);
#if defined(GNVD_CUDA)
	__asm__ volatile("red.relaxed.cta.min.u64 [%0], %1;" : : "l"(&least), "l"(v) : "memory");
	__asm__ volatile("red.relaxed.cta.add.u32 [%0], 1;" : : "l"(&count) : "memory");
#else
	__atomic_fetch_min(&least, v, __ATOMIC_RELAXED);
	__atomic_fetch_add(&count, 1u, __ATOMIC_RELAXED);
#endif
	gnvd_block_sync(dq);
	*came = count;
	return least;
}

#endif

/* ---- Where a block lies ---- */

GNVD_FN int gnvd_check_volume(const struct gpunvme_dvol *v)
{
	return v->magic == GPUNVME_DVOL_MAGIC && v->major == GPUNVME_DQ_MAJOR ? 0 : -GPUNVME_EPROTONOSUPPORT;
}

GNVD_FN int gnvd_check_transfer(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
				uint64_t nblocks, int write)
{
	int ret = gnvd_check_volume(v);

	if (ret)
		return ret;
	if (!nblocks || (buf->base + offset) & 3)
		return -GPUNVME_EINVAL;
	if (write && !(v->flags & GPUNVME_DQ_WRITE))
		return -GPUNVME_EROFS;
	if (lba > v->lba_count || nblocks > v->lba_count - lba)
		return -GPUNVME_ERANGE;
	return offset <= buf->len && nblocks <= (buf->len - offset) >> v->lba_shift && !(nblocks >> 47) ? 0 : -GPUNVME_ERANGE;
}

/* An address in lane memory as a pointer, in the address space that GPUs reach without asking. */
GNVD_FN const void *gnvd_lane_memory(uint64_t at)
{
#if defined(GNVD_AMD)
	return (const void *)(__attribute__((address_space(1))) const void *)at;
#else
	return (const void *)(uintptr_t)at;
#endif
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

/* Waves of the launch, numbered so that those side by side differ. */
GNVD_FN uint32_t gnvd_wave_number(void)
{
	uint32_t width = gnvd_wave_lanes(), waves = (gnvd_block_lanes() + width - 1) / width;

	return gnvd_block_number() * waves + gnvd_same32(gnvd_block_lane() / width);
}

/* ---- One lane's transfer ---- */

/* Part by part, each within one stripe. A volume of one member is one part. */
GNVD_FN int gnvd_volume_rw(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
			   uint32_t nblocks, uint32_t opc)
{
	int ret = gnvd_check_transfer(v, buf, offset, lba, nblocks, opc == GPUNVME_IO_WRITE);
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
			       lba - ((stripe - stripe / v->members) << v->stripe_shift), n, opc, 0);
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

/* ---- A workgroup's transfer ---- */

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

/*
 * Pieces: within a stripe and within one command, small enough that every lane gets one, but no smaller than a page of 4 KiB.
 * max_blocks may be any number; the PRP lists carry 256 pages from any place of a page.
 */
GNVD_FN uint32_t gnvd_piece_shift(const struct gpunvme_dvol *v, const struct gnvd_part *p)
{
	const struct gpunvme_dq *dq = gnvd_member_dq(v, p->m, 0);
	uint32_t shift = 2u * dq->page_shift - 4u - v->lba_shift;

	shift = v->members > 1 && v->stripe_shift < shift ? v->stripe_shift : shift;
	while (shift && 1ull << shift > dq->max_blocks)
		shift--;
	while (shift + v->lba_shift > 12 && (p->end - p->begin) >> shift < p->slots)
		shift--;
	return shift;
}

/* Which of the waves serve member `m`, and which of their lanes is this? With fewer waves than members a wave serves several. */
GNVD_FN void gnvd_share_out(const struct gpunvme_dvol *v, uint32_t m, struct gnvd_part *p)
{
	uint32_t width = gnvd_wave_lanes(), lanes = gnvd_block_lanes(), waves = (lanes + width - 1) / width;
	uint32_t lane = gnvd_block_lane(), wave = lane / width, here = 1, rank = 0, last = wave;

	if (waves > v->members) {
		here = (waves - m + v->members - 1) / v->members;
		rank = wave / v->members;
		last = m + (here - 1) * v->members;
	}
	p->m = m;
	p->slot = rank * width + lane % width;
	p->slots = (here - 1) * width + (last == waves - 1 ? lanes - last * width : width);
}

/*
 * All lanes of the wave move the pieces of one member. `failed` is the first failure so far: distance from the start of the
 * transfer in bits 63:16, result in bits 15:0 (an error with bit 15).
 */
GNVD_FN uint64_t gnvd_move_part(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, const struct gnvd_part *p,
				uint32_t opc, uint64_t failed)
{
	uint64_t first = p->begin >> p->shift, last = (p->end - 1) >> p->shift, round, rounds = (last - first) / p->slots + 1;
	uint64_t mine = failed;

	for (round = 0; round < rounds; round++) {
		uint64_t piece = first + round * p->slots + p->slot, from = piece << p->shift, to = (piece + 1) << p->shift, lba;
		uint32_t turn = gnvd_wave_number() + (uint32_t)round;
		int ret = piece <= last && mine == ~0ull ? 0 : GNVD_IDLE;

		from = from < p->begin ? p->begin : from;
		to = to > p->end ? p->end : to;
		lba = from + (((from >> v->stripe_shift) * (v->members - 1) + p->m) << v->stripe_shift);
		ret = gnvd_run_at(gnvd_member_dq(v, p->m, turn), GNVD_SITE_WAVE, gnvd_member_dbuf(buf, p->m),
				  p->offset + ((lba - p->lba) << v->lba_shift), from, (uint32_t)(to - from), opc, ret);
		if (ret && ret != GNVD_IDLE)
			mine = (lba - p->lba) << 16 | (ret > 0 ? (uint64_t)ret : 0x8000u + (uint64_t)-ret);
	}
	return mine < failed ? mine : failed;
}

GNVD_FN int gnvd_block_rw(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
			  uint64_t nblocks, uint32_t opc)
{
	uint32_t width = gnvd_wave_lanes(), waves = (gnvd_block_lanes() + width - 1) / width, came, m;
	int ret = gnvd_check_transfer(v, buf, offset, lba, nblocks, opc == GPUNVME_IO_WRITE);
	const struct gpunvme_dq *any;
	uint64_t failed = ~0ull;
	struct gnvd_part p;

	if (ret) /* the same for all: they came with the same arguments */
		return ret;
	any = gnvd_member_dq(v, 0, 0);
	p.lba = lba + v->lba_first;
	p.offset = offset;
	if (opc == GPUNVME_IO_WRITE)
		gnvd_block_sync(any); /* what the others stored goes out with this lane's */
	for (m = gnvd_block_lane() / width % v->members; m < v->members; m += waves) {
		gnvd_share_out(v, m, &p);
		if (!gnvd_member_range(v, p.lba, nblocks, &p))
			continue;
		p.shift = gnvd_piece_shift(v, &p);
		failed = gnvd_move_part(v, buf, &p, opc, failed);
	}
	failed = gnvd_block_min(any, failed, &came);
	if (failed != ~0ull)
		return failed & 0x8000 ? -(int)(failed & 0x7fff) : (int)(failed & 0x7fff);
	return came == gnvd_block_lanes() ? 0 : -GPUNVME_EINVAL;
}

/**
 * gpunvme_block_read() - read a contiguous range with a whole workgroup
 * @v:       the volume
 * @buf:     the buffer; its bytes are valid for all lanes of the workgroup when the call returns 0
 * @offset:  bytes from the start of the buffer
 * @lba:     first block, counted from the window
 * @nblocks: blocks, any number
 *
 * All lanes of the workgroup (CPU lanes: of the wave) call together with the same arguments. The range is cut into pieces that
 * spread over lanes, queues and members; a lane that meets a failure stops. Uses a few bytes of workgroup memory.
 * Return: the same for all lanes. 0; the failure of the first piece, in LBA order, that failed (what lies before it was read);
 * -GPUNVME_EINVAL also when lanes of the workgroup were missing; see the head of device.h.
 */
GPUNVME_FN int gpunvme_block_read(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
				  uint64_t nblocks)
{
	return gnvd_block_rw(v, buf, offset, lba, nblocks, GPUNVME_IO_READ);
}

/**
 * gpunvme_block_write() - write a contiguous range with a whole workgroup
 * Parameters and rules as gpunvme_block_read(). What any lane of the workgroup stored before the call is written.
 */
GPUNVME_FN int gpunvme_block_write(const struct gpunvme_dvol *v, const struct gpunvme_dvbuf *buf, uint64_t offset, uint64_t lba,
				   uint64_t nblocks)
{
	return gnvd_block_rw(v, buf, offset, lba, nblocks, GPUNVME_IO_WRITE);
}

#endif
