/* SPDX-License-Identifier: MIT */
#include "run/completions.h"

#include <gpunvme/device.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define REST_NS (10 * GNV_NS_PER_MS) /* while all pairs have ended or are stopped */

struct gnv_completions {
	pthread_t thread;
	pthread_mutex_t end_lock; /* of those that end it */
	pthread_mutex_t lock;	  /* of what follows but `word` */
	pthread_cond_t changed;
	unsigned paused;
	bool idle; /* it uses no view */
	bool end;
	bool joined; /* with end_lock */
	uint32_t word; /* of gpunvme_poll_queue(): not 0 ends the call (atomic) */
	gnv_completions_fn *views;
	void *ctx;
	struct gpunvme_dq dq[];
};

/* With the lock held: until something changes, or the pairs may go on. */
static void rest(struct gnv_completions *c)
{
	const uint64_t at = gnv_clock_ns() + REST_NS;
	const struct timespec until = { (time_t)(at / 1000000000u), (long)(at % 1000000000u) };

	if (!__atomic_load_n(&c->word, __ATOMIC_RELAXED))
		pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

/* With the lock held, which is not during the call of the kernels' function. */
static void take(struct gnv_completions *c)
{
	uint32_t count;
	int ret;

	c->idle = false;
	__atomic_store_n(&c->word, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&c->lock);
	count = c->views(c->ctx, c->dq);
	ret = gpunvme_poll_queue(c->dq, count, (uintptr_t)&c->word);
	pthread_mutex_lock(&c->lock);
	c->idle = true;
	pthread_cond_broadcast(&c->changed);
	if (ret)
		rest(c);
}

static void *run(void *arg)
{
	struct gnv_completions *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->end) {
		if (c->paused)
			pthread_cond_wait(&c->changed, &c->lock);
		else
			take(c);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static void destroy(struct gnv_completions *c)
{
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->end_lock);
	free(c);
}

int gnv_completions_start(uint32_t most, gnv_completions_fn *views, void *ctx, struct gnv_completions **out)
{
	struct gnv_completions *c = calloc(1, sizeof(*c) + most * sizeof(struct gpunvme_dq));
	pthread_condattr_t attr;
	int ret;

	if (!c)
		return gnv_fail(-ENOMEM, "out of memory");
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->end_lock, NULL);
	c->views = views;
	c->ctx = ctx;
	c->idle = true;
	c->paused = 1; /* until *out is set: a pair that changes after the first views has to find it */
	ret = gnv_thread_start(&c->thread, run, c);
	if (!ret) {
		__atomic_store_n(out, c, __ATOMIC_RELEASE);
		gnv_completions_resume(c);
		return 0;
	}
	destroy(c);
	return gnv_fail(ret, "no completion thread. Raise the limit of threads (ulimit -u)");
}

/* With the lock held. */
static void interrupt(struct gnv_completions *c)
{
	__atomic_store_n(&c->word, 1, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&c->changed);
}

void gnv_completions_renew(struct gnv_completions *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	interrupt(c);
	pthread_mutex_unlock(&c->lock);
}

void gnv_completions_pause(struct gnv_completions *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->paused++;
	interrupt(c);
	while (!c->idle)
		pthread_cond_wait(&c->changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

void gnv_completions_resume(struct gnv_completions *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->paused--;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

void gnv_completions_end(struct gnv_completions *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->end = true;
	interrupt(c);
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_lock(&c->end_lock);
	if (!c->joined)
		pthread_join(c->thread, NULL);
	c->joined = true;
	pthread_mutex_unlock(&c->end_lock);
}

void gnv_completions_free(struct gnv_completions *c)
{
	if (!c)
		return;
	gnv_completions_end(c);
	destroy(c);
}
