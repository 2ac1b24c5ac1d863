/* SPDX-License-Identifier: MIT */
/* Operations of a device on a queue pair (dev/queues.h): end, reset and watch it, and find the commands that the controller has. */
#include "queue/qp_recover.h"
#include "util/clock.h"

static struct gnv_qp *of(struct gnv_dev_queue *q)
{
	return gnv_container_of(q, struct gnv_qp, node);
}

static const struct gnv_qp *of_const(const struct gnv_dev_queue *q)
{
	return gnv_container_of(q, const struct gnv_qp, node);
}

static void end(struct gnv_dev_queue *q, uint32_t cause)
{
	gnv_qp_command(of(q), cause);
}

static void silence(struct gnv_dev_queue *q)
{
	gnv_qp_silence(of(q));
}

/* A queue whose deletion failed before, and that no program has, can go. Others end for their threads. */
static void forget(struct gnv_dev_queue *q)
{
	struct gnv_qp *qp = of(q);

	__atomic_store_n(&qp->sq_exists, false, __ATOMIC_RELAXED);
	qp->cq_exists = false;
	if (qp->zombie && !qp->kept)
		gnv_qp_release(qp);
	else
		gnv_qp_command(qp, GPUNVME_ESHUTDOWN);
}

static int renew(struct gnv_dev_queue *q)
{
	struct gnv_qp *qp = of(q);
	int ret = qp->heir || qp->zombie ? 0 : gnv_qp_renew(qp);

	if (ret)
		gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_ERROR, "queue %u: %s", qp->qid, gpunvme_errmsg());
	return qp->internal ? 0 : ret; /* the internal queue is made again when it is used */
}

/* ---- The watchdog ---- */

static bool is_silent(struct gnv_qp *qp, uint64_t now, uint64_t grace_ns)
{
	uint64_t limit = qp->cmd_timeout / gnv_gpu_ticks_per_ms(qp->gpu) * GNV_NS_PER_MS + grace_ns;
	struct gnv_watched *w = &qp->watched;
	uint32_t in_flight = gnv_qp_in_flight(qp);
	struct gpunvme_dq_state state;

	gnv_qp_state_read(qp, &state);
	if (!w->since || !in_flight || in_flight != w->in_flight || state.pub != w->pub || state.fetched != w->fetched ||
	    gnv_qp_completion_waits(qp, &state)) {
		*w = (struct gnv_watched){ state.pub, state.fetched, now, in_flight, w->hopeless };
		return false;
	}
	return now - w->since > limit;
}

static void watch(struct gnv_dev_queue *q, uint64_t now, uint64_t grace_ns)
{
	struct gnv_qp *qp = of(q);
	uint32_t poison;

	if (qp->heir || qp->zombie || !qp->sq_db || qp->watched.hopeless)
		return;
	poison = gnv_qp_poisoned(qp);
	if (!poison && !is_silent(qp, now, grace_ns))
		return;
	gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_WARN, "queue %u: %s. Recovering it", qp->qid,
		poison ? gpunvme_strerror(-(int)poison) : "commands in flight and no sign of life");
	if (!gnv_qp_recover(qp))
		return;
	qp->watched.hopeless = true;
	gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_ERROR, "queue %u: %s", qp->qid, gpunvme_errmsg());
}

/* ---- Commands that the controller has ---- */

static bool may_reach(const struct gnv_qp *qp)
{
	return qp->zombie || __atomic_load_n(&qp->sq_exists, __ATOMIC_RELAXED);
}

static void mark(struct gnv_dev_queue *q)
{
	of(q)->mark = gnv_qp_position(of(q));
}

static uint32_t before_mark(const struct gnv_dev_queue *q)
{
	const struct gnv_qp *qp = of_const(q);

	return may_reach(qp) && gnv_qp_oldest(qp) < qp->mark ? qp->qid : 0;
}

static uint32_t busy(const struct gnv_dev_queue *q, bool well, bool *over)
{
	const struct gnv_qp *qp = of_const(q);
	const bool ended = qp->zombie || gnv_qp_poisoned(qp);

	if (!may_reach(qp) || !(well || ended) || !gnv_qp_in_flight(qp))
		return 0;
	*over = ended;
	return qp->qid;
}

static bool unfenced(const struct gnv_dev_queue *q, const struct gpunvme_gpu *gpu)
{
	return of_const(q)->unfenced && gnv_gpu_same(of_const(q)->gpu, gpu);
}

const struct gnv_queue_ops gnv_qp_ops = { end, silence, forget, renew, watch, mark, before_mark, busy, unfenced };
