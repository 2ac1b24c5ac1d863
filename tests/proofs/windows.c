/* SPDX-License-Identifier: MIT */
/*
 * What a call may touch, and how it is cut into commands: any view and buffer (all 64 bits of each number), blocks of 512 bytes to
 * 64 KiB, pages of 4 KiB to 128 MiB, any boundary that is a power of two.
 */
#include "proofs.h"

#include <gpunvme/device.h>

#include "util/checked.h"

/* A view as gpunvme_queue_view() makes them. */
static struct gpunvme_dq any_view(void)
{
	struct gpunvme_dq dq;

	TAKE(dq.lba_shift >= 9 && dq.lba_shift <= 16 && dq.page_shift >= 12 && dq.page_shift <= 27);
	TAKE(dq.lba_first <= ~0ull - dq.lba_count);
	TAKE(dq.max_blocks && dq.max_blocks <= 65536 && dq.atomic <= dq.max_blocks);
	TAKE(!dq.boundary || !((0 - dq.boundary) & (0 - dq.boundary - 1)));
	return dq;
}

/* The one question of every range, on the host and on the lanes: what addition without an end would say. */
void prove_within(void)
{
	uint64_t pos = nondet_64(), len = nondet_64(), limit = nondet_64();
	const _Bool is = (__uint128_t)pos + len <= limit;

	PROVE(gnv_within(pos, len, limit) == is);
	PROVE(GNVD_WITHIN(pos, len, limit) == is);
}

/* What is let through lies in the window and in the buffer, and nothing that does is refused. */
void prove_checks(void)
{
	const struct gpunvme_dq dq = any_view();
	struct gpunvme_dbuf dbuf;
	uint64_t lba = nondet_64(), offset = nondet_64(), bytes;
	uint64_t nblocks = nondet_64(), pos = nondet_64(), len = nondet_64(), mask = (1ull << dq.lba_shift) - 1;
	int write = nondet_bit();
	__uint128_t end = (__uint128_t)lba + nblocks;

	TAKE(dq.head.version == GPUNVME_HEAD_VERSION && dq.head.kind == GPUNVME_KIND_QUEUE);
	PROVE(!gnvd_check_window(&dq, lba, nblocks, write) ==
	      (nblocks && end <= dq.lba_count && (!write || dq.flags & GPUNVME_DQ_WRITE)));
	end = (__uint128_t)pos + len;
	PROVE(!gnvd_check_span(&dq, pos, len, write) == (len && !((pos | len) & mask) && !(len >> dq.lba_shift >> 32) &&
	      end <= (__uint128_t)dq.lba_count << dq.lba_shift && (!write || dq.flags & GPUNVME_DQ_WRITE)));
	bytes = (uint64_t)(uint32_t)nblocks << dq.lba_shift;
	end = (__uint128_t)offset + bytes;
	PROVE(!gnvd_check_buffer(&dq, &dbuf, offset, (uint32_t)nblocks) == (end <= dbuf.len && !((dbuf.iova + offset) & 3)));
}

/* The same of volumes and files. */
void prove_checks_of_others(void)
{
	const struct gpunvme_dq dq = any_view();
	struct gpunvme_dvol vol;
	struct gpunvme_dfile file;
	struct gpunvme_dbuf dbuf;
	uint64_t at = nondet_64(), len = nondet_64(), offset = nondet_64(), mask = (1ull << dq.lba_shift) - 1;
	int write = nondet_bit();
	__uint128_t end = (__uint128_t)at + len;

	TAKE(vol.head.version == GPUNVME_HEAD_VERSION && vol.head.kind == GPUNVME_KIND_VOLUME);
	PROVE(!gnvd_check_window_of(&vol, at, len, write) ==
	      (len && end <= vol.lba_count && (!write || vol.flags & GPUNVME_DQ_WRITE)));
	TAKE(dq.head.version == GPUNVME_HEAD_VERSION && dq.head.kind == GPUNVME_KIND_QUEUE);
	TAKE(file.head.version == GPUNVME_HEAD_VERSION && file.head.kind == GPUNVME_KIND_FILE && !file.device);
	TAKE(file.nsid == dq.nsid && file.lba_shift == dq.lba_shift && file.flags & dq.flags & GPUNVME_DQ_WRITE);
	PROVE(!gnvd_check_file(&dq, &file, &dbuf, offset, len) == ((__uint128_t)offset + len <= dbuf.len));
	PROVE(!gnvd_check_file_write(&dq, &file, 0, at, len) == (len && !((at | len) & mask) && end <= file.bytes));
}

/* The command of a part: blocks of the window, and so many as 16 bits of NLB can say. */
void prove_part(void)
{
	const struct gpunvme_dq dq = any_view();
	struct gpunvme_dbuf dbuf;
	struct gnvd_left l = { nondet_64(), nondet_64(), nondet_32(), 0 };
	struct gnvd_cmd c;
	const uint32_t op = nondet_bit() ? GPUNVME_IO_READ : nondet_bit() ? GPUNVME_IO_WRITE : GPUNVME_IO_WRITE | GPUNVME_RW_FUA;
	uint64_t blocks = 0ull - dq.boundary & 0xffffffff, first;
	uint32_t n;

	TAKE(l.nblocks && l.lba <= dq.lba_count && l.nblocks <= dq.lba_count - l.lba);
	n = gnvd_part_blocks(&dq, &dbuf, &l, op);
	PROVE(n && n <= l.nblocks && n <= dq.max_blocks && n <= 65536);
	gnvd_set_blocks(&dq, op, l.lba, n, &c);
	PROVE(c.slba >= dq.lba_first && c.slba + n <= dq.lba_first + dq.lba_count);
	PROVE((c.cdw12 & 0xffff) + 1 == n && (c.cdw12 & ~0xffffu) == (op & GPUNVME_RW_FUA));
	first = c.slba & (blocks - 1);
	if (blocks && (GNVD_OPC(op) == GPUNVME_IO_READ || dq.flags & GPUNVME_DQ_TORN))
		PROVE(first + n <= blocks);
}

/* Commands without data, and those whose range lies in a buffer. */
void prove_part_without_data(void)
{
	const struct gpunvme_dq dq = any_view();
	struct gpunvme_dbuf dbuf;
	struct gnvd_left l = { nondet_64(), nondet_64(), nondet_32(), 0 };
	uint32_t n;

	TAKE(l.nblocks && dq.flags >> GPUNVME_DQ_ZEROES_SHIFT <= 16);
	n = gnvd_part_blocks(&dq, NULL, &l, GPUNVME_IO_WRITE_ZEROES);
	PROVE(n && n <= l.nblocks && n <= 65536u >> (dq.flags >> GPUNVME_DQ_ZEROES_SHIFT));
	TAKE(dq.deallocate);
	n = gnvd_part_blocks(&dq, &dbuf, &l, GPUNVME_IO_DSM);
	PROVE(n && n <= l.nblocks && n <= dq.deallocate);
}
