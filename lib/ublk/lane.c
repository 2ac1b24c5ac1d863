/* SPDX-License-Identifier: MIT */
/*
 * The thread of one queue.
 * Invariant: for every tag either the driver has a command of ours, and may send a request, or we have the request and owe its
 * result. While the controller may write to a tag's buffer the driver gets no result, unless the controller is dead. Then it gets
 * an error, for which the driver does not look at the buffer.
 */
#include <gpunvme/device.h>

#include <errno.h>
#include <sched.h>

#include "os/linux/sys.h"
#include "ublk/ublk.h"
#include "util/clock.h"

#define TRIES 3u       /* of a request, if status or queue allow more. The kernel's own driver has 5 (nvme_core.max_retries) */
#define BROKEN_MS 1000 /* a ring that fails for so long has failed for good */
#define DEAD_NS (100 * GNV_NS_PER_MS) /* between two looks at a queue that could not be recovered */
#define REAP 64u
#define WAITS 4u /* in vain, of 32 looks each, until others get this core: 10 us */

static bool leaving(const struct gnv_ublk_lane *l)
{
	return __atomic_load_n(&l->ublk->leave, __ATOMIC_ACQUIRE);
}

/* ---- The driver ---- */

static int tell(struct gnv_ublk_lane *l, struct gnv_ublk_tag *t, uint32_t op, int result)
{
	const struct gnv_ublk_io io = { (uint16_t)l->number, (uint16_t)(t - l->tag), result, (uintptr_t)gpunvme_mem_ptr(t->mem) };
	int ret = gnv_uring_command(l->ring, op, &io, sizeof(io), t);

	if (!ret) {
		t->where = GNV_UBLK_AWAITED;
		l->awaited++;
	}
	return ret;
}

/* Its ring has an entry for each tag, or, when memory was short, room for as long as it works (setup_within_limit()). */
static void answer(struct gnv_ublk_lane *l, struct gnv_ublk_tag *t, int ret)
{
	__atomic_add_fetch(&l->requests, 1, __ATOMIC_RELAXED);
	if (ret)
		__atomic_add_fetch(&l->failed, 1, __ATOMIC_RELAXED);
	if (tell(l, t, GNV_UBLK_COMMIT_AND_FETCH, gnv_ublk_result(t, ret))) {
		t->where = GNV_UBLK_GONE;
		l->unanswered = true;
	}
}

/* A request has come, or the news that none will. */
static void take(struct gnv_ublk_lane *l, const struct gnv_uring_done *done)
{
	struct gnv_ublk_tag *t = done->tag;

	l->awaited--;
	if (done->res) { /* GNV_UBLK_ABORTED, or our command was refused */
		t->where = GNV_UBLK_GONE;
		return;
	}
	t->desc = l->desc[t - l->tag];
	t->where = GNV_UBLK_READY;
	t->tries = 0;
	l->own[l->ready + l->sent] = t;
	l->ready++;
}

static bool take_all(struct gnv_ublk_lane *l)
{
	struct gnv_uring_done done[REAP];
	unsigned i, n = gnv_uring_reap(l->ring, done, REAP);

	for (i = 0; i < n; i++)
		take(l, &done[i]);
	return n;
}

/* ---- The controller ---- */

/* Results that say nothing of a command, but that its queue has ended. */
static bool ends_queue(int ret)
{
	return ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_EPROTO || ret == -GPUNVME_ENODEV ||
	       ret == -GPUNVME_ESTALE;
}

static void send_tag(struct gnv_ublk_lane *l, struct gnv_ublk_tag *t)
{
	int ret = l->dead ? -GPUNVME_ENODEV : gnv_ublk_send(l, t);

	if (ret == -GPUNVME_EAGAIN)
		return;
	if (!l->dead && ends_queue(ret)) {
		l->broken = true;
		return;
	}
	l->ready--;
	if (ret) {
		answer(l, t, ret);
		return;
	}
	t->where = GNV_UBLK_SENT;
	l->sent++;
}

/* Whether the status allows a retry, as for the kernel's own driver (nvme_decide_disposition()). */
static bool is_worth_more(const struct gnv_ublk_tag *t, int ret)
{
	return ret > 0 && !((uint32_t)ret & GPUNVME_ST_DNR) && !(t->desc.op_flags & GNV_UBLK_FAILFAST) && t->tries + 1 < TRIES;
}

/*
 * Waits for the only command, for two looks at the clock: polls between them need no clock, which may be a device. A time-out of
 * the wait means nothing, one of the queue is reported again. So short a wait keeps its core, for which a thread of the controller
 * may wait.
 */
static int poll_or_wait(struct gnv_ublk_lane *l, struct gnv_ublk_tag *t)
{
	int ret;

	if (l->sent + l->ready > 1)
		return gpunvme_poll(&l->dq, &t->req);
	ret = gpunvme_wait(&l->dq, &t->req, 1);
	if (ret != -GPUNVME_ETIMEDOUT)
		return ret;
	if (++l->looks % WAITS == 0)
		sched_yield();
	return gpunvme_poll(&l->dq, &t->req);
}

/* Return: the command is over. */
static bool poll_tag(struct gnv_ublk_lane *l, struct gnv_ublk_tag *t)
{
	int ret = poll_or_wait(l, t);

	if (ret == -GPUNVME_EAGAIN)
		return false;
	if (ends_queue(ret)) {
		l->broken = true;
		return false;
	}
	l->sent--;
	if (is_worth_more(t, ret)) {
		t->tries++;
		t->where = GNV_UBLK_READY;
		l->ready++;
	} else {
		answer(l, t, ret);
	}
	return true;
}

/* Those that are still owed, in their order. */
static void forget_answered(struct gnv_ublk_lane *l, uint32_t before)
{
	uint32_t i, n = 0;

	for (i = 0; i < before; i++)
		if (l->own[i]->where == GNV_UBLK_SENT || l->own[i]->where == GNV_UBLK_READY)
			l->own[n++] = l->own[i];
}

/*
 * From the oldest on, until one is not over: a look in vain is dear, it takes completions of all, and looks at the clock. And from
 * another one on, each time the next, as they need not end in their order. Return: something is over.
 */
static bool poll_all(struct gnv_ublk_lane *l, uint32_t count)
{
	uint32_t i, vain = 0;
	bool moved = false;

	for (i = 0; i < count && vain < 2 && !l->broken; i++) {
		if (l->own[i]->where != GNV_UBLK_SENT)
			continue;
		if (poll_tag(l, l->own[i])) {
			moved = true;
		} else if (!vain++) {
			l->next = l->next > i && l->next + 1 < count ? l->next + 1 : i + 1;
			i = l->next - 1;
		}
	}
	return moved;
}

static void send_all(struct gnv_ublk_lane *l, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count && l->ready && !l->broken; i++)
		if (l->own[i]->where == GNV_UBLK_READY)
			send_tag(l, l->own[i]);
}

static bool look_at_tags(struct gnv_ublk_lane *l)
{
	const uint32_t count = l->sent + l->ready;
	bool moved;

	send_all(l, count);
	moved = poll_all(l, count);
	forget_answered(l, count);
	return moved;
}

/* ---- A queue that has ended ---- */

/*
 * A view of the queue as it is now, when no view is in use any more. In this order, because a reset of the device in between makes
 * another queue, and that of the view stays until the next time.
 */
static int view(struct gnv_ublk_lane *l, struct gpunvme_dq *dq)
{
	const struct gpunvme_view v = { sizeof(v), l->ublk->read_only ? 0 : GPUNVME_VIEW_WRITE, l->ublk->ns.nsid, 0, 0 };

	gpunvme_queue_retire(l->qp);
	return gpunvme_queue_view(l->qp, &v, dq);
}

/* Somebody may have recovered it already: a watchdog, or a reset for the sake of another queue. */
static int renew(struct gnv_ublk_lane *l)
{
	struct gpunvme_dq dq;
	int ret = view(l, &dq);

	if (ret || dq.tag == l->dq.tag) {
		ret = gpunvme_queue_recover(l->qp);
		if (!ret)
			ret = view(l, &dq);
	}
	if (ret)
		return ret;
	l->dq = dq;
	__atomic_add_fetch(&l->recoveries, 1, __ATOMIC_RELAXED);
	return 0;
}

/* The controller has let go of every command: those are sent again, as it is not known which were carried out. */
static void recover(struct gnv_ublk_lane *l)
{
	const uint32_t count = l->sent + l->ready;
	struct gnv_ublk_tag *t;
	int ret = renew(l);
	uint32_t i;

	l->broken = false;
	l->dead = ret;
	l->next_try = gnv_clock_ns() + DEAD_NS;
	for (i = 0; i < count; i++) {
		t = l->own[i];
		if (t->where != GNV_UBLK_SENT)
			continue;
		l->sent--;
		l->ready++;
		t->where = GNV_UBLK_READY;
		if (!ret && ++t->tries < TRIES)
			continue;
		l->ready--;
		answer(l, t, -EIO);
	}
	forget_answered(l, count);
}

/* The program may have reset the device, which brings its queues back. */
static void look_again(struct gnv_ublk_lane *l)
{
	struct gpunvme_dq dq;

	if (gnv_clock_ns() < l->next_try)
		return;
	l->next_try = gnv_clock_ns() + DEAD_NS;
	if (view(l, &dq) || dq.tag == l->dq.tag)
		return;
	l->dq = dq;
	l->dead = false;
}

/* ---- Life ---- */

static int fetch_all(struct gnv_ublk_lane *l)
{
	struct gnv_uring_done done;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < l->ublk->info.depth && !ret; i++)
		ret = tell(l, &l->tag[i], GNV_UBLK_FETCH, 0);
	if (!ret)
		ret = gnv_uring_turn(l->ring, 0);
	/* The driver refuses at once. The last queue of a block device that is recovered may have a request now. */
	if (ret || !gnv_uring_reap(l->ring, &done, 1))
		return ret;
	take(l, &done);
	return done.res;
}

static int turn(struct gnv_ublk_lane *l)
{
	bool came = take_all(l), ended;
	int ret;

	if (l->dead)
		look_again(l);
	ended = look_at_tags(l);
	if (l->broken)
		recover(l);
	ret = gnv_uring_turn(l->ring, gnv_ublk_rest(l, came, ended));
	if (l->unanswered)
		return -EBUSY;
	return ret == -EAGAIN ? 0 : ret;
}

static int begin(struct gnv_ublk_lane *l)
{
	int ret = gnv_uring_open_wide(l->ublk->info.depth, l->ublk->fd, &l->ring);

	if (ret)
		return ret;
	return fetch_all(l);
}

/* Out of memory, for one, may pass. */
static int turn_or_wait(struct gnv_ublk_lane *l)
{
	struct gnv_deadline deadline;
	int ret = turn(l);

	if (!ret)
		return 0;
	deadline = gnv_deadline_in(BROKEN_MS);
	while (ret && !leaving(l) && gnv_deadline_poll_again(&deadline))
		ret = turn(l);
	return ret;
}

/*
 * No request of its queue can be completed any more. The driver treats the server as dead when its rings are closed: the end of a
 * ring cancels what waits there (ublk_uring_cmd_cancel_fn()). So the other threads end, too, and the next server finds all
 * requests.
 */
static void fail_lane(struct gnv_ublk_lane *l, int why)
{
	struct gpunvme_ublk *u = l->ublk;
	int32_t none = 0;

	__atomic_compare_exchange_n(&u->error, &none, why, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	__atomic_add_fetch(&u->ended, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&u->leave, 1, __ATOMIC_RELEASE);
}

void *gnv_ublk_lane_run(void *arg)
{
	struct gnv_ublk_lane *l = arg;
	int ret;

	gnv_sys_serves_io();
	ret = begin(l);
	__atomic_store_n(&l->state, ret, __ATOMIC_RELEASE);
	if (!ret) {
		while (!ret && (l->sent || l->ready || (l->awaited && !leaving(l))))
			ret = turn_or_wait(l);
		if (ret)
			fail_lane(l, ret);
	}
	gnv_uring_close(l->ring);
	return NULL;
}
