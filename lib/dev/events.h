/* SPDX-License-Identifier: MIT */
/* Events of a device, for its program. Any thread may call, with any lock but this one's. */
#ifndef GNV_DEV_EVENTS_H
#define GNV_DEV_EVENTS_H

#include <gpunvme/dev.h>
#include <pthread.h>
#include <stdbool.h>

#define GNV_EVENTS 64u

struct gnv_events {
	pthread_mutex_t lock; /* protects the fields below. The innermost of all */
	int fd;               /* -1: nobody has asked */
	unsigned first, count;
	uint32_t missed;
	struct gpunvme_event event[GNV_EVENTS];
	uint64_t generation; /* atomic */
	bool resetting;      /* atomic */
};

void gnv_events_init(struct gnv_events *events);
void gnv_events_fini(struct gnv_events *events);

/* @queue, @mem: or NULL. */
void gnv_events_add(struct gnv_events *events, enum gpunvme_event_type type, struct gpunvme_queue *queue, struct gpunvme_mem *mem);

/* The same for an event of the controller. @dw0: of the completion that reported it. */
void gnv_events_tell(struct gnv_events *events, enum gpunvme_event_type type, uint32_t dw0);

/* A reset begins. It ends with a new generation, or without success for the reason @why. Its end is the one event of a reset. */
void gnv_events_reset(struct gnv_events *events);
void gnv_events_reset_ended(struct gnv_events *events, const char *why);

/* The controller cannot be used any more, for the reason @why. Ignored during a reset. */
void gnv_events_lost(void *events, const char *why);

#endif
