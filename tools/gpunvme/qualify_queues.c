/* SPDX-License-Identifier: MIT */
/* Rows about queues: count, depth, full, aborted, recovered and reset under I/O, and the long run over all blocks. */
#include "qualify_churn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunvme/device.h>

#define EACH 32 /* commands on each queue */
#define MANY 128
#define SHORT 64
#define THREADS 32 /* that use queues at once: more threads than that only keep each other waiting */
#define FEW 4	/* threads on one queue */
#define ROUNDS 3
#define SLOTS 64 /* of the buffer, that the commands of a full queue share */
#define IN_FLIGHT 16
#define DEEPEST 65536u

/* ---- How many ---- */

struct queues {
	struct gpunvme_queue **queue;
	struct gpunvme_dq *dq;
	uint32_t count;
};

static void close_queues(struct queues *q)
{
	for (uint32_t i = 0; q->queue && i < q->count; i++)
		gpunvme_queue_destroy(q->queue[i]);
	free(q->queue);
	free(q->dq);
}

/* Open all other queues. If there are very many, make them short, so that their rings fit the limit of locked memory. */
static int open_queues(struct qualify *a, struct queues *q)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	int ret = 0;

	q->count = a->s.info.queues - 1;
	q->queue = calloc(q->count + 1, sizeof(struct gpunvme_queue *));
	q->dq = calloc(q->count + 1, sizeof(*q->dq));
	if (!q->queue || !q->dq)
		return qualify_fail(a, "no memory for %u queues", q->count);
	opts.depth = q->count < MANY || a->s.info.max_depth < SHORT ? 0 : SHORT;
	for (uint32_t i = 0; i < q->count && !ret; i++) {
		ret = gpunvme_queue_create(a->s.dev, a->s.gpu, &opts, &q->queue[i]);
		if (!ret)
			ret = qualify_view(a, q->queue[i], &q->dq[i]);
		if (ret)
			return qualify_fail(a, "queue %u of %u: %s", i + 2, q->count + 1, why(ret));
	}
	return QUALIFY_PASSED;
}

/* Give thread after thread a queue. With fewer threads than queues, go on until all queues were used. */
static int use_queues(struct qualify *a, const struct queues *q)
{
	struct churn *c = churn_open(a, q->count < THREADS ? q->count + 1 : THREADS);
	uint32_t used = 0, i;
	int ret = c ? QUALIFY_PASSED : QUALIFY_FAILED;

	while (ret == QUALIFY_PASSED && !interrupted && used <= q->count) {
		for (i = 0; i < churn_threads(c) && used <= q->count; i++, used++)
			churn_use(c, i, used ? &q->dq[used - 1] : &a->dq);
		ret = churn_run(c, EACH, 0, NULL);
	}
	if (ret == QUALIFY_PASSED)
		ret = churn_verify(c);
	if (ret == QUALIFY_PASSED)
		qualify_say(a, "%u queue pairs at once, %u commands on each", q->count + 1, EACH);
	if (c)
		churn_close(c);
	return ret;
}

int row_queues(struct qualify *a)
{
	struct queues q = { NULL, NULL, 0 };
	int ret = open_queues(a, &q);

	if (ret == QUALIFY_PASSED)
		ret = use_queues(a, &q);
	put_count(a->figures, "queues", a->s.info.queues);
	close_queues(&q);
	return ret;
}

/* ---- How deep, and full ---- */

struct fill {
	struct qualify *a;
	struct gpunvme_req *req;
	uint64_t filled; /* the most commands that were in flight or unclaimed */
	uint32_t passes;
	int status;
};

/* Read one page with each command until the queue is full, then wait for all. The rings wrap around. */
static void fill_kernel(void *arg)
{
	struct fill *f = arg;
	const struct qualify *a = f->a;
	const uint64_t bytes = (uint64_t)a->page_blocks * a->lba_size;

	for (uint32_t pass = 0; pass < f->passes && !f->status; pass++) {
		uint32_t n = 0;
		int status = 0;

		while (!status && n < a->dq.cids) {
			const uint64_t slot = n % SLOTS;

			status = gpunvme_submit_read(&a->dq, &a->s.dbuf, slot * bytes,
						     (uint64_t)(slot * a->page_blocks % a->area) << a->dq.lba_shift,
						     (uint64_t)a->page_blocks << a->dq.lba_shift, &f->req[n]);
			n += !status;
		}
		f->filled = n > f->filled ? n : f->filled;
		f->status = status == -GPUNVME_EAGAIN ? 0 : status;
		for (uint32_t i = 0; i < n; i++) {
			status = gpunvme_wait(&a->dq, &f->req[i], 0);
			f->status = f->status ? f->status : status;
		}
	}
}

static int fill_queue(struct qualify *a, uint32_t depth)
{
	const uint32_t used =
		SLOTS * a->page_blocks < a->area ? SLOTS * a->page_blocks : (uint32_t)(a->area / a->page_blocks * a->page_blocks);
	const size_t bytes = (size_t)used * a->lba_size;
	struct fill f = { a, calloc(a->dq.cids, sizeof(*f.req)), 0, depth < 1024 ? 3 : 1, 0 };
	int ret = qualify_move(a, QUALIFY_READ, QUALIFY_BACK, 0, used, a->page_blocks);

	memset(a->data, 0xee, bytes);
	if (!ret)
		ret = f.req ? gpunvme_cpu_launch(1, 1, fill_kernel, &f) : -ENOMEM;
	free(f.req);
	if (ret || f.status)
		return qualify_fail(a, "a full queue of %u entries: %s", depth, qualify_why(ret ? ret : f.status));
	/* One entry of a ring always stays free. More than a ring: commands that have completed and were not waited for. */
	if (f.filled < depth - 1 && f.filled < a->dq.cids)
		return qualify_fail(a, "a queue of %u entries took only %" PRIu64 " commands", depth, f.filled);
	if (f.filled >= SLOTS && memcmp(a->data, a->data + QUALIFY_BACK, bytes) != 0)
		return qualify_fail(a, "a full queue of %u entries: its commands brought other data than commands one by one",
				    depth);
	return QUALIFY_PASSED;
}

int row_depths(struct qualify *a)
{
	uint32_t most = a->s.info.max_depth < DEEPEST ? a->s.info.max_depth : DEEPEST, depth, last = 0;
	int ret = QUALIFY_PASSED;

	for (depth = 2; depth <= most && ret == QUALIFY_PASSED && !interrupted; depth *= 2) {
		qualify_close_queue(a); /* a drive may have no other */
		ret = qualify_open_queue(a, depth);
		ret = ret ? qualify_fail(a, "a queue of %u entries: %s", depth, why(ret)) : fill_queue(a, depth);
		last = depth;
	}
	qualify_close_queue(a);
	put_count(a->figures, "deepest", last);
	if (ret == QUALIFY_PASSED)
		qualify_say(a, "queues of 2 to %u entries, each filled up", last);
	return ret;
}

/* ---- Aborted ---- */

struct aborts {
	struct qualify *a;
	uint32_t asked, done; /* commands: reported as aborted, and with an aborted status */
	int status;
	char why[200];
};

static int ask_abort(struct aborts *x, const struct gpunvme_req *req)
{
	const struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_ABORT, .cdw10 = x->a->dq.qid | req->cid << 16 };
	uint32_t result = 1;
	int ret = gpunvme_dev_admin(x->a->s.dev, &cmd, NULL, 0, 0, &result);

	x->asked += !ret && !(result & 1);
	if (ret)
		snprintf(x->why, sizeof(x->why), "%s", why(ret));
	return ret;
}

static void abort_kernel(void *arg)
{
	struct aborts *x = arg;
	const struct qualify *a = x->a;
	const uint64_t most =
		a->dq.max_blocks < QUALIFY_BACK / IN_FLIGHT / a->lba_size ? a->dq.max_blocks : QUALIFY_BACK / IN_FLIGHT / a->lba_size;
	const uint32_t blocks = (uint32_t)(most < a->area ? most : a->area);
	struct gpunvme_req req[IN_FLIGHT];
	uint32_t n = 0;
	int status = 0, ret = 0;

	while (!status && n < IN_FLIGHT) {
		status = gpunvme_submit_read(&a->dq, &a->s.dbuf, n * (QUALIFY_PLACE / IN_FLIGHT), 0,
					     (uint64_t)blocks << a->dq.lba_shift, &req[n]);
		n += !status;
	}
	for (uint32_t i = n; i-- > 0 && !ret;)
		ret = ask_abort(x, &req[i]);
	for (uint32_t i = 0; i < n; i++) {
		int end = gpunvme_wait(&a->dq, &req[i], 0);

		if (end > 0 && (end & (int)GPUNVME_ST_CODE) == GPUNVME_SC_ABORT_REQUESTED)
			x->done++;
		else if (end)
			x->status = end;
	}
	if (status && status != -GPUNVME_EAGAIN)
		x->status = status;
	if (ret)
		x->status = ret;
}

/* A drive may complete a command before the abort arrives. Then both report success. */
int row_abort(struct qualify *a)
{
	struct aborts x = { .a = a };
	int ret = gpunvme_cpu_launch(1, 1, abort_kernel, &x);

	put_count(a->figures, "aborted", x.done);
	if (ret || x.status)
		return qualify_fail(a, "%s", *x.why ? x.why : qualify_why(ret ? ret : x.status));
	if (x.done != x.asked) {
		qualify_say(a, "the drive reports %u commands as aborted, but %u have that status", x.asked, x.done);
		return QUALIFY_LIMIT;
	}
	qualify_say(a, "of %u reads in flight %u were aborted, the others ended well", IN_FLIGHT, x.done);
	return QUALIFY_PASSED;
}

/* ---- Recovered and reset under I/O ---- */

static int recover(struct qualify *a)
{
	return gpunvme_queue_recover(a->queue);
}

static int reset(struct qualify *a)
{
	return gpunvme_dev_reset(a->s.dev);
}

static int view_again(struct qualify *a, struct churn *c)
{
	int ret = gpunvme_queue_retire(a->queue);

	if (!ret)
		ret = qualify_view(a, a->queue, &a->dq);
	if (ret)
		return qualify_fail(a, "%s", why(ret));
	for (uint32_t i = 0; i < churn_threads(c); i++)
		churn_use(c, i, &a->dq);
	return QUALIFY_PASSED;
}

static int under_fire(struct qualify *a, int (*act)(struct qualify *a), const char *what)
{
	struct churn *c = churn_open(a, FEW);
	int ret = c ? QUALIFY_PASSED : QUALIFY_FAILED;
	double start = now_s();

	for (int round = 0; round < ROUNDS && ret == QUALIFY_PASSED && !interrupted; round++) {
		ret = churn_run(c, 0, 0, act);
		if (ret == QUALIFY_PASSED)
			ret = view_again(a, c);
		if (ret == QUALIFY_PASSED)
			ret = churn_verify(c);
	}
	if (ret == QUALIFY_PASSED)
		qualify_say(a, "%u times with %u threads at work, %.0f ms each: %s", ROUNDS, churn_threads(c),
			    (now_s() - start) * 1e3 / ROUNDS, what);
	if (c)
		churn_close(c);
	return ret;
}

int row_recover(struct qualify *a)
{
	return under_fire(a, recover, "commands aborted, the queue deleted and made again, and every block is right");
}

int row_reset(struct qualify *a)
{
	return under_fire(a, reset, "the controller reset, and every block is right");
}

/* ---- The long run ---- */

#define VERIFY_S 2.0

int row_stamps(struct qualify *a)
{
	const double left = a->start + a->seconds - VERIFY_S - now_s(), least = a->seconds < 20 ? a->seconds / 20 : 1;
	struct churn *c = churn_open(a, FEW);
	int ret;

	if (!c)
		return QUALIFY_FAILED;
	ret = churn_run(c, 0, left > least ? left : least, NULL);
	if (ret == QUALIFY_PASSED)
		ret = churn_verify(c);
	put_count(a->figures, "commands", churn_done(c));
	if (ret == QUALIFY_PASSED)
		qualify_say(a, "%" PRIu64 " %s of %s at random places, then every block: all right", churn_done(c),
			    a->write ? "writes and reads" : "reads", human(16 * KIB));
	churn_close(c);
	return ret;
}
