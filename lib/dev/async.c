/* SPDX-License-Identifier: MIT */
/*
 * Base Specification 5.2 (Asynchronous Event Request), 5.27.1.8 (which events are wanted).
 * Invariant: an event is reported once, before its log page is read. Until then the controller reports no other of its type.
 */
#include "dev/async.h"

#include <string.h>
#include <time.h>

#include "dev/dev.h"
#include "util/clock.h"
#include "util/thread.h"

#define PERIOD_MS 100u
#define CSTS_PAUSED 0x20u /* while firmware is activated no command is processed */
#define CHANGED_NAMESPACES 0x04u
#define WARNINGS 0x1fu	/* of the SMART log: spare, temperature, reliability, read-only, backup */
#define NOTICES 0x0300u /* OAES and feature 0Bh: namespace attributes, firmware activation */

enum { TYPE_SMART = 1, TYPE_NOTICE = 2 };

void gnv_async_init(struct gnv_async *async)
{
	pthread_condattr_t attr;

	memset(async, 0, sizeof(*async));
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&async->lock, NULL);
	pthread_cond_init(&async->wake, &attr);
	pthread_condattr_destroy(&attr);
}

void gnv_async_fini(struct gnv_async *async)
{
	pthread_cond_destroy(&async->wake);
	pthread_mutex_destroy(&async->lock);
}

/* Events that the program wants already stay. Its later settings replace these. */
static int set_wanted(struct gpunvme_dev *dev)
{
	uint32_t value = 0;
	int ret = gpunvme_dev_get_feature(dev, GPUNVME_FID_ASYNC_EVENT, &value);

	value |= dev->nvme.asks.oaes & NOTICES;
	if (!ret)
		ret = gpunvme_dev_set_feature(dev, GPUNVME_FID_ASYNC_EVENT, value | WARNINGS);
	if (ret > 0)
		ret = gpunvme_dev_set_feature(dev, GPUNVME_FID_ASYNC_EVENT, value);
	return ret;
}

/* With the lock held. A controller that refuses still reports errors. A command that does not complete is sent after the reset. */
static void configure(struct gpunvme_dev *dev)
{
	int ret;

	if (dev->async.set || gnv_ctrl_dead(&dev->nvme.ctrl))
		return;
	ret = set_wanted(dev);
	dev->async.set = ret >= 0;
	if (ret)
		gnv_log(&dev->nvme.log, GPUNVME_LOG_WARN, "not all events will be reported: %s", gpunvme_errmsg());
}

static enum gpunvme_event_type type_of(uint32_t dw0)
{
	uint32_t type = dw0 & 7, info = dw0 >> 8 & 0xff;

	if (type == TYPE_SMART)
		return GPUNVME_EVENT_HEALTH;
	if (type == TYPE_NOTICE && info == 0)
		return GPUNVME_EVENT_NAMESPACE;
	return type == TYPE_NOTICE && info == 1 ? GPUNVME_EVENT_FIRMWARE : GPUNVME_EVENT_CONTROLLER;
}

/* With the lock held. Return: false when it ended because of a stop. */
static bool rest(struct gnv_async *async)
{
	uint64_t at = gnv_clock_ns() + PERIOD_MS * GNV_NS_PER_MS;
	struct timespec until = { .tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u) };

	if (!async->stop)
		pthread_cond_timedwait(&async->wake, &async->lock, &until);
	return !async->stop;
}

static void clear(struct gpunvme_dev *dev, uint8_t lid)
{
	uint32_t csts = 0;
	char page[4096];

	while (!gnv_ctrl_status(&dev->nvme.ctrl, &csts) && csts & CSTS_PAUSED)
		if (!rest(&dev->async))
			return;
	if (gpunvme_dev_log_page(dev, lid, GPUNVME_NSID_ALL, page, lid == CHANGED_NAMESPACES ? sizeof(page) : 512))
		gnv_log(&dev->nvme.log, GPUNVME_LOG_WARN, "log page 0x%02x, which an event named: %s", lid, gpunvme_errmsg());
}

/* With the lock held. */
static void look(struct gpunvme_dev *dev)
{
	uint32_t events[GNV_ADMIN_AERS];
	unsigned i, n = gnv_admin_take_events(&dev->nvme.admin, events);

	configure(dev);
	for (i = 0; i < n; i++) {
		gnv_events_tell(&dev->events, type_of(events[i]), events[i]);
		if (events[i] >> 16 & 0xff)
			clear(dev, (uint8_t)(events[i] >> 16));
	}
	gnv_admin_request_events(&dev->nvme.admin, dev->nvme.asks.aers);
}

static void *async_main(void *arg)
{
	struct gpunvme_dev *dev = arg;

	pthread_mutex_lock(&dev->async.lock);
	while (rest(&dev->async))
		look(dev);
	pthread_mutex_unlock(&dev->async.lock);
	return NULL;
}

int gnv_async_start(struct gpunvme_dev *dev)
{
	struct gnv_async *async = &dev->async;
	int ret = 0;

	pthread_mutex_lock(&async->lock);
	if (!async->running && !async->stop) {
		look(dev);
		ret = gnv_thread_start(&async->thread, async_main, dev);
		async->running = !ret;
	}
	pthread_mutex_unlock(&async->lock);
	return ret ? gnv_fail(ret, "no thread for the events of the controller: %s", strerror(-ret)) : 0;
}

void gnv_async_stop(struct gpunvme_dev *dev)
{
	struct gnv_async *async = &dev->async;
	bool running;

	pthread_mutex_lock(&async->lock);
	running = async->running;
	async->running = false;
	async->stop = true;
	pthread_cond_signal(&async->wake);
	pthread_mutex_unlock(&async->lock);
	if (running)
		pthread_join(async->thread, NULL);
}
