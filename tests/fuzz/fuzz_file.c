/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: a file's descriptor and table of extents whose contents are not what the host wrote there, in the hands of one CPU thread.
 *
 * Input: the queue (lane.h); a byte, extents in its upper half and pieces in its lower; the pieces, 9 bytes each, spoil struct
 * gpunvme_dfile; an extent is 4 bytes, how many blocks after the one before, how many blocks, where, or, with bit 7 of the first,
 * 24 more, which are it; then calls of 16 bytes. Where the table lies and how many entries it has is left true. Properties: every
 * call ends, with a result that is documented; nothing outside the memory that the descriptors name is touched; each command is one
 * of the call's kind, for blocks that an extent has and the queue's window, to where the call's bytes or its bounce area lie, and
 * the blocks are those of the file there; success has moved all bytes, and nothing claims more than was asked for.
 */
#include "lane.h"

#include <stdlib.h>
#include <string.h>

#define CALL 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct gpunvme_dfile file;
static struct gpunvme_dextent *table;
static bool in_order; /* as a host makes it */

static struct {
	struct gpunvme_cursor cur;
	uint64_t offset, pos, len;
	uint32_t flags;
	uint8_t op;
} now;

/* ---- Commands ---- */

/* Are those blocks of the disk what the file has from there on? Where the table is in no order, it is enough that some extent has them. */
static bool has(uint64_t pos, uint64_t lba, uint64_t n)
{
	const uint64_t block = pos >> w.dq.lba_shift;

	for (const struct gpunvme_dextent *e = table; e < table + file.extents; e++)
		if (lba - e->lba < e->nblocks && n <= e->nblocks - (lba - e->lba) && (!in_order || block - e->pos == lba - e->lba))
			return true;
	return false;
}

void check_command(const struct gpunvme_sqe *cmd)
{
	const uint64_t lba = cmd->cdw10 | (uint64_t)cmd->cdw11 << 32, n = (cmd->cdw12 & 0xffff) + 1, len = n << w.dq.lba_shift;
	const uint64_t at = cmd->prp1 - w.buf.iova, skip = at - now.offset;

	check(!(cmd->cdw12 & GPUNVME_RW_FUA) == !(now.flags & GPUNVME_FUA));
	check(cmd->opc == now.op && (now.op == GPUNVME_IO_READ || w.dq.flags & file.flags & GPUNVME_DQ_WRITE));
	check(lba - w.dq.lba_first < w.dq.lba_count && n <= w.dq.lba_count - (lba - w.dq.lba_first));
	check(n <= w.dq.max_blocks || n == 1);
	check_data(cmd, cmd->prp1, len);
	check((skip < now.len && len <= now.len - skip && has(now.pos + skip, lba, n)) ||
	      (n == 1 && at == now.cur.bounce && has(now.pos + now.cur.done, lba, n)));
}

/* ---- The file ---- */

static const uint8_t *make_extents(const uint8_t *at, const uint8_t *end, unsigned count)
{
	uint64_t pos = 0;

	for (unsigned i = 0; i < count; i++) {
		struct gpunvme_dextent *e = &table[i];

		if (end - at < 4 || (at[0] & 0x80 && end - at < 28)) {
			*e = (struct gpunvme_dextent){ pos + i + 1, w.dq.lba_first + 64 * i, 1 };
			continue;
		}
		*e = (struct gpunvme_dextent){ pos + (at[0] & 0x7f), w.dq.lba_first + (at[2] | at[3] << 8), 1u + at[1] };
		pos = e->pos + e->nblocks;
		if (at[0] & 0x80) {
			memcpy(e, at + 4, sizeof(*e));
			in_order = false;
			at += sizeof(*e);
		}
		at += 4;
	}
	file.bytes = pos << (w.dq.lba_shift & 31);
	return at;
}

static const uint8_t *make_file(const uint8_t *at, const uint8_t *end)
{
	const unsigned count = at < end ? at[0] >> 4 : 0, pieces = at < end ? at[0] & 15 : 0;

	file = (struct gpunvme_dfile){ .head = GPUNVME_HEAD(GPUNVME_KIND_FILE, file),
				       .flags = GPUNVME_DQ_WRITE, .nsid = w.dq.nsid, .lba_shift = w.dq.lba_shift };
	table = malloc(count * sizeof(*table));
	check(table || !count);
	in_order = true;
	at = make_extents(at + (at < end), end, count);
	at = spoil_words(&file, sizeof(file), at, end, pieces);
	file.extents = count;
	file.table = (uintptr_t)table;
	return at;
}

/* ---- The calls ---- */

enum { READ, WRITE, WAVE_READ, WAVE_WRITE, ONE_READ, ONE_WRITE, SUBMIT_READ, SUBMIT_WRITE, KINDS };

static int run(unsigned kind, struct gpunvme_req *req)
{
	switch (kind) {
	case READ:
		return gpunvme_read(&now.cur, &w.buf, now.offset, now.pos, now.len);
	case WRITE:
		return gpunvme_write(&now.cur, &w.buf, now.offset, now.pos, now.len, now.flags);
	case WAVE_READ:
		return gpunvme_wave_read(&now.cur, &w.buf, now.offset, now.pos, now.len);
	case WAVE_WRITE:
		return gpunvme_wave_write(&now.cur, &w.buf, now.offset, now.pos, now.len, now.flags);
	case ONE_READ:
		return gpunvme_wave_read_one(&now.cur, &w.buf, now.offset, now.pos, now.len);
	case ONE_WRITE:
		return gpunvme_wave_write_one(&now.cur, &w.buf, now.offset, now.pos, now.len, now.flags);
	case SUBMIT_READ:
		return gpunvme_submit_read(&now.cur, &w.buf, now.offset, now.pos, now.len, req);
	default:
		return gpunvme_submit_write(&now.cur, &w.buf, now.offset, now.pos, now.len, now.flags, req);
	}
}

static void check_result(unsigned kind, int ret)
{
	const bool idle = now.len == GPUNVME_NO_TRANSFER && (kind == WAVE_READ || kind == WAVE_WRITE);
	const uint64_t left = now.pos < file.bytes && !idle ? file.bytes - now.pos : 0, all = now.len < left ? now.len : left;

	check_error(ret);
	if (now.flags & ~GPUNVME_FUA)
		check(ret == -GPUNVME_EINVAL && !w.commands);
	else if (idle)
		check(!ret && !w.commands);
	check(now.cur.done <= all);
	if (ret == -GPUNVME_EROFS || ret == -GPUNVME_EXDEV || ret == -GPUNVME_EPROTONOSUPPORT)
		check(!w.commands && !now.cur.done);
	if (!ret && kind < SUBMIT_READ)
		check(now.cur.done == all);
	if (!ret && kind >= SUBMIT_READ)
		check(w.commands <= 1 && !now.cur.done == !all);
}

/* Return: false when a command may still come. */
static bool call(const uint8_t *at)
{
	const unsigned kind = at[0] % KINDS;
	struct gpunvme_req req = { 0, 0, 0, 0 };
	bool more;
	int ret;

	now.op = kind & 1 ? GPUNVME_IO_WRITE : GPUNVME_IO_READ;
	now.cur = (struct gpunvme_cursor){ &w.dq, &file, .bounce = at[1] | at[2] << 8 | (at[3] & 3u) << 16,
					   .extent = at[12] | (uint32_t)at[13] << 24 };
	now.flags = !(kind & 1) ? 0 : at[14] & 8 ? GPUNVME_FUA : at[14] >> 7;
	now.offset = at[4] | at[5] << 8 | (at[6] & 3u) << 16;
	now.pos = at[7] | at[8] << 8 | at[9] << 16 | (at[14] & 1 ? (uint64_t)at[15] << 56 : 0);
	now.len = (at[10] | at[11] << 8) + (at[14] & 2 ? (uint64_t)at[15] << 56 : 0);
	if (at[14] & 4) { /* whole blocks */
		now.offset &= ~(uint64_t)3;
		now.pos = now.pos >> 8 << (w.dq.lba_shift & 31);
		now.len = (now.len & 15) << (w.dq.lba_shift & 31);
	}
	if (at[14] >> 4 == 7)
		now.len = GPUNVME_NO_TRANSFER;
	begin_call();
	ret = run(kind, &req);
	check_result(kind, ret);
	if (kind >= SUBMIT_READ && !ret && req.tag)
		check_error(gpunvme_wait(&w.dq, &req, 0));
	more = end_call();
	if (now.offset < w.buf.len) /* zeroes of holes, and what came by the bounce area: which here are zeroes, too */
		memset(bytes + now.offset, 0, now.len < w.buf.len - now.offset ? now.len : w.buf.len - now.offset);
	return more;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *at, *end = data + size;

	if (size < QUEUE_BYTES || size > 1024)
		return 0;
	at = make_file(begin_queue(data, end), end);
	for (unsigned i = 0; i < 8 && end - at >= CALL && call(at); i++)
		at += CALL;
	free(table);
	end_queue();
	return 0;
}
