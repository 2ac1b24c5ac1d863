/* SPDX-License-Identifier: MIT */
/* Asynchronous events (Base Specification 5.2): which there are. */
#ifndef GNV_SOFT_EVENT_H
#define GNV_SOFT_EVENT_H

enum gnv_soft_event {					/* values: position in gnv_soft_io.events */
		      GNV_SOFT_EVENT_DOORBELL_REGISTER, /* write to the doorbell of a queue that does not exist */
		      GNV_SOFT_EVENT_DOORBELL_VALUE,
		      GNV_SOFT_EVENT_TEMPERATURE,
		      GNV_SOFT_EVENT_NAMESPACE, /* nothing here raises it but tests, nor the next */
		      GNV_SOFT_EVENT_FIRMWARE,
		      GNV_SOFT_EVENTS
};

#endif
