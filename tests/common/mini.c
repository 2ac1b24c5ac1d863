/* SPDX-License-Identifier: MIT */
#include "common/mini.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define TORN (~0u) /* no queue's number: dword 2 is not there when the phase is */

static uint32_t draw(struct mini *m, uint32_t below)
{
	m->random = m->random * 6364136223846793005u + 1442695040888963407u;
	return below ? (uint32_t)(m->random >> 33) % below : 0;
}

static uint32_t slot_of(uint64_t count, uint32_t depth)
{
	return (uint32_t)(count % depth);
}

static bool cq_is_full(struct mini *m)
{
	uint32_t head = __atomic_load_n(m->q.cq_db, __ATOMIC_ACQUIRE);

	return (slot_of(m->completed, m->q.cq_depth) + 1) % m->q.cq_depth == head;
}

static void put_cqe(struct mini *m, uint32_t sqhd, uint32_t sqid, uint32_t cid, uint32_t status)
{
	uint32_t *cqe = m->q.cq + 4 * slot_of(m->completed, m->q.cq_depth);
	uint32_t phase = ~(uint32_t)(m->completed / m->q.cq_depth) & 1;

	cqe[0] = (uint32_t)m->random; /* of what a command does not say anything there a drive may leave what it likes */
	cqe[1] = (uint32_t)(m->random >> 32);
	if (sqid != TORN)
		cqe[2] = sqid << 16 | sqhd;
	__atomic_store_n(&cqe[3], status << 17 | phase << 16 | cid, __ATOMIC_RELEASE);
	__atomic_store_n(&m->completed, m->completed + 1, __ATOMIC_RELAXED);
}

static void mini_post(struct mini *m, const struct gpunvme_sqe *cmd, uint64_t stamp)
{
	uint32_t sqhd = slot_of(m->fetched, m->q.sq_depth), sqid = m->q.qid, cid = cmd->cid;
	uint32_t status = m->opts.status ? m->opts.status(stamp) : 0;

	if (m->opts.crime != MINI_HONEST && stamp == m->opts.crime_stamp) {
		switch (m->opts.crime) {
		case MINI_BAD_CID:
			cid = 0xfffe;
			break;
		case MINI_IDLE_CID:
			cid = cid ? 0 : 1;
			break;
		case MINI_TWICE:
			put_cqe(m, sqhd, sqid, cid, status);
			break;
		case MINI_LATE:
			m->late = true;
			m->late_cid = cid;
			m->late_status = status;
			break;
		case MINI_BAD_SQID:
			sqid ^= 0x40;
			break;
		case MINI_TORN:
			sqid = TORN;
			break;
		case MINI_SQHD_AHEAD:
			sqhd = (sqhd + 1) % m->q.sq_depth;
			break;
		default:
			sqhd |= 0x8000;
			break;
		}
	}
	put_cqe(m, sqhd, sqid, cid, status);
}

static bool fetch(struct mini *m)
{
	uint32_t tail = __atomic_load_n(m->q.sq_db, __ATOMIC_ACQUIRE), slot = slot_of(m->fetched, m->q.sq_depth);
	struct gpunvme_sqe *cmd = &m->held[m->held_count];

	if (tail != m->last_tail) {
		m->last_tail = tail;
		m->doorbells++;
	}
	if (slot == tail || m->held_count == MINI_MAX_HELD)
		return false;
	memcpy(cmd, m->q.sq + 16 * slot, 64);
	memset(m->q.sq + 16 * slot, 0xff, 64);
	if (cmd->opc == 0xff)
		m->garbage++;
	if (m->seen)
		m->seen(m->seen_ctx, cmd);
	__atomic_store_n(&m->fetched, m->fetched + 1, __ATOMIC_RELAXED);
	m->held_count++;
	return true;
}

static uint64_t stamp_of(const struct gpunvme_sqe *cmd)
{
	return cmd->cdw10 | (uint64_t)cmd->cdw11 << 32;
}

static bool may_complete(struct mini *m, unsigned i)
{
	if (__atomic_load_n(&m->release, __ATOMIC_ACQUIRE) || !m->opts.fate)
		return true;
	return m->opts.fate(stamp_of(&m->held[i])) == MINI_COMPLETE;
}

/* Complete one held command: the oldest that may, or a random one of the window. */
static void complete(struct mini *m)
{
	unsigned window = m->opts.window ? m->opts.window : 1, first, i;
	struct gpunvme_sqe cmd;

	if (!m->held_count || draw(m, 100) < m->opts.idle)
		return;
	if (cq_is_full(m)) {
		m->full++;
		return;
	}
	first = draw(m, window < m->held_count ? window : m->held_count);
	for (i = 0; i < m->held_count; i++) {
		unsigned at = (first + i) % m->held_count;

		if (!may_complete(m, at))
			continue;
		cmd = m->held[at];
		memmove(&m->held[at], &m->held[at + 1], (m->held_count - at - 1) * sizeof(cmd));
		m->held_count--;
		mini_post(m, &cmd, stamp_of(&cmd));
		return;
	}
}

void mini_turn(struct mini *m)
{
	if (__atomic_load_n(&m->frozen, __ATOMIC_ACQUIRE))
		return;
	while (fetch(m) && draw(m, 4))
		;
	if (m->late && m->held_count && !cq_is_full(m)) {
		m->late = false;
		put_cqe(m, slot_of(m->fetched, m->q.sq_depth), m->q.qid, m->late_cid, m->late_status);
	}
	complete(m);
}

static void *serve(void *arg)
{
	struct mini *m = arg;
	unsigned quiet = 0;

	while (!__atomic_load_n(&m->stop, __ATOMIC_ACQUIRE)) {
		uint64_t before = m->fetched + m->completed;

		mini_turn(m);
		if (draw(m, 1000) < m->opts.naps) {
			struct timespec nap = { 0, (long)draw(m, 200000) };

			nanosleep(&nap, NULL);
		}
		quiet = before == m->fetched + m->completed ? quiet + 1 : 0;
		if (quiet > 32)
			sched_yield();
	}
	return NULL;
}

void mini_begin(struct mini *m)
{
	m->fetched = m->completed = m->q.start;
	m->last_tail = slot_of(m->q.start, m->q.sq_depth);
	m->random = m->opts.seed;
}

void mini_start(struct mini *m)
{
	mini_begin(m);
	pthread_create(&m->thread, NULL, serve, m);
}

void mini_stop(struct mini *m)
{
	__atomic_store_n(&m->stop, 1, __ATOMIC_RELEASE);
	pthread_join(m->thread, NULL);
}

void mini_freeze(struct mini *m, bool on)
{
	__atomic_store_n(&m->frozen, on, __ATOMIC_RELEASE);
}

void mini_release(struct mini *m)
{
	__atomic_store_n(&m->release, 1, __ATOMIC_RELEASE);
}
