/* SPDX-License-Identifier: MIT */
/*
 * Files. What the host gathers: an extent of any 64-bit numbers after any other; three of them made blocks of 512 bytes and
 * 64 KiB, in any partition. What a lane makes of it: any block below BLOCKS, in files of up to two extents as the host leaves them,
 * wherever the lane looked last; of a read from anywhere, in a file of one extent or none, the run that comes next.
 */
#include "proofs.h"

#include <stdarg.h>
#include <stdlib.h>

/* The lists have room; where one grows it gets none, so that no pointer may mean two arrays. */
static void *no_room(void *at, size_t bytes)
{
	(void)at;
	(void)bytes;
	return 0;
}
#define realloc no_room

#include "file/extents.c"

#include <gpunvme/device.h>

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

static struct gnv_run run[EXTENTS];
static struct gpunvme_dextent extent[EXTENTS];

static struct gnv_runs any_runs(uint32_t count)
{
	struct gnv_run any[EXTENTS];

	for (uint32_t i = 0; i < EXTENTS; i++)
		run[i] = any[i];
	return (struct gnv_runs){ run, count, EXTENTS };
}

/*
 * Of a list: sorted, without empty ones, none touching the one before both in the file and on the drive, none around the end of
 * numbers. The arguments whose names begin with b are of the one before; blen is 0 where there is none.
 */
static _Bool is_next(uint64_t bpos, uint64_t bat, uint64_t blen, uint64_t pos, uint64_t at, uint64_t len, uint64_t most)
{
	if (!len || len > most || pos > most - len || at > most - len)
		return 0;
	return !blen || !(pos < bpos + blen || (pos == bpos + blen && at == bat + blen));
}

static _Bool is_good(const struct gnv_runs *runs)
{
	const struct gnv_run none = { 0, 0, 0 };

	for (uint32_t i = 0; i < runs->count; i++) {
		const struct gnv_run *e = &runs->run[i], *b = i ? e - 1 : &none;

		if (!is_next(b->pos, b->at, b->len, e->pos, e->at, e->len, ~0ull))
			return 0;
	}
	return 1;
}

/* What is let in leaves a good list good, and every byte where it was. */
void prove_add(void)
{
	struct gnv_extents file;
	uint64_t pos = nondet_64(), at = nondet_64(), len = nondet_64(), byte = nondet_64();
	const struct gnv_run *last;
	uint32_t before = EXTENTS - 1;

	file.gathered = any_runs(before);
	TAKE(is_good(&file.gathered));
	if (gnv_extents_add(&file, pos, at, len))
		return;
	PROVE(is_good(&file.gathered) && (file.gathered.count == before || file.gathered.count == before + 1));
	last = &file.gathered.run[file.gathered.count - 1];
	TAKE(byte >= pos && byte - pos < len);
	PROVE(byte >= last->pos && byte - last->pos < last->len && byte - last->pos + last->at == byte - pos + at);
}

/* Then in blocks: all of them in the partition, none after the end of the file, and each where its bytes were. */
void prove_seal(void)
{
	struct gnv_extents file;
	struct gnv_reader r;
	const uint32_t shift = LBA_SHIFT;
	uint32_t i = nondet_32(), count = nondet_32();
	uint64_t end;

	TAKE(count <= EXTENTS);
	file.gathered = any_runs(count);
	file.extent = extent;
	file.room = EXTENTS;
	TAKE(is_good(&file.gathered));
	r.ns.info.lba_size = 1u << shift;
	TAKE(r.first <= ~0ull - r.bytes);
	end = file.info.bytes;
	if (gnv_extents_seal(&file, &r))
		return;
	TAKE(i < file.extents);
	PROVE(extent[i].pos << shift == run[i].pos && extent[i].lba << shift == run[i].at + r.first);
	PROVE(extent[i].nblocks && extent[i].nblocks << shift <= run[i].len);
	PROVE(run[i].at + run[i].len <= r.bytes);
	PROVE((extent[i].pos + extent[i].nblocks - 1) << shift < end);
}

/* A table of a file as a lane sees it; blocks below BLOCKS. */
static struct gpunvme_dfile any_file(void)
{
	const struct gpunvme_dextent none = { 0, 0, 0 };
	struct gpunvme_dextent any[EXTENTS];
	struct gpunvme_dfile seen;

	TAKE(seen.extents <= EXTENTS);
	for (uint32_t i = 0; i < EXTENTS; i++)
		extent[i] = any[i];
	for (uint32_t i = 0; i < seen.extents; i++) {
		const struct gpunvme_dextent *e = &extent[i], *b = i ? e - 1 : &none;

		TAKE(is_next(b->pos, b->lba, b->nblocks, e->pos, e->lba, e->nblocks, BLOCKS));
	}
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
	inside = block + ahead >= extent[i].pos && block + ahead - extent[i].pos < extent[i].nblocks;
	PROVE(!inside || !run.hole);
	PROVE(!inside || run.lba + ahead == extent[i].lba + (block + ahead - extent[i].pos));
	PROVE(run.hole || (block >= extent[last].pos && block + ahead - extent[last].pos < extent[last].nblocks));
}

/* What comes next of a read: blocks of one kind, at least one, none after what is left but the rest of the last block. */
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
