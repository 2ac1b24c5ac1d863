/* SPDX-License-Identifier: MIT */
/* Fetching and completing commands (Base Specification 3.3). All of it runs under the lock of the queue's server. */
#include "soft/engine/threads.h"

#include <stdlib.h>
#include <time.h>

#define CQE_DWORDS 4u
#define SQE_QWORDS 8u

static struct gnv_soft_cmd *unlink_cmd(struct gnv_soft_cmd **at)
{
	struct gnv_soft_cmd *cmd = *at;

	*at = cmd->next;
	cmd->next = NULL;
	return cmd;
}

/* ---- Fetching ---- */

/* New tail, or the old one when the host wrote nonsense. */
static uint32_t read_tail(struct gnv_soft_sq *sq)
{
	uint32_t tail = gnv_mmio_read32(sq->doorbell);

	if (tail < sq->size) {
		sq->bad = UINT64_MAX;
		return tail;
	}
	if (tail != sq->bad) {
		sq->bad = tail;
		gnv_soft_raise(sq->server->soft, GNV_SOFT_EVENT_DOORBELL_VALUE);
	}
	return sq->tail;
}

/*
 * Entries are copied with atomic loads because a hostile host may be rewriting them: whatever mixture arrives is then checked and
 * executed, and it is the same mixture for both.
 */
static void copy_entry(const struct gnv_soft_sq *sq, struct gpunvme_sqe *sqe)
{
	const uint64_t *from = sq->ring + (size_t)sq->head * sq->words;
	union {
		uint64_t word[SQE_QWORDS];
		struct gpunvme_sqe sqe;
	} copy;
	unsigned i;

	for (i = 0; i < SQE_QWORDS; i++)
		copy.word[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
	*sqe = copy.sqe;
}

struct gnv_soft_cmd *gnv_soft_take_cmd(struct gnv_soft_sq *sq)
{
	struct gnv_soft_cmd *cmd = unlink_cmd(&sq->server->free);

	sq->server->free_count--;
	sq->inflight++;
	cmd->sq = sq;
	cmd->qid = sq->qid;
	cmd->status = 0;
	cmd->dw0 = 0;
	cmd->post_at = 0;
	cmd->began = 0;
	cmd->stalled = false;
	cmd->counted = false;
	cmd->action = GNV_SOFT_GO;
	return cmd;
}

static struct gnv_soft_cmd *fetch_one(struct gnv_soft_sq *sq)
{
	struct gnv_soft_server *server = sq->server;
	struct gnv_soft_cmd *cmd;

	if (server->free_count <= (sq->qid ? GNV_SOFT_CMDS_ADMIN : 0))
		return NULL;
	cmd = gnv_soft_take_cmd(sq);
	gnv_soft_map_fence(sq->map);
	copy_entry(sq, &cmd->sqe);
	sq->head = sq->head + 1 == sq->size ? 0 : sq->head + 1;
	return cmd;
}

static void begin(struct gnv_soft_cmd *cmd)
{
	const uint32_t wakes_us = gnv_soft_wake(cmd);

	if (wakes_us)
		cmd->post_at = gnv_soft_now() + wakes_us * 1000ull;
	if (!gnv_soft_enter(cmd))
		gnv_soft_park(cmd);
	else if (cmd->qid)
		gnv_soft_io_start(cmd);
	else
		gnv_soft_admin_start(cmd);
}

unsigned gnv_soft_fetch(struct gnv_soft_sq *sq, unsigned max)
{
	struct gnv_soft *soft = sq->server->soft;
	struct gnv_soft_cmd *cmd = NULL;
	unsigned n = 0;

	if (sq->closed || sq->stuck || gnv_soft_is_silent(sq->server->soft))
		return 0;
	sq->tail = read_tail(sq);
	if (soft->timing.on && sq->head != sq->tail)
		sq->server->now = gnv_soft_now(); /* after the look at the doorbell: no command seems older than it is */
	/* A host that leaves its completion queue full gets no new work done, or it would use up the commands of the others. */
	while (n < max && sq->head != sq->tail && !sq->closed && !sq->stuck && !sq->cq->held) {
		cmd = fetch_one(sq);
		if (!cmd)
			break;
		n++;
		begin(cmd);
	}
	if (n && sq->qid && soft->timing.on)
		gnv_soft_look(sq, n < max && !cmd);
	return n;
}

/* ---- Completing ---- */

void gnv_soft_discard(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;

	gnv_soft_leave(cmd);
	if (cmd->apart || cmd->data->segs.count)
		gnv_soft_data_drop(cmd);
	cmd->sq->inflight--;
	cmd->sq = NULL;
	cmd->next = server->free;
	server->free = cmd;
	server->free_count++;
}

/* How far the host may have consumed: from the old head to the last entry posted. Anything else is nonsense. */
static void read_head(struct gnv_soft_cq *cq)
{
	uint32_t head = gnv_mmio_read32(cq->doorbell);
	uint32_t posted = (cq->tail + cq->size - cq->head) % cq->size;

	if (head == cq->head)
		return;
	if (head < cq->size && (head + cq->size - cq->head) % cq->size <= posted) {
		cq->head = head;
		cq->bad = UINT64_MAX;
		gnv_soft_acknowledged(cq);
	} else if (head != cq->bad) {
		cq->bad = head;
		gnv_soft_raise(cq->server->soft, GNV_SOFT_EVENT_DOORBELL_VALUE);
	}
}

/* Or nothing may be written there. */
static bool is_full(struct gnv_soft_cq *cq)
{
	uint32_t next = cq->tail + 1 == cq->size ? 0 : cq->tail + 1;

	if (gnv_soft_is_silent(cq->server->soft))
		return true;
	if (next == cq->head)
		read_head(cq);
	return next == cq->head;
}

/* Time passes between the dwords of an entry, which is written the wrong way round. */
static void tear(uint32_t *cqe, uint32_t dw3, uint32_t us)
{
	const struct timespec t = { .tv_nsec = (long)us * 1000 };

	__atomic_store_n(&cqe[3], dw3, __ATOMIC_RELEASE);
	nanosleep(&t, NULL);
}

/*
 * The phase goes last, in the dword that the host polls. Releasing it publishes the other three and the data. A host may check
 * those, too, to test whether an entry arrives whole.
 */
static void put_entry(struct gnv_soft_cq *cq, const struct gnv_soft_cmd *cmd, uint32_t status)
{
	uint32_t *cqe = cq->ring + (size_t)cq->tail * CQE_DWORDS;
	uint32_t dw2 = cmd->sq->head | (uint32_t)cmd->qid << 16;
	uint32_t dw3 = cmd->sqe.cid | cq->phase << 16 | status << 17;
	const bool pieces = gnv_soft_has(&cq->server->soft->config.quirks, GNV_SOFT_CQE_PIECES);

	if (cmd->action)
		gnv_soft_action_entry(cmd, &dw2, &dw3);
	if (cmd->action == GNV_SOFT_TORN)
		tear(cqe, dw3, cmd->number);
	if (pieces)
		__atomic_store_n(&cqe[3], dw3 ^ 1u << 16, __ATOMIC_RELEASE); /* all but the phase */
	else
		__atomic_store_n(&cqe[1], 0, __ATOMIC_RELAXED);
	if (!pieces || !cq->qid)
		__atomic_store_n(&cqe[0], cmd->dw0, __ATOMIC_RELAXED);
	__atomic_store_n(&cqe[2], dw2, __ATOMIC_RELAXED);
	gnv_soft_map_fence(cq->map);
	__atomic_store_n(&cqe[3], dw3, __ATOMIC_RELEASE);
	gnv_soft_map_fence(cq->map);
	if (cq->interrupts) {
		cq->unsaid++;
		cq->urgent |= (status & GPUNVME_ST_CODE) != 0;
		cq->server->posted = true;
	}
	cq->tail++;
	if (cq->tail == cq->size) {
		cq->tail = 0;
		cq->phase ^= 1;
	}
}

static void post(struct gnv_soft_cq *cq, struct gnv_soft_cmd *cmd)
{
	uint32_t status = cmd->status & ~GNV_SOFT_AS_IS;

	if (status && !(cmd->status & GNV_SOFT_AS_IS) && gnv_soft_is_final(cmd->status))
		status |= GPUNVME_ST_DNR;
	gnv_soft_leave(cmd);
	put_entry(cq, cmd, status);
	if (cmd->action == GNV_SOFT_TWICE) {
		cmd->action = GNV_SOFT_GO;
		if (cmd->number && !cmd->sq->closed) {
			cmd->post_at = gnv_soft_now() + (uint64_t)cmd->number * 1000;
			gnv_soft_park(cmd);
			return;
		}
		if (!is_full(cq))
			put_entry(cq, cmd, status);
	}
	gnv_soft_discard(cmd);
}

bool gnv_soft_post_copy(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_cq *cq = cmd->sq->cq;

	if (cq->held || is_full(cq))
		return false;
	put_entry(cq, cmd, 0);
	return true;
}

void gnv_soft_post(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_cq *cq = cmd->sq->cq;

	if (cmd->sq->dead || cmd->action == GNV_SOFT_EARLY) {
		gnv_soft_discard(cmd);
	} else if (!cq->held && !is_full(cq)) {
		post(cq, cmd);
	} else if (cmd->sq->closed) { /* the host deletes the queue and may never make room */
		gnv_soft_discard(cmd);
	} else {
		cmd->next = NULL;
		*cq->held_end = cmd;
		cq->held_end = &cmd->next;
	}
}

static void note_error(struct gnv_soft *soft, const struct gnv_soft_cmd *cmd, uint16_t status)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);

	pthread_mutex_lock(&t->errors.lock);
	gnv_soft_errors_add(&t->errors.log, cmd, status);
	pthread_mutex_unlock(&t->errors.lock);
	if (cmd->sq == &t->own)
		soft->flush_failed = status & ~GNV_SOFT_AS_IS;
}

void gnv_soft_finish(struct gnv_soft_cmd *cmd, uint16_t status)
{
	struct gnv_soft_server *server = cmd->sq->server;

	cmd->status = status;
	gnv_soft_segs_clear(&server->dma, &cmd->data->segs); /* a completion that waits must not keep the host from unmapping */
	if (status & GPUNVME_ST_CODE)
		note_error(server->soft, cmd, status);
	if (!cmd->sq->closed && gnv_soft_is_early(cmd))
		gnv_soft_park(cmd);
	else
		gnv_soft_post(cmd);
}

unsigned gnv_soft_cq_poll(struct gnv_soft_cq *cq)
{
	struct gnv_soft_cmd *cmd;
	unsigned n = 0;

	read_head(cq);
	while (cq->held && !is_full(cq)) {
		cmd = unlink_cmd(&cq->held);
		if (!cq->held)
			cq->held_end = &cq->held;
		post(cq, cmd);
		n++;
	}
	return n;
}
