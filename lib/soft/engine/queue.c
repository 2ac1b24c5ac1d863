/* SPDX-License-Identifier: MIT */
/* Queues as objects: made, emptied, freed (Base Specification 3.3, 5.4 to 5.7). Thread 0 calls all of this but the last. */
#include "soft/engine/threads.h"

#include <stdlib.h>

#include "util/bits.h"

#define CQE_BYTES 16u
#define SQE_BYTES 64u
#define LOOK_MS 1000u /* a host that unmaps memory waits for some seconds */

uint16_t gnv_soft_ring_get(struct gnv_soft *soft, const struct gnv_soft_ring *at, size_t entry, const struct gnv_soft_map **map,
			   void **ring)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	const uint64_t iova = gnv_soft_address(&soft->io, at->iova);
	const bool cq = entry == CQE_BYTES, far = at->qid && soft->engine->far_rings;

	if (iova & (soft->io.page - 1))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	if (gnv_soft_space_get(t->space, iova, at->entries * entry, map))
		return GPUNVME_SC_DATA_TRANSFER;
	*ring = (*map)->cpu + (iova - (*map)->iova);
	/*
	 * Memory that the host registered may start anywhere. Entries are written whole. Its own memory has no completion queues.
	 */
	if (((*map)->hidden && !far) || ((*map)->inside && cq) || !gnv_soft_dma_open(&t->server[0]->dma, *map) ||
	    (uintptr_t)*ring % CQE_BYTES) {
		gnv_soft_space_put(t->space, *map);
		return GPUNVME_SC_DATA_TRANSFER;
	}
	return 0;
}

static struct gnv_soft_server *server_of(struct gnv_soft *soft, uint16_t cqid)
{
	const struct gnv_soft_threads *t = gnv_soft_threads(soft);

	return t->server[cqid % t->servers];
}

uint16_t gnv_soft_cq_create(struct gnv_soft *soft, const struct gnv_soft_ring *at)
{
	struct gnv_soft_cq *cq = calloc(1, sizeof(*cq));
	uint16_t status;
	void *ring;

	if (!cq)
		return GPUNVME_SC_INTERNAL;
	status = gnv_soft_ring_get(soft, at, CQE_BYTES, &cq->map, &ring);
	if (status) {
		free(cq);
		return status;
	}
	cq->ring = ring;
	cq->size = at->entries;
	cq->qid = at->qid;
	cq->interrupts = at->interrupts;
	cq->vector = at->vector;
	cq->phase = 1;
	cq->bad = UINT64_MAX;
	cq->held_end = &cq->held;
	cq->doorbell = gnv_soft_doorbell(soft, at->qid, true);
	gnv_mmio_write32(cq->doorbell, 0);
	cq->server = server_of(soft, at->qid);
	gnv_soft_threads(soft)->cqs[at->qid] = cq;
	gnv_soft_server_lock(cq->server);
	cq->next = cq->server->cqs;
	cq->server->cqs = cq;
	gnv_soft_server_unlock(cq->server);
	return 0;
}

uint16_t gnv_soft_sq_create(struct gnv_soft *soft, const struct gnv_soft_ring *at, uint16_t cqid)
{
	const size_t entry = at->qid && gnv_soft_has(&soft->config.quirks, GNV_SOFT_SQE_128) ? 2 * SQE_BYTES : SQE_BYTES;
	struct gnv_soft_sq *sq = calloc(1, sizeof(*sq));
	uint16_t status;
	void *ring;

	if (!sq)
		return GPUNVME_SC_INTERNAL;
	status = gnv_soft_ring_get(soft, at, entry, &sq->map, &ring);
	if (status) {
		free(sq);
		return status;
	}
	sq->ring = ring;
	sq->words = (uint32_t)(entry / sizeof(*sq->ring));
	sq->size = at->entries;
	sq->qid = at->qid;
	sq->bad = UINT64_MAX;
	sq->cq = gnv_soft_threads(soft)->cqs[cqid];
	sq->server = sq->cq->server;
	sq->doorbell = gnv_soft_doorbell(soft, at->qid, false);
	gnv_mmio_write32(sq->doorbell, 0);
	gnv_soft_threads(soft)->sqs[at->qid] = sq;
	gnv_soft_server_lock(sq->server);
	sq->next = sq->server->sqs;
	sq->server->sqs = sq;
	pthread_cond_signal(&sq->server->wake);
	gnv_soft_server_unlock(sq->server);
	return 0;
}

void gnv_soft_sq_delete(struct gnv_soft *soft, uint16_t qid)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	struct gnv_soft_sq *sq = t->sqs[qid], **at;

	gnv_soft_server_lock(sq->server);
	for (at = &sq->server->sqs; *at != sq; at = &(*at)->next)
		;
	*at = sq->next;
	gnv_soft_server_unlock(sq->server);
	gnv_mmio_write32(sq->doorbell, 0); /* otherwise it would look like a write for a queue that does not exist */
	t->sqs[qid] = NULL;
	gnv_soft_space_put(t->space, sq->map);
	free(sq);
}

void gnv_soft_cq_delete(struct gnv_soft *soft, uint16_t qid)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	struct gnv_soft_cq *cq = t->cqs[qid], **at;

	gnv_soft_server_lock(cq->server);
	for (at = &cq->server->cqs; *at != cq; at = &(*at)->next)
		;
	*at = cq->next;
	gnv_soft_server_unlock(cq->server);
	gnv_mmio_write32(cq->doorbell, 0);
	t->cqs[qid] = NULL;
	gnv_soft_space_put(t->space, cq->map);
	free(cq);
}

/* Take the commands of one queue (of all, when NULL) off a list and let each be handled. */
static void sweep(struct gnv_soft_cmd **at, const struct gnv_soft_sq *sq, void (*handle)(struct gnv_soft_cmd *))
{
	struct gnv_soft_cmd *cmd;

	while ((cmd = *at)) {
		if (sq && cmd->sq != sq) {
			at = &cmd->next;
			continue;
		}
		*at = cmd->next;
		handle(cmd);
	}
}

static void sweep_held(struct gnv_soft_cq *cq, const struct gnv_soft_sq *sq)
{
	struct gnv_soft_cmd **end = &cq->held;

	sweep(&cq->held, sq, gnv_soft_discard);
	while (*end)
		end = &(*end)->next;
	cq->held_end = end;
}

/* A delayed command did its I/O and keeps its status. A dropped command, and one that has not begun, never will. */
static void end_parked(struct gnv_soft_cmd *cmd)
{
	bool dropped = cmd->post_at == UINT64_MAX || cmd->stalled;

	cmd->post_at = 0;
	gnv_soft_finish(cmd, dropped ? GPUNVME_SC_ABORT_SQ_DELETED : cmd->status);
}

void gnv_soft_sq_close(struct gnv_soft *soft, uint16_t qid)
{
	struct gnv_soft_sq *sq = gnv_soft_threads(soft)->sqs[qid];

	gnv_soft_server_lock(sq->server);
	sq->closed = true;
	gnv_soft_sweep_parked(sq->server, sq, end_parked);
	sweep_held(sq->cq, sq);
	gnv_soft_server_unlock(sq->server);
}

void gnv_soft_quiesce_server(struct gnv_soft_server *server, bool dead)
{
	struct gnv_soft_sq *sq;
	struct gnv_soft_cq *cq;

	gnv_soft_server_lock(server);
	for (sq = server->sqs; sq; sq = sq->next) {
		sq->closed = true;
		sq->dead |= dead;
	}
	gnv_soft_sweep_parked(server, NULL, gnv_soft_discard);
	for (cq = server->cqs; cq; cq = cq->next)
		sweep_held(cq, NULL);
	gnv_soft_server_unlock(server);
}

void gnv_soft_quiesce_servers(struct gnv_soft *soft, bool dead)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	unsigned i;

	for (i = 0; i < t->servers; i++)
		gnv_soft_quiesce_server(t->server[i], dead);
}

bool gnv_soft_sq_is_dry(struct gnv_soft *soft, uint16_t qid)
{
	const struct gnv_soft_sq *sq = gnv_soft_threads(soft)->sqs[qid];
	bool dry;

	gnv_soft_server_lock(sq->server);
	dry = !sq->inflight;
	gnv_soft_server_unlock(sq->server);
	return dry;
}

bool gnv_soft_is_quiet(struct gnv_soft *soft)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	const struct gnv_soft_sq *sq;
	bool quiet = !t->own.inflight;
	unsigned i;

	for (i = 0; i < t->servers; i++) {
		gnv_soft_server_lock(t->server[i]);
		for (sq = t->server[i]->sqs; sq; sq = sq->next)
			quiet = quiet && !sq->inflight;
		gnv_soft_server_unlock(t->server[i]);
	}
	return quiet;
}

/* It can be aborted while it is parked, not once the kernel has it. */
bool gnv_soft_abort(struct gnv_soft *soft, uint16_t sqid, uint16_t cid)
{
	struct gnv_soft_server *server = gnv_soft_threads(soft)->sqs[sqid]->server;
	bool found;

	gnv_soft_server_lock(server);
	found = gnv_soft_abort_parked(server, sqid, cid);
	gnv_soft_server_unlock(server);
	return found;
}

static bool lies_in(const struct gnv_soft_map *map, uint64_t iova, uint64_t len)
{
	return map->iova >= iova && map->iova - iova < len;
}

bool gnv_soft_lies_in_queue(struct gnv_soft *soft, uint64_t iova, uint64_t len)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	bool found = false;
	unsigned qid;

	if (!gnv_soft_server_lock_within(t->server[0], (uint32_t)gnv_min(soft->patience_ms, LOOK_MS)))
		return true;
	for (qid = 0; qid <= soft->config.queues && !found; qid++)
		found = (t->sqs[qid] && lies_in(t->sqs[qid]->map, iova, len)) || (t->cqs[qid] && lies_in(t->cqs[qid]->map, iova, len));
	gnv_soft_server_unlock(t->server[0]);
	return found;
}

/* A pass that began before the controller became silent has ended when its lock is free. */
bool gnv_soft_is_still(struct gnv_soft *soft)
{
	const struct gnv_soft_threads *t = gnv_soft_threads(soft);
	bool still = true;
	unsigned i;

	for (i = 0; i < t->servers; i++) {
		gnv_soft_server_lock(t->server[i]);
		still &= !t->server[i]->in_store;
		gnv_soft_server_unlock(t->server[i]);
	}
	return still;
}
