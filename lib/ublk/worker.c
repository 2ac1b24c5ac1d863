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

static bool leaving(const struct gnv_ublk_worker *w)
{
	return __atomic_load_n(&w->ublk->leave, __ATOMIC_ACQUIRE);
}

/* ---- The driver ---- */

static int command(struct gnv_ublk_worker *w, struct gnv_ublk_tag *t, uint32_t op, int result)
{
	const struct gnv_ublk_io io = { (uint16_t)w->number, (uint16_t)(t - w->tag), result, (uintptr_t)gpunvme_mem_ptr(t->mem) };
	int ret = gnv_uring_command(w->ring, op, &io, sizeof(io), t);

	if (!ret) {
		t->where = GNV_UBLK_AWAITED;
		w->awaited++;
	}
	return ret;
}

/* Its ring has an entry for each tag, or, when memory was short, room for as long as it works (setup_within_limit()). */
static void complete(struct gnv_ublk_worker *w, struct gnv_ublk_tag *t, int ret)
{
	__atomic_add_fetch(&w->requests, 1, __ATOMIC_RELAXED);
	if (ret)
		__atomic_add_fetch(&w->failed, 1, __ATOMIC_RELAXED);
	if (command(w, t, GNV_UBLK_COMMIT_AND_FETCH, gnv_ublk_result(t, ret))) {
		t->where = GNV_UBLK_GONE;
		w->uncommitted = true;
	}
}

/* A request has come, or the news that none will. */
static void take(struct gnv_ublk_worker *w, const struct gnv_uring_done *done)
{
	struct gnv_ublk_tag *t = done->tag;

	w->awaited--;
	if (done->res) { /* GNV_UBLK_ABORTED, or our command was refused */
		t->where = GNV_UBLK_GONE;
		return;
	}
	t->desc = w->desc[t - w->tag];
	t->where = GNV_UBLK_READY;
	t->tries = 0;
	w->own[w->ready + w->sent] = t;
	w->ready++;
}

static bool take_all(struct gnv_ublk_worker *w)
{
	struct gnv_uring_done done[REAP];
	unsigned i, n = gnv_uring_reap(w->ring, done, REAP);

	for (i = 0; i < n; i++)
		take(w, &done[i]);
	return n;
}

/* ---- The controller ---- */

/* Results that say nothing of a command, but that its queue has ended. */
static bool ends_queue(int ret)
{
	return ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_EPROTO || ret == -GPUNVME_ENODEV ||
	       ret == -GPUNVME_ESTALE;
}

static void send_tag(struct gnv_ublk_worker *w, struct gnv_ublk_tag *t)
{
	int ret = w->dead ? -GPUNVME_ENODEV : gnv_ublk_send(w, t);

	if (ret == -GPUNVME_EAGAIN)
		return;
	if (!w->dead && ends_queue(ret)) {
		w->broken = true;
		return;
	}
	w->ready--;
	if (ret) {
		complete(w, t, ret);
		return;
	}
	t->where = GNV_UBLK_SENT;
	w->sent++;
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
static int poll_or_wait(struct gnv_ublk_worker *w, struct gnv_ublk_tag *t)
{
	int ret;

	if (w->sent + w->ready > 1)
		return gpunvme_poll(&w->dq, &t->req);
	ret = gpunvme_wait(&w->dq, &t->req, 1);
	if (ret != -GPUNVME_ETIMEDOUT)
		return ret;
	if (++w->looks % WAITS == 0)
		sched_yield();
	return gpunvme_poll(&w->dq, &t->req);
}

/* Return: the command is over. */
static bool poll_tag(struct gnv_ublk_worker *w, struct gnv_ublk_tag *t)
{
	int ret = poll_or_wait(w, t);

	if (ret == -GPUNVME_EAGAIN)
		return false;
	if (ends_queue(ret)) {
		w->broken = true;
		return false;
	}
	w->sent--;
	if (is_worth_more(t, ret)) {
		t->tries++;
		t->where = GNV_UBLK_READY;
		w->ready++;
	} else {
		complete(w, t, ret);
	}
	return true;
}

/* Those that are still owed, in their order. */
static void forget_completed(struct gnv_ublk_worker *w, uint32_t before)
{
	uint32_t i, n = 0;

	for (i = 0; i < before; i++)
		if (w->own[i]->where == GNV_UBLK_SENT || w->own[i]->where == GNV_UBLK_READY)
			w->own[n++] = w->own[i];
}

/*
 * From the oldest on, until one is not over: a look in vain is dear, it takes completions of all, and looks at the clock. And from
 * another one on, each time the next, as they need not end in their order. Return: something is over.
 */
static bool poll_all(struct gnv_ublk_worker *w, uint32_t count)
{
	uint32_t i, vain = 0;
	bool moved = false;

	for (i = 0; i < count && vain < 2 && !w->broken; i++) {
		if (w->own[i]->where != GNV_UBLK_SENT)
			continue;
		if (poll_tag(w, w->own[i])) {
			moved = true;
		} else if (!vain++) {
			w->next = w->next > i && w->next + 1 < count ? w->next + 1 : i + 1;
			i = w->next - 1;
		}
	}
	return moved;
}

static void send_all(struct gnv_ublk_worker *w, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count && w->ready && !w->broken; i++)
		if (w->own[i]->where == GNV_UBLK_READY)
			send_tag(w, w->own[i]);
}

static bool look_at_tags(struct gnv_ublk_worker *w)
{
	const uint32_t count = w->sent + w->ready;
	bool moved;

	send_all(w, count);
	moved = poll_all(w, count);
	forget_completed(w, count);
	return moved;
}

/* ---- A queue that has ended ---- */

/*
 * A view of the queue as it is now, when no view is in use any more. In this order, because a reset of the device in between makes
 * another queue, and that of the view stays until the next time.
 */
static int view(struct gnv_ublk_worker *w, struct gpunvme_dq *dq)
{
	const struct gpunvme_view v = { sizeof(v), w->ublk->read_only ? 0 : GPUNVME_VIEW_WRITE, w->ublk->ns.nsid, 0, 0 };

	gpunvme_queue_retire(w->qp);
	return gpunvme_queue_view(w->qp, &v, dq);
}

/* Somebody may have recovered it already: a watchdog, or a reset for the sake of another queue. */
static int renew(struct gnv_ublk_worker *w)
{
	struct gpunvme_dq dq;
	int ret = view(w, &dq);

	if (ret || dq.tag == w->dq.tag) {
		ret = gpunvme_queue_recover(w->qp);
		if (!ret)
			ret = view(w, &dq);
	}
	if (ret)
		return ret;
	w->dq = dq;
	__atomic_add_fetch(&w->recoveries, 1, __ATOMIC_RELAXED);
	return 0;
}

/* The controller has let go of every command: those are sent again, as it is not known which were carried out. */
static void recover(struct gnv_ublk_worker *w)
{
	const uint32_t count = w->sent + w->ready;
	struct gnv_ublk_tag *t;
	int ret = renew(w);
	uint32_t i;

	w->broken = false;
	w->dead = ret;
	w->next_try = gnv_clock_ns() + DEAD_NS;
	for (i = 0; i < count; i++) {
		t = w->own[i];
		if (t->where != GNV_UBLK_SENT)
			continue;
		w->sent--;
		w->ready++;
		t->where = GNV_UBLK_READY;
		if (!ret && ++t->tries < TRIES)
			continue;
		w->ready--;
		complete(w, t, -EIO);
	}
	forget_completed(w, count);
}

/* The program may have reset the device, which brings its queues back. */
static void look_again(struct gnv_ublk_worker *w)
{
	struct gpunvme_dq dq;

	if (gnv_clock_ns() < w->next_try)
		return;
	w->next_try = gnv_clock_ns() + DEAD_NS;
	if (view(w, &dq) || dq.tag == w->dq.tag)
		return;
	w->dq = dq;
	w->dead = false;
}

/* ---- Life ---- */

static int fetch_all(struct gnv_ublk_worker *w)
{
	struct gnv_uring_done done;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < w->ublk->info.depth && !ret; i++)
		ret = command(w, &w->tag[i], GNV_UBLK_FETCH, 0);
	if (!ret)
		ret = gnv_uring_turn(w->ring, 0);
	/* The driver refuses at once. The last queue of a block device that is recovered may have a request now. */
	if (ret || !gnv_uring_reap(w->ring, &done, 1))
		return ret;
	take(w, &done);
	return done.res;
}

static int turn(struct gnv_ublk_worker *w)
{
	bool came = take_all(w), ended;
	int ret;

	if (w->dead)
		look_again(w);
	ended = look_at_tags(w);
	if (w->broken)
		recover(w);
	ret = gnv_uring_turn(w->ring, gnv_ublk_rest(w, came, ended));
	if (w->uncommitted)
		return -EBUSY;
	return ret == -EAGAIN ? 0 : ret;
}

static int begin(struct gnv_ublk_worker *w)
{
	int ret = gnv_uring_open_wide(w->ublk->info.depth, w->ublk->fd, &w->ring);

	if (ret)
		return ret;
	return fetch_all(w);
}

/* Out of memory, for one, may pass. */
static int turn_or_wait(struct gnv_ublk_worker *w)
{
	struct gnv_deadline deadline;
	int ret = turn(w);

	if (!ret)
		return 0;
	deadline = gnv_deadline_in(BROKEN_MS);
	while (ret && !leaving(w) && gnv_deadline_poll_again(&deadline))
		ret = turn(w);
	return ret;
}

/*
 * No request of its queue can be completed any more. The driver treats the server as dead when its rings are closed: the end of a
 * ring cancels what waits there (ublk_uring_cmd_cancel_fn()). So the other threads end, too, and the next server finds all
 * requests.
 */
static void fail_worker(struct gnv_ublk_worker *w, int why)
{
	struct gpunvme_ublk *u = w->ublk;
	int32_t none = 0;

	__atomic_compare_exchange_n(&u->error, &none, why, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	__atomic_add_fetch(&u->ended, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&u->leave, 1, __ATOMIC_RELEASE);
}

void *gnv_ublk_worker_run(void *arg)
{
	struct gnv_ublk_worker *w = arg;
	int ret;

	gnv_sys_serves_io();
	ret = begin(w);
	__atomic_store_n(&w->state, ret, __ATOMIC_RELEASE);
	if (!ret) {
		while (!ret && (w->sent || w->ready || (w->awaited && !leaving(w))))
			ret = turn_or_wait(w);
		if (ret)
			fail_worker(w, ret);
	}
	gnv_uring_close(w->ring);
	return NULL;
}
