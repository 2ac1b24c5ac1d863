/* SPDX-License-Identifier: MIT */
/*
 * Files. What the host gathers: an extent of any 64-bit numbers behind any other; three of them made blocks of 512 bytes and
 * 64 KiB, in any partition. What a lane makes of it: any block below BLOCKS, in files of up to two extents as the host leaves them,
 * wherever the lane looked last; of a read from anywhere, in a file of one extent or none, the run that comes next.
 */
#include "proofs.h"

#include <stdarg.h>

#include "file/file.c"

#include <gpunvme/device_file.h>

#ifndef EXTENTS
#define EXTENTS 3u
#endif
#define BLOCKS (1ull << 12)
#ifndef LBA_SHIFT
#define LBA_SHIFT 9
#endif

/* What file.c calls and these proofs do not reach, or do not look at. */
int gnv_fail(int ret, const char *format, ...)
{
	(void)format;
	return ret;
}

static struct gnv_extent extent[EXTENTS];

static void any_extents(void)
{
	struct gnv_extent any[EXTENTS];

	for (uint32_t i = 0; i < EXTENTS; i++)
		extent[i] = any[i];
}

/* Sorted, without empty ones, none touching another both in the file and on the drive, none around the end of numbers. */
static _Bool is_good(const struct gpunvme_file *file, uint64_t most)
{
	for (uint32_t i = 0; i < file->extents; i++) {
		const struct gnv_extent *e = &file->extent[i];

		if (!e->len || e->len > most || e->pos > most - e->len || e->at > most - e->len)
			return 0;
		if (i && (e->pos < e[-1].pos + e[-1].len || (e->pos == e[-1].pos + e[-1].len && e->at == e[-1].at + e[-1].len)))
			return 0;
	}
	return 1;
}

/* What is let in leaves a good list good, and every byte where it was. */
void prove_add(void)
{
	struct gpunvme_file file;
	uint64_t pos = nondet_64(), at = nondet_64(), len = nondet_64(), byte = nondet_64();
	const struct gnv_extent *last;
	uint32_t before;

	any_extents();
	file.extent = extent;
	file.room = EXTENTS;
	before = file.extents = EXTENTS - 1;
	TAKE(is_good(&file, ~0ull));
	if (gnv_file_add(&file, pos, at, len))
		return;
	PROVE(is_good(&file, ~0ull) && (file.extents == before || file.extents == before + 1));
	last = &file.extent[file.extents - 1];
	TAKE(byte >= pos && byte - pos < len);
	PROVE(byte >= last->pos && byte - last->pos < last->len && byte - last->pos + last->at == byte - pos + at);
}

/* Then in blocks: all of them in the partition, none behind the end of the file, and each where its bytes were. */
void prove_seal(void)
{
	struct gpunvme_file file;
	struct gnv_reader r;
	struct gnv_extent before[EXTENTS];
	const uint32_t shift = LBA_SHIFT;
	uint32_t i = nondet_32();
	uint64_t end;

	any_extents();
	file.extent = extent;
	TAKE(file.extents <= EXTENTS && is_good(&file, ~0ull));
	for (uint32_t n = 0; n < EXTENTS; n++)
		before[n] = extent[n];
	r.ns.lba_size = 1u << shift;
	TAKE(r.first <= ~0ull - r.bytes);
	end = file.info.bytes;
	if (gnv_file_seal(&file, &r))
		return;
	TAKE(i < file.extents);
	PROVE(extent[i].pos << shift == before[i].pos && extent[i].at << shift == before[i].at + r.first);
	PROVE(extent[i].len && extent[i].len << shift <= before[i].len);
	PROVE(before[i].at + before[i].len <= r.bytes);
	PROVE((extent[i].pos + extent[i].len - 1) << shift < end);
}

/* A table of a file as a lane sees it; blocks below BLOCKS. */
static struct gpunvme_dfile any_file(void)
{
	struct gpunvme_file file;
	struct gpunvme_dfile seen;

	any_extents();
	file.extent = extent;
	TAKE(seen.extents <= EXTENTS);
	file.extents = seen.extents;
	TAKE(is_good(&file, BLOCKS));
	seen.table = (uint64_t)(uintptr_t)extent;
	return seen;
}

/* The run begins with the block that was asked for, is of one kind, and ends where the extent or the hole does. */
void prove_find(void)
{
	const struct gpunvme_dfile file = any_file();
	struct gnvd_run_of_file run;
	uint64_t block = nondet_64(), ahead = nondet_64();
	uint32_t last = nondet_32(), i = nondet_32();
	_Bool inside;

	TAKE(block < BLOCKS);
	gnvd_find_extent(&file, block, &last, &run);
	PROVE(run.nblocks && (last < file.extents || !last));
	TAKE(i < file.extents && ahead < run.nblocks && ahead < BLOCKS);
	inside = block + ahead >= extent[i].pos && block + ahead - extent[i].pos < extent[i].len;
	PROVE(!inside || !run.hole);
	PROVE(!inside || run.lba + ahead == extent[i].at + (block + ahead - extent[i].pos));
	PROVE(run.hole || (block >= extent[last].pos && block + ahead - extent[last].pos < extent[last].len));
}

/* What comes next of a read: blocks of one kind, at least one, none behind what is left but the rest of the last block. */
void prove_run(void)
{
	struct gpunvme_dfile file = any_file();
	struct gnvd_run_of_file run, whole;
	struct gpunvme_dq dq;
	uint64_t pos = nondet_64(), left = nondet_64(), mask;
	uint32_t last = nondet_32(), again;
	int bounce;

	TAKE(dq.lba_shift >= 9 && dq.lba_shift <= 16);
	mask = (1ull << dq.lba_shift) - 1;
	TAKE(left && pos < BLOCKS << 9 && left < BLOCKS << 9);
	bounce = (pos & mask) || left <= mask || nondet_bit();
	again = last;
	gnvd_find_extent(&file, pos >> dq.lba_shift, &again, &whole);
	gnvd_next_run(&dq, &file, &last, pos, left, bounce, &run);
	PROVE(run.hole == whole.hole && run.lba == whole.lba && run.nblocks && run.nblocks <= whole.nblocks && run.nblocks <= 1u << 30);
	PROVE(!bounce || run.hole || run.nblocks == 1);
	PROVE((run.nblocks << dq.lba_shift) - (pos & mask) <= left + mask);
	PROVE(bounce || run.hole || run.nblocks << dq.lba_shift <= left);
}
