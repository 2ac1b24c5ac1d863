/* SPDX-License-Identifier: MIT */
#include "dev/watchdog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dev/dev.h"
#include "util/clock.h"
#include "util/thread.h"

struct gnv_watchdog {
	pthread_mutex_t lock; /* protects stop */
	pthread_cond_t wake;
	pthread_t thread;
	uint32_t period_ms;
	bool stop;
};

/* A recovery adds to the front of the list, and takes out no queue that this looks at. */
static void round_of(struct gpunvme_dev *dev)
{
	uint64_t now = gnv_clock_ns(), grace = dev->watchdog->period_ms * GNV_NS_PER_MS;
	struct gnv_dev_queue *q;

	pthread_mutex_lock(&dev->queues_lock);
	for (q = dev->queues.first; q; q = q->next)
		q->ops->watch(q, now, grace);
	pthread_mutex_unlock(&dev->queues_lock);
}

static void *watch(void *arg)
{
	struct gpunvme_dev *dev = arg;
	struct gnv_watchdog *dog = dev->watchdog;
	struct timespec until;

	pthread_mutex_lock(&dog->lock);
	while (!dog->stop) {
		uint64_t at = gnv_clock_ns() + dog->period_ms * GNV_NS_PER_MS;

		until = (struct timespec){ .tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u) };
		pthread_cond_timedwait(&dog->wake, &dog->lock, &until);
		if (dog->stop)
			break;
		pthread_mutex_unlock(&dog->lock);
		round_of(dev);
		pthread_mutex_lock(&dog->lock);
	}
	pthread_mutex_unlock(&dog->lock);
	return NULL;
}

static void release(struct gpunvme_dev *dev)
{
	pthread_cond_destroy(&dev->watchdog->wake);
	pthread_mutex_destroy(&dev->watchdog->lock);
	free(dev->watchdog);
	dev->watchdog = NULL;
}

int gnv_watchdog_start(struct gpunvme_dev *dev, uint32_t period_ms)
{
	struct gnv_watchdog *dog = calloc(1, sizeof(*dog));
	pthread_condattr_t attr;
	int ret;

	if (!dog)
		return gnv_fail(-ENOMEM, "out of memory");
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&dog->lock, NULL);
	pthread_cond_init(&dog->wake, &attr);
	pthread_condattr_destroy(&attr);
	dog->period_ms = period_ms;
	dev->watchdog = dog;
	ret = gnv_thread_start(&dog->thread, watch, dev);
	if (!ret)
		return 0;
	release(dev);
	return gnv_fail(ret, "no thread for the watchdog: %s", strerror(-ret));
}

void gnv_watchdog_stop(struct gpunvme_dev *dev)
{
	struct gnv_watchdog *dog = dev->watchdog;

	if (!dog)
		return;
	pthread_mutex_lock(&dog->lock);
	dog->stop = true;
	pthread_cond_signal(&dog->wake);
	pthread_mutex_unlock(&dog->lock);
	pthread_join(dog->thread, NULL);
	release(dev);
}
