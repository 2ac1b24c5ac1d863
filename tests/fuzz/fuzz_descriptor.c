/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: a descriptor and a buffer whose contents are not what the host wrote there, in the hands of one CPU lane.
 *
 * Input: byte 0 and 1 the depths, byte 2 the identifiers, byte 3 how the controller behaves, then pieces of 8 bytes that stand anywhere
 * in struct gpunvme_dq, before them one byte that says where, as many as byte 4 says; then the buffer, 33 bytes; then calls of 16 bytes.
 * What names memory is left true, and the shifts within what dq.h allows: with others the lane reaches what is not its own, and no
 * word tells it so. A lane's pause is a turn of the controller, or, of a slow one, its look at the clock, by which time passes.
 * Properties: every call ends, with a result that is documented; nothing outside the memory that the descriptor names is touched; no
 * command has blocks, opcodes or namespaces that the call did not ask for, or more bytes; what was refused has sent nothing; success
 * has sent everything.
 */
#define __builtin_ia32_pause pause_of_lane
static void pause_of_lane(void);
#include <gpunvme/device.h>
#include <sanitizer/asan_interface.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES (256u << 10)
#define PARTS 12u	  /* commands of one call, about */
#define MANY_PARTS 300u	  /* of few calls: more than places in a ring */
#define LOOKS 10000u	  /* at the clock, in one call; a command takes four */
#define HELD 1024u
#define RANGE sizeof(struct gpunvme_dsm_range)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_sched_yield(void);

enum manner { SILENT = 1, FAILS = 2, STOPS = 4, LIES = 8, SLOW = 16 };

/* What the call that is made now may send. */
struct call {
	uint8_t op;
	uint64_t lba, offset;
	uint32_t nblocks;
};

static struct {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf buf;
	uint32_t *sq, *cq, doorbell[2], stop;
	uint64_t fetched, completed, now;
	uint32_t idle, looks;
	uint8_t manner;
	bool on;
	struct call call;
	uint64_t sent; /* blocks of the call, and how many commands */
	uint32_t commands, held_count;
	uint16_t held[HELD];
} w;

/* Of the buffer: zero but for what a deallocation puts there, which is zero again after the call. */
static _Alignas(16) uint8_t bytes[BYTES];

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

/* ---- The controller ---- */

static void check_data(const struct gpunvme_sqe *cmd, uint64_t at, uint64_t len)
{
	const uint64_t page = 1ull << w.dq.page_shift, first = page - (at & (page - 1));

	check(cmd->prp1 == at && at - w.buf.iova + len <= w.buf.len);
	if (w.dq.flags & GPUNVME_DQ_SGL)
		check(cmd->flags == GPUNVME_PSDT_SGL && (cmd->prp2 & 0xffffffffffffffull) == len);
	else if (len <= first)
		check(!cmd->prp2);
	else if (len <= first + page)
		check(cmd->prp2 == at + first);
}

static void check_command(const struct gpunvme_sqe *cmd)
{
	const uint64_t slba = cmd->cdw10 | (uint64_t)cmd->cdw11 << 32, n = (cmd->cdw12 & 0xffff) + 1;

	w.commands++;
	check(cmd->nsid == w.dq.nsid && cmd->opc == w.call.op && (cmd->cid & ~w.dq.cid_gens) < w.dq.cids);
	if (cmd->opc == GPUNVME_IO_FLUSH)
		return;
	if (cmd->opc == GPUNVME_IO_DSM) {
		struct gpunvme_dsm_range range;

		memcpy(&range, bytes + w.call.offset, sizeof(range)); /* which begins at a multiple of 4 */
		check(range.nlb && range.slba == w.dq.lba_first + w.call.lba + w.sent && !cmd->cdw10);
		check_data(cmd, w.buf.iova + w.call.offset, sizeof(range));
		w.sent += range.nlb;
		check(w.sent <= w.call.nblocks);
		return;
	}
	check(slba == w.dq.lba_first + w.call.lba + w.sent);
	if (cmd->opc != GPUNVME_IO_WRITE_ZEROES) {
		check(n <= w.dq.max_blocks || n == 1);
		check_data(cmd, w.buf.iova + w.call.offset + (w.sent << w.dq.lba_shift), n << w.dq.lba_shift);
	}
	w.sent += n;
	check(w.sent <= w.call.nblocks);
}

static bool fetch(void)
{
	const uint32_t depth = 1u << w.dq.sq_shift;
	struct gpunvme_sqe cmd;

	check(w.doorbell[0] < depth);
	if (w.fetched % depth == w.doorbell[0] || w.held_count == HELD)
		return false;
	memcpy(&cmd, w.sq + 16 * (w.fetched % depth), sizeof(cmd));
	w.fetched++;
	check_command(&cmd);
	w.held[w.held_count++] = cmd.cid;
	return true;
}

static bool complete(void)
{
	const uint32_t depth = 1u << w.dq.cq_shift;
	uint32_t *cqe = w.cq + 4 * (w.completed % depth);

	check(w.doorbell[1] < depth);
	if (!w.held_count || w.manner & SILENT || (w.completed + 1) % depth == w.doorbell[1])
		return false;
	cqe[2] = (w.dq.qid & 0xffff) << 16 | (uint32_t)(w.fetched % (1u << w.dq.sq_shift));
	cqe[3] = (uint32_t)(w.manner & FAILS ? GPUNVME_SC_UNRECOVERED_READ : 0) << 17 | (~(uint32_t)(w.completed / depth) & 1) << 16 |
		 (uint32_t)(w.held[--w.held_count] ^ (w.manner & LIES ? 1u << (w.completed % 16) : 0));
	w.completed++;
	return true;
}

static void turn(void)
{
	bool busy = fetch();

	busy = complete() || busy;
	w.idle = busy ? 0 : w.idle + 1;
	if (w.manner & STOPS && w.idle > 64)
		w.stop = 1;
}

static void pause_of_lane(void)
{
	if (w.on && !(w.manner & SLOW))
		turn();
}

int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
	if (!w.on || id != CLOCK_MONOTONIC)
		return __real_clock_gettime(id, now);
	check(++w.looks < LOOKS);
	turn();
	w.now += 1000ull << (w.idle < 38 ? w.idle : 38);
	*now = (struct timespec){ (time_t)(w.now / 1000000000u), (long)(w.now % 1000000000u) };
	return 0;
}

/* Nothing else waits. */
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
	struct timespec now;

	(void)pause, (void)left;
	return __wrap_clock_gettime(CLOCK_MONOTONIC, &now);
}

int __wrap_sched_yield(void)
{
	struct timespec now;

	return __wrap_clock_gettime(CLOCK_MONOTONIC, &now);
}

/* ---- The queue ---- */

static uint64_t zeroed(size_t len)
{
	void *p = aligned_alloc(16, (len + 15) & ~(size_t)15);

	check(p != NULL);
	return (uintptr_t)memset(p, 0, len);
}

static uint8_t within(uint8_t value, uint8_t least, uint8_t most)
{
	return value >= least && value <= most ? value : (uint8_t)(least + value % (most - least + 1));
}

static void make_queue(const uint8_t *in)
{
	struct gpunvme_dq_state *state;

	w.dq = (struct gpunvme_dq){
		.magic = GPUNVME_DQ_MAGIC, .major = GPUNVME_DQ_MAJOR, .size = sizeof(w.dq), .flags = GPUNVME_DQ_WRITE | GPUNVME_DQ_WRITE_ZEROES,
		.tag = 0x10007, .qid = 7, .nsid = 1, .lba_shift = 9, .page_shift = 12, .sq_shift = within(in[0], 1, 6),
		.cq_shift = within(in[1], 1, 7), .cids = 1 + in[2], .lba_count = 1 << 20, .max_blocks = 64, .ticks_per_ms = 1000000,
		.cmd_timeout = 1000000000, .deallocate = 256, .cid_gens = 0xfe00,
	};
	w.dq.sq = zeroed((size_t)64 << w.dq.sq_shift);
	w.dq.cq = zeroed((size_t)16 << w.dq.cq_shift);
	w.dq.ready = zeroed((size_t)8 << w.dq.sq_shift);
	w.dq.result = zeroed(8 * (2 * (size_t)w.dq.cids + GPUNVME_LATENCY_BUCKETS));
	w.dq.cid_map = zeroed((w.dq.cids + 63) / 64 * 8);
	for (uint32_t i = 0; i < w.dq.cids; i++)
		((uint64_t *)(uintptr_t)w.dq.cid_map)[i / 64] |= 1ull << (i & 63);
	w.dq.state = zeroed(sizeof(*state));
	w.dq.sq_db = (uintptr_t)&w.doorbell[0];
	w.dq.cq_db = (uintptr_t)&w.doorbell[1];
	w.dq.stop = (uintptr_t)&w.stop;
	w.sq = (void *)(uintptr_t)w.dq.sq;
	w.cq = (void *)(uintptr_t)w.dq.cq;
}

/* Spoil what does not name memory. */
static const uint8_t *spoil(const uint8_t *at, const uint8_t *end, unsigned pieces)
{
	const struct gpunvme_dq was = w.dq;

	for (; pieces && end - at >= 9; pieces--, at += 9)
		memcpy((char *)&w.dq + at[0] % (sizeof(w.dq) / 8) * 8, at + 1, 8);
	memcpy(&w.dq.sq, &was.sq, offsetof(struct gpunvme_dq, cmd_timeout) - offsetof(struct gpunvme_dq, sq));
	w.dq.sq_shift = was.sq_shift;
	w.dq.cq_shift = was.cq_shift;
	w.dq.cids = was.cids;
	w.dq.cid_gens &= 0xffffu & ~0u << (w.dq.cids > 1 ? 32 - __builtin_clz(w.dq.cids - 1) : 0);
	w.dq.cmd_timeout >>= 16; /* what is for ever to a lane is so on purpose */
	w.dq.lba_shift = within(w.dq.lba_shift, 9, 16);
	w.dq.page_shift = within(w.dq.page_shift, 12, 27);
	w.buf = (struct gpunvme_dbuf){ .base = (uintptr_t)bytes, .len = BYTES, .iova = 1ull << 32, .prp_a = 1ull << 40, .prp_b = 3ull << 40 };
	if (end - at < 33)
		return end;
	if (at[0] & 1) {
		memcpy(&w.buf.iova, at + 1, 8);
		memcpy(&w.buf.prp_a, at + 9, 8);
		memcpy(&w.buf.prp_b, at + 17, 8);
		memcpy(&w.buf.len, at + 25, 8);
		w.buf.len %= BYTES + 1;
		w.buf.iova >>= 1; /* no buffer goes around the end of all addresses */
	}
	return at + 33;
}

static void free_queue(void)
{
	free(w.sq);
	free(w.cq);
	free((void *)(uintptr_t)w.dq.ready);
	free((void *)(uintptr_t)w.dq.result);
	free((void *)(uintptr_t)w.dq.cid_map);
	free((void *)(uintptr_t)w.dq.state);
}

/* ---- The calls ---- */

enum { READ, WRITE, FUA, FLUSH, ZEROES, DEALLOCATE, WAVE, ONE, ASYNC = 8, CALLS = 16 };

static int submit(unsigned kind, const struct call *c, struct gpunvme_req *req)
{
	switch (kind) {
	case READ:
		return gpunvme_submit_read(&w.dq, &w.buf, c->offset, c->lba, c->nblocks, req);
	case WRITE:
		return gpunvme_submit_write(&w.dq, &w.buf, c->offset, c->lba, c->nblocks, req);
	case FUA:
		return gpunvme_submit_write_fua(&w.dq, &w.buf, c->offset, c->lba, c->nblocks, req);
	case FLUSH:
		return gpunvme_submit_flush(&w.dq, req);
	case ZEROES:
		return gpunvme_submit_write_zeroes(&w.dq, c->lba, c->nblocks, req);
	default:
		return gpunvme_submit_deallocate(&w.dq, &w.buf, c->offset, c->lba, c->nblocks, req);
	}
}

static int run(unsigned kind, const struct call *c)
{
	switch (kind) {
	case READ:
		return gpunvme_read(&w.dq, &w.buf, c->offset, c->lba, c->nblocks);
	case WRITE:
		return gpunvme_write(&w.dq, &w.buf, c->offset, c->lba, c->nblocks);
	case FUA:
		return gpunvme_write_fua(&w.dq, &w.buf, c->offset, c->lba, c->nblocks);
	case FLUSH:
		return gpunvme_flush(&w.dq);
	case ZEROES:
		return gpunvme_write_zeroes(&w.dq, c->lba, c->nblocks);
	case DEALLOCATE:
		return gpunvme_deallocate(&w.dq, &w.buf, c->offset, c->lba, c->nblocks);
	case WAVE:
		return gpunvme_wave_read(&w.dq, &w.buf, c->offset, c->lba, c->nblocks);
	default:
		return gpunvme_wave_write_one(&w.dq, &w.buf, c->offset, c->lba, c->nblocks);
	}
}

/* Submitted: then waited for, polled for, or abandoned, and once more by a handle that is spent. */
static int run_later(unsigned kind, const struct call *c)
{
	struct gpunvme_req req = { 0, 0, 0, 0 };
	int ret = submit(kind, c, &req), end;
	uint32_t index = 0;

	if (ret)
		return ret;
	if (c->offset & 4) {
		end = gpunvme_abandon(&w.dq, &req);
		check(!end || end == -GPUNVME_ESTALE);
	} else if (c->lba & 1) {
		ret = gpunvme_wait_any(&w.dq, &req, 1, c->lba >> 1 & 0xffffff, &index);
	} else {
		ret = gpunvme_wait(&w.dq, &req, 0);
	}
	if (!req.tag && w.dq.tag)
		check(gpunvme_poll(&w.dq, &req) == -GPUNVME_ESTALE);
	return c->offset & 4 ? 1 : ret; /* of an abandoned one nobody knows */
}

static void check_result(unsigned kind, int ret, const struct call *c)
{
	static const int errors[] = { GPUNVME_EAGAIN,	   GPUNVME_ENODEV, GPUNVME_EINVAL,   GPUNVME_EROFS,    GPUNVME_ERANGE,
				      GPUNVME_EPROTO,	   GPUNVME_EMSGSIZE, GPUNVME_EPROTONOSUPPORT, GPUNVME_EOPNOTSUPP, GPUNVME_ESHUTDOWN,
				      GPUNVME_ETIMEDOUT, GPUNVME_ESTALE, GPUNVME_ECANCELED, GPUNVME_EXDEV };
	unsigned i = 0;

	while (ret < 0 && i < sizeof(errors) / sizeof(errors[0]) && errors[i] != -ret)
		i++;
	check(ret <= 0x7fff && i < sizeof(errors) / sizeof(errors[0]));
	if (!ret && c->op != GPUNVME_IO_FLUSH)
		check(w.sent == c->nblocks);
	if (ret == -GPUNVME_EINVAL || ret == -GPUNVME_EROFS || ret == -GPUNVME_ERANGE || ret == -GPUNVME_EPROTONOSUPPORT ||
	    ret == -GPUNVME_EOPNOTSUPP || ret == -GPUNVME_EMSGSIZE)
		check(!w.commands);
	if (w.commands && c->op != GPUNVME_IO_READ && c->op != GPUNVME_IO_FLUSH)
		check(w.dq.flags & GPUNVME_DQ_WRITE);
	check(!w.commands || (w.dq.magic == GPUNVME_DQ_MAGIC && w.dq.major == GPUNVME_DQ_MAJOR && kind < CALLS));
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
	int ret;

	w.call = (struct call){ .op = op[kind % ASYNC] };
	w.call.nblocks = some_blocks(at[1] | at[2] << 8, w.call.op, at[14] >> 2 == 63);
	memcpy(&w.call.lba, at + 3, 8);
	w.call.offset = at[11] | at[12] << 8 | at[13] << 16;
	if (at[14] & 1)
		w.call.lba %= w.dq.lba_count ? w.dq.lba_count : 1;
	if (at[14] & 2) /* and a wild one */
		w.call.offset ^= (uint64_t)at[15] << 56;
	w.sent = w.commands = w.looks = w.idle = 0;
	ret = kind < ASYNC ? run(kind, &w.call) : run_later(kind % ASYNC, &w.call);
	check_result(kind, ret, &w.call);
	for (unsigned i = 0; i < 64; i++) /* what was rung is fetched while the call is known */
		fetch();
	if (w.call.op == GPUNVME_IO_DSM && w.buf.len >= RANGE && w.call.offset <= w.buf.len - RANGE)
		memset(bytes + w.call.offset, 0, RANGE);
	return w.doorbell[0] == w.fetched % (1u << w.dq.sq_shift);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *at = data + 5, *end = data + size;

	if (size < 5 || size > 1024)
		return 0;
	memset(&w, 0, sizeof(w));
	make_queue(data);
	w.manner = data[3];
	at = spoil(at, end, data[4] % 16);
	__asan_poison_memory_region(bytes + w.buf.len, BYTES - w.buf.len);
	w.on = true;
	for (unsigned i = 0; i < 8 && end - at >= 16 && call(at); i++)
		at += 16;
	w.on = false;
	__asan_unpoison_memory_region(bytes, BYTES);
	free_queue();
	return 0;
}
