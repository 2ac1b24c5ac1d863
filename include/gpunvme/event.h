/* SPDX-License-Identifier: MIT */
/*
 * How a controller is, and what has happened to it.
 *
 * Events wait in a list of the device, and a descriptor that poll() understands says that there are some. It is no callback,
 * because what a program does about an event is to call this library (take new views, close, open again), which a callback on a
 * thread of the library, with its locks held, could not allow; and a descriptor fits the loop that the program has already.
 */
#ifndef GPUNVME_EVENT_H
#define GPUNVME_EVENT_H

#include <gpunvme/dev.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_qp;
struct gpunvme_mem;

enum gpunvme_state {
	GPUNVME_STATE_ALIVE,
	GPUNVME_STATE_RESETTING, /* it will be alive or dead; calls wait, or return -ESHUTDOWN */
	GPUNVME_STATE_DEAD,      /* gpunvme_dev_reset(), or closing and opening it, may bring it back; calls return -ESHUTDOWN */
	GPUNVME_STATE_REMOVED    /* it is not there any more, or was given back to the kernel; calls return -ENODEV */
};

struct gpunvme_dev_status {
	size_t size;         /* set by the caller to sizeof(struct gpunvme_dev_status) */
	uint32_t state;      /* enum gpunvme_state */
	uint32_t reserved;
	uint64_t generation; /* resets that have succeeded since it was opened: views from before the last are over */
};

/**
 * gpunvme_dev_state() - how the controller is
 * @dev:    an open device
 * @status: filled; status->size must be set
 *
 * What is known, without asking the controller. Any thread may call it, also during a reset.
 * Return: 0; -EINVAL when status->size is too small.
 */
GPUNVME_API int gpunvme_dev_state(struct gpunvme_dev *dev, struct gpunvme_dev_status *status);

enum gpunvme_event_type {
	GPUNVME_EVENT_RESET = 1,    /* the controller was reset and is alive: take new views of all queues */
	GPUNVME_EVENT_LOST,         /* it is dead or removed: gpunvme_dev_state() says which, why says what ended it */
	GPUNVME_EVENT_RECOVERED,    /* a queue was recovered: take a new view of qp */
	GPUNVME_EVENT_MEM_REVOKED,  /* the device in whose BAR memory lies took it away: all queues have ended; map mem again */
	GPUNVME_EVENT_NAMESPACE,    /* a namespace was added, removed or changed: gpunvme_ns_list(), gpunvme_ns_get_info() */
	GPUNVME_EVENT_HEALTH,       /* spare, temperature, reliability or read-only: see log page 0x02, gpunvme_doctor_drive() */
	GPUNVME_EVENT_FIRMWARE,     /* firmware is being activated: commands may take as long as the drive says */
	GPUNVME_EVENT_CONTROLLER    /* another event of the controller: see detail */
};

struct gpunvme_event {
	size_t size;            /* set by the caller to sizeof(struct gpunvme_event) */
	uint32_t type;          /* enum gpunvme_event_type; a later version may know more */
	uint32_t missed;        /* events that found no room before this one */
	uint64_t generation;    /* of the device when it happened */
	struct gpunvme_qp *qp;  /* or NULL; to compare with: it may be destroyed meanwhile */
	struct gpunvme_mem *mem; /* or NULL; the same */
	uint32_t detail;        /* NAMESPACE to CONTROLLER: dword 0 that the controller told it with (Base Specification 5.2); else 0 */
	uint32_t reserved;
	char why[160];          /* LOST: as gpunvme_dev_info.why then; else "" */
};

/**
 * gpunvme_dev_event_fd() - a descriptor that is readable while events wait
 * @dev: an open device
 * @fd:  set to it; the device's, which closes it when it is closed. For poll() and its kin only; closed by exec()
 *
 * Events are kept from the first call on, 64 at most. That call asks the controller for its own events, too (Base Specification
 * 5.2): it sets feature 0Bh to all that the types above name, unless the program sets it to something else later, and starts a
 * thread that looks ten times a second, and reads the log page of each event, so that the next of its kind may come. What the
 * controller refuses is said in the log. Any thread may call it. Return: 0; -EMFILE; -EAGAIN there is no thread.
 */
GPUNVME_API int gpunvme_dev_event_fd(struct gpunvme_dev *dev, int *fd);

/**
 * gpunvme_dev_next_event() - take the oldest event
 * @dev:   an open device
 * @event: filled; event->size must be set
 *
 * Does not wait. Any thread may call it. Return: 0; -EAGAIN there is none; -EINVAL event->size is too small.
 */
GPUNVME_API int gpunvme_dev_next_event(struct gpunvme_dev *dev, struct gpunvme_event *event);

#ifdef __cplusplus
}
#endif
#endif
