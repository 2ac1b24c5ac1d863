/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: a descriptor and a buffer whose contents are not what the host wrote there, in the hands of one CPU thread.
 *
 * Input: the queue (lane.h), then calls of 16 bytes.
 * Properties: every call ends, with a result that is documented; nothing outside the memory that the descriptor names is touched; no
 * command has blocks, opcodes or namespaces that the call did not ask for, or more bytes; what was refused has sent nothing; success
 * has sent everything.
 */
#include "lane.h"

#include <string.h>

#define PARTS 12u	/* commands of one call, about */
#define MANY_PARTS 300u /* of few calls: more than places in a ring */
#define RANGE sizeof(struct gpunvme_dsm_range)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The call that is made now, and how many of its blocks were sent. */
static struct call {
	uint8_t op;
	uint64_t pos, len, offset, any;
	uint32_t flags;
} now;
static uint64_t sent;

void check_command(const struct gpunvme_sqe *cmd)
{
	const uint64_t slba = cmd->cdw10 | (uint64_t)cmd->cdw11 << 32, n = (cmd->cdw12 & 0xffff) + 1;

	check(cmd->opc == now.op);
	if (cmd->opc == GPUNVME_IO_FLUSH)
		return;
	if (cmd->opc == GPUNVME_IO_DSM) {
		struct gpunvme_dsm_range range;

		memcpy(&range, bytes + now.offset, sizeof(range)); /* which begins at a multiple of 4 */
		check(range.nlb && range.slba == w.dq.lba_first + GNVD_BLOCKS(&w.dq, now.pos) + sent && !cmd->cdw10);
		check_data(cmd, w.buf.iova + now.offset, sizeof(range));
		sent += range.nlb;
		check(sent <= GNVD_BLOCKS(&w.dq, now.len));
		return;
	}
	check(slba == w.dq.lba_first + GNVD_BLOCKS(&w.dq, now.pos) + sent);
	if (cmd->opc != GPUNVME_IO_WRITE_ZEROES) {
		check(n <= w.dq.max_blocks || n == 1);
		check_data(cmd, w.buf.iova + now.offset + (sent << w.dq.lba_shift), n << w.dq.lba_shift);
	}
	sent += n;
	check(sent <= GNVD_BLOCKS(&w.dq, now.len));
}

/* ---- The calls ---- */

enum { READ, WRITE, FUA, FLUSH, ZEROES, DEALLOCATE, WAVE, ONE, ASYNC = 8, CALLS = 16 };

static int submit(unsigned kind, const struct call *c, struct gpunvme_req *req)
{
	switch (kind) {
	case READ:
		return gpunvme_submit_read(&w.dq, &w.buf, c->offset, c->pos, c->len, req);
	case WRITE:
		return gpunvme_submit_write(&w.dq, &w.buf, c->offset, c->pos, c->len, 0, req);
	case FUA:
		return gpunvme_submit_write(&w.dq, &w.buf, c->offset, c->pos, c->len, GPUNVME_FUA, req);
	case FLUSH:
		return gpunvme_submit_flush(&w.dq, req);
	case ZEROES:
		return gpunvme_submit_zero(&w.dq, c->pos, c->len, req);
	default:
		return gpunvme_submit_discard(&w.dq, &w.buf, c->offset, c->pos, c->len, req);
	}
}

static int run(unsigned kind, const struct call *c)
{
	switch (kind) {
	case READ:
		return gpunvme_read(&w.dq, &w.buf, c->offset, c->pos, c->len);
	case WRITE:
		return gpunvme_write(&w.dq, &w.buf, c->offset, c->pos, c->len, 0);
	case FUA:
		return gpunvme_write(&w.dq, &w.buf, c->offset, c->pos, c->len, GPUNVME_FUA);
	case FLUSH:
		return gpunvme_flush(&w.dq);
	case ZEROES:
		return gpunvme_zero(&w.dq, c->pos, c->len);
	case DEALLOCATE:
		return gpunvme_discard(&w.dq, &w.buf, c->offset, c->pos, c->len);
	case WAVE:
		return gpunvme_wave_read(&w.dq, &w.buf, c->offset, c->pos, c->len);
	default:
		return gpunvme_wave_write_one(&w.dq, &w.buf, c->offset, c->pos, c->len, c->flags);
	}
}

/* Submitted: then waited for, polled for, or detached, and once more by a handle that is spent. */
static int run_later(unsigned kind, const struct call *c)
{
	struct gpunvme_req req = { 0, 0, 0, 0 };
	int ret = submit(kind, c, &req), end;
	uint32_t index = 0;

	if (ret)
		return ret;
	if (c->offset & 4) {
		end = gpunvme_detach(&w.dq, &req);
		check(!end || end == -GPUNVME_ESTALE);
	} else if (c->any & 1) {
		ret = gpunvme_wait_any(&w.dq, &req, 1, c->any >> 1 & 0xffffff, &index);
	} else {
		ret = gpunvme_wait(&w.dq, &req, 0);
	}
	if (!req.tag && w.dq.tag)
		check(gpunvme_poll(&w.dq, &req) == -GPUNVME_ESTALE);
	return c->offset & 4 ? 1 : ret; /* of a detached one nobody knows */
}

static void check_result(int ret, const struct call *c)
{
	check_error(ret);
	if (!ret && c->op != GPUNVME_IO_FLUSH)
		check(sent == GNVD_BLOCKS(&w.dq, c->len) && !(c->flags & ~GPUNVME_FUA));
	if (ret == -GPUNVME_EINVAL || ret == -GPUNVME_EROFS || ret == -GPUNVME_ERANGE || ret == -GPUNVME_EPROTONOSUPPORT ||
	    ret == -GPUNVME_EOPNOTSUPP || ret == -GPUNVME_EMSGSIZE)
		check(!w.commands);
	if (w.commands && c->op != GPUNVME_IO_READ && c->op != GPUNVME_IO_FLUSH)
		check(w.dq.flags & GPUNVME_DQ_WRITE);
}

/* So many blocks that the commands are not many more than PARTS: a thousand find no more than a hundred, and take ten times as long. */
static uint32_t some_blocks(uint32_t nblocks, uint8_t op, bool many)
{
	uint32_t most = op == GPUNVME_IO_DSM ? w.dq.deallocate : op == GPUNVME_IO_WRITE_ZEROES ? gnvd_most_zeroes(&w.dq) : w.dq.max_blocks;

	if (w.dq.boundary && 1u << __builtin_ctz(w.dq.boundary) < most)
		most = 1u << __builtin_ctz(w.dq.boundary);
	most = most < 256 ? most : 256;
	return nblocks % ((most ? most : 1) * (many ? MANY_PARTS : PARTS) + 1);
}

/* Return: false when a command may still come. */
static bool call(const uint8_t *at)
{
	static const uint8_t op[] = { GPUNVME_IO_READ, GPUNVME_IO_WRITE,  GPUNVME_IO_WRITE, GPUNVME_IO_FLUSH, GPUNVME_IO_WRITE_ZEROES,
				      GPUNVME_IO_DSM,  GPUNVME_IO_READ, GPUNVME_IO_WRITE };
	const unsigned kind = at[0] % CALLS < ASYNC + WAVE ? at[0] % CALLS : ASYNC;
	bool more;
	int ret;

	now = (struct call){ .op = op[kind % ASYNC] };
	now.len = (uint64_t)some_blocks(at[1] | at[2] << 8, now.op, at[14] >> 2 == 63) << (w.dq.lba_shift & 63);
	if (at[14] >> 2 == 62) /* no whole blocks, or, of what a buffer bounds, more bytes than there are */
		now.len += (uint64_t)at[15] << (now.op == GPUNVME_IO_READ || now.op == GPUNVME_IO_WRITE ? at[1] & 56 : 0);
	memcpy(&now.any, at + 3, 8);
	now.pos = now.any;
	if (kind == ONE)
		now.flags = at[15] & 1 ? GPUNVME_FUA : at[15] >> 1 & 1;
	now.offset = at[11] | at[12] << 8 | at[13] << 16;
	if (at[14] & 1)
		now.pos = now.any % (w.dq.lba_count ? w.dq.lba_count : 1) << (w.dq.lba_shift & 63);
	if (at[14] & 2) /* and a wild one */
		now.offset ^= (uint64_t)at[15] << 56;
	begin_call();
	sent = 0;
	ret = kind < ASYNC ? run(kind, &now) : run_later(kind % ASYNC, &now);
	check_result(ret, &now);
	more = end_call();
	if (now.op == GPUNVME_IO_DSM && w.buf.len >= RANGE && now.offset <= w.buf.len - RANGE)
		memset(bytes + now.offset, 0, RANGE);
	return more;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *at, *end = data + size;

	if (size < QUEUE_BYTES || size > 1024)
		return 0;
	at = begin_queue(data, end);
	for (unsigned i = 0; i < 8 && end - at >= 16 && call(at); i++)
		at += 16;
	end_queue();
	return 0;
}
