/* SPDX-License-Identifier: MIT */
/*
 * Copies doorbells. While they change, the thread polls. Otherwise it yields its CPU, then sleeps, longer and longer, up to a
 * millisecond, and after a second up to four. So the first command after a pause may start that much later.
 * Invariant: a CQ head is read after and written before the SQ tail of the same queue. Commands up to that tail use entries of the
 * CQ that heads up to that one gave back. So the controller never sees a fuller CQ than the threads do.
 */
#include "nvme/forward.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "util/bits.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/mmio.h"
#include "util/thread.h"

#define SPIN_NS 50000u
#define YIELD_NS 500000u
#define SLEEP_MIN_US 20u
#define SLEEP_MAX_US 1000u
#define LONG_NS 1000000000u
#define SLEEP_LONG_US 4000u

struct pace {
	uint64_t idle_since; /* 0: busy */
	unsigned sleep_us;
};

static void lock(struct gnv_forward *forward)
{
	__atomic_fetch_add(&forward->wanted, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&forward->lock);
	__atomic_fetch_sub(&forward->wanted, 1, __ATOMIC_RELAXED);
}

/* True when something had changed. */
static bool copy(struct gnv_forward_queue *queue)
{
	uint32_t sq = gnv_word_read32(&queue->bells->sq), cq = gnv_word_read32(&queue->bells->cq);
	bool changed = cq != queue->cq || sq != queue->sq;

	if (cq != queue->cq)
		gnv_mmio_write32(queue->cq_reg, cq);
	if (sq != queue->sq)
		gnv_mmio_write32(queue->sq_reg, sq);
	queue->cq = cq;
	queue->sq = sq;
	return changed;
}

static void rest(struct pace *pace)
{
	uint64_t now = gnv_clock_ns(), idle;
	struct timespec t = { 0, 0 };

	if (!pace->idle_since)
		*pace = (struct pace){ now, SLEEP_MIN_US };
	idle = now - pace->idle_since;
	if (idle < SPIN_NS) {
		gnv_cpu_pause();
	} else if (idle < YIELD_NS) {
		sched_yield();
	} else {
		t.tv_nsec = (long)pace->sleep_us * 1000;
		nanosleep(&t, NULL);
		pace->sleep_us = (unsigned)gnv_min(2 * pace->sleep_us, idle < LONG_NS ? SLEEP_MAX_US : SLEEP_LONG_US);
	}
}

static void *forward_main(void *arg)
{
	struct gnv_forward *forward = arg;
	struct pace pace = { 0, 0 };
	struct gnv_forward_queue *queue;
	bool changed, stop;

	do {
		while (__atomic_load_n(&forward->wanted, __ATOMIC_RELAXED))
			sched_yield();
		pthread_mutex_lock(&forward->lock);
		while (!forward->queues && !forward->stop)
			pthread_cond_wait(&forward->wake, &forward->lock);
		for (changed = false, queue = forward->queues; queue; queue = queue->next)
			changed |= copy(queue);
		stop = forward->stop;
		pthread_mutex_unlock(&forward->lock);
		if (changed)
			pace.idle_since = 0;
		else
			rest(&pace);
	} while (!stop);
	return NULL;
}

void gnv_forward_init(struct gnv_forward *forward)
{
	memset(forward, 0, sizeof(*forward));
	pthread_mutex_init(&forward->lock, NULL);
	pthread_cond_init(&forward->wake, NULL);
}

void gnv_forward_stop(struct gnv_forward *forward)
{
	lock(forward);
	forward->stop = true;
	pthread_cond_signal(&forward->wake);
	pthread_mutex_unlock(&forward->lock);
	if (forward->running)
		pthread_join(forward->thread, NULL);
	forward->running = false;
}

void gnv_forward_fini(struct gnv_forward *forward)
{
	gnv_forward_stop(forward);
	pthread_cond_destroy(&forward->wake);
	pthread_mutex_destroy(&forward->lock);
}

int gnv_forward_add(struct gnv_forward *forward, struct gnv_forward_queue *queue, const struct gnv_ctrl *ctrl, uint32_t qid,
		    const struct gnv_bells *bells)
{
	int ret = 0;

	*queue = (struct gnv_forward_queue){ .bells = bells,
					     .sq_reg = ctrl->bar + gnv_ctrl_sq_doorbell(ctrl, qid),
					     .cq_reg = ctrl->bar + gnv_ctrl_cq_doorbell(ctrl, qid) };
	lock(forward);
	if (!forward->running)
		ret = gnv_thread_start(&forward->thread, forward_main, forward);
	if (!ret) {
		forward->running = true;
		queue->next = forward->queues;
		forward->queues = queue;
		pthread_cond_signal(&forward->wake);
	}
	pthread_mutex_unlock(&forward->lock);
	return ret ? gnv_fail(ret, "no thread for the doorbells of queue %u: %s", qid, strerror(-ret)) : 0;
}

void gnv_forward_remove(struct gnv_forward *forward, struct gnv_forward_queue *queue)
{
	struct gnv_forward_queue **link;

	lock(forward);
	for (link = &forward->queues; *link && *link != queue; link = &(*link)->next)
		;
	if (*link)
		*link = queue->next;
	pthread_mutex_unlock(&forward->lock);
}
