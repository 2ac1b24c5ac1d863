/* SPDX-License-Identifier: MIT */
#include "dev/events.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dev/dev.h"
#include "port/wake.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

void gnv_events_init(struct gnv_events *events)
{
	memset(events, 0, sizeof(*events));
	pthread_mutex_init(&events->lock, NULL);
	events->fd = -1;
}

void gnv_events_fini(struct gnv_events *events)
{
	if (events->fd >= 0)
		gnv_wake_close(events->fd);
	pthread_mutex_destroy(&events->lock);
}

static void add(struct gnv_events *events, struct gpunvme_event event)
{
	pthread_mutex_lock(&events->lock);
	if (events->fd >= 0 && events->count < GNV_EVENTS) {
		event.generation = __atomic_load_n(&events->generation, __ATOMIC_RELAXED);
		event.missed = events->missed;
		events->missed = 0;
		events->event[(events->first + events->count++) % GNV_EVENTS] = event;
		gnv_wake_ring(events->fd);
	} else if (events->fd >= 0) {
		events->missed++;
	}
	pthread_mutex_unlock(&events->lock);
}

void gnv_events_add(struct gnv_events *events, enum gpunvme_event_type type, struct gpunvme_queue *queue, struct gpunvme_mem *mem)
{
	add(events, (struct gpunvme_event){ .size = sizeof(struct gpunvme_event), .type = type, .queue = queue, .mem = mem });
}

void gnv_events_tell(struct gnv_events *events, enum gpunvme_event_type type, uint32_t dw0)
{
	add(events, (struct gpunvme_event){ .size = sizeof(struct gpunvme_event), .type = type, .detail = dw0 });
}

void gnv_events_reset(struct gnv_events *events)
{
	__atomic_store_n(&events->resetting, true, __ATOMIC_RELEASE);
}

static void add_lost(struct gnv_events *events, const char *why)
{
	struct gpunvme_event event = { .size = sizeof(event), .type = GPUNVME_EVENT_LOST };

	snprintf(event.why, sizeof(event.why), "%s", why);
	add(events, event);
}

void gnv_events_reset_ended(struct gnv_events *events, const char *why)
{
	if (!why)
		__atomic_fetch_add(&events->generation, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&events->resetting, false, __ATOMIC_RELEASE);
	if (why)
		add_lost(events, why);
	else
		gnv_events_add(events, GPUNVME_EVENT_RESET, NULL, NULL);
}

void gnv_events_lost(void *ctx, const char *why)
{
	struct gnv_events *events = ctx;

	if (!__atomic_load_n(&events->resetting, __ATOMIC_ACQUIRE))
		add_lost(events, why);
}

GPUNVME_API int gpunvme_dev_event_fd(struct gpunvme_dev *dev, int *fd)
{
	int ret = gnv_enter(dev, dev && fd, "dev and fd");

	if (ret)
		return ret;
	pthread_mutex_lock(&dev->events.lock);
	if (dev->events.fd < 0)
		ret = gnv_wake_open(&dev->events.fd);
	if (ret)
		dev->events.fd = -1;
	pthread_mutex_unlock(&dev->events.lock);
	if (!ret)
		ret = gnv_async_start(dev);
	if (!ret)
		*fd = dev->events.fd;
	return ret;
}

GPUNVME_API int gpunvme_dev_next_event(struct gpunvme_dev *dev, struct gpunvme_event *event)
{
	struct gnv_events *events = dev ? &dev->events : NULL;
	int ret = gnv_enter(dev, dev && event, "dev and event");

	if (ret)
		return ret;
	pthread_mutex_lock(&events->lock);
	if (!events->count)
		ret = gnv_fail(-EAGAIN, "no event waits. Poll the descriptor of gpunvme_dev_event_fd()");
	else
		ret = gnv_info_copy(event, &events->event[events->first], gpunvme_event);
	if (!ret) {
		events->first = (events->first + 1) % GNV_EVENTS;
		if (!--events->count)
			gnv_wake_clear(events->fd);
	}
	pthread_mutex_unlock(&events->lock);
	return ret;
}
