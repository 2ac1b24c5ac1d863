/* SPDX-License-Identifier: MIT */
#include "lane.h"

#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_sched_yield(void);

struct lane_world w;
_Alignas(16) uint8_t bytes[BYTES];

/* ---- The controller ---- */

static bool fetch(void)
{
	const uint32_t depth = 1u << w.dq.sq_shift;
	struct gpunvme_sqe cmd;

	check(w.doorbell[0] < depth);
	if (w.fetched % depth == w.doorbell[0] || w.held_count == HELD)
		return false;
	memcpy(&cmd, w.sq + 16 * (w.fetched % depth), sizeof(cmd));
	w.fetched++;
	w.commands++;
	check(cmd.nsid == w.dq.nsid && (cmd.cid & ~w.dq.cid_gens) < w.dq.cids);
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

void pause_of_lane(void)
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
		.head = GPUNVME_HEAD(GPUNVME_KIND_QUEUE, w.dq), .flags = GPUNVME_DQ_WRITE | GPUNVME_DQ_WRITE_ZEROES,
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

const uint8_t *spoil_words(void *what, size_t len, const uint8_t *at, const uint8_t *end, unsigned pieces)
{
	for (; pieces && end - at >= 9; pieces--, at += 9)
		memcpy((char *)what + at[0] % (len / 8) * 8, at + 1, 8);
	return at;
}

/* Spoil what does not name memory. */
static const uint8_t *spoil_queue(const uint8_t *at, const uint8_t *end, unsigned pieces)
{
	const struct gpunvme_dq was = w.dq;

	at = spoil_words(&w.dq, sizeof(w.dq), at, end, pieces);
	memcpy(&w.dq.sq, &was.sq, offsetof(struct gpunvme_dq, cmd_timeout) - offsetof(struct gpunvme_dq, sq));
	w.dq.sq_shift = was.sq_shift;
	w.dq.cq_shift = was.cq_shift;
	w.dq.cids = was.cids;
	w.dq.cid_gens &= 0xffffu & ~0u << (w.dq.cids > 1 ? 32 - __builtin_clz(w.dq.cids - 1) : 0);
	w.dq.cmd_timeout >>= 16; /* what is without limit to a thread is so on purpose */
	if (w.dq.head.version == was.head.version && w.dq.head.kind == was.head.kind) {
		w.dq.lba_shift = within(w.dq.lba_shift, 9, 16);
		w.dq.page_shift = within(w.dq.page_shift, 12, 27);
	}
	return at;
}

static const uint8_t *make_buffer(const uint8_t *at, const uint8_t *end)
{
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

const uint8_t *begin_queue(const uint8_t *in, const uint8_t *end)
{
	const uint8_t *at;

	memset(&w, 0, sizeof(w));
	make_queue(in);
	w.manner = in[3];
	at = spoil_queue(in + QUEUE_BYTES, end, in[4] % 16);
	at = make_buffer(at, end);
	__asan_poison_memory_region(bytes + w.buf.len, BYTES - w.buf.len);
	w.on = true;
	return at;
}

void end_queue(void)
{
	w.on = false;
	__asan_unpoison_memory_region(bytes, BYTES);
	free(w.sq);
	free(w.cq);
	free((void *)(uintptr_t)w.dq.ready);
	free((void *)(uintptr_t)w.dq.result);
	free((void *)(uintptr_t)w.dq.cid_map);
	free((void *)(uintptr_t)w.dq.state);
}

/* ---- Calls ---- */

void begin_call(void)
{
	w.commands = w.looks = w.idle = 0;
}

bool end_call(void)
{
	for (unsigned i = 0; i < 64; i++)
		fetch();
	return w.doorbell[0] == w.fetched % (1u << w.dq.sq_shift);
}

void check_error(int ret)
{
	static const int errors[] = { GPUNVME_EAGAIN,	   GPUNVME_ENODEV, GPUNVME_EINVAL,   GPUNVME_EROFS,    GPUNVME_ERANGE,
				      GPUNVME_EPROTO,	   GPUNVME_EMSGSIZE, GPUNVME_EPROTONOSUPPORT, GPUNVME_EOPNOTSUPP, GPUNVME_ESHUTDOWN,
				      GPUNVME_ETIMEDOUT, GPUNVME_ESTALE, GPUNVME_ECANCELED, GPUNVME_EXDEV };
	unsigned i = 0;

	while (ret < 0 && i < sizeof(errors) / sizeof(errors[0]) && errors[i] != -ret)
		i++;
	check(ret <= 0x7fff && i < sizeof(errors) / sizeof(errors[0]));
	check(!w.commands || (w.dq.head.version == GPUNVME_HEAD_VERSION && w.dq.head.kind == GPUNVME_KIND_QUEUE));
}

void check_data(const struct gpunvme_sqe *cmd, uint64_t at, uint64_t len)
{
	const uint64_t page = 1ull << w.dq.page_shift, first = page - (at & (page - 1));

	check(cmd->prp1 == at && at - w.buf.iova <= w.buf.len && len <= w.buf.len - (at - w.buf.iova));
	if (w.dq.flags & GPUNVME_DQ_SGL)
		check(cmd->flags == GPUNVME_PSDT_SGL && (cmd->prp2 & 0xffffffffffffffull) == len);
	else if (len <= first)
		check(!cmd->prp2);
	else if (len <= first + page)
		check(cmd->prp2 == at + first);
}
