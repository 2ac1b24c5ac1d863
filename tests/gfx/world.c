/* SPDX-License-Identifier: MIT */
/* The world around a kernel: see world.h. Everything in it happens on the turns that the executor gives it. */
#include "gfx/world.h"

#include "gfx/rings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QID 7u
#define IOVA 0x5a00000000100000ull

static void *memory(struct world *w, const char *name, size_t bytes, uint32_t flags)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (!p)
		abort();
	memset(p, 0, (bytes + 4095) & ~(size_t)4095);
	if (name)
		gfx_register(w->m, name, p, bytes, flags);
	return p;
}

/* A third of all commands fails, with a status that depends on the stamp. */
uint16_t world_status(uint64_t stamp)
{
	uint64_t h = stamp * 0x9e3779b97f4a7c15ull;

	return h % 3 ? 0 : (uint16_t)(0x4000u | (1 + (h >> 40) % 0x7ff));
}

static uint32_t pattern(uint64_t stamp, uint32_t word)
{
	return (uint32_t)(stamp * 2654435761u) ^ (word * 0x01000193u) ^ 0x5bd1e995u;
}

/* The controller fetched a command: move its data now, before its completion. */
static void fetched(void *ctx, const struct gpunvme_sqe *cmd)
{
	struct world_queue *q = ctx;
	struct world *w = q->world;
	uint64_t stamp = cmd->cdw10 | (uint64_t)cmd->cdw11 << 32, offset = cmd->prp1 - IOVA;
	uint32_t *data;

	if (stamp >= w->stamps || offset % WORLD_BLOCK || offset >= (uint64_t)w->lanes * WORLD_BLOCK) {
		w->alien++;
		return;
	}
	w->seen[stamp]++;
	data = (uint32_t *)(void *)(w->data + offset);
	if (cmd->opc == GPUNVME_IO_READ) {
		data[0] = pattern(stamp, 0);
		data[9] = pattern(stamp, 9);
	} else if (w->check_writes && ((uint32_t)(stamp * 2654435761u) >> 20 & 3) == 1 && data[0] != pattern(stamp, 0)) {
		w->bad_write++;
	}
}

/*
 * Completions travel from the controller's copy to the ring that lanes see. With GFX_TEAR an entry arrives dword by dword, the one
 * with the phase last, with turns in between.
 */
static void arrive(struct world_queue *q)
{
	uint64_t posted = q->ctrl.completed;
	struct gfx *m = q->world->m;
	uint32_t at, dword;

	while (q->arrived < posted) {
		at = (uint32_t)(q->arrived % q->ctrl.q.cq_depth) * 4;
		if (!(m->rules & GFX_TEAR) || q->world->flags & GPUNVME_DQ_CQE16) {
			memcpy(q->cq + at, q->ctrl.q.cq + at, 16);
			q->arrived++;
			continue;
		}
		dword = q->dwords == 7 ? 3 : gfx_draw(m, 3);
		q->cq[at + dword] = q->ctrl.q.cq[at + dword];
		q->dwords |= 1u << dword;
		if (dword == 3) {
			q->arrived++;
			q->dwords = 0;
		}
		if (!gfx_draw(m, 4))
			return;
	}
}

void world_turn(void *world)
{
	struct world *w = world;
	unsigned i;

	for (i = 0; i < w->queues; i++) {
		if (!gfx_draw(w->m, 2))
			mini_turn(&w->queue[i].ctrl);
		arrive(&w->queue[i]);
	}
}

static uint32_t cids_for(uint32_t cq_depth)
{
	uint32_t n = cq_depth - 1 - cq_depth / 4;

	return n >= 128 ? n & ~63u : n;
}

/* Entries of the lap before carry the other phase. */
static void preset_phases(uint32_t *cq, uint32_t depth, uint64_t start)
{
	uint32_t i, lap = (uint32_t)(start / depth) & 1;

	for (i = 0; i < depth; i++)
		cq[4 * i + 3] = (i < start % depth ? !lap : lap) ? GPUNVME_CQE_DW3_PHASE : 0;
}

static void make_queue(struct world *w, unsigned n, unsigned shift, uint64_t start)
{
	struct gfx_region part[GFX_QUEUE_PARTS];
	struct world_queue *q = &w->queue[n];
	uint32_t depth = 1u << shift, cq_depth = 2 * depth, cids = cids_for(cq_depth), i;

	q->world = w;
	q->state = memory(w, NULL, sizeof(*q->state), 0);
	q->ready = memory(w, NULL, 8 * depth, 0);
	q->result = memory(w, NULL, 8 * cids, 0);
	q->cid_map = memory(w, NULL, 8 * ((cids + 63) / 64), 0);
	q->sq = memory(w, NULL, 64 * depth, 0);
	q->cq = memory(w, NULL, 16 * cq_depth, 0);
	q->doorbell = memory(w, NULL, 8, 0);
	for (i = 0; i < cids; i++)
		q->cid_map[i / 64] |= 1ull << (i & 63);
	q->state->resv = q->state->fetched = q->state->pub = q->state->cq_rung = start;
	q->state->pub_gate = start << GPUNVME_GATE_SHIFT;
	q->state->drain = start << 1;
	q->doorbell[0] = (uint32_t)(start % depth);
	q->doorbell[1] = (uint32_t)(start % cq_depth);
	q->ctrl.q = (struct mini_queue){ q->sq, memory(w, NULL, 16 * cq_depth, 0), &q->doorbell[0], &q->doorbell[1],
					 depth, cq_depth, (uint16_t)(QID + n), start };
	preset_phases(q->ctrl.q.cq, cq_depth, start);
	preset_phases(q->cq, cq_depth, start);
	q->arrived = start;
	q->ctrl.seen = fetched;
	q->ctrl.seen_ctx = q;
	w->dq[n] = (struct gpunvme_dq){
		.head = GPUNVME_HEAD(GPUNVME_KIND_QUEUE, *w->dq),
		.flags = GPUNVME_DQ_WRITE | GPUNVME_DQ_WRITE_ZEROES | GPUNVME_DQ_STATS | w->flags, .tag = 1u << 16 | (QID + n), .qid = QID + n,
		.nsid = 1, .lba_shift = 9, .page_shift = 12, .sq_shift = (uint8_t)shift, .cq_shift = (uint8_t)(shift + 1),
		.sq = (uintptr_t)q->sq, .cq = (uintptr_t)q->cq, .sq_db = (uintptr_t)&q->doorbell[0],
		.cq_db = (uintptr_t)&q->doorbell[1], .state = (uintptr_t)q->state, .ready = (uintptr_t)q->ready,
		.result = (uintptr_t)q->result, .cid_map = (uintptr_t)q->cid_map, .stop = (uintptr_t)w->stop,
		.cmd_timeout = 1ull << 40, .lba_count = 1ull << 62, .cids = cids, .max_blocks = 2048, .ticks_per_ms = 100000,
		.cid_gens = 0xffffu & ~0u << (cids > 1 << 9 ? 32 - __builtin_clz(cids - 1) : 9),
	};
	for (i = gfx_queue_parts(&w->dq[n], part); i--;)
		gfx_register(w->m, part[i].name, (void *)(uintptr_t)part[i].base, part[i].size, part[i].flags);
}

struct world *world_new(struct gfx *m, unsigned queues, unsigned sq_shift, uint64_t start, uint32_t lanes, uint32_t stamps,
			uint32_t flags)
{
	struct world *w = calloc(1, sizeof(*w));
	unsigned i;

	if (!w)
		abort();
	w->m = m;
	w->lanes = lanes;
	w->stamps = stamps;
	w->queues = queues;
	w->flags = flags;
	w->dq = memory(w, "descriptors", WORLD_QUEUES * sizeof(*w->dq), GFX_READONLY);
	w->dbuf = memory(w, "buffer descriptor", sizeof(*w->dbuf), GFX_READONLY);
	w->stop = memory(w, NULL, 4, 0);
	w->data = memory(w, "data", (size_t)lanes * WORLD_BLOCK, GFX_DEVICE);
	w->seen = memory(w, NULL, 4ull * stamps, 0);
	*w->dbuf = (struct gpunvme_dbuf){ .base = (uintptr_t)w->data, .len = (uint64_t)lanes * WORLD_BLOCK, .iova = IOVA };
	for (i = 0; i < queues; i++)
		make_queue(w, i, sq_shift, start);
	m->outside = world_turn;
	m->outside_ctx = w;
	return w;
}

void world_free(struct world *w)
{
	unsigned i;

	for (i = 0; i < w->queues; i++) {
		struct world_queue *q = &w->queue[i];

		free(q->state);
		free(q->ready);
		free(q->result);
		free(q->cid_map);
		free(q->sq);
		free(q->cq);
		free(q->doorbell);
		free(q->ctrl.q.cq);
	}
	free(w->dq);
	free(w->dbuf);
	free(w->stop);
	free(w->data);
	free(w->seen);
	free(w);
}

static uint32_t free_cids(const struct world_queue *q, uint32_t cids)
{
	uint32_t n = 0, i;

	for (i = 0; i < (cids + 63) / 64; i++)
		n += (uint32_t)__builtin_popcountll(q->cid_map[i]);
	return n;
}

const char *world_check(struct world *w, bool idle)
{
	unsigned i;

	if (w->alien)
		return "the controller fetched a command that nobody gave";
	if (w->bad_write)
		return "the controller fetched data that was not written yet";
	for (i = 0; i < w->queues; i++) {
		struct world_queue *q = &w->queue[i];

		if (q->ctrl.garbage)
			return "the controller fetched an entry that was not written";
		if (q->state->fetched > q->state->pub || q->state->pub > q->state->resv)
			return "positions are out of order";
		if (idle && (q->state->poison || free_cids(q, w->dq[i].cids) != w->dq[i].cids))
			return q->state->poison ? "the queue is poisoned" : "command identifiers are lost";
		if (idle && (q->state->pub != q->state->resv || q->ctrl.fetched != q->ctrl.completed))
			return "something is left in flight";
	}
	return NULL;
}

void world_show(const struct world *w)
{
	unsigned i;

	for (i = 0; i < w->queues; i++) {
		const struct world_queue *q = &w->queue[i];

		printf("queue %u: resv %llu pub %llu fetched %llu, drain %llx rung %llu, gate %llx, poison %u, doorbells %u %u; controller: "
		       "fetched %llu completed %llu arrived %llu held %u\n", i, (unsigned long long)q->state->resv,
		       (unsigned long long)q->state->pub, (unsigned long long)q->state->fetched, (unsigned long long)q->state->drain,
		       (unsigned long long)q->state->cq_rung, (unsigned long long)q->state->pub_gate, q->state->poison, q->doorbell[0],
		       q->doorbell[1], (unsigned long long)q->ctrl.fetched, (unsigned long long)q->ctrl.completed,
		       (unsigned long long)q->arrived, q->ctrl.held_count);
	}
}
